#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint-bench run, on tables so small that it takes seconds: what it prints, what it refuses.

    bench_run.py BENCH_PY STINT_BENCH
"""
import contextlib
import csv
import io
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402
import peers  # noqa: E402
from commands import call, result  # noqa: E402

RUN = Path(__file__).resolve().parents[2] / "bench" / "run"

CORES = len(os.sched_getaffinity(0))
THREADS = sorted({1, min(2, CORES)})

DRAWN = ["take", "take-at", "batch", "refuse"]
EACH_ONCE = ["first-seen", "roll", "churn"]
PATHS = {  # what each is measured beside
    **dict.fromkeys(["cost-5", "own-limit", "roll-over", "reservable", "reserve", "shadow",
                     "counted", "peek", "refund", "smooth", "in-flight", "hold", "bucket", "bucket-5",
                     "bucket-refused",
                     "per-key", "first", "calendar", "striped", "unlisted", "overridden"], "plain take"),
    **dict.fromkeys(["all-1", "all-2", "all-3", "all-2-keys", "all-3-keys", "buckets",
                     "mixed-2", "mixed-3", "all-overridden", "all-costs"], "as many takes"),
    "charge": "plain take",
}
DISTRIBUTIONS = ["uniform", "zipf", "hot"]
REFERENCES = {**PATHS, **dict.fromkeys(["take", "refuse"], "clock+hash+add"), **dict.fromkeys(["take-at", "batch"], "hash+add"),
              **dict.fromkeys(EACH_ONCE, "present keys")}
ROW_FIELDS = {
    "workload": str, "distribution": str, "keys": int, "threads": int, "key_length": int,
    "load": float, "ns_per_op": float, "ns_min": float, "ns_max": float, "mops": float,
    "reference": str, "reference_ns": float, "ratio": float, "repeats": int, "allowed": int,
    "refused": int, "unplaced": int, "huge_pages": float, "each": list, "thread_mops": list,
    "checked": bool,
}
QUICK = ["--processes", "2"]


def own_seconds():
    """What the processes that were started and have ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(*arguments):
    return result("run", "--seconds", "0.01", *QUICK, *arguments)


class Case(unittest.TestCase):
    def check_row(self, row):
        for name, kind in ROW_FIELDS.items():
            self.assertIn(name, row)
            numbers = (int, float) if kind is float else kind
            self.assertIsInstance(row[name], numbers, name)
        self.assertIs(row["checked"], True)
        self.assertGreater(row["ns_min"], 0)
        self.assertLessEqual(row["ns_min"], row["ns_per_op"])
        self.assertLessEqual(row["ns_per_op"], row["ns_max"])
        self.assertGreater(row["reference_ns"], 0)
        self.assertGreater(row["ratio"], 0)
        self.assertEqual((len(row["each"]), len(row["thread_mops"])),
                         (row["repeats"], row["threads"]))
        # What all do in a second is what each does. Numbers are printed with six digits.
        self.assertAlmostEqual(row["mops"] / sum(row["thread_mops"]), 1, places=4)
        self.assertGreater(row["allowed"] + row["refused"], 0)
        used_up = row["workload"] in ("refuse", "bucket-refused")
        self.assertEqual(row["allowed" if used_up else "refused"], 0)
        self.assertEqual(row["reference"], REFERENCES[row["workload"]])

    def rows(self, *arguments):
        """What is measured, each of it as it should be."""
        rows = measure(*arguments)["rows"]
        for row in rows:
            with self.subTest(row=row):
                self.check_row(row)
        return rows

    def check_paths(self, keys, threads):
        rows = self.rows("--workload", "paths", "--keys", str(keys), "--seconds", "0.001", "--threads", str(threads),
                         "--processes", "1")
        self.assertEqual([(r["workload"], r["threads"], r["keys"]) for r in rows],
                         [(path, threads, keys) for path in PATHS])


class Every(Case):
    """Each row that can be asked for."""

    def test_every_workload_in_every_distribution_and_with_threads(self):
        wanted = list(itertools.product(DRAWN, DISTRIBUTIONS, THREADS, [1, 3000]))
        wanted += list(itertools.product(EACH_ONCE, ["uniform"], THREADS, [1, 3000]))
        rows = self.rows("--workload", ",".join(DRAWN + EACH_ONCE), "--distribution", ",".join(DISTRIBUTIONS), "--keys", "1,3k",
                         "--threads", ",".join(map(str, THREADS)), "--seconds", "0.001", "--processes", "1")
        found = [(r["workload"], r["distribution"], r["threads"], r["keys"]) for r in rows]
        self.assertEqual(sorted(found), sorted(wanted))

    def test_one_thread_on_one_key(self):
        self.check_paths(1, 1)

    def test_as_many_threads_as_go(self):
        self.check_paths(3000, THREADS[-1])

    def test_paths_in_cache_and_out(self):
        rows = measure("--workload", "cost-5", "--key-length", "4", "--seconds", "0.002")["rows"]
        self.assertEqual([row["keys"] for row in rows], [1000, 1000000])

    def test_loads(self):
        rows = measure("--workload", "take,refuse,first-seen", "--keys", "20k",
                       "--load", "0.05,0.5,0.7,1,1.5")["rows"]
        self.assertEqual(len(rows), 15)
        for row in rows:
            with self.subTest(row=row):
                self.assertIs(row["checked"], True)
                if row["load"] <= 0.5:
                    self.assertEqual(row["unplaced"], 0)
                if row["load"] >= 1:
                    # Slots for all, but not all within reach of their keys; or not for all.
                    self.assertGreater(row["unplaced"], 0)


class Rows(Case):
    def test_a_row_of_each_kind(self):
        rows = self.rows("--workload", ",".join(DRAWN + EACH_ONCE), "--keys", "1k", "--seconds", "0.001")
        self.assertEqual([row["workload"] for row in rows], DRAWN + EACH_ONCE)
        self.check_paths(1000, 1)

    def test_machine_and_build(self):
        result = measure("--workload", "take", "--keys", "10")
        for name in ("cpu", "cores", "cpus", "memory", "huge_pages"):
            self.assertTrue(result["machine"][name], name)
        self.assertEqual(result["machine"]["cores"], CORES)
        for name in ("version", "commit", "compiler", "flags"):
            self.assertTrue(result["build"][name], name)
        self.assertRegex(result["build"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(result["build"]["flags"], r"^-O")

    def test_key_lengths(self):
        lengths = 4, 7, 8, 9, 33, 1024
        rows = self.rows("--workload", "take,batch", "--keys", "500", "--processes", "1", "--key-length",
                         ",".join(map(str, lengths)))
        self.assertEqual([row["key_length"] for row in rows], [*lengths, *lengths])

    def test_what_others_take(self):
        """It is told; what its own threads take is not, though they are more than the CPUs: both
        together are no more than there is. A process that only takes time is told."""
        def others(*more):
            before, began = own_seconds(), time.monotonic()
            found = result("run", "--workload", "take", "--keys", "100", "--seconds", "1", *QUICK,
                           *more)["others"]
            return found, (own_seconds() - before) / (time.monotonic() - began) / CORES

        found, own = others("--threads", str(2 * CORES))
        self.assertLess(found + own, 1.1)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            disturbed = others()[0]
            busy.kill()
        self.assertGreater(disturbed, 0.2 / CORES)

    def test_decisions_a_second_are_those_that_were_done(self):
        """A process that is stopped half of the time has done half as much in the time that passed,
        though no decision takes longer."""
        process = subprocess.Popen([*commands.COMMAND, "run", "--workload", "take", "--keys", "100",
                                    "--seconds", "2", "--processes", "1", "--format", "json"],
                                   stdout=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            for child in peers.children(process.pid):
                for number in signal.SIGSTOP, signal.SIGCONT:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, number)
                    time.sleep(0.02)
            time.sleep(0.001)
        row, = json.loads(process.communicate(timeout=60)[0])["rows"]
        self.assertLess(row["mops"], 0.8 * 1000 / row["ns_per_op"])


class FirstScreen(commands.Case):
    def test_four_lines_and_a_short_table(self):
        out = self.good("--seconds", "0.01", *QUICK)
        lines = out.splitlines()
        self.assertLessEqual(max(map(len, lines)), 100, out)
        # Whether others are at work is told, and what then cannot be said.
        self.assertEqual("NOT QUIET" in out, "at most" in lines[0])
        self.assertLessEqual(len(lines), 40)
        number = r"[\d.]+(e[+-]\d+)?"
        for line, wanted in zip(lines, (
                rf"400,000 decisions a second take {number}% of a core \(",
                rf"One core decides .*{number} million a second of a thousand keys, {number} million of a million",
                rf"99% are decided .* {number} [mu]s after they are due, 99.9% .* {number} [mu]s",
                r"2 threads" if CORES == 2 else "threads" if CORES > 1 else "There is one CPU")):
            self.assertRegex(line, wanted)
        for word in "machine", "commit", "CPU 0" if CORES > 1 else "CPU", "./bench/run load":
            self.assertIn(word, out)

    def test_on_one_cpu(self):
        """What cannot be said is said."""
        cpu = str(min(os.sched_getaffinity(0)))
        done = commands.run("taskset", "-c", cpu, *commands.COMMAND, "--seconds", "0.01", *QUICK)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("\nThere is one CPU: what more threads give cannot be said here.\n", done.stdout)
        self.assertIn(f"1 core (CPU {cpu})", done.stdout)

    def test_json(self):
        found = result("--seconds", "0.01", "--processes", "1")
        self.assertIn("core_share", found["load"])
        for row in found["rows"]:
            self.assertIs(row["checked"], True)

    def test_csv(self):
        """The same rows as in JSON."""
        arguments = "run", "--workload", "take,refuse", "--keys", "1,1k", "--seconds", "0.001", *QUICK
        rows = list(csv.DictReader(io.StringIO(self.good(*arguments, "--format", "csv"))))
        names = "workload", "distribution", "keys", "threads"
        self.assertEqual([[row[name] for name in names] for row in rows],
                         [[str(row[name]) for name in names] for row in result(*arguments)["rows"]])
        self.assertGreater(float(rows[0]["ns_per_op"]), 0)


class Usage(commands.Case):
    def test_the_table_says_what_it_is(self):
        out = self.table("run", "--workload", "take,first-seen,refuse", "--keys", "12345,20k", "--load", "1",
                         "--seconds", "0.01", *QUICK, "--threads", str(min(2, CORES)),
                         words=("machine", "build", "commit", "ref", "ratio", "no slot", "clock+hash+add"))
        self.assertEqual(len(re.findall(r"^(?:take|first-seen|refuse) ", out, re.MULTILINE)), 6)

    def test_the_option_and_the_value_are_named(self):
        out = peers.Usage.check(self, "run", {
            "--workload": ["take,nothing", "", "TAKE"],
            "--keys": ["0", "1x", "5G", "1k,,2k", "99999999999999999999"],
            "--threads": ["0", "two", "1,"], "--distribution": ["zip"],
            "--key-length": ["3", "1025"], "--load": ["0", "2.1", "nan", "0.5x"],
            "--seconds": ["0", "-1", "inf"], "--format": ["xml"], "--processes": ["0"],
        })
        for word in ("--plot", "--compare", "paths", *DRAWN, *EACH_ONCE, *PATHS):
            self.assertIn(word, out)
        self.refused("run", "--keys=0", words=("--keys", "'"))

    def test_what_does_not_go(self):
        for arguments, *words in (
                (["--threads", "1025"], "--threads 1025"),
                (["--keys", "4G", "--load", "0.05"], "--keys 4G", "GiB"),
                (["--workload", "roll", "--distribution", "hot"], "--distribution hot", "roll"),
                (["--workload", "paths", "--distribution", "hot"], "--distribution hot", "cost-5"),
                (["--workload", "peek", "--load", "0.6"], "--load 0.6", "peek")):
            self.refused("run", *arguments, words=words)

    def test_the_commands(self):
        self.assertRegex(call("--version").stdout, r"^stint-bench \d+\.\d+\.\d+\n$")
        for name in "run", "peers", "load", "nginx":
            self.assertIn("\n  %s " % name, call("--help").stdout)
        for wrong in "nothing", "--nothing":
            self.refused(wrong, words=wrong, help_="")

    def test_help_installs_and_builds_nothing(self):
        """It needs no more than a shell and Python, and leaves the directory as it is."""
        environment = {"PATH": str(self.directory)}
        for program in "bash", "dirname", "python3":
            os.symlink(os.path.realpath(sys.executable if program == "python3" else
                                        shutil.which(program)), self.directory / program)
        before = sorted(os.listdir(RUN.parents[1]))
        for arguments in ["--help"], ["-h"], ["peers", "--help"], ["nginx", "-h"], ["load", "--help"]:
            done = commands.run("/bin/bash", RUN, *arguments, env=environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertIn("usage: ", done.stdout)
        self.assertEqual(sorted(os.listdir(RUN.parents[1])), before)
        for wrong, word in ("nothing", "no command 'nothing'"), ("advise", "stint advise"):
            done = commands.run("/bin/bash", RUN, wrong, env=environment)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(word, done.stderr)

    def test_the_program_alone(self):
        """It is asked by the script, and says so; what is no job is no answer."""
        for arguments, asked, said in ((["run"], "", "bench/run"), ([], "{", "a job"),
                                       ([], "{}", "job"), ([], '{"job": "x"}', "no job: x"),
                                       ([], '{"job": "open"}', "a job")):
            done = commands.run(commands.COMMAND[-1], *arguments, input=asked + "\n", stdin=None)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(said, done.stderr)

    def test_interrupted(self):
        """It is gone, with all that it started; and has printed the rows that were measured."""
        for seconds, word, arguments in (("3600", "workload", []), ("0.1", '"workload"', ["--format", "json"])):
            process = subprocess.Popen([*commands.COMMAND, "run", "--keys", "1k", "--workload",
                                        ",".join(PATHS), "--processes", "1", "--seconds", seconds, *arguments],
                                       stdout=subprocess.PIPE, start_new_session=True,
                                       cwd=self.directory, text=True)
            while word not in (line := process.stdout.readline()):
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            self.assertEqual(process.wait(60), -signal.SIGINT)
            with self.assertRaises(ProcessLookupError):
                os.killpg(process.pid, 0)
            process.stdout.close()
            self.assertEqual(os.listdir(self.directory), [])
        self.assertIs(json.loads(line.strip().rstrip(","))["checked"], True)

    def test_more_threads_than_cores(self):
        """They take turns, their answers are right, and a note says what that is worth."""
        done = call("run", "--threads", str(CORES + 1), "--workload", "take,refuse", "--keys", "100",
                    "--seconds", "0.01", *QUICK, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: %d threads on %d core" % (CORES + 1, CORES), done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            self.assertIs(row["checked"], True)


if __name__ == "__main__":
    commands.main(sys.executable, arguments=2)
