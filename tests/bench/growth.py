#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint-bench growth, --plot and --compare, on tables so small that it takes seconds: what they
print, what they refuse; that a build beside itself has changed nothing, and that one that is slower
by a tenth has.

    growth.py BENCH_PY STINT_BENCH STINT_BENCH_SLOWER
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402
from commands import call, needs_gnuplot, result, svg_texts  # noqa: E402

CORES = len(os.sched_getaffinity(0))
SMALL = ["--keys", "10k", "--seconds", "0.002", "--processes", "1"]
LEAST = ["--keys", "1k", "--seconds", "0.001", "--processes", "1"]  # where it does not matter what comes out


class Growth(commands.Case):
    def test_every_series(self):
        rows = result("growth", *SMALL)["rows"]
        found = {}
        for row in rows:
            self.assertIs(row["checked"], True, row)
            self.assertGreater(row["ns_min"], 0)
            self.assertLessEqual(row["ns_min"], row["ns_per_op"])
            self.assertLessEqual(row["ns_per_op"], row["ns_max"])
            self.assertLessEqual(row["ratio_min"], row["ratio_max"])
            found.setdefault(row["series"], []).append(row)
        self.assertEqual(set(found), {"keys", "load", "threads", "key-length", "policies",
                                      "refused"})

        def values(series, name, workload="take"):
            return [row[name] for row in found[series] if row["workload"] == workload]

        self.assertEqual(values("keys", "keys"), [1000, 10000])
        self.assertEqual(values("keys", "keys", "batch"), [1000, 10000])
        loads = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
        self.assertEqual(values("load", "load"), loads)
        self.assertEqual(values("load", "load", "first-seen"), loads)
        self.assertEqual(values("key-length", "key_length"), [4 << i for i in range(9)])
        self.assertEqual(values("policies", "policies"), [4 ** i for i in range(7)])
        threads = [(row["workload"], row["distribution"], row["stripes"] > 1, row["threads"])
                   for row in found["threads"]]
        powers = sorted({1 << i for i in range(10) if 1 << i <= CORES} | {CORES})
        self.assertEqual(threads, [(w, d, s, t) for w, d, s in (
            ("take", "uniform", False), ("take", "zipf", False), ("take", "hot", False),
            ("take", "hot", True), ("refuse", "hot", False)) for t in powers])
        self.assertEqual({row["reference"] for row in found["threads"]}, {"one thread"})

    def test_the_refused_part_is_refused(self):
        rows = result("growth", "--by", "refused", *SMALL)["rows"]
        self.assertEqual([row["refused_part"] for row in rows],
                         [0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1])
        for row in rows:
            part = row["refused"] / (row["refused"] + row["allowed"])
            self.assertAlmostEqual(part, row["refused_part"], delta=0.03)

    def test_table(self):
        self.table("growth", *LEAST, words=["keys unplaced"])

    def test_interrupted_it_is_gone(self):
        self.interrupted("as grows", "--seconds", "3600", "--processes", "1")  # its first row takes an hour

    def test_interrupted_it_has_printed_the_rows_that_were_measured(self):
        line = self.interrupted('"workload"', "--by", "refused", "--seconds", "0.1", "--format", "json")
        self.assertIs(json.loads(line.strip().rstrip(","))["checked"], True)

    def interrupted(self, word, *arguments):
        """Interrupts it after a line with this word, which is returned."""
        process = subprocess.Popen([*commands.COMMAND, "growth", "--keys", "10k", *arguments],
                                   stdout=subprocess.PIPE, start_new_session=True,
                                   cwd=self.directory, text=True)
        while word not in (line := process.stdout.readline()):
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        self.assertEqual(process.wait(60), -signal.SIGINT)
        with self.assertRaises(ProcessLookupError):  # nor anything that it started
            os.killpg(process.pid, 0)
        process.stdout.close()
        self.assertEqual(os.listdir(self.directory), [])
        return line


class Compare(commands.Case):
    RUN = ["run", "--workload", "take,batch", "--keys", "100,1k", "--seconds", "0.1"]
    QUICK = ["run", "--workload", "take,batch,refuse,bucket,all-2", "--keys", "100", "--seconds", "0.01",
             "--processes", "10"]
    TENTH = ["run", "--workload", "take,batch", "--keys", "1k", "--seconds", "0.1"]

    def write(self, old):
        return super().write("old.json", old if isinstance(old, str) else json.dumps(old))

    def test_a_build_beside_itself(self):
        """Of a hundred rows, five at most are said to have changed: by twenty comparisons of five rows.
        One in which nothing changed has neither word in it."""
        told = []
        for _ in range(20):
            compare = result(*self.QUICK, "--compare", PROGRAM)["compare"]
            self.assertEqual((len(compare["pairs"]), compare["only_old"], compare["only_new"]), (5, 0, 0))
            told += [pair for pair in compare["pairs"] if pair["change"] != "same"]
        self.assertLessEqual(len(told), 5, told)

    def test_a_build_that_is_slower_by_a_tenth(self):
        """Is told in each comparison, and so is that the other one is faster."""
        for program, old, word in ((SLOWER, PROGRAM, "slower"), (PROGRAM, SLOWER, "faster"),
                                   (SLOWER, PROGRAM, "slower")):
            done = commands.run(*commands.COMMAND[:-1], program, *self.TENTH, "--compare", old)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout.count("  " + word.upper() + "\n"), 2, done.stdout)
            self.assertIn("2 of 2 changed", done.stdout)

    def test_a_doctored_result(self):
        old = result(*self.RUN, "--processes", "7")
        rows = old["rows"]
        rows[0]["each"] = [1000 * ns for ns in rows[0]["each"]]
        rows[1]["each"] = [ns / 1000 for ns in rows[1]["each"]]
        rows[2]["each"] = [1e-3, 1e6, 1e-3, 1e6, 10, 10, 10]
        rows[3]["keys"] = 77
        rows[2].pop("policies")  # as in a result of an older version
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
        """A command's own JSON is read back, and each row finds its partner."""
        for arguments, metrics in ((["growth", "--by", "keys,policies,load", *LEAST], 1),
                                   (["peers", "--peer", "mutex,open-64", "--keys", "10,100",
                                     "--seconds", "0.001"], 1),
                                   (["load", "--rate", "9k", "--keys", "100", "--seconds", "0.1",
                                     "--limit", "5/s", "--limit", "9/min"], 7)):
            with self.subTest(arguments=arguments):
                done = call(*arguments, "--format", "json")
                path = self.write(done.stdout)
                again = json.loads(call(*arguments, "--format", "json", "--compare", path).stdout)
                old = json.loads(done.stdout)
                compare = again["compare"]
                self.assertEqual((compare["only_old"], compare["only_new"]), (0, 0))
                self.assertEqual(len(compare["pairs"]), metrics * len(old["rows"]))
                self.assertEqual(compare["commit"], old["build"]["commit"])

    def test_a_result_of_another_command(self):
        """Every measuring command has one shape of result, and says whose it is."""
        quick = {"run": ["--workload", "take", "--keys", "9", "--seconds", "0.001"],
                 "growth": ["--by", "keys", *LEAST],
                 "peers": ["--peer", "own", "--keys", "9", "--threads", "1", "--seconds",
                           "0.001"],
                 "load": ["--rate", "1k", "--keys", "9", "--seconds", "0.01"]}
        for command, arguments in quick.items():
            with self.subTest(command=command):
                old = result(command, *arguments)
                self.assertEqual(list(old), ["command", "machine", "build", "date", "seconds",
                                             "rows", "others"])
                self.assertEqual(old["command"], command)
                other = "growth" if command == "run" else "run"
                self.refused(other, "--compare", self.write(old), help_="",
                             words="it is a result of stint-bench %s" % command)

    def test_rows_with_other_limits_are_no_pair(self):
        arguments = ["load", "--rate", "1k", "--keys", "9", "--seconds", "0.01", "--limit"]
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


class Plot(commands.Case):
    def setUp(self):
        super().setUp()
        self.path = self.directory / "plots"

    @needs_gnuplot
    def test_pictures(self):
        grown = result("growth", "--by", "keys,threads", *SMALL, "--plot", self.path)
        result("peers", "--peer", "mutex", "--keys", "9,2k", "--threads", "1", "--seconds", "0.01",
               "--plot", self.path)
        result("run", "--workload", "bucket,cost-5", "--keys", "9,2k", "--seconds", "0.001", "--plot", self.path)
        pictures = sorted(os.listdir(self.path))
        self.assertEqual(pictures, ["keys.svg", "kinds.svg", "peers.svg"] +
                         ["threads.svg"] * (CORES > 1))
        wanted = {"keys.svg": ["take", "batch", "1k", "10k", "reference: clock, hash, atomic add",
                               "reference: hash, atomic add"],
                  "kinds.svg": ["bucket", "cost-5", "9 keys", "2k keys", "ns"],
                  "peers.svg": ["stint, one at a time", "stint, 16 in a call", "uthash, one mutex",
                                "9 keys, 1 thread", "2k keys, 1 thread",
                                "decisions a second, all threads together"],
                  "threads.svg": ["take zipf, 10k keys", "refuse hot, 10k keys"]}
        for name in pictures:
            with self.subTest(name=name):
                texts = " ".join(svg_texts(self.path / name))
                for word in wanted[name]:
                    self.assertIn(word, texts)
                self.assertIn(grown["build"]["commit"], texts)
                self.assertIn(grown["date"][:8], texts)
                self.assertIn("prefers-color-scheme", (self.path / name).read_text())

    @needs_gnuplot
    def test_an_absent_peer_has_its_line(self):
        os.symlink(shutil.which("gnuplot"), self.directory / "gnuplot")
        done = call("peers", "--peer", "redis-incr", "--keys", "9", "--threads", "1", "--seconds",
                    "0.01", "--plot", self.path, env={"PATH": str(self.directory)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Redis INCR (not installed)", (self.path / "peers.svg").read_text())

    @needs_gnuplot
    def test_what_makes_no_picture_is_told(self):
        done = call("run", "--workload", "take", "--distribution", "zipf", "--keys", "9",
                    "--seconds", "0.001", "--plot", self.path)
        self.assertEqual(done.returncode, 0)
        self.assertIn("no picture", done.stderr)

    def test_where_nothing_can_be_drawn(self):
        """Without gnuplot, or into a file, nothing is measured."""
        self.refused("growth", "--plot", self.path, words="gnuplot", code=1,
                     env={"PATH": str(self.directory)})
        file = self.write("file", "")
        self.refused("growth", "--plot", file, words=str(file), help_="")


class Usage(commands.Case):
    def test_the_option_and_the_value_are_named(self):
        for option, value in (("--by", "keys,nothing"), ("--by", ""), ("--keys", "999"), ("--keys", "5G"),
                              ("--seconds", "0"), ("--format", "xml"), ("--nothing", "nothing")):
            self.refused("growth", option, value,
                         words=(option, "'%s'" % value.rpartition(",")[2] if option != "--nothing" else option))
        self.refused("growth", "--keys", words="--keys needs a value")
        self.refused("growth", "--keys", "4G", words="GiB")

    def test_help(self):
        self.table("growth", "--help", words=["--by", "--keys", "policies", "--seconds", "--format", "--compare",
                                              "--plot"])


if __name__ == "__main__":
    SLOWER = os.path.abspath(sys.argv.pop(3))
    BENCH, PROGRAM = (Path(argument).resolve() for argument in sys.argv[1:3])
    commands.main(sys.executable, arguments=2)
