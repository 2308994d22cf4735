#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The nginx module in the real nginx, with several workers, over real HTTP.

    module.py MODULE_SO [TEST...]
"""
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # of server.py, beside it
from server import PATIENCE, Response, Server, until
from servers import free_port, over_and_over, replaced, wrk

MODULE = "ngx_http_stint_module.so"

# A window that does not end while a test runs, and when it does end. It is aligned to the epoch.
LONG = 364 * 86400  # s
PER_LONG = "/52w"


def window_end():
    return (int(time.time()) // LONG + 1) * LONG


def close(connections):
    for connection in connections:
        connection.close()


def location(name, *directives):
    return f"location {name} {{\n" + "\n".join(directives) + "\n}\n"


def zone(options="entries=1k", **policies):
    """The zone z, with policies of these names; a number is so many in a window that does not end."""
    return f"stint_zone z {options};\n" + "".join(
        f'stint_policy z "{policy}{"" if isinstance(policy, str) else PER_LONG} name={name}";\n'
        for name, policy in policies.items())


STATUS = location("/status", "stint_status_page z;", "access_log off;")


class Case(unittest.TestCase):
    def serve(self, http="", server="", **more):
        return Server(MODULE, http, server, **more)

    def limited(self, policy, *directives, key="$remote_addr", options="", zone="entries=1k", http="",
                locations="", **more):
        """A server with one zone, one policy and one limit on /."""
        return self.serve(f'stint_zone z {zone};\nstint_policy z "{policy} name=p";\n{http}', location(
            "/", f'stint_limit z p "{key}" {options};', *directives) + locations, **more)

    def told(self, server, code=0):
        """What nginx -t says of its configuration; and it ends so."""
        self.addCleanup(server.close)
        status, said = server.test()
        self.assertEqual(status, code, said)
        return said

    def check_storm(self, storm, limit):
        """What a killed worker had granted, but not told, is lost; nobody gets more."""
        self.assertLessEqual(set(storm.count), {200, 429, None})
        self.assertLessEqual(storm.allowed, limit)
        self.assertGreaterEqual(storm.allowed, limit - storm.count[None])
        self.assertEqual(storm.server.get().stint, f"REJECTED p {limit}/{limit} 0")

    def expect(self, expected, response):
        """A status, or it and what X-Stint says. Returns the response."""
        if isinstance(expected, int):
            self.assertEqual(response.status, expected)
        else:
            self.assertEqual((response.status, response.stint), expected)
        return response


class Counting(Case):
    """Exactly `limit` requests get through, however many come at once."""

    def test_wrk(self):
        limit = 700
        with self.limited(f"{limit}{PER_LONG}", workers=4) as server:
            requests, refused = wrk(server.url())()
            self.assertEqual(requests - refused, limit)
            lines = server.access_log(requests)
        by_worker = collections.Counter(line[0] for line in lines)
        self.assertGreater(len(by_worker), 1, f"one worker did it all: {by_worker}")
        self.assertEqual({(line[3], line[6], line[7]) for line in lines if line[1] == "429"}, {("REJECTED", str(limit), "0")})
        # Each count was given to one request.
        self.assertEqual(sorted((line[3], int(line[6])) for line in lines if line[1] == "200"),
                         [("PASSED", used + 1) for used in range(limit)])

    def test_binary_keys(self):
        """127.0.0.1, 127.0.1.1 and 127.0.0.2 are alike up to a NUL byte."""
        with self.limited(f"2{PER_LONG}", key="$binary_remote_addr") as server:
            for source in "127.0.0.1", "127.0.1.1", "127.0.0.2", "127.0.1.2":
                self.assertEqual(server.statuses(3, source=source), [200, 200, 429])

    def test_an_empty_key_is_no_limit(self):
        with self.serve(zone(user=2, address=5) + "stint_headers draft;", location("/file", "stint_limit z user $arg_user;") +
                        location("/other", "stint_limit z user $arg_user;", "stint_limit z address $remote_addr;")) as server:
            for _ in range(5):
                response = self.expect((200, "/"), server.get("/file"))
                self.assertIsNone(response["RateLimit"])
            self.assertEqual(server.access_log(5)[-1][3:], ["-"] * 7)
            # The other limits of the location hold.
            self.assertEqual(server.statuses(6, "/other"), [200] * 5 + [429])
            self.assertEqual(server.statuses(1, "/other?user=x"), [429])

    def test_names_without_name(self):
        """A policy without a name is named by its rate, and found however that is written. A name comes before a rate."""
        for policies, one, other, told in (
                ("2 per 52 weeks", "2/52 weeks", "2/52w", "2/52 weeks 2/2 0"),
                ("2/364d", "2 per 52 weeks", "2/52w", "2/52 weeks 2/2 0"),
                ("2/52w smooth", "2r/364d", "2/31449600s", "2/52 weeks 2/2 0"),
                ("5/52w; stint_policy z 2/52w name=5/52w", "5/52w", "5/52w", "5/52w 2/2 0")):
            with self.subTest(one=one, other=other), self.serve(
                    f"stint_zone z entries=1k policies={1 + policies.count(';')}; stint_policy z {policies};",
                    location("/file", f'stint_limit z "{one}" k;') + location("/other", f'stint_limit z "{other}" k;')) as server:
                self.assertEqual([server.get(path).status for path in ("/file", "/other", "/file")], [200, 200, 429])
                server.reload()
                self.expect((429, f"REJECTED {told}"), server.get("/other"))


class Several(Case):
    """Several limits on one request: all or nothing, but for what is in flight, which comes last."""

    def test_keys_of_60_kb(self):
        """nginx/nginx#1583: limit_req and limit_conn let such keys through without a limit."""
        with self.serve(zone(p=2, now="1/h in-flight") + "large_client_header_buffers 4 64k;",
                        "limit_rate 1000; stint_limit z p $http_key; stint_limit z now $http_key;") as server:
            for end in "a", "b":
                headers = {"Key": "k" * 60000 + end}
                first = server.begin(1, "/long", headers=headers)
                self.assertEqual(first[0].getresponse().status, 200)
                self.expect((429, "REJECTED now 1/1 0"), server.get(headers=headers))
                self.expect((429, "REJECTED p 2/2 0"), server.get(headers=headers))
                close(first)

    def test_decided_once(self):
        """Neither an error page, nor a subrequest, nor a named location decides again."""
        with self.serve(zone(many=5), "error_page 404 /other;\n" +
                        location("/", "stint_limit z many k;", "auth_request /auth;", "try_files $uri @named;") +
                        location("@named", "stint_limit z many k;", "return 404;") +
                        location("= /auth", "stint_limit z many k;", "empty_gif;")) as server:
            for path, told in (("/file", (200, "PASSED many 1/5 4")), ("/missing", (404, "PASSED many 2/5 3")),
                               ("/missing", (404, "PASSED many 3/5 2")), ("/file", (200, "PASSED many 4/5 1"))):
                self.expect(told, server.get(path))

    ZONES = (zone(many=5, now="9/h in-flight") + f"stint_zone y entries=1k; stint_headers both; stint_policy y 2{PER_LONG} name=few;"
             f"stint_policy y 9/h in-flight name=now; stint_policy y 3/day reserve=1 name=wait; stint_policy y 4{PER_LONG} name=shadow shadow;")
    PAGES = "".join(location(f"= /{name}", f"stint_status_page {name};") +
                    location(f"/now-{name}", f"stint_limit off rate; stint_limit {name} now k cost=0;", "empty_gif;")
                    for name in "zy")

    def lands(self, server):
        for name in "zy":
            until(lambda: server.get(f"/now-{name}").stint == "PASSED now 0/9 9", "nothing to be in flight")

    def counts(self, server, zone, name):
        [found] = [policy for policy in json.loads(server.get(f"/{zone}").body)["policies"] if policy["name"] == name]
        return found["allowed"] - found["refunded"], found["refused"]

    def test_of_two_zones(self):
        """All or nothing, in whatever order they stand, and the client is told of all rates."""
        many, few = "stint_limit z many $remote_addr;", "stint_limit y few $arg_user;"
        more = "stint_limit z now k; stint_limit y shadow k;"
        for lines in (many, few, more), (few, many, more), (more, many, few):
            with self.subTest(lines=lines), self.serve(
                    self.ZONES, location("/file", *lines) + location("/other", many) + self.PAGES) as server:
                self.assertEqual(server.statuses(2, "/file?user=a"), [200, 200])
                for _ in range(10):
                    response = self.expect((429, "REJECTED few 2/2 0"), server.get("/file?user=a"))
                    told = dict(re.findall(r'"(\w+)";r=(\d+)', response["RateLimit"]))
                    self.assertEqual(set(re.findall(r'"(\w+)";q', response["RateLimit-Policy"])), set(told))
                    self.assertEqual(told, {"many": "3", "few": "0"})
                    self.assertEqual((response["X-RateLimit-Limit"], response["X-RateLimit-Remaining"]), ("2", "0"))
                    self.assertLess(abs(int(response["Retry-After"]) - (window_end() - time.time())), 30)
                self.assertEqual(server.get("/other").stint, "PASSED many 3/5 2")
                self.assertEqual(server.statuses(3, "/file?user=b"), [200, 200, 429])
                for _ in range(3):
                    response = self.expect((429, "REJECTED many 5/5 0"), server.get("/file?user=c"))
                    self.assertEqual(response["X-RateLimit-Limit"], "5")
                    self.assertIn('"few";r=2', response["RateLimit"])
                self.assertEqual(self.counts(server, "z", "many")[0], 5)
                self.assertEqual(self.counts(server, "y", "few")[0], 4)
                self.lands(server)
                # What both refuse, the first of them tells.
                self.assertEqual(len(server.logged('limiting requests, 2 of 2 used, by policy "few" in zone "y"')),
                                 2 if lines[0] == few else 1)
                self.assertEqual(len(server.logged('limiting requests, 5 of 5 used, by policy "many" in zone "z"')), 1)

    def test_of_one_policy_and_key(self):
        """The second is decided after the first, as that of another zone is: both count, or none does."""
        with self.serve(self.ZONES, location("/file", "stint_limit z many $arg_a;", "stint_limit z now k;",
                                             "stint_limit z many $arg_b;") + self.PAGES) as server:
            self.assertEqual(server.statuses(3, "/file?a=x&b=x"), [200, 200, 429])
            self.assertEqual(self.counts(server, "z", "many"), (4, 1))
            self.assertEqual(server.statuses(3, "/file?a=y&b=z"), [200, 200, 200])

    def test_of_two_zones_inherited(self):
        """As limit_conn and limit_req, each of a zone of its own."""
        with self.serve(self.ZONES, "limit_rate 1000; stint_limit y now k cost=4;\n" +
                        location("/long", "stint_limit z many $arg_user;") + self.PAGES) as server:
            first = server.begin(2, "/long?user=a")
            self.assertEqual([connection.getresponse().status for connection in first], [200, 200])
            for _ in range(3):
                self.expect((429, "REJECTED now 8/9 1"), server.get("/long?user=a"))
            self.expect((429, "REJECTED many 5/5 0"), server.get("/long?user=a"))
            self.assertEqual(self.counts(server, "z", "many"), (5, 1))
            close(first)
            self.lands(server)
            self.assertEqual(server.get("/long?user=b", "HEAD").stint.split()[0], "PASSED")
            self.lands(server)

    def test_of_two_zones_with_what_settles_later(self):
        """Charges, waits and a dry run."""
        with self.serve(self.ZONES, location(
                "/charged", "stint_limit z many $arg_user charge=3;", "stint_limit y few $arg_user charge=$arg_late late;",
                "empty_gif;") + location("/wait", "stint_limit z many $arg_user;", "stint_limit y wait k delay=30d;",
                                         "empty_gif;") +
                location("/dry", "stint_limit y few $arg_user;", "stint_limit z many $arg_user;", "stint_dry_run on;",
                         "empty_gif;") +
                self.PAGES) as server:
            self.assertEqual(server.get("/charged?user=a&late=2").status, 200)
            until(lambda: self.counts(server, "y", "few") is not None and
                  server.get("/charged?user=a").status == 429, "the late charge")
            self.assertEqual(self.counts(server, "z", "many")[1], 0)
            self.assertEqual(server.statuses(3, "/wait?user=b"), [200] * 3)
            [waiting] = server.begin(1, "/wait?user=b")
            until(lambda: json.loads(server.get("/y").body)["held"] == 1, "a request to wait")
            self.assertEqual(json.loads(server.get("/z").body)["held"], 0)
            waiting.close()
            until(lambda: json.loads(server.get("/y").body)["held"] == 0, "nobody to wait")
            self.assertEqual([server.get("/dry?user=c").stint.split()[0] for _ in range(4)],
                             ["PASSED"] * 2 + ["REJECTED_DRY_RUN"] * 2)

    def test_64_limits(self):
        names = [f"p{i}" for i in range(64)]
        with self.serve(zone(**dict.fromkeys(names, 3)) + "stint_headers both;",
                        location("/", *(f"stint_limit z {name} $remote_addr;" for name in names))) as server:
            for _ in range(3):
                self.assertEqual(self.expect(200, server.get())["RateLimit"].count(";r="), 64)
            self.assertEqual(self.expect(429, server.get())["RateLimit-Policy"].count(";q=3"), 64)


class Cost(Case):
    def costly(self, cost, policy=f"10{PER_LONG}"):
        return self.limited(policy, options=f"cost={cost}", http="stint_headers draft;")

    def test_variable(self):
        """Empty, and what is no number, is 1."""
        with self.costly("$arg_n") as server:
            for n, used in (5, 5), (0, 5), ("", 6):
                self.assertEqual(server.get(f"/file?n={n}").stint, f"PASSED p {used}/10 {10 - used}")
            self.assertEqual(server.logged("not a number"), [])
            response = self.expect((429, "REJECTED p 6/10 4"), server.get("/file?n=5"))
            self.assertRegex(response["Retry-After"], r"^\d+$")
            for n in 11, 2**32, 2**64 + 1, 10**300:  # more than can ever fit
                response = self.expect((429, "REJECTED p 6/10 4"), server.get(f"/file?n={n}"))
                self.assertIsNone(response["Retry-After"])
            self.assertEqual(server.get("/file?n=002").stint, "PASSED p 8/10 2")
            for n in "-1", "%31":
                self.assertEqual(server.get(f"/file?n={n}").status, 200)
            self.expect((429, "REJECTED p 10/10 0"), server.get("/file?n=0x1"))

    def test_it_is_logged_once_a_minute_escaped_and_cut(self):
        with self.costly("$http_n", policy=f"1M{PER_LONG}") as server:
            self.assertEqual(server.statuses(300, headers={"N": 'a"b\\c\t\x7f' + "x" * 3000}), [200] * 300)
            told = server.logged(r'\[error\] .*stint cost "(.*)" is not a number, taken as 1, in zone "z" \(told once a minute\)')
            self.assertIn(len(told), range(1, server.WORKERS + 1))
            self.assertEqual(set(told), {"a\\x22b\\x5Cc\\x09\\x7F" + "x" * 57 + "..."})

    WARNED = (
        ("", "cost=21", '"cost=21" is above the 20 that policy "p" has here: all requests are refused, in'),
        ("", "cost=20", None), ("", "cost=21 limit=30", None), ("capacity=30", "cost=30", None), ("burst=30", "cost=30", None),
        ("burst=10", "cost=11", '"cost=11" is above the 10 that policy "p" has here'),
        ("burst=10", "cost=7 burst=6", '"cost=7" is above the 6 that policy "p" has here'),
        ("burst=10", "cost=6 burst=6", None), ("burst=10", "burst=10", None),
        ("burst=10", "burst=11", '"burst=11" is above the 10 that policy "p" has here, and taken as that, in'),
        ("burst=10", "burst=99 limit=40", None), ("burst=1 reserve=9", "delay burst=10", None),
        ("capacity=5", "", 'policy "20/minute capacity=5 name=p": no window grants more than capacity=5, and a larger cost never '
         "fits, though the limit is 20 in"), ("capacity=5 reserve=5", "delay", None),
        ("ban=30s", "", 'policy "20/minute ban=30s name=p": ban= is shorter than the window'), ("ban=1h", "", None),
        ("overrides", "", 'policy "p" has "overrides", but none can be set in the zone "z", which has no "file", in'),
        ("", "charge=$bytes_sent", '"charge=$bytes_sent" is settled when the header of the response is made, and $bytes_sent is '
         'known only later: "late" charges at the end in'), ("", "charge=1${request_time}0",
                                                             "and $request_time is known only later"),
        ("", "charge=$bytes_sent late", None), ("", "charge=$sent_http_bytes_sent$arg_a", None),
        ("", "charge=401", '"charge=401" is what each response costs: a variable, such as a map of $status, tells which ones do in'),
        ("reserve=5", "delay=8", '"delay=8" is a time, and without a unit in ms; in limit_req it is a number of requests, which is '
         """here the policy's "burst=" in"""), ("reserve=5", "delay=8ms", None),
        ("", "; stint_status 502", '"stint_status 502": a load balancer may take refusals for failures, repeat them elsewhere and '
         "take out this server; 429 says what they are in"), ("", "; stint_status 504", '"stint_status 504": a load balancer'),
        ("", "; stint_status 501", None), ("", "; stint_status 505", None))

    def test_what_makes_no_sense_is_warned_of(self):
        """What the library notes of a policy (tests/api/notation.c) is one of these."""
        for policy, limit, warned in self.WARNED:
            with self.subTest(policy=policy, limit=limit):
                said = self.told(Server(MODULE, f"stint_zone z entries=1k; stint_policy z 20/minute {policy} name=p;",
                                        f"stint_limit z p $uri {limit};"))
                self.assertEqual("[warn]" in said, warned is not None, said)
                self.assertIn(warned or "", said)


class Fields(Case):
    """What the client is told."""

    DRAFT, LEGACY = ["RateLimit-Policy", "RateLimit"], ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    NAMES = DRAFT + LEGACY + ["Retry-After"]

    def test_which(self):
        for mode, expected in (("", []), ("stint_headers off;", []), ("stint_headers draft;", self.DRAFT),
                               ("stint_headers legacy;", self.LEGACY), ("stint_headers both;", self.DRAFT + self.LEGACY)):
            with self.subTest(mode=mode), self.limited(f"2{PER_LONG}", mode) as server:
                for status, remaining in (200, 1), (200, 0), (429, 0):
                    left = window_end() - time.time()
                    response = self.expect(status, server.get())
                    there = {name: response[name] for name in self.NAMES if response[name] is not None}
                    self.assertEqual(list(there), expected + ["Retry-After"] * (expected != [] and status == 429))
                    for name, value in there.items():
                        if name in ("RateLimit", "Retry-After"):
                            start = "" if name == "Retry-After" else f'"p";r={remaining};t='
                            self.assertTrue(value.startswith(start), value)
                            self.assertAlmostEqual(int(value.removeprefix(start)), left, delta=2)
                        else:
                            self.assertEqual(value, {"RateLimit-Policy": f'"p";q=2;w={LONG}', "X-RateLimit-Limit": "2",
                                                     "X-RateLimit-Reset":
                                                     str(window_end()), "X-RateLimit-Remaining": str(remaining)}[name])

    def test_error_pages_and_redirects_and_missing_files(self):
        with self.limited(f"3{PER_LONG}", "stint_headers draft;", "error_page 429 /other;",
                          "rewrite ^/moved$ /file redirect;") as server:
            self.assertEqual(server.get("/missing")["RateLimit"].split(";")[1], "r=2")
            # A rewrite is done before limits are looked at, as with limit_req.
            self.assertIsNone(server.get("/moved")["RateLimit"])
            server.statuses(2)
            response = server.get()
            self.assertEqual((response.status, response.body), (429, b"other\n"))
            self.assertEqual(response["RateLimit"].split(";")[1], "r=0")
            self.assertIsNotNone(response["Retry-After"])

    def test_http_2(self):
        with self.limited(f"1{PER_LONG}", "stint_headers both;").with_http_2() as server:
            for status in 200, 429:
                said, _ = server.curl("--include").communicate(timeout=PATIENCE)
                self.assertTrue(said.startswith(f"HTTP/2 {status}"), said)
                self.assertIn(f'\nratelimit-policy: "p";q=1;w={LONG}\n', said)
                self.assertEqual("\nretry-after: " in said, status == 429)


class Variables(Case):
    def test_in_the_access_log(self):
        with self.limited(f"1{PER_LONG}") as server:
            server.get("/file")
            server.get("/missing")
            allowed, refused = sorted(server.access_log(2), key=lambda line: line[2])
        self.assertEqual(allowed[2:8], ['"/file"', "PASSED", "p", "1", "1", "0"])
        self.assertEqual(refused[2:8], ['"/missing"', "REJECTED", "p", "1", "1", "0"])
        self.assertEqual(allowed[9], "-")
        for seconds in allowed[8], *refused[8:]:
            self.assertAlmostEqual(int(seconds), window_end() - time.time(), delta=PATIENCE)


class Trying(Case):
    """Limits that are tried out."""

    def test_dry_run(self):
        with self.limited(f"2{PER_LONG}", http="stint_dry_run on; stint_headers both;",
                          locations=location("/other", "stint_dry_run off; stint_limit z p $remote_addr;")) as server:
            for told in ["PASSED p 1/2 1", "PASSED p 2/2 0"] + ["REJECTED_DRY_RUN p 2/2 0"] * 3:
                response = self.expect((200, told), server.get())
                self.assertEqual([response[name] for name in Fields.NAMES], [None] * 6)
            self.assertEqual(server.logged(r"limiting requests, (.*?), client"),
                             ['dry run, 2 of 2 used, by policy "p" in zone "z"'])
            self.assertEqual(server.get("/other").status, 429)

    def test_shadow(self):
        with self.serve(zone(tried=f"2{PER_LONG} shadow", real=4) + "stint_headers both;",
                        location("/", "stint_limit z tried k;", "stint_limit z real k;")) as server:
            self.assertEqual(server.statuses(3), [200, 200, 200])
            response = self.expect((200, "REJECTED_SHADOW tried 2/2 0"), server.get())
            self.assertEqual(response["RateLimit-Policy"], f'"real";q=4;w={LONG}')
            self.assertEqual(response["X-RateLimit-Limit"], "4")
            self.assertEqual(server.get().status, 429)
            self.assertEqual(len(server.logged('limiting requests, shadow, 2 of 2 used, by policy "tried"')), 1)

class Logging(Case):

    def test_no_more_than_100_lines_a_second(self):
        """Whatever the keys; and how many were left out, also by a worker that ends within that second."""
        with self.limited(f"1{PER_LONG}", key="$arg_user", zone="entries=10k", workers=1) as server:
            def logged():
                return len(server.logged("limiting requests, 1 of 1 used"))

            def left_out():
                return sum(map(int, server.logged(r"\[error\] .*limiting requests, (\d+) lines more were left out within a second")))
            for count in 1000, 2000:
                begin, before = time.monotonic(), logged()
                with contextlib.closing(server.connect()) as connection:
                    for user, status in ((user, status) for user in range(count - 1000, count) for status in (200, 429)):
                        connection.request("GET", f"/file?user={user}", headers={"Connection": "keep-alive"})
                        self.expect(status, Response(connection.getresponse()))
                spent = time.monotonic() - begin
                if count == 2000:
                    server.reload()
                until(lambda: left_out() + logged() == count, "all to be told")
                self.assertLessEqual(logged() - before, 100 * (int(spent) + 2))

    def test_levels(self):
        levels = "info", "notice", "warn", "error"
        with self.serve(f"stint_zone z entries=1k; stint_policy z 1{PER_LONG} name=p;", "".join(location(
                f"/{level}", f"stint_limit z p $uri; stint_log_level {level};") for level in levels), log_level="info") as server:
            for level in levels:
                server.statuses(3, f"/{level}")
            self.assertEqual(server.logged(r"\[(\w+)\] .*limiting requests.*GET /(\w+)"), [(level, level) for level in levels])


class Full(Case):
    """A table of 4 slots, and 40 keys."""

    def test_outcomes(self):
        """How often a key got each row of statuses, what is logged, and how the first key fares again."""
        for outcome, statuses, uncounted, said, again in (
                ("admit", {(200, 200, 429): 192, (200, 200, 200): 208}, ["UNTRACKED"] * 624,
                 "a request was let through uncounted", False),
                ("refuse", {(200, 200, 429): 192, (429, 429, 429): 208}, ["REJECTED"] * 624,
                 "a request was refused uncounted", False),
                ("replace", {(200, 200, 429): 400}, [], "a key lost its count to another", True)):
            with self.subTest(outcome=outcome), \
                    self.limited(f"2{PER_LONG}", key="$arg_user", zone=f"entries=1 policies=1 full={outcome}",
                                 workers=1) as server:
                found = collections.Counter(tuple(server.statuses(3, f"/file?user={user}")) for user in range(400))
                self.assertEqual(found, statuses)
                self.assertEqual(server.logged(
                    r'\[error\] .*stint zone "z" is full: (.*?); it needs more keys'), [said])
                # What was not counted does not look as if.
                self.assertEqual([line[3:] for line in server.access_log(1200) if line[6] == "-"],
                                 [[name, "p", "2", "-", "-", "-", "-"] for name in uncounted])
                first = [status for user in range(20) for status in server.statuses(1, f"/file?user={user}")]
                self.assertEqual(200 in first, again)

    def test_an_uncounted_limit_beside_a_counted_one(self):
        """The fields and variables tell of the one that was counted."""
        with self.serve(zone("entries=1 policies=2 full=admit", p=2, all=9999) + "stint_headers both;",
                        location("/", "stint_limit z all all;", "stint_limit z p $arg_user;"), workers=1) as server:
            user, response = next((user, response) for user in range(2000) if
                                  (response := server.get(f"/file?user={user}")).stint.split()[0] == "UNTRACKED")
            self.assertEqual(response.stint, f"UNTRACKED all {user + 1}/9999 {9998 - user}")
            self.assertEqual(response["X-RateLimit-Limit"], "9999")
            self.assertEqual(response["RateLimit-Policy"], f'"all";q=9999;w={LONG}')


class Storm:
    """Threads that ask and ask until it is enough, on connections that are opened again when they break."""

    def __init__(self, server, path="/file", threads=8, enough=lambda storm: False):
        self.server, self.path, self.threads, self.enough = server, path, threads, enough
        self.count = collections.Counter()  # of each status; None: the connection broke
        self.lock = threading.Lock()
        self.over = threading.Event()

    allowed = property(lambda self: self.count[200])
    refused = property(lambda self: self.count[429])

    def ask(self, _):
        connection = self.server.connect()
        with contextlib.closing(connection):
            while not self.over.is_set():
                try:
                    connection.request("GET", self.path)
                    status = Response(connection.getresponse()).status
                except Exception:  # OSError, and http.client has many names for a connection that broke
                    status = None
                    connection.close()  # which the next request opens
                with self.lock:
                    self.count[status] += 1
                    if self.enough(self):
                        self.over.set()

    def run(self, meanwhile=lambda: None):
        with over_and_over(self.ask, self.threads):
            try:
                meanwhile()
                self.over.wait(60)
            finally:
                self.over.set()


class Reloads(Case):
    ZONE = "stint_zone z entries=1k;\n"
    LIMIT = location("/", "stint_limit z p $remote_addr;", "stint_headers legacy;")

    def policy(self, text):
        return self.ZONE + f"stint_policy z {text} name=p;\n"

    def test_a_policy_changes_live(self):
        with self.serve(self.policy(f"3{PER_LONG}"), self.LIMIT) as server:
            self.assertEqual(server.statuses(4), [200] * 3 + [429])
            # A test of the configuration does not touch the server that runs.
            self.assertEqual(server.configure(self.policy(f"5{PER_LONG}"), self.LIMIT).test()[0], 0)
            self.assertEqual(server.get()["X-RateLimit-Limit"], "3")
            server.reload()
            self.assertEqual(server.logged('stint policy "p" of zone "z" changed from (.*)'), ['"3/52 weeks" to "5/52 weeks"'])
            self.assertEqual(self.expect(200, server.get())["X-RateLimit-Limit"], "5")
            self.assertEqual(server.statuses(2), [200, 429])
            server.configure(self.policy(f"2{PER_LONG}"), self.LIMIT).reload()
            self.assertEqual(self.expect(429, server.get())["X-RateLimit-Limit"], "2")
            server.configure(self.policy(f"2{PER_LONG} shadow"), self.LIMIT).reload()
            self.assertEqual(server.get().status, 200)

    def test_what_cannot_change_is_refused(self):
        for old, new, why in (
                (f"3{PER_LONG}", "3/day", "the window cannot change"),
                ("3/day", "3/day smooth", "start=per-key, start=first, smooth and in-flight cannot change"),
                ("3/day", "3/day capacity=9", "capacity above the limit, and reserve, by which requests carry over, cannot come to a "
                 "policy that has neither, nor both leave one"),
                ("3/day", "3/day burst=3", "a token bucket cannot become a window, nor the other way round")):
            with self.subTest(new=new), self.serve(self.policy(old), self.LIMIT) as server:
                self.assertEqual(server.get().stint, "PASSED p 1/3 2")
                self.assertEqual(server.configure(self.policy(new), self.LIMIT).test()[0], 0)
                [line] = server.reload_refused()
                self.assertIn(f'stint policy "p" of zone "z" in {server.configuration}:{server.line_of(new)} cannot become "{new}", '
                              f"because {why}: give it another name", line)
                self.assertEqual(server.get().stint, "PASSED p 2/3 1")
                server.configure(self.ZONE + f"stint_policy z {new} name=q;", location("/", "stint_limit z q k;")).reload()
                self.assertEqual(server.get().stint.split()[:2], ["PASSED", "q"])

    def test_a_changed_size_is_refused(self):
        policy = self.policy(f"3{PER_LONG}")
        with self.serve(policy, self.LIMIT) as server:
            server.get()
            for size in "entries=2k", "entries=1025", "entries=1k policies=65", "entries=7k labels=9":
                [line] = server.configure(policy.replace("entries=1k", size), self.LIMIT).reload_refused()
                self.assertIn('stint zone "z" cannot change its size while nginx runs, and has entries=1000 policies=64 labels=0: '
                              f"restart nginx, or give it another name in {server.configuration}:{server.line_of(size)}", line)
            self.assertEqual(server.get().stint, "PASSED p 2/3 1")
            # What a full table does may change.
            server.configure(policy.replace("entries=1k", "entries=1000 full=refuse"), self.LIMIT).reload()
            self.assertEqual(server.get().stint, "PASSED p 3/3 0")

    def test_a_reload_that_fails_later_changes_nothing(self):
        """Nor does it leave a handle of a new zone: nginx unmaps that, and whatever it forks later must not look at it."""
        new = f"stint_zone new entries=10k; stint_policy new 1{PER_LONG} name=q;\n"
        good = self.policy(f"9{PER_LONG}")
        with self.serve(good, self.LIMIT) as server, self.serve() as other:
            for text, said in ((self.policy(f"7{PER_LONG}") + f"server {{ listen 127.0.0.1:{other.port}; }}", "bind()"),
                               (self.policy("9/day"), "cannot become")):  # found after the new zone was made
                self.assertIn(said, server.configure(new + text, self.LIMIT).reload_refused()[0])
                server.kill_worker(server.worker_pids()[0])
                server.configure(good, self.LIMIT).reload()
            self.assertEqual(server.logged("exited on signal 11|changed from"), [])
            self.assertEqual(server.get().stint, "PASSED p 1/9 8")
            # Once it is accepted, the zone works.
            server.configure(new + good, self.LIMIT.replace("z p", "new q")).reload()
            self.assertEqual(server.statuses(2), [200, 429])
            server.reload()
            self.assertEqual(server.get().stint, "REJECTED q 1/1 0")

    def test_policies_that_are_removed_stay_in_the_table(self):
        def use(*names):
            return (zone("entries=1k policies=2", **dict.fromkeys(names, 3)),
                    location("/", *(f"stint_limit z {name} $remote_addr;" for name in names)))
        with self.serve(*use("a", "b")) as server:
            self.assertEqual(server.get().stint, "PASSED a 1/3 2")
            server.configure(*use("b")).reload()
            self.assertEqual(server.get().stint, "PASSED b 2/3 1")
            server.configure(*use("a")).reload()
            self.assertEqual(server.get().stint, "PASSED a 2/3 1")
            [line] = server.configure(*use("a", "c")).reload_refused()
            self.assertIn('stint zone "z" has no room for the policy "c" in', line)
            self.assertEqual(server.get().stint, "PASSED a 3/3 0")

    def test_the_module_comes_and_goes(self):
        with self.serve(self.policy(f"3{PER_LONG}"), self.LIMIT) as server:
            text = server.configuration.read_text()
            server.get()
            without = re.sub(r"^ *(load_module|access_log access|add_header|log_format\s[^;]*;)[^\n]*\n", "", server.configure(
                "access_log off;", "").configuration.read_text(), flags=re.MULTILINE)
            self.assertNotIn("stint_", without.replace(str(server.directory), ""))
            for configuration, told in (without, None), (text, "PASSED p 1/3 2"):
                server.configuration.write_text(configuration)
                server.reload()
                self.assertEqual(server.get()["X-Stint"], told)


class Metrics(Case):
    def parse(self, response):
        try:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
        except ImportError:
            self.skipTest("python3-prometheus-client is not installed")
        self.assertEqual((response.status, response["Content-Type"]),
                         (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"))
        return [(sample.name, sample.labels) for family in text_string_to_metric_families(response.body.decode())
                for sample in family.samples]

    def test_methods_and_many_policies(self):
        """Of the metrics and of the status page; more than one buffer."""
        names = ["n" * 60 + str(i) for i in range(300)]
        with self.serve(zone("entries=1k policies=300", **dict.fromkeys(names, 3)),
                        location("/metrics", "stint_metrics z;") + STATUS) as server:
            for page in "/metrics", "/status":
                response = server.get(page, method="HEAD")
                self.assertEqual((response.status, response.body), (200, b""))
                self.assertGreater(int(response["Content-Length"]), 0)
                self.assertEqual(server.get(page, method="POST").status, 405)
            self.assertEqual(len(json.loads(server.get("/status").body)["policies"]), 300)
            response = server.get("/metrics")
            self.assertTrue(response.body.endswith(b"# EOF\n"))
            self.assertIn(("stint_policy_limit", {"policy": names[299], "zone": "z"}), self.parse(response))

    def test_zones_are_told_apart(self):
        name = 'a "b" \\\\ c'
        with self.serve(f"stint_zone z entries=1k; stint_zone '{name}' entries=2k;",
                        location("/z", "stint_metrics z;") + location("/other", f"stint_metrics '{name}';")) as server:
            for path, zone in ("/z", "z"), ("/other", 'a "b" \\ c'):
                self.assertEqual({labels["zone"] for _, labels in self.parse(server.get(path))}, {zone})


class Mistakes(Case):
    """Each is an error of `nginx -t`, with file and line. The wrong line ends in #!."""

    # What limit_req's parameters are here.
    ZONE = 'the name of the zone comes first, without "zone="'
    RATE = 'a rate is a "stint_policy", without "rate=", such as 10/s'
    BURST = r'"burst=" needs a policy with a "burst=" \(that of limit_req and one\), which "%s" has not,'
    NODELAY = 'without "delay" nothing waits'

    def check(self, http, server, *rows):
        """Rows of what stands in the place of %s, and the message."""
        for words, message in rows:
            with self.subTest(words=words):
                configured = Server(MODULE, http.replace("%s", words), server.replace("%s", words))
                said = self.told(configured, 1)
                self.assertIn("[emerg] ", said)
                self.assertRegex(said, f"{message} in {re.escape(str(configured.configuration))}:{configured.line_of('#!')}\n")

    def test_zone(self):
        name = "the name of a stint zone must be of printable ASCII characters"
        self.check("stint_zone %s; #!", "", ("", 'invalid number of arguments in "stint_zone" directive'),
                   ('"" entries=1k', name), ("zé entries=1k", name),
                   *((wrong, '"stint_zone" directive must say how many keys it holds, such as "entries=100k"')
                     for wrong in ("z", "z full=admit")),
                   ("$binary_remote_addr zone=api:10m rate=9r/s", f'invalid parameter "zone=api:10m": {self.ZONE}'),
                   ("z rate=9r/s", f'invalid parameter "rate=9r/s": {self.RATE}'))
        self.check(
            "stint_zone z %s; #!", "",
            *((f"entries=1k file={wrong}", f'invalid file "file={wrong}": it must be the path of a file')
              for wrong in ("", "/tmp/")),
            ("entries=1k file=/nowhere/z", r'stint zone "z" cannot make its file in "/nowhere/" \(2: No such file or directory\)'),
            ("entries=1k file=/proc/z", r'stint zone "z" cannot make its file in "/proc/" \(\d+: .*\)'),
            ("entries=100g file=z", r'stint zone "z" needs \d{10} KB for its file, and there are \d+ KB in "/\S+/"'),
            ("entries=1024g", r'stint zone "z" needs \d+ MB for its keys, which the system does not give '
             r"\(12: Cannot allocate memory\)"),
            ("entries=1k full=drop", 'invalid parameter "full=drop": it must be full=admit, full=refuse or full=replace'),
            *((f"entries=1k {first}{wrong}", f'invalid parameter "{wrong}"') for first, wrong in (
                ("", "size=1m"), ("", "entries=2k"), ("full=admit ", "full=admit"))),
            *((f"{size}{wrong}", f'invalid number of {what} "{size.split()[-1]}{wrong}": it must be {must}')
              for size, what, must, all_ in (
                ("entries=", "entries", "1 to 2.40, with an optional k, m or g",
                 ("0", "-1", "x", "", "1x", "1kk", "2000g", "9" * 20)),
                ("entries=1k labels=", "labels", "1 to 16777216, with an optional k or m", ("0", "-1", "17m", "x", "")),
                ("entries=1k policies=", "policies", "1 to 4096", ("0", "-1", "4097", "1k", "")),
                ("entries=1k held=", "requests", "1 or more", ("0",))) for wrong in all_))
        self.check("limit_req_zone $uri zone=z:1m rate=1r/s;\nstint_zone z entries=1k; #!", "",
                   ("", 'the shared memory zone "z" is already declared for a different use'))
        self.check("stint_zone z entries=1k;\nstint_zone z entries=1k; #!", "",
                   ("", r'stint zone "z" is already declared in \S+:\d+'))

    def test_policy(self):
        """What is wrong with a notation is the library's to say (tests/api/notation.c); where, as there is one in nginx."""
        zone = "stint_zone z entries=1k;\n"
        self.check("%s; #!", "",
                   ("stint_policy z", 'invalid number of arguments in "stint_policy" directive'),
                   ("stint_policy z 1/s", 'unknown stint zone "z" .there is none.'),
                   ("stint_policy z rate=10r/s", f'invalid parameter "rate=10r/s": {self.RATE}'),
                   ("stint_policy z 10r/s burst=20 nodelay", f'invalid parameter "nodelay": {self.NODELAY}'))
        for policy, message in (
                ("10/minute nme=x", "'nme' is no option: name= was probably meant, at \"nme=x\""),
                ("9/s ban=0s", 'the ban must be 10 ms to 366 days, at "0s"'), ("10/", ".*, at its end")):
            self.check(zone + "stint_policy z %s; #!", "", (policy, f'invalid policy "{policy}": {message}'),
                       (f'"{policy}"', f'invalid policy "{policy}": {message}'))
        declared, room = r'stint policy "%s" is already declared in \S+:\d+', 'stint zone "z" has room for '
        self.check("stint_zone z entries=1k policies=%s #!", "",
                   ("9; stint_policy z 1/s name=p;\nstint_policy z 2/s name=p;", declared % "p"),
                   ("9; stint_policy z 60/minute;\nstint_policy z 60/m;", declared % "60/minute"),
                   ("2;\nstint_policy z 1/s;\nstint_policy z 2/s;\nstint_policy z 3/s;",
                    room + '2 policies: "policies=3" is needed for "3/second"'),
                   ("1;\nstint_policy z 1/s overrides;", room + '1 policies: "policies=2" is needed for '
                    '"1/second", as those with a ban or overrides count twice,'))

    def test_limit(self):
        http = "stint_zone z entries=1k; stint_policy z 1/s name=p;"
        number = 'invalid number of arguments in "stint_limit" directive'
        both = '"stint_limit" has limits and "off" of one kind at one level,'
        duplicate = '"stint_limit" directive is duplicate'
        self.check(
            http, "stint_limit %s; #!", ("z p", number), ("on", number),
            *((f"zone=z{more}", f'invalid parameter "zone=z": {self.ZONE}') for more in ("", " burst=9 nodelay")),
            ("z q $uri", r'unknown stint policy "q" of zone "z" \(it has "p"\)'),
            ("y p $uri", r'unknown stint zone "y" \(there is "z"\)'),
            ("off;\nstint_limit off", duplicate), ("z p $uri;\nstint_limit z p $uri", duplicate),
            ("off rate;\nstint_limit off", duplicate), ("off all", 'directive takes "off", "off rate" or "off in-flight"'
             ", or a zone, a policy and a key"),
            ("off;\nstint_limit z p $uri", both), ("z p $uri; stint_limit off", both),
            ("off rate;\nstint_limit z p $uri", both),
            ('z p ""', 'the key of "stint_limit" is empty: no request would be limited'),
            *((f"z p {key} prefix=24", f'"prefix=24" needs a key that is an address, and "{re.escape(key)}" '
               "is none: all requests would be one key")
              for key in ("$uri", "x$remote_addr", "$binary_remote_addr$arg_x", "${http_cookie}")),
            ("z $uri $uri default=q", r'unknown stint policy "q" of zone "z" \(it has "p"\)'),
            ("".join(f"z p {i};\nstint_limit " for i in range(64)) + "z p x",
             "more than 64 limits at one level"))
        self.check(
            http, "stint_limit z p $uri %s; #!",
            *((f"{first}{wrong}", f'invalid parameter "{wrong}"') for first, wrong in (
                ("cost=1 ", "cost=2"), ("", "delays"), ("delay ", "delay=5s"))),
            ("nodelay", f'invalid parameter "nodelay": {self.NODELAY}'),
            *((f"burst={burst}", self.BURST % "p") for burst in ("5", "$arg_n")),
            ("delay=soon", 'invalid delay "delay=soon": it must be a time, such as 5s or 500ms'),
            ("delay", '"delay" needs a policy with "reserve=", which "p" has not,'),
            *((f"charge=$uri {other}", f'"{one}" does not go with "{name}"') for other, one, name in (
                ("limit=2", "charge=", "limit="), ("burst=2", "charge=", "burst="), ("delay", "charge=", "delay"),
                ("late cost=2", "late", "cost="))),
            ("late", '"stint_limit" directive has "late", which goes with "charge=" only'),
            ("charge=$uri cost=0", 'directive has "charge=" with "cost=0": nothing would be taken first'),
            ("default=p", '"default=p" goes with a policy that is a variable only'),
            *((f"{name}={wrong}", f'invalid {name} "{name}={wrong}": it must be 1 to 268435456, or have variables')
              for name in ("limit", "burst") for wrong in ("0", "x", "-1", "", "268435457", "1k")),
            *((f"cost={wrong}", f'invalid cost "cost={wrong}": it must be 0 to 268435456, or have variables')
              for wrong in ("x", "-1", "", "268435457", "1k")),
            *((f"prefix={wrong}", f'invalid prefix "prefix={wrong}": it must be 1 to 32 bits '
               "of an IPv4 address, then a comma and 1 to 128 bits of an IPv6 address")
              for wrong in ("0", "33", "", "x", "24,0", "24,129", "24,", ",64", "24,64,1", "24/64")))
        flying = http + "stint_policy z 9/s in-flight name=f;"
        self.check(flying, "stint_limit z f $uri %s; #!",
                   ("charge=$uri", '"charge=" does not go with a policy that is in-flight, as "f" is,'),
                   ("delay", '"delay" needs a policy with "reserve=", which "f" has not,'), ("burst=3", self.BURST % "f"))
        self.check(http + "stint_policy z 9/s stripes=4 name=f;", "stint_limit z %s; #!",
                   *((f"{limit}", '"limit=" does not go with a policy of "stripes=", as "f" is,')
                     for limit in ("f $uri limit=3", "f $uri limit=$arg_n", "$arg_p $uri default=f limit=3")),
                   ("$arg_p $uri default=f burst=3", self.BURST % "f"))
        self.check(flying, "stint_limit z %s k; #!", (
            "$arg_p", r'the policy "\$arg_p" may be one that is in-flight, or a rate, and a limit is of one kind: "default=" tells which,'))
        self.check(flying, "".join(f"stint_limit z p {i};\n" for i in range(32)) + "location / {\nstint_limit z f 0; #!\n"
                   "%s\n}", ("".join(f"stint_limit z f {i};\n" for i in range(1, 33)),
                             "more than 64 limits at one level with those that it inherits"))
        self.check(http + "stint_policy z 2/s;", "stint_limit z %s $uri; #!",
                   *((f'"{used}"', rf'unknown stint policy "{used}" of zone "z" \(it has "p", "2/second"\)') for used in (
                       "3/s", "2/s smooth", "2/s name=p", "2/s shadow", "2/s capacity=300", "2/s start=per-key",
                       "2/s name=2/second")))

    def test_the_others(self):
        page = "directive is duplicate, or beside another page of stint"
        self.check(
            "stint_zone z entries=1k;", "%s; #!", ("stint_status 200", "value must be between 400 and 599"),
            ("stint_status many", '"stint_status" directive invalid number'),
            ("stint_status 429;\nstint_status 503", '"stint_status" directive is duplicate'),
            ("stint_headers on", '"stint_headers" directive takes off, draft, legacy or both'),
            ("stint_log_level debug", '"stint_log_level" directive takes info, notice, warn or error'),
            ("stint_dry_run yes", 'invalid value "yes" in "stint_dry_run" directive, it must be "on" or "off"'),
            *((wrong, f'"{wrong.split()[0]}" directive is not allowed here')
              for wrong in ("stint_status_page z", "stint_metrics z", "stint_zone y entries=1k")))
        self.check("stint_zone z entries=1k;", "location /m {\n%s; #!\n}",
                   ("stint_metrics y", 'unknown stint zone "y" .there is "z".'),
                   *((f"stint_metrics z;\n{name} z", f'"{name}" {page}')
                     for name in ("stint_metrics", "stint_status_page")))

    def test_what_comes_to_nothing_is_warned_of(self):
        """Each line that ends in #!, and no other."""
        limit = "stint_limit z p k;"
        configuration = Server(
            MODULE, "stint_zone y entries=1k; #!\nstint_policy y 1/s reserve=2; stint_zone z entries=1k;\n"
            "stint_policy z 1/s name=p;\nstint_policy z 1/s name=q reserve=2; #!\n"
            "stint_policy z 1/s name=r reserve=2; stint_policy z 9/1s in-flight name=f; #!\nstint_zone x entries=1k;\n"
            "stint_policy x 1/s reserve=2; stint_policy z 9/1010ms in-flight name=g;",
            location("@first", "return 204;") +
            location("/a", limit + " #!", "return 204;") +
            location("/b", "return 204;", limit + " #!", "stint_limit z q k;") +
            location("/c", limit, "if ($arg_x) { return 204; }", "stint_limit z r k delay;") +
            location("/d", f"{limit} #!", "return 204;") + location("/e", "stint_limit x $arg_x k delay;") +
            location("/f", "return 204;") + location("/h", "stint_limit off;", "return 204;") +
            location("/f/2", "return 204;") + location("/k", "stint_limit z g $http_a; stint_limit z g $http_b; #!",
                                                       "stint_limit z p x$http_a; stint_limit z r $http_a$uri delay;") +
            location("/k/2", "stint_limit z g $http_c; stint_limit z p $proxy_add_x_forwarded_for; #!") +
            location("/i", "stint_limit off;", *(location(f"/i/{key}", f"stint_limit z p {key}; #!")
                                                 for key in ("remote_addr", "http_x", "made"))) +
            "location /g { stint_limit z f k;\n" + location("/g/a", "stint_limit z r k delay;") + "}\n" + limit +
            " #!\nset $made 1;")
        lines = configuration.configuration.read_text().splitlines()
        warned = re.findall(r"\[warn\] (?:\d\S+: )?(.*?),? in \S+:(\d+)\n", self.told(configuration))
        self.assertEqual(sorted(int(number) for _, number in warned),
                         [i for i, line in enumerate(lines, 1) if line.endswith("#!")])
        self.assertEqual({said for said, _ in warned}, {
            *(f'clients write the key "{key}", and have a new limit with each value: an address is "$remote_addr" with '
              "nginx's module realip" for key in ("$http_a", "$proxy_add_x_forwarded_for")),
            'policy "9/1s in-flight name=f": a request that takes longer than its lease of 1000 ms is not counted any '
            "more: choose a longer one, such as 9/1h", 'no "stint_limit" goes by the zone "y", so it limits nothing',
            'policy "q" has "reserve=", but no "stint_limit" by it has "delay": nothing is held',
            *(f'the "return" of location "/{name}" answers before "stint_limit" decides: nothing is limited there{more}'
              for name, more in (("a", ""), ("b", ""), ("d", ""), ("f", ' ("stint_limit off" says so)'))),
            *(f'the key "{key}" is one for all requests: "${key}" is a variable'
              for key in ("remote_addr", "http_x", "made"))})

    def test_what_is_left_over_of_limit_req_is_warned_of(self):
        """Where it has no limit; once."""
        here, theirs = zone(p="1/s"), "limit_req zone=r; limit_conn c 1;"
        ours = "stint_limit z p $uri;"
        for name, value, due in (("limit_req_dry_run", "on", "stint_dry_run"), ("limit_req_status", "429", "stint_status"),
                                 ("limit_conn_dry_run", "on", "stint_dry_run"), ("limit_conn_status", "418", "stint_status")):
            directive = f"{name} {value};"
            for http, locations, warned in (
                    ("", location("/", directive, ours), True), (directive, location("/a", ours) + location("/b", ours), True),
                    (directive + ours, "", True), (directive + theirs + ours, "", False),
                    ("", location("/", directive) + location("/b", ours), False)):
                with self.subTest(http=http, locations=locations):
                    said = self.told(Server(MODULE, f"{here} limit_req_zone $uri zone=r:1m rate=1r/s; limit_conn_zone $uri zone=c:1m;{http}",
                                            locations))
                    self.assertEqual(said.count("[warn]"), warned, said)
                    self.assertEqual(len(re.findall(rf'"{name}" changes nothing here, where "{due}" does, in \S+:\d+\n',
                                                    said)), warned)

    def test_no_mistake(self):
        """Zones, policies and limits in any order; several zones; prefixes of keys that may be addresses; no http block."""
        keys = ("$remote_addr", "${remote_addr}", "$binary_remote_addr", "::ffff:$remote_addr", "$arg_x", "$http_x_forwarded_for",
                "$made", "10.0.0.$arg_x")
        server = Server(
            MODULE, f"server {{ listen 127.0.0.1:{free_port()}; stint_limit y p $uri; }}"
            "stint_policy z 1/s name=p; stint_limit z p $uri cost=$arg_n; stint_zone z entries=1;"
            "stint_zone y entries=1m policies=1 full=replace; stint_policy y 1/s name=p;",
            "".join(f"stint_limit z p {key} prefix=24; " for key in keys) + "set $made 1;")
        self.told(server)
        server.configuration.write_text(f"load_module {MODULE};\npid nginx.pid;\nevents {{}}\n")
        self.told(server)


class Benchmark(unittest.TestCase):
    """bench/nginx.py, for as short as it goes. Its figures are not looked at."""

    SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "nginx.py"

    def call(self, *arguments):
        """With a wrk that is interrupted long before the second that it is asked for is over."""
        with tempfile.TemporaryDirectory() as directory:
            short = Path(directory, "wrk")
            short.write_text(f'#!/bin/sh\nexec timeout --preserve-status -s INT 0.3 {shutil.which("wrk")} "$@"\n')
            short.chmod(0o755)
            return subprocess.run([sys.executable, self.SCRIPT, MODULE, *arguments], capture_output=True, text=True,
                                  timeout=120, env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"})

    def test_json(self):
        done = self.call("--seconds", "1", "--rounds", "1", "--workers", "2", "--format", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        result = json.loads(done.stdout)
        self.assertEqual(result["machine"]["workers"], 2)
        self.assertRegex(result["machine"]["nginx"], r"^\d+\.\d+\.\d+")
        rows = {(row["scenario"], row["limit"]) for row in result["rows"]}
        self.assertEqual(rows, {(scenario, limit)
                                for scenario in ("one key", "10,000 keys", "refused")
                                for limit in ("none", "limit_req", "stint", "limit_req, two",
                                              "stint, two limits", "stint, charge", "stint, ban",
                                              "limit_conn", "stint, in flight", "stint, draft fields")
                                if (scenario, limit) != ("refused", "limit_conn")})
        for row in result["rows"]:
            self.assertGreater(row["requests_per_second"], 0)
            self.assertGreater(row["cpu_us_per_request"], 0)

    def test_wrong_usage(self):
        for wrong in ["--seconds", "0"], ["--rounds", "x"], ["--workers"], ["--format", "csv"], ["-x"]:
            done = self.call(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""), wrong)
            self.assertIn(wrong[0], done.stderr)


class Documentation(Case):
    """src/nginx/README.md, for the operator."""

    SOURCE = Path(__file__).resolve().parents[2] / "src" / "nginx"

    def setUp(self):
        self.text = (self.SOURCE / "README.md").read_text()
        tables = tempfile.TemporaryDirectory()
        self.addCleanup(tables.cleanup)
        self.here = self.text.replace("/run/stint", tables.name)
        self.first, *self.recipes = re.findall(r"^```nginx\n(.*?)^```$", self.here, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(self.recipes), len(self.CLIENTS))

    def first_page(self):
        """A server with the first configuration."""
        server = Server(MODULE, workers=1)
        server.configuration.write_text("pid nginx.pid; daemon off;\n" + replaced(self.first, (
            "modules/ngx_http_stint_module.so", MODULE), ("listen 80;", f"listen 127.0.0.1:{server.port};")))
        return server

    def test_the_examples(self):
        listen = f"server {{ listen 127.0.0.1:{free_port()}; server_name"
        self.told(Server(MODULE, "".join(recipe.replace("server {", f"{listen} {i};") for i, recipe in enumerate(self.recipes))))
        server = self.first_page()
        self.assertNotIn("[warn]", self.told(server))
        with server:
            server.statuses(30, "/api/")  # the commands take a while, and ten a second come back
            commands = re.findall(r"^stint (\S.*?) +#", self.here, re.MULTILINE)
            self.assertGreater(len(commands), 4)
            for command in commands:
                command = command.replace("192.0.2.1", "127.0.0.1").split()
                subprocess.run([os.environ.get("STINT", "stint"), *command], check=True, timeout=20,
                               stdout=subprocess.DEVNULL)

    # Limits of the recipes, and smaller ones, so that few requests use them up. That of logins has to stay
    # shorter than its ban.
    SMALLER = {"100/minute": 3, "2000/hour": 9, "1000/minute": 3, "5000/minute": 5, "100M/hour": 2, "100/hour": 3,
               "10000/hour": 4}
    MADE_UP = [{"X-Api-Key": key} for key in "abcdef"]
    # Of each recipe: a path, the fields of the requests of each client, and how many of six get through. A client is
    # 127.ROW.NETWORK.HOST, unless a field says another.
    CLIENTS = (
        (("/", {"1.1": 3, "2.1": 3}), ("/login", {"1.1": 5, "2.1": 5})),
        (("/reports/", {"1.1": 3, "2.1": 3}), ("/download/", {"1.1": 1, "2.1": 1}), ("/steady/", {"1.1": 6, "2.1": 6}),
         ("/ladder/", {"1.1": 3, "1.2": 2, "1.3": 0, "2.1": 3}),
         ("/plans/", {"1.1": 3, "2.1": 3}, MADE_UP), ("/plans/", {"1.1": 3, "2.1": 3}),
         ("/plans/", {"1.1": 4, "2.1": 0}, [{"X-Api-Key": "k3y"}])),
        (("/package.Service/Call", {"1.1": 3, "2.1": 3}),),
        (("/", {"1.1": 6, "2.1": 6}), *(("/", {"1.1": most}, [{"X-Forwarded-For": client}]) for client, most in (
            ("192.0.2.1", 3), ("192.0.2.2", 3), ("1.2.3.4, 192.0.2.1", 0), ("192.0.2.3, 127.0.0.9", 3),
            ("192.0.2.3:4711", 0), ("2001:db8:0:1::1", 3), ("2001:db8:0:1::2", 0), ("2001:db8:0:2::1", 3)))))

    def test_two_clients(self):
        """Each recipe, with clients that have limits of their own, each of them."""
        until(lambda: time.time() % 60 < 50, "time enough for all in one minute")
        for recipe, rows in zip(self.recipes, self.CLIENTS):
            server = Server(MODULE, workers=1)
            behind = f"{server.directory}/behind"
            for limit, smaller in self.SMALLER.items():
                recipe = re.sub(rf"\b{limit}\b", f"{smaller}{PER_LONG}", recipe)
            recipe = recipe.replace("10.0.0.0/8", "127.0.0.0/8").replace("http://127.0.0.1:8080", f"http://unix:{behind}")
            recipe = recipe.replace("server {", f"server {{ listen 127.0.0.1:{(port := free_port())}; access_log off;")
            with server.configure(f"{recipe} server {{ listen unix:{behind}; add_header X-Cost 1; access_log off;"
                                  "location / { return 200; } location /login { return 401; } }", ""):
                server.port = port
                for i, (path, clients, *fields) in enumerate(rows):
                    for client, most in clients.items():
                        with self.subTest(path=path, client=client, fields=fields):
                            answers = [server.get(path, source=f"127.{i}.{client}", headers=each)
                                       for each in (fields[0] * 6 if fields else [{}] * 6)[:6]]
                            self.assertEqual([answer.status == 429 or answer["grpc-status"] == "8" for answer in answers],
                                             [False] * most + [True] * (6 - most))
                            if path == "/reports/":
                                self.assertEqual({answer["X-Cost"] for answer in answers}, {None})
                if "stint_metrics" in recipe:
                    self.assertEqual([server.get("/metrics", source=source).status for source in ("127.0.0.1", "127.0.0.2")],
                                     [200, 403])
                if "/steady/" in recipe:
                    connections = server.begin(25, "/steady/")
                    self.assertEqual({connection.getresponse().getheader("X-Stint").split()[0]
                                      for connection in connections}, {"PASSED", "DELAYED"})
                    close(connections)

    def test_what_is_seen_when_somebody_is_refused(self):
        """The fields and the line of the log, as the first page has them; numbers apart."""
        fields, line = re.findall(r"^```text\n(.*?)\n```$", self.text, re.MULTILINE | re.DOTALL)
        self.assertLessEqual(len([row for row in self.first.splitlines() if row.strip(" }")]), 10)

        def shape(text):
            return re.sub(r"\d[\d.]*", "N", text).replace("/N/N", "/N")

        with self.first_page() as server:
            response = until(lambda: (got := server.get("/api/")).status == 429 and got, "a refusal")
            for field in fields.splitlines()[1:]:
                name, value = field.split(": ", 1)
                self.assertEqual(shape(response[name]), shape(value), name)
            self.assertIn(f"{response.status} Too Many Requests", fields)
            [logged] = [each for each in server.log().splitlines() if "limiting requests" in each]
            self.assertEqual(shape(logged.replace(f":{server.port}", "")), shape(line))
            self.assertNotEqual(server.get("/api/", source="127.0.0.2").status, 429)

    def test_it_is_short(self):
        self.assertLessEqual(self.text.count("\n"), 520)

    def test_the_installation(self):
        """The file that is linked from modules-enabled loads the module from where it is installed."""
        server = Server(MODULE)
        self.addCleanup(server.close)
        (server.directory / "modules").symlink_to(Path(MODULE).parent)
        enabled = server.directory / "70-mod-http-stint.conf"
        enabled.symlink_to(self.SOURCE / "mod-http-stint.conf")
        server.edit((f"load_module {MODULE};", f"include {enabled};"))
        self.assertIn("include", server.configuration.read_text())
        self.told(server)
        self.assertIn("ln -s /usr/share/nginx/modules-available/mod-http-stint.conf "
                      "/etc/nginx/modules-enabled/", self.text)

    def test_every_directive_and_variable(self):
        table = (self.SOURCE / "ngx_http_stint_conf.c").read_text().split("ngx_http_stint_commands[] = {")[1]
        directives = re.findall(r'ngx_string\("(\w+)"\)', table.split("ngx_null_command")[0])
        self.assertEqual(len(directives), 9, directives)
        self.assertEqual(re.findall(r"^#### (.*)$", self.text, re.MULTILINE), directives)
        for directive in directives:
            self.assertIn(f"Syntax: `{directive} ", self.text)
        variables = re.findall(r'\{ngx_string\("(stint_\w+)"\), NULL', (self.SOURCE / "ngx_http_stint_report.c").read_text())
        self.assertEqual(re.findall(r"^\| `\$(\w+)` \|", self.text, re.MULTILINE), variables)


def main():
    global MODULE
    MODULE = os.path.abspath(sys.argv.pop(1))
    missing = [name for name in ("curl", "wrk") if shutil.which(name) is None]
    if missing:
        sys.exit(f"module.py: {', '.join(missing)} must be installed")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that servers are stopped
    unittest.main()


if __name__ == "__main__":
    main()
