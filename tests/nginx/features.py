#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the nginx module can beside plain limits: when it decides, address prefixes, plans, requests that
wait, tables in files, the status page.

    features.py MODULE_SO [TEST...]
"""
import fcntl
import json
import os
import re
import select
import signal
import struct
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True  # of what is beside it
import module
from module import PATIENCE, PER_LONG, STATUS, Case, Server, Storm, close, location, main, until, zone


def status(server, path="/status"):
    return json.loads(server.get(path).body)


def policy_status(server, name):
    [found] = [policy for policy in status(server)["policies"] if policy["name"] == name]
    return found


def holds(server, count=0):
    until(lambda: status(server)["held"] == count, f"{count} requests to wait")


LONG_ANSWER = "alias www/long; limit_rate 2000;"


class Order(Case):
    """Who decides before and after the limit."""

    def test_what_limit_req_refuses_is_not_counted(self):
        with self.limited(f"9{PER_LONG}", "limit_req zone=r;",
                          http="limit_req_zone $remote_addr zone=r:1m rate=1r/m;") as server:
            self.assertEqual(server.get().stint, "PASSED p 1/9 8")
            self.assertEqual(server.statuses(5), [503] * 5)
            self.assertEqual(server.get(source="127.0.0.2").stint, "PASSED p 1/9 8")
            server.edit(("limit_req zone=r;", "")).reload()
            self.assertEqual(server.get().stint, "PASSED p 2/9 7")

    def test_what_limit_conn_refuses_is_counted(self):
        """As by limit_req, which decides before it. Its error page is not in flight: nothing is decided after a redirect."""
        with self.serve(f"stint_zone z entries=1k; stint_policy z 9{PER_LONG} name=p; stint_policy z 1/1h in-flight name=f;"
                        "limit_conn_zone k zone=c:1m; limit_conn c 1; stint_limit z p k; stint_limit z f k;",
                        "error_page 503 /other;" + location("/long", "limit_rate 5000;")) as server:
            [connection] = server.begin(1, "/long")
            connection.getresponse()
            for used in 2, 3:
                response = self.expect((503, f"PASSED p {used}/9 {9 - used}"), server.get())
                self.assertEqual(response.body, b"other\n")
            connection.close()

    def test_access_comes_after(self):
        """What deny, auth_basic and auth_request refuse was counted, as with limit_req."""
        basic = "satisfy any; auth_basic x; auth_basic_user_file users;"
        access = {"/deny": ("deny all;", 403), "/basic": (f"{basic} deny all;", 401), "/any": (f"{basic} allow all;", 200)}
        with self.serve(f"stint_zone z entries=1k; stint_policy z 2{PER_LONG} name=p; stint_limit z p $uri;", "".join(
                location(path, directives, "empty_gif;") for path, (directives, _) in access.items())) as server:
            for path, (_, status_code) in access.items():
                self.assertEqual(server.statuses(4, path), [status_code] * 2 + [429] * 2)

    def test_a_limit_below_auth_request_is_a_500(self):
        """auth_request knows only 2xx, 401 and 403: the limit belongs to the location itself. A subrequest is not held."""
        for policy, delay, most in (f"2{PER_LONG}", "", 2), ("1/day reserve=5", "delay=30d", 1):
            with self.serve(f"stint_zone z entries=1k; stint_policy z {policy} name=p;",
                            location("/file", "auth_request /auth;") +
                            location("= /auth", f"stint_limit z p k {delay};", "empty_gif;")) as server:
                self.assertEqual(server.statuses(3), [200] * most + [500] * (3 - most))
                self.assertEqual(server.get().stint, f"REJECTED p {most}/{most} 0")


class Telling(Case):
    def test_one_retry_after(self):
        """Beside the fields, and beside those of an upstream: the configuration's stands."""
        for field, expected, fields in (("$stint_retry_after", r"\d+", "both"), ("77", "77", "both"),
                                        ("$stint_retry_after", r"[1-9]\d*", "off")):
            with self.limited(f"1{PER_LONG}", http=f"stint_headers {fields};"
                              f"add_header rEtry-after {field} always;") as server:
                server.edit(("    add_header X-Stint", "    #")).reload()
                self.assertEqual(server.get().status, 200)
                response = self.expect(429, server.get())
                self.assertRegex(response["Retry-After"], f"^{expected}$")
                for name in "RateLimit", "X-RateLimit-Reset":
                    self.assertEqual(response[name] is not None, fields == "both")

    def test_a_mirror_is_limited_by_itself(self):
        """The response to the request that is mirrored does not tell of it."""
        for more in "", "stint_limit z main $remote_addr;":
            with self.serve(zone(p=2, main=9) + "stint_headers both;",
                            # The mirror is done before that answers.
                            location("/file", "mirror /mirrored;", more, "proxy_pass http://127.0.0.1:$server_port/other;") +
                            location("/other", "access_log off;") +
                            location("/mirrored", "internal;", "stint_limit z p $remote_addr;", "log_subrequest on;",
                                     "empty_gif;", 'add_header X-Stint "$stint_status" always;') +
                            location("/status", "stint_limit off;", "stint_status_page z;")) as server:
                for used in range(1, 5):
                    response = self.expect(200, server.get())
                    self.assertEqual(response.all("X-Stint")[-1].split()[0], "PASSED" if more else "/")
                    self.assertEqual((response["RateLimit"] or "").split(";t")[0], f'"main";r={9 - used}' if more else "")
                    self.assertIsNone(response["Retry-After"])
                # A request is decided once: a mirror of one that was limited is not limited again.
                until(lambda: [policy_status(server, "p")[name] for name in ("allowed", "refused")] ==
                      ([0, 0] if more else [2, 2]), "the mirrors")

    def test_a_front_controller(self):
        """Decided where the request first meets a limit; with none there, at the script."""
        for first, missing, there in (("stint_limit z first k;", "PASSED first 1/9 8", "PASSED first 2/9 7"),
                                      ("", "PASSED script 1/9 8", "/")):
            with self.serve(zone(first=9, script=9), location("/", first, "try_files $uri /other;") +
                            location("= /other", "stint_limit z script k;")) as server:
                self.assertEqual([server.get(path).stint for path in ("/missing", "/file")], [missing, there])

    def test_a_chunked_upload(self):
        with self.serve(zone(cost=9999, charge=9999), "".join(
                location(f"/{name}", f"stint_limit z {name} k {parameter};", "proxy_pass http://127.0.0.1:$server_port/sink;") +
                location(f"/look/{name}", f"stint_limit z {name} k cost=0;", "empty_gif;")
                for name, parameter in (("cost", "cost=$content_length"), ("charge", "charge=$request_length late"))) +
                location("/sink", "stint_limit off;", "return 200;"), workers=1) as server:
            for name, used in ("cost", [1]), ("charge", range(2000, 3001)):
                connection = server.connect()
                connection.request("POST", f"/{name}", body=iter([b"x" * 100] * 20), encode_chunked=True,
                                   headers={"Transfer-Encoding": "chunked"})
                self.assertEqual(module.Response(connection.getresponse()).status, 200)
                connection.close()
                self.assertIn(int(server.get(f"/look/{name}").stint.split()[2].split("/")[0]), used)


class Off(Case):
    def test_off_ends_inheritance(self):
        with self.serve(zone(p=2) + "stint_status 503; stint_limit z p $remote_addr;", location("/file") +
                        "location /other { stint_limit off;\n" +
                        location("/other/limited", "stint_limit z p $remote_addr;") + "}") as server:
            self.assertEqual(server.statuses(3, "/file"), [200, 200, 503])
            self.assertEqual(server.statuses(3, "/other"), [200] * 3)
            self.assertEqual(server.get("/other").stint, "/")
            self.assertEqual(server.get("/other/limited").status, 503)

    def test_a_zone_may_have_that_name(self):
        with self.serve(f"stint_zone off entries=1k; stint_policy off 2{PER_LONG} name=p;"
                        "stint_limit off p $remote_addr;") as server:
            self.assertEqual(server.statuses(3, "/file"), [200, 200, 429])


class Prefixes(Case):
    """Keys are the first bits of an address."""

    REALIP = "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;"

    def test_of_the_client(self):
        for key in "$binary_remote_addr", "$remote_addr":
            with self.limited(f"2{PER_LONG}", self.REALIP, key=key, options="prefix=24,56") as server:
                def ask(address):
                    return server.get(headers={"X-Forwarded-For": address}).status
                self.assertEqual([ask(f"192.0.2.{i}") for i in (1, 77, 255)], [200, 200, 429])
                self.assertEqual(ask("192.0.3.1"), 200)
                self.assertEqual([ask(address) for address in ("2001:db8:0:1::1", "2001:db8:0:ff:9::2",
                                                               "2001:db8:0:80::")], [200, 200, 429])
                self.assertEqual(ask("2001:db8:0:100::1"), 200)

    def test_of_a_text(self):
        with self.limited(f"2{PER_LONG}", key="$http_a", options="prefix=24") as server:
            def ask(address, source="127.0.0.1"):
                return server.get(headers={"A": address}, source=source).status
            self.assertEqual([ask(f"192.0.2.{i}") for i in ("1", "77:4711", "255:1")], [200, 200, 429])
            self.assertEqual([ask(a) for a in ("::ffff:192.0.2.9", "192.0.3.9")], [429, 200])
            self.assertEqual([ask(f"2001:db8::{i}") for i in (1, 77, 255)], [200, 200, 429])
            self.assertEqual(ask("2001:db8:0:1::1"), 200)  # /64 if not said
            self.assertEqual(ask("[2001:db8::9]:443"), 429)
            # What is no address is that of the connection, and told once. No text: no limit.
            self.assertEqual([ask(a) for a in ("x", "1.2.3.4, 5.6.7.8", "\"\\", "127.0.0.9", "1.2.3.4:x", "[::1", "[::1]:0",
                                               "1.2.3.4:65536")], [200, 200] + [429] * 6)
            self.assertEqual([ask("x", "127.0.1.1"), ask("127.0.1.7"), ask("127.0.1.7")], [200, 200, 429])
            self.assertEqual([ask("") for _ in range(4)], [200] * 4)
            self.assertIn(len(server.logged('stint key ".*?" is no address, that of the connection is taken')),
                          range(1, server.WORKERS + 1))

    def test_several_prefixes_of_one_policy(self):
        with self.limited(f"9{PER_LONG}", "stint_limit z p $remote_addr prefix=24;",
                          options="prefix=32") as server:
            self.assertEqual(server.get(source="127.0.0.1").stint, "PASSED p 1/9 8")
            self.assertEqual(server.get(source="127.0.0.2").stint, "PASSED p 2/9 7")


class Plans(Case):
    """Policies and limits from variables."""

    HTTP = zone(free=2, pro=5)

    def test_a_policy_from_a_variable(self):
        with self.serve(self.HTTP, location("/", "stint_limit z $http_plan $arg_user;") +
                        location("/other", "stint_limit z $http_plan $arg_user default=free;")) as server:
            # Unknown or empty: not limited, if there is no default.
            for path, plan, user, allowed in (("/file", "free", "a", 2), ("/file", "pro", "b", 5), ("/file", "", "c", 6),
                                              ("/file", "gold\t", "c", 6), ("/file", "fre", "a", 6), ("/other", "", "d", 2),
                                              ("/other", "gold", "e", 2), ("/other", "pro", "f", 5)):
                with self.subTest(path=path, plan=plan):
                    self.assertEqual(server.statuses(6, f"{path}?user={user}", headers={"Plan": plan}),
                                     [200] * allowed + [429] * (6 - allowed))
            # The unknown is told once.
            found = server.logged(r'\[error\] .*stint policy "(.*?)" is unknown, .*so the default is taken, if there is one')
            self.assertLessEqual(len(found), server.WORKERS)
            self.assertLessEqual(set(found), {"gold", "gold\\x09", "fre"})

    def test_plans_over_a_reload(self):
        with self.serve(self.HTTP, location("/", "stint_limit z $http_plan $arg_user;")) as server:
            self.assertEqual(server.statuses(2, headers={"Plan": "gold"}), [200] * 2)
            server.configure(self.HTTP.replace("name=pro", "name=gold"),
                             location("/", "stint_limit z $http_plan k;")).reload()
            self.assertEqual(server.statuses(6, headers={"Plan": "gold"}), [200] * 5 + [429])

    def test_a_limit_and_a_burst_of_its_own(self):
        """A number from 1 on, of a policy that they go with; or else the policy's, which is told."""
        rows = {"free": ((3, "", 3), (1, "", 1), ("", "", 2), (0, "", 2), ("x", "", 2), ("", 1, 2)), "split": ((3, "", 4),),
                "bucket": (("", 3, 3), ("", 9, 4), ("", "", 4), ("", 0, 4), ("", "y", 4))}
        with self.serve(zone(free=2, split=f"4{PER_LONG} stripes=2", bucket="1/h burst=4") + "stint_headers draft;", location(
                            "/", "stint_limit z $http_plan $arg_limit-$arg_burst limit=$arg_limit burst=$arg_burst;"),
                        workers=1) as server:
            for plan, limit, burst, allowed in ((plan, *row) for plan in rows for row in rows[plan]):
                with self.subTest(plan=plan, limit=limit, burst=burst):
                    path, headers = f"/file?limit={limit}&burst={burst}", {"Plan": plan}
                    self.assertEqual(server.statuses(5, path, headers=headers), [200] * allowed + [429] * (5 - allowed))
                    self.assertIn(f'"{plan}";q={allowed};w=', server.get(path, headers=headers)["RateLimit-Policy"])
            for said, told in ((r'limit "(.*?)" is not a number, the policy.s is taken', "x"),
                               (r'burst "(.*?)" is not a number, the policy.s is taken', "y"),
                               (r'policy "(.*?)" has "stripes=", which "limit=" does not go with', "split"),
                               (r'policy "(.*?)" has no "burst=", which "burst=" of a limit goes with, so all of it is taken, in',
                                "free")):
                self.assertEqual(server.logged("stint " + said), [told])


class Buckets(Case):
    """Token buckets beside limit_req, which is one."""

    def beside(self, rate, limit_req, bucket, options):
        return self.serve(f"stint_zone z entries=1k; stint_policy z '{bucket} name=p';"
                          f"limit_req_zone $remote_addr zone=r:1m rate={rate}; limit_req_status 429;",
                          location("/req", f"limit_req zone=r {limit_req};", "empty_gif;") +
                          location("/bucket", f"stint_limit z p $remote_addr {options};", "empty_gif;"))

    def test_one_after_the_other(self):
        """Held requests go on one each 100 ms, as those of limit_req do, and not all at once."""
        with self.beside("10r/s", "burst=5", "10/s burst=1 reserve=5", "delay") as server:
            for path in "/req", "/bucket":
                begin, ends = time.monotonic(), []
                for connection in server.begin(7, path):
                    status = connection.getresponse().status
                    ends.append((status, time.monotonic() - begin))
                    connection.close()
                self.assertEqual(sorted(status for status, _ in ends), [200] * 6 + [429], path)
                for i, end in enumerate(sorted(end for status, end in ends if status == 200)):
                    self.assertGreaterEqual(end, 0.1 * i - 0.02, path)

    def test_some_at_once_and_some_later(self):
        """limit_req's delay= is how many more than one do not wait."""
        with self.beside("1r/m", "burst=20 delay=8", "1/minute burst=9 reserve=12", "delay=1h") as server:
            for path in "/req", "/bucket":
                self.assertEqual(server.statuses(9, path), [200] * 9)
                sent = {connection.sock: connection for connection in server.begin(13, path)}
                [refused] = select.select(list(sent), [], [], PATIENCE)[0]
                self.assertEqual(sent[refused].getresponse().status, 429, path)
                close(sent.values())

    # Of limit_req and limit_conn: the rate of the zone, if it has one, and the rest of the directive;
    # the policy, the rest of stint_limit; what is asked, and answered. {} is the number of the row.
    PARAMETERS = (
        ("rate=1r/m", "", "1/minute burst=1", "; stint_status 503", ["k=a"] * 3,
         ["200 PASSED", "503 REJECTED", "503 REJECTED"]),
        ("rate=1r/m", "burst=1 nodelay; limit_req_status 418; limit_req_log_level warn", "1/minute burst=2",
         "; stint_status 418; stint_log_level warn", ["k=a"] * 4, ["200 PASSED"] * 2 + ["418 REJECTED"] * 2),
        ("rate=4r/s", "burst=1", "4/s burst=1 reserve=1", "delay", ["k=a"] * 2, ["200 PASSED", "200 DELAYED"]),
        ("rate=1r/m", "burst=1; limit_req_dry_run on", "1/minute burst=1 reserve=1", "delay=1h; stint_dry_run on",
         ["k=a"] * 3, ["200 PASSED", "200 DELAYED_DRY_RUN", "200 REJECTED_DRY_RUN"]),
        ("rate=1r/m", "", "1/minute burst=1", "", ["k="] * 3, ["200 "] * 3),
        # Two limits: what one refuses is not counted by the other.
        ("rate=1r/m", "burst=1 nodelay; limit_req zone=m", "1/minute burst=2",
         "; stint_limit z m $arg_m; stint_status 503", ["k=a&m=a", "k=a&m=a", "k=a&m=b", "k=a&m=c", "k=b&m=c"],
         ["200 PASSED", "503 REJECTED", "200 PASSED", "503 REJECTED", "200 PASSED"]),
        # One request of k=a is under way.
        ("", "1", "1/1h in-flight", "; stint_status 503", ["k=a", "k=b", "k="],
         ["503 REJECTED", "200 PASSED", "200 "]),
        ("", "1; limit_conn_status 418; limit_conn_log_level warn", "1/1h in-flight",
         "; stint_status 418; stint_log_level warn", ["k=a"] * 2, ["418 REJECTED"] * 2),
        ("", "1; limit_conn_dry_run on", "1/1h in-flight", "; stint_dry_run on", ["k=a"], ["200 REJECTED_DRY_RUN"]))

    def test_each_parameter(self):
        http = "stint_zone z entries=1k; limit_req_zone $arg_m zone=m:1m rate=1r/m; stint_policy z 1/minute burst=1 name=m;"
        end, locations = LONG_ANSWER, ""
        for i, (rate, theirs, policy, ours, _, _) in enumerate(self.PARAMETERS):
            name = "limit_req" if rate else "limit_conn"
            zone = "zone=r" if rate else "r"
            http += f"{name}_zone $arg_k zone=r{i}:1m {rate}; stint_policy z {policy} name=p{i};\n"
            locations += location(f"= /theirs{i}", f"{name} {zone}{i} {theirs};", end,
                                  f'add_header X-Outcome "-${name}_status" always;')
            locations += location(f"= /ours{i}", f"stint_limit z p{i} $arg_k {ours};", end,
                                  'add_header X-Outcome "-$stint_status" always;')
        with self.serve(http, locations, workers=1) as server:
            for i, (rate, *_, queries, outcomes) in enumerate(self.PARAMETERS):
                for whose in "theirs", "ours":
                    path = f"/{whose}{i}"
                    with self.subTest(path=path):
                        held = [] if rate else server.begin(1, path + "?k=a")
                        for connection in held:
                            connection.getresponse()
                        answers = [server.get(f"{path}?{query}", "HEAD") for query in queries]
                        close(held)
                        self.assertEqual([f'{answer.status} {answer["X-Outcome"][1:]}' for answer in answers], outcomes)
            # They log each refusal; stint the first of a key in a window, or while it has none free.
            for i, level, theirs, ours in (0, "error", 2, 1), (1, "warn", 2, 1), (7, "warn", 2, 1):
                self.assertEqual([len(server.logged(rf"\[{level}\] .*limiting .*{name}{i}\"")) for name in "rp"],
                                 [theirs, ours])

    def test_one_zone_with_two_numbers(self):
        """Of requests at once: one count, by limit_conn and by `limit=`."""
        with self.serve("stint_zone z entries=1k; stint_policy z 4/1h in-flight name=p;"
                        "limit_conn_zone $arg_k zone=c:1m; limit_conn_status 429;", "".join(
                            location(path, limit, LONG_ANSWER) for path, limit in (
                                ("/theirs4", "limit_conn c 4;"), ("/theirs2", "limit_conn c 2;"),
                                ("/ours4", "stint_limit z p $arg_k;"), ("/ours2", "stint_limit z p $arg_k limit=2;"))),
                        workers=1) as server:
            for whose in "theirs", "ours":
                held, statuses = [], ""
                for number in "424224424":
                    held += server.begin(1, f"/{whose}{number}?k=a")
                    statuses += " %d" % held[-1].getresponse().status
                self.assertEqual(statuses, " 200 200 200 429 429 200 429 429 429", whose)
                self.assertEqual(server.get(f"/{whose}2?k=b", "HEAD").status, 200)
                close(held)

    # How many of the 21 that are not refused are logins.
    ORDERS = {"page " * 3 + "login " * 5 + "page " * 3 + "login " + "page " * 20 + "login page": 3,
              "login " * 8 + "page " * 17: 6, "page login " * 25: 3}

    def test_one_zone_with_two_bursts(self):
        """One count, by limit_req and by `burst=`: whichever comes first, each has its own burst of it, request by
        request; of those that would wait, too."""
        for policy, delay, nodelay, dry, refused in (
                ("1/minute burst=21", "", "nodelay", "", "REJECTED"),
                ("1/minute burst=1 reserve=20", "delay", "", "limit_req_dry_run on; stint_dry_run on;", "REJECTED_DRY_RUN")):
            with self.serve(zone(p=policy) + "limit_req_status 429; limit_req_zone $arg_k zone=r:1m rate=1r/m;", "".join(
                    location(f"= /{whose}{name}", limit, dry, "empty_gif;", f'add_header X-Outcome "${status_}_status" always;')
                    for name, length in (("page", 20), ("login", 5)) for whose, status_, limit in (
                        ("theirs", "limit_req", f"limit_req zone=r burst={length} {nodelay};"),
                        ("ours", "stint", f"stint_limit z p $arg_k burst={length + 1} {delay};"))), workers=1) as server:
                for key, (order, logins) in enumerate(self.ORDERS.items()):
                    outcomes = {whose: [(answer.status, answer["X-Outcome"]) for answer in (
                        server.get(f"/{whose}{name}?k={key}") for name in order.split())] for whose in ("theirs", "ours")}
                    with self.subTest(policy=policy, order=order):
                        self.assertEqual(outcomes["ours"], outcomes["theirs"])
                        used = [name for name, (_, said) in zip(order.split(), outcomes["ours"]) if said != refused]
                        self.assertEqual([len(used), used.count("login")], [21, logins])

    # Of limit_req and of a rate of stint; of limit_conn and of stint in flight; and how many of 16 requests are
    # answered at once or later, 12 or 10 at once and the rest once these have left.
    BOTH = (("5r/s", "burst=20", "5/s burst=1 reserve=20", "delay", 4, "/file", (12, 12)),
            ("1r/m", "burst=9 nodelay", "1/minute burst=10", "", 3, "/long", (10, 3), (6, 0)))

    def test_rates_come_before_what_is_in_flight(self):
        """Who waits for a rate holds no place, and what finds no place has used up its rate: by limit_req and
        limit_conn, by stint, and by one of each, in whatever order they stand."""
        http, locations, asked = "stint_zone z entries=1k; limit_req_status 429; limit_conn_status 429;", "", []
        for i, (rate, burst, policy, delay, most, file, *answered) in enumerate(self.BOTH):
            http += f"stint_policy z {policy} name=rate{i}; stint_policy z {most}/1h in-flight name=now{i};"
            rates = (f"limit_req zone=rXX {burst};", f"stint_limit z rate{i} XX {delay};")
            for j, pair in enumerate((a, b) for x in rates for y in (f"limit_conn cXX {most};", f"stint_limit z now{i} XX;")
                                     for a, b in ((x, y), (y, x))):
                name = f"{i}{j}"
                http += f"limit_req_zone k zone=r{name}:1m rate={rate}; limit_conn_zone k zone=c{name}:1m;"
                locations += location(f"= /{name}", *pair, f"alias www{file};", "limit_rate 2000;").replace("XX", name)
                asked.append((name, answered))
        with self.serve(http, locations, workers=1) as server:
            for step in 0, 1:
                begun = [(name, answered[step][1], server.begin(answered[step][0], f"/{name}"))
                         for name, answered in asked if step < len(answered)]
                for name, most, connections in begun:
                    statuses = [connection.getresponse().status for connection in connections]
                    with self.subTest(name=name, step=step):
                        self.assertEqual(sorted(statuses), [200] * most + [429] * (len(statuses) - most))
                close(connection for *_, connections in begun for connection in connections)

    # Of a level within one with 5 requests a year and 3 at once: stint's limits, nginx's if it has such, and
    # how many of 9 requests get through at once.
    LEVELS = (
        ("", "", 3),
        ("stint_limit z api $arg_k;", "limit_req zone=api burst=6 nodelay;", 3),
        ("stint_limit z more $arg_k;", "limit_conn more 6;", 5),
        ("stint_limit z more $arg_k; stint_limit z api $arg_k;", "limit_conn more 6; limit_req zone=api burst=6 nodelay;", 6),
        ("stint_limit off in-flight; stint_limit z api $arg_k;", None, 7),
        ("stint_limit off rate; stint_limit z more $arg_k;", None, 6),
        ("stint_limit off in-flight;", None, 5), ("stint_limit off rate;", None, 3),
        ("stint_limit off;", None, 9), ("stint_limit off rate; stint_limit off in-flight;", None, 9))

    def test_limits_of_a_kind_are_inherited_apart(self):
        """Also by the level below that one, and if a policy stands in a later line; of those at once by the zone of the rates, or
        one of their own."""
        for few in "zc":
            server = Server(module.MODULE, workers=1)
            locations = {"theirs": "limit_conn few 3; limit_req zone=all burst=4 nodelay;",
                         "ours": f"stint_limit {few} few $arg_k; stint_limit z all $arg_k;"}
            for i, levels in enumerate(self.LEVELS):
                for name, inner in zip(("ours", "theirs"), levels):
                    if inner is not None:
                        locations[name] += location(f"/{name}{i}", inner.replace("z more", f"{few} more"), LONG_ANSWER,
                                                    location(f"/{name}{i}/below", LONG_ANSWER))
            server.configure("".join(f"limit_conn_zone $arg_k zone={name}:1m;" for name in ("few", "more")) +
                             "".join(f"limit_req_zone $arg_k zone={name}:1m rate=1r/m;" for name in ("all", "api")) +
                             "stint_zone z entries=1k; stint_zone c entries=1k; limit_req_status 429; limit_conn_status 429;",
                             "".join(location(f"/{name}", text) for name, text in locations.items()))
            server.edit(("\n    }\n}\n", f"\n    }} stint_policy {few} 3/1h in-flight name=few;stint_policy z 5{PER_LONG} name=all;"
                         f"stint_policy {few} 6/1h in-flight name=more;stint_policy z 7{PER_LONG} name=api;\n}}\n"))
            with server:
                for i, (_, theirs, most) in enumerate(self.LEVELS):
                    for path in [f"/ours{i}", f"/ours{i}/below"] + ([] if theirs is None else [f"/theirs{i}"]):
                        with self.subTest(path=path, few=few):
                            connections = server.begin(9, f"{path}?k={path}")
                            statuses = [connection.getresponse().status for connection in connections]
                            self.assertEqual(sorted(statuses), [200] * most + [429] * (9 - most))
                            close(connections)

class Waiting(Case):
    """Requests that are held until their tokens are there."""

    def holding(self, policy, delay="delay", zone="", **more):
        return self.limited(policy, key="$arg_user", options=delay, zone=f"entries=1k {zone}",
                            http="stint_headers draft;", locations=STATUS + location(
                                "/look", "stint_limit z p $arg_user cost=0;", "empty_gif;"), **more)

    def hold(self, server, count, path="/file?user=a"):
        """Sends requests that are held. Returns their connections."""
        before = status(server)["held"]
        connections = server.begin(count, path)
        holds(server, before + count)
        return connections

    def test_no_more_than_the_reserve(self):
        with self.holding("2/day reserve=3", "delay=30d", workers=1) as server:
            self.assertEqual(server.statuses(2, "/file?user=a"), [200] * 2)
            connections = self.hold(server, 3)
            response = self.expect((429, "REJECTED p 5/2 0"), server.get("/file?user=a"))
            self.assertIsNotNone(response["Retry-After"])
            self.assertEqual(len(server.logged("limiting requests, 2 of 2 used, 3 reserved, by policy")), 1)
            # Others do not wait for them.
            self.assertEqual(server.statuses(2, "/file?user=b"), [200] * 2)
            close(connections)

    def test_what_would_wait_too_long_is_told(self):
        for dry_run, said in ("", ""), ("; stint_dry_run on", ", dry run"):
            with self.subTest(dry_run=dry_run), \
                    self.holding("1/day reserve=5", f"delay=100ms {dry_run}", "labels=100", workers=1) as server:
                for _ in range(5):
                    response = server.get("/file?user=a")
                if not dry_run:
                    self.expect((429, "REJECTED p 1/1 0"), response)
                    self.assertGreater(int(response["Retry-After"]), 0)
                found = {**status(server), **policy_status(server, "p")}
                self.assertEqual([found[name] for name in ("held", "allowed", "refused", "refunded")], [0, 5, 0, 4])
                [wait] = server.logged(rf"\[error\] .*limiting requests{said}, a wait of (\d+) ms is longer than the delay of "
                                       r'100 ms, by policy "p" in zone "z" \(told once a minute\)')
                self.assertIn(int(wait), range(101, 86400 * 1000 + 1))
                [top] = status(server)["top"]
                # To the library it was granted and given back.
                self.assertEqual((top["key"], top["policy"], top["refused_windows"]), ("a", None, 1))

    def test_they_are_bounded(self):
        """What finds no place is refused, gives its tokens back, and is told."""
        with self.holding("1/day reserve=50", "delay=30d", "labels=100 held=2", workers=1) as server:
            self.assertEqual(server.get("/file?user=a").status, 200)
            connections = self.hold(server, 2)
            for _ in range(5):
                self.assertEqual(server.get("/file?user=a").stint, "REJECTED p 3/1 0")
            found = {**status(server), **policy_status(server, "p")}
            self.assertEqual([found[name] for name in ("held", "max_held", "allowed", "refused", "refunded")], [2, 2, 8, 0, 5])
            self.assertEqual(len(server.logged('stint zone "z" holds 2 requests, the most that it may: others '
                                               'are refused; "held" can be raised')), 1)
            self.assertEqual([key["key"] for key in status(server)["top"]], ["a"])
            connections[0].close()
            holds(server, 1)
            close(connections[1:] + self.hold(server, 1))

    def test_a_worker_that_is_killed_holds_nothing(self):
        with self.holding("1/day reserve=50", "delay=30d", workers=2) as server:
            server.get("/file?user=a")
            connections = self.hold(server, 6)
            for pid in server.worker_pids():
                server.kill_worker(pid)
            holds(server)
            close(connections)

    def test_an_old_worker_that_ends_holds_nothing(self):
        """After a reload no other takes its place, however it ends."""
        for number in signal.SIGTERM, signal.SIGKILL:
            with self.subTest(number=number), \
                    self.holding("1/day reserve=50", "delay=30d", "held=2", workers=1) as server:
                server.get("/file?user=a")
                connections = self.hold(server, 2)
                [old] = server.worker_pids()
                server.reload_beside()
                os.kill(old, number)
                until(lambda: len(server.worker_pids()) == 1, "the end of the old one")
                self.assertEqual(status(server)["held"], 0 if number == signal.SIGTERM else 2)
                server.get("/file?user=b")
                connections += server.begin(1, "/file?user=b")
                holds(server, 1)
                close(connections)
                holds(server)

    def test_what_a_worker_holds_stays_its_own(self):
        """Nobody takes it for that of one that is gone."""
        with self.holding("1/day reserve=50", "delay=30d", "held=2", workers=1) as server:
            server.get("/file?user=a")
            connections = self.hold(server, 2)
            server.reload_beside()
            for _ in range(3):
                self.assertEqual(server.get("/file?user=a").status, 429)
                self.assertEqual(status(server)["held"], 2)
                time.sleep(1)  # it looks once a second
            close(connections)
            holds(server)

    def test_the_limit_after_a_reload_with_waiting_requests(self):
        """cfsego/nginx-limit-upstream#5: whoever still waits in an old worker, the new ones have all that is left."""
        with self.holding("4/day reserve=3", "delay=30d", workers=1) as server:
            self.assertEqual(server.statuses(4, "/file?user=a"), [200] * 4)
            connections = self.hold(server, 2)
            server.reload_beside()
            self.assertEqual(server.get("/look?user=a").stint, "REJECTED p 6/4 0")
            connections += self.hold(server, 1)
            self.assertEqual(server.get("/file?user=a").status, 429)
            self.assertEqual(server.statuses(4, "/file?user=b"), [200] * 4)
            close(connections)
            holds(server)
            self.assertEqual(server.get("/look?user=a").stint, "PASSED p 4/4 0")

    def test_a_reload_waits_for_them(self):
        with self.holding("1/s reserve=3", workers=1) as server:
            with ThreadPoolExecutor(4) as pool:
                results = pool.map(lambda _: server.get("/file?user=a").status, range(4))
                server.process.send_signal(signal.SIGHUP)
                self.assertEqual(list(results), [200] * 4)
            holds(server)
            self.assertEqual(policy_status(server, "p")["refunded"], 0)

    def test_nobody_waits_for_a_shadow(self):
        """Nor is refused. Another limit is waited for all the same; so is the policy of a plan."""
        with self.serve(zone(tried="1/day reserve=5 shadow", p="1/day reserve=5"),
                        location("/file", "stint_limit z $arg_plan k delay=30d;") +
                        location("/other", "stint_limit z tried k2 delay=100ms;") + STATUS) as server:
            for path in "/file?plan=tried", "/other":
                self.assertEqual([server.get(path).stint for _ in range(3)],
                                 ["PASSED tried 1/1 0"] + [f"REJECTED_SHADOW tried {used}/1 0" for used in (1, 1)])
            self.assertEqual((status(server)["held"], policy_status(server, "tried")["refunded"]), (0, 0))
            self.assertEqual(server.statuses(2, "/file?plan="), [200, 200])
            self.assertEqual(server.get("/file?plan=p").status, 200)
            close(self.hold(server, 2, "/file?plan=p"))

    def test_who_leaves_gives_back(self):
        """Of all limits. The longest wait counts and is told."""
        with self.serve(zone(p="1/day reserve=5", all=4),
                        location("/", "stint_limit z all k;", "stint_limit z p k delay=30d;") + STATUS +
                        location("/look", "stint_limit z all k cost=0;", "empty_gif;")) as server:
            self.assertEqual(server.get().status, 200)
            connections = self.hold(server, 3, "/file")
            self.assertEqual(server.get("/look").stint, "PASSED all 4/4 0")
            close(connections)
            holds(server)
            self.assertEqual(server.get("/look").stint, "PASSED all 1/4 3")
            self.assertEqual(policy_status(server, "p")["refunded"], 3)
            self.assertEqual([line[3:5] for line in server.access_log(6) if line[1] == "499"], [["DELAYED", "p"]] * 3)

    def test_who_leaves_on_http_2(self):
        with self.holding("1/day reserve=2", "delay=30d").with_http_2() as server:
            def about():
                return json.loads(server.curl(path="/status").communicate(timeout=20)[0])
            clients = [server.curl(path="/file?user=a") for _ in range(3)]
            until(lambda: about()["held"] == 2, "two to be held")
            for client in clients:
                client.kill()
                client.communicate()
            until(lambda: about()["held"] == 0, "both to be let go")
            self.assertEqual(about()["policies"][0]["refunded"], 2)


class Files(Case):
    """Tables in files."""

    def filed(self, server, limit=10, zone=""):
        """Configures a server whose zone is in a file of its directory."""
        self.file = server.directory / "table"
        server.configure(f"stint_zone z entries=1k file={self.file} {zone};\n"
                         f"stint_policy z {limit}{PER_LONG} name=p;",
                         location("/", "stint_limit z p $remote_addr;") + STATUS)
        return server

    def test_counts_survive_a_restart(self):
        with self.filed(Server(module.MODULE)) as server:
            self.assertEqual(server.statuses(4), [200] * 4)
            self.assertEqual(oct(self.file.stat().st_mode), "0o100600")
            server.stop()
            server.start()
            self.assertEqual(server.get().stint, "PASSED p 5/10 5")
            server.reload()
            self.assertEqual(server.statuses(6), [200] * 5 + [429])
            server.kill()  # nothing is lost either
            server.start()
            self.assertEqual(server.get().stint, "REJECTED p 10/10 0")

    @unittest.skipUnless(os.geteuid() == 0, "the master must have more rights than the workers")
    def test_workers_need_no_right_to_it(self):
        server = self.filed(Server(module.MODULE), limit=3)
        private = server.directory / "private"
        private.mkdir(mode=0o700)
        with server.edit(("user root;", "user nobody nogroup;"), (str(self.file), f"{private}/table")):
            status_file = Path(f"/proc/{server.worker_pids()[0]}/status")
            until(lambda: "\nUid:\t65534" in status_file.read_text(), "a worker of another user")
            self.assertEqual(server.statuses(2), [200, 200])
            for pid in server.worker_pids():
                server.kill_worker(pid)
            self.assertEqual(server.statuses(2), [200, 429])

    def test_a_relative_path_is_below_the_prefix(self):
        with self.serve("stint_zone z entries=1k file=relative;") as server:
            self.assertTrue((server.directory / "relative").exists())

    def test_another_nginx_shares_it(self):
        with self.filed(Server(module.MODULE)) as server, self.beside(server) as other:
            for used in range(1, 10, 2):
                self.assertEqual(server.get().stint, f"PASSED p {used}/10 {10 - used}")
                self.assertEqual(other.get().stint, f"PASSED p {used + 1}/10 {9 - used}")
            self.assertEqual(server.get().status, 429)
            # A limit that one of them changes is changed for both.
            other.edit((f"10{PER_LONG}", f"12{PER_LONG}")).reload()
            self.assertEqual(server.get().stint, "PASSED p 11/12 1")

    def beside(self, server):
        """Another nginx with its configuration."""
        other = Server(module.MODULE)
        other.configuration.write_text(server.configuration.read_text())
        return other.edit((str(server.port), str(other.port)))

    def test_a_test_finds_what_a_start_would(self):
        """A file that a start would refuse, with its line, and the file as it was."""
        server = self.filed(Server(module.MODULE), zone="labels=8")
        self.told(server)
        self.assertFalse(self.file.exists())
        with server:
            server.get()
            server.stop()
            whole = self.file.read_bytes()
            place = f'{server.configuration}:{server.line_of("stint_zone z")}'
            for content, said in ((whole[:100000], "cut off"), (b"no table\n" * 1000, "no table of stint"), (b"", "has 0 bytes")):
                self.file.write_bytes(content)
                with self.subTest(said=said):
                    before = self.file.stat().st_mtime_ns
                    [line] = [line for line in self.told(server, 1).splitlines() if "[emerg]" in line]
                    self.assertRegex(line, rf'stint zone "z" in {re.escape(place)}: {self.file}: (?!.*options\.).*{said}')
                    self.assertEqual((self.file.read_bytes(), self.file.stat().st_mtime_ns), (content, before))
            self.file.write_bytes(whole)
            self.told(server)
            # While it runs, too, which notices nothing.
            server.start()
            self.assertEqual(server.get().stint, "PASSED p 2/10 8")
            self.told(server.edit(("/52w", "/51w")), 1)
            self.assertEqual(server.get().stint, "PASSED p 3/10 7")

    def test_a_test_finds_what_the_policies_of_a_file_cannot_become(self):
        """A server that runs by it notices nothing; one that is stopped would not start."""
        with self.filed(Server(module.MODULE), zone="policies=2") as server:
            old = f"10{PER_LONG} name=p;"
            text = server.configuration.read_text()
            rows = (("10/day name=p;", '"p" of zone "z" in {} cannot become "10/day", because the window cannot'),
                    (f"{old} stint_policy z 1/s name=q;", "is successful"), (old.replace("10", "9"), "is successful"),
                    ("1/s name=q; stint_policy z 1/s name=r;", 'no room for the policy "r" in {}'))
            for used in 1, 2:
                self.assertEqual(server.get().stint, f"PASSED p {used}/10 {10 - used}")
                if used == 2:
                    server.stop()
                whole = self.file.read_bytes()
                for policies, said in rows:
                    with self.subTest(policies=policies):
                        server.configuration.write_text(text.replace(old, policies).replace(
                            "limit z p $", "limit z q $" if '"r"' in said else "limit z p $"))
                        output = self.told(server, said != "is successful")
                        self.assertIn(said.format(f'{server.configuration}:{server.line_of("stint_policy z")}'), output)
                        self.assertNotIn("changed from", output)
                    self.assertEqual(self.file.read_bytes(), whole)
                server.configuration.write_text(text)

    def test_two_zones_of_one_file(self):
        """By whatever path."""
        server = Server(module.MODULE)
        directory = server.directory
        (directory / "link").symlink_to(directory)
        (directory / "there").mkdir()

        def configured(one, other):
            return server.configure(f"\n# 1\nstint_zone a entries=1k file={one};\n# 2\nstint_zone b entries=1k file={other};", "")
        for one, other, there in (("table", "table", False), ("table", "there/../table", False), ("table", "link/table", False),
                                  ("link/table", "table", True), ("table", "hard", True)):
            with self.subTest(one=one, other=other):
                if there:
                    server.configure("stint_zone a entries=1k file=table;", "")
                    server.start()
                    server.stop()
                    os.link(directory / "table", directory / "hard")
                said = self.told(configured(one, other), 1)
                first, second = (f'{server.configuration}:{server.line_of(f"stint_zone {name}")}' for name in "ab")
                self.assertIn(f'stint zone "b" has the file of the zone "a" in {first}: give it one of its own in {second}', said)
                for name in "table", "hard":
                    (directory / name).unlink(missing_ok=True)
        self.told(configured("table", "there/table"))

    def test_a_file_that_vanished(self):
        said = r'\[error\] .*the file ".*table" of the stint zone "z" in .*:\d+ was removed or replaced'
        with self.filed(Server(module.MODULE)) as server:
            for turn, used in enumerate((1, 2, 1, 2)):
                if turn == 2:
                    self.file.unlink()
                server.reload()
                self.assertEqual(server.get().stint, f"PASSED p {used}/10 {10 - used}")
                self.assertEqual(len(server.logged(said)), turn >= 2)

    def resized(self, server, new, used):
        """Restarts it with a zone of other numbers. Tells what a test said of that, and what the start; nothing
        was lost."""
        server.stop()
        server.configuration.write_text(re.sub("entries=.*? file", f"{new} file", server.configuration.read_text()))
        whole = self.file.read_bytes()
        code, said = server.test()
        self.assertEqual((code, self.file.read_bytes() == whole), (0, True), said)
        before = len(server.log())
        server.start()
        self.assertEqual(server.get().stint, f"PASSED p {used}/10 {10 - used}")
        place = f'stint zone "z" in {server.configuration}:{server.line_of("stint_zone")}: {self.file} '
        return [[line.split(place)[1] for line in text.splitlines() if place in line]
                for text in (said, server.log()[before:])]

    def test_a_start_makes_a_file_larger(self):
        """And none smaller."""
        with self.filed(Server(module.MODULE)) as server:
            server.configuration.write_text(server.configuration.read_text().replace(
                "entries=1k file", "entries=1k policies=4 labels=8 file"))
            self.file.unlink()
            server.reload()
            server.get()
            has = "entries=1000 policies=4 labels=8"
            kept, smaller = "and nginx goes on with these: ", "no start makes it smaller. "
            for new, larger in (("entries=200k policies=4 labels=8", "entries=200000 policies=4 labels=8"),
                                ("entries=1k policies=9 labels=7", "entries=200000 policies=9 labels=8"),
                                ("entries=1k policies=3 labels=11", "entries=200000 policies=9 labels=12")):
                with self.subTest(new=new):
                    tested, started = self.resized(server, new, int(status(server)["policies"][0]["allowed"]) + 1)
                    self.assertEqual(tested, [f"has {has}, {kept}a test changes no file. A start of nginx, while nobody "
                                              "else has it open, makes it " + larger.replace("=12", "=11") +
                                              ", and its counts stay"])
                    self.assertEqual(started, [f"had {has}, and has {larger.replace('=12', '=11')} from now on: its "
                                               "counts stay"])
                    about = status(server)
                    self.assertEqual((about["entries"], about["max_policies"]),
                                     tuple(int(number) for number in re.findall(r"\d+", larger)[:2]))
                    has = larger
            ask = 'Ask for these numbers, or run "stint resize" while nginx is stopped'
            for new, said in (("entries=200k policies=4 labels=12", ask), ("entries=1k policies=9 labels=12", ask),
                              ("entries=200k policies=9 labels=9", None), ("entries=200k policies=9", "It keeps the "
                               "names that it has and gets no more: remove it while nginx is stopped to be without "
                               "them, and without its counts")):
                with self.subTest(new=new):
                    expected = [] if said is None else [f"has {has}, {kept}{smaller}{said}"]
                    used = int(status(server)["policies"][0]["allowed"]) + 1
                    self.assertEqual(self.resized(server, new, used), [expected, expected])
                    before = len(server.log())
                    server.reload()
                    self.assertEqual(server.log()[before:].count(smaller), len(expected))

    def test_a_file_that_somebody_has_open_keeps_its_size(self):
        """A reload, by another name, too, and a start beside another nginx. A restart makes it larger. It is told
        also by the level that a log has by default."""
        with self.filed(Server(module.MODULE, log_level="error")) as server:
            server.get()
            text = server.configuration.read_text()
            said = (r"has entries=1000 policies=64 labels=0, and nginx goes on with these: .*: (.*) has the table open: "
                    "a table is resized while nobody uses it. A start of nginx, while nobody else has it open, makes it "
                    "entries=2000 policies=65 labels=0, and its counts stay")
            for name in "z", "y":
                server.configuration.write_text(text.replace("entries=1k", "entries=2k policies=65").replace(
                    " z ", f" {name} ").replace("page z", f"page {name}"))
                self.assertIn("goes on with these: a test changes no file", server.test()[1])
                before = len(server.log())
                server.reload()
                self.assertEqual(re.findall(said, server.log()[before:]), ["nginx, or another process,"])
            self.assertEqual(server.get().stint, "PASSED p 2/10 8")
            self.assertEqual(status(server)["entries"], 1000)
            with self.beside(server) as other:
                [holder] = other.logged(said)
                self.assertIn(int(holder.split()[1]), [server.process.pid, *server.worker_pids()])
                self.assertEqual(other.get().stint, "PASSED p 3/10 7")
            server.stop()
            server.start()
            self.assertEqual(server.get().stint, "PASSED p 4/10 6")
            self.assertEqual((status(server)["entries"], status(server)["max_policies"]), (2000, 65))

    def test_a_file_that_cannot_be_larger(self):
        """It is none the worse. That the disk has no room is told by a test as by a start."""
        for name, size, said, tests in (("t" * 250, "2k", "(.*)", 0),
                                        ("table", "100g", r"(\S+: there is no room for the table: .*?)\. A start", 1)):
            with self.subTest(size=size), self.filed(Server(module.MODULE)).edit(("/table", f"/{name}")) as server:
                server.get()
                server.stop()
                said = "goes on with these: (?!a test)" + said
                tested = re.findall(said, server.edit(("entries=1k", f"entries={size}")).test()[1])
                server.start()
                told = server.logged(rf"\[(?:warn|error)\] .*{said}")
                self.assertEqual((len(tested), len(told), len({*tested, *told})), (tests, tests + 1, 1))
                self.assertEqual((server.get().stint, status(server)["entries"]), ("PASSED p 2/10 8", 1000))

    def test_a_file_of_version_0_4(self):
        """A start makes it this version's, also beside those who have it open: they go on by the file that it was."""
        words = list(struct.iter_unpack("=QQ", (Path(__file__).parents[1] / "files" / "table-0.4").read_bytes()))
        table = bytearray(words[-1][0])
        for offset, word in words[:-1]:
            table[offset:offset + 8] = word.to_bytes(8, "little")
        server = self.filed(Server(module.MODULE))
        self.addCleanup(server.close)
        server.edit(("entries=1k", "entries=1k policies=20 labels=4"), (f"10{PER_LONG} name=p", "5/month name=month"),
                    ("limit z p", "limit z month"))
        self.file.write_bytes(table)
        said = (r"\[warn\] .*table was made by another version: {}, and its counts stay. Who has it open goes on by the "
                "file that it was")
        self.assertRegex(self.told(server), said.format("a start of nginx makes it this one's"))
        self.assertEqual(self.file.read_bytes(), table)
        with open(self.file, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            with server:
                self.assertEqual(len(server.logged(said.format("it is this one's from now on"))), 1)
                self.assertEqual(server.logged("goes on with these"), [])
                self.assertEqual(status(server)["entries"], 1000)
                before = policy_status(server, "month")["allowed"]
                self.assertGreater(before, 0)
                server.get()
                self.assertEqual(policy_status(server, "month")["allowed"], before + 1)
                self.assertEqual(held.read(), table)

    LOST = (r'\[crit\] .*the file ".*table" of the stint zone "z" was cut off while nginx runs: all requests are let '
            "through uncounted until the file is removed and nginx is reloaded")

    def test_a_file_that_is_cut_off(self):
        """No worker dies and all requests are answered, in those that start later, too. Removed, and by a reload,
        it is as new. Charges, requests in flight and those that wait end as ever."""
        for how in "all", "half", "grown":
            server = Server(module.MODULE, workers=2)
            self.file = server.directory / "table"
            server.configure(
                f"stint_zone z entries=200k file=table labels=100; stint_headers both;\n"
                f"stint_policy z 10{PER_LONG} name=p; stint_policy z 1/h in-flight name=at_once;"
                f"stint_policy z 2/day reserve=1 name=wait; stint_policy z 3{PER_LONG} ban=1h name=charged;",
                location("/file", "stint_limit z p $arg_user;") + location("/both", "stint_limit z p $arg_user;",
                                                                           "stint_limit z charged k;", "empty_gif;") +
                location("/long", "stint_limit z at_once $arg_user;", "limit_rate 2000;") +
                location("/wait", "stint_limit z wait $arg_user delay=30d;", "empty_gif;") +
                location("/charged", "stint_limit z charged $arg_user charge=2;", "empty_gif;") +
                location("/late", "stint_limit z charged $arg_user charge=2 late;", "empty_gif;") +
                location("/metrics", "stint_metrics z;") + STATUS)
            with self.subTest(how=how), server:
                self.assertEqual(server.statuses(20, "/file?user=a"), [200] * 10 + [429] * 10)
                self.assertEqual(server.statuses(2, "/wait?user=a"), [200] * 2)
                long = server.begin(2, "/long?user=a")
                waiting = server.begin(1, "/wait?user=a")
                holds(server, 1)
                workers = server.worker_pids()
                size = self.file.stat().st_size
                os.truncate(self.file, size // 2 if how == "half" else 0)
                os.truncate(self.file, size if how == "grown" else self.file.stat().st_size)
                for user in range(100):  # a part of the file is there still
                    for path in "/file", "/both", "/charged", "/late", "/wait":
                        self.assertEqual(server.get(f"{path}?user=b{user}").status, 200)
                until(lambda: all(server.get("/file?user=a").stint.split()[0] == "UNTRACKED" for _ in range(20)),
                      "all workers to see it")
                response = server.get("/file?user=a")
                self.assertEqual((response.stint, response["RateLimit"]), ("UNTRACKED p /", None))
                close(long + waiting)
                holds(server)
                self.assertEqual(status(server)["lost"], 1)
                self.assertRegex(server.get("/metrics").body.decode(), r'(?m)^stint_table_lost\{zone="z"\} 1$')
                self.assertEqual(server.worker_pids(), workers)
                self.assertLessEqual(len(server.logged(self.LOST)), 2)  # one of each worker
                # Others in their places, too.
                for pid in workers:
                    server.kill_worker(pid)
                for user in range(100):
                    self.assertEqual(server.get(f"/file?user=c{user}").status, 200)
                self.assertEqual(len(server.logged("exited on signal")), 2)
                self.assertLessEqual(len(server.logged(self.LOST)), 4)
                [line] = server.reload_refused()
                self.assertRegex(line, f"{self.file}: .*table.* remove it")
                self.assertEqual(server.test()[0], 1)
                self.file.unlink()
                self.assertEqual(server.test()[0], 0)
                server.reload()
                self.assertEqual(server.statuses(20, "/file?user=a"), [200] * 10 + [429] * 10)
                self.assertEqual(status(server)["lost"], 0)
                self.assertEqual(len(server.logged("exited on signal")), 2)

    def test_a_bus_error_of_another(self):
        """It kills, as ever."""
        with self.filed(Server(module.MODULE)) as server:
            server.kill_worker(server.worker_pids()[0], signal.SIGBUS)
            self.assertEqual(len(server.logged(f"exited on signal {signal.SIGBUS}")), 1)

    def test_a_zone_does_not_move_while_it_runs(self):
        with self.filed(Server(module.MODULE)) as server:
            text = server.configuration.read_text()
            for new in "", "file=elsewhere":
                server.configuration.write_text(text.replace(f"file={self.file}", new))
                [line] = server.reload_refused()
                self.assertIn(f'stint zone "z" cannot move while nginx runs, and is in {self.file}: '
                              "restart nginx, or give it another name in", line)
            self.assertFalse((server.directory / "elsewhere").exists())
            self.assertEqual(server.get().stint, "PASSED p 1/10 9")
        with self.limited(f"3{PER_LONG}") as server:
            [line] = server.edit(("entries=1k", "entries=1k file=table")).reload_refused()
            self.assertIn("and is in memory: restart", line)

    def test_reloads_and_kills_in_a_storm(self):
        """Of a table in a file, and of one in memory."""
        limit = 4000
        for place in "file=table", "":
            with self.subTest(place=place), \
                    self.limited(f"{limit}{PER_LONG}", zone=f"entries=1k {place}", workers=3) as server:
                storm = Storm(server, enough=lambda storm: storm.refused >= 50)
                allowed = []

                def disturb():
                    for _ in range(3):
                        server.reload()
                        server.kill_worker(until(server.worker_pids, "a worker")[0])
                        allowed.append(storm.allowed)
                storm.run(disturb)
                self.assertTrue(0 < allowed[0] < limit, "not in the middle")
                self.check_storm(storm, limit)
                # Nothing changed, so nothing is said to have.
                self.assertEqual(server.logged("changed from"), [])
                self.assertEqual(len(server.logged("exited on signal 9")), 3)

    def test_an_upgrade_of_the_binary(self):
        """USR2 starts a new master beside the old one, QUIT ends the old one. Nothing is lost, and both
        count together meanwhile: with the size that the file has."""
        for size in "entries=1k", "entries=2k":
            server = self.filed(Server(module.MODULE))
            old = server.daemonize(self)
            self.assertEqual(server.statuses(4), [200] * 4)
            os.kill(server.edit(("entries=1k", size)).master(), signal.SIGUSR2)
            new = until(lambda: {server.master()} - {0, old}, "the new master")
            self.assertEqual(server.get().stint.split()[:2], ["PASSED", "p"])
            os.kill(old, signal.SIGQUIT)
            until(lambda: not server.master("nginx.pid.oldbin"), "the end of the old one")
            self.assertEqual({server.master()}, new)
            self.assertEqual(server.get().stint, "PASSED p 6/10 4")
            self.assertEqual(server.statuses(5), [200] * 4 + [429])
            said = server.logged("nginx, or another process, has the table open: .*, makes it entries=2000")
            self.assertEqual(len(said) != 0, size == "entries=2k")
            self.assertEqual(status(server)["entries"], 1000)


class Pages(Case):
    def test_status(self):
        with self.serve('stint_zone z entries=1k full=refuse policies=9; stint_policy z 3/52w "name=\\"a \\\\\\"b\\\\\\"\\"";'
                        "stint_policy z 2/52w shadow;", location(
                            "/", "stint_limit z 'a \"b\"' $arg_user;", "stint_limit z 2/364d $arg_user;") + STATUS,
                        workers=3) as server:
            for user in range(4):
                server.statuses(5, f"/file?user={user}")
            response = server.get("/status")
            self.assertEqual((response.status, response["Content-Type"]), (200, "application/json"))
            found = json.loads(response.body)
            self.assertEqual([found[name] for name in ("zone", "entries", "full", "live", "held", "untracked")],
                             ["z", 1000, "refuse", 8, 0, 0])
            self.assertGreaterEqual(found["slots"], 2000)
            first, second = found["policies"]
            self.assertEqual([first[name] for name in ("name", "policy", "allowed", "refused", "first_refusals")],
                             ['a "b"', "3/52 weeks", 12, 8, 4])
            self.assertEqual([second[name] for name in ("name", "policy", "shadowed")], ["2/52 weeks", "2/52 weeks shadow", 4])

    def test_the_keys_that_were_refused_most(self):
        """By name, over several windows and reloads."""
        with self.serve(zone("entries=7k labels=1k", often="1/100ms", once=1),
                        location("/file", "stint_limit z often $arg_user;") +
                        location("/other", "stint_limit z once $http_key;") +
                        location("/client", "stint_limit z once $binary_remote_addr;") +
                        location("/net", "stint_limit z once $remote_addr prefix=24;") +
                        location("/a", "stint_limit z once $http_key prefix=9,31;") + STATUS) as server:
            self.assertEqual(status(server)["top"], [])

            def found():
                return {(key["key"], key["policy"]): key for key in status(server)["top"]}
            until(lambda: server.statuses(3, "/file?user=noisy") and
                  found().get(("noisy", "often"), {}).get("refused_windows", 0) >= 3, "refusals")
            server.reload()
            for path, key, name in (
                    ("/other", 'q"\\ \u00e9', 'q"\\ \u00e9'), ("/other", "x" * 50, "x" * 40),
                    ("/client", "", "127.0.0.1"), ("/net", "", "127.0.0.0/24"),
                    ("/a", "192.255.2.1", "192.128.0.0/9"), ("/a", "2001:dbf::1", "2001:dbe::/31"),
                    ("/a", "::ffff:10.200.0.1", "10.128.0.0/9"), ("/a", "nobody", "127.0.0.0/9")):
                headers = {"Key": key.encode("latin-1")} if key else {}
                server.statuses(3, path, headers=headers)
                self.assertEqual(found()[name, "once"]["refused_windows"], 1, name)
                self.assertEqual(found()[name, "once"]["used"], 1)
            counts = [key["refused_windows"] for key in status(server)["top"]]
            self.assertEqual(counts, sorted(counts, reverse=True))

    def test_they_are_not_limited_by_what_they_inherit(self):
        """But by limits of their own; also in an `if`."""
        more = "if ($arg_if) { add_header X-If there; }"
        with self.serve(f"stint_zone z entries=1k; stint_policy z 1{PER_LONG} name=p; stint_limit z p k;",
                        "".join(location(f"/{name}", f"{page} z;", more) + location(
                            f"/own/{name}", "stint_limit z p $uri;", f"{page} z;", more)
                            for name, page in (("status", "stint_status_page"), ("metrics", "stint_metrics")))) as server:
            self.assertEqual(server.statuses(2), [200, 429])
            for name in "status", "metrics":
                pages = [server.get(f"/{name}{query}") for query in ("", "?if=1")]
                self.assertEqual([(page.status, page["X-If"]) for page in pages], [(200, None), (200, "there")])
                self.assertIn(b"policies", pages[1].body)
                self.assertEqual([server.get(f"/own/{name}{query}").status for query in ("?if=1", "?if=1", "")],
                                 [200, 429, 429])

    def test_no_more_than_20_keys(self):
        """None without labels."""
        for options, keys in ("entries=7k labels=1k", 20), ("entries=1k", 0):
            with self.limited(f"1{PER_LONG}", key="$arg_user", zone=options, locations=STATUS) as server:
                for user in range(30):
                    server.statuses(2, f"/file?user={user}")
                top = status(server)["top"]
                self.assertEqual((len(top), len({key["key"] for key in top})), (keys, keys))


if __name__ == "__main__":
    main()
