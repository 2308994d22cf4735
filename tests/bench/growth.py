#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint-bench growth and goals, run --latency, --plot and --compare, on tables so small that it
takes seconds: what they print, what they refuse.

    growth.py BENCH_PY STINT_BENCH
"""
import functools
import json
import os
import re
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
REDIS = shutil.which("redis-server") is not None
POINTS = ["p50", "p90", "p99", "p99.9", "p99.99", "max"]
PATHS = 35  # other kinds of decisions than the plain take
SMALL = ["--keys", "10k", "--seconds", "0.002"]
LEAST = ["--keys", "1k", "--seconds", "0.001"]  # where it does not matter what comes out

@functools.cache
def goals():
    return call("goals", *SMALL, "--format", "json")


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
        self.assertEqual({row["floor"] for row in found["threads"]}, {"one alone"})

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
        self.interrupted("as grows", "--seconds", "3600")  # its first row takes an hour

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


class Latency(commands.Case):
    def test_calls_beside_empty_sections(self):
        threads = min(2, CORES)
        tails = result("run", "--latency", *SMALL, "--threads", str(threads),
                       "--workload", "take,take-at,refuse,first-seen,roll,churn,roll-all")["rows"]
        self.assertEqual(len(tails), 7)
        for row in tails:
            with self.subTest(row=row):
                self.assertIs(row["checked"], True)
                self.check_tail(row["call"])
                self.check_tail(row["empty"])
                self.assertGreater(row["calls"], 0)
                self.assertEqual(row["calls"], row["allowed"] + row["refused"])
                self.assertLessEqual(row["empty"]["p50"]["ns"], row["call"]["p99"]["ns"])
                self.assertIn(row["timer"], ("tsc", "clock_gettime"))
                self.assertGreater(row["overhead_ns"], 0)
                self.assertGreater(row["step_ns"], 0)
                if row["workload"] == "roll-all":
                    # Whole windows, of as many calls as there are keys.
                    self.assertEqual(row["calls"] % 10000, 0)

    def test_table(self):
        self.table("run", "--latency", *LEAST,
                   words=[*POINTS, "subtracted", "first-seen", "roll-all", "empty"])


class Goals(unittest.TestCase):
    def test_every_point_and_the_exit_code(self):
        done = goals()
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([goal["point"] for goal in rows],
                         [1, 2, 3, 4, 4, 4, 5, 5, 5, 5, 6, 7, 7, 7, 7] + [8] * 2 * PATHS)
        # Like beside like decides.
        self.assertEqual([goal["aside"] for goal in rows],
                         [False] * 12 + [True, True, False] + [False] * 2 * PATHS)
        for goal in rows:
            with self.subTest(goal=goal):
                self.assertEqual(goal["absent"], goal["point"] == 7 and not REDIS)
                if goal["measured"] is None:
                    self.assertIs(goal["met"], None if goal["absent"] else False)
                    continue
                self.assertLessEqual(goal["measured_min"], goal["measured"])
                self.assertLessEqual(goal["measured"], goal["measured_max"])
                met = (goal["measured"] >= goal["limit"] if goal["better"] == "higher"
                       else goal["measured"] <= goal["limit"])
                self.assertIs(goal["met"], None if goal["aside"] else met or goal["reached"])
                self.assertTrue(goal["floor"])
        self.assertEqual(done.returncode, 1 if any(goal["met"] is False for goal in rows) else 0)

    def test_table_where_redis_is_absent(self):
        done = call("goals", *SMALL, env={"PATH": "/nonexistent"})
        self.assertEqual(done.stderr, "")
        lines = [line for line in done.stdout.splitlines() if re.match(r"\d  ", line)]
        self.assertEqual([line[0] for line in lines], list("123444555567777") + ["8"] * 2 * PATHS)
        self.assertEqual([line[0] for line in lines if "absent: redis-server" in line], ["7"] * 4)
        missed = 0
        for line in lines:
            self.assertRegex(line, r" (met|MISSED|aside)$|not measured: | absent: redis-server")
            missed += line.endswith(" MISSED") or "not measured" in line
        self.assertEqual(done.returncode, 1 if missed else 0)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 100, line)


class Compare(commands.Case):
    RUN = ["run", "--workload", "take,batch", "--keys", "100,1k", "--seconds", "0.01"]

    def write(self, old):
        return super().write("old.json", old if isinstance(old, str) else json.dumps(old))

    def test_a_doctored_result(self):
        old = result(*self.RUN)
        rows = old["rows"]
        rows[0].update(ns_per_op=1e6, ns_min=9e5, ns_max=2e6)
        rows[1].update(ns_per_op=1e-3, ns_min=1e-3, ns_max=2e-3)
        rows[2].update(ns_per_op=10, ns_min=1e-3, ns_max=1e6)
        rows[3]["keys"] = 77
        rows[2].pop("policies")  # as in a result of an older version
        new = result(*self.RUN, "--compare", self.write(old))
        compare = new["compare"]
        self.assertEqual([pair["change"] for pair in compare["pairs"]],
                         ["faster", "slower", "same"])
        self.assertEqual((compare["faster"], compare["slower"], compare["only_old"],
                          compare["only_new"], compare["same_machine"]), (1, 1, 1, 1, True))
        for pair, then, now in zip(compare["pairs"], rows, new["rows"]):
            self.assertEqual(pair["old"], {"value": then["ns_per_op"], "min": then["ns_min"],
                                           "max": then["ns_max"]})
            self.assertEqual(pair["new"], {"value": now["ns_per_op"], "min": now["ns_min"],
                                           "max": now["ns_max"]})
            ratio = now["ns_per_op"] / then["ns_per_op"]
            self.assertAlmostEqual(pair["ratio"] / ratio, 1, places=4)
        out = self.good(*self.RUN, "--compare", self.write(old))
        self.assertEqual(len(re.findall(r"  FASTER$", out, re.M)), 1)
        self.assertEqual(len(re.findall(r"  SLOWER$", out, re.M)), 1)
        self.assertIn("1 faster, 1 slower, 1 within the noise", out)

    def test_a_result_with_itself(self):
        """A command's own JSON is read back, and each row finds its partner."""
        for arguments, metrics in ((["run", "--latency", *LEAST], 6),
                                   (["growth", "--by", "keys,policies,load", *LEAST], 1),
                                   (["peers", "--peer", "mutex,open-64", "--keys", "10,100",
                                     "--seconds", "0.001"], 1),
                                   (["load", "--rate", "9k", "--keys", "100", "--seconds", "0.1",
                                     "--limit", "5/s", "--limit", "9/min"], 13)):
            with self.subTest(arguments=arguments):
                done = call(*arguments, "--format", "json")
                path = self.write(done.stdout)
                again = json.loads(call(*arguments, "--format", "json", "--compare", path).stdout)
                old = json.loads(done.stdout)
                rows = [row for row in old["rows"] if row.get("measured", 0) is not None]
                compare = again["compare"]
                self.assertEqual((compare["only_old"], compare["only_new"]), (0, 0))
                self.assertEqual(len(compare["pairs"]), metrics * len(rows))
                self.assertEqual(compare["commit"], old["build"]["commit"])

    def test_a_result_of_another_command(self):
        """Every measuring command has one shape of result, and says whose it is."""
        quick = {"run": ["--workload", "take", "--keys", "9", "--seconds", "0.001"],
                 "growth": ["--by", "keys", *LEAST],
                 "peers": ["--peer", "counter", "--keys", "9", "--threads", "1", "--seconds",
                           "0.001"],
                 "load": ["--rate", "1k", "--keys", "9", "--seconds", "0.01"]}
        for command, arguments in quick.items():
            with self.subTest(command=command):
                old = result(command, *arguments)
                self.assertEqual(list(old), ["command", "machine", "build", "date", "seconds",
                                             "rows"])
                self.assertEqual(old["command"], command)
                other = "goals" if command == "run" else "run"
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


class Plot(commands.Case):
    def setUp(self):
        super().setUp()
        self.path = self.directory / "plots"

    @needs_gnuplot
    def test_pictures(self):
        grown = result("growth", "--by", "keys,threads", *SMALL, "--plot", self.path)
        result("run", "--latency", *SMALL, "--plot", self.path)
        result("peers", "--peer", "mutex", "--keys", "9,2k", "--threads", "1", "--seconds", "0.01",
               "--plot", self.path)
        result("load", "--rate", "1k", "--keys", "9", "--seconds", "0.1", "--plot", self.path)
        result("run", "--workload", "bucket,cost-5", "--keys", "9,2k", "--seconds", "0.001", "--plot", self.path)
        pictures = sorted(os.listdir(self.path))
        self.assertEqual(pictures, ["keys.svg", "kinds.svg", "load.svg", "peers.svg", "tails.svg"] +
                         ["threads.svg"] * (CORES > 1))
        wanted = {"keys.svg": ["take", "batch", "1k", "10k", "floor: clock, hash, atomic add",
                               "floor: atomic add"],
                  "kinds.svg": ["bucket", "cost-5", "9 keys", "2k keys", "ns"],
                  "load.svg": ["99.99%", "a decision", "begun after it was due"],
                  "peers.svg": ["stint, one at a time", "stint, 16 in a call", "uthash, one mutex",
                                "9 keys, 1 thread", "2k keys, 1 thread",
                                "decisions a second, all threads together"],
                  "tails.svg": ["99.99%", "first-seen, 10k keys, 1 thr", "1 µs"],
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
        for command, option, value in (
                ("growth", "--by", "keys,nothing"), ("growth", "--by", ""),
                ("growth", "--keys", "999"), ("growth", "--keys", "5G"),
                ("growth", "--seconds", "0"), ("growth", "--format", "csv"),
                ("goals", "--keys", "1"), ("goals", "--keys", "401M"),
                ("goals", "--seconds", "nan"), ("goals", "--format", "")):
            self.refused(command, option, value, words=(option, "'%s'" % value.rpartition(",")[2]))

    def test_what_does_not_go(self):
        for word, *arguments in (
                *((word, command, option) for command in ("growth", "goals")
                  for word, option in (("--nothing", "--nothing"), ("--keys needs a value", "--keys"))),
                ("--plot", "goals", "--plot", "nowhere"),
                ("batch", "run", "--latency", "--workload", "batch"),
                ("roll-all", "run", "--workload", "roll-all"),
                ("roll-all", "run", "--latency", "--workload", "roll-all", "--distribution", "hot"),
                ("GiB", "growth", "--keys", "4G"), ("GiB", "goals", "--keys", "400M"),
                ("GiB", "run", "--latency", "--keys", "4G", "--load", "0.05")):
            self.refused(*arguments, words=word)

    def test_help(self):
        for command, options in (("growth", ["--by", "--keys", "policies"]),
                                 ("goals", ["--keys", "Exit codes"]), ("run", ["--latency"])):
            out = self.table(command, "--help", words=[*options, "--seconds", "--format", "--compare"])
            self.assertEqual("--plot" in out, command != "goals")


if __name__ == "__main__":
    commands.main(sys.executable, arguments=2)
