#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The source as its readers get it: which file stands on which, and what the protocol says of the code.

    structure.py SOURCE [TEST...]
"""
import graphlib
import re
import sys
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kit"))
import commands

SOURCE = Path(".")
FOLDERS = "include", "src", "bench", "tests"


def files(*folders):
    """The C files of folders of the source, by name."""
    return {path.name: path.read_text() for folder in folders
            for path in sorted((SOURCE / folder).iterdir()) if path.name.endswith((".c", ".h"))}


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
            other = unit(included.rsplit("/")[-1])
            if other in units - {unit(name)}:
                found[unit(name)].setdefault(other, f"{name} includes {included}")
        for function in used(text) & home.keys():
            if home[function] != unit(name):
                found[unit(name)].setdefault(home[function], f"{name} calls {function}")
    return found


def circle(found):
    """One circle, as what includes or calls what; or []."""
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        way = error.args[1][::-1]
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
        texts = files(*commands.LIBRARY)
        self.assertGreater(len(texts), 40)
        self.check_order("src", order, texts)
        self.assertEqual(circle(edges(texts)), [])
        # Each folder is one run of the list, so it stands on the folders below it alone.
        self.assertEqual(order, [name for folder in ("text", "table", ".", "feature", "policy", "limiter", "map", "rule",
                                                                 "sys") for name in order
                                 if list((SOURCE / "src" / folder).glob(f"{name}.[ch]"))])
        self.assertEqual(listed("src/README.md", r"^## In which file\n(.*?)^\| \*\*other languages"), order)

    def test_map_knows_no_policy(self):
        """Whoever reads how keys get their slots need not know what is counted in them."""
        for name, text in files("src/map").items():
            self.assertLessEqual(set(re.findall(r'^#include "((?!map/|sys/).*)"', text, re.MULTILINE)), {"rule/window.h"}, name)
            self.assertNotRegex(without_comments(text), r"struct (policy|rule|terms|charge|decision|bucket|stint_limiter)\b"
                                "|companion|stripe|override|TRAIT_|limiter")

    def test_steps_of_a_decision(self):
        """The list at the top of core.h has each step, in order, by a function that stands under its name."""
        core = files("src")["core.h"]
        steps = re.findall(r"^ \*     (\d  \w+) +(\w+) ", core, re.MULTILINE)
        titles = re.split(r"^/\* -+ (\d  \w+) -+ \*/$", core, flags=re.MULTILINE)[1:]
        self.assertEqual([step.title() for step, _ in steps], titles[::2])
        for (_, function), text in zip(steps, titles[1::2]):
            self.assertRegex(text, rf"(?m)^static \w.*\b{function}\(")

    def test_nginx_module(self):
        order = listed("src/nginx/config", r"ngx_module_srcs=(.*?)\"$")
        self.check_order("src/nginx", order + ["ngx_http_stint"], files("src/nginx"))

    def test_benchmark(self):
        self.assertEqual(circle(edges(files("bench"))), [])

    def test_a_circle_is_found(self):
        """And an edge by a call alone, through a declaration elsewhere."""
        texts = {"a.h": "void low(void);\n", "a.c": '#include "b.h"\nint top(void) {\n    return 0;\n}\n',
                 "b.h": "int top(void);\n", "b.c": '#include "b.h"\nvoid low(void) {\n    top();\n}\n'}
        self.assertCountEqual(circle(edges(texts)), ["a.c includes b.h", "b.c calls top"])


class Columns(unittest.TestCase):
    """clang-format lets comments be as wide as they like; they are as wide as the code."""

    def test_none_is_wider_than_100(self):
        wide = [f"{path.relative_to(SOURCE)}:{number}"
                for folder in FOLDERS for path in sorted((SOURCE / folder).rglob("*.[ch]"))
                for number, line in enumerate(path.read_text().split("\n"), 1) if len(line) > 100]
        self.assertEqual(wide, [])


# Where atomic operations keep no slot, policy or header whole: they are defined, count, touch
# pages, or are sealed (labels.c).
OTHERS = {"atomic.h", "counters.c", "counters.h", "stats.c", "metrics.c",
          "memory.c", "labels.c", "labels.h"}
ATOMIC = re.compile(r"\batomic_\w+\((?!word|line)")


class Protocol(unittest.TestCase):
    """The table of src/map/slot.h and the orders of src/ordering.md are those of the code."""

    def setUp(self):
        self.texts = files(*commands.LIBRARY)
        self.head = self.texts["slot.h"].split("#ifndef")[0]
        orders = (SOURCE / "src" / "ordering.md").read_text()
        self.orders = set(re.findall(r"^\| (M\d+) \|", orders, re.MULTILINE))
        self.invariants = set(re.findall(r"^ \*   (I\d+)  ", self.head, re.MULTILINE))

    def test_head_is_short(self):
        self.assertLessEqual(self.head.count("\n"), 100)
        for state in "NEVER", "PENDING", "COMMITTED", "TOMBSTONE":
            self.assertRegex(self.head, rf"(?m)^ \*     {state} +tag = ")

    def test_functions_of_the_table_exist(self):
        table = self.head[self.head.index("from        to"):self.head.index("Invariants")]
        functions = {name: set(re.findall(r"^[a-z][\w *]*?\b(\w+)\([^;{}]*\) \{$",
                                          without_comments(text), re.MULTILINE))
                     for name, text in self.texts.items()}
        self.assertLessEqual({"stint_claim_slot", "stint_claim_cancel"}, functions["claim.c"])
        self.assertLessEqual({"claim_unused"}, functions["claim.h"])
        named = set()
        for name, rest in re.findall(r"\b(\w+\.[ch]), (\w+(?:,\s+(?:\*\s+)?\w+_\w+)*)", table):
            for function in re.findall(r"\w+", rest):
                self.assertIn(function, functions[name], name)
                named.add(function)
        for function in re.findall(r"\bslot_(?:add|swap|take)\b", table):
            self.assertIn(function, functions["slot.h"])
        self.assertGreater(len(named), 8)

    def test_mistakes_that_are_argued_are_of_the_code(self):
        sys.path.append(str(SOURCE / "tests" / "protocol"))
        import mutate
        self.assertEqual(list(mutate.stale(mutate.argued())), [])

    def test_each_atomic_operation_cites_its_order(self):
        """In its line, or within the three before: an M of ordering.md, or an I of slot.h."""
        self.assertEqual(self.orders, {f"M{n}" for n in range(1, 17)} - {"M3", "M4", "M10", "M11"})
        self.assertEqual(self.invariants, {f"I{n}" for n in range(1, 7)})
        cited, bare, count = set(), [], 0
        for name, text in self.texts.items():
            lines = text.split("\n")
            for number, line in enumerate(lines):
                if name in OTHERS or not ATOMIC.search(line) or "counters[" in line:
                    continue
                count += 1
                near = set(re.findall(r"\b[MI]\d+\b", "\n".join(lines[max(0, number - 3):number + 1])))
                cited |= near
                if not near:
                    bare.append(f"{name}:{number + 1}: {line.strip()}")
        self.assertGreater(count, 100)
        self.assertEqual(bare, [])
        self.assertLessEqual(cited, self.orders | self.invariants)
        self.assertLessEqual(self.orders, cited)


class Contract(unittest.TestCase):
    """stint.h and doc/promises.md."""

    def setUp(self):
        self.header = (SOURCE / "include" / "stint.h").read_text()
        self.promises = (SOURCE / "doc" / "promises.md").read_text()

    def test_header_is_short(self):
        """Who opens it sees how a limiter is opened at once."""
        lines = self.header.split("\n")
        self.assertLessEqual(len(lines) - 1, 1000)
        self.assertLess([number for number, line in enumerate(lines, 1) if re.match(r"STINT_API.*\bstint_open\(", line)],
                        [120])

    def test_sections_exist(self):
        """Words in capitals, alone in brackets, are a section; and stint.h names each."""
        sections = set(re.findall(r"^## (.*)", self.promises, re.MULTILINE))
        cited = {re.sub(r"[\s*]+", " ", words)
                 for words in re.findall(r"\(([A-Z]{4,}(?:[\s*]+[A-Z]+)*)\)", self.header + self.promises)}
        self.assertGreater(len(cited), 15)
        self.assertEqual(cited - sections, {"GCRA"})
        flat = re.sub(r"[\s*]+", " ", self.header)
        self.assertEqual({section for section in sections if section not in flat}, {"EXCEPTIONS"})


class Model(unittest.TestCase):
    """The tests' model is written from the contract alone."""

    def test_it_quotes_the_header(self):
        def flat(text):
            return re.sub(r"\s+", " ", re.sub(r"\n *\*", " ", text))

        header = flat((SOURCE / "include" / "stint.h").read_text() +
                      (SOURCE / "doc" / "promises.md").read_text())
        texts = [path.read_text() for path in sorted(SOURCE.glob("tests/kit/model.[ch]"))]
        quotes = [part.rstrip(".") for text in texts for comment in re.findall(r"/\*.*?\*/", text, re.DOTALL)
                  for quote in re.findall(r'"([^"]*)"', flat(comment)) for part in quote.split(" ... ")]
        self.assertGreater(len(quotes), 30)
        self.assertEqual([quote for quote in quotes if quote not in header], [])
        self.assertEqual({name for text in texts for name in re.findall(r'#include "(.*)"', text)},
                         {"model.h", "stint.h"})


if __name__ == "__main__":
    SOURCE = Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
