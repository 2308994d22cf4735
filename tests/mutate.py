#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random mistakes in the library, one at a time: an operator, a constant, a condition or a statement
of src/ is changed in a copy, and the tests of the suites unit, api and threads must notice.

    mutate.py [--count N] [--seed N] [--seconds N] [--files PATTERN] [--jobs N] [--least PERCENT]

A mutant that does not compile, or compiles to the code of the original, is none: another is drawn. The
quickest tests are run first, until one fails. Mutants that no test can notice are in
tests/mutants/argued.txt, with the reason; they count as found. Fails if fewer than --least percent
were found: a new seed may always draw one that was not seen before, so that a single one is printed
and is no failure. STINT_TEST_SEED=N is the seed, too."""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
ARGUED = SOURCE / "tests" / "mutants" / "argued.txt"

# Seconds that tests take in such a build, if more than one: the quickest come first.
SECONDS = {"deaths": 12, "interleavings": 15, "instructions": 15, "shared": 12, "kills": 6, "time": 3,
           "abuse": 2, "syscalls": 2, "twin": 1.2, "features-threads": 1.2}
SUITES = {"unit", "api", "threads"}
LEFT_OUT = {"metrics-parsed"}  # what it reads, metrics reads
# Fewer draws, and always the same, so that a failure comes from the mutant.
ENVIRONMENT = {"STINT_TEST_DIVISOR": "20", "STINT_TEST_ROUNDS": "150", "STINT_TEST_SEED": "1"}
SETUP = ["--buildtype=plain", "-Doptimization=1", "-Dbench=false", "-Dtool=disabled"]

SWAPS = [
    (r"(?<![<-])<(?![<=])", "<="), (r"<=(?!=)", "<"), (r"(?<![>-])>(?![>=])", ">="), (r"(?<!>)>=", ">"),
    (r"==", "!="), (r"!=", "=="), (r"&&", "||"), (r"\|\|", "&&"), (r"<<(?!=)", ">>"), (r">>(?!=)", "<<"),
    (r"(?<= )\+(?= )", "-"), (r"(?<= )-(?= )", "+"), (r"(?<= )\*(?= )", "/"), (r"(?<= )/(?= )", "*"),
    (r"(?<= )%(?= )", "/"), (r"(?<= )&(?= )", "|"), (r"(?<= )\|(?= )", "&"), (r"(?<= )\^(?= )", "|"),
    (r"\|=", "="), (r"&=", "="), (r"\+=", "-="), (r"-=", "+="), (r"\+\+", "--"), (r"--", "++"),
    (r"!(?!=)", ""), (r"~", ""), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
]
NUMBER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|0|[1-9]\d*)([uUlL]*)(?![\w.])")
CONSTANT = re.compile(r"#define\s+\w+\s+\(?[^\\]*$")
DECLARES = re.compile(r"(static|extern|const|struct|enum|union|typedef|_Thread_local|goto|return|case|"
                      r"default|static_assert|assert|_Alignas|__builtin_unreachable|else)\b")


class Mutant(collections.namedtuple("Mutant", "file line before after text")):
    """The text of the whole file; of the line: its number, and what it was and is."""

    def __str__(self):
        return f"{self.file}:{self.line}: `{self.before}` -> `{self.after}`"


def masked(text):
    """The same text with spaces for comments, strings and characters."""
    pattern = r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)


def lines_of(text):
    """Beginning and end of each line."""
    at = 0
    for line in text.split("\n"):
        yield at, at + len(line)
        at += len(line) + 1


def closing(text, opening):
    """Where the bracket closes that is opened there."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    return len(text)


def edits(text):
    """All mutants of a file: (begin, end, what stands there instead)."""
    code = masked(text)
    previous, directive, asserted = "{", False, 0
    for begin, end in lines_of(code):
        line = code[begin:end]
        words = line.strip()
        was_directive, directive = directive, words.startswith("#") or directive
        if directive:
            directive = words.endswith("\\")
            if was_directive or not CONSTANT.match(words):
                continue
        if words.startswith(("assert(", "static_assert(")):
            asserted = closing(code, begin + line.index("("))
        if not words or begin <= asserted:
            continue
        for pattern, other in SWAPS:
            for found in re.finditer(pattern, line):
                yield begin + found.start(), begin + found.end(), other
        for found in NUMBER.finditer(line):
            number = int(found[1], 0)
            for other in {number + 1, number - 1 if number > 0 else 1}:
                yield begin + found.start(), begin + found.end(), f"{other}{found[2]}"
        for found in re.finditer(r"\bif \(", line):
            opening = begin + found.end() - 1
            for other in ("(true)", "(false)"):
                yield opening, closing(code, opening) + 1, other
        starts = previous.endswith((";", "{", "}", ":", ")")) or previous == "else"
        if starts and line.startswith("    ") and re.match(r"[\w*(]", words) and \
                (not DECLARES.match(words) or words == "return;"):
            stop = code.find(";", begin)
            if stop >= 0 and "{" not in code[begin:stop] and \
                    re.match(r"(?!(if|for|while|switch|do)\b).*([(=]|\+\+|--|^(break|continue|return);)",
                             words):
                yield begin + len(line) - len(line.lstrip()), stop + 1, ";"
        if words:
            previous = words


def mutants_of(name, text):
    for begin, end, other in edits(text):
        if text[begin:end] == other:
            continue
        first = text.rfind("\n", 0, begin) + 1
        last = text.find("\n", end)
        before = " ".join(text[first:last].split())
        after = " ".join((text[first:begin] + other + text[end:last]).split())
        yield Mutant(name, text.count("\n", 0, begin) + 1, before, after,
                     text[:begin] + other + text[end:])


def argued():
    """The mutants that are known not to be noticed: (file, before, after), with their reasons. Of an
    entry whose `after` is *, any mutant of that line."""
    found = {}
    for entry in re.finditer(r"^(\S+): `(.*)` -> (?:`(.*)`|(\*))\n((?:    .*\n)+)", ARGUED.read_text(),
                             re.MULTILINE):
        found[entry[1], entry[2], entry[4] or entry[3]] = " ".join(entry[5].split())
    return found


def stale(reasons):
    for file, before, _ in reasons:
        path = SOURCE / "src" / file
        if not path.exists() or before not in " ".join(path.read_text().split()):
            yield f"argued.txt: {file} has no `{before}` any more"


class Tree:
    """A copy of the sources with a build of its own."""

    def __init__(self, directory, pristine=None):
        self.directory, self.build = directory, directory / "build"
        if pristine is not None:
            shutil.copytree(pristine.directory, directory, symlinks=True)
            self.tests, self.pristine = pristine.tests, pristine.pristine
            return
        directory.mkdir()
        for name in ("doc", "include", "src", "tests", "meson.build", "meson_options.txt"):
            copy = shutil.copytree if (SOURCE / name).is_dir() else shutil.copy2
            copy(SOURCE / name, directory / name)
        subprocess.run(["meson", "setup", *SETUP, self.build, directory], stdout=subprocess.DEVNULL,
                       check=True)
        subprocess.run(["ninja", "-C", self.build, "-j", str(os.cpu_count())],
                       stdout=subprocess.DEVNULL, check=True)
        listed = json.loads(subprocess.check_output(["meson", "introspect", "--tests", self.build]))
        self.tests = [
            (test["name"], [part.replace(str(self.build), ".") for part in test["cmd"]],
             {key: value.replace(str(self.build), ".") for key, value in test["env"].items()})
            for test in listed
            if any(suite.split(":")[-1] in SUITES for suite in test["suite"])
            and test["name"] not in LEFT_OUT]
        self.pristine = self.objects()

    def objects(self):
        """The bytes of all object files, by path."""
        return {path.relative_to(self.build): path.read_bytes()
                for path in self.build.glob("**/*.o")}

    def make(self, *targets):
        """Whether it compiles."""
        done = subprocess.run(["ninja", "-j1", "-C", self.build, *targets],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return done.returncode == 0

    def passes(self, name, command, environment):
        """Whether that test passes. Its processes are killed when it ends."""
        target = Path(command[0])
        if not target.is_absolute() and not self.make(str(target)):
            return False
        with subprocess.Popen(command, cwd=self.build, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              env={**os.environ, **ENVIRONMENT, **environment},
                              start_new_session=True) as process:
            try:
                # 77: skipped.
                return process.wait(10 + 10 * SECONDS.get(name, 1)) in (0, 77)
            except subprocess.TimeoutExpired:
                return False
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def try_mutant(self, mutant, order):
        """What became of it: the name of the test that failed, "" if none did, or None: it is no
        mutant."""
        path = self.directory / "src" / mutant.file
        was = path.stat()
        original = path.read_text()
        started = time.time_ns()
        path.write_text(mutant.text)
        try:
            if not self.make("src/libstint.a", "tests/libstint-testing.a"):
                return None
            changed = [name for name in self.changed(started)
                       if (self.build / name).read_bytes() != self.pristine[name]]
            if not changed:
                return None
            for test in order(self.tests):
                if not self.passes(*test):
                    return test[0]
            return ""
        finally:
            # Back to what it was, without compiling it again.
            path.write_text(original)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
            for name in self.changed(started):
                (self.build / name).write_bytes(self.pristine[name])

    def changed(self, since):
        return [name for name in self.pristine if (self.build / name).stat().st_mtime_ns >= since]


def draw(seed, files):
    """Mutants in a random order: first the line, so that a long one is not drawn more often, and then
    one of its mutants."""
    chance, by_line = random.Random(seed), collections.defaultdict(list)
    for path in sorted((SOURCE / "src").glob("*.[ch]")):
        if fnmatch.fnmatch(path.name, files):
            for mutant in mutants_of(path.name, path.read_text()):
                by_line[mutant.file, mutant.line].append(mutant)
    lines = sorted(by_line)
    chance.shuffle(lines)
    for line in lines:
        yield chance.choice(by_line[line])


def main(options):
    print(f"STINT_TEST_SEED={options.seed}", flush=True)
    reasons, began = argued(), time.monotonic()
    results, none, found_by = [], 0, collections.defaultdict(collections.Counter)
    drawn = draw(options.seed, options.files)

    with tempfile.TemporaryDirectory(prefix="stint-mutate-") as directory:
        trees, first = queue.Queue(), Tree(Path(directory) / "0")
        trees.put(first)
        for job in range(1, options.jobs):
            trees.put(Tree(Path(directory) / str(job), first))

        def attempt(mutant):
            def order(tests):
                """The quickest first; of those, the ones that found others of this file."""
                known = found_by[mutant.file]
                return sorted(tests, key=lambda test: SECONDS.get(test[0], 1) / (1 + known[test[0]]))
            tree = trees.get()
            try:
                return tree.try_mutant(mutant, order)
            finally:
                trees.put(tree)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            waiting = {}
            while True:
                while len(waiting) < options.jobs and len(results) + len(waiting) < options.count and \
                        time.monotonic() - began < options.seconds:
                    mutant = next(drawn, None)
                    if mutant is None:
                        break
                    waiting[pool.submit(attempt, mutant)] = mutant
                if not waiting:
                    break
                done, _ = concurrent.futures.wait(waiting,
                                                  return_when=concurrent.futures.FIRST_COMPLETED)
                for job in done:
                    mutant, result = waiting.pop(job), job.result()
                    if result is None:
                        none += 1
                        continue
                    why = reasons.get((mutant.file, mutant.before, mutant.after)) or \
                        reasons.get((mutant.file, mutant.before, "*"))
                    results.append(result or ("argued" if why else ""))
                    if result:
                        found_by[mutant.file][result] += 1
                    elif not why:
                        print(f"not found: {mutant}", flush=True)
                    if options.verbose:
                        print(f"{time.monotonic() - began:.0f} s, {result or why or 'NOT FOUND'}: "
                              f"{mutant}", flush=True)

    found = sum(result != "" for result in results)
    share = 100 * found // max(1, len(results))
    for line in stale(reasons):
        print(line)
    print("found by", ", ".join(f"{name} {count}" for name, count in
                                collections.Counter(results).most_common() if name))
    print(f"{len(results)} mutants in {time.monotonic() - began:.0f} s, {none} more were none; "
          f"{found} found ({share}%), of which {results.count('argued')} are argued")
    return not results or share < options.least


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int,
                        default=int(os.environ.get("STINT_TEST_SEED") or time.time()))
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no more are drawn")
    parser.add_argument("--files", default="*", help="of src/, as in *.h")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--least", type=float, default=75)
    parser.add_argument("--verbose", action="store_true")
    sys.exit(main(parser.parse_args()))
