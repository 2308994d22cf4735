# SPDX-License-Identifier: MIT
"""Commands that tests call: what they print, how they end, what they refuse."""
import calendar
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

COMMAND = []  # what is tested: a program, or a script and the program that it asks
SVG = "{http://www.w3.org/2000/svg}"

needs_gnuplot = unittest.skipUnless(shutil.which("gnuplot"), "there is no gnuplot")


LIBRARY = tuple(f"src/{folder}".rstrip("/") for folder in
                ("", "feature", "limiter", "map", "policy", "rule", "sys", "table", "text"))


def library(source, of="*.[ch]"):
    """The files of the library itself."""
    return [path for folder in LIBRARY for path in sorted((source / folder).glob(of))]


def run(*command, timeout=150, **options):
    """Returns returncode, stdout and stderr of a command. It reads `input`, or nothing."""
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=timeout, **options)


def must(*command, **options):
    """Runs a command that must succeed. Returns what it printed."""
    done = run(*command, **options)
    if done.returncode != 0:
        raise AssertionError(f"{done.args}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def installed(meson, build, destination):
    """Installs a build. Returns in which environment pkg-config finds that, and where its libraries are."""
    must(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", destination)
    [found] = Path(destination).rglob("stint.pc")
    return {"PKG_CONFIG_LIBDIR": str(found.parent), "PKG_CONFIG_SYSROOT_DIR": str(destination)}, found.parent.parent


def call(*arguments, **options):
    return run(*COMMAND, *arguments, **options)


def told(*arguments, stdin="", **options):
    """Exit code, standard output and standard error of a call. What it reads may be bytes."""
    if isinstance(stdin, str):
        stdin = stdin.encode("utf-8", "surrogateescape")
    done = subprocess.run([*COMMAND, *map(str, arguments)], input=stdin, capture_output=True, timeout=150, check=False,
                          **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def result(*arguments):
    """The JSON object of a call that must succeed."""
    done = call(*arguments, "--format", "json")
    assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def iso_ns(text):
    """A time of a report, in ns since the epoch."""
    seconds, part = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", text).groups()
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(((part or "") + "0" * 9)[:9])


def svg_texts(path):
    """The words of a picture."""
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg", root.tag
    return ["".join(text.itertext()).strip() for text in root.iter(SVG + "text")]


class Case(unittest.TestCase):
    """With a directory of its own."""

    PARENT = None  # the system's place for temporary files

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="stint-", dir=self.PARENT)
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def write(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
        return path

    def need(self, *programs):
        for program in programs:
            if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
                self.skipTest(f"there is no {program}")

    def good(self, *arguments, code=0, **options):
        """What a call prints that must end so, and has nothing to complain of."""
        got, out, err = told(*arguments, **options)
        self.assertEqual((got, err), (code, ""), (arguments, out))
        return out

    def table(self, *arguments, words=(), **options):
        """The same, where it must fit 100 columns and have these words."""
        out = self.good(*arguments, **options)
        self.assertLessEqual(max(map(len, out.splitlines())), 100, out)
        for word in words:
            self.assertIn(word, out)
        return out

    def refused(self, *arguments, words=(), code=2, help_="--help", **options):
        """What a call says that prints nothing else and must have these words. `code` 2: wrong usage, for
        which it refers to its help."""
        with self.subTest(arguments=arguments):
            done = call(*arguments, **options)
            self.assertEqual((done.returncode, done.stdout), (code, ""), (arguments, done.stderr))
            for word in [words] if isinstance(words, str) else words:
                self.assertIn(word, done.stderr)
            if code == 2:
                self.assertIn(help_, done.stderr)
            return done.stderr


class Stint(Case):
    """Of the command `stint`, whose input may be bytes."""

    def fails(self, code, message, *arguments, **options):
        got, out, err = told(*arguments, **options)
        self.assertEqual((got, out), (code, ""), (arguments, err))
        self.assertIn(message, err)
        self.assertTrue(err.startswith(f"stint {arguments[0]}: "), err)
        self.assertNotRegex(err, r"\b(?:options|policy|request)\.[a-z_]+|\bSTINT_|\bstint_[a-z]", "names of C")
        return err

    def json(self, command, *arguments, code=0, **options):
        form = "--format=json" if command in ("advise", "replay") else "--json"
        out = self.good(command, form, *arguments, code=code, **options)
        self.assertTrue(out.isascii() or form != "--json")
        return json.loads(out)


def main(*command, arguments=1):
    """Runs the tests of a command that ends in the first arguments of this script."""
    # What it inherits: not that whoever started the tests ignores these (nohup, a job in the background).
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)
    COMMAND[:] = [*command, *(os.path.abspath(sys.argv.pop(1)) for _ in range(arguments))]
    unittest.main()
