#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The source as its readers get it: which file stands on which.

    structure.py SOURCE [TEST...]
"""
import re
import sys
import unittest
from pathlib import Path

SOURCE = Path(".")


def files(folder, *endings):
    """The C files of a folder of the source, by name."""
    return {path.name: path.read_text() for path in sorted((SOURCE / folder).iterdir())
            if path.name.endswith(endings or (".c", ".h"))}


def unit(name):
    """A .h and its .c are one."""
    return name.rsplit(".", 1)[0]


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def defined(text):
    """Functions that a file defines for others."""
    return set(re.findall(r"^(?!static|typedef|#|extern)[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\) \{$",
                          without_comments(text), re.MULTILINE))


def used(text):
    """Words of a file, but for those of its prototypes."""
    text = re.sub(r"^[A-Za-z_][^\n;{}=]*\b\w+\([^;{}]*\)[^;{}]*;", "", without_comments(text),
                  flags=re.MULTILINE)
    return set(re.findall(r"\b[a-z]\w*\b", text))


def edges(texts):
    """What each unit includes of the others, and calls."""
    units = {unit(name) for name in texts}
    home = {function: unit(name) for name, text in texts.items() if name.endswith(".c")
            for function in defined(text)}
    found = {name: {} for name in units}
    for name, text in texts.items():
        for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            if unit(included) in units - {unit(name)}:
                found[unit(name)].setdefault(unit(included), f"{name} includes {included}")
        for function in used(text) & home.keys():
            if home[function] != unit(name):
                found[unit(name)].setdefault(home[function], f"{name} calls {function}")
    return found


def circle(found):
    """One circle, as what includes or calls what; or []."""
    done = set()

    def visit(name, way):
        if name in way:
            return way[way.index(name):] + [name]
        if name in done:
            return []
        for to in sorted(found[name]):
            if round_trip := visit(to, way + [name]):
                return round_trip
        done.add(name)
        return []

    for name in sorted(found):
        if way := visit(name, []):
            return [found[one][other] for one, other in zip(way, way[1:])]
    return []


def listed(path, pattern):
    """The units of a list of files, in its order."""
    names = re.findall(r"([\w]+\.[ch])\b", re.search(pattern, (SOURCE / path).read_text(), re.DOTALL | re.MULTILINE)[1])
    return list(dict.fromkeys(unit(name) for name in names))


class Layers(unittest.TestCase):
    """Who reads from the top down finds what a file stands on below it, and nothing goes round."""

    def check_order(self, folder, order, texts):
        self.assertEqual(sorted({unit(name) for name in texts}), sorted(order), folder)
        for name, to in edges(texts).items():
            for other, why in to.items():
                self.assertLess(order.index(name), order.index(other),
                                f"{folder}: {why}, but stands below it in the list of files")

    def test_library(self):
        order = listed("src/meson.build", r"stint_sources = files\((.*?)^\)")
        texts = files("src")
        self.assertGreater(len(texts), 20)
        self.check_order("src", order, texts)
        self.assertEqual(circle(edges(texts)), [])

    def test_nginx_module(self):
        order = listed("src/nginx/config", r"ngx_module_srcs=(.*?)\"$")
        self.check_order("src/nginx", order + ["ngx_http_stint"], files("src/nginx"))

    def test_benchmark(self):
        texts = {name: "\n".join(re.findall(r"^#include .*", text, re.MULTILINE))
                 for name, text in files("bench").items()}
        self.assertEqual(circle(edges(texts)), [])

    def test_a_circle_is_found(self):
        """And an edge by a call alone, through a declaration elsewhere."""
        texts = {"a.h": "void low(void);\n", "a.c": '#include "b.h"\nint top(void) {\n    return 0;\n}\n',
                 "b.h": "int top(void);\n", "b.c": '#include "b.h"\nvoid low(void) {\n    top();\n}\n'}
        self.assertEqual(circle(edges(texts)), ["a.c includes b.h", "b.c calls top"])


if __name__ == "__main__":
    SOURCE = Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
