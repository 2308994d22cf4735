#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the nginx module does with bans and with limits that single keys have, and the command `stint`
on the zone of a running nginx.

    operating.py MODULE_SO [TEST...]

The command is $STINT, or the `stint` of the PATH.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True  # of what is beside it
import module
from features import policy_status, status
from module import PER_LONG, Case, Server, location, main, until

STINT = os.environ.get("STINT", "stint")
STATUS = location("/status", "stint_limit off;", "stint_status_page z;", "access_log off;")


class Bans(Case):
    """Keys that are refused everything for a while, for having been refused."""

    FIELDS = ('add_header X-Stint "$stint_status $stint_policy $stint_used/$stint_limit" always;'
              "add_header X-Retry $stint_retry_after always;")

    def banning(self, policy, *directives, http="", limit="stint_limit z p $arg_user;", **more):
        return self.serve(f"stint_zone z keys=6k labels=100; stint_policy z {policy} name=p;\n"
                          f"stint_headers both; {http}",
                          location("/", limit, self.FIELDS, *directives) + STATUS, **more)

    def test_a_ban(self):
        ban = 366 * 86400  # s; longer than the window
        with self.banning(f"2{PER_LONG} ban=366d") as server:
            self.assertEqual(server.statuses(2, "/file?user=a"), [200, 200])
            for _ in range(3):  # by the first refusal, and from then on
                response = server.get("/file?user=a")
                self.assertEqual((response.status, response.stint.split()[:2]), (429, ["BANNED", "p"]))
                # All fields tell the end of the ban, not that of the window.
                self.assertIn(int(response["Retry-After"]), range(ban - 100, ban + 2))
                self.assertEqual(response["X-Retry"], response["Retry-After"])
                self.assertEqual(response["RateLimit"], f'"p";r=0;t={response["Retry-After"]}')
                reset = int(response["X-RateLimit-Reset"]) - time.time()
                self.assertLess(abs(reset - int(response["Retry-After"])), 5)
            self.assertEqual(server.get("/file?user=b").stint, "PASSED p 1/2")
            self.assertEqual([line[3] for line in server.access_log(6)],
                             ["PASSED"] * 2 + ["BANNED"] * 3 + ["PASSED"])
            found = status(server)
            self.assertEqual([found[name] for name in ("overrides", "barred", "banned")], [0, 0, 1])
            found = policy_status(server, "p")
            self.assertEqual([found[name] for name in ("allowed", "refused", "bans", "strikes_lost")],
                             [3, 3, 1, 0])
            self.assertEqual(found["policy"], "2/52 weeks ban=366d")
            # One line in the log, with the key's name, as the zone keeps names.
            self.assertEqual(
                server.logged(r"\[(\w+)\] .*limiting requests, (.*?), client: 127.0.0.1"),
                [("error", f'banned for {ban} s, key "a", 2 of 2 used, by policy "p" in zone "z"')])

    def test_what_is_logged_is_escaped(self):
        for zone, said in ("", ""), ("labels=10", r', key "x\\x5C\\x22\\x09\\xC3"'):
            with self.serve(f"stint_zone z keys=6k {zone}; stint_policy z 1{PER_LONG} ban=1500ms name=p;"
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
            self.assertEqual(len(server.logged("limiting requests, 1 of 1 used")), 2)
            self.assertEqual(len(server.logged("limiting requests, banned for 2 s")), 1)
            until(lambda: ask("PASSED"), "its end")
            self.assertEqual(status(server)["banned"], 0)

    def test_failed_logins(self):
        """A ban by what responses are charged."""
        with self.banning(f"2{PER_LONG} ban=1h", http="map $arg_code $failed { 401 1; default 0; }",
                          limit="stint_limit z p $arg_user charge=$failed;") as server:
            server.configuration.write_text(server.configuration.read_text().replace(
                STATUS, STATUS + location("/401", "return 401;")))
            server.reload()
            # `return` comes before limits; a missing file does not.
            self.assertEqual(server.statuses(3, "/missing?user=a&code=401"), [404, 404, 429])
            self.assertEqual(server.get("/file?user=a").stint.split()[0], "BANNED")
            self.assertEqual(server.get("/file?user=b").status, 200)
            self.assertEqual(policy_status(server, "p")["bans"], 1)

    def test_dry_run_and_shadow(self):
        for more, policy, outcome, said in (
                ("stint_dry_run on;", "", "BANNED_DRY_RUN", "dry run, banned"),
                ("", "shadow", "BANNED_SHADOW", "shadow, would be banned")):
            with self.subTest(outcome=outcome), \
                    self.banning(f"1{PER_LONG} ban=1h {policy}", more) as server:
                for expected in "PASSED", outcome, outcome:
                    response = server.get("/file?user=a")
                    self.assertEqual((response.status, response.stint.split()[0]), (200, expected))
                    self.assertIsNone(response["Retry-After"])
                    self.assertIsNone(response["X-Retry"])
                self.assertEqual(len(server.logged(f"limiting requests, {said} for 3600 s")), 1)

    def test_beside_another_limit(self):
        """A client that is banned uses up nothing else. The longest time to wait is told."""
        with self.banning(f"2{PER_LONG} ban=1h", "stint_limit z all k;",
                          http="stint_policy z 3/364d name=all;") as server:
            self.assertEqual(server.statuses(4, "/file?user=a"), [200, 200, 429, 429])
            self.assertEqual(policy_status(server, "all")["allowed"], 2)
            self.assertEqual(server.get("/file?user=b").status, 200)
            response = server.get("/file?user=b")
            self.assertEqual(response.stint, "REJECTED all 3/3")
            # Now both refuse.
            response = server.get("/file?user=a")
            self.assertEqual(response.stint.split()[0], "BANNED")
            self.assertEqual(response["X-Retry"], response["Retry-After"])
            self.assertGreater(int(response["X-Retry"]), 86400)

    def test_it_survives_reloads_and_deaths(self):
        with self.banning(f"1{PER_LONG} ban=1h") as server:
            def outcome(user):
                return server.get(f"/file?user={user}").stint.split()[0]
            self.assertEqual([outcome("a"), outcome("a")], ["PASSED", "BANNED"])
            server.reload()
            self.assertEqual(outcome("a"), "BANNED")
            for pid in server.worker_pids():
                os.kill(pid, signal.SIGKILL)
                until(lambda: pid not in server.worker_pids() and len(server.worker_pids()) == 2,
                      "another worker")
            self.assertEqual(outcome("a"), "BANNED")
            text = server.configuration.read_text()
            # Without bans it is as any key, with them again, banned again.
            for policy, expected in ("ban=1h", "BANNED"), ("", "REJECTED"), ("ban=2h after=2", "BANNED"):
                server.configuration.write_text(text.replace("ban=1h", policy))
                server.reload()
                self.assertEqual(outcome("a"), expected)
            self.assertEqual(server.logged("changed from (.*)")[-1],
                             '"1/52 weeks overrides" to "1/52 weeks ban=2h after=2"')

    def test_a_reload_that_brings_bans_needs_room(self):
        """For several policies at once, too, each of which would fit alone."""
        def use(server, more):
            server.configure("stint_zone z keys=1k policies=3;" + "".join(
                f"stint_policy z 3{PER_LONG} name={name} {more};\n" for name in names) +
                "stint_limit z a k;", "")
        for names, room in ("ab", False), ("a", True):
            server = Server(module.MODULE)
            use(server, "")
            with self.subTest(names=names), server:
                self.assertEqual(server.get().stint, "PASSED a 1/3 2")
                server.configuration.write_text(server.configuration.read_text().replace(
                    "stint_limit", f"stint_policy z 9{PER_LONG} name=gone; stint_limit"
                    if room else "stint_limit"))
                server.reload()
                use(server, "ban=1h")
                if room:
                    server.reload()
                    self.assertEqual(server.statuses(3), [200, 200, 429])
                    self.assertEqual(server.get().stint.split()[0], "BANNED")
                    continue
                [line] = server.reload_refused()
                self.assertIn('stint zone "z" has room for 3 policies: "policies=4" is needed for "b", as '
                              "those with a ban or overrides count twice, in", line)
                self.assertEqual(server.logged(r"\[alert\]"), [])
                self.assertEqual(server.get().stint, "PASSED a 2/3 1")

    def test_what_was_removed_takes_room(self):
        def use(server, *policies):
            server.configure("stint_zone z keys=1k policies=4;" + "".join(
                f"stint_policy z 3{PER_LONG} {policy};\n" for policy in policies) +
                "stint_limit z a k;", "")
        server = Server(module.MODULE)
        use(server, "name=a", "name=b", "name=gone")
        with server:
            use(server, "name=a ban=1h", "name=b ban=1h")
            [line] = server.reload_refused()
            self.assertIn('stint zone "z" has no room for the policy "b" in', line)
            self.assertEqual(server.logged(r"\[alert\]"), [])
            # No limit has changed.
            self.assertEqual(server.statuses(4), [200] * 3 + [429])
            self.assertEqual(server.get().stint, "REJECTED a 3/3 0")


if __name__ == "__main__":
    main()
