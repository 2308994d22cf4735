#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random mistakes in the library, one at a time: an operator, a constant, a condition or a statement
of src/ is changed in a copy, and the tests of the suites unit, api and threads must notice.

    mutate.py [--count N] [--seed N] [--seconds N] [--files PATTERN] [--jobs N] [--least PERCENT]
              [--longest SECONDS] [--named FILE] [--tree DIRECTORY] [--verbose]

A mutant that does not compile, or compiles to the code of the original, is none: another is drawn. All
tests have the library with guards and assertions. Those that found most in the least time are run first,
until a part of one fails, or takes five times as long as without a mistake. Mutants that no test can
notice are in tests/protocol/mutants/argued.txt, with the reason; they count as found. Fails if fewer than --least
percent of 30 or more were found: a new seed may always draw some that were not seen before, so they are
printed and are no failure. STINT_TEST_SEED=N is the seed, too."""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import math
import os
import queue
import random
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kit"))
import commands

SOURCE = Path(__file__).resolve().parents[2]
ARGUED = SOURCE / "tests" / "protocol" / "mutants" / "argued.txt"

SUITES = {"unit", "api", "threads"}
# Seconds of CPU of those that take more than one, and seldom find what the others do not.
LONG = {"instructions": 2, "set-up": 9, "deaths": 2, "time": 4, "abuse": 2,
        "twin": 2, "shared": 1,
        "faults": math.inf}  # has the shared library, which is not built here
# Fewer draws, and always the same, so that a failure comes from the mutant.
ENVIRONMENT = {"STINT_TEST_DIVISOR": "20", "STINT_TEST_ROUNDS": "150", "STINT_TEST_SEED": "1"}
SETUP = ["--buildtype=plain", "-Doptimization=1", "-Dbench=false", "-Dtool=disabled"]
LIBRARY = "tests/libstint-testing.a.p/.._src_"

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
    def __init__(self, name, command, environment):
        self.name, self.command, self.environment = name, command, environment
        self.cpu = self.wall = None


class Tree:
    """A copy of the sources with a build of its own, in which all tests have one library: that with
    guards and assertions. Mutants are compiled and linked without ninja, beside what is there."""

    def __init__(self, directory, longest=None, pristine=None):
        self.directory, self.build = directory, directory / "build"
        self.out = self.build / "mutant"
        if pristine is not None:
            shutil.copytree(pristine.directory, directory, symlinks=True)
            for name in ("tests", "commands", "needs", "unity", "pristine", "grouping"):
                setattr(self, name, getattr(pristine, name))
            return
        directory.mkdir(exist_ok=True)
        for name in ("doc", "include", "src", "tests", "meson.build", "meson_options.txt"):
            if (SOURCE / name).is_dir():
                shutil.copytree(SOURCE / name, directory / name, dirs_exist_ok=True)
            else:
                shutil.copy2(SOURCE / name, directory / name)
        for path in (directory / "tests").rglob("meson.build"):
            times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
            path.write_text(path.read_text().replace("stint_internal_dep", "stint_testing_dep"))
            os.utime(path, ns=times)
        subprocess.run(["meson", "setup", *SETUP, self.build, directory], stdout=subprocess.DEVNULL,
                       check=True)
        listed = [test for test in json.loads(self.said("meson", "introspect", "--tests", self.build))
                  if any(suite.split(":")[-1] in SUITES for suite in test["suite"])
                  and test["cmd"][0].startswith(str(self.build))
                  and LONG.get(test["name"], 0) <= longest]
        inside = str(self.build) + "/"
        programs = sorted({test["cmd"][0].replace(inside, "") for test in listed})
        self.said("ninja", "-C", self.build, *programs)
        self.out.mkdir(exist_ok=True)
        # How each object is compiled, without its output, and what links each program.
        self.commands = {}
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            words = iter(shlex.split(entry["command"]))
            self.commands[entry["output"]] = [
                word for word in words
                if not (word in ("-MQ", "-MF", "-o") and next(words)) and word not in ("-MD", "ccache")]
        for program in programs:
            self.commands[program] = shlex.split(
                self.said("ninja", "-C", self.build, "-t", "commands", "-s", program).splitlines()[-1])
        self.needs = collections.defaultdict(set)
        for line in self.said("ninja", "-C", self.build, "-t", "deps").splitlines():
            if line[:1].strip():
                known = line.split(":")[0]
            elif line.startswith("    ../src/"):
                self.needs[known].add(line.strip().replace("../src/", ""))
        self.unity, self.pristine, self.grouping = {}, {}, threading.Lock()  # which all trees share
        self.tests = []
        for test in listed:
            self.tests.append(Test(test["name"], [word.replace(inside, "") for word in test["cmd"]],
                                   {key: value.replace(inside, "") for key, value in test["env"].items()}))

    @staticmethod
    def said(*words):
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout

    def grouped(self):
        """Files that include all of the library, several sources each, for mistakes in headers. Names of
        sources may be in conflict: these are apart, as the compiler says, once for all trees."""
        with self.grouping:
            left = [] if self.unity else \
                [words[-1].removeprefix("../src/") for name, words in self.commands.items() if name.startswith(LIBRARY)]
            while left:
                name, together, wrong = f"unity-{len(self.unity)}.c", left, True
                while wrong:
                    self.include(name, together)
                    wrong = self.in_conflict(name) - {together[0]}
                    together = [source for source in together if source not in wrong]
                self.unity[name] = together
                left = [source for source in left if source not in together]
        for name, together in self.unity.items():
            self.include(name, together)
        return list(self.unity)

    def include(self, name, sources):
        (self.directory / "src" / name).write_text("".join(f'#include "{source}"\n' for source in sources))

    def in_conflict(self, name):
        done = subprocess.run(self.compiler(name, "-fsyntax-only", "-Wno-all", "-Wno-extra"),
                              cwd=self.build, stderr=subprocess.PIPE, text=True)
        found, where = set(), None
        for line in done.stderr.splitlines():
            where = (re.search(r"src/([\w/]+\.c):", line) or [None, where])[1]
            if " error: " in line or "redefined" in line:
                found.add(where)
        return found

    def compiler(self, source, *options):
        """The command that compiles a file of src/."""
        some = next(words for name, words in self.commands.items() if name.startswith(LIBRARY))
        words = self.commands.get(f"{LIBRARY}{source.replace('/', '_')}.o") or \
            [*some[:-1], f"../src/{source}"]
        return [*words, *options, "-fdiagnostics-color=never"]

    def object(self, source):
        return self.out / f"{source.replace('/', '_')}.o"

    def compiled(self, source):
        """The bytes of the object, or None."""
        done = subprocess.run(self.compiler(source, "-w", "-o", self.object(source)),
                              cwd=self.build, stderr=subprocess.DEVNULL)
        return self.object(source).read_bytes() if done.returncode == 0 else None

    def link(self, program, objects, header):
        """The program with these objects of the library, and its own anew that include the header."""
        words = []
        for word in self.commands[program]:
            if header in self.needs[word]:
                made = self.out / Path(word).name
                subprocess.run([*self.commands[word], "-w", "-o", made], cwd=self.build, check=True,
                               stderr=subprocess.DEVNULL)
                word = made
            elif word == program:
                word = self.out / "program"
            elif word == "-Wl,--start-group":
                # Of the archive the linker takes what is in no object.
                words += objects
            words.append(word)
        subprocess.run(words, cwd=self.build, check=True, stderr=subprocess.DEVNULL)

    def run(self, test, objects=(), header=None):
        """Whether that test passes. It is over at the first failure of a part of it."""
        try:
            self.link(test.command[0], objects, header)
        except subprocess.CalledProcessError:
            return False
        limit = math.ceil(2 + 5 * test.cpu)
        with subprocess.Popen(["prlimit", f"--cpu={limit}", "--core=0", self.out / "program",
                               *test.command[1:]], cwd=self.build,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env={**os.environ, **ENVIRONMENT, **test.environment},
                              start_new_session=True) as process:
            until = time.monotonic() + 5 + 5 * test.wall
            try:
                said, status = b"", None
                while True:
                    ready, _, _ = select.select([process.stdout], [], [], 0.5)
                    if ready:
                        part = os.read(process.stdout.fileno(), 65536)
                        said = said[-20:] + part
                        if b"[  FAILED  ]" in said:
                            return False
                        if not part:
                            return process.wait(max(0.1, until - time.monotonic())) in (0, 77)
                    # A child that is left may have the pipe.
                    elif (status := process.poll()) is not None:
                        return status in (0, 77)  # 77: skipped
                    if time.monotonic() > until:
                        return False
            except subprocess.TimeoutExpired:
                return False
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def measure(self):
        """What each test takes, which is the base of their limits. All must pass."""
        for test in self.tests:
            began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            test.cpu, test.wall = 30, 60
            if not self.run(test):
                sys.exit(f"{test.name} fails without any mistake")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            test.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            test.wall = time.monotonic() - began

    def try_mutant(self, mutant, tests):
        """What became of it: the name of the test that failed, "" if none did, or None: it is no
        mutant."""
        path = self.directory / "src" / mutant.file
        original, header, sources, objects = path.read_text(), None, [mutant.file], []
        if path.suffix == ".h":
            header, sources = mutant.file, self.grouped()
        for source in sources:
            if source not in self.pristine:
                self.pristine[source] = self.compiled(source)
        path.write_text(mutant.text)
        try:
            for source in sources:
                made = self.compiled(source)
                if made is None:
                    return None
                objects.append((self.object(source), made == self.pristine[source]))
            if all(same for _, same in objects):
                return None
            for test in tests:
                if not self.run(test, [name for name, _ in objects], header):
                    return test.name
            return ""
        finally:
            path.write_text(original)


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


def named(path):
    """The mutants of a file that has lines as they are printed. Lines may have moved since."""
    for name, line, change in re.findall(r"([\w/]+\.[ch]):(\d+): (`.*` -> `.*`)$", Path(path).read_text(),
                                         re.MULTILINE):
        same = [mutant for mutant in mutants_of(name, (SOURCE / "src" / name).read_text())
                if f"`{mutant.before}` -> `{mutant.after}`" == change]
        yield from sorted(same, key=lambda mutant: abs(mutant.line - int(line)))[:1]


def main(options):
    print(f"STINT_TEST_SEED={options.seed}", flush=True)
    reasons, began = argued(), time.monotonic()
    results, none, found_by = [], 0, collections.defaultdict(collections.Counter)
    drawn = named(options.named) if options.named else draw(options.seed, options.files)

    with tempfile.TemporaryDirectory(prefix="stint-mutate-") as directory:
        trees, first = queue.Queue(), \
            Tree(Path(options.tree or Path(directory) / "0").absolute(), options.longest)
        trees.put(first)
        for job in range(1, options.jobs):
            trees.put(Tree(Path(directory) / str(job), pristine=first))

        first.measure()
        if options.verbose:
            print(f"{time.monotonic() - began:.0f} s, {sum(test.cpu for test in first.tests):.0f} s of CPU "
                  "a run:", ", ".join(f"{test.name} {test.cpu:.2f}" for test in first.tests), flush=True)

        def attempt(mutant):
            """The quickest tests first; of those, the ones that found others of this file."""
            def price(test):
                worth = (test.name == mutant.file[:-2]) + 4 * found_by[mutant.file][test.name] + \
                    found_by["all"][test.name] / 10
                return (0.1 + test.cpu) / (1 + worth)
            tree = trees.get()
            try:
                return tree.try_mutant(mutant, sorted(first.tests, key=price))
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
                        found_by["all"][result] += 1
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
    # A few say nothing of the share.
    return len(results) == 0 < none or (len(results) >= 30 and share < options.least)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int,
                        default=int(os.environ.get("STINT_TEST_SEED") or time.time()))
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no more are drawn")
    parser.add_argument("--files", default="*", help="of src/, as in *.h")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--named", help="a file of mutants as they are printed, instead of random ones")
    parser.add_argument("--tree", help="a directory for the build, which stays for the next run")
    parser.add_argument("--longest", type=float, default=5, help="seconds of CPU that a test may take")
    parser.add_argument("--least", type=float, default=36)
    parser.add_argument("--verbose", action="store_true")
    sys.exit(main(parser.parse_args()))
