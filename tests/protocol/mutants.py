#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library with a mistake in it, for each known one: the stories of stories.c, or the test that
is named here, must find it out.

    mutants.py BUILD             fails if a mutant was not found out
    mutants.py BUILD --write     writes the table of mutants/README.md, too

A guard of tests/kit/guards.h is taken away in test-mutants as it was built; from another test, by an object
that is linked with it. A patch of tests/protocol/mutants is applied to a copy of src/, which is
compiled as BUILD's was and linked with the rest."""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
README = SOURCE / "tests" / "protocol" / "mutants" / "README.md"
LIBRARY = "tests/libstint-testing.a.p/"  # its objects
# Of a world's process, in which it must find those mistakes that it is to find.
WORLD_SECONDS = 150

# Mistakes that another test finds: what trials of the library showed once.
BY_TEST = {
    "COUNT_GONE": "world",  # the longest begins first
    "clock-spins": "world", "opened-ahead": "world",
    "companion-twice": "attacks", "ban-never": "notation", "struct-older": "world", "OVERRIDE_ROOM": "overrides",
    "GROUPS_SIZES": "features",
    "POLICY_LENGTH": "set-up", "READ_CALENDAR": "attacks",
    "APPLY_EMPTY": "world", "STRUCT_PAGE": "api",
    "STRIKE_BAN": "overrides",
    "KEEP_TOKENS": "bucket", "reach-raise": "twin",
}

HEAD = "| without | the mistake | story, or test, that shows it |\n|---|---|---|\n"


def mistakes():
    """The mistake that each guard keeps out and that each patch lets in, by name."""
    text = (SOURCE / "tests" / "kit" / "guards.h").read_text()
    found = dict(re.findall(r'^    X\((\w+),[\s\\]*"([^"]*)"\)', text, re.MULTILINE))
    for patch in sorted((SOURCE / "tests" / "protocol" / "mutants").glob("*.patch")):
        found[patch.stem] = patch.read_text().split("\n", 1)[0]
    return found


def committed():
    """The rows of the table in the page."""
    text = README.read_text()
    rows = text[text.index(HEAD) + len(HEAD):]
    return [line.strip("| ").split(" | ") for line in rows.splitlines()]


def apply(patch, directory):
    """Applies a patch to src/ in that directory. Returns the files that it changes."""
    path = SOURCE / "tests" / "protocol" / "mutants" / f"{patch}.patch"
    subprocess.run(["patch", "--quiet", "--strip=1", "--no-backup-if-mismatch", f"--input={path}"],
                   cwd=directory, stdout=sys.stderr, check=True)
    return re.findall(r"^\+\+\+ b/src/(\S+)", path.read_text(), re.MULTILINE)


class Library:
    """That of a build, as tests have it: of a changed copy of src/ it is compiled as the build's was."""

    def __init__(self, build):
        self.build = build
        self.commands = {command["output"]: command for command in json.loads((build / "compile_commands.json").read_text())}
        listed = self.said("ninja", "-t", "deps")
        self.made_of = dict(block.split(":", 1) for block in listed.split("\n\n") if ":" in block)

    def said(self, *words):
        return subprocess.check_output(words, cwd=self.build, text=True)

    def copy(self, directory):
        shutil.copytree(SOURCE / "src", directory / "src",
                        ignore=shutil.ignore_patterns("tool", "nginx", "lua", "rust", "node"))

    def made_from(self, name, of=LIBRARY):
        """The objects that are made of this file of src/, and have this in their names."""
        return [output for output, made in self.made_of.items() if of in output and f"/src/{name}\n" in f"{made}\n"]

    def compile(self, output, directory, source=None, **how):
        """Compiles an object of the build, or another source as that one is, with what the directory has of src/.
        Returns its path."""
        options, words = [], iter(shlex.split(self.commands[output]["command"]))

        def copied(path):
            path = (self.build / path).resolve()
            return directory / "src" / path.relative_to(SOURCE / "src") if path.is_relative_to(SOURCE / "src") else path

        for word in words:
            if word in ("-MQ", "-MF", "-o", "-c"):
                next(words)
            elif word not in ("-MD", "-Werror"):  # a mistake may leave something unused
                options.append(f"-I{copied(word[2:])}" if word.startswith("-I") else word)
        made = directory / Path(output).name
        # What is played stops at each atomic operation, however fast the code between them is.
        subprocess.run([*options, "-O1", "-c", source or copied(self.commands[output]["file"]), "-o", made],
                       cwd=self.build, check=True, **how)
        return made

    def linking(self, target):
        """How a program is linked: its words, with the library of tests."""
        linked = self.said("ninja", "-t", "commands", "-s", target)
        return ["tests/libstint-testing.a" if word == "src/libstint.a" else word
                for word in shlex.split(linked.splitlines()[-1])]

    def link(self, words, objects, program, **how):
        """Of the archive the linker takes what is in no object."""
        out = words.index("-o")
        subprocess.run([*words[:out], *objects, "-o", program, *words[out + 2:]], cwd=self.build, check=True, **how)
        return program


def build_without(build, target, directory, patches=(), guards=()):
    """A program of the build with these patches in its library, and without these guards. Returns its
    path."""
    library = Library(build)
    library.copy(directory)
    changed = [name for patch in patches for name in apply(patch, directory)]
    objects = [library.compile(output, directory)
               for output in sorted({output for name in changed for output in library.made_from(name)})]
    if guards:
        without = directory / "without.c"
        without.write_text('#include "sys/testing.h"\n__attribute__((constructor)) static void take_away(void) {\n'
                           + "".join(f"    stint_test_removed |= GUARD_BIT(GUARD_{guard});\n"
                                     for guard in guards) + "}\n")
        of_library = next(output for output in library.commands if LIBRARY in output)
        objects.append(library.compile(of_library, directory, without))
    return library.link(library.linking(target), objects, directory / "program")


def run(program, *arguments):
    """The lines that a program prints, each a list of fields."""
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def run_patched(build, mutant, patches):
    with tempfile.TemporaryDirectory(prefix="stint-mutants-") as directory:
        program = build_without(build, "tests/test-mutants", Path(directory), patches.split())
        [line] = run(program, "patched", mutant, patches)
    return line


def run_test(build, mutant, test):
    """What another test says of a mutant, as a line of test-mutants."""
    target, arguments = f"tests/test-{test}", []
    if test == "world":
        target, arguments = "tests/world/test-world", ["--seconds", str(WORLD_SECONDS)]
    kind = {"guards" if mutant.isupper() else "patches": [mutant]}
    with tempfile.TemporaryDirectory(prefix="stint-mutants-") as directory:
        program = build_without(build, target, Path(directory), **kind)
        try:
            done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, cwd=directory,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600)
        except subprocess.TimeoutExpired:
            return [mutant, f"{test}: does not end"]
    told = (re.findall(r"^world --seed \d+(?:, .*? of thread \d+)?: ([^:\n]*)", done.stdout, re.MULTILINE)
            + re.findall(r"^\[  FAILED  \] (?:\w+: )?(test_\w+)$", done.stdout, re.MULTILINE)
            + re.findall(r"^\[ RUN      \] (test_\w+)$", done.stdout, re.MULTILINE)[-1:])
    found = f"{test}: {told[0] if told else 'fails'}"
    worlds = re.search(r"^wrong after (\d+) worlds", done.stdout, re.MULTILINE)
    if worlds:
        found += f", {int(worlds[1]):,} worlds"
    return [mutant, found if done.returncode != 0 else "-"]


def main(build, write=False):
    program, known, wrong = build / "tests" / "test-mutants", mistakes(), []
    stories = [tuple(line) for line in run(program, "stories") if line[0] in known]
    by_test = [(name, test) for name, test in BY_TEST.items() if name in known]
    patched = sorted({*stories, *((name, name) for name in known
                                  if name.islower() and name not in BY_TEST)})
    asked = [name for name in known if name.isupper() and name not in BY_TEST] or ["-"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tests = [pool.submit(run_test, build, *mutant) for mutant in by_test]
        guards = pool.submit(run, program, "guards", *asked)
        jobs = [pool.submit(run_patched, build, *mutant) for mutant in patched]
        lines = guards.result() + [job.result() for job in tests + jobs]

    for mutant, line in zip(patched, lines[-len(patched):]):
        if mutant in stories and line[1] == "-":
            wrong.append(f"{mutant[0]}: its story does no harm")
    rows, found_out = "", 0
    for name, mistake in known.items():
        story = next((line[1] for line in lines if line[0] == name and line[1] != "-"), "-")
        found_out += story != "-"
        if story == "-":
            wrong.append(f"{name}: not found out")
        rows += f"| `{name}` | {mistake} | {story} |\n"
    print(HEAD + rows, end="")
    print(f"{len(known)} mutants, {found_out} found out", *wrong, sep="\n")
    if write:
        before, _ = README.read_text().split(HEAD)
        README.write_text(before + HEAD + rows)
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), "--write" in sys.argv[2:]))
