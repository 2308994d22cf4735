#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint-bench peers and load, on sizes so small that it takes seconds: what they print, what they
refuse, and that nothing of them is left.

    peers.py BENCH_PY STINT_BENCH
"""
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402
import servers  # noqa: E402
from commands import call  # noqa: E402

CORES = len(os.sched_getaffinity(0))
THREADS = sorted({1, min(2, CORES)})

HERE = ["stint", "stint-verdict", "stint-batch", "stint-batch-64", "own", "open-64", "open-64-huge",
        "stint-bucket", "bucket-64", "mutex-64", "mutex"]
SERVERS = {name: "redis-server" for name in ("redis-incr", "redis-lua", "redis-all")}
# Those that decide by several limits at once.
ALL = ["stint-all", "stint-takes", "stint-groups", "open-64-all", "mutex-64-all", "mutex-all",
       "redis-all"]
ONE = HERE + [name for name in SERVERS if name not in ALL]
NUMBERS = ["decisions_per_second", "ns_per_op", "ns_min", "ns_max", "cpu_seconds_per_million",
           "bytes_per_key", "ratio_take", "ratio_batch"]


def processes(text):
    """The ids of the processes whose command line names the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def stats():
    """Of each process its parent and its state."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            found[int(path.parent.name)] = int(parent), state
    return found


def children(pid):
    """All descendants of a process."""
    there, found, last = stats(), set(), {pid}
    while last:
        last = {child for child, (parent, _) in there.items() if parent in last} - found
        found |= last
    return found


def alive(pid):
    return stats().get(pid, (0, "Z"))[1] != "Z"


def until(condition):
    return servers.until(condition, "processes to come or go")


class Temporary(commands.Case):
    """Every test has a directory for temporary files of its own, which must be empty at its end."""

    def setUp(self):
        super().setUp()
        self.environment = dict(os.environ, TMPDIR=str(self.directory))

    def tearDown(self):
        self.assertEqual((os.listdir(self.directory), processes(str(self.directory))), ([], []))

    def peers(self, *arguments):
        return json.loads(self.good("peers", "--format", "json", "--seconds", "0.01", "--processes", "2", *arguments,
                                    env=self.environment))

    def fails(self, *arguments):
        """What the command says that measures a peer in vain."""
        done = call("peers", *arguments, "--keys", "9", "--threads", "1", "--seconds", "0.01", env=self.environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stdout, done.stderr

    def server(self, script):
        """Puts this in the place of redis-server."""
        binaries = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, binaries)
        program = Path(binaries, "redis-server")
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)
        self.environment["PATH"] = binaries + ":" + os.environ["PATH"]


class Rows(Temporary):
    def check_row(self, row, rows):
        name = row["peer"]
        depths = {"stint-batch": 16, "stint-groups": 32, "stint-batch-64": 64, "dpdk-64": 64, **dict.fromkeys(SERVERS, 32)}
        self.assertEqual(row["depth"], depths.get(name, 1))
        if name in SERVERS and shutil.which(SERVERS[name]) is None:
            self.assertEqual((row["absent"], row["checked"]), (True, False))
            self.assertEqual([row[field] for field in NUMBERS], [None] * len(NUMBERS))
            return
        self.assertEqual((row["absent"], row["checked"]), (False, True), row)
        for field in NUMBERS:
            if field != "bytes_per_key":  # a small table may fit memory that was there
                self.assertGreater(row[field], 0, (name, field))
        self.assertLessEqual(row["ns_min"], row["ns_per_op"])
        self.assertLessEqual(row["ns_per_op"], row["ns_max"])
        others = ("stint", "stint-batch") if name not in ALL else ("stint-all", "stint-groups")
        for field, other in zip(("ratio_take", "ratio_batch"), others):
            best = [r for r in rows if (r["peer"], r["keys"], r["threads"]) ==
                    (other, row["keys"], row["threads"])][0]
            ratio = best["decisions_per_second"] / row["decisions_per_second"]
            self.assertAlmostEqual(row[field] / ratio, 1, places=4)
        self.assertGreater(row["granted"], 0)
        self.assertEqual(row["refused"], 0)
        self.assertEqual(row["version"] != "", name in SERVERS)

    def check_rows(self, limits, peers):
        result = self.peers("--limits", str(limits), "--keys", "1,3k", "--threads", ",".join(map(str, THREADS)))
        rows = result["rows"]
        for row in rows:
            with self.subTest(row=row):
                self.assertEqual(row["limits"], limits)
                self.check_row(row, rows)
        found = [(row["peer"], row["keys"], row["threads"]) for row in rows]
        self.assertEqual(sorted(found), sorted(itertools.product(peers, (1, 3000), THREADS)))
        self.assertGreater(rows[0]["window"], 86400)
        self.assertIn("cpu", result["machine"])
        self.assertIn("commit", result["build"])

    def test_every_peer(self):
        self.check_rows(1, ONE)

    def test_several_limits_at_once(self):
        for limits in 2, 3:
            self.check_rows(limits, ALL)

    def test_memory_is_of_the_keys(self):
        rows = {row["peer"]: row for row in self.peers("--keys", "100k", "--threads", "1")["rows"]}
        for name, low, high in (("stint", 30, 70), ("open-64", 30, 45), ("open-64-huge", 30, 45), ("mutex", 80, 200),
                                ("redis-incr", 60, 250)):
            if not rows[name]["absent"]:
                with self.subTest(peer=name):
                    self.assertGreater(rows[name]["bytes_per_key"], low)
                    self.assertLess(rows[name]["bytes_per_key"], high)

    def test_chosen_peers_and_the_two_they_are_compared_with(self):
        rows = self.peers("--peer", "mutex,own", "--keys", "100", "--threads=1")["rows"]
        self.assertEqual([row["peer"] for row in rows],
                         ["stint", "stint-batch", "own", "mutex"])
        for row in rows:
            self.check_row(row, rows)
        rows = self.peers("--peer", "mutex-all", "--limits", "2", "--keys", "100",
                          "--threads=1")["rows"]
        self.assertEqual([row["peer"] for row in rows], ["stint-all", "stint-groups", "mutex-all"])

    def test_absent_servers_are_told(self):
        self.environment["PATH"] = str(self.directory)
        rows = self.peers("--keys", "100", "--threads", "1")["rows"]
        self.assertEqual([row["peer"] for row in rows if row["absent"]],
                         [name for name in SERVERS if name not in ALL])
        done = call("peers", "--keys", "100", "--threads", "1", "--seconds", "0.01",
                    env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("absent: redis-server is not installed"), 2)

    def test_a_server_that_does_not_start_is_told(self):
        for script, message in (("echo no memory today\nexit 1\n", "no memory today"),
                                ("exit 0\n", "says nothing")):
            with self.subTest(script=script):
                self.server(script)
                out, err = self.fails("--peer", "redis-lua")
                self.assertIn("redis-lua", err)
                self.assertIn(message, err)
                self.assertIn("FAILED", out)

    def test_a_peer_that_counts_wrongly_is_told(self):
        # A Redis that counts down: it grants more than the limit.
        self.need("redis-server")
        self.server('exec %s "$@" --rename-command INCR NOTHING --rename-command DECR INCR\n'
                    % shutil.which("redis-server"))
        for arguments in (["--peer", "redis-incr"], ["--peer", "redis-all", "--limits", "2"]):
            self.assertRegex(self.fails(*arguments)[1], arguments[1] + ".* tokens granted to one key: 3 would be right")

    def test_the_table_fits_100_columns(self):
        for limits, words in ("1", ["x take", "x batch"]), ("3", ["x all", "x groups"]):
            self.table("peers", "--keys", "100,2k", "--seconds", "0.01", "--processes", "1", "--limits", limits,
                       env=self.environment, words=["machine", "commit", "decisions/s", "CPU s/M", "B/key", *words])


@unittest.skipIf(shutil.which("redis-server") is None, "the server is not installed")
class Dying(Temporary):
    def die(self, number):
        """What measures, two servers and their guardians. Returns all of them."""
        bench = subprocess.Popen([*commands.COMMAND, "peers", "--peer", "redis-incr,redis-lua", "--keys", "1k",
                                  "--threads", "1", "--seconds", "600"], env=self.environment, stdout=subprocess.DEVNULL)
        self.addCleanup(bench.wait)
        self.addCleanup(bench.kill)
        until(lambda: len(children(bench.pid)) == 5)
        time.sleep(0.2)
        family = children(bench.pid)
        self.assertEqual(len(os.listdir(self.directory)), 2)
        bench.send_signal(number)
        self.assertEqual(bench.wait(20), -number)
        return family

    def test_it_leaves_nothing(self):
        """Interrupted, all is gone when it ends; killed, soon."""
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGABRT:
            with self.subTest(signal=number):
                family = self.die(number)
                if number in (signal.SIGKILL, signal.SIGABRT):
                    until(lambda: not any(map(alive, family)))
                    until(lambda: os.listdir(self.directory) == [])
                self.assertEqual([pid for pid in family if alive(pid)], [])
                self.assertEqual(os.listdir(self.directory), [])

    def test_a_server_that_dies_is_an_error(self):
        with subprocess.Popen([*commands.COMMAND, "peers", "--peer", "redis-incr", "--keys", "1k", "--threads",
                               "1", "--seconds", "2"], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
            seen = {}

            def old():
                """A server that is a second old: not the one of the rehearsal, which is over soon."""
                for pid in children(bench.pid):
                    with contextlib.suppress(OSError):
                        if os.path.basename(os.readlink("/proc/%d/exe" % pid)).startswith("redis"):
                            seen.setdefault(pid, time.monotonic())
                return [pid for pid, since in seen.items() if time.monotonic() - since > 1 and alive(pid)]

            until(old)
            os.kill(old()[0], signal.SIGKILL)
            out, err = bench.communicate(timeout=100)
            self.assertEqual(bench.returncode, 1)
            self.assertRegex(err, "redis-incr, 1k keys, 1 thread: .*(closed|reset|pipe|no connection)")
            self.assertIn("FAILED", out)


class Usage(commands.Case):
    def check(self, command, wrong):
        for option, values in wrong.items():
            for value in values:
                self.refused(command, option, value, words=(option, "'"))
            self.refused(command, option, words=option + " needs a value")
        for nothing in ("--nothing", "nothing", "-x", "--key"):
            self.refused(command, nothing, words="'%s'" % nothing)
        return self.table(command, "--help", words=wrong)

    def test_peers(self):
        help = self.check("peers", {
            "--peer": ["redis", "", "STINT", "mutex,,own", "mutex-all"], "--limits": ["0", "4", "2,3"],
            "--keys": ["0", "2G"], "--threads": ["0"], "--seconds": ["1s"], "--format": ["xml"],
        })
        for peer in ONE + ALL:
            self.assertIn("      %s " % peer, help)
        self.assertIn("--dpdk", help)
        for arguments, *words in ((["--peer", "mutex", "--limits", "2"], "'mutex'"),
                                  (["--dpdk", "--nothing"], "'--nothing'"),
                                  *([] if "dpdk-64" in ONE else [(["--dpdk"], "--dpdk: ")]),
                                  (["--threads", str(CORES + 1)], "--threads %d" % (CORES + 1)),
                                  (["--keys", "1G"], "--keys 1G", "GiB")):
            self.refused("peers", *arguments, words=words)

    def test_load(self):
        self.check("load", {
            "--rate": ["0", "11M", "fast"], "--seconds": ["0"], "--keys": ["5G"], "--threads": ["1,2"],
            "--limit": ["", "10", "10/fortnight", "0/s"], "--format": ["xml"],
        })
        for word, *arguments in (
                ("--threads %d" % (CORES + 1), "--threads", str(CORES + 1)),
                ("GiB", "--keys", "4G", "--limit", "1/s", "--limit", "2/s"),
                ("--limit '5/s'", "--limit", "5/s", "--limit", "5/s", "--keys", "10"),
                ("--seconds 0.1", "--rate", "1", "--seconds", "0.1"),
                ("'17/s': more than 16", *("--limit=%d/s" % i for i in range(1, 18)))):
            self.refused("load", *arguments, words=word)


class Load(commands.Case):
    def load(self, *arguments):
        result = json.loads(self.good("load", "--format", "json", *arguments))
        self.assertIn("cpu", result["machine"])
        self.assertEqual(len(result["rows"]), 1)
        return result["rows"][0]

    def check(self, result, arrivals):
        self.assertIs(result["checked"], True)
        self.assertEqual(result["arrivals"], arrivals)
        self.assertEqual(result["allowed"] + result["refused"], arrivals)
        self.assertEqual(sum(policy["allowed"] for policy in result["by_limit"]), result["allowed"])
        self.assertEqual(sum(policy["refused"] for policy in result["by_limit"]), result["refused"])
        self.assertEqual(result["untracked"], 0)
        for name in "call", "done":
            self.assertEqual(list(result[name]), ["p50", "p90", "p99", "p99.9", "p99.99", "max"])
            values = [point["ns"] for point in result[name].values()]
            self.assertEqual(values, sorted(values))
            for point in result[name].values():
                self.assertLessEqual(point["min"], point["ns"])
                self.assertLessEqual(point["ns"], point["max"])
        self.assertGreater(result["call"]["p50"]["ns"], 0)
        self.assertLessEqual(result["late_arrivals"], arrivals)
        self.assertEqual(result["late_arrivals"] > 0,
                         result["done"]["max"]["max"] > result["late_after_ns"])
        self.assertGreater(result["core_share"], 0)
        # What is told is between what the processes show.
        for low, all, high in (("ns_min", "ns_per_op", "ns_max"),
                               ("core_share_min", "core_share", "core_share_max")):
            self.assertLessEqual(result[low], result[all])
            self.assertLessEqual(result[all], result[high])
        # From due to decided is never less than the decision.
        for point in "p50", "p99", "max":
            self.assertGreaterEqual(1.1 * result["done"][point]["ns"], result["call"][point]["ns"])

    def test_a_second_at_a_low_rate(self):
        result = self.load("--rate", "5000", "--seconds", "1", "--keys", "1k")
        self.check(result, 5000)
        self.assertEqual(result["limits"], ["10/second", "100/minute", "2000/hour"])
        # It keeps to the schedule.
        self.assertGreaterEqual(result["wall_seconds"], 1)
        self.assertGreater(result["refused"], 0)

    def test_threads_share_the_arrivals(self):
        threads = min(2, CORES)
        result = self.load("--rate", "3333", "--seconds", "0.5", "--keys", "10", "--threads",
                           str(threads), "--processes", "1", "--limit", "7/day", "--limit", "3/day name=x")
        self.check(result, 1667)
        # Every key was asked for more than its limit.
        self.assertEqual([policy["allowed"] for policy in result["by_limit"]], [70, 30])

    def test_few_arrivals(self):
        for arrivals in (1, 7):
            result = self.load("--rate", str(10 * arrivals), "--seconds", "0.1", "--keys", "10",
                               "--processes", "1")
            self.check(result, arrivals)

    def test_what_cannot_be_served_in_time_is_late(self):
        # The arrivals of 0.1 s, of which one core serves less than half in that time.
        result = self.load("--rate", "10M", "--seconds", "0.1", "--keys", "100k")
        self.check(result, 1000000)
        if result["wall_seconds"] > 0.11:
            self.assertGreater(result["late_arrivals"], 0)
            self.assertGreater(result["done"]["max"]["ns"], 5000000)

    def test_the_table(self):
        self.table("load", "--rate", "1k", "--seconds", "0.2", "--keys", "100",
                   words=("machine", "of one core", "p99.9", "late", "200 in"))


if __name__ == "__main__":
    if commands.run(sys.executable, *sys.argv[1:3], "peers", "--dpdk", "--keys", "1G").stderr.count("DPDK") == 0:
        ONE.append("dpdk-64")
    commands.main(sys.executable, arguments=2)
