#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual's section 3, which doc/man3.py makes of the comments of stint.h and of doc/examples; and
stint-promises(7), which it makes of doc/promises.md.

    manual.py SOURCE BUILD [TEST...]
"""
import collections
import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kit"))
from commands import must, run

SOURCE, BUILD = Path("."), Path("build")
COMMAND = Path("stint.1")


def words(text):
    return collections.Counter(re.findall(r"[a-zA-Z0-9_]{2,}", text))


class Manual(unittest.TestCase):
    def setUp(self):
        self.pages = {path.name: path.read_text() for path in (BUILD / "doc").glob("*.[37]")}
        self.header = (SOURCE / "include" / "stint.h").read_text()

    def test_each_function_has_a_page(self):
        """With all its sections, each with something in it; and with each argument."""
        lines = must("nm", "-D", "--defined-only", BUILD / "src" / "libstint.so").split("\n")
        exported = {line.split()[-1].split("@")[0] for line in lines if " T " in line}
        self.assertGreater(len(exported), 30)
        self.assertEqual({name[:-2] for name, text in self.pages.items() if ".Fo " in text}, exported)
        for name in exported:
            with self.subTest(page=name):
                page = self.pages[name + ".3"]
                self.assertIn(f".Nm {name}\n.Nd ", page)
                sections = dict(re.findall(r"^\.Sh (.*)\n((?:(?!\.Sh ).*\n)+)", page, re.MULTILINE))
                arguments = re.findall(r'^\.Fa ".*?(\w+)(?:\)\(.*\))?"$', sections["SYNOPSIS"], re.MULTILINE)
                arguments = [argument for argument in arguments if argument != "void"]
                self.assertEqual(re.findall(r"^\.It Fa (\w+)\n(?!\.It|\.El)", sections.get("ARGUMENTS", ""),
                                            re.MULTILINE), arguments)
                self.assertEqual(list(sections), ["NAME", "SYNOPSIS", "DESCRIPTION", *["ARGUMENTS"] * bool(arguments),
                                                  "RETURN VALUES", "ERRORS", "ATTRIBUTES", "EXAMPLE PROGRAM", "SEE ALSO"])
                self.assertIn(name + "(", sections["EXAMPLE PROGRAM"])

    def test_examples_print_what_their_pages_say(self):
        examples = sorted((SOURCE / "doc" / "examples").iterdir())
        self.assertGreater(len(examples), 9)
        for example in examples:
            said = re.search(r"It prints:\n \*\n(.*?)^ \*/", example.read_text(), re.DOTALL | re.MULTILINE)[1]
            self.assertEqual(must(BUILD / "tests" / f"manual-{example.stem}"),
                             re.sub(r"^ \*     ", "", said, flags=re.MULTILINE), example)

    def test_types_have_pages(self):
        types = re.findall(r"^(enum|struct) (stint_\w+) \{", self.header, re.MULTILINE)
        self.assertGreater(len(types), 15)
        for kind, name in types:
            self.assertIn(f'.Vt "{kind} {name}"\n', self.pages[name + ".3"])

    def test_nothing_of_the_comments_is_lost(self):
        """Each word of them is in the pages as often as it was, or more."""
        body = self.header[self.header.index("A  Never over-admits"):]
        promises = (SOURCE / "doc" / "promises.md").read_text().split("## ", 1)[1]
        comments = re.sub(r"/\* ([-=])\1{3} .*? \1+ \*/|^#.*?INIT.*|/\* STINT_H \*/", "", body,
                          flags=re.MULTILINE)
        top, rest = comments.split("#ifndef STINT_H")
        rest = rest.split("/* opaque */")[1]
        said = words(promises + top + " ".join(re.findall(r"/\*.*?\*/", rest, re.DOTALL)))
        pages = words(" ".join(self.pages.values()))
        lost = {word: (count, pages[word]) for word, count in said.items() if pages[word] < count}
        lost.pop("sys", None)  # <sys/socket.h>, of a declaration that is not stint's
        lost.pop("socket", None)
        self.assertEqual(lost, {})

    def test_references(self):
        for name, text in self.pages.items():
            for page, section in re.findall(r"^\.Xr (\S+) (\d)", text, re.MULTILINE):
                with self.subTest(page=name, reference=page):
                    self.assertTrue((page, section) == ("stint", "1") or
                                    f"{page}.{section}" in self.pages)
        self.assertIn("stint 3", COMMAND.read_text())

    @unittest.skipUnless(shutil.which("mandoc"), "needs mandoc")
    def test_lint(self):
        """Nothing to complain of, but that stint's pages are not installed here."""
        done = run("mandoc", "-T", "lint", *(BUILD / "doc" / name for name in self.pages), COMMAND)
        self.assertEqual([line for line in (done.stdout + done.stderr).split("\n")
                          if line and "referenced manual not found: Xr stint" not in line], [])

    @unittest.skipUnless(shutil.which("mandb"), "needs man-db")
    def test_man_finds_them(self):
        """By name and by word; each page begins with its name and ends with stint's."""
        with tempfile.TemporaryDirectory(prefix="stint-manual-") as directory:
            for section in "man3", "man7":
                (Path(directory) / section).symlink_to(BUILD / "doc")
            must("mandb", "--quiet", "--user-db", "--create", directory)
            found = must("man", "-M", directory, "-k", "stint")
            self.assertEqual({f"{name}.{section}" for name, section
                              in re.findall(r"^(\S+) \((\d)\)", found, re.MULTILINE)}, self.pages.keys())
            self.assertIn("stint_take (3)", must("man", "-M", directory, "-k", "tokens.*window"))
            for page in (["-M", directory, "stint_take"], ["-l", COMMAND]):
                text = must("man", *page, env={**os.environ, "MANWIDTH": "80"})
                self.assertNotIn("BSD", text)
            text = must("man", "-M", directory, "stint_take", env={**os.environ, "MANWIDTH": "80"})
            self.assertRegex(text, r"(?s)^STINT_TAKE\(3\).*NAME\n +stint_take .*\nstint \d+\.\d+\.\d+ .*\n$")


if __name__ == "__main__":
    SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    COMMAND = SOURCE / "src" / "tool" / "stint.1"
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
