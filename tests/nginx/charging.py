#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Limits that the nginx module charges by the response, whatever clients do to be charged late or not.

    charging.py MODULE_SO [TEST...]
"""
import contextlib
import re
import socket
import struct
import sys
import threading

sys.dont_write_bytecode = True  # of what is beside it
import module
from features import policy_status, status
from module import PATIENCE, PER_LONG, STATUS, Storm, Server, close, location, main, until
from operating import Upstream

FAILED = "map $status $failed { 401 1; default 0; }\n"


class WithUpstream(Upstream):
    """A server behind, which answers by the path: /200, /401, /503; and with X-Cost if asked."""

    def behind(self, http, *directives, **more):
        server = Server(module.MODULE, workers=more.pop("workers", 1), **more)
        behind = server.directory / "upstream"
        answers = "".join(location(f"/{code}", f"return {code} answer;") for code in (200, 401, 503))
        server.configure(
            f"stint_zone z keys=1k;\n{http}\nserver {{ listen unix:{behind}; stint_limit off;"
            f"access_log off; add_header X-Cost $arg_cost always; {answers} }}",
            STATUS + location("/", *directives, "proxy_hide_header X-Cost;",
                              f"proxy_pass http://unix:{behind};"))
        return server


class Charging(WithUpstream):
    def test_failed_logins(self):
        with self.behind(FAILED + f"stint_policy z 3{PER_LONG} name=failures;\n"
                         "stint_headers draft;",
                         "stint_limit z failures $arg_user charge=$failed;") as server:
            # Logins that succeed are not counted, however many.
            self.assertEqual(server.statuses(20, "/200?user=a"), [200] * 20)
            self.assertEqual(server.statuses(3, "/401?user=a"), [401] * 3)
            response = self.expect((429, "REJECTED failures 3/3 0"), server.get("/200?user=a"))
            self.assertIsNotNone(response["Retry-After"])
            self.assertEqual(server.statuses(2, "/401?user=b"), [401] * 2)
            # The module's fields and the access log tell what is settled; add_header comes before it.
            response = self.expect((200, "PASSED failures 3/3 0"), server.get("/200?user=b"))
            self.assertEqual(response["RateLimit"].split(";")[1], "r=1")
            self.assertEqual(server.access_log(27)[-1][3:8], ["PASSED", "failures", "3", "2", "1"])
            # The failure that used up what there was is the first refusal, and is logged.
            server.statuses(5, "/401?user=a")
            self.assertEqual(len(server.logged("limiting requests, 3 of 3 used, by policy "
                                               '"failures"')), 1)
            found = policy_status(server, "failures")
            self.assertEqual([found[name] for name in ("allowed", "refused", "charged", "refunded")],
                             [26, 7, 0, 21])

    def test_successes_only(self):
        """What a server of mine could not answer is not on the client's account."""
        with self.behind("map $status $answered { ~^5 0; default 1; }\n"
                         f"stint_policy z 2{PER_LONG} name=p;",
                         "stint_limit z p $remote_addr charge=$answered;") as server:
            self.assertEqual(server.statuses(9, "/503"), [503] * 9)
            self.assertEqual(server.statuses(3, "/200"), [200, 200, 429])
            # Refusals are not charged, whatever the map says of a 429.
            self.assertEqual(server.statuses(5, "/200"), [429] * 5)
            self.assertEqual(policy_status(server, "p")["refunded"], 9)

    def test_the_cost_that_the_upstream_tells(self):
        with self.behind(f"stint_policy z 10{PER_LONG} name=p;",
                         "stint_limit z p $remote_addr charge=$upstream_http_x_cost;") as server:
            response = server.get("/200?cost=7")
            self.assertEqual((response.status, response["X-Cost"]), (200, None))
            for nothing in "", "?cost=0", "?cost=1.5", "?cost=1", "?cost=999999999999":
                self.assertEqual(server.get("/200" + nothing).stint,
                                 "PASSED p 9/10 1" if "9" in nothing else "PASSED p 8/10 2", nothing)
            self.assertEqual(server.get("/200").status, 429)
            self.assertEqual(server.logged(r'\[error\] .*stint charge "(.*?)" is not a number, nothing '
                                           'is charged, in zone "z"'), ["1.5"])

    def test_beside_another_limit(self):
        """Who is refused by the one takes nothing of the other, and the other way round."""
        with self.behind(FAILED + f"stint_policy z 2{PER_LONG} name=failures;"
                         f"stint_policy z 5{PER_LONG} name=all;",
                         "stint_limit z all $remote_addr;",
                         "stint_limit z failures $arg_user charge=$failed;") as server:
            self.assertEqual(server.statuses(4, "/401?user=a"), [401, 401, 429, 429])
            self.assertEqual(server.get("/200?user=b").stint, "PASSED failures 1/2 1")
            self.assertEqual(policy_status(server, "all")["allowed"], 3)
            self.assertEqual(server.statuses(3, "/401?user=b"), [401, 401, 429])
            # A request without user is limited by the other only.
            self.assertEqual(server.get("/200").stint, "REJECTED all 5/5 0")
            self.assertEqual(policy_status(server, "failures")["refunded"], 1)

    def test_dry_run_and_shadow(self):
        for more, policy in ("stint_dry_run on;", ""), ("", "shadow"):
            with self.subTest(more=more, policy=policy):
                with self.behind(FAILED + f"stint_policy z 2{PER_LONG} name=p {policy};{more}",
                                 "stint_limit z p $remote_addr charge=$failed;") as server:
                    self.assertEqual(server.statuses(5, "/401"), [401] * 5)
                    found = policy_status(server, "p")
                    self.assertEqual((found["allowed"], found["charged"]), (2, 3))
                    self.assertEqual(found["refused"] + found["shadowed"], 4)

    def test_under_load_nothing_is_lost(self):
        """Each response is charged once, over several workers and reloads."""
        with self.behind("stint_policy z 1M/52w name=p;",
                         "stint_limit z p $remote_addr charge=2;", workers=3) as server:
            storm = Storm(server, "/200", threads=6, enough=lambda storm: storm.allowed >= 1500)
            storm.run(lambda: [server.reload() for _ in range(2)])
            self.assertEqual((storm.other, storm.refused), (set(), 0))
            # Those whose connection broke may have been answered, too.
            until(lambda: storm.allowed <= policy_status(server, "p")["charged"]
                  <= storm.allowed + storm.errors, "all charges")

    def test_after_an_error_page(self):
        """One of another status hides that of the server behind from $status."""
        failed_there = "map $upstream_status $failed { ~401 1; default 0; }\n"
        for failed, page, code, limited in ((FAILED, "/200", 401, True), (FAILED, "= /200", 200, False),
                                            (failed_there, "= /200", 200, True),
                                            (failed_there, "=418 /200", 418, True)):
            with self.subTest(failed=failed, page=page), self.behind(
                    failed + f"stint_policy z 2{PER_LONG} name=p;\n"
                    f"proxy_intercept_errors on; error_page 401 {page};",
                    "stint_limit z p $remote_addr charge=$failed;") as server:
                self.assertEqual(server.statuses(3, "/401"), [code, code, 429 if limited else code])



if __name__ == "__main__":
    main()
