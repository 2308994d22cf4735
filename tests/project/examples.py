#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples of tests/examples, compiled as their readers do it, and run.

    examples.py SOURCE BUILD MESON CC [TEST...]
"""
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import project
from commands import must
from servers import free_port, until, wrk

PATIENCE = 60  # s; for what takes milliseconds unless the machine is busy
YEAR = "366d"  # no window ends while a test runs


class Example(project.Case):
    @classmethod
    def setUpClass(cls):
        """The library as it is installed, once for all tests of the class."""
        directory = tempfile.TemporaryDirectory(prefix="stint-examples-")
        cls.addClassCleanup(directory.cleanup)
        installer = cls.installed = project.Case()
        installer.directory = Path(directory.name)
        installer.install()

    def setUp(self):
        super().setUp()
        self.environment, self.running = self.installed.environment, self.installed.running

    def compile(self, name, *options, compiler=None):
        """The example with the installed library, as pkg-config says. Returns the program."""
        source = (project.SOURCE / "tests" / "examples" / name).read_text()
        return self.linked(name, source, *options, "-O2", compiler=compiler)

    def start(self, *command):
        """A server, which is ended with the test. What it says goes to a file."""
        self.said = self.directory / "said"
        with self.said.open("a") as said:
            process = subprocess.Popen(list(map(str, command)), stderr=said, env=self.running,
                                       stdin=subprocess.DEVNULL, start_new_session=True)

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a server that has taken over, too
            process.wait()
        self.addCleanup(end)
        return process

    def says(self, pattern, times=1):
        return until(lambda: (found := re.findall(pattern, self.said.read_text()))[times - 1:] and found, pattern)


class Server(Example):
    NETWORKS = "127.0.0.0/8", "10.0.0.0/8"

    def limit(self, window=YEAR, **limits):
        """Writes the policies of these names."""
        self.policies.write_text("".join(f"{limit}/{window} name={name}\n" for name, limit in limits.items()))

    def serve(self, client, traffic, free, paid, window=YEAR, options=()):
        self.program = self.compile("server.c", "-std=gnu11", "-D_GNU_SOURCE", *options)
        self.policies = self.directory / "policies"
        self.limit(client=client, traffic=traffic, free=free, paid=paid, window=window)
        self.port = free_port()
        process = self.start(self.program, "127.0.0.1", self.port, self.directory / "table", self.policies,
                             *self.NETWORKS)
        self.says("is ready")
        return process

    def ask(self, *requests, fields=()):
        """Sends requests at once by one connection, the last with Connection: close. Returns what came
        back, each answer as its status, its fields, and its bytes."""
        text = ""
        for number, path in enumerate(requests, 1):
            last = ["Connection: close"] if number == len(requests) else []
            text += "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, *last, "", ""])
        return self.ask_raw(text)

    def ask_raw(self, text):
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            connection.sendall(text.encode())
            got = b""
            while part := connection.recv(65536):
                got += part
        answers, rest = [], got.decode()
        while rest:
            head, _, body = rest.partition("\r\n\r\n")
            found = dict(re.findall(r"^([\w-]+): (.*)$", head.replace("\r", ""), re.MULTILINE))
            length = int(found["Content-Length"])
            answers.append((int(head.split()[1]), found, len(head) + 4 + length, body[:length]))
            rest = body[length:]
        return answers

    def statuses(self, *requests, **more):
        return [answer[0] for answer in self.ask(*requests, **more)]

    def metric(self, name, policy):
        [(_, _, _, text)] = self.ask("/metrics")
        return int(re.search(rf'^{name}\{{policy="{policy}"[^}}]*\}} (\d+)$', text, re.MULTILINE)[1])

    def wrk(self, *fields, seconds=2):
        """Returns a function that waits for its end, and returns how many answers were 200."""
        self.need("wrk")
        fields = [word for field in fields for word in ("-H", field)]
        counts = wrk(f"http://127.0.0.1:{self.port}/", *fields, seconds=seconds)

        def done():
            total, refused = counts()
            # The tokens were gone before the end. On a machine too slow for that it goes on.
            return total - refused if refused else total + self.wrk(*fields[1::2])()
        return done

    def test_exact_under_load_and_restart(self):
        first = self.serve(5000, "200M", 3000, "100K")
        client = "X-Forwarded-For: 203.0.113.9, 198.51.100.7, 10.0.0.1"
        self.assertEqual(self.wrk(client, "X-API-Key: free-ann")(), 3000)
        charged = self.metric("stint_charged_tokens_total", "traffic")
        self.assertGreater(charged, 3000 * 100)

        # What the plan refused cost the client nothing. In the middle another process takes over.
        done = self.wrk(client, seconds=3)
        time.sleep(1)
        first.send_signal(signal.SIGUSR2)
        self.says("is ready", times=2)
        self.assertEqual(done(), 2000)
        self.assertEqual(first.wait(PATIENCE), 0)
        self.assertEqual(self.statuses("/", fields=[client]), [429])
        self.assertEqual(len(self.says("refused, limit")), 2)  # once for each key

    def test_addresses(self):
        """Of X-Forwarded-For counts what stands right of the first that is not trusted, and that."""
        self.serve(2, "1M", 10, 10)
        forwarded = "X-Forwarded-For: "
        self.assertEqual(self.statuses("/", "/", "/", fields=[forwarded + "198.51.100.7"]), [200, 200, 429])
        for same in ("198.51.100.7, 10.1.2.3,127.0.0.1", "192.0.2.1, 198.51.100.7", "192.0.2.1,, 198.51.100.7 ",
                     "192.0.2.1\r\nx-forwarded-for: 198.51.100.7", "::ffff:198.51.100.7"):
            self.assertEqual(self.statuses("/", fields=[forwarded + same]), [429], same)
        self.assertEqual(self.statuses("/", fields=[forwarded + "192.0.2.1, 198.51.100.8"]), [200])
        self.assertEqual(self.statuses("/", "/", fields=[forwarded + "2001:db8::1"]), [200, 200])
        self.assertEqual(self.statuses("/", fields=[forwarded + "2001:db8::ffff"]), [429])  # its /64
        # Who sends nonsense is the proxy that sent it.
        self.assertEqual(self.statuses("/", "/", fields=[forwarded + "192.0.2.1, nonsense"]), [200, 200])
        self.assertEqual(self.statuses("/", fields=[forwarded + "192.0.2.1, other nonsense"]), [429])
        self.assertEqual(self.statuses("/"), [429])
        self.assertEqual(self.ask("/metrics", fields=[forwarded + "192.0.2.1"])[0][3], "Hello.\n")
        self.assertEqual(self.statuses("/metrics"), [200])

    def test_fields_and_charge(self):
        self.serve(3, 1000, 10, 1)
        one, two, three = self.ask("/", "/", "/", fields=["X-API-Key: free-ann"])
        for number, answer in enumerate((one, two, three), 1):
            self.assertEqual(answer[0], 200)
            self.assertRegex(answer[1]["RateLimit"], rf'^"client";r={3 - number};.*"free";r={10 - number};')
            self.assertIn('"traffic";q=1000;', answer[1]["RateLimit-Policy"])
        left = int(re.search(r'"traffic";r=(\d+)', two[1]["RateLimit"])[1])
        self.assertEqual(left, 1000 - one[2])
        [four] = self.ask("/", fields=["X-API-Key: free-ann"])
        self.assertEqual((four[0], four[1]["RateLimit"][:12]), (429, '"client";r=0'))
        self.assertGreater(int(four[1]["Retry-After"]), 0)
        self.assertEqual(self.metric("stint_charged_tokens_total", "traffic"), one[2] + two[2] + three[2])

        # Many in one turn, and one that its plan refuses: the client's two tokens are another's.
        other = ["X-Forwarded-For: 192.0.2.9"]
        self.assertEqual(self.statuses("/", "/", "/", fields=[*other, "X-API-Key: paid-eve"]), [200, 429, 429])
        self.assertEqual(self.statuses("/", "/", "/", fields=other), [200, 200, 429])

    def test_policies_change_while_it_runs(self):
        process = self.serve(2, "1M", 10, 10)
        self.assertEqual(self.statuses("/", "/", "/"), [200, 200, 429])
        self.limit(client=5)
        process.send_signal(signal.SIGHUP)
        self.says("policies applied")
        self.assertEqual(self.statuses(*["/"] * 4), [200, 200, 200, 429])
        self.policies.write_text(f"9/{YEAR} name=client # whoever it is\n9/fortnight\n")
        process.send_signal(signal.SIGHUP)
        self.says("line 2")
        self.assertEqual(self.statuses("/"), [429])

        # The counts survive an end and a start.
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)
        self.limit(client=6)
        self.start(self.program, "127.0.0.1", self.port, self.directory / "table", self.policies)
        self.says("is ready", times=2)
        self.assertEqual(self.statuses("/", "/"), [200, 429])

    def test_windows_to_and_fro(self):
        """Each restart begins beside the server before, with the other window. No start wants for an id."""
        running = self.serve(9, "9M", 9, 9, window="d").pid
        for restart in range(1, 1 + int(os.environ.get("STINT_TEST_RESTARTS", "70"))):
            self.limit(client=9, traffic="9M", free=9, paid=9, window="dh"[restart % 2])
            os.kill(running, signal.SIGUSR2)
            running = int(self.says(r"(\d+) is ready", times=restart + 1)[-1])
        self.assertEqual(self.statuses("/"), [200])
        self.assertEqual(len(self.said.read_text().splitlines()), 1 + restart)  # nobody complains

    def test_requests_that_are_none(self):
        """By the sanitizers' build of the server, with the library as it is installed."""
        self.serve("1K", "1M", 10, 10, options=("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
        for text in ("nonsense\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
                     "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "GET / HTTP/1.1\r\na:\nb: c\r\n\r\n",
                     "GET / HTTP/1.1\r\na: \0\r\n\r\n", "GET / HTTP/1.1\r\na: ".ljust(8192, "x")):
            [answer] = self.ask_raw(text)
            self.assertEqual((answer[0], answer[1]["Connection"]), (400, "close"), text[:50])
        self.assertEqual(self.ask_raw("POST / HTTP/1.0\r\n\r\n")[0][0], 501)
        everything = ["X-API-Key:  free-a \t", "X-Forwarded-For:", "X-Forwarded-For: " + "1, " * 2000]
        self.assertEqual(self.statuses(*["/"] * 12, fields=everything), [200] * 10 + [429] * 2)
        for number in range(5):  # gone before the answer
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20 * number + b"GET /")
        self.assertEqual(self.statuses("/metrics"), [200])
        self.assertNotIn("ERROR", self.said.read_text())


class Cxx(Example):
    def test_limiter(self):
        out = must(self.compile("limiter.cc", "-std=c++17", compiler=self.cxx()), env=self.running)
        self.assertRegex(out, r"^1000 done, 3000 not\n'fortnight' is no unit: expected ms, s, m, ")


class Waiting(Example):
    def test_paced(self):
        """Jobs are done when they were told; one that comes after one was cancelled gets the last place."""
        lines = "a 1", "a 2", "a 3", "a 4", "a 5", "a 6", "b 1", "- a 3", "- a 9", "a 7", "a " + "x" * 99
        program = self.compile("paced.c", "-std=gnu11")
        began = time.monotonic()
        with open(self.write("lines", "\n".join([*lines, ""])), encoding="utf-8") as jobs:
            out = must(program, "5/s burst=2 reserve=3", stdin=jobs, env=self.running)
        took = time.monotonic() - began
        self.assertEqual(out.splitlines(), [
            "a 1: done", "a 2: done", "a 3: waits 0.2 s", "a 4: waits 0.4 s", "a 5: waits 0.6 s",
            "a 6: refused, try again in 0.2 s", "b 1: done", "a 3: cancelled", "a 9: does not wait",
            "a 7: waits 0.6 s", "a " + "x" * 18 + "...: the name is too long",
            "a 4: done", "a 5: done", "a 7: done"])
        self.assertGreater(took, 0.59)


class Documents(unittest.TestCase):
    def test_each_is_told_of(self):
        """By the page beside them; and each says what it shows, and what it leaves out."""
        folder = project.SOURCE / "tests" / "examples"
        page = (folder / "README.md").read_text()
        examples = [path for path in folder.iterdir() if path.name != "README.md"]
        self.assertEqual(len(examples), 4)
        for example in examples:
            self.assertIn(f"]({example.name})", page)
            head = example.read_text()[:2000]
            self.assertIn("shows", head, example)
            self.assertRegex(head, r"leaves\s+(//|#)?\s*out", example)


if __name__ == "__main__":
    project.SOURCE, project.BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    project.MESON, project.CC = sys.argv[3], sys.argv[4]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
