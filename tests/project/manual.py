#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual's section 3, which doc/man3.py makes of the comments of stint.h.

    manual.py SOURCE BUILD [TEST...]
"""
import collections
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE, BUILD = Path("."), Path("build")


def words(text):
    return collections.Counter(re.findall(r"[a-zA-Z0-9_]{2,}", text))


class Manual(unittest.TestCase):
    def setUp(self):
        self.pages = {path.name: path.read_text() for path in (BUILD / "doc").glob("*.3")}
        self.real = {name: text for name, text in self.pages.items() if not text.startswith(".so ")}
        self.header = (SOURCE / "include" / "stint.h").read_text()

    def test_functions_are_those_that_are_exported(self):
        """Each has a page of its name, and stands in the NAME and SYNOPSIS of the page it leads to."""
        lines = subprocess.run(["nm", "-D", "--defined-only", BUILD / "src" / "libstint.so"], text=True,
                               capture_output=True, check=True).stdout.split("\n")
        exported = {line.split()[-1].split("@")[0] for line in lines if " T " in line}
        self.assertGreater(len(exported), 30)
        documented = [name for text in self.real.values() for name in re.findall(r"^\.Fo (\w+)$", text, re.MULTILINE)]
        self.assertEqual(sorted(documented), sorted(exported))
        named = [name for text in self.real.values() for name in re.findall(r"^\.Nm (stint_\w+)", text, re.MULTILINE)]
        self.assertEqual(sorted(named), sorted(exported))
        for name in exported:
            page = re.fullmatch(r"\.so man3/(.*)\n", self.pages[name + ".3"])[1]
            self.assertIn(f".Ss {name}\n", self.real[page])

    def test_types_have_pages(self):
        types = re.findall(r"^((?:enum|struct) (stint_\w+)) \{", self.header, re.MULTILINE)
        self.assertGreater(len(types), 15)
        for words_, name in types:
            page = re.fullmatch(r"\.so man3/(.*)\n", self.pages[name + ".3"])[1]
            self.assertIn(f".Ss {words_}\n", self.real[page])

    def test_nothing_of_the_comments_is_lost(self):
        """Each word of them is in the pages as often as it was, or more."""
        body = self.header[self.header.index("A  Never over-admits"):]
        comments = re.sub(r"/\* -{4} .*? -+ \*/|^#.*?INIT.*|/\* STINT_H \*/", "", body, flags=re.MULTILINE)
        top, rest = comments.split("#ifndef STINT_H")
        rest = rest.split("/* opaque */")[1]
        said = words(top + " ".join(re.findall(r"/\*.*?\*/", rest, re.DOTALL)))
        pages = words(" ".join(self.real.values()))
        lost = {word: (count, pages[word]) for word, count in said.items() if pages[word] < count}
        lost.pop("sys", None)  # <sys/socket.h>, of a declaration that is not stint's
        lost.pop("socket", None)
        self.assertEqual(lost, {})

    def test_references(self):
        for name, text in self.real.items():
            for page, section in re.findall(r"^\.Xr (\S+) (\d)", text, re.MULTILINE):
                with self.subTest(page=name, reference=page):
                    self.assertTrue((page, section) == ("stint", "1") or
                                    section == "3" and page + ".3" in self.real)
        self.assertIn("stint 3", (SOURCE / "src" / "tool" / "stint.1").read_text())

    @unittest.skipUnless(shutil.which("mandoc"), "needs mandoc")
    def test_lint(self):
        """Nothing to complain of, but that stint's pages are not installed here."""
        for name in [*(BUILD / "doc" / name for name in self.real), SOURCE / "src" / "tool" / "stint.1"]:
            done = subprocess.run(["mandoc", "-T", "lint", name], capture_output=True, text=True, check=False)
            told = [line for line in (done.stdout + done.stderr).split("\n")
                    if line and "referenced manual not found: Xr stint" not in line]
            self.assertEqual(told, [])


if __name__ == "__main__":
    SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
