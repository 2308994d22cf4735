#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the nginx module does with bans and with limits that single keys have, and the command `stint`
on the zone of a running nginx.

    operating.py MODULE_SO [TEST...]

The command is $STINT, or the `stint` of the PATH.
"""
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest

# Where a request must have ended before the next one there is one worker.

sys.dont_write_bytecode = True  # of what is beside it
import module
import console
from features import holds, policy_status, status
from module import PER_LONG, STATUS, Case, Server, close, location, main, until
from servers import over_and_over

STINT = os.environ.get("STINT", "stint")


class Bans(Case):
    """Keys that are refused everything for a while, for having been refused."""

    FIELDS = ('add_header X-Stint "$stint_status $stint_policy $stint_used/$stint_limit" always;'
              "add_header X-Retry $stint_retry_after always;")

    def banning(self, policy, *directives, http="", limit="stint_limit z p $arg_user;", **more):
        return self.serve(f"stint_zone z entries=7k labels=100; stint_policy z {policy} name=p;\n"
                          f"stint_headers both; {http}",
                          location("/", limit, self.FIELDS, *directives) + STATUS, **more)

    def test_a_ban(self):
        ban = 366 * 86400  # s; longer than the window
        with self.banning(f"2{PER_LONG} ban=366d") as server:
            self.assertEqual(server.statuses(2, "/file?user=a"), [200, 200])
            for _ in range(3):  # by the first refusal, and from then on
                response = self.expect((429, "BANNED p 2/2"), server.get("/file?user=a"))
                # All fields tell the end of the ban, not that of the window.
                after = response["Retry-After"]
                self.assertIn(int(after), range(ban - 100, ban + 1))
                self.assertEqual((response["X-Retry"], response["RateLimit"]), (after, f'"p";r=0;t={after}'))
                self.assertAlmostEqual(int(response["X-RateLimit-Reset"]) - time.time(), int(after), delta=5)
            self.assertEqual(server.get("/file?user=b").stint, "PASSED p 1/2")
            self.assertEqual([line[3] for line in server.access_log(6)], ["PASSED"] * 2 + ["BANNED"] * 3 + ["PASSED"])
            found = {**status(server), **policy_status(server, "p")}
            self.assertEqual([found[name] for name in ("overrides", "barred", "banned", "allowed", "refused", "bans",
                                                       "strikes_lost",
                                                       "policy")], [0, 0, 1, 3, 3, 1, 0, "2/52 weeks ban=366d"])
            # One line in the log, with the key's name, as the zone keeps names.
            self.assertEqual(server.logged(r"\[(\w+)\] .*limiting requests, (.*?), client: 127.0.0.1"),
                             [("error", f'banned for {ban} s, key "a", 2 of 2 used, by policy "p" in zone "z"')])

    def test_what_is_logged_is_escaped(self):
        for zone, said in ("", ""), ("labels=10", r', key "x\\x5C\\x22\\x09\\xC3"'):
            with self.serve(f"stint_zone z entries=7k {zone}; stint_policy z 1{PER_LONG} ban=1500ms name=p;"
                            "stint_limit z p $http_key;", workers=1) as server:
                server.statuses(3, headers={"Key": b'x\\"\t\xc3'})
                self.assertEqual(server.logged(r"limiting requests, (banned.*?), \d of"),
                                 [f"banned for 2 s{said}".replace("\\\\", "\\")])

    def test_after_several_windows(self):
        """A ban ends by itself."""
        with self.banning("1/200ms ban=2s after=3") as server:
            outcomes = []

            def ask(until_outcome):
                outcomes.append(server.get("/file?user=a").stint.split()[0])
                return outcomes[-1] == until_outcome
            until(lambda: ask("BANNED"), "a ban")
            self.assertGreaterEqual(outcomes.count("REJECTED"), 2)
            # Each window with a refusal is told, the last with the ban.
            self.assertGreaterEqual(len(server.logged("limiting requests, 1 of 1 used")), 2)
            self.assertEqual(len(server.logged("limiting requests, banned for 2 s")), 1)
            until(lambda: ask("PASSED"), "its end")
            self.assertEqual(status(server)["banned"], 0)

    def test_dry_run_and_shadow(self):
        for more, policy, outcome, said in (("stint_dry_run on;", "", "BANNED_DRY_RUN", "dry run, banned"),
                                            ("", "shadow", "REJECTED_SHADOW", "shadow, 1 of 1 used")):
            with self.subTest(outcome=outcome), self.banning(f"1{PER_LONG} ban=1h {policy}", more) as server:
                for expected in "PASSED", outcome, outcome:
                    response = self.expect((200, f"{expected} p 1/1"), server.get("/file?user=a"))
                    self.assertEqual((response["Retry-After"], response["X-Retry"]), (None, None))
                self.assertEqual(len(server.logged(f"limiting requests, {said}")), 1)

    def test_beside_another_limit(self):
        """A client that is banned uses up nothing else. The longest time to wait is told."""
        with self.banning(f"2{PER_LONG} ban=1h", "stint_limit z all k;",
                          http="stint_policy z 3/364d start=first name=all;") as server:
            self.assertEqual(server.statuses(4, "/file?user=a"), [200, 200, 429, 429])
            self.assertEqual(policy_status(server, "all")["allowed"], 2)
            self.assertEqual(server.get("/file?user=b").status, 200)
            self.assertEqual(server.get("/file?user=b").stint, "REJECTED all 3/3")
            # Now both refuse. The one that bans is told, though the other's window ends later.
            response = self.expect((429, "BANNED p 2/2"), server.get("/file?user=a"))
            self.assertEqual(response["X-Retry"], response["Retry-After"])
            self.assertGreater(int(response["X-Retry"]), 86400)

    def test_it_survives_reloads(self):
        """Without bans it is as any key, with them again, banned again."""
        with self.banning(f"1{PER_LONG} ban=1h") as server:
            self.assertEqual(server.statuses(2, "/file?user=a"), [200, 429])
            text = server.configuration.read_text()
            for policy, expected in (("ban=1h", "BANNED"), ("ban=10s", "REJECTED"), ("overrides", "REJECTED"),
                                     ("", "REJECTED"), ("ban=2h after=2", "BANNED")):
                server.configuration.write_text(text.replace("ban=1h", policy))
                server.reload()
                self.assertEqual(server.get("/file?user=a").stint.split()[0], expected)
            self.assertEqual(server.logged("changed from (.*)")[-1],
                             '"1/52 weeks" to "1/52 weeks ban=2h after=2"')

    def test_a_reload_that_brings_bans_needs_room(self):
        """For several policies at once, too, each of which would fit alone; and beside those that were removed."""
        def configured(names, more):
            return "stint_zone z entries=1k policies=3; stint_limit z a k;" + "".join(
                f"stint_policy z 3{PER_LONG} name={name} {more};\n" for name in names)
        with self.serve(configured("abc", "")) as server:
            self.assertEqual(server.get().stint, "PASSED a 1/3 2")
            for names, said in (("ab", 'room for 3 policies: "policies=4" is needed for "b", as those with a ban or overrides count twice, in'),
                                ("a", 'no room for the policy "a" in')):
                [line] = server.configure(configured(names, "ban=1h"), "").reload_refused()
                self.assertIn(f'stint zone "z" has {said}', line)
            self.assertEqual(server.logged(r"\[alert\]"), [])
            self.assertEqual(server.get().stint, "PASSED a 2/3 1")


class Upstream(Case):
    def upstream(self, answer):
        """A server behind, which calls this before it answers each request. Returns its address."""
        class Behind(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                answer()
                with contextlib.suppress(ConnectionError):  # its client may be gone
                    self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ndone")

            def log_message(self, *_):
                pass
        behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind)
        threading.Thread(target=behind.serve_forever, daemon=True).start()
        self.addCleanup(behind.server_close)
        self.addCleanup(behind.shutdown)
        return f"http://127.0.0.1:{behind.server_port}"


class Filed(Upstream):
    """A zone in a file, and the command on it."""

    def filed(self, policies, *locations, **more):
        server = Server(module.MODULE, **more)
        self.table = server.directory / "table"
        server.configure(f"stint_zone z entries=1k file={self.table} labels=100;\n{policies}",
                         "".join(locations) + STATUS)
        return server

    def stint(self, *arguments, code=0):
        """The command. Returns what it wrote."""
        done = subprocess.run([STINT, *arguments], capture_output=True, text=True, timeout=20)
        self.assertEqual((done.returncode, done.stderr), (code, ""), arguments)
        return done.stdout

    def override(self, key, limit, policy="p"):
        self.stint("override", "--replace", "--for", "1h", self.table, policy, key, str(limit))


class Overrides(Filed):
    """Single keys that have another limit for a while."""

    def test_it_holds_at_once_in_all_workers(self):
        with self.filed(f"stint_policy z 20{PER_LONG} overrides name=p; stint_headers draft;",
                        location("/", "stint_limit z p $arg_user;"), workers=4) as server:
            def count(user, number):
                statuses = server.statuses(number, f"/file?user={user}")
                self.assertLessEqual(set(statuses), {200, 429})
                return statuses.count(200)
            # On a connection of its own each, so that all workers are asked.
            self.assertEqual([count("a", 25), count("b", 5)], [20, 5])
            self.override("a", 30)
            self.override("b", 6)
            self.assertEqual([count("a", 20), count("b", 20), count("c", 21)], [10, 1, 20])
            self.override("a", 0)
            for _ in range(10):
                self.expect((429, "BANNED p 30/0 0"), server.get("/file?user=a"))
            self.override("a", 2**28)
            self.assertEqual(count("a", 30), 30)
            found = status(server)
            self.assertEqual([found[name] for name in ("overrides", "barred", "banned")], [2, 0, 0])
            # Over a reload, and a restart.
            server.reload()
            server.stop()
            server.start()
            self.assertEqual([count("a", 5), count("b", 1)], [5, 0])
            self.stint("override", "--clear", self.table, "p", "a")
            self.stint("override", "--clear", self.table, "p", "b")
            self.assertEqual([count("a", 10), count("b", 20), status(server)["overrides"]], [0, 14, 0])
            self.assertGreater(len({line[0] for line in server.access_log(100)}), 1)

    def test_what_the_client_is_told(self):
        with self.filed(f"stint_policy z 2{PER_LONG} overrides name=p; stint_headers both;",
                        location("/", "stint_limit z p $arg_user limit=3;")) as server:
            self.override("a", 9)
            self.override("b", 0)
            response = server.get("/file?user=a")  # it beats the limit of the request
            self.assertEqual((response.stint, response["X-RateLimit-Limit"]), ("PASSED p 1/9 8", "9"))
            response = server.get("/file?user=b")
            for field in response["Retry-After"], response["RateLimit"].split("t=")[1]:
                self.assertIn(int(field), range(3500, 3602))
            self.assertEqual(len(server.logged("limiting requests, overridden, banned, 0 used, by policy")), 1)

class Command(Filed):
    """`stint` on the zone of a running nginx."""

    def test_it_sees_and_does_what_workers_do(self):
        with self.filed(f"stint_policy z 5{PER_LONG} name=p;",
                        location("/file", "stint_limit z p $arg_user;"),
                        location("/other", "stint_limit z p $binary_remote_addr;"),
                        location("/net", "stint_limit z p $remote_addr prefix=24;"), workers=3) as server:
            table = self.table
            self.assertEqual(server.statuses(7, "/file?user=a"), [200] * 5 + [429] * 2)
            self.assertEqual(server.statuses(2, "/file?user=b"), [200] * 2)
            about = self.look()
            self.assertEqual(about["live"], status(server)["live"])
            self.assertEqual([about["policies"][0][name] for name in ("name", "allowed", "refused")], ["p", 7, 2])
            self.stint("peek", "--quiet", table, "p", "a", code=1)
            self.stint("peek", "--quiet", table, "p", "b")
            [first, *_] = json.loads(self.stint("top", "--json", "--by", "refused", table))["top"]
            self.assertEqual((first["label"], first["used"], first["refused_windows"]), ("a", 5, 1))
            # Tokens of the same keys; and keys that are addresses.
            for *command, path, told in (("take", "--cost=3", table, "p", "b", "/file?user=b", "REJECTED p 5/5 0"),
                                         ("reset", table, "p", "b", "/file?user=b", "PASSED p 1/5 4"),
                                         ("take", "--cost=2", "--hex", table, "p", "7f000001", "/other", "PASSED p 3/5 2"),
                                         ("take", "--cost=4", "--address=24", table, "p", "127.0.0.77", "/net/x",
                                          "PASSED p 5/5 0")):
                self.stint(*command)
                self.assertEqual(server.get(path).stint, told)

    def test_a_file_gets_another_size(self):
        """As the README says it."""
        page = (pathlib.Path(__file__).parents[2] / "src" / "nginx" / "README.md").read_text()
        self.assertIn("**The size of a file.** A start (`nginx -t && systemctl restart nginx`)", page)
        [resize] = re.findall(r"`stint\s+(resize --entries 100k) /run/stint/api`", page)
        with self.filed(f"stint_policy z 5{PER_LONG} overrides name=p;", location("/", "stint_limit z p $arg_user;"))\
                .edit(("entries=1k", "entries=200k")) as server:
            self.assertEqual(server.statuses(3, "/file?user=a"), [200] * 3)
            self.override("b", 0)
            server.stop()
            self.stint(*resize.split(), self.table)
            server.edit(("entries=200k", "entries=100k"))
            server.start()
            self.assertEqual(server.get("/file?user=b").status, 429)
            self.assertEqual(status(server)["entries"], 100000)
            self.assertEqual(server.logged("goes on with these"), [])
            self.assertEqual(server.statuses(3, "/file?user=a"), [200, 200, 429])

    def test_room_for_policies_of_a_file(self):
        """What the log says makes room."""
        server = Server(module.MODULE)
        self.table = server.directory / "table"

        def use(*names, room=2):
            return server.configure(f"stint_zone z entries=1k policies={room} file={self.table};\n" + "".join(
                f"stint_policy z 5{PER_LONG} name={name};\n" for name in names),
                location("/", f"stint_limit z {names[-1]} k;") + STATUS)
        with use("a", "b"):
            self.assertEqual(server.get().stint, "PASSED b 1/5 4")
            [line] = use("b", "c").reload_refused()
            self.assertRegex(line, 'no room for the policy "c" in .*: those that were removed stay in its file until '
                                   '"stint apply --prune" removes them, a restart with more "policies" makes room, and '
                                   'those with a ban or overrides count twice')
            server.stop()
            self.assertIn("no room", server.test()[1])
            self.apply(f"5{PER_LONG} name=b")
            server.start()
            self.assertEqual(server.get().stint, "PASSED c 1/5 4")
            self.assertIn('no room for the policy "d"', use("b", "c", "d", room=3).reload_refused()[0])
            server.stop()
            self.assertIn("makes it entries=1000 policies=3", server.test()[1])
            server.start()
            self.assertEqual(server.get().stint, "PASSED d 1/5 4")

    def apply(self, *policies):
        """Makes these the policies of the table."""
        text = self.table.parent / "policies"
        text.write_text("\n".join(policies))
        self.stint("apply", "--prune", self.table, text)

    def test_a_policy_is_removed(self):
        """Nothing is lost, and nothing told that is not so."""
        asked, told = threading.Event(), threading.Event()
        address = self.upstream(lambda: (asked.set(), told.wait(module.PATIENCE)))
        with self.filed(f"stint_policy z 5{PER_LONG} name=p; stint_policy z 5{PER_LONG} name=q; stint_headers both;",
                        location("/file", "stint_limit z p $arg_user;", "stint_limit z q $arg_user;"),
                        location("/other", "stint_limit z q $arg_user;"),
                        location("/charged", "stint_limit z p $arg_user charge=1;", "empty_gif;"),
                        location("/slow", "stint_limit z p $arg_user;", f"proxy_pass {address};")) as server:
            self.assertEqual(server.get("/file?user=a").status, 200)
            [slow] = server.begin(1, "/slow?user=a")
            self.assertTrue(asked.wait(module.PATIENCE))
            self.apply(f"9{PER_LONG} name=q")
            told.set()
            # What it was granted before stands.
            answer = module.Response(slow.getresponse())
            self.assertEqual((answer.status, answer.body, answer["RateLimit"]), (200, b"done", None))
            slow.close()
            for path in "/file", "/charged", "/slow":
                response = self.expect((429, "REJECTED p /"), server.get(path + "?user=a"))
                for field in "RateLimit", "RateLimit-Policy": # of the other limit alone
                    self.assertEqual((response[field] or "none")[:4], '"q";' if path == "/file" else "none")
                self.assertIsNone(response["Retry-After"])
            self.assertEqual(server.get("/other?user=a").stint, "PASSED q 2/9 7")
            self.assertEqual(status(server)["policies"][0], {"name": "p", "policy": None})
            self.assertEqual(policy_status(server, "q")["policy"], "9/52 weeks")
            self.assertIn(len(server.logged('policy "p" of zone "z" was removed while')), (1, 2))
            self.assertEqual(server.logged("malloc|alert"), [])
            server.reload()
            self.assertEqual(server.get("/file?user=a").stint, "PASSED q 3/5 2")
            self.assertEqual(server.logged('policy "(.)" of zone "z" changed'), ["q"])

    def test_a_policy_is_replaced(self):
        """By one whose fields are longer, and by one of another kind."""
        with self.filed(f"stint_policy z 5{PER_LONG} name=p; stint_headers both;",
                        location("/file", "stint_limit z p $arg_user;"),
                        location("/charged", "stint_limit z p $arg_user charge=1 late;", "empty_gif;")) as server:
            for policy, path, due in ((f"5{PER_LONG}", "/file", "PASSED p 1/5 4"), ("700/51w", "/file", "PASSED p 1/700 699"),
                                      ("7/h in-flight", "/charged", "REJECTED p /")):
                self.apply(f"{policy} name=p")
                self.assertEqual(server.get(f"{path}?user=a").stint, due)
            self.assertEqual(len(server.logged('policy "p" .* replaced by one of another kind')), 1)

    def test_policies_are_replaced_under_load(self):
        """By others of all kinds, and one is removed. Each answer is whole, and each field is a number."""
        kinds = ("", "burst=200", "smooth", "in-flight", "reserve=3", "ban=1h", "shadow")
        paths = {f"/{name}": location(f"/{name}", f"stint_limit z p $arg_user;", more, "empty_gif;")
                 for name, more in (("plain", ""), ("two", "stint_limit z q $arg_user delay;"),
                                    ("charged", "stint_limit z q k charge=$status;"))}
        server = self.filed("stint_policy z 20/100ms name=p; stint_policy z 20/100ms reserve=9 name=q;"
                            "stint_headers both;", *paths.values(), location("/metrics", "stint_metrics z;"))

        def ask(number):
            for path in (*paths, "/status", "/metrics"):
                response = server.get(f"{path}?user={number}")  # raises if it is empty
                told = [response[name] or "0" for name in (
                    "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After")]
                rate = re.sub(r'"[pq]";r=\d+(;t=\d+)?(, )?', "", response["RateLimit"] or "")
                self.assertTrue(response.status in (200, 429) and response.body and "".join(told).isdecimal() and not rate,
                                (path, response.status, response.fields, response.body))
        with server.edit(("entries=1k", "entries=1k policies=300")):
            with over_and_over(ask, 3):
                for number in range(60):
                    self.apply(*(f"{size}/100ms name={name} {kinds[(number * step) % len(kinds)]}"
                                 for name, size, step in (("p", 20, 1), ("q", 1000, 2))))
                self.apply("20/100ms name=p")
                until(lambda: server.get("/two?user=k").stint == "REJECTED q /", "what was removed")
            self.assertEqual(server.logged("alert|malloc|signal 11"), [])

    def test_two_zones_with_policies_of_one_name(self):
        """They have nothing in common: counts, bans, fields, pages, changes, resets and removals."""
        policies = {"a": f"2{PER_LONG} ban=1h", "b": f"3{PER_LONG}"}
        server = Server(module.MODULE)
        files = {zone: server.directory / zone for zone in policies}

        def configured():
            return server.configure("stint_headers draft; error_page 404 = /b;" + "".join(
                f"stint_zone {zone} entries=7k labels=9 file={files[zone]}; stint_policy {zone} {policy} name=p;"
                for zone, policy in policies.items()), "".join(
                location(f"/{zone}", f"stint_limit {zone} p $arg_user;", *["empty_gif;"] * (zone == "b"),
                         'add_header X-Stint "$stint_zone $stint_status $stint_used/$stint_limit" always;') +
                location(f"/status/{zone}", f"stint_status_page {zone};") + location(f"/metrics/{zone}", f"stint_metrics {zone};")
                for zone in policies))

        def ask(zone):
            """An answer, and what is told of the policy."""
            response = server.get(f"/{zone}?user=k")
            self.assertEqual(response["RateLimit-Policy"], f'"p";q={policies[zone].split("/")[0]};w={module.LONG}')
            [policy] = status(server, f"/status/{zone}")["policies"]
            self.assertIn(f'decisions_total{{policy="p",outcome="allowed",zone="{zone}"}} {policy["allowed"]}\n',
                          server.get(f"/metrics/{zone}").body.decode())
            return response.stint, policy["allowed"], policy["refused"]
        with configured():
            # /a is not found, and the error page, in the location of the other zone, decides nothing again.
            self.assertEqual([ask(zone) for zone in "aaab"],
                             [("a PASSED 1/2", 1, 0), ("a PASSED 2/2", 2, 0), ("a BANNED 2/2", 2, 1),
                                                              ("b PASSED 1/3", 1, 0)])
            self.assertEqual([[row["refused_windows"] for row in status(server, f"/status/{zone}")["top"]]
                              for zone in "ab"], [[1], []])
            self.assertEqual(server.logged('by policy "p" in zone "(.)"'), ["a"])
            self.stint("reset", "--quiet", files["a"], "p", "k")
            policies["b"] = f"5{PER_LONG}"
            configured().reload()
            self.assertEqual(server.logged('policy "p" of zone "(.)" changed'), ["b"])
            self.assertEqual([ask(zone)[0] for zone in "ab"], ["a PASSED 1/2", "b PASSED 2/5"])
            self.table = files["b"]
            self.apply(f"1{PER_LONG} name=other")
            self.assertEqual(server.get("/b?user=k").stint, "b REJECTED /")
            self.assertEqual(ask("a")[0], "a PASSED 2/2")
            # A file that is removed under it is told by nginx, and by the command of the next one.
            files["a"].unlink()
            self.assertEqual([status(server, f"/status/{zone}")["removed"] for zone in "ab"], [1, 0])
            self.stint("make", "--entries=7k", files["a"])
            told = json.loads(self.stint("status", "--json", "--interval=0", files["a"]))["removed"]
            self.assertIn(server.process.pid, [row["process"] for row in told])

    def look(self):
        return json.loads(self.stint("status", "--json", "--interval=0", self.table))

    def opened(self):
        """The processes that the command says have the table open."""
        found = self.look()["open"]
        self.assertLessEqual({(row["program"], row["writes"]) for row in found}, {("nginx", True)})
        return [row["process"] for row in found]

    def check_open(self, *masters):
        """These masters, and all that they started, have it open, and nobody else: programs and people are told."""
        def all_of_it(masters):
            return [pid for master in masters for pid in (master, *all_of_it(map(int, pathlib.Path(
                f"/proc/{master}/task/{master}/children").read_text().split())))]
        until(lambda: self.opened() == sorted(all_of_it(masters)), "all of it, and nobody else")
        pids = sorted(all_of_it(masters))
        names = ", ".join(f"{pid} nginx" for pid in pids[:8]) + (f", and {len(pids) - 8} more" if len(pids) > 8 else "")
        status = re.sub(r"\n +", " ", self.stint("status", "--interval=0", self.table))  # lines of 80 columns
        self.assertEqual(re.findall("(?m)^Open in +(.*)", status), [f"{len(pids)} processes: {names}"])
        return len(pids)

    def removed(self):
        """Those that people are told use a table that was there."""
        done = subprocess.run([STINT, "status", "--interval=0", self.table], capture_output=True, text=True, timeout=20)
        [told] = re.findall("\nNote: a table that was removed from here is still in use, by process ([0-9, ]+): restart "
                            "them\n\\Z", done.stdout + done.stderr) or [""]
        return len(told.split())

    def test_who_has_the_table_open(self):
        """Each master and each worker, though they are idle; after a reload, a kill, beside another nginx."""
        configured = f"stint_policy z 5{PER_LONG} name=p;"
        with self.filed(configured, location("/", "stint_limit z p k;"), workers=4) as server:
            master = server.process.pid
            self.assertEqual((self.check_open(master), self.look()["have_decided"]), (5, 0))
            self.assertEqual(server.get().status, 200)
            self.assertEqual((self.check_open(master), self.look()["have_decided"]), (5, 1))
            server.reload()
            self.assertEqual((self.check_open(master), self.look()["have_decided"]), (5, 0))
            [killed, *_] = server.worker_pids()
            server.kill_worker(killed)
            self.assertEqual(self.check_open(master), 5)
            self.assertNotIn(killed, self.opened())
            zone = f"stint_zone z entries=1k file={self.table} labels=100;"
            with Server(module.MODULE, zone + configured, workers=4) as other:
                self.assertEqual(self.check_open(master, other.process.pid), 10)
                # What troubleshooting.md says of a table that was removed: a reload is enough.
                self.table.unlink()
                self.assertEqual(self.removed(), 10)
                server.reload()
                self.assertEqual((self.check_open(master), self.removed()), (5, 5))
                other.reload()
                self.assertEqual((self.check_open(master, other.process.pid), self.removed()), (10, 0))
            self.assertEqual(self.check_open(master), 5)
            # Nobody has it open once no zone is there.
            server.configure("", "").reload()
            until(lambda: self.opened() == [], "nobody")

class Troubleshooting(Filed):
    """doc/troubleshooting.md, on the zone of a running nginx."""

    def test_each_line(self):
        page = (pathlib.Path(__file__).parents[2] / "doc" / "troubleshooting.md").read_text()
        [configuration] = re.findall(r"^```nginx\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        server = Server(module.MODULE)
        place = f"{server.directory}/"
        server.configure(configuration.replace("/run/stint/", place) +
                         "set_real_ip_from 127.0.0.1; real_ip_header X-Client;",
                         location("/api", "stint_limit api permin $remote_addr;") +
                         location("/login", "stint_limit api login $remote_addr;") +
                         "".join(location(path, f"stint_limit api permin {key};", "empty_gif;") for path, key in (
                             ("/text", "user-$remote_addr"), ("/binary", "$binary_remote_addr"),
                             ("/each", "$remote_addr prefix=32"), ("/net", "$remote_addr prefix=24"),
                             ("/joined", '"$remote_addr $uri"'))))
        (server.directory / "stint").symlink_to(os.path.abspath(STINT))
        environment = {**os.environ, "PATH": f"{server.directory}:{os.environ['PATH']}"}
        until(lambda: time.time() % 60 < 45, "time enough for all in one minute")
        with server:
            # 5 is told before 7 also if the windows of both began at once.
            for client, path, count in (("7", "/login", 6), ("8", "/login", 6), ("5", "/api", 103)):
                for _ in range(count):
                    server.get(path, headers={"X-Client": "192.0.2." + client})
                # The forms of a key: one of each location.
                for path in ("/text", "/binary", "/each", "/net", "/joined") if client == "5" else ():
                    self.assertEqual(server.get(path, headers={"X-Client": "192.0.2.1"}).status, 200)
            for commands in console.sections(page, "/run/stint/").values():
                for command, expected in commands:
                    console.check(self, command, expected, "/run/stint/", place, environment)


@unittest.skipUnless(shutil.which("fail2ban-regex"), "fail2ban is not installed")
class Jail(Filed):
    """What fail2ban finds in the log, by the filter of this directory."""

    FILTER = pathlib.Path(__file__).parents[2] / "src" / "nginx" / "fail2ban-filter.conf"

    def found(self, server, options=""):
        """The clients of the lines that the filter finds."""
        done = subprocess.run(["fail2ban-regex", "--out", "ip", str(server.error_log), f"{self.FILTER}{options}"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout.split()

    def refusing(self):
        """A server that has logged a line of each kind. Clients are what X-Real says."""
        forged = ('"a, 2 of 2 used, by policy \\"p\\" in zone \\"z\\", client: 9.9.9.9, server: ", '
                  '2 of 2 used, by policy "p" in zone "z", client: 9.9.9.8,')
        limits = {"p": "p $arg_user", "banning": "banning $http_key", "shadow": "shadow $arg_user", "other": "other $arg_user",
                  "dry": "p $arg_user; stint_dry_run on"}
        server = self.filed(
            f"set_real_ip_from 127.0.0.1; real_ip_header X-Real; stint_policy z 1{PER_LONG} name=p;"
            f"stint_policy z 1{PER_LONG} name=banning ban=1h; stint_policy z 1{PER_LONG} name=shadow shadow;"
            f"stint_policy z 1{PER_LONG} reserve=1 overrides name=other;",
            *(location(f"/{path}", f"stint_limit z {limit};", "empty_gif;") for path, limit in limits.items()))
        server.__enter__()
        self.addCleanup(server.__exit__)
        self.override("barred", 0, "other")
        self.override("less", 2, "other")
        for client, path, times, fields in (
                ("192.0.2.1", "/p?user=a", 6, {}), ("192.0.2.2", "/banning", 6, {"Key": forged}),
                ("2001:db8::3", "/banning", 6, {"Key": "c"}),
                ("192.0.2.4", "/shadow?user=d", 6, {}), ("192.0.2.5", "/dry?user=e", 6, {}),
                ("192.0.2.6", "/other?user=barred", 6, {}),
                ("192.0.2.7", "/other?user=less", 6, {}), ("192.0.2.8", "/p?user=h", 1, {})):
            server.statuses(times, path, headers={"X-Real": client, **fields})
        return server

    def test_what_the_filter_finds(self):
        """One line of each key in a window, and nothing that a client says."""
        server = self.refusing()
        self.assertEqual(self.found(server), ["192.0.2.1", "192.0.2.2", "2001:db8::3", "192.0.2.6", "192.0.2.7"])
        self.assertEqual(self.found(server, "[mode=banned]"), ["192.0.2.2", "2001:db8::3"])
        self.assertEqual(self.found(server, '[zones="x|y"]'), [])
        self.assertEqual(self.found(server, '[zones="x|z", policies="p|x"]'), ["192.0.2.1"])
        # That for limit_req finds nothing, as the README says.
        self.FILTER = "/etc/fail2ban/filter.d/nginx-limit-req.conf"
        if os.path.exists(self.FILTER):
            self.assertEqual(self.found(server), [])

    def test_a_jail(self):
        """It counts windows: a client that was refused in one, however often, stays out of it."""
        server = self.filed("set_real_ip_from 127.0.0.1; real_ip_header X-Real;"
                            "stint_policy z 1/250ms name=p;", location("/p", "stint_limit z p $arg_user;", "empty_gif;"))
        with server:
            home = server.directory / "fail2ban"
            for folder in "filter.d", "action.d":
                (home / folder).mkdir(parents=True)
            (home / "filter.d" / "nginx-stint.conf").write_bytes(self.FILTER.read_bytes())
            (home / "action.d" / "dummy.conf").write_text(
                f"[Definition]\nactionban = echo <ip> >>{home}/banned\nactionunban =\n")
            (home / "fail2ban.conf").write_text(
                f"[Definition]\nloglevel = INFO\nlogtarget = {home}/log\nsyslogsocket = auto\nsocket = {home}/socket\n"
                f"pidfile = {home}/pid\ndbfile = None\ndbmaxmatches = 1\ndbpurgeage = 1d\n[Thread]\nstacksize = 0\n")
            (home / "jail.conf").write_text(
                f"[nginx-stint]\nenabled = true\nbackend = polling\nfilter = nginx-stint\naction = dummy\n"
                f"logpath = {server.error_log}\nmaxretry = 3\nfindtime = 1h\nbantime = 1h\n")
            jail = subprocess.Popen(["fail2ban-server", "-f", "-c", home, "-s", home / "socket", "-p", home / "pid",
                                     "start"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)

            def stop():
                jail.terminate()
                jail.wait(module.PATIENCE)
            self.addCleanup(stop)
            until(lambda: (home / "log").exists() and "Jail 'nginx-stint' started" in (home / "log").read_text(),
                  "the jail")

            def ask(client):
                return server.get(f"/p?user={client}", headers={"X-Real": client}).status
            lines = 'limiting requests, 1 of 1 used, by policy "p" in zone "z", client: {},'
            # One window with many refusals, and one client that does not stop.
            until(lambda: ask("192.0.2.1") == 429 and [ask("192.0.2.1") for _ in range(9)], "a refusal")
            until(lambda: ask("192.0.2.2") and len(server.logged(lines.format("192.0.2.2"))) >= 3, "three refusals")
            until(lambda: (home / "banned").exists(), "a ban")
            self.assertEqual((home / "banned").read_text(), "192.0.2.2\n")
            self.assertLess(len(server.logged(lines.format("192.0.2.1"))), 3)


class InFlight(Upstream):
    """So many requests at once; whatever ends one makes room."""

    LEASE = "30m"  # longer than any test

    def flying(self, limit, *locations, http="", directives="", zone="", **more):
        """A server with a location /long, whose answers take minutes, and /look, which tells what is held."""
        return self.serve(f"stint_zone z entries=1k {zone}; stint_policy z {limit} in-flight name=p;\nstint_headers both; {http}",
                          f"stint_limit z p $arg_user; {directives}" + STATUS +
                          location("/look", "stint_limit off rate;", "stint_limit z p $arg_user cost=0;", "empty_gif;") +
                          location("/long", "limit_rate 2000;") + "".join(locations), **more)

    def held(self, server, user="a"):
        return int(server.get(f"/look?user={user}").stint.split()[2].split("/")[0])

    def begin(self, server, count, path="/long?user=a"):
        """Begins requests whose answers take long. Returns their connections."""
        connections = server.begin(count, path)
        self.assertEqual({connection.getresponse().status for connection in connections}, {200})
        return connections

    def free(self, server, left=0):
        until(lambda: self.held(server) == left, f"{left} requests to be in flight")

    def test_at_once(self):
        """Also one after the other on one connection, which openresty/lua-resty-limit-traffic#25 counts up."""
        with self.flying(f"3/{self.LEASE}") as server:
            connection = server.connect()
            for _ in range(10):
                connection.request("GET", "/file?user=a")
                response = module.Response(connection.getresponse())
                self.assertEqual((response.status, response["RateLimit"]), (200, '"p";r=2'))
            connection.close()
            self.assertEqual(self.held(server), 0)
            first, *others = self.begin(server, 3)
            for _ in range(3):
                response = self.expect((429, "REJECTED p 3/3 0"), server.get("/file?user=a"))
                # Nobody knows when one of them ends.
                self.assertEqual([response[name] for name in ("Retry-After", "X-RateLimit-Reset", "RateLimit")],
                                 [None, None, '"p";r=0'])
            self.assertEqual(server.get("/file?user=b").status, 200)
            self.assertEqual(server.access_log(15)[-2][-2:], ["-", "-"])
            # A client that leaves.
            first.close()
            self.free(server, 2)
            self.assertEqual(server.get("/file?user=a").status, 200)
            close(others)
            self.free(server)
            self.assertEqual(len(server.logged("limiting requests, 3 of 3 used")), 1)

    # Where a request ends, by what, and with which status.
    ENDS = (("/timeout", "proxy_pass http://unix:SILENT; proxy_read_timeout 200ms;", 200),
            ("/nobody", "proxy_pass http://unix:/nowhere;", 200),
            ("/redirect", "try_files /nothing /file;", 200), ("/named", "try_files /nothing @named;", 204),
            ("/auth", "auth_request /ask; empty_gif;", 200), ("/refused", "auth_request /forbid;", 403),
            ("/mirror", "mirror /ask; empty_gif;", 200), ("/missing", "", 404), ("/deny", "deny all;", 403))

    def test_every_end(self):
        """Upstreams that time out, refuse or are not there, error pages, redirects, subrequests. After each, all
        is free: openresty/lua-resty-limit-traffic#73 refuses everybody in the end."""
        with socket.socket(socket.AF_UNIX) as silent, self.flying(
                f"9/{self.LEASE}", http="error_page 502 504 = /failed;") as server:
            silent.bind(str(server.directory / "silent"))
            silent.listen(100)
            server.edit((STATUS, STATUS + "".join(location(path, directives) for path, directives, *_ in (
                *self.ENDS, ("/gone", "proxy_pass http://unix:SILENT;"), ("/failed", "return 200 sorry;"),
                ("@named", "return 204;"),
                ("= /ask", "empty_gif;"), ("= /forbid", "return 403;")))), ("SILENT", f"{server.directory}/silent")).reload()
            for path, _, status_code in self.ENDS:
                self.assertEqual(server.statuses(2, path + "?user=a"), [status_code] * 2, path)
                self.free(server)
            connections = server.begin(3, "/gone?user=a")
            self.free(server, 3)
            close(connections)
            self.free(server)

    def test_uploads(self):
        """Also while bodies come, and when they do not."""
        with self.flying(f"9/{self.LEASE}", directives="client_body_timeout 2s;") as server:
            server.edit((STATUS, STATUS + location(
                "/up", f"proxy_pass http://127.0.0.1:{server.port}/file;"))).reload()
            connection = server.connect()
            connection.putrequest("POST", "/up?user=a")
            connection.putheader("Content-Length", "1000")
            connection.endheaders(b"some")
            self.free(server, 1)
            self.free(server)
            connection.close()

    def test_http_2(self):
        """Each stream is a request."""
        server = self.flying(f"3/{self.LEASE}")
        with server.with_http_2():
            client = server.curl("--parallel", "--parallel-immediate", "--no-progress-meter",
                                 "--max-time", "3", "--output", os.devnull, "--write-out", "%{http_code} ",
                                 path="/long?user=a&[1-5]")
            said = client.communicate(timeout=20)[0].split()
            self.assertEqual(sorted(said), ["200"] * 3 + ["429"] * 2)

            def used():
                said, _ = server.curl("--head", path="/look?user=a").communicate(timeout=20)
                return re.search(r"x-stint: \w+ p (\d+)/3", said, re.IGNORECASE)[1]
            until(lambda: used() == "0", "the end of all streams")

    def test_a_worker_that_is_killed(self):
        """What it had is forgotten with its lease: apache/apisix#12823 keeps it for good."""
        with self.flying("4/4s", workers=1) as server:
            connections = self.begin(server, 4)
            self.assertEqual(server.get("/file?user=a").status, 429)
            server.kill_worker(*server.worker_pids())
            self.free(server)
            close(connections)

    def test_reload_and_stop(self):
        """An old worker has its requests until they end; one that is stopped gives all back at once."""
        with self.flying(f"4/{self.LEASE}", zone="file=table", workers=1) as server:
            connections = self.begin(server, 3)
            server.reload_beside()
            connections += self.begin(server, 1)
            self.assertEqual(self.held(server), 4)
            connections[0].close()
            self.free(server, 3)
            server.stop()  # TERM
            server.start()
            self.assertEqual(self.held(server), 0)
            close(connections)

    def test_waiting(self):
        """Who waits for a rate is not in flight, and is from then on; who leaves before has all back."""
        with self.flying(f"9/{self.LEASE}", http="stint_policy z 1/day reserve=5 name=day;",
                         directives="stint_limit z day $arg_user delay=30d;") as server:
            first = self.begin(server, 1)
            connections = server.begin(2, "/long?user=a")
            holds(server, 2)
            self.assertEqual(self.held(server), 1)
            close(connections)
            holds(server)
            self.assertEqual(policy_status(server, "day")["refunded"], 2)
            close(first)
        with self.flying(f"2/{self.LEASE}", http="stint_policy z 5/s burst=1 reserve=5 name=slow;",
                         directives="stint_limit z slow $arg_user delay;", workers=1) as server:
            connections = server.begin(3, "/long?user=a")
            self.assertEqual([connection.getresponse().status for connection in connections], [200, 200, 429])
            self.assertEqual(self.held(server), 2)
            close(connections)
            self.free(server)

    def test_beside_a_charge(self):
        """What is refused in flight costs nothing: there is no response that failed."""
        with self.flying(f"1/{self.LEASE}", http=f"stint_policy z 3{PER_LONG} name=tries;",
                         directives="stint_limit z tries $arg_user charge=$arg_failed;") as server:
            [connection] = self.begin(server, 1, "/long?user=a&failed=1")
            self.assertEqual(server.statuses(6, "/file?user=a&failed=1"), [429] * 6)
            tries = policy_status(server, "tries")
            self.assertEqual((tries["allowed"], tries["refunded"]), (7, 6))
            connection.close()

    def test_plans(self):
        """A variable names policies of one kind, which its default tells, or `charge`, or the names."""
        policies = f"stint_policy z 1/{self.LEASE} in-flight name=p2; stint_policy z 2{PER_LONG} name=year;"
        limit = "stint_limit z p $arg_user;"
        with self.flying(f"2/{self.LEASE}", http=policies, workers=1) as server:
            text = server.configuration.read_text()
            for new, name, most, other in (("z $arg_plan $arg_user default=p", "p2", 1, "p"),
                                           ("z p$arg_plan $arg_user", "2", 1, None),
                                           ("z $arg_plan $arg_user default=year", "year", 2, "year"),
                                           ("z $arg_plan $arg_user charge=$arg_c", "year", 2, None)):
                server.configuration.write_text(text.replace(limit, f"stint_limit {new};"))
                server.reload()
                with self.subTest(limit=new):
                    connections = self.begin(server, most, f"/long?plan={name}&user={new[-9:]}&c=1")
                    self.assertEqual(server.get(f"/file?plan={name}&user={new[-9:]}&c=1").status, 429)
                    # One of the other kind is as one that is unknown.
                    wrong = "p2" if name == "year" else "year"
                    stint = server.get(f"/file?plan={wrong}&user=wrong").stint
                    self.assertEqual(stint.split()[1:2], [other] if other else [], stint)
                    close(connections)
            self.assertGreater(server.logged(r'stint policy "(\w+)" is unknown, or of the other kind'), [])

    def test_never_more_at_once(self):
        """A server behind counts them itself, over workers, reloads and clients that leave. More requests let no
        more through, as openresty/lua-resty-limit-traffic#44 does."""
        now, counts = set(), []

        def answer():
            now.add(threading.get_ident())
            counts.append(len(now))
            time.sleep(0.01)
            now.remove(threading.get_ident())
        server = self.flying(f"3/{self.LEASE}", location(
            "/behind", "proxy_ignore_client_abort on;", f"proxy_pass {self.upstream(answer)};"), workers=3)
        with server:
            storm = module.Storm(server, "/behind?user=a", threads=8,
                                 enough=lambda storm: storm.allowed >= 100 and storm.refused >= 20)
            storm.run(lambda: [server.reload() for _ in range(2)])
            self.assertLessEqual(set(storm.count), {200, 429, None})
            self.assertIn(max(counts), (2, 3))
            self.free(server)


if __name__ == "__main__":
    main()
