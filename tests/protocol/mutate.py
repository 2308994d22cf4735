#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random mistakes in the library, one at a time: an operator, a constant, a condition or a statement
of src/ is changed in a copy, and the tests of the suites unit, api and threads must notice.

    mutate.py [--count N] [--seed N] [--files PATTERN] [--jobs N] [--least PERCENT] [--longest SECONDS]
              [--verbose]

A mutant that does not compile, or compiles to the code of the original, is none: another is drawn. All
tests have the library with guards and assertions. Those that found most in the least time are run first,
until a part of one fails, or takes five times as long as without a mistake. Mutants that no test can
notice are in tests/protocol/mutants/argued.txt, with the reason; they count as found. Fails if fewer than --least
percent of 30 or more were found: a new seed may always draw some that were not seen before, so they are
printed and are no failure. STINT_TEST_SEED=N is the seed, too."""
import argparse
import collections
import concurrent.futures
import contextlib
import fnmatch
import itertools
import json
import math
import os
import queue
import random
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kit"))
import commands
import mutants

SOURCE = Path(__file__).resolve().parents[2]
ARGUED = SOURCE / "tests" / "protocol" / "mutants" / "argued.txt"

SUITES = {"unit", "api", "threads"}
# Seconds of CPU of those that take more than one, and seldom find what the others do not.
LONG = {"instructions": 2, "set-up": 9, "deaths": 2, "time": 4, "abuse": 2,
        "twin": 2, "shared": 1,
        "faults": math.inf}  # has the shared library, which is not built here
# Fewer draws, and always the same, so that a failure comes from the mutant.
ENVIRONMENT = {"STINT_TEST_DIVISOR": "20", "STINT_TEST_ROUNDS": "150", "STINT_TEST_SEED": "1"}
# All tests have the library with guards and assertions.
SETUP = ["--buildtype=plain", "-Doptimization=1", "-Dbench=false", "-Dtool=disabled",
         f"-Dc_args=-DSTINT_TESTING -I{SOURCE / 'tests' / 'kit'}"]

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
                      r"default|static_assert|assert|_Alignas|__builtin_unreachable|__builtin_prefetch|else|INSTANT)\b")


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
            stop = closing(code, opening) + 1
            # Only a test can take a guard away: with it the condition is true.
            guard = re.fullmatch(r"\(GUARDED\(\w+\)\)", code[opening:stop])
            for other in ("(false)",) if guard else ("(true)", "(false)"):
                yield opening, stop, other
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


class Test:
    def __init__(self, about, build):
        self.name, self.program, self.arguments = about["name"], about["cmd"][0], about["cmd"][1:]
        self.target = str(Path(self.program).relative_to(build))
        self.environment = {**os.environ, **ENVIRONMENT, **about["env"]}
        self.cpu, self.wall = 30, 60


class Tree:
    """A copy of src/ of its own, whose mutants are compiled and linked beside a build that all trees share."""

    def __init__(self, library, directory):
        self.library, self.directory, self.pristine = library, directory, {}
        library.copy(directory)

    def made(self, name, of):
        """What is made of a file of src/: object to its bytes; None if the compiler does not take it. `of`: a
        part of the objects' names."""
        found = {}
        for output in self.library.made_from(name, of):
            try:
                path = self.library.compile(output, self.directory, stderr=subprocess.DEVNULL)
            except subprocess.CalledProcessError:
                return None
            found[output] = path.read_bytes()
        return found

    def link(self, test, header):
        """The program with the objects of the library that were made, and its own anew that include the header."""
        words = self.library.linking(test.target)
        own = self.made(header, f"/{Path(test.target).name}.p/") if header else {}
        if own is None:
            return False
        words = [self.directory / Path(word).name if word in own else word for word in words]
        objects = self.directory.glob("*_src_*.o")
        try:
            self.library.link(words, objects, self.directory / "program", stderr=subprocess.DEVNULL)
        except subprocess.CalledProcessError:
            return False
        return True

    def run(self, test, header=None):
        """Whether that test passes. It is over at the first failure of a part of it."""
        if not self.link(test, header):
            return False
        limit, said, until = math.ceil(2 + 5 * test.cpu), b"", time.monotonic() + 5 + 5 * test.wall
        with subprocess.Popen(["prlimit", f"--cpu={limit}", "--core=0", self.directory / "program", *test.arguments],
                              cwd=self.library.build, env=test.environment, start_new_session=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                while time.monotonic() < until:
                    ready, _, _ = select.select([process.stdout], [], [], 0.5)
                    part = os.read(process.stdout.fileno(), 65536) if ready else b""
                    said = said[-20:] + part
                    if b"[  FAILED  ]" in said:
                        return False
                    # A child that is left may have the pipe.
                    if not part and (ready or process.poll() is not None):
                        return process.wait(max(0.1, until - time.monotonic())) in (0, 77)  # 77: skipped
                return False
            except subprocess.TimeoutExpired:
                return False
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def measure(self, test):
        """What it takes, which is the base of its limits. It must pass."""
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        if not self.run(test):
            sys.exit(f"{test.name} fails without any mistake")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        test.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        test.wall = time.monotonic() - began

    def try_mutant(self, mutant, tests):
        """What became of it: the name of the test that failed, "" if none did, or None: it is no
        mutant."""
        path = self.directory / "src" / mutant.file
        original = path.read_text()
        if mutant.file not in self.pristine:
            self.pristine[mutant.file] = self.made(mutant.file, mutants.LIBRARY)
        path.write_text(mutant.text)
        try:
            if self.made(mutant.file, mutants.LIBRARY) in (None, self.pristine[mutant.file]):
                return None
            header = mutant.file if path.suffix == ".h" else None
            return next((test.name for test in tests if not self.run(test, header)), "")
        finally:
            path.write_text(original)
            for made in self.directory.glob("*.o"):
                made.unlink()


def built(directory, longest):
    """A build for its tests, which it has then."""
    subprocess.run(["meson", "setup", *SETUP, directory, SOURCE], stdout=subprocess.DEVNULL, check=True)
    listed = [Test(test, directory) for test in json.loads(subprocess.check_output(
        ["meson", "introspect", "--tests", directory])) if any(suite.split(":")[-1] in SUITES for suite in test["suite"])
        and test["cmd"][0].startswith(str(directory)) and LONG.get(test["name"], 0) <= longest]
    subprocess.run(["ninja", "-C", directory, *{test.target for test in listed}], stdout=subprocess.DEVNULL, check=True)
    return mutants.Library(directory), listed


def draw(seed, files):
    """Mutants in a random order: first the line, so that a long one is not drawn more often, and then
    one of its mutants."""
    chance, by_line = random.Random(seed), collections.defaultdict(list)
    for path in commands.library(SOURCE):
        if fnmatch.fnmatch(path.name, files):
            for mutant in mutants_of(str(path.relative_to(SOURCE / "src")), path.read_text()):
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
        library, tests = built(Path(directory) / "build", options.longest)
        trees = queue.Queue()
        for job in range(options.jobs):
            trees.put(first := Tree(library, Path(directory) / str(job)))
        for test in tests:
            first.measure(test)

        def attempt(mutant):
            """The quickest tests first; of those, the ones that found others of this file."""
            def price(test):
                return (0.1 + test.cpu) / (1 + 4 * found_by[mutant.file][test.name] + found_by["all"][test.name] / 10)
            tree = trees.get()
            try:
                return tree.try_mutant(mutant, sorted(tests, key=price))
            finally:
                trees.put(tree)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            while len(results) < options.count and (some := list(itertools.islice(drawn, options.jobs))):
                for mutant, result in zip(some, pool.map(attempt, some)):
                    if result is None:
                        none += 1
                        continue
                    why = reasons.get((mutant.file, mutant.before, mutant.after)) or \
                        reasons.get((mutant.file, mutant.before, "*"))
                    results.append(result or ("argued" if why else ""))
                    if result:
                        found_by[mutant.file][result] += 1
                        found_by["all"][result] += 1
                    if options.verbose or not (result or why):
                        print(f"{result or why or 'not found'}: {mutant}", flush=True)

    found = sum(result != "" for result in results)
    share = 100 * found // max(1, len(results))
    print("found by", ", ".join(f"{name} {count}" for name, count in
                                collections.Counter(results).most_common() if name))
    print(f"{len(results)} mutants in {time.monotonic() - began:.0f} s, {none} more were none; "
          f"{found} found ({share}%), of which {results.count('argued')} are argued")
    # A few say nothing of the share.
    return len(results) == 0 < none or (len(results) >= 30 and share < options.least)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int,
                        default=int(os.environ.get("STINT_TEST_SEED") or time.time()))
    parser.add_argument("--files", default="*", help="of src/, as in *.h")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--longest", type=float, default=5, help="seconds of CPU that a test may take")
    parser.add_argument("--least", type=float, default=36)
    parser.add_argument("--verbose", action="store_true")
    sys.exit(main(parser.parse_args()))
