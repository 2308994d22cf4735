#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command `stint` on real tables, beside a server that decides by them, and killed anywhere.

    tool.py STINT TOOL_SERVER TOOL_KILLED [TEST...]
"""
import collections
import fcntl
import itertools
import json
import mmap
import os
import pty
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402
import console  # noqa: E402
from commands import told as stint  # noqa: E402

STINT = SERVER = KILLED = ""
SOURCE = Path(__file__).resolve().parents[2]
YEAR = "366d" # a window that does not end while a test runs, but for one day in 366
KILLED_CODE = 100
OWN_LOG = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /dev && ln -s "$0" /dev/log && exec "$@"']


class Server:
    """A process that has the table open (tool_server.c)."""

    def __init__(self, case, table, *ahead):
        self.process = subprocess.Popen([SERVER, table, *map(str, ahead)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        case.addCleanup(self.end)
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.process.stdout.readline().strip()

    def stop(self):
        """The tokens that the load was granted, of each key."""
        return collections.Counter({f"load-{key}": int(tokens) for key, tokens in enumerate(self.ask("stop").split())})

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)


class Tool(commands.Stint):
    def setUp(self):
        super().setUp()
        self.table = self.path("table")

    def path(self, name):
        return str(self.directory / name)

    def steps(self, *rows):
        """Runs commands on the table, one after the other: a command line without FILE, its exit code, and patterns of
        what it prints."""
        for line, code, *told in rows:
            command, *words = line.split()
            with self.subTest(line=line):
                out = self.good(command, self.table, *words, code=code)
                for pattern in told:
                    self.assertRegex(out, pattern)

    def rows(self, *arguments):
        """The lines of a dump."""
        return [json.loads(line) for line in self.good("dump", *arguments, self.table).splitlines()]

    def make(self, *policies, keys=1000, options=()):
        """The table, with these policies: name and notation."""
        self.good("make", "--entries", keys, *options, self.table)
        for policy in policies:
            self.good("take", "--add", "--cost=0", self.table, policy, "any")

    def used(self, policy, *key):
        return self.json("peek", "--cost=0", self.table, policy, *key)["used"]

    def policies(self):
        return {policy["name"]: policy["notation"] for policy in
                self.json("policies", self.table)["policies"]}


KEYED = "take", "peek", "charge", "reset"
COMMANDS = ["status", "watch", "policies", *KEYED, "override", "top", "key", "overrides", "bans", "dump", "metrics",
            "make", "apply", "resize", "advise", "replay"]
FINDING = ["status", "watch", "policies", *KEYED, "top", "key", "overrides", "bans", "dump",
           "metrics"] # what there must be already
LOOKS = [["status", "--interval=0"], ["watch", "--interval=.01", "--count=1"], ["policies"], ["top"],
         ["bans"], ["dump"], ["metrics"]]


class Usage(Tool):
    """What is wrong with a command line is said, and nothing is done."""

    def test_commands(self):
        self.assertEqual(re.findall(r"^  (\w+)  ", self.good("--help"), re.MULTILINE), COMMANDS)
        for arguments in (), ("--nothing",), ("reply",):
            code, out, err = stint(*arguments)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("Usage: stint COMMAND", err)
            self.assertIn("".join(f"'{word}'" for word in arguments), err)
        self.assertRegex(self.good("--version"), r"^stint \d+\.\d+\.\d+$")

    def test_help(self):
        for command in COMMANDS:
            out = self.good(command, "--help")
            self.assertIn(f"Usage: stint {command} ", out)
            self.assertLessEqual(max(map(len, out.splitlines())), 100, command)
            self.assertIn("Exit codes: 0 ", out)
            self.assertEqual([self.good(command, "-h"), self.good("help", command)], [out, out])
        self.assertEqual(self.good("help"), self.good("--help"))
        self.assertEqual(stint("help", "reply"), stint("reply"))

    def test_operands(self):
        self.make("9/d name=p")
        for command in COMMANDS[:-2]:
            self.fails(2, "FILE is missing", command)
            self.fails(2, "FILE is empty", command, "")
        for command in "status", "watch", "policies", "top", "overrides", "bans", "dump", "metrics", "make", "resize":
            self.fails(2, "'more' is one operand too many", command, self.table, "more")
        for message, command, *operands in (
                ("POLICIES is missing", "apply"), ("POLICIES is empty", "apply", ""),
                *(row for command in KEYED for row in (
                    ("POLICY is missing", command), ("POLICY is empty", command, "", "key"), ("KEY is missing", command, "p"),
                    ("KEY is missing", command, "p", "--")))):
            self.fails(2, message, command, self.table, *operands)

    def test_options(self):
        self.make("9/d name=p overrides")
        new = self.path("new")
        for message, *arguments in (
                ("there is no option '--prune'", "status", "--prune", self.table),
                ("there is no option '-x'", "top", "-x", self.table),
                ("--interval: its value is missing", "status", self.table, "--interval"),
                ("-n: its value is missing", "top", "-n"),
                ("'--json=1': this option takes no value", "status", "--json=1", self.table),
                ("--interval '-1': not seconds", "status", "--interval=-1", self.table),
                *((f"--interval '{wrong}': not {what}", "watch", f"--interval={wrong}", self.table)
                  for wrong, what in (("x", "seconds"), ("1e9", "seconds"), (".", "seconds"), ("0", "more than"))),
                ("--count 'x': not a number", "watch", "--count=x", self.table),
                ("--number '0': not a number", "top", "-n0", self.table),
                ("--number '2M': not a number", "top", "--number", "2M", self.table),
                ("--by 'cost': not used, refused or policy", "top", "--by=cost", self.table),
                *((f"--{option} '{wrong}': not {what}", command, f"--{option}={wrong}", self.table, "p", "k")
                  for command, option, what, all_ in (
                      ("take", "cost", "0 to 268435456", ("-1", "268435457")), ("peek", "limit", "1 to", ("0",)),
                      ("peek", "burst", "1 to", ("0",)),
                      ("take", "full", "admit", ("no",)), ("take", "address", "prefixes",
                                                           ("33", "0", "24,", "24,129", "24,64,1")))
                  for wrong in all_),
                ("--entries is missing", "make", new), ("--labels '0': not 1 to 16777216", "resize", "--labels=0", self.table),
                *((f"--{option} '{wrong}': not {what}", "make", f"--{option}={wrong}", new) for option, wrong, what in (
                    ("entries", "0", "1 to 1099511627776"), ("labels", "17M", "0 to 16777216"), ("max-policies", "65536", ""),
                    ("shards", "x", ""), ("mode", "680", "permission"), ("mode", "0", "permission"))),
                ("--label 'x': not NAME=VALUE", "metrics", "--label=x", self.table),
                ("--for '1h\\x09overrides': not a time", "override", "--for=1h\toverrides", self.table, "p", "k", "1"),
                ("--for '367d': not a time of up to 366d", "override", "--for=367d", self.table, "p", "k", "1"),
                *((f"--for '{wrong}': not a time", "override", f"--for={wrong}", self.table, "p", "k", "1")
                  for wrong in ("1h=", "1h30", "1h 30m", "h30m", "366d1s", "1h-3m")),
                *((f"--until '{text}': not a time", "override", f"--until={text}", self.table, "p", "k", "1")
                  for text in ("2026-11-31", "2027-02-29", "2026-13-01", "2026-00-10", "2026-12-00", "2026-1-1",
                               " 2026-12-31", "2026-12-31 ", "2026-12-31T24:00", "2026-12-31T23:60",
                               "2026-12-31T23:59:60", "+2026-12-31", "26-12-31", "1969-12-31", "@", "@0", "@-1",
                               "@1k", "@18446744073709551616")),
                *(("--until: it is more than 366 days from now; the latest is 2", "override", f"--until={text}",
                   self.table, "p", "k", "1")
                  for text in ("2611-07-14", "9999-12-31", "2554-07-21T23:34:33Z", "2554-07-21T23:34:34Z",
                               "@18446744073", "@18446744074", "@18446744073709551615", "@4294967296")),
                ("--until: it is not after now, 2", "override", "--until=2001-01-01", self.table, "p", "k", "1")):
            with self.subTest(arguments=arguments):
                said = self.fails(2, message, *arguments)
                self.assertIn("--help lists the options.", said)
                # The range that it names can be typed.
                for option, *range_ in re.findall(r"--([\w-]+) '.*': not (\d+) to (\d+)", said):
                    for bound in range_:
                        self.fails(2, message, arguments[0], f"--{option}={bound}", *arguments[1:])
        self.assertEqual(os.listdir(self.directory), ["table"])

    # What no command can cause: it names no such field, or gives what is right.
    OF_PROGRAMS = re.compile(r"\.size$|^policy\.flags$|^options\.(?:flags|reserved|secret)$|^request\.(?:flags|reserved)$|"
                             r"^STINT_(?:READ_ONLY|CALENDAR_\w+|FULL_ADMIT|REQUEST|PEEK|DRAIN|CHARGE)$|"
                             r"^stint_(?:memory_size|attach)$")

    def test_no_names_of_c(self):
        """Each field, constant and function that a reason of the library names is one of those for which the
        command has words of its own."""
        self.make()
        for notation, message in (("5/s smooth start=first", "start=first does not go with smooth"),
                                  ("20000/s smooth", "the limit of a smooth policy"), ("5/s after=3", "after= needs ban=")):
            self.fails(2, message, "take", self.table, notation, "k")
        common = (SOURCE / "src" / "tool" / "common.c").read_text()
        told = " ".join(re.findall(r'^    \{"([^"]+)",', common[common.index(" in_words["):], re.MULTILINE))
        functions = set(re.findall(r"\bstint_\w+(?=\()", (SOURCE / "include" / "stint.h").read_text()))
        library = re.sub(r"/\*.*?\*/", "", "".join(path.read_text() for path in commands.library(SOURCE)), flags=re.DOTALL)
        reasons = " ".join(re.findall(r"stint_failed(?:_with)?\(.*?\);|^#define [A-Z_]+(?:\\\n|[^\n(])*\n|" r'return "[^;]*;', library,
                                      re.DOTALL | re.MULTILINE))
        named = {name for words in re.findall(r'"([^"]*)"', reasons)
                 for name in re.findall(r"\b(?:options|policy|request)\.[a-z_]+|\bSTINT_[A-Z_]+|\bstint_[a-z_]+", words)
                 if not self.OF_PROGRAMS.search(name) and (name in functions or not name.startswith("stint_"))}
        self.assertGreater(len(named), 8)
        self.assertEqual({name for name in named if name not in told}, set())

    def test_a_key_is_never_an_option(self):
        """What somebody else has typed grants nothing, and is no other key either."""
        self.make(f"9/{YEAR} name=p")
        for key in "--help", "-h", "--json", "-x", "--", "--quiet", "--cost=0":
            for keys in [key], ["a", key]:
                if keys != ["--"]:
                    self.fails(2, "put -- before a KEY", "take", self.table, "p", *keys)
            self.assertIn("used", self.good("take", self.table, "p", "--", key))
            self.assertEqual(self.used("p", "--", key), 1)
            self.assertIn("used", self.good("take", "--", self.table, "p", key, "b"))
        for key in "-", "":
            self.assertEqual(json.loads(self.good("take", self.table, "--json", "p", key))["used"], 1)  # options stand anywhere

    def test_no_table(self):
        self.fails(1, "none", "resize", self.path("none"), "--entries=10")
        self.fails(1, "there is no table", "apply", self.path("none"), self.write("p", "1/d\n"))
        not_table = str(self.write("text", "this is no table\n" * 1000))
        for command, (said, table) in itertools.product(FINDING, (("there is no table", self.path("none")),
                                                                  (not_table, not_table))):
            self.fails(2 if command in ("take", "peek") else 1, said, command, table,
                       *(("p", "k") if command in KEYED else ("k",) if command == "key" else ()))

    def test_policies(self):
        self.make("9/d name=p")
        for command in KEYED:
            err = self.fails(2, "it is no notation of one: '5/hourr'", command, self.table, "5/hourr", "k")
            self.assertEqual(err.splitlines()[1:3], ["    5/hourr", "      ^"])
            self.fails(2, "has no policy of the name '5/hour': there is 'p'" +
                       ". --add adds it" * (command in ("take", "charge")), command, self.table, "5/hour", "k")
            self.fails(2, "has other numbers", command, self.table, "8/d name=p", "k")
        for command in "take", "charge":
            self.fails(2, "another limit", command, "--add", self.table, "8/d name=p", "k")
        self.assertEqual(self.policies(), {"p": "9/day"})
        self.good("peek", self.table, "9/d name=p", "k")
        for unnamed in (f"7/{366 * 24 * 60}min", "7/year", "8/month start=2024-01-15T05:00:00+02:00", "3/h start=first",
                        "6/h ban=10m"):
            self.good("take", "--add", self.table, unnamed, "k")
            self.assertIn("1 of", self.good("peek", "--cost=0", self.table, unnamed, "k"))
        self.good("take", self.table, "9 per day name=p", "k")
        self.good("reset", self.table, "6/h ban=10m", "k")
        self.good("override", "--for=1h", self.table, "6/h ban=10m", "k", "9")
        self.fails(2, "has no policy of the name '5/hour'", "override", "--for=1h", self.table, "5/h overrides", "k", "9")
        for command in "top", "overrides", "bans", "dump":
            self.fails(2, "there is no policy of that name: there is 'p', '7/366 days', '7/year', ", command,
                       self.table, "--policy=none")
        for number in range(4):
            self.good("take", "--add", self.table, f"1/d name=n{number}", "k")
        for command in ("peek",), ("override", "--for=1h"):
            self.assertIn("'n1', and 2 more)", self.fails(2, "(there is 'p', ", *command, self.table, "none", "k", "1"))
        # Of a policy that is right, what has no room is no wrong usage.
        self.good("resize", "--max-policies=11", self.table)
        self.fails(1, "the table has no more ids of policies. All are in use: stint resize gives the table more of them",
                   "charge", "--add", self.table, "1/h", "k")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_output_that_cannot_be_written(self):
        self.make(f"9/{YEAR} name=p")
        self.good("take", self.table, "p", "k")
        log = SOURCE / "tests" / "data" / "access.log.gz"
        for command in [["take"], ["peek"], ["charge"], *LOOKS, ["reset"], ["replay", "--limit=1/s"], ["advise"]]:
            more = ["p", "k"] if command[0] in KEYED else []
            file = log if command[0] in ("replay", "advise") else self.table
            with open("/dev/full", "wb") as full:
                done = subprocess.run([STINT, *command, file, *more], stdout=full, stderr=subprocess.PIPE, timeout=60,
                                      check=False)
            self.assertEqual(done.returncode, 2 if command[0] in ("take", "peek") else 1, command)
            self.assertRegex(done.stderr, rb" cannot be written: No space left on device\n$")


class Keys(Tool):
    """A key of the command's is the server's."""

    def check(self, asked, *arguments):
        """What the server calls the key, the command does, and both decide on one slot."""
        expected = self.server.ask(*asked)
        before = self.server.ask("take", "p", expected, 0).split()[1]
        self.assertEqual(self.json("take", *arguments)["key"], expected)
        self.assertEqual(self.server.ask("take", "p", expected, 1), f"granted {int(before) + 2}")
        self.assertEqual(self.json("peek", *arguments)["used"], int(before) + 2)
        told = self.json("key", *(word for word in arguments if word != "p"))
        self.assertEqual((told["key"], told["policies"][0]["used"]), (expected, int(before) + 2))

    def test_keys(self):
        self.make(f"1000/{YEAR} name=p", keys="10k")
        self.server = Server(self, self.table)
        for parts in (["a"], ["alice", "/login"], ["/login", "alice"], ["a", "b", "c"], ["ab", "c"],
                      ["0123456789abcdef"], ["x" * 300], ["ü€"]):
            self.check(["key", *parts], self.table, "p", *parts)
            for digits in [part.encode().hex() for part in parts], [part.encode().hex().upper() for part in parts]:
                self.check(["key", *parts], "--hex", self.table, "p", *digits)
        for key in "00", "00ff1b0a", "", "ff" * 1000:  # any bytes
            self.assertEqual([self.json("take", "--hex", self.table, "p", key)["used"] for _ in range(2)], [1, 2])
        for prefixes, option in (((0, 0), "--address"), ((24, 64), "--address=24,64"), ((24, 0), "--address=24"),
                                 ((1, 128), "--address=1,128"), ((32, 56), "--address=32,56")):
            for address in "192.0.2.7", "192.0.2.8", "2001:db8::1", "2001:db8:0:1::", "::ffff:192.0.2.7":
                self.check(["address", *prefixes, address], option, self.table, "p", address)
            self.check(["address", *prefixes, "192.0.2.7", "login", "x"], option, self.table, "p", "192.0.2.7", "login", "x")
            self.check(["address", *prefixes, "192.0.2.7", "login"], option, "--hex", self.table, "p", "192.0.2.7",
                       b"login".hex())
        for id_ in 0, 7, (1 << 64) - 1:
            self.check(["id", id_], "--id", self.table, "p", str(id_))
            self.check(["id", id_, "login"], "--id", "--hex", self.table, "p", str(id_), b"login".hex())
        self.assertNotEqual(self.server.ask("id", 7), self.server.ask("key", 7))
        key = self.server.ask("key", "alice")
        self.check(["key", "alice"], "--hash", self.table, "p", key)
        self.check(["key", "alice"], "--hash", self.table, "p", key.upper())
        self.assertEqual(self.json("take", "--hash", self.table, "p", "0" * 16)["key"], "0" * 16)

    def test_wrong_keys(self):
        self.make(f"1000/{YEAR} name=p")
        for option, wanted, keys in (
                ("--hex", "bytes in hexadecimal", ("a", "0g", "0x00", "00 ")),
                ("--address", "an IPv4 or IPv6 address", ("", "192.0.2", "1.2.3.4.5", "::1%lo", "host", "192.0.2.7 ")),
                ("--id", "a number from 0 to 18446744073709551615", ("", "x", "7 ", "-", "+7", "0x7", "7k", "7.0", str(1 << 64))),
                ("--hash", "16 hexadecimal digits", ("", "0", "0" * 15, "0" * 17, "0x" + "0" * 14, "g" * 16))):
            for key in keys:
                self.assertIn(wanted, self.fails(2, f"KEY '{key}': not ", "take", option, self.table, "p", key))
        self.fails(2, "not one key", "take", "--hash", self.table, "p", "0" * 16, "x")
        self.fails(2, "--id goes without --address", "take", "--id", "--address", self.table, "p", "7")
        for other in "--hex", "--address", "--id":
            self.fails(2, "--hash goes without", "take", "--hash", other, self.table, "p", "0" * 16)

    def forms(self, message, code, command, *arguments):
        """The forms that a command tells of; what it says on standard output does not matter."""
        got, _, err = stint(command, *arguments)
        self.assertEqual(got, code, (command, arguments, err))
        self.assertIn(message, err)
        self.assertEqual(err.count("\n"), 1, err)
        return err.strip().partition(". It is there as: ")[2].split(", ")

    def test_forms(self):
        """Who asks for a key in a form that nobody uses by that policy is told in which it is used; and nobody is
        banned in another form than the policy has."""
        self.make("9/366d overrides name=p", "9/366d name=other", options=("--labels=10",))
        used = (["--hex"], "c0000207"), (["--address=24"], "192.0.2.9"), (["--address=32,48"], "2001:db8::1"), \
            (["--id"], "77"), ([], "0123456789abcdef"), ([], "192.0.2.99"), ([], "alice", "login")
        for option, *parts in used:
            self.good("take", "-q", *option, self.table, "p", *parts)
        key = self.json("key", *used[3][0], self.table, "77")["key"]
        v6 = "20010db8" + "0" * 23 + "5"
        for option, parts, *found in (
                ([], ["192.0.2.7"], "--hex c0000207", "--address=24 192.0.2.7"),
                (["--address"], ["192.0.2.7"], "--hex c0000207", "--address=24 192.0.2.7"),
                (["--address=16"], ["192.0.2.99"], "the text 192.0.2.99", "--address=24 192.0.2.99"),
                (["--hex"], ["c0000263"], "the text 192.0.2.99", "--address=24 192.0.2.99"),
                ([], ["c0000207"], "--hex c0000207", "--address=24 192.0.2.7"),
                ([], ["2001:db8::5"], "--address=32,48 2001:db8::5"),
                (["--address"], ["2001:db8::5"], "--address=32,48 2001:db8::5"),
                (["--hex"], [v6], "--address=32,48 2001:db8::5"),
                ([], ["77"], "--id 77"), ([], [key], f"--hash {key}"),
                (["--hash"], ["0123456789abcdef"], "the text 0123456789abcdef"),
                (["--hex"], ["0123456789abcdef"], "the text 0123456789abcdef"),
                (["--address"], ["198.51.100.1"], ""), ([], ["bob"], ""), ([], ["alice", "Login"], "")):
            with self.subTest(option=option, parts=parts):
                peek = self.json("peek", *option, self.table, "other", *parts) if found == [""] else None
                self.assertIn(peek and peek["known"], (None, False))
                asked = [*option, self.table, "p", *parts]
                if found == [""]:
                    self.assertIn("; nobody uses this key now\n", self.good("peek", *asked))
                    self.assertEqual(self.good("override", "--for=1h", *asked, "0").splitlines()[1],
                                     "nobody uses this key now: do servers have it in this form?")
                else:
                    self.assertEqual(self.forms("note: nobody uses this key now", 0, "peek", *asked), found)
                    self.assertEqual(stint("peek", "-q", *asked), (0, "", ""))
                    for quiet in [], ["-q"]:
                        self.assertEqual(self.forms("nothing was set: nobody uses the key in this form", 1, "override",
                                                    *quiet, "--for=1h", *asked, "0"), found)
                self.assertEqual(json.loads(stint("peek", "--json", *asked)[1])["capacity"], 0 if found == [""] else 9)
                if found == [""]:
                    self.good("override", "--clear", *asked)
                for message, command in ("nothing to forget", ["reset"]), ("no override", ["override", "--clear"]):
                    self.assertEqual(self.forms(message, 1, *command, *asked), found)
                self.assertEqual(self.forms("has nothing of the key", 1, "key", *option, self.table, *parts), found)
        # By another policy another form may be right.
        self.good("take", "-q", self.table, "other", "198.51.100.1")
        self.good("override", "-q", "--for=1h", "--address", self.table, "p", "198.51.100.1", "0")
        for option, *parts in used:
            self.good("override", "-q", "--for=1h", *option, self.table, "p", *parts, "3")
            self.assertTrue(self.json("peek", *option, self.table, "p", *parts)["known"])
        # Other addresses of the policy tell, too, in which form it has them, if they have names.
        self.make("1/366d overrides name=nets", "1/366d overrides name=texts", options=("--labels=10",))
        for policy, options, address in ("nets", ["--address=24,48"], "192.0.2.7"), ("texts", [], "2001:db8::1"):
            for code in 0, 1:
                self.good("take", "-q", *options, self.table, policy, address, code=code)
        for code, told, *asked in (
                (1, "Others are there as: --address=24", self.table, "nets", "203.0.113.9"),
                (1, "Others are there as: --address=24", "--address", self.table, "nets", "203.0.113.9"),
                (1, "Others are there as: a text", "--address=32,64", self.table, "texts", "2001:db8:9::"),
                (1, "A network is asked for as: --address=24 203.0.113.0", self.table, "nets", "203.0.113.0/24"),
                (1, "A network is asked for as: --address=32,48 2001:db8::", self.table, "p", "2001:db8::/48"),
                (2, "in --address=24", "--address", self.table, "nets", "203.0.113.0/24"),
                (0, "", "--address=24", self.table, "nets", "203.0.113.9"), (0, "", self.table, "texts", "2001:db8:9::"),
                (0, "", self.table, "nets", "2001:db8:9::"), (0, "", self.table, "texts", "alice")):
            got, _, err = stint("override", "--for=1h", *asked, "0")
            self.assertEqual((got, told in err), (code, True), (asked, err))

    def test_names(self):
        """--name takes what lists show, for whatever a key is asked."""
        self.make("1/366d overrides name=p", options=("--labels=10",))
        for key, code in itertools.product(("plain", "\x1b[31mred", "\u00fc" * 60, "a\\b"), (0, 1)):
            self.good("take", "-q", self.table, "p", key, code=code)
        lines = self.good("top", self.table).splitlines()
        heading = next(i for i, line in enumerate(lines) if "label" in line)
        at = lines[heading].index("label")
        shown = [re.split("  ", line[at:])[0] for line in lines[heading + 1:heading + 5]]
        self.assertIn(r"\x1b[31mred", shown)
        for name in *shown, "\x1b[31mred", "\u00fc" * 60:
            told = self.json("key", "--name", self.table, name)
            self.assertEqual([self.json("peek", "--name", self.table, "p", name, code=1)["key"],
                              self.json("reset", "--name", self.table, "p", name)["key"]], [told["key"]] * 2)
            self.assertTrue(self.json("override", "--name", "--for=1h", self.table, "p", name, "1")["known"])
            for code in 0, 1:
                self.good("take", "-q", "--name", self.table, "p", name, code=code)
        self.fails(2, "no live key has that name", "take", "--name", self.table, "p", "red")


class Deciding(Tool):
    def test_take(self):
        self.make(f"3/{YEAR} name=p")
        self.steps(*((f"take p k", 0, rf"^allowed: {used} of 3 used, anew in \d+ d.*\n$") for used in (1, 2, 3)))
        self.assertEqual(self.json("peek", self.table, "p", "k", code=1)["flags"], [])
        self.assertEqual(self.json("take", self.table, "p", "k", code=1)["flags"], ["first_refusal"])
        self.steps(("take p k", 1, r"^refused: 3 of 3 used, try again in \d+ d.*\n$"))
        verdict = self.json("take", self.table, "p", "k", code=1)
        due = {"allowed": False, "policy": "p", "capacity": 3, "used": 3, "remaining": 0, "granted": 0, "flags": []}
        self.assertEqual({name: verdict[name] for name in due}, due)
        self.assertEqual(verdict["retry_after"], verdict["reset_after"])
        self.assertGreater(verdict["window"], time.time_ns())
        for option in "-q", "--quiet":
            self.steps((f"take {option} p k", 1, r"\A\Z"), (f"peek {option} p k", 1, r"\A\Z"),
                       (f"peek {option} p other", 0, r"\A\Z"))
        self.assertEqual(self.json("take", self.table, "p", "other")["granted"], 1)

    def test_what_is_asked_for(self):
        """Costs, a limit and a burst of the request's own, a policy that is not there yet, a shadow, charges."""
        self.make(f"10/{YEAR} name=p", f"10/{YEAR} burst=10 name=b", f"1/{YEAR} shadow name=s")
        self.steps(
            ("take --cost=7 p k", 0, "7 of 10"), ("take --cost=4 p k", 1, "7 of 10"), ("peek --cost=4 p k", 1, "7 of 10"),
            ("peek --cost=3 p k", 0, "7 of 10"), ("take --limit=7 p k", 1, "7 of 7"), ("peek --limit=8 p k", 0, "7 of 8"),
            ("take --cost=9 --partial --json p k", 0, '"granted": ?3,'), ("take --cost=11 --json p k", 1, '"retry_after": ?null'),
            ("take --cost=11 p k", 1, "more than can ever fit"),
            # By token buckets alone; a policy that is no bucket has none.
            ("take --cost=9 --partial --burst=6 --json b k", 0, '"granted": ?6,'), ("take --cost=9 --partial --burst=6 b k", 1),
            ("take --cost=9 --partial --burst=8 --json b k", 0, '"granted": ?2,'),
            ("take --cost=9 --partial --burst=99 --json b k", 0, '"granted": ?2,'),
            ("peek --cost=7 --burst=6 b other", 1), ("peek --cost=6 --burst=6 b other", 0),
            # Who writes adds a policy that is not there; its name is found from then on.
            (f"take --add 5/{YEAR} k", 0, "1 of 5 used"), (f"take 5/{YEAR} k", 0, "2 of 5 used"),
            ("take s k", 0, "allowed: 1 of 1"), ("take s k", 0, "would have refused"), ("take --json s k", 0, '"shadowed"'),
            ("charge --cost=25 --json p other", 0, '"granted": ?25,'), ("take p other", 1, "25 of 10"),
            ("charge p other", 0, "26 of 10 used"))
        for used, notation in (3, f"5 per {YEAR}"), (4, "5/366 days"):
            self.assertIn(f"{used} of 5 used", self.good("take", self.table, notation, "k"))
        self.good("charge", "--add", self.table, f"6/{YEAR} name=six", "k")
        self.assertEqual(list(self.policies()), ["p", "b", "s", "5/366 days", "six"])
        for command in "take", "peek":
            self.fails(2, "--burst goes with token buckets only: give the policy a burst", command, "--burst=6",
                       self.table, "p", "k")
        self.fails(2, "there is no option '--burst=6'", "charge", "--burst=6", self.table, "p", "k")

    def test_in_flight(self):
        """A take holds until its lease ends; a charge would be nobody's to give back."""
        self.make("2/366d in-flight name=p")
        self.steps(("take p k", 0, r"\Aallowed: 1 of 2 held\n\Z"), ("take p k", 0, r"\Aallowed: 2 of 2 held\n\Z"),
                   ("take p k", 1, r"\Arefused: 2 of 2 held, try again in at most \d+ d.*\n\Z"))
        self.assertEqual(self.used("p", "k"), 2)
        for policy in "p", "9/s in-flight name=q":
            self.fails(1, "a charge does not go with an in-flight policy", "charge", self.table, policy, "k")
        self.assertEqual(len(self.policies()), 1)
        self.steps(("reset p k", 0, "0 of 2 held"))

    def test_bucket(self):
        """It is never over, but full again at an instant, which is no whole tick."""
        self.make("3/day burst=2 reserve=1 overrides name=p")
        self.steps(("peek --cost=0 p k", 0, r"\Aallowed: 0 of 2 used, full; nobody uses this key now\n\Z"),
                   ("take p k", 0, r"\Aallowed: 1 of 2 used, full in (8 h|7 h 59 min)\n\Z"))
        began = time.time_ns()
        verdict = self.json("take", self.table, "p", "k")
        self.assertEqual((verdict["capacity"], verdict["used"], verdict["granted"]), (2, 2, 1))
        self.assertAlmostEqual(verdict["window"] / 10**9, began / 10**9 + 2 * 8 * 3600, delta=60)
        self.steps(("take p k", 1, r"\Arefused: 2 of 2 used, try again in (8 h|7 h 59 min)\n\Z"))
        [row] = self.rows()
        self.assertEqual((row["used"], row["refused"]), (2, True))
        self.steps(("charge --cost=9 p k", 0, "3 of 2 used"), ("peek --cost=3 p k", 1, "more than can ever fit"))
        for told in *self.json("top", self.table)["top"], *self.rows():
            self.assertEqual(told["used"], 3)
            self.assertAlmostEqual(told["end"] / 10**9, began / 10**9 + 3 * 8 * 3600, delta=60)
        self.steps(("top", 0, r"anew in.*\n.* (1 d|23 h 59 min)\b.*\n\Z"), ("reset p k", 0, r"\Aallowed: 0 of 2 used, full\n\Z"))
        self.fails(1, "the key had nothing to forget", "reset", self.table, "p", "k")
        self.steps(("override -q p k 6 --for 1h", 0), ("take --cost=4 p k", 0,
                   r"\Aallowed: 4 of 4 used, by a limit of its own, full in (16 h|15 h 59 min)\n\Z"))

    def test_reset(self):
        self.make(f"2/{YEAR} name=p", f"2/{YEAR} name=q")
        self.steps(("take --cost=2 p k", 0), ("take --cost=2 q k", 0), ("reset p k", 0, "0 of 2 used"), ("take p k", 0),
                   ("take q k", 1), ("reset --json q k", 0, '"used": ?0,'))
        for key, option in itertools.product(("k", "never seen"), ([], ["--json"], ["--quiet"])):
            self.fails(1, "the key had nothing to forget", "reset", *option, self.table, "q", key)
        key = self.json("take", "--cost=2", self.table, "q", "k")["key"]
        self.good("reset", "--quiet", "--hash", self.table, "q", key)
        self.assertEqual(self.used("q", "k"), 0)

    def test_reset_of_who_is_barred_by_hand(self):
        """It leaves the limit, and says so."""
        self.make(f"2/{YEAR} overrides name=p")
        self.steps(("take -q p k", 0), ("override -q --for=1h p k 0", 0))
        told = r"the key is refused everything until 2.* by a limit that was set by hand: stint override --clear ends that\n"
        code, out, err = stint("reset", self.table, "p", "k")
        self.assertEqual((code, out[:14]), (0, "refused: 0 of "))
        self.assertRegex(err, "^stint: note: " + told)
        self.assertRegex(self.fails(1, "nothing to forget", "reset", self.table, "p", "k"), " But " + told)
        self.steps(("override -q --replace --for=1h p k 7", 0))
        self.assertNotIn(" But ", self.fails(1, "nothing to forget", "reset", self.table, "p", "k"))

    def test_override(self):
        self.make(f"2/{YEAR} overrides name=p", f"1/{YEAR} ban=1h name=b", f"2/{YEAR} name=q")
        self.steps(("override p k 0 --for 1h", 0, r"^refused everything until 2\d{3}-\d\d-\d\d "))
        verdict = self.json("peek", self.table, "p", "k", code=1)
        self.assertEqual((verdict["capacity"], verdict["flags"]), (0, ["overridden"]))
        self.steps(("take p k", 1, "by a limit of its own"))
        told = self.json("override", "--replace", "--for=7d", self.table, "p", "k", "5")
        self.assertEqual((told["overridden"], told["limit"]), (True, 5))
        self.steps(("take --cost=5 p k", 0))
        day = time.time() // 86400 * 86400 + 2 * 86400
        for text in (f"@{day:.0f}", time.strftime("%Y-%m-%d", time.gmtime(day)),
                     time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(day))):
            told = self.json("override", "--replace", "--until", text, self.table, "p", "k", "268435456")
            self.assertEqual(told["until"], day * 10**9)
        told = self.json("override", self.table, "p", "k", "unlimited", "--for", "1h30m")
        self.assertLess(abs(told["until"] / 1e9 - time.time() - 5400), 60)
        self.steps(("override p k unlimited --for 9h", 0, "^unlimited until "), ("key k", 0, r" unlimited\b"),
                   ("overrides", 0, r" unlimited\b"),
                   ("top", 0, r" unlimited\b"), ("peek p k", 0, r"\Aallowed: 5 used, unlimited, by "),
                   ("dump", 0, r"\A[^\n]+\n[^\n]+\n\Z"))
        self.assertEqual(self.json("key", self.table, "k")["policies"][0]["limit"], 268435456)
        [top] = self.json("top", self.table)["top"]
        self.assertEqual((top["used"], top["own_limit"]), (5, 268435456))
        self.steps(("override p k --clear", 0, "the policy's limit"))
        for option in "--clear", "--json", "--quiet":
            self.fails(1, "no override", "override", option, "--clear", self.table, "p", "k")
        self.steps(("override -q p k 3 --for 1h", 0))
        told = self.json("override", "--clear", self.table, "p", "k")
        self.assertEqual((told["overridden"], told["limit"], told["until"]), (False, None, None))
        # What looks like an option may be a key, where it stands for one.
        self.steps(("override -q --reason=n p -- --reason 3 --for 1h", 0), ("override --clear p -- --reason", 0),
                   ("override -q p -- --clear 3 --for 1h", 0), ("peek p -- --clear", 0, "0 of 3"),
                   ("override --clear p -- --clear", 0),
                   ("take --cost=2 b k", 1), ("take b k", 1, "banned"), ("override --clear b k", 0), ("take b k", 0))
        for limit in ("1", "--for", "1h"), ("--clear",):
            self.fails(1, "no option `overrides`", "override", self.table, "q", "k", *limit)
        for why, *wrong in (("is needed", "k", "1"), ("LIMIT is missing", "k", "--for", "1h"),
                            ("LIMIT 'x'", "k", "x", "--for", "1h"),
                            ("--for", "k", "1", "--for", "h"), ("--until", "k", "1", "--until", "soon"),
                            ("--until 'never'", "k", "1", "--until", "never"),
                            ("not after now", "k", "1", "--until", "2001-01-01")):
            self.fails(2, why, "override", self.table, "p", *wrong)

    def logged(self, *arguments, code=0):
        """What a command that runs as ann's, with a system's log of its own, writes there."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
            log.bind(self.path("log"))
            done = subprocess.run([*OWN_LOG, self.path("log"), STINT, *map(str, arguments)], stdin=subprocess.DEVNULL, timeout=60,
                                  env={**os.environ, "SUDO_USER": "ann"}, capture_output=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            os.unlink(self.path("log"))
            log.setblocking(False)
            lines = list(iter(lambda: log.recv(4096).decode() if select.select([log], [], [], 0)[0] else None, None))
        told = [re.fullmatch(r'<37>.* stint\[\d+\]: (.*) user="ann" uid=\d+ file="(.*?)"(.*)', line).groups() for line in lines]
        self.assertEqual([file for _, file, _ in told], [os.path.realpath(self.table)] * len(told))
        return [command + re.sub(r"\d{4}-\d\d-\d\d [\d:.]+ UTC", "THEN", rest) for command, _, rest in told]

    @unittest.skipUnless(subprocess.run([*OWN_LOG, "/", "true"], capture_output=True, check=False).returncode == 0,
                         "no mount namespaces")
    def test_the_log(self):
        """It is told each change: what was there, what there is now, and why."""
        text = self.write("text", f"2/{YEAR} overrides name=p\n1/{YEAR} ban=300d name=b\n")
        notation = '2/366 days name=\\"p\\" overrides', '1/366 days name=\\"b\\" ban=300d'
        none, room = "the policy's limit", "1000 entries, 64 policies, 0 labels, 1 shards"
        logged = self.logged
        self.assertEqual(logged("make", "--entries=1k", "--policies", text, self.table),
                         [f'make: is="{room}"', f'make: policy="p" is="{notation[0]}"', f'make: policy="b" is="{notation[1]}"'])
        self.assertEqual(logged("make", "--entries=1k", "--policies", text, self.table), [])
        self.assertEqual(logged("override", self.table, "p", 'k"\n', "9", "--for", "1h", "--reason", "J\u00f6rg: \\1",
                                "--replace"),
                         [f'override: policy="p" key="k\\"\\x0a" was="{none}" is="9 until THEN" reason="J\\xc3\\xb6rg: \\\\1"'])
        self.assertEqual(logged("override", self.table, "p", 'k"\n', "8", "--for", "1h", code=1), [])
        self.assertEqual(logged("override", "--for=2h", "--replace", "--address=24,48", self.table, "p", "192.0.2.7", "x", "0"),
                         [f'override: policy="p" key="--address=24,48 192.0.2.7 x" was="{none}" is="refused everything until THEN"'])
        self.assertEqual(logged("override", self.table, "p", 'k"\n', "--clear"),
                         [f'override: policy="p" key="k\\"\\x0a" was="9 until THEN" is="{none}"'])
        for code in 0, 1:
            self.assertEqual(logged("take", "--id", self.table, "b", "7", code=code), [])
        self.assertEqual(logged("reset", "--id", self.table, "b", "7"),
                         ['reset: policy="b" key="--id 7" was="1 used, banned" is="0 used"'])
        self.assertEqual(logged("reset", self.table, "b", "7", code=1), [])
        for code in 0, 1:
            self.assertEqual(logged("take", self.table, "b", "k", code=code), [])
        self.assertEqual(logged("reset", "--banned", "--policy=b", "--reason=r", self.table),
                         ['reset: policy="b" was="banned: 1 key" reason="r"'])
        self.assertEqual(logged("take", "--add", self.table, f"5/{YEAR}", "k"), ['take: policy="5/366 days" is="5/366d"'])
        self.assertEqual(logged("take", "--add", self.table, f"5/{YEAR}", "k"), [])
        for options, lines in ((["--dry-run"], []), ([], [f'apply: policy="b" was="{notation[1]}"',
                                                         'apply: policy="5/366 days" was="5/366 days name=\\"5/366 days\\""'])):
            self.assertEqual(logged("apply", "--prune", *options, self.table,
                                    self.write("text", f"2/{YEAR} overrides name=p\n")), lines)
        self.assertEqual(logged("resize", "--entries=2k", self.table), [f'resize: was="{room}" is="{room.replace("1", "2", 1)}"'])
        for wrong in "", "w" * 201, "two\nlines", "\033[2J", "\x7f", "\udcff":
            self.fails(2, "not 1 to 200 bytes of UTF-8", "override", "--for=1h", "--reason", wrong, self.table, "p", "k", "1")

    def test_replaced(self):
        """Another limit that was set by hand gives way to --replace alone; who bans again, or for longer, is not asked."""
        self.make("1/366d overrides ban=300d name=p")
        self.steps(("override -q p k 500 --for 1h", 0),
                   ("override p k 500 --for 2h", 0, r"^500 until \S+ \S+ UTC; it was 500 until \S+ \S+ UTC\n"))
        for limit in "0", "499":
            self.fails(1, "the key has another limit: 500 until 2", "override", "--for=1h", self.table, "p", "k", limit)
        self.steps(("peek p k", 0, "0 of 500 used"))
        told = self.json("override", "--replace", "--for=1h", self.table, "p", "k", "0")
        self.assertEqual((told["limit"], told["was_limit"], told["was_banned"]), (0, 500, False))
        self.steps(("override -q --clear p k", 0), ("take -q p k", 0), ("take -q p k", 1),
                   ("override --for=1h p k 7", 0, "; it was banned until 2"))
        self.good("take", "-q", "--add", self.table, "1/d shadow overrides name=shadow", "k")
        self.steps(("override --for=1h shadow k 0", 0, "\nthe policy is a shadow, and refuses nobody\n"))

    def test_full(self):
        self.make(f"2/{YEAR} name=p", keys=1)
        Server(self, self.table).ask("fill", "p", 20000)
        full = (f"key {i}" for i in range(20000) if "untracked" in self.json("peek", self.table, "p", f"key {i}")["flags"])
        self.assertEqual(len(list(itertools.islice(full, 3))), 3)
        for told, code, *command in (("allowed: the table is full", 0, "take"),
                                     ("refused: the table is full", 1, "take", "--full=refuse"),
                                     ("the table is full", 1, "charge"), ("allowed: 1 of 2", 0, "take", "--full=replace")):
            self.assertIn(told, self.good(*command, self.table, "p", "new one", code=code))

    def test_looks_write_nothing(self):
        """Nor need they permission to."""
        self.make(f"2/{YEAR} name=p")
        self.good("take", self.table, "p", "k")
        before = Path(self.table).read_bytes()
        os.chmod(self.table, 0o400)
        text = self.write("limits", "3/s name=new\n")
        for command in [["peek"], *LOOKS]:
            for key in "k", "new":
                self.good(*command, self.table, *(["p", key] if command == ["peek"] else []))
        self.assertIn("added", self.good("apply", "--dry-run", self.table, text))
        self.assertEqual(Path(self.table).read_bytes(), before)
        if os.geteuid() != 0:
            self.fails(2, "Permission denied", "take", self.table, "p", "k")

    def test_example(self):
        """tests/examples/limited, as a cron job would."""
        mark = self.path("ran")
        path = os.path.dirname(os.path.abspath(STINT)) + os.pathsep + os.environ["PATH"]
        environment = {**os.environ, "PATH": path, "STINT_TABLE": self.table}

        def limited(*arguments):
            done = subprocess.run([SOURCE / "tests" / "examples" / "limited", *arguments, "sh", "-c",
                                   f"echo ran >>{mark}; exit 3"],
                                  env=environment, capture_output=True, text=True, timeout=60, check=False)
            return done.returncode, done.stdout, done.stderr
        for _ in range(2):
            self.assertEqual(limited("backup", f"2/{YEAR}"), (3, "", ""))
        for _ in range(3):
            code, out, err = limited("backup", f"2/{YEAR}")
            self.assertEqual((code, out), (75, ""))
            self.assertRegex(err, r"^limited: backup: refused: 2 of 2 used, try again in ")
        self.assertEqual(limited("--help", f"2/{YEAR}"), (3, "", ""))
        for arguments in ("backup", "2/hourr"), ("backup", "--help"):
            self.assertEqual(limited(*arguments)[0], 70)
        Path(self.table).write_bytes(b"damaged")
        self.assertEqual(limited("other", f"2/{YEAR}")[0], 70)
        environment["STINT_TABLE"] = self.path("none/table")  # which nobody can make
        self.assertEqual(limited("other", f"2/{YEAR}")[::2], (
            70, f"stint make: {self.path('none/table')}: no table can be made there: No such file or directory\n"))
        self.assertEqual(Path(mark).read_text(), "ran\n" * 3)

    def test_recipes(self):
        """What the page on operating gives to cron and to ssh makes its table, and stops in time."""
        for name in "backup", "git-shell":
            self.write(name, f'#!/bin/sh\necho "$@" >>{self.path("ran")}\n').chmod(0o755)
        os.symlink(os.path.abspath(STINT), self.path("stint"))
        page = (SOURCE / "doc" / "operating.md").read_text()
        [cron] = re.findall(r"^\[ -e .*/backup$", page, re.MULTILINE)
        [ssh] = re.findall(r'^command="(.*)" ssh-', page, re.MULTILINE)
        for command, limit, ran in (cron, 4, ""), (ssh.replace('\\"', '"'), 20, "-c git-upload-pack 'a b'"):
            command = re.sub(r"/run/(git/)?limits", self.table, command).replace("/usr/local/bin", str(self.directory))
            command = re.sub(rf" {limit}/\w+", f" {limit}/{YEAR}", command)
            for n in range(limit + 2):
                code = subprocess.run(["sh", "-c", command], timeout=60, check=False, env={
                    "PATH": f"{self.directory}:{os.environ['PATH']}", "SSH_ORIGINAL_COMMAND": "git-upload-pack 'a b'"}).returncode
                self.assertEqual(code, n >= limit, command)
            self.assertEqual(Path(self.path("ran")).read_text(), f"{ran}\n" * limit)
            os.unlink(self.path("ran"))
            os.unlink(self.table)


class Looking(Tool):
    def fill(self):
        self.make(f"10/{YEAR} name=login", f"3/{YEAR} name=api", options=("--labels=1000",))
        self.steps(("take --cost=5 login five", 0), ("take --cost=9 login nine", 0), ("take --cost=1 login one", 0),
                   ("take --cost=3 api three", 0), *[("take api three", 1)] * 3, ("take --cost=2 login nine", 1))

    def test_status(self):
        self.fill()
        status = self.json("status", "--interval=0", self.table)
        self.assertEqual([status[name] for name in ("table", "memory", "live", "max_entries", "reach", "max_reach", "policy_ids",
                                                    "max_policies", "gone_ids", "used_labels", "labels")],
                         [self.table, os.path.getsize(self.table), 4, 1000, 0, 23, 2, 64, 0, 2, 1000])
        self.assertEqual(status["policies"][0]["name"], "login")
        self.assertNotIn("allowed_per_s", status["policies"][0])
        self.steps(("status --interval=0", 0, r"(?m)^Entries +\[\.+\] \d\.\d%, 4 of [\d,]+$", r"(?m)^Have decided +0$",
                    r"\A(?!.*\n(?:Note |Untracked))"))
        Server(self, self.table).ask("take", "login", "0" * 16, 1)
        self.assertEqual(self.json("status", "--interval=0", self.table)["have_decided"], 1)

    def open_in(self, **options):
        status = self.json("status", "--interval=0", self.table, **options)
        return {(row["process"], row["program"], row["writes"]) for row in status["open"]}, status["not_seen"]

    def test_who_has_it_open(self):
        """Who maps it: idle, forked, whoever only reads; not who is gone, nor who has another table."""
        self.make()
        self.assertEqual(self.open_in()[0], set())
        self.steps(("status --interval=0", 0, r"(?m)^Open in +0 processes$"))
        servers = [Server(self, self.path(name)) for name in ("table", "table", "other")]
        idle = {(server.process.pid, "tool-server", True) for server in servers[:2]}
        self.assertEqual(self.open_in()[0], idle)
        # A worker that has only what its parent mapped, which is gone.
        inherited, mine = os.pipe()
        worker = os.fork()
        if worker == 0:
            with open(self.table, "r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            if (child := os.fork()) == 0:
                signal.pause()
            os.write(mine, f"{child}".encode())
            os._exit(len(mapped) == 0)
        os.waitpid(worker, 0)
        child = int(os.read(inherited, 20))
        self.addCleanup(lambda: os.path.exists(f"/proc/{child}/maps") and os.kill(child, signal.SIGKILL))
        [program] = [name for pid, name, _ in self.open_in()[0] if pid == child]
        watch = subprocess.Popen([STINT, "watch", "--interval=.05", "--json", self.table], stdout=subprocess.DEVNULL)
        os.chmod(self.table, 0o644)
        os.chmod(self.directory, 0o755)
        looks = self.open_in()
        while watch.pid not in {pid for pid, _, _ in looks[0]}: # it has it open at each look
            self.assertIsNone(watch.poll(), looks)
            looks = self.open_in()
        self.assertEqual(looks[0], idle | {(child, program, True), (watch.pid, "stint", False)})
        watch.kill()
        watch.wait(timeout=30)
        if os.geteuid() == 0:
            found, not_seen = self.open_in(user="nobody", group="nogroup", extra_groups=[])
            self.assertEqual(found, set())
            self.assertGreaterEqual(not_seen, looks[1] + 3)
            self.assertRegex(self.good("status", "--interval=0", self.table, user="nobody"),
                             r"(?m)^Not seen +\d+ processes, which this user may not look at: ask as\s+root$")
        servers[0].process.kill()
        servers[0].process.wait(timeout=30)
        os.kill(child, signal.SIGKILL)
        while child in {pid for pid, _, _ in self.open_in()[0]}: # it dies when the system comes to it
            pass
        self.assertEqual([pid for pid, *_ in self.open_in()[0]], [servers[1].process.pid])
        self.steps(("status --interval=0", 0, rf"(?m)^Open in +1 process: {servers[1].process.pid} tool-server$"))

    def test_a_removed_table(self):
        """Who goes on with a table that was removed is told, whoever made it; nobody else is."""
        servers = [Server(self, self.path(name)) for name in ("table", "table", "other")]
        its = sorted(server.process.pid for server in servers[:2])
        note = f"Note: a table that was removed from here is still in use, by process {its[0]}, {its[1]}: restart them\n"

        def users():
            return sorted(row["process"] for row in self.json("status", "--interval=0", self.table)["removed"])
        self.assertEqual(users(), [])
        self.steps((f"take --add 1/{YEAR} k", 0))
        os.unlink(self.table)
        self.assertIn("make makes one\n\n" + note, self.fails(1, "there is no table", "status", self.table))
        self.make()
        self.assertEqual(users(), its)
        self.assertTrue(self.good("status", "--interval=0", self.table).endswith("\n\n" + note))
        for server, left in (servers[0], [servers[1].process.pid]), (servers[1], []):
            server.end()
            self.assertEqual(users(), left)

    def test_rates(self):
        self.make(f"1000000/{YEAR} name=p")
        server = Server(self, self.table)
        server.ask("load", "p", 1, 3)
        [policy] = self.json("status", "--interval=.3", self.table)["policies"]
        server.stop()
        self.assertGreater(policy["allowed_per_s"], 1)
        self.assertEqual(policy["refused_per_s"], 0)

    def test_a_fuller_table(self):
        """An override takes an entry, and so does a ban."""
        self.make(f"10/{YEAR} overrides name=p", keys=7000)
        server = Server(self, self.table)
        room = self.json("status", "--interval=0", self.table)["slots"] // 2
        server.ask("fill", "p", room * 9 // 10)
        self.assertIn("for are there: see stint resize --entries",
                      " ".join(self.good("status", "--interval=0", self.table).split()))
        for key in "a", "b":
            self.good("override", "-q", "--for=1h", self.table, "p", key, "1")
        told = self.good("status", "--interval=0", self.table)
        self.assertIn("for are there, 2 of them overrides and bans, which take one each: see", " ".join(told.split()))
        self.assertLessEqual(max(map(len, told.splitlines())), 80)
        server.ask("fill", "p", 7600)
        told = self.good("status", "--interval=0", self.table)
        self.assertRegex(told, r"(?m)^Entries +\[#{24}\] 10\d\.\d%, 7,\d{3} of ")
        self.assertRegex(told, r"(?m)^Reach +\[[#.]{24}\] \d+\.\d%, [1-9]\d* of 23$")

    def test_keys_that_are_no_hashes(self):
        """Numbers crowd a few places, and hashed keys do not."""
        self.make(f"10/{YEAR} name=p", keys="10k")
        server = Server(self, self.table)
        server.ask("fill", "p", 400) # few of the 96 places of the numbers are theirs
        self.assertNotIn("Note", self.good("status", "--interval=0", self.table))
        for first, last, said in (1, 84, "nearly found no slot"), (85, 129, "found no slot"):
            for number in range(first, last + 1):
                server.ask("take", "p", f"{number:016x}", 1)
            told = " ".join(self.good("status", "--interval=0", self.table).split())
            self.assertIn(f"some keys {said}, in a table that is nearly empty: they are no hashes", told)
            self.assertRegex(told, r" Reach \[#{20,24}\.*\] ")

    def test_room_for_policies_and_names(self):
        """Ids of replaced and removed policies are told, and are back once nobody had the table open."""
        self.make(options=("--max-policies=5", "--labels=4"))
        server = Server(self, self.table)
        for i, window in enumerate(("min", "h", "d", "2h", "3h")):
            notes = self.good("status", "--interval=0", self.table).count("\nNote ")
            self.assertEqual(notes, 2 * (i >= 4)) # of five and four: 80% and more
            self.good("apply", self.table, "-", stdin=f"9/{window} name=p\n")
            server.ask("label", f"{i + 1:016x}", b"name".hex())
        self.fails(1, "end all that have (`stint status` tells), and then start one",
                   "apply", self.table, "-", stdin="9/s name=p\n")
        self.good("apply", self.table, "-", stdin="9/h name=p\n") # it is back
        status = self.json("status", "--interval=0", self.table)
        self.assertEqual([status[name] for name in ("policy_ids", "gone_ids", "used_labels")], [5, 4, 4])
        server.end()
        self.good("apply", self.table, "-", stdin="9/s name=p\n")
        self.assertEqual(self.json("status", "--interval=0", self.table)["policy_ids"], 2)

    def test_policies(self):
        self.fill()
        policies = {policy["name"]: policy for policy in self.json("policies", self.table)["policies"]}
        self.assertEqual(list(policies), ["login", "api"])
        self.assertEqual(policies["api"], {
            "id": 1, "name": "api", "notation": "3/366 days", "allowed": 2, "refused": 3, "shadowed": 0,
            "first_refusals": 1, "untracked": 0, "near_limit": 0, "charged": 0, "refunded": 0,
            "bans": 0, "strikes_lost": 0, "refunds_lost": 0, "mistaken_nows": 0})
        head, *rows = self.good("policies", self.table).splitlines()
        self.assertEqual(head.split()[:4], ["name", "id", "notation", "allowed"])
        self.assertEqual([row.split()[0] for row in rows if row][:5], ["login", "api", "name", "login", "api"])
        self.assertLessEqual(max(map(len, [head, *rows])), 80)
        self.table = self.path("empty")
        self.make(keys=10)
        self.steps(("policies", 0, r"\Athe table has no policies\n\Z"), ("top", 0, r"\Ano key has used anything\n\Z"),
                   ("top --by=refused", 0, r"\Ano key is known to have been refused\n\Z"),
                   ("policies --json", 0, r'\A\{\s*"policies": \[\]\s*\}\s*\Z'))

    def test_top(self):
        self.fill()
        top = self.json("top", self.table)["top"]
        self.assertEqual([(row["used"], row["policy"], row["label"]) for row in top],
                         [(9, "login", "nine"), (5, "login", None), (3, "api", "three"), (1, "login", None)])
        self.assertEqual(top[0]["key"], self.json("peek", self.table, "login", "nine")["key"])
        for option, used in ("-n2", [9, 5]), ("--policy=api", [3]):
            self.assertEqual([row["used"] for row in self.json("top", option, self.table)["top"]], used)
        refused = self.json("top", "--by=refused", self.table)["top"]
        self.assertEqual(sorted((row["label"], row["refused_windows"]) for row in refused), [("nine", 1), ("three", 1)])
        self.assertRegex(self.rows()[0]["key"], r"^[0-9a-f]{16}$")
        head, first, *_ = self.good("top", self.table).splitlines()
        self.assertEqual((head.split()[-1], first.split()[2], first.split()[-1]), ("label", "9", "nine"))

    def test_columns_that_are_empty(self):
        """They take no room: what is as wide as a terminal is one table."""
        for length in range(16, 23):
            name = "p" * length
            self.make(f"2/{YEAR} name={name} overrides")
            self.good("override", "-q", "--for=1h", self.table, name, "k", "1")
            lines = self.good("overrides", "--policy", name, self.table).splitlines()
            self.assertEqual(("label" in lines[0], len(lines)), (False, 2 if len(lines[1]) > 60 else 5), lines)
            self.assertLessEqual(max(map(len, lines)), 80)

    def test_top_by_refused(self):
        """The policy that refused is named, as long as it is known; each key is there once."""
        self.make(f"2/{YEAR} name=few", f"1000/{YEAR} name=many", "1/s name=often",
                  f"1/{YEAR} name=banning ban=1h", options=("--labels=100",))

        def top(*more):
            return [[row[name] for name in ("label", "policy", "used", "refused_windows")]
                    for row in self.json("top", "--by=refused", *more, self.table)["top"]]

        def refused(policy, key):
            while stint("take", "-q", self.table, policy, key)[0] == 0:
                pass
        self.steps(*[("take many a", 0)] * 5)
        refused("few", "a")
        self.assertEqual(top(), [["a", "few", 2, 1]])
        self.steps(("take many b", 0), ("take many c", 0))
        refused("banning", "b")
        for options, rows in (((), [["b", "banning", 1, 1], ["a", "few", 2, 1]]), (("--policy=few",), [["a", "few", 2, 1]]),
                              (("--policy=many",), []), (("-n1",), [["b", "banning", 1, 1]])):
            self.assertEqual(top(*options), rows)
        refused("often", "c")
        while ["c", None, None, 1] not in (rows := top()):
            self.assertIn(["c", "often", 1, 1], rows)
        self.assertEqual(rows[2], ["c", None, None, 1])
        self.assertRegex(self.good("top", "--by=refused", self.table), r"(?m) c *$")
        refused("banning", "a")
        self.assertEqual(top()[0], ["a", "banning", 1, 2])

    def test_top_of_buckets(self):
        """A bucket that refused is listed as what it is, whenever it is full."""
        self.make("9/day burst=2 name=bucket", f"2/{YEAR} name=window", options=("--labels=100",))
        for policy in "bucket", "window":
            self.steps((f"take {policy} a", 0), (f"take {policy} a", 0), (f"take {policy} a", 1), (f"take {policy} b", 0))
            self.assertEqual([(row["label"], row["policy"], row["used"], row["refused"]) for row in
                              self.json("top", "--by=refused", f"--policy={policy}", self.table)["top"]],
                             [("a", policy, 2, True)])
        self.assertEqual(sorted((row["policy"], row["used"]) for row in self.json("top", self.table)["top"]),
                         [("bucket", 1), ("bucket", 2), ("window", 1), ("window", 2)])

    def test_top_of_many(self):
        """As a sort would have it."""
        self.make(f"1000/{YEAR} name=p", keys=20000, options=("--labels=100",))
        server = Server(self, self.table)
        server.ask("fill", "p", 20000)
        # Of keys that have used as much, those with names are first, wherever they stand.
        for row in [row for row in self.rows() if row["used"] == 7][::500]:
            server.ask("label", row["key"], row["key"][:4].encode().hex())
        rows = self.rows()
        self.assertEqual(len(rows), 20000)
        self.assertEqual({row.pop("kind") for row in rows}, {"count"})
        self.assertEqual(sum(row["used"] for row in rows), sum(1 + i % 7 for i in range(20000)))
        rows.sort(key=lambda row: (-row["used"], row["label"] is None, row["label"], row["key"]))
        for n in 1, 2, 3, 10, 100, 4999, 30000:
            self.assertEqual(self.json("top", "-n", n, self.table)["top"], rows[:n])

    def test_progress(self):
        """What takes more than a second tells a terminal how far it is, and wipes that in the end."""
        self.make(f"1000/{YEAR} name=p", keys=70000)
        Server(self, self.table).ask("fill", "p", 70000)
        try:
            terminal, its = pty.openpty()
        except OSError as error:
            self.skipTest(f"there is no terminal: {error}")
        self.addCleanup(os.close, terminal)
        dump = subprocess.Popen([STINT, "dump", self.table], stdout=subprocess.PIPE, stderr=its)
        os.close(its)
        begun = dump.stdout.read(1)
        time.sleep(1.1) # meanwhile it fills the pipe
        self.assertEqual(len((begun + dump.stdout.read()).splitlines()), 70000)
        dump.stdout.close()
        self.assertEqual(dump.wait(timeout=30), 0)
        self.assertRegex(os.read(terminal, 4096).decode(), r"\A(\r[\d,]+ entries read)+\r {50}\r\Z")

    # Of each policy that has a key: its limit and whose that is, what is used and left, whether it refuses, would refuse,
    # strikes, and since when as people are told.
    SINCE = r"since (?:\S+ )?\d\d:\d\d"
    OF_A_KEY = {"banning": (0, "ban", 3, 0, True, False, 0, SINCE), "own": (50, "override", 3, 47, False, False, 0, "no"),
                "plain": (2, "policy", 2, 0, True, False, 0, SINCE),
                "shadow": (1, "policy", 1, 0, False, True, 0, "would be, " + SINCE),
                "strikes": (1, "policy", 1, 0, True, False, 1, SINCE), "unused": (5, "policy", 0, 5, False, False, 0, "no")}

    def test_key(self):
        """All that there is of a key, by each policy: which limit, from when, until when, whether it is refused."""
        begin, hour, minute = time.time_ns(), 3600 * 10**9, 60 * 10**9
        self.make(f"3/{YEAR} ban=1h name=banning", f"9/{YEAR} overrides name=own", f"2/{YEAR} name=plain",
                  f"1/{YEAR} ban=1h shadow name=shadow", f"1/{YEAR} ban=99d after=2 within=366d name=strikes",
                  "5/h name=unused", options=("--labels=10",))
        for policy, takes in ("banning", 4), ("own", 3), ("plain", 3), ("shadow", 2), ("strikes", 2):
            for _ in range(takes):
                stint("take", "-q", self.table, policy, "alice")
        self.steps(("override -q own alice 50 --for 1h", 0))
        told = self.json("key", self.table, "alice")
        self.assertEqual([told[name] for name in ("label", "refused_windows")], ["alice", 4])
        self.assertLessEqual(begin - 10**9, told["last_refusal"])
        self.assertLessEqual(begin - 10**7, told["first_refusal"])
        rows = {row["policy"]: row for row in told["policies"]}
        whole = self.good("key", self.table, "alice")
        self.assertLessEqual(max(map(len, whole.splitlines())), 80)
        for name, (*due, word) in self.OF_A_KEY.items():
            row = rows[name]
            self.assertEqual([row[field] for field in ("limit", "limit_by", "used", "remaining", "refused", "shadowed",
                                                       "strikes")], due)
            self.assertRegex(whole, rf"(?m)^{name} .* {due[1]}$")
            self.assertRegex(whole, rf"(?m)^{name} .* {word}$")
            self.assertEqual([row[time_] is None for time_ in ("until", "since", "again_at")],
                             [due[1] == "policy", *[word == "no"] * 2])
            self.assertAlmostEqual(row["until"] or begin + hour, begin + hour, delta=minute)
            self.assertLess(row["since"] or 0, begin + minute)
            self.assertGreater(row["again_at"] or begin + hour, begin + hour - minute)
        self.assertAlmostEqual(rows["banning"]["since"], begin, delta=minute)
        for arguments in ("--name", self.table, "alice"), ("--hash", self.table, told["key"]):
            again = self.json("key", *arguments)
            self.assertEqual([row["used"] for row in again["policies"]], [row["used"] for row in told["policies"]])
        for code, message, *arguments in (
                (1, "the table has nothing of the key ", self.table, "bob"),
                (1, "--name 'bob': no live key", "--name", self.table, "bob"),
                (2, "--name goes with one KEY", "--name", self.table, "a", "b"),
                (2, "--name goes with one KEY", "--name", "--hash", self.table, "0" * 16)):
            self.fails(code, message, "key", *arguments)
        server = Server(self, self.table)
        for key in "0" * 15 + "1", "0" * 15 + "2":
            server.ask("take", "own", key, 1)
            server.ask("label", key, b"twins".hex())
        self.fails(1, f"ask by --hash: {'0' * 15}1 {'0' * 15}2", "key", "--name", self.table, "twins")

    def test_dump_of_all_kinds(self):
        """A count, an override and a ban are told apart, also where they are one key's, and by a shadow."""
        self.good("make", "--entries=10", self.path("empty"))
        self.make("5/d overrides name=o", f"1/{YEAR} ban=1h name=b", f"1/{YEAR} ban=1h name=s")
        self.steps(("take o k", 0), ("override -q o k 0 --for 1h", 0), ("override -q b hand 7 --for 2h", 0),
                   *((f"take {policy} k", code) for policy in "bs" for code in (0, 1, 1)))
        self.assertEqual(stint("apply", self.table, "-", stdin=f"1/{YEAR} ban=1h shadow name=s\n")[0], 0)
        lists = {(command, *option): [(row["policy"], row["kind"], row["key"], row.get("limit")) for row in
                                      self.json(command, *option, self.table)[command]]
                 for command in ("overrides", "bans") for option in ((), ("--policy=s",))}
        hand, key = (self.json("peek", self.table, "o", key, code=code)["key"] for key, code in (("hand", 0), ("k", 1)))
        self.assertEqual(lists, {("overrides",): [("o", "override", key, 0), ("b", "override", hand, 7)],
                                 ("overrides", "--policy=s"): [], ("bans", "--policy=s"): [("s", "ban", key, None)],
                                 ("bans",): [("b", "ban", key, None), ("s", "ban", key, None)]})
        for command, none, word in ("overrides", "no key has a limit", hand), ("bans", "no key is banned", key):
            self.assertIn(word, self.good(command, self.table))
            self.assertIn(none, self.good(command, self.path("empty")))
        [row, _] = self.json("bans", self.table)["bans"]
        self.assertEqual(row["until"] - row["since"], 3600 * 10**9)
        status = self.json("status", "--interval=0", self.table)
        self.assertEqual((status["overrides"], status["banned"]), (2, 2))
        self.steps(("status --interval=0", 0, r"(?m)^Overrides +2\nBanned +2$"),
                   ("watch --interval=.01 --count=1", 0, "  overrides 2  banned 2"))
        rows = self.rows()
        self.assertGreater(min(row["end"] for row in rows), time.time_ns())
        self.assertEqual([row for row in rows if row["policy"] == "s"], self.rows("--policy=s"))
        self.assertEqual(sorted((row["policy"], row["kind"], row["used"], row["own_limit"], row["refused"]) for row in rows),
                         [("b", "ban", 0, 0, True), ("b", "count", 1, 0, True), ("b", "override", 0, 7, False),
                          ("o", "count", 1, 0, False), ("o", "override", 0, 0, True),
                          ("s", "ban", 0, 0, True), ("s", "count", 1, 0, True)])
        self.assertEqual([[row["refused"] for row in self.json(command, self.table)[command]]
                          for command in ("bans", "overrides")], [[True, True], [True, False]])

    def test_metrics(self):
        self.fill()
        self.steps(("metrics", 0, r'stint_decisions_total\{policy="api",outcome="refused"\} 3\n',
                    "\nstint_table_live_slots ", r"# EOF\n\Z"),
                   ("metrics --no-scan --no-eof --label=table=web --label host=a=b", 0, 'host="a=b"',
                    r'(?m)^stint_decisions_total\{.*table="web".*\} \d', r"(?s)\A(?!.*(?:stint_table_live_slots|# EOF))"))
        self.fails(2, "policy", "metrics", "--label=policy=x", self.table)
        self.fails(2, "--label", "metrics", *["--label=a=b"] * 17, self.table)

    def test_watch_piped(self):
        self.fill()
        look = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  live \d of [\d,]+  allowed 0\.0/s  refused 0\.0/s\n"
        self.steps(("watch --interval=.05 --count=3", 0, rf"\A(?:{look}){{3}}\Z"))
        looks = [json.loads(line) for line in
                 self.good("watch", "--interval=.05", "--count=2", "--json", self.table).splitlines()]
        self.assertEqual([look["policies"][1]["refused"] for look in looks], [3, 3])
        self.assertGreater(looks[1]["now"], looks[0]["now"] + 40_000_000)

    def watch_on_terminal(self, *arguments, rows=24, columns=80):
        """The watch on a terminal of its own. Returns its process, and what does: `typed` and more give
        the lines of the page after a key, another size, a signal; None: it has left the terminal."""
        try:
            child, terminal = pty.fork()
        except OSError as error:
            self.skipTest(f"there is no terminal: {error}")
        if child == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execv(STINT, [STINT, "watch", *arguments])
        self.addCleanup(os.close, terminal)
        seen = ""

        def page(ends):
            nonlocal seen
            while not (found := re.search(ends, seen, re.DOTALL)):
                try:
                    seen += os.read(terminal, 4096).decode()
                except OSError:  # it has ended
                    return None
            seen, text = seen[found.end():], seen[:found.end()].rpartition("\x1b[H")[2]
            return re.sub(r"\x1b\[(K|J|7m|m)", "", re.sub(r"\x1b\[\d+;1H", "\r\n", text)).split("\r\n")

        def typed(keys="", size=None):
            if size is not None:
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.write(terminal, keys.encode())
            return page(r"\x1b\[7m[^\x1b]*\x1b\[m")

        def ended(code):
            self.assertIsNone(page(r"\x1b\[7m[^\x1b]*\x1b\[m"))
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), code)
            self.assertRegex(seen, r"\x1b\[\?25h\x1b\[\?1049l")  # the cursor, and the screen as it was
            self.assertTrue(termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON))
            return seen
        return child, typed, ended

    def test_watch_on_a_terminal(self):
        self.fill()
        self.steps(*((f"take login more{key}", 0) for key in range(20)))
        _, typed, ended = self.watch_on_terminal("--interval=9", self.table)

        def keys(lines):
            heading = next(i for i, line in enumerate(lines) if line.startswith("key "))
            return [line.split()[0] for line in lines[heading + 1:-1] if line]
        page = typed()
        self.assertTrue(page[0].startswith(f"{self.table}  live "))
        self.assertLessEqual(max(map(len, page)), 80)
        refused = keys(page)
        self.assertRegex(page[-1], "sorted by refusals  p: policy any")
        self.assertRegex(typed("s")[-1], "sorted by policy")
        page = typed("s")
        self.assertRegex(page[-1], "sorted by used")
        first = keys(page)
        self.assertGreater(len(first), len(refused))
        self.assertEqual(keys(typed("\x1b[B"))[:-1], first[1:])
        self.assertEqual(keys(typed("\x1b[A")), first)
        for there, back in ("\x1b[6~", "\x1b[5~"), ("\x1b[F", "\x1b[H"), ("\x1bOF", "\x1bOH"):
            self.assertNotEqual(keys(typed(there)), first)
            self.assertEqual(keys(typed(back)), first)
        policies = [re.search(r"policy (\S+)", typed("p")[-1])[1] for _ in range(3)]
        self.assertEqual(len(set(policies)), 3)
        self.assertIn("login", policies)
        for rows, columns in (9, 30), (3, 12), (1, 1), (40, 200):
            page = typed(size=(rows, columns))
            self.assertLessEqual(len(page), rows + 1)
            self.assertLessEqual(max(map(len, page)), columns)
        self.assertIsNone(typed("q"))
        ended(0)

    def test_watch_shows_what_matters(self):
        """Who refuses stands first, what does not fit is told, keys have rates, and notes take a line."""
        policies = [f"{number}-a-policy-of-a-long-name" for number in range(7)]
        self.make(*(f"{10**8 if name != policies[4] else 1}/{YEAR} name={name}" for name in policies), keys=500,
                  options=("--labels=4", "--max-policies=8"))
        for key in "abcdefgh":
            for _ in range(2):
                stint("take", "-q", self.table, policies[4], f"{key}, whose name takes much room: " + "x" * 99)
        server = Server(self, self.table)
        server.ask("load", policies[4], 1, 1)
        busy = Server(self, self.table)
        busy.ask("load", policies[5], 1, 2)
        for rows, columns in (24, 80), (15, 40), (60, 200):
            with self.subTest(rows=rows, columns=columns):
                _, typed, ended = self.watch_on_terminal("--interval=.2", self.table, rows=rows, columns=columns)
                typed("s")
                typed("s")
                page = [typed() for _ in range(3)][-1] # with what was used since a look at the same keys
                typed("q")
                ended(0)
                text = "\n".join(page)
                self.assertLessEqual(len(page), rows + 1)
                self.assertRegex(page[-1], "sorted by used" if columns > 40 else "sorted")
                self.assertLessEqual(max(map(len, page)), columns)
                self.assertEqual(len(re.findall(r"(?m)^Note: policy ids 88%, labels 100%: s", text)), 1)
                heading = next(i for i, line in enumerate(page) if line.startswith("policy "))
                widest = max(16, columns // 3)
                shown = [line.split()[0] for line in page[heading + 1:page.index("", heading)]]
                tail = (widest - 1) // 2
                first = policies[4] if len(policies[4]) <= widest else policies[4][:widest - 1 - tail] + "~" + policies[4][-tail:]
                self.assertEqual(shown[0], first)
                more = re.findall(r"(?m)^and (\d) more$", text)
                self.assertEqual(len(shown) - len(more) + sum(map(int, more)), 7)
                self.assertEqual(more != [], rows == 15)
                whole = columns == 200
                self.assertEqual(">" in text, not whole)
                # Each line that is as wide as the page ends with the mark.
                for line in page:
                    if len(line) == columns:
                        self.assertEqual(line[-1], ">")
                if rows > 15:
                    rates = [float(rate.replace(",", "")) for rate in
                             re.findall(r"(?m)^[0-9a-f]{16} +5-a\S*  +([\d.,]+)  ", text)]
                    self.assertEqual(len(rates), 2, text)
                    self.assertGreater(min(rates), 0)
                    self.assertRegex(text, r"(?m)^\w, whose name.*  4-a\S*  +0\.0  +1  since ")

    def test_watch_leaves_the_terminal(self):
        self.fill()
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            child, typed, ended = self.watch_on_terminal("--interval=9", self.table)
            typed()
            os.kill(child, number)
            ended(-number)
        _, typed, ended = self.watch_on_terminal("--interval=.05", "--count=1", self.table)
        self.assertEqual(len([typed(), typed()]), 2)
        ended(0)
        _, typed, ended = self.watch_on_terminal("--interval=.2", self.table)
        typed()
        os.unlink(self.table)
        self.assertRegex(ended(1).partition("1049l")[2], r"\A[^\n]*there is no table[^\n]*\n\Z")

    def test_watch_follows_the_path(self):
        """A table that takes the place of another is seen; one that is gone ends the watch."""
        self.fill()
        watch = subprocess.Popen([STINT, "watch", "--interval=.05", "--json", self.table],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.stderr.close)
        self.assertEqual(len(json.loads(watch.stdout.readline())["policies"]), 2)
        self.good("make", "--entries=10", self.path("other"))
        os.rename(self.path("other"), self.table)
        while json.loads(watch.stdout.readline())["policies"]: # what it saw before may fill the pipe
            pass
        os.unlink(self.table)
        self.assertEqual(watch.wait(timeout=30), 1)
        self.assertIn("there is no table", watch.stderr.read())


class Many(Tool):
    """What is done to many keys at once."""

    NAMES = "192.0.2.7", "192.0.2.8", "198.51.100.1 /login", "192.0.3.0/24", "2001:db8::1", "2001:db8:1::2", "alice", \
        "::ffff:192.0.2.9"

    def setUp(self):
        super().setUp()
        self.make(f"1/{YEAR} ban=9h name=login", f"1/{YEAR} ban=9h name=other", options=("--labels=100",))
        for name, policy in (*((name, "login") for name in self.NAMES), ("192.0.2.8", "other"), ("bob", "other")):
            for code in 0, 1:
                self.good("take", "-q", self.table, policy, *name.split(), code=code)  # parts have a blank between
        self.steps(*((f"override -q --for=1h other {name} 5", 0) for name in ("192.0.2.7", "alice", "never")))

    def names(self, command, *options):
        told = self.json(command, *options, self.table)
        return [(row["policy"], row["label"]) for row in told[command]], told["unnamed"]

    def test_prefix(self):
        """Names that are addresses, or begin with one, in a network; it says of how many it cannot tell."""
        of = {network: {("login", name) for name in names} for network, names in (
            ("192.0.2.0/24", ("192.0.2.7", "192.0.2.8", "::ffff:192.0.2.9")), ("192.0.2.7", ("192.0.2.7",)),
            ("192.0.2.6/31", ("192.0.2.7",)), ("198.51.100.0/30", ("198.51.100.1 /login",)),
            ("192.0.3.0/25", ("192.0.3.0/24",)), ("2001:db8::/47", ("2001:db8::1", "2001:db8:1::2")),
            ("2001:db8::/48", ("2001:db8::1",)), ("2001:db8::1", ("2001:db8::1",)), ("203.0.113.0/24", ()),
            ("0.0.0.0/0", (name for name in self.NAMES if "." in name)),
            ("::/0", (name for name in self.NAMES if "a" != name[0])))}
        for network, names in of.items():
            found, unnamed = self.names("bans", f"--prefix={network}", "--policy=login")
            self.assertEqual((set(found), unnamed), (names, 0), network)
        self.assertEqual(self.names("bans", "--prefix=192.0.2.8/32")[0], [("login", "192.0.2.8"), ("other", "192.0.2.8")])
        self.assertEqual(self.names("overrides", "--prefix=192.0.2.0/24"), ([("other", "192.0.2.7")], 1))
        self.assertIn("1 more have no name, by which --prefix goes\n",
                      self.good("overrides", "--prefix=192.0.2.0/24", self.table))
        self.good("override", "--clear", self.table, "other", "192.0.2.7")
        self.good("override", "--clear", self.table, "other", "alice")
        self.fails(1, "--prefix goes by names, and the table has none of 1 such keys", "overrides", "--prefix=::/0", self.table)
        self.assertEqual(self.good("bans", "--prefix=203.0.113.0/24", self.table), "no key is banned\n")
        for wrong in "", "192.0.2.0/33", "192.0.2/24", "2001:db8::/129", "192.0.2.0/", "192.0.2.0/2k", "host/8", "/8":
            self.fails(2, f"--prefix '{wrong}': not a network such as", "bans", f"--prefix={wrong}", self.table)

    def test_reset_of_all_that_are_banned(self):
        for command, message in ((["--policy=login", self.table, "login", "alice"], "--policy and --prefix go with --banned"),
                                 (["--banned", self.table, "login"], "'login' is one operand too many"),
                                 (["--banned", "--hex", self.table], "--banned goes without KEYs"),
                                 (["--banned", "--policy=none", self.table], "there is 'login', 'other'")):
            self.fails(2, message, "reset", *command)
        self.assertEqual(self.json("reset", "--banned", "--prefix=192.0.2.8", "--policy=other", self.table),
                         {"reset": 1, "unnamed": 0})
        self.steps(("take other 192.0.2.8", 0), ("take login 192.0.2.8", 1),
                   ("reset --banned --policy login", 0, r"\ABans lifted +8\n\Z"))
        self.assertEqual(self.names("bans")[0], [("other", "bob")])
        self.steps(("bans --policy=login", 0, r"\Ano key is banned by 'login'; 1 by 'other'\n\Z"),
                   ("bans --policy=login --prefix=::/0", 0, r"\Ano key is banned by 'login'\n\Z"),
                   ("overrides --policy=login", 0, r"\Ano key has a limit of its own by 'login'; 3 by 'other'\n\Z"))
        self.fails(1, "no key is banned by 'login'; 1 by 'other'", "reset", "--banned", "--policy=login", self.table)
        self.steps(("reset -q --banned", 0, r"\A\Z"))
        self.assertEqual(self.names("bans")[0], [])
        self.assertEqual(len(self.names("overrides")[0]), 3) # what was set by hand stays


class Hostile(Tool):
    """What others wrote is no command to a terminal, and breaks no JSON."""

    LABELS = [b"\x1b[31mred\x1b[0m", b"\x1b]0;title\x07", b"nul\0nul", b"line\nline", b"\xff\xfe\x80",
              b"\xc2\x9b31m", "ü€😀".encode(), b'"quotes" and \\', b"\x7f\x08\r\t", b"x" * 40,
              b"{\"a\": 1}", b"\xf4\x90\x80\x80", b"\xed\xa0\x80"]

    def test_labels(self):
        self.make(f"100/{YEAR} name=p", options=("--labels=1000",), keys=10000)
        server = Server(self, self.table)
        keys = {}
        for i, label in enumerate(self.LABELS):
            key = f"{i + 1:016x}"
            server.ask("take", "p", key, i + 2)
            self.assertEqual(server.ask("label", key, label.hex()), "0")
            keys[key] = label
        top = self.json("top", "-n100", self.table)["top"]
        lines = self.rows()
        for rows in top, lines:
            labels = {row["key"]: row["label"] for row in rows if row["label"] is not None}
            self.assertEqual(labels, {key: label[:40].decode("utf-8", "replace")
                                      for key, label in keys.items()})
        for command in ["top", "-n100"], ["top", "--json"], ["dump"], ["status", "--interval=0"]:
            self.assertRegex(self.good(*command, self.table), r"\A[ -~\n]*\Z")
        out = self.good("top", "-n100", self.table)
        for shown in r"\x1b[31mred\x1b[0m", r"\x1b]0;title\x07", r"nul\x00nul", r"line\x0aline", \
                     r"\xff\xfe\x80", r"\xc2\x9b31m", r"\x7f\x08\x0d\x09":
            self.assertIn("  " + shown + "\n", out)
        _, typed, ended = Looking.watch_on_terminal(self, "--interval=9", self.table, rows=200, columns=200)
        for key in "", "s", "s":
            self.assertRegex("".join(typed(key)), r"\A[ -~]*\Z")
        typed("q")
        ended(0)

    def test_names_of_policies(self):
        self.make()
        hostile, name = f'1/{YEAR} name="a\\"b\\\\c {{}} <x>"', 'a"b\\c {} <x>'
        self.good("take", "--add", self.table, hostile, "k")
        self.assertEqual(list(self.policies()), [name])
        self.assertEqual(self.json("take", self.table, name, "k", code=1)["policy"], name)
        self.fails(2, r"'5/\x1b[31m'", "take", self.table, "5/\x1b[31m", "k")
        for arguments in (["status", "no\x1b[31m"], ["take", self.table, hostile, "--", "--\x1b[31m"],
                          ["take", self.table, hostile, "-\x1b[31m"], ["take", self.table, "5/\x1b[31m", "k"],
                          ["top", "--policy=\x1b[31m", self.table], ["top", "--by=\x1b[31m", self.table],
                          ["take", "--hex", self.table, hostile, "\x1b[31m"]):
            _, out, err = stint(*arguments)
            self.assertNotIn("\x1b", out + err, arguments)

    def test_names_written_over(self):
        """A table whose policy has control bytes for a name is refused, or shown safely."""
        self.make(f"1/{YEAR} name={'a' * 16}")
        self.good("take", self.table, "a" * 16, "k")
        whole = Path(self.table).read_bytes()
        self.assertIn(b"a" * 16, whole)
        Path(self.table).write_bytes(whole.replace(b"a" * 16, b"\x1b[31m\n\r\xff\xc2\x9b\x07\x08\x7f\"}{"))
        for command in *LOOKS, ["policies", "--json"], ["complete", "2", "take"]:
            _, out, err = stint(*command, self.table, *[""] * (command[0] == "complete"))
            self.assertRegex(out + err, r"\A[ -~\n]*\Z", command)

    def test_damage(self):
        """Whatever bytes of a table are others, each command ends by itself, and says something that is no
        command to a terminal."""
        self.make(f"1/{YEAR} name=p", "5/h name=q stripes=4", "3/min name=r overrides ban=1h", keys=10,
                  options=("--labels=8", "--max-policies=8"))
        for key in "abcd":
            self.good("take", "--cost=0", self.table, "q", key)
            self.good("charge", "--cost=9", self.table, "p", key)
            self.good("take", self.table, "p", key, code=1)  # leaves its name
        self.good("override", "--for=1h", self.table, "r", "k", "0")
        whole = Path(self.table).read_bytes()
        chance = random.Random(int(os.environ.get("STINT_TEST_SEED") or time.time()))
        text = self.write("limits", "2/h name=p\n9/s name=new\n")
        commands = [*LOOKS, *([command] for command in KEYED), ["override", "--for=1h"], ["apply", "--prune"],
                    ["resize", "--entries=100"], ["key"], ["make", "--entries=10", "--labels=8", "--max-policies=8"]]
        more = {"override": ["r", "k", "1"], "apply": [text], "key": ["a"],
                **{command: ["p", "k"] for command in KEYED}}
        head = len(whole) // 20  # the header, policies and the first counters
        codes = collections.Counter()
        for turn in range(10 * len(commands)):
            damaged = bytearray(whole)
            for _ in range(turn % 8):
                at = chance.randrange(0, head if chance.random() < .7 else len(whole) - 8) & ~7
                damaged[at:at + 8] = chance.choice([b"\0" * 8, b"\xff" * 8, b"\x1b[2J\r\n\x9bA",
                                                    chance.randbytes(8), whole[at + 8:at + 16]])[:8]
            Path(self.table).write_bytes(damaged)
            command = commands[turn % len(commands)]
            code, out, err = stint(*command, self.table, *more.get(command[0], []))
            self.assertIn(code, (0, 1, 2), (command, turn, err))
            self.assertRegex(out + err, r"\A[ -~\n]*\Z", (command, turn))
            self.assertTrue(code == 0 or out + err, (command, turn))
            codes[code != 0] += 1
        self.assertEqual(len(codes), 2)


class Changing(Tool):
    def test_make(self):
        made = "make", "--entries=5k", "--labels=10", "--max-policies=100", "--shards=4", self.table
        self.good(*made, "--mode=640")
        self.assertEqual(os.stat(self.table).st_mode & 0o777, 0o640)
        status = self.json("status", "--interval=0", self.table)
        self.assertEqual(status["shards"], 4)
        self.assertGreaterEqual(status["slots"], 10000)
        self.steps((f"take --add 1/{YEAR} k", 0))
        self.assertEqual(self.good(*made), "the table was there already, and stays as it is\n")
        self.steps((f"take 1/{YEAR} k", 1))
        self.fails(1, self.table, "make", "--entries=6k", self.table)
        self.good("make", "--entries=10", self.path("private"))
        self.assertEqual(os.stat(self.path("private")).st_mode & 0o777, 0o600)
        self.fails(1, "No such file or directory", "make", "--entries=10", self.path("none/table"))
        self.fails(1, "shards", "make", "--entries=10", "--shards=3", self.path("new"))
        self.assertFalse(os.path.exists(self.path("new")))

    TEXT = """# The limits of the web server.
20/minute name=login   # a comment
100/minute name=api

5/h name="with # inside"
"""

    def changes(self, *arguments, **options):
        return [(change["change"], change["name"], change["policy"], change["was"]) for change in
                self.json("apply", *arguments, **options)["changes"]]

    def test_make_with_policies(self):
        text, new = self.write("limits", self.TEXT), self.path("new")
        self.good("make", "--entries=10", "--policies", text, self.table)
        self.assertEqual(list(self.policies()), ["login", "api", "with # inside"])
        self.assertIn("but for its policies", self.good("make", "--entries=10", "--policies=-", self.table, stdin="7/s name=more\n"))
        self.assertEqual(list(self.policies()), ["login", "api", "with # inside", "more"])
        err = self.fails(1, "line 2: ", "make", "--entries=10", "--policies=-", new, stdin="1/s\n  5/hourr\n")
        self.assertEqual(err.splitlines()[1:], ["      5/hourr", "        ^"])
        self.fails(1, "with a larger --max-policies", "make", "--entries=10", "--max-policies=2", "--policies", text, new)
        self.assertFalse(os.path.exists(new))

    def test_apply(self):
        text = self.write("limits", self.TEXT)
        self.make()
        self.assertEqual([change[:2] for change in self.changes("--dry-run", self.table, text)],
                         [("added", "login"), ("added", "api"), ("added", "with # inside")])
        self.assertEqual(self.policies(), {})
        self.assertEqual(self.good("apply", self.table, text).splitlines()[0].split(),
                         ["name", "change", "id", "decided", "policy"])
        self.assertEqual(list(self.policies()), ["login", "api", "with # inside"])
        self.assertEqual(self.good("apply", self.table, text), "nothing changes\n")
        self.assertEqual({change[0] for change in self.changes(self.table, text)}, {"unchanged"})
        self.good("take", self.table, "login", "k")
        text = self.write("limits", f"30/minute name=login\n9/{YEAR} name=api\n")
        expected = [("changed", "login", '30/minute name="login"', '20/minute name="login"'),
                    ("replaced", "api", '9/366 days name="api"', '100/minute name="api"'),
                    ("removed", "with # inside", None, '5/hour name="with # inside"')]
        for option in ["--dry-run"], []:
            with open(self.table, "rb") as held:
                if option:
                    fcntl.flock(held, fcntl.LOCK_EX) # who only reads takes no lock
                    self.assertTrue(self.good("apply", *option, "--prune", self.table, text).endswith(
                        "\n\nServers that ask by the id of a removed policy are refused.\n"))
                self.assertEqual(self.changes(*option, "--prune", self.table, text), expected)
            self.assertEqual(len(self.policies()), 3 if option else 2)
        self.assertEqual(self.policies(), {"login": "30/minute", "api": "9/366 days"})
        self.assertIn("1 of 9 used", self.good("take", self.table, "api", "k"))

    KINDS = {"counts": "count", "overrides": "override", "bans": "ban"}

    def alive(self):
        """What is in force of the policy p: how many rows of each kind a dump has."""
        kinds = [row["kind"] for row in self.rows() if row["policy"] == "p"]
        return {name: kinds.count(kind) for name, kind in self.KINDS.items()}

    def test_what_a_change_ends(self):
        """A dry run tells as much as the change then does."""
        befores = f"1/{YEAR} overrides", f"1/{YEAR} ban=9h", f"1/{YEAR} ban=9h shadow", f"1/{YEAR}"
        afters = (f"2/{YEAR} overrides", f"2/{YEAR} ban=9h", f"2/{YEAR} ban=1h", f"2/{YEAR} ban=9h shadow", f"2/{YEAR}",
                  "9/day overrides", "9/day ban=9h", "9/day ban=1h", "9/day ban=9h shadow", "9/day", None)
        ended, made = collections.Counter(), {}
        for before in befores:
            self.table = self.path(f"before{befores.index(before)}")
            self.make(f"{before} name=p", "1/d name=other")
            for policy, key in ("p", "a"), ("p", "a"), ("p", "b"), ("other", "a"), ("other", "b"):
                stint("take", "-q", self.table, policy, key)
            if before != f"1/{YEAR}":
                for key in "cd":
                    self.good("override", "-q", "--for=5h", self.table, "p", key, "7")
            made[before] = self.table, self.alive()
        for before, after in itertools.product(befores, afters):
            with self.subTest(before=before, after=after):
                whole, alive = made[before]
                table = self.table = shutil.copy(whole, self.path("table"))
                text = f"{after} name=p\n" if after else "3/d name=new\n"
                dry = json.loads(stint("apply", "--json", "--dry-run", "--prune", table, "-", stdin=text)[1])
                [change] = [change for change in dry["changes"] if change["name"] == "p"]
                said = stint("apply", "--dry-run", "--prune", table, "-", stdin=text)[1]
                self.assertEqual(stint("apply", "--prune", table, "-", stdin=text)[0], 0)
                left = self.alive()
                ends = [change[f"ends_{name}"] for name in ("counts", "overrides", "bans")]
                self.assertEqual(ends, [alive["counts"] - left["counts"], alive["overrides"] - left["overrides"],
                                        alive["bans"] - left["bans"]], (alive, left))
                self.assertEqual("\nOf 'p' end: {} counts, {} overrides, {} bans.\n".format(*ends) in said, any(ends))
                self.assertIn("\nOf 'other' end: 2 counts, 0 overrides, 0 bans.\n", said)
                ended.update(dict(zip(("counts", "overrides", "bans"), ends)))
        self.assertTrue(all(ended.values()) and len(ended) == 3, ended)
        self.assertEqual(dry["not_named"], [])
        dry = self.json("apply", "--dry-run", table, "-", stdin="1/s name=third\n")
        self.assertEqual([row["name"] for row in dry["not_named"]], ["new"])
        self.assertIn("\nNot in the text, and left as they are: 'new' (--prune removes them)\n",
                      self.good("apply", "--dry-run", table, "-", stdin="1/s name=third\n"))
        self.assertNotIn("not_named", self.json("apply", table, "-", stdin="1/s name=third\n"))

    def test_what_a_change_of_all_policies_ends(self):
        """Of as many as there can be."""
        names = [f"p{i}" for i in range(4096)]
        self.make(options=("--max-policies=4096",))
        self.good("apply", self.table, "-", stdin="".join(f"5/d name={name}\n" for name in names))
        self.good("take", "-q", self.table, names[-1], "k")
        dry = self.json("apply", "--dry-run", "--prune", self.table, "-",
                        stdin="".join(f"6/d name={name}\n" for name in names[:-1]))
        self.assertEqual([change["name"] for change in dry["changes"]], names)
        self.assertEqual([change["ends_counts"] for change in dry["changes"]], [0] * 4095 + [1])

    def test_a_wrong_text_changes_nothing(self):
        self.make("9/d name=p")
        before = Path(self.table).read_bytes()
        for text, message, *caret in (
                ("8/d name=p\n5/hourr\n", "line 2: ", "    5/hourr", "      ^"),
                ("8/d name=p\n\n# x\n5/\x1b[31m", "line 4: ", r"    5/\x1b[31m", "      ^"),
                ("8/d name=p\n7/d name=p\n", "line 2: ", "    7/d name=p", "    ^"), ("", "the text has no policy"),
                ("\n # 8/d name=p\n", "the text has no policy"), ("8/d name=p\0", "it is no text: it has a byte 0")):
            for option in (), ("--dry-run",), ("--json",), ("--prune",), ("--prune", "--dry-run"):
                err = self.fails(1, f"standard input: {message}", "apply", *option, self.table, "-", stdin=text)
                self.assertEqual(err.splitlines()[1:], caret)
            self.assertEqual(self.policies(), {"p": "9/day"})
        self.fails(1, "No such file", "apply", self.table, self.path("none"))
        self.fails(1, "Is a directory", "apply", self.table, self.directory)
        self.assertEqual(len(Path(self.table).read_bytes()), len(before))

    def test_buckets(self):
        """One that the default clock could starve, and what else is hardly meant, is told, and made."""
        self.make("18/day burst=2 name=p")
        self.assertEqual(self.changes(self.table, "-", stdin="18/day name=p\n")[0][0], "replaced")
        text = self.write("limits", "10K/s burst=199 name=small\n10K/s burst=200 name=right\n5/s burst=1 name=slow\n"
                          "2/m smooth ban=1h\n5/h ban=1m name=short\n")
        notes = ("'small': burst=199 lasts less than 20 ms at this rate. The default clock stands still for up to 10 ms, so a key may "
                 "get less than its rate: take burst=200 or more",
                 "'2/minute': smooth with a limit of 2 grants about half to steady demand: burst=2 in its place grants all",
                 "'short': ban= is shorter than the window: a ban that ends before that keeps nobody out")
        for command in (("apply", "--dry-run", self.table, text), ("apply", self.table, text),
                        ("make", "--entries=9", "--policies", text, self.path("other"))):
            self.assertEqual(stint(*command)[::2], (0, "".join(f"stint: note: {note}\n" for note in notes)))
        self.assertEqual(self.good("apply", self.table, text), "nothing changes\n")

    def test_apply_beside_a_server(self):
        """A server goes on by the id that it holds, though the window changed under the name."""
        self.make(f"1000000/{YEAR} name=load")
        server = Server(self, self.table)
        server.ask("load", "load", 2, 3)
        self.good("apply", self.table, "-", stdin="50/100ms name=load\n")
        self.assertEqual(self.policies(), {"load": "50/100 milliseconds"})
        server.stop()
        began = time.time()
        server.ask("load", "load", 2, 3)
        time.sleep(.5)
        # As a window turns, no key may have tokens in force.
        tops = (self.json("top", "--policy=load", self.table)["top"] for _ in range(100))
        self.assertEqual(next(filter(None, tops))[0]["policy"], "load")
        granted = server.stop()
        self.assertEqual(len(granted), 3)
        self.assertGreater(min(granted.values()), 50)  # of more than one window
        self.assertLessEqual(max(granted.values()), 50 * (2 + (time.time() - began) // .1))

    def test_resize(self):
        self.make(f"20/{YEAR} name=p", keys=20000, options=("--labels=100",))
        server = Server(self, self.table)
        server.ask("fill", "p", 20000)
        self.good("take", "--cost=20", self.table, "p", "k")
        self.good("take", self.table, "p", "k", code=1)
        before = sorted(self.good("dump", self.table).splitlines())
        self.fails(1, f"process {server.process.pid} has the table open: a table is resized while nobody uses it (stint "
                   "status names all that have it open)\n", "resize", "--entries=40k", self.table)
        server.end()
        for options, slots, shards in (("--entries=100k", 200000, 0), ("--shards=8", 200000, 8), ("--entries=22k", 44000, 8),
                                       ("--labels=200", 44000, 8), ("--max-policies=100", 44000, 8)):
            told = self.json("resize", options, self.table)
            self.good("make", *(f"--{name.replace('_', '-').replace('max-entries', 'entries')}={value}" for name, value in
                                told.items() if value), self.table)  # which opens it
            self.assertEqual(told["shards"], 8 if shards else 0)
            self.assertAlmostEqual(self.json("status", "--interval=0", self.table)["slots"], slots, delta=64)
            self.assertEqual(sorted(self.good("dump", self.table).splitlines()), before)
        self.assertRegex(self.good("resize", self.table),
                         r"^Options +that servers must open it with now:\nMax entries +22,000\n"
                         r"Max policies +100\nLabels +200\nShards +8\n$")
        self.fails(1, self.table, "resize", "--entries=1000", self.table) # too few for them
        self.assertEqual(sorted(self.good("dump", self.table).splitlines()), before)
        self.assertEqual(os.listdir(self.directory), ["table"])


class Waiting(Tool):
    """What waits for a lock says so, with the process that has it, and goes on; what is quick says nothing."""

    def waits(self, said, release, *command):
        waiting = subprocess.Popen([STINT, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(waiting.stderr.readline(), f"stint {command[0]}: {self.table}: process {said}. Waiting for it, for 10 s at most\n")
        release()
        self.assertEqual(waiting.communicate(timeout=30)[1], "")
        self.assertEqual(waiting.returncode, 0)

    def test_a_lock(self):
        self.make("9/d name=p overrides")
        with open(self.table, "rb") as held:
            for command in (["take", self.table, "p", "k"], ["override", "-q", "--for=1h", self.table, "p", "k", "1"],
                            ["make", "--entries=1000", self.table]):
                fcntl.flock(held, fcntl.LOCK_EX)
                self.waits(f"{os.getpid()} has the lock: it makes or resizes the table",
                           lambda: fcntl.flock(held, fcntl.LOCK_UN), *command)
            fcntl.flock(held, fcntl.LOCK_EX)
            self.steps(("peek p k", 1)) # who only reads takes no lock
            fcntl.flock(held, fcntl.LOCK_SH)
            self.steps(("override --clear p k", 0))

    def test_a_stopped_process(self):
        self.make("9/d name=p")
        holder, _ = [Server(self, self.table) for _ in range(2)]

        def release():
            self.steps(("peek p k", 0))
            holder.process.send_signal(signal.SIGCONT)
            self.assertEqual(holder.ask("unlock"), "0")
        self.addCleanup(holder.process.send_signal, signal.SIGCONT)
        for command in ["take", self.table, "p", "k"], ["make", "--entries=1000", self.table]:
            self.assertEqual(holder.ask("lock"), "0")
            holder.process.send_signal(signal.SIGSTOP)
            self.waits(f"{holder.process.pid}, which has the table open, is stopped", release, *command)


class Documents(Tool):
    """The man page and the completion know all commands and options."""

    def options(self, command):
        return re.findall(r"^  (?:-\w, )?--([\w-]+)", self.good(command, "--help"), re.MULTILINE)

    def test_man_page(self):
        """What stands behind each command there is what its --help lists."""
        page = (SOURCE / "src" / "tool" / "stint.1").read_text()
        synopsis = page.split(".Sh SYNOPSIS")[1].split(".Sh DESCRIPTION")[0]
        commands_ = re.findall(r"^\.Nm\n\.Cm (\w+)\n((?:(?!\.Nm).*\n)*)", synopsis, re.MULTILINE)
        self.assertEqual(list(dict.fromkeys(name for name, _ in commands_)), COMMANDS)
        commands_ = [(name, "".join(shown for other, shown in commands_ if other == name)) for name in COMMANDS]
        words = {"Fl q": ["quiet"], "Fl n": ["number"], "Ar keys": ["hex", "hash", "address", "id", "name"],
                 "Ar reading": ["key", "address", "time"]}
        for command, shown in commands_:
            self.assertIn(f".It Cm {command}\n", page)
            options = [option for word in re.findall(r"Fl [\w-]+|Ar keys$|Ar reading$", shown.replace(" | ", "\n"),
                                                     re.MULTILINE)
                       for option in words.get(word, [word.removeprefix("Fl -")])]
            self.assertEqual(sorted(set(options)), sorted(set(self.options(command)) - {"help"}), command)
        self.assertLessEqual(max(map(len, page.splitlines())), 80)

    # Each is given the words of a command line, of which the last is to be completed. What stands for
    # the shell's own functions prints what they are given.
    SHELLS = {
        "bash": ['. "$0/stint.bash"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); compgen() { echo FILES; }; '
                 '_stint "$1"; printf "%s\\n" "${COMPREPLY[@]}"'],
        "zsh": ['folder=$0; words=("$1" "${@[3,-1]}"); CURRENT=$#words; compadd() { shift; print -rl -- "$@"; }; '
                '_files() { print FILES; }; completing() { . "$folder/stint.zsh"; }; completing'],
        "fish": ['function __fish_complete_path; echo FILES; end; set -g program $argv[2]; set -g typed $argv[4..-1]; '
                 'function commandline; if test $argv[1] = -ct; printf "%s\\n" $typed[-1]; else; echo $program; '
                 'for i in (seq (math (count $typed) - 1)); printf "%s\\n" $typed[$i]; end; end; end; '
                 'source $argv[1]/stint.fish; __stint_complete'],
    }

    def complete(self, shell, *words):
        folder, program = str(SOURCE / "src" / "tool"), os.path.abspath(STINT)
        done = subprocess.run([shell, "-c", *self.SHELLS[shell], folder, program, "stint", *words], capture_output=True,
                              text=True, timeout=60, cwd=self.directory, check=False)
        self.assertEqual(done.stderr, "", (shell, words))
        return [word for word in done.stdout.split("\n") if word]

    def completed(self, *words):
        """What all shells that there are offer, which is the same."""
        offered = {shell: self.complete(shell, *words) for shell in self.SHELLS if shutil.which(shell)}
        first = offered["bash"]
        self.assertEqual(offered, dict.fromkeys(offered, first), words)
        return first

    def test_completion(self):
        self.assertEqual(self.completed(""), ["--help", "--version", *COMMANDS])
        self.assertEqual(self.completed("re"), [name for name in COMMANDS if name.startswith("re")])
        for command in COMMANDS:
            self.assertEqual(self.completed(command, "--"), ["--" + option for option in self.options(command)], command)
            self.assertEqual(self.completed(command, ""), ["FILES"])
        self.assertEqual(self.completed("take", "--full", "re"), ["refuse", "replace"])
        self.assertEqual(self.completed("top", "--by", ""), ["used", "refused", "policy"])
        self.assertEqual(self.completed("top", "--number", ""), [])
        self.assertEqual(self.completed("none", ""), [])

    def test_completion_of_policies(self):
        self.make("9/d name=p", "9/h name=login", "9/h name=logout")
        for command in (*KEYED, "override"):
            self.assertEqual(self.completed(command, self.table, ""), ["p", "login", "logout"])
            self.assertEqual(self.completed(command, "--hex", self.table, "--id", "lo"), ["login", "logout"])
            self.assertEqual(self.completed(command, self.table, "p", ""), [])
        for *words, offered in (("take", "--cost", "3", self.table, "logi", ["login"]), ("take", self.path("none"), "", []),
                                ("bans", self.table, "--policy", "logo", ["logout"]), ("apply", self.table, "", ["FILES"]),
                                ("make", "--policies", "", ["FILES"])):
            self.assertEqual(self.completed(*words), offered)
        for name, typed, offered in ("two words", "two", "two\\ words"), ("*", "*", "\\*"):  # and no files
            self.good("take", "--add", self.table, f'9/s name="{name}"', "k")
            self.assertEqual(self.complete("bash", "take", self.table, typed), [offered])
        self.fails(2, "stint complete: it is for the completions of shells\n", "complete", "x")

    def test_each_option(self):
        """A command takes what its --help lists, with a value or without, and nothing that others' lists; and the
        page explains it."""
        page = (SOURCE / "src" / "tool" / "stint.1").read_text().split(".Sh DESCRIPTION")[1]
        values, listed = {}, {command: self.options(command) for command in COMMANDS}
        for command in COMMANDS:
            for option, value in re.findall(r"^  (?:-\w, )?--([\w-]+)(\[=| [A-Z][A-Z=]*| [a-z]+\|)?",
                                            self.good(command, "--help"), re.MULTILINE):
                self.assertEqual(bool(values.setdefault(option, value)), bool(value), option)
        del values["help"]
        for command, (option, value) in itertools.product(COMMANDS, values.items()):
            with self.subTest(command=command, option=option):
                code, out, err = stint(command, f"--{option}")
                self.assertEqual((code, out), (2, ""))
                if option not in listed[command]:
                    if not any(name.startswith(option) for name in listed[command]):  # which this is short for
                        self.assertIn(f"there is no option '--{option}'", err)
                    continue
                if command != "replay":
                    self.assertTrue(re.search(rf"Fl -{option}\b", page), "the page explains it")
                self.assertEqual("its value is missing" in err, bool(value and value != "[="))
                self.assertNotIn("there is no option", err)
                if not value:
                    self.assertIn("this option takes no value", stint(command, f"--{option}=x")[2])

@unittest.skipUnless(shutil.which("jq"), "there is no jq")
class Incidents(Tool):
    """doc/troubleshooting.md, on tables that were brought into the state that each section is about."""

    POLICIES = "100/minute name=permin overrides", f"1/{YEAR} name=login ban=300d", "2/30m name=busy in-flight"

    def banned(self, *keys):
        for key in keys:
            self.steps((f"take -q login {key}", 0), (f"take -q login {key}", 1))

    def an_attacker_is_not_refused(self):
        self.steps(*[("take -q --address=24 permin 198.51.100.66", 0)] * 7)
        while not 0.1 < time.time() % 1 < 0.9:  # it ends amid a second, as on the page
            time.sleep(0.05)
        self.steps(("override -q --for=8h --address=24 permin 198.51.100.66 unlimited", 0))

    def a_wrong_limit_or_ban_was_rolled_out(self):
        self.write("limits.conf", "9/h name=login ban=1h\n")
        self.banned("203.0.113.7", "203.0.113.8", "alice", "203.0.113.9", "203.0.113.10")
        self.steps(*((f"{command} {key} {more}", 0) for key in ("203.0.113.9", "203.0.113.10")
                     for command, more in (("reset -q login", ""), ("override -q --for=8h permin", "0"))))

    def the_clock_was_wrong(self):
        server = Server(self, self.table, 2 * 86400)
        key = server.ask("key", "203.0.113.7")
        self.assertEqual([server.ask("take", "login", key, 1).split()[0] for _ in range(2)], ["granted", "refused"])
        server.end()
        # As if that was for two hours, by a clock that was two days ahead.
        self.good("override", "-q", "--for=50h", self.table, "permin", "203.0.113.9", "0")

    def a_process_crashed(self):
        key = self.servers[0].ask("key", "192.0.2.7")
        for server in self.servers:
            server.ask("take", "busy", key, 1)
        self.servers[0].process.kill()
        self.servers[0].process.wait(timeout=30)

    def the_tables_file_was_cut_off(self):
        pass

    def recipes(self):
        self.banned("alice", "bob")
        self.steps(("override -q --for=8h permin 192.0.2.5 1000", 0))

    def test_each_line(self):
        page = (SOURCE / "doc" / "troubleshooting.md").read_text()
        (self.directory / "bin").mkdir()
        (self.directory / "bin" / "stint").symlink_to(os.path.abspath(STINT))
        environment = {**os.environ, "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"}
        sections = console.sections(page, "/run/web/")
        self.assertGreater(len(sections), 5)
        self.table = self.path("limits")
        for title, commands_ in sections.items():
            with self.subTest(title):
                Path(self.table).unlink(missing_ok=True)
                self.make(*self.POLICIES, options=("--labels=100",))
                self.servers = [Server(self, self.table) for _ in range(2)] if "crashed" in title else []
                getattr(self, re.sub(r"\W+", "_", title.replace("'", "").lower()))()
                for command, expected in commands_:
                    console.check(self, command, expected, "/run/web/", f"{self.directory}/", environment)
                for server in self.servers[1:]:
                    server.end()


class Killed(Tool):
    """Commands die before and after each of their system calls, while two processes decide. (Set-up, apply
    and resize: tests/files/faults.c.)"""

    ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"} # which cannot be traced
    STEP = 1 if "STINT_TEST_FACTOR" in os.environ else \
        3 * int(os.environ.get("STINT_TEST_DIVISOR", "1"))

    def deaths(self, *arguments):
        """Runs the command to each of its deaths. Yields the number of the stop, and what it printed; None for
        the run that comes to its end."""
        stop = 1
        while True:
            done = subprocess.run([KILLED, str(stop), STINT, *map(str, arguments)], timeout=60,
                                  capture_output=True, text=True, env=self.ENVIRONMENT, check=False)
            self.assertNotEqual(done.returncode, 101, done.stderr)
            if done.returncode != KILLED_CODE:
                yield None, done
                return
            yield stop, done
            # These ask the system of each process, which takes thousands of calls.
            stop += self.STEP * (10 if arguments[0] in ("status", "watch") else 1)

    def loaded(self, *policies):
        """A table that two processes load with two threads each."""
        self.make(*policies, options=("--labels=100",))
        self.servers = [Server(self, self.table) for _ in range(2)]
        for server in self.servers:
            server.ask("load", "load", 2, 3)

    def granted(self):
        return sum((server.stop() for server in self.servers), collections.Counter())

    def test_no_count_is_lost(self):
        """What a killed take took is the only count that nobody knows."""
        self.loaded(f"100M/{YEAR} name=load")
        known = unknown = 0
        for cost in 1, 7:
            for stop, done in self.deaths("take", "--json", f"--cost={cost}", self.table, "load", "load-0"):
                known += json.loads(done.stdout)["granted"] if done.stdout else 0
                unknown += cost if stop is not None and not done.stdout else 0
        for _ in self.deaths("peek", self.table, "load", "load-0"):
            pass
        total, used = self.granted()["load-0"], self.used("load", "load-0")
        self.assertTrue(total + known <= used <= total + known + unknown, (total, known, unknown, used))
        self.assertGreater(known, 0)

    def test_others(self):
        """Those that reset, charge, add policies and look: the servers and the next command go on."""
        self.loaded(f"100M/{YEAR} name=load")
        for command in (["charge", self.table, "load", "load-1"], ["reset", self.table, "load", "load-2"],
                        ["take", "--add", self.table, "1000/s name=added", "k"],
                        ["take", "--limit=1", self.table, "load", "load-0"],
                        *([*look, self.table] for look in LOOKS)):
            code = None
            for stop, done in self.deaths(*command):
                code = done.returncode if stop is None else code
            # A reset that was killed just before may have left nothing to forget.
            may_fail = command[1] == "--limit=1" or command[0] == "reset"
            self.assertIn(code, (0, 1) if may_fail else (0,), (command, done.stderr))
        self.assertGreater(sum(self.granted().values()), 100)
        self.assertEqual(list(self.policies()), ["load", "added"])

    def test_make(self):
        """There is a whole table, or none, and nothing beside it."""
        for stop, _ in self.deaths("make", "--entries=1000", "--labels=10", self.table):
            self.assertLessEqual(set(os.listdir(self.directory)), {"table"})
            if stop is None or os.path.exists(self.table):
                self.steps((f"take --add 1/{YEAR} k", 0))
                os.unlink(self.table)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    STINT, SERVER, KILLED = sys.argv[1:4]
    commands.COMMAND[:] = [STINT]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
