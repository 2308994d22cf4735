#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint-bench --compare and --plot, on tables so small that it takes seconds: what they print, what
they refuse; that a build beside itself has changed nothing, and that one that is slower by a tenth
has.

    compare.py BENCH_PY STINT_BENCH STINT_BENCH_SLOWER [CLASS...]
"""
import json
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402
from commands import call, needs_gnuplot, result, svg_texts  # noqa: E402

LEAST = ["--keys", "1k", "--seconds", "0.001", "--processes", "1"]  # where it does not matter what comes out


class Compare(commands.Case):
    RUN = ["run", "--workload", "take,batch", "--keys", "100,1k", "--seconds", "0.01"]
    def write(self, old):
        return super().write("old.json", old if isinstance(old, str) else json.dumps(old))

    def test_a_doctored_result(self):
        old = result(*self.RUN, "--processes", "7")
        rows = old["rows"]
        rows[0]["each"] = [1000 * ns for ns in rows[0]["each"]]
        rows[1]["each"] = [ns / 1000 for ns in rows[1]["each"]]
        rows[2]["each"] = [1e-3, 1e6, 1e-3, 1e6, 10, 10, 10]
        rows[3]["keys"] = 77
        rows[2].pop("stripes")  # as in a result of an older version
        compare = result(*self.RUN, "--processes", "7", "--compare", self.write(old))["compare"]
        self.assertEqual([pair["change"] for pair in compare["pairs"]], ["faster", "slower", "same"])
        self.assertEqual((compare["changed"], compare["only_old"], compare["only_new"],
                          compare["same_machine"]), (2, 1, 1, True))
        for pair in compare["pairs"]:
            self.assertAlmostEqual(pair["ratio"] / (pair["new"] / pair["old"]), 1, places=3)
        # With few repeats nothing is told.
        out = self.good(*self.RUN, "--processes", "4", "--compare", self.write(old))
        self.assertIn("0 of 3 changed by more than the noise; 1 rows only then, 1 only now", out)
        self.assertNotRegex(out, "(?i)faster|slower")

    def test_the_noise_is_that_of_the_repeats(self):
        """Where repeats differ more, a change must be larger to be told."""
        sys.path.insert(0, str(BENCH.parent))
        from compare import change
        quiet, loud = ([100 + wide * (7 * i % 15) for i in range(15)] for wide in (0.1, 4))
        for by_turns in False, True:
            for noise, least in (quiet, 1.0), (loud, 1.02):
                self.assertEqual(change(noise, noise[::-1], by_turns)[0], "same")
                for factor in 1.5, 0.6:
                    told = change(noise, [factor * ns for ns in noise], by_turns)
                    self.assertEqual(told[0], "slower" if factor > 1 else "faster")
                    self.assertAlmostEqual(told[1], factor, places=6)
                    self.assertGreater(told[2], least)
            self.assertEqual(change(quiet, [1.01 * ns for ns in quiet], by_turns)[0], "same")

    def test_a_result_with_itself(self):
        """Every measuring command has one shape of result, and says whose it is. Its own JSON is read back, and each
        row finds its partner; another command refuses it."""
        for command, metrics, *arguments in (
                ("run", 1, "--load", "0.3,0.5", "--key-length", "8,16", *LEAST),
                ("peers", 1, "--peer", "mutex,open-64", "--keys", "10,100", "--seconds", "0.001", "--processes", "1"),
                ("load", 7, "--rate", "9k", "--keys", "100", "--seconds", "0.1", "--limit", "5/s", "--limit", "9/min",
                 "--processes", "1")):
            with self.subTest(command=command):
                path = self.write(call(command, *arguments, "--format", "json").stdout)
                old = json.loads(path.read_text())
                self.assertEqual(list(old), ["command", "machine", "build", "date", "seconds", "rows", "others"])
                self.assertEqual(old["command"], command)
                compare = json.loads(call(command, *arguments, "--format", "json", "--compare", path).stdout)["compare"]
                self.assertEqual((compare["only_old"], compare["only_new"]), (0, 0))
                self.assertEqual(len(compare["pairs"]), metrics * len(old["rows"]))
                self.assertEqual(compare["commit"], old["build"]["commit"])
                self.refused("load" if command == "run" else "run", "--compare", path, help_="",
                             words="it is a result of stint-bench %s" % command)

    def test_rows_with_other_limits_are_no_pair(self):
        arguments = ["load", "--rate", "1k", "--keys", "9", "--seconds", "0.01", "--processes", "1", "--limit"]
        path = self.write(result(*arguments, "5/s"))
        compare = result(*arguments, "6/s", "--compare", path)["compare"]
        self.assertEqual((compare["pairs"], compare["only_old"], compare["only_new"]), ([], 1, 1))

    def test_what_is_no_result(self):
        for text in ("", "{", "[1]", "{}", '{"command": "run", "rows": []}',
                     '{"machine": {}, "rows": []}', '{"command": "run", "machine": {}, "rows": {}}'):
            self.refused(*self.RUN, "--compare", self.write(text), words="--compare", help_="")
        self.refused(*self.RUN, "--compare", self.directory / "nothing", words="nothing", help_="")
        self.refused(*self.RUN, "--compare", PROGRAM, "--format", "csv", words="--compare", help_="")
        self.refused("peers", "--compare", PROGRAM, words="--compare", help_="")


class Builds(unittest.TestCase):
    """Two builds, by turns. Others at work make it longer, and tell no more."""

    def test_a_build_beside_itself(self):
        """Of a hundred rows, five at most are said to have changed: by twenty comparisons of five rows."""
        told = []
        for _ in range(20):
            compare = result("run", "--workload", "take,batch,refuse,bucket,all-2", "--keys", "100", "--seconds",
                             "0.01", "--processes", "10", "--compare", PROGRAM)["compare"]
            self.assertEqual((len(compare["pairs"]), compare["only_old"], compare["only_new"]), (5, 0, 0))
            told += [pair for pair in compare["pairs"] if pair["change"] != "same"]
        self.assertLessEqual(len(told), 5, told)

    def test_a_build_that_is_slower_by_a_tenth(self):
        """Is told in each comparison, and so is that the other one is faster."""
        for program, old, word in ((SLOWER, PROGRAM, "slower"), (PROGRAM, SLOWER, "faster"),
                                   (SLOWER, PROGRAM, "slower")):
            done = commands.run(*commands.COMMAND[:-1], program, "run", "--workload", "take,batch", "--keys",
                                "1k", "--seconds", "0.1", "--compare", old)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout.count("  " + word.upper() + "\n"), 2, done.stdout)
            self.assertIn("2 of 2 changed", done.stdout)


class Plot(commands.Case):
    def setUp(self):
        super().setUp()
        self.path = self.directory / "plots"

    @needs_gnuplot
    def test_the_picture(self):
        found = result("run", "--workload", "take,batch", "--keys", "1k,10k", "--seconds", "0.01", "--processes",
                       "1", "--plot", self.path)
        self.assertEqual(os.listdir(self.path), ["keys.svg"])
        texts = " ".join(svg_texts(self.path / "keys.svg"))
        for word in ("take", "batch", "1k", "10k", "reference: clock, hash, atomic add",
                     "reference: hash, atomic add", found["build"]["commit"], found["date"][:8]):
            self.assertIn(word, texts)
        self.assertIn("prefers-color-scheme", (self.path / "keys.svg").read_text())

    @needs_gnuplot
    def test_what_makes_no_picture_is_told(self):
        done = call("run", "--workload", "take", "--distribution", "zipf", "--keys", "9",
                    "--seconds", "0.001", "--plot", self.path)
        self.assertEqual(done.returncode, 0)
        self.assertIn("no picture", done.stderr)

    def test_where_nothing_can_be_drawn(self):
        """Without gnuplot, or into a file, nothing is measured."""
        self.refused("run", "--plot", self.path, words="gnuplot", code=1,
                     env={"PATH": str(self.directory)})
        file = self.write("file", "")
        self.refused("run", "--plot", file, words=str(file), help_="")


if __name__ == "__main__":
    SLOWER = os.path.abspath(sys.argv.pop(3))
    BENCH, PROGRAM = (Path(argument).resolve() for argument in sys.argv[1:3])
    commands.main(sys.executable, arguments=2)
