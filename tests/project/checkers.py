#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Static checkers on the library, and valgrind on tests of it: no findings but those argued below.

    checkers.py BUILD cppcheck | analyzer | tidy | memcheck [TEST...] | abi COMMIT
    checkers.py BUILD tidy-deep [SOURCE...]

`analyzer` is gcc's. .clang-tidy has the list of clang-tidy's checks: `tidy` is those but clang's analyzer,
which takes most of the time, `tidy-deep` is all. `abi`: whether the interface is that of a commit, or
has more, if both have one soname. 77, which is to skip, without the tool."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kit"))
import commands

SOURCE = Path(__file__).resolve().parents[2]
MAJOR, MINOR, PATCH = map(int, re.findall(r"define STINT_VERSION_\w+ (\d+)",
                                          (SOURCE / "include" / "stint.h").read_text()))
OPTIONS = ["-std=gnu11", "-D_GNU_SOURCE", f"-DBUILD_VERSION={(MAJOR * 1000 + MINOR) * 1000 + PATCH}",
           "-DSTINT_HAVE_STRERRORDESC", f"-I{SOURCE}/include", f"-I{SOURCE}/src"]
CHECKED = "stint_headers refuses NULL with a size"
FAILS = "what failed has given the reason, and that is never 0: stint_failed is in another file"
PLACE = "place_find finds one: the first of a set counts less than UINT64_MAX"
# (file, check, in the line): why it is none.
ARGUED = {
    ("memory.c", "leakReturnValNotUsed", "way | MAP_FIXED"): "it is mapped over `base`",
    ("open.c", "clang-analyzer-core.NullDereference", "limiter"): FAILS,
    ("apply.c", "clang-analyzer-core.NullDereference", "change"): FAILS,
    ("judge.h", "clang-analyzer-core.DivideZero", "capacity / stripes"): "a policy has a stripe at least",
    ("resize.c", "bugprone-misplaced-widening-cast", "from->tag_unit"): "both have 64 bits",
    ("text.h", "clang-analyzer-core.NullDereference", "text->buffer["): CHECKED,
    ("replay.c", "clang-analyzer-optin.portability.UnixAPI", "limit_count"): "options without a limit are refused",
    ("apply.c", "-Wanalyzer-null-dereference", "*change ="): FAILS,
    ("take.c", "-Wanalyzer-use-of-uninitialized-value", "rest = *decision"): "no charge is read before it is written",
    ("core.h", "ctuuninitvar", "= decision->limiter"): "all who call decision_begin_at have set it",
    ("group_near.h", "-Wanalyzer-use-of-uninitialized-value", "charged[2] ="): "a swap's words are read of swaps",
    ("labels.c", "-Wanalyzer-use-of-uninitialized-value", "seen["): PLACE,
    ("labels.c", "-Wanalyzer-null-dereference", "place"): PLACE,
    ("memory.c", "-Wanalyzer-malloc-leak", "return entry"): "the list has it, as a number",
    ("memory.c", "resourceLeak", "return file"): "it is the caller's",
}
# Tests whose time is no help under valgrind: what they do is done by others, too.
MEMCHECK = ["test-notation", "test-headers", "test-metrics", "test-full", "test-apply", "test-api"]


def findings(text):
    """The findings that are not argued, each with its line."""
    for path, number, message, check in sorted(set(re.findall(
            r"^(\S+?):(\d+):\d+: (?:warning|error|performance|portability): (.*?) \[([\w.,-]+)\]$",
            text, re.MULTILINE))):
        path = Path(path) if Path(path).is_absolute() else SOURCE / path
        line = path.read_text().split("\n")[int(number) - 1].strip()
        check = check.split(",")[0]
        if not any(path.name == file and check == name and part in line for file, name, part in ARGUED):
            yield f"{path.name}:{number}: {message} [{check}]\n    {line}"


def sources(of="*.c"):
    return commands.library(SOURCE, of)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=SOURCE)
    return done.stdout, done.returncode


def each(check, things):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(check, things))


def cppcheck(_build, _names):
    text, _ = run("cppcheck", "--quiet", "--enable=warning,performance,portability", "--std=c11",
                  "--library=posix", "--library=gnu", "-D__x86_64__", "-D__LP64__", "-D__GNUC__=12",
                  "-D__BYTE_ORDER__=1234", "-D__ORDER_LITTLE_ENDIAN__=1234",
                  "--template={file}:{line}:{column}: {severity}: {message} [{id}]",
                  *OPTIONS[1:], *map(str, sources()))
    return list(findings(text))


def tidy_deep(_build, names, less=""):
    texts = each(lambda path: run("clang-tidy", "--quiet", f"--checks={less}", str(path), "--", *OPTIONS)[0],
                 names or sources() + sources("tool/*.c"))
    return list(findings("\n".join(texts)))


def tidy(build, names):
    return tidy_deep(build, names, "-clang-analyzer-*")


def analyzer(_build, _names):
    texts = each(lambda path: run("gcc", "-O2", "-fanalyzer", "-fdiagnostics-plain-output", *OPTIONS, "-c",
                                  str(path), "-o", os.devnull)[0], sources())
    return list(findings(re.sub(r" \[CWE-\d+\] (?=\[)", " ", "\n".join(texts))))


def abi(_build, names):
    """The libraries are linked again, without versions of symbols: a function of another version is
    another one to abidiff, of which it says nothing. What is not in include/ is private."""
    [commit] = names
    sonames = []
    with tempfile.TemporaryDirectory() as directory:
        for tree, get in (("old", f"mkdir old && git -C {SOURCE} archive {commit} | tar x -C old"),
                          ("new", f"ln -s {SOURCE} new")):
            text, status = run("bash", "-ec", f"cd {directory} && {get} && meson setup b-{tree} {tree} "
                               f"-Dbuildtype=debug && cd b-{tree} && ninja -t targets all | "
                               "grep -o '^src/libstint[.]so[.0-9]*[0-9]:' | tr -d : | xargs ninja && "
                               f"gcc -shared -o ../{tree}.so src/libstint.so.*.p/*.o")
            if status != 0:
                return [text[-3000:]]
            [library] = Path(directory, f"b-{tree}", "src").glob("libstint.so.*.*.*[0-9]")
            sonames.append(library.name.rsplit(".", 1)[0])
        told, status = run("abidiff", "--drop-private-types", "--headers-dir1", f"{directory}/old/include",
                           "--headers-dir2", f"{directory}/new/include", f"{directory}/old.so",
                           f"{directory}/new.so")
    print(told)
    same = told == "" or " summary: 0 Removed, 0 Changed" in told or len(set(sonames)) == 2
    return [] if same and status & 3 == 0 else [f"{sonames[0]}: what ran with it may not run with this"]


def memcheck(build, names):
    def check(name):
        text, status = run("valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full",
                           str(build / "tests" / name))
        return [] if status != 99 else [f"{name}\n{text[-3000:]}"]
    os.environ["STINT_TEST_DIVISOR"] = "20"
    return sum(each(check, names or MEMCHECK), [])


TOOLS = {"cppcheck": ("cppcheck", cppcheck), "analyzer": ("gcc", analyzer), "tidy": ("clang-tidy", tidy),
         "tidy-deep": ("clang-tidy", tidy_deep),
         "memcheck": ("valgrind", memcheck), "abi": ("abidiff", abi)}


def main(build, name, *names):
    tool, check = TOOLS[name]
    if shutil.which(tool) is None:
        print(f"there is no {tool}")
        return 77
    found = check(Path(build), names)
    print(*found, f"{name}: {len(found)} findings", sep="\n")
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
