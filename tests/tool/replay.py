#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint replay from end to end: replay.py STINT [SEED]

Figures are compared with a naive twin written here: a dict from (key, window) to a count, or a bucket, and
requests in the order of their times. What other limits do is the library's. What a log's lines say: advise.py.
"""

import collections
import gzip
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from logs import (DAY, HOUR, MINUTE, REAL_LOG, SECOND, TESTS, Case, bucket_refuses, clf_ns, commands, iso_ns, real_lines,
                  window_refuses)

REFUSED = 931  # of the real log by 20/minute
SEED = 0

REASONS = {
    "empty": "the line is empty",
    "field": "a field of the key is missing",
    "no time": "there is no time in brackets",
    "form": "the brackets hold no time like [17/May/2015:10:05:03 +0000]",
    "early": "the time is before 1970",
}


def replay(*arguments, **options):
    return commands.told("replay", *arguments, **options)


def epoch_ns(line):
    whole, _, part = line.split()[0].partition(".")
    return int(whole) * SECOND + int((part + "000000000")[:9])


class Replay(Case):
    def write(self, content):
        return str(super().write("access.log", content))

    def report(self, *arguments, **options):
        return self.json("replay", *arguments, **options)

    def check(self, lines, fields, read_time, policies, *arguments):
        """Compares all that is said about these limits with the naive twin: a notation to the limit (a number, or that and
        a burst), its window, and where that starts."""
        times = [read_time(line) for line in lines]
        requests = sorted(((" ".join(line.split()[field - 1] for field in fields), now) for line, now in zip(lines, times)),
                          key=lambda request: request[1])
        first, last, sent = requests[0][1], requests[-1][1], collections.Counter(key for key, _ in requests)
        report = self.report(*(option for notation in policies for option in ("--limit", notation)), "--top=1G", *arguments)
        self.assertEqual([limit["notation"] for limit in report["limits"]], list(policies))
        log = report["log"]
        self.assertEqual((log["keys"], log["late"], iso_ns(log["first_time"]), iso_ns(log["last_time"])),
                         (len(sent), sum(now < before for now, before in zip(times, itertools.accumulate(times, max))),
                          first, last))
        for told, (limit, window, *start) in zip(report["limits"], policies.values()):
            with self.subTest(notation=told["notation"]):
                refusals = list(window_refuses(requests, window, limit, *start) if isinstance(limit, int) else
                                bucket_refuses(requests, window, *limit))
                refused = collections.Counter(key for key, _ in refusals)
                self.assertEqual({name: told[name] for name in ("requests", "allowed", "refused", "keys_refused", "top")},
                                 {"requests": len(lines), "allowed": len(lines) - len(refusals), "refused": len(refusals),
                                  "keys_refused": len(refused), "top": [
                                      {"key": key, "refused": refused[key], "allowed": sent[key] - refused[key]}
                                      for key in sorted(refused, key=lambda key: (-refused[key], key.encode()))]})
                self.assertGreater(told["decisions_per_second"], 0)
                self.check_over_time(told["over_time"], refusals, first, last, all(now % SECOND == 0 for now in times))
        return report


class RealLog(Replay):
    def setUp(self):
        super().setUp()
        self.lines = real_lines()

    def test_published_figures(self):
        report = self.report("--limit", "20/minute", "--limit", "100/day", REAL_LOG)
        log = report["log"]
        self.assertEqual([log[name] for name in ("lines", "readable", "unreadable", "unreadable_lines", "keys", "key")],
                         [10000, 10000, 0, [], 1753, ["client"]])
        names = ("notation", "name", "requests", "allowed", "refused", "keys_refused")
        self.assertEqual([[limit[name] for name in names] for limit in report["limits"]],
                         [["20/minute", "20/minute", 10000, 10000 - REFUSED, REFUSED, 50],
                          ["100/day", "100/day", 10000, 9607, 393, 4]])

    def test_table_has_the_same_figures(self):
        out = self.good("replay", "--limit", "20/minute", "--limit=100/day", REAL_LOG)
        for pattern in (r"^Lines +10,000, all readable$", r"^Keys +1,753 by client; the first is 83\.149\.9\.216$",
                        r"^Log +.*access\.log\.gz: combined$", r"^Order +by time; in the logs 9,448 stood behind a later one$",
                        r"^Time +2015-05-17 10:05:00 to 2015-05-20 21:05:59 UTC, 3 d 11 h$",
                        r"^20/minute\n +Requests +10,000 .*\n +Allowed +9,069 +90\.69%\n +Refused +931 +9\.31%\n +Keys refused +50 ",
                        r"^100/day\n +Requests +10,000 .*\n +Allowed +9,607 .*\n +Refused +393 .*\n +Keys refused +4 ",
                        r"^ +Speed +[\d,]+ decisions per second$", r"^  130\.237\.218\.86 +214 +143$",
                        r"^  130\.237\.218\.86 +157 +200$"):
            self.assertRegex(out, re.compile(pattern, re.MULTILINE))
        self.assertLessEqual(max(map(len, out.splitlines())), 100)
        lines = re.findall("│(.*)│", out)
        self.assertEqual([(len(line), set(line) <= set(" ▁▂▃▄▅▆▇█"), "█" in line) for line in lines], [(60, True, True)] * 2)

    def test_one_key_field(self):
        report = self.check(self.lines, [1], clf_ns, {
            "1/day": (1, DAY), "2/minute": (2, MINUTE), "10/minute": (10, MINUTE), "5/second": (5, SECOND),
            "1000/hour": (1000, HOUR), "50/hour": (50, HOUR), "3/10s": (3, 10 * SECOND), "7 per 15 minutes": (7, 15 * MINUTE),
            "300/week": (300, 7 * DAY), "1/10ms": (1, SECOND // 100), "20/minute capacity=12": (12, MINUTE),
            "30/hour start=2015-05-17T00:30:00Z": (30, HOUR, 30 * MINUTE), "20/minute burst=20": ((20, 20), MINUTE),
            "7/minute burst=3": ((7, 3), MINUTE), "60/hour burst=100 jitter=10%": ((60, 100), HOUR),
            "1/s burst=1": ((1, 1), SECOND),
            "100/day burst=10 reserve=5": ((100, 10), DAY), "20/minute stripes=8": (20, MINUTE), "64/hour stripes=64": (64, HOUR),
            "7/10s stripes=4 near=50%": (7, 10 * SECOND)}, REAL_LOG)
        self.assertEqual([limit["notation"] for limit in report["limits"] if limit["refused"] == 0], ["1000/hour"])

    def test_several_key_fields(self):
        for fields in ([1, 7], [7], [9, 1], [6, 9, 1]):
            report = self.check(self.lines, fields, clf_ns, {"5/hour": (5, HOUR), "2/day": (2, DAY)},
                                "--key", ",".join(map(str, fields)), REAL_LOG)
            self.assertEqual(report["log"]["key"], list(map(str, fields)))

    def test_without_times_all_is_one_instant(self):
        asked = "--limit=50/second", "--time=none", "--top=1k", REAL_LOG
        report = self.report(*asked)
        counts = collections.Counter(line.split()[0] for line in self.lines)
        over = {key: count for key, count in counts.items() if count > 50}
        [limit] = report["limits"]
        self.assertEqual(limit["refused"], sum(over.values()) - 50 * len(over))
        self.assertEqual({key["key"] for key in limit["top"]}, set(over))
        self.assertEqual((limit["over_time"], report["log"]["first_time"], report["log"]["last_time"]), ([], None, None))
        out = self.good("replay", *asked)
        self.assertIn("all requests happen at one instant", out)
        self.assertNotIn("│", out)

    def test_plain_and_standard_input_say_the_same(self):
        plain, packed = "\n".join(self.lines).encode(), Path(REAL_LOG).read_bytes()
        reports = [self.report("--limit", "20/minute", file, stdin=stdin) for file, stdin in (
            (REAL_LOG, b""), (self.write(plain), b""), ("-", plain), ("-", packed))]
        reports.append(self.report("--limit", "20/minute", self.write(plain.replace(b"\n", b"\r\n") + b"\r\n")))
        for report in reports:
            del report["log"]["files"], report["limits"][0]["decisions_per_second"]
            self.assertEqual(report, reports[0])

    def test_bans(self):
        """They are counted; a shadow bans nobody. A shadow tells what it would refuse. Refusals stay in their window, so
        a limit that counts them refuses the same requests."""
        limits = ["--limit=20/minute ban=2h", "--limit=5/minute ban=6h shadow", "--limit=20/minute", "--limit=20/minute shadow",
                  "--limit=20/minute count-refused"]
        told = self.report(*limits, REAL_LOG)["limits"]
        self.assertEqual([limit["bans"] for limit in told], [55, 0, 0, 0, 0])
        self.assertEqual([limit["refused"] for limit in told[2:]], [REFUSED] * 3)
        self.assertEqual(re.findall(r"^  Bans +(\d+)$", self.good("replay", *limits, REAL_LOG), re.MULTILINE), ["55", "0"])

    def test_top(self):
        """Also by as many fields as a key may have."""
        for top in (0, 1, 3, 49, 50, 51):
            report = self.report("--limit", "20/minute", "--top", str(top), "--key", ",".join("1" * 16), REAL_LOG)
            self.assertEqual(len(report["limits"][0]["top"]), min(top, 50))
        self.assertEqual(len(self.report("--limit=20/m", REAL_LOG)["limits"][0]["top"]), 10)


class MadeUpLogs(Replay):
    def test_epoch(self):
        chance = random.Random(SEED)
        at, lines = 1431857103 * SECOND, []
        for _ in range(20000):
            at += chance.choice((0, 1, 1000000, 20000000, 300000000))
            stamp = at - chance.choice((0, 0, 0, 5000000, SECOND, 90 * SECOND))
            digits = chance.choice((0, 1, 3, 6, 9))
            text = f"{stamp // SECOND}.{stamp % SECOND:09d}"
            text = text[:len(text) - 9 + digits].rstrip(".")
            lines.append(f"{text} client{int(chance.paretovariate(0.5)) % 500} /{chance.randint(0, 3)}")
        path = self.write("\n".join(lines) + "\n")
        for fields in ([2], [2, 3]):
            self.check(lines, fields, epoch_ns, {"5/s": (5, SECOND), "20/minute": (20, MINUTE), "1/20ms": (1, SECOND // 50),
                                                 "3/s burst=4": ((3, 4), SECOND)},
                       "--key", ",".join(map(str, fields)), "--time=epoch", path)

    def test_epoch_from_its_first_instant(self):
        lines = ["0 a", "0.000000000 a", "0.5 a", "0.999999999 a", "1 a", "0 a"]
        report = self.check(lines, [2], epoch_ns, {"2/s": (2, SECOND)}, "--key=2", "--time=epoch", self.write("\n".join(lines)))
        self.assertEqual(report["limits"][0]["refused"], 3)

    def test_times_have_the_decimals_they_need(self):
        asked = "--limit=1/s", "--key=2", "--time=epoch", self.write("5.000001234 a\n5.042 a\n")
        log = self.report(*asked)["log"]
        self.assertEqual((log["first_time"], log["last_time"]), ("1970-01-01T00:00:05.000001234Z", "1970-01-01T00:00:05.042Z"))
        self.assertIn("1970-01-01 00:00:05.000001234 to 1970-01-01 00:00:05.042 UTC, 41 ms 998 us", replay(*asked)[1])

    def test_files_in_any_order(self):
        """However lines are cut into files and shuffled, they say the same as one sorted log. `1/s burst=10`
        refused 1,471 requests of the shuffled log when the clock was the latest time so far."""
        real = sorted(real_lines(), key=clf_ns)
        policies = "1/s burst=10", "20/minute", "100/day smooth"
        options = [option for notation in policies for option in ("--limit", notation)]

        def figures(*files):
            report = self.report(*options, "--top=10k", *files)
            self.assertEqual([file["file"] for file in report["log"]["files"]], list(map(str, files)))
            self.assertEqual(sum(file["lines"] for file in report["log"]["files"]), len(real))
            for limit in report["limits"]:
                del limit["decisions_per_second"]
            return report["limits"]

        expected = figures(self.write("\n".join(real)))
        self.assertEqual([(limit["refused"], limit["keys_refused"]) for limit in expected[:2]],
                         [(65, 2), (REFUSED, 50)])
        self.assertEqual(figures(REAL_LOG), expected)
        parts = [real[:2500], real[2500:7000], real[7000:]]
        files = [commands.Case.write(self, f"access.log.{3 - n}", "\n".join(part) if n % 2 else
                                     gzip.compress("\n".join(part).encode()))
                 for n, part in enumerate(parts)]
        self.assertEqual(figures(*files), expected)
        self.assertEqual(figures(*files[::-1]), expected)  # the newest first
        random.Random(SEED).shuffle(real)
        self.assertEqual(figures(self.write("\n".join(real))), expected)

    def test_one_line_of_another_year(self):
        """It is decided at its own time, and all else as without it."""
        real = real_lines()
        for year, at in ("2035", 0), ("2035", 5000), ("1971", 1), ("1971", 9999):
            far = re.sub(r"\[17/May/2015", f"[17/May/{year}", real[0]).replace(real[0].split()[0], "far")
            lines = real[:at] + [far] + real[at:]
            report = self.check(lines, [1], clf_ns, {"20/minute": (20, MINUTE)}, self.write("\n".join(lines) + "\n"))
            self.assertEqual(report["limits"][0]["refused"], REFUSED)

    def test_joined_fields_stay_apart(self):
        report = self.report("--limit", "1/minute", "--time=none", "--key=1,2", "--top=5",
                             self.write("ab c\na bc\nab  c\nc ab\n"))
        self.assertEqual(report["log"]["keys"], 3)
        self.assertEqual(report["limits"][0]["top"], [{"key": "ab c", "refused": 1, "allowed": 1}])

    def test_many_keys(self):
        report = self.report("--limit", "1/day", "--time=none", "--top=2",
                             "-", stdin=b"".join(b"k%d\n" % (i % 150000) for i in range(200000)))
        limit = report["limits"][0]
        self.assertEqual((report["log"]["keys"], limit["allowed"], limit["refused"]),
                         (150000, 150000, 50000))

    BAD = "\n".join(["", "junk", "a - - [yesterday] x", "a - - [31/Dec/1969:23:59:59 +0000] x",
                     "a - - [17/May/2015:10:05:03 +0000]"])
    GOOD = "a - - [17/May/2015:10:05:03 +0000] x\n"

    def test_unreadable_lines_are_told(self):
        path = self.write(self.GOOD * 2 + self.BAD + "\n" + self.GOOD * 93)
        log = self.report("--limit", "2/minute", "--key", "1,6", path)["log"]
        self.assertEqual((log["lines"], log["readable"], log["unreadable"]), (100, 95, 5))
        self.assertEqual(log["unreadable_lines"],
                         [{"file": path, "line": number, "why": REASONS[why]} for number, why in
                          ((3, "empty"), (4, "no time"), (5, "form"), (6, "early"), (7, "field"))])
        out = self.good("replay", "--limit=2/minute", "--key=1,6", path)
        for text in "100, of which 5 unreadable:", "line 3: " + REASONS["empty"], "line 7: " + REASONS["field"]:
            self.assertIn(text, out)

    def test_more_than_a_twentieth_unreadable_fails(self):
        path = self.write(self.GOOD * 94 + self.BAD + "\n")
        for form in "table", "json":
            self.fails(1, f"5 of 99 lines cannot be read, more than 5%:\n  line 95: {REASONS['empty']}\n", "replay",
                       "--limit=2/minute", "--key=1,6", "--format", form, path)
        err = replay("--limit=2/minute", "--key=1,6", path, self.write(self.GOOD))[2]
        self.assertNotIn("line 95: ", err)  # the same file was read twice

    def test_only_the_first_unreadable_are_listed(self):
        path = self.write("junk\n" * 1234 + self.GOOD * 25000)
        log = self.report("--limit", "2/minute", path)["log"]
        self.assertEqual(log["unreadable"], 1234)
        self.assertEqual([line["line"] for line in log["unreadable_lines"]], list(range(1, 11)))
        self.assertIn("and 1,224 more", replay("--limit=2/minute", path)[1])

    def test_lines_around_blocks(self):
        """Their ends fall on every side of the end of a block; members of gzip join without a seam."""
        block = 1 << 16
        lines = [bytes([97 + n]) * size for n, size in enumerate((block - 2, block - 1, block, block + 1, 1, 3 * block, 5000000))]
        text = b"".join((line + b"\r\n") * 2 for line in lines)
        packed = b"".join(map(gzip.compress, (text[:block + 5], b"", text[block + 5:]))) + bytes(4)
        for content in text, packed:
            report = self.report("--limit=1/366d", "--time=none", self.write(content))
            self.assertEqual({key["key"] for key in report["limits"][0]["top"]}, {line.decode() for line in lines})
            self.assertEqual(report["log"]["readable"], 2 * len(lines))

    def test_a_line_beyond_the_bound(self):
        longest = b"x" * (1 << 26)
        path = self.write(gzip.compress(b"b 1\n" * 18 + longest + b"\n" + longest + b"y\nb 2\n", 1))
        log = self.report("--limit", "2/minute", "--time=none", path)["log"]
        self.assertEqual((log["lines"], log["readable"]), (21, 20))
        self.assertEqual(log["unreadable_lines"], [{"file": path, "line": 20, "why": "it is too long"}])

    def test_keys_of_any_bytes(self):
        names = [b"\x1b[31mred", b"nul\0nul", b"\xff\xfe", "ü".encode(), b"\"\\", b"x" * 3000000,
                 b"\xc2\x9b31m", b"\x7f\x08\r"]
        path = self.write(b"".join(name + b" 1\n" + name + b" 2\r\n" for name in names))
        report = self.report("--limit", "1/minute", "--time=none", path)
        self.assertEqual(report["log"]["keys"], len(names))
        self.assertEqual({key["key"] for key in report["limits"][0]["top"]},
                         {name.decode("utf-8", "replace") for name in names})
        out = self.good("replay", "--limit=1/minute", "--time=none", path)
        for text in (r"\x1b[31mred ", r"nul\x00nul ", r"\xff\xfe ", r"\xc3\xbc ", "\"\\ ",
                     "x" * 61 + "... ", r"\xc2\x9b31m ", r"\x7f\x08\x0d "):
            self.assertIn("\n  " + text, out)
        self.assertRegex(out, r"\A[ -~\n]*\Z")
        self.assertLessEqual(max(map(len, out.splitlines())), 100)


class Formats(Replay):
    """The same five requests, as each server writes them. The fourth came before the third, and who sent it
    wrote times of 2036 and quotes wherever he could."""
    ADDRESSES = ["192.0.2.7", "2001:db8::17", "192.0.2.7", "198.51.100.9", "2001:db8::17"]
    BROWSER = "Mozilla/5.0 (X11; Linux x86_64)"
    TEXTS = {  # name: what it is called, what names a part
        "common": ("common", {"user": ["-", "-", "ann lee", "[02/Mar/2036:08:00:00 +0000]", "-"]}),
        "combined": ("combined", {"user": ["-", "-", "ann lee", '"x [02/Mar/2036:08:00:00 +0000] \\\\\\"GET"', "-"]}),
        "vhost_combined": ("vhost_combined, or like it", {
            "host": ["www.example.org:443"] * 2 + ["203.0.113.1", "api.example.org:443", "www.example.org:443"],
            "status": ["200", "200", "403", "400", "304"], "user": ["-", "-", "ann lee", "-", "-"]}),
        "quoted": ("vhost_combined, or like it", {
            "method": ["GET", "GET", "POST", "GET", "GET"], "path": ["/login", "/a", "/login", "/b", "/a"]}),
        "haproxy": ("HAProxy's httplog", {"status": ["200", "200", "403", "400", "304"],
                                          "method": ["GET", "GET", "POST", "<BADREQ>", "GET"]}),
        "caddy": ("Caddy's JSON", {"request.method": ["GET", "GET", "POST", "GET", "GET"],
                                   "status": ["200", "200", "403", "404", "304"]}),
        "traefik": ("Traefik's JSON", {"ClientUsername": ["-", "-", "ann lee", "-", "-"],
                                       "RequestPath": ["/login?next=/a", "/a", "/login", "/b", "/a"]}),
        "nginx_json": ("nginx's JSON", {"remote_addr": ADDRESSES,
                                        "host": ["www.example.org"] * 3 + ["203.0.113.1", "www.example.org"]}),
        "envoy": ("Envoy's JSON", {"x_forwarded_for": ADDRESSES,
                                   "authority": ["www.example.org"] * 3 + ["203.0.113.1", "www.example.org"]}),
    }

    def keys(self, path, *arguments):
        """How many requests each key has, in the words of the report."""
        report = self.report("--limit=1/366d count-refused", "--top=1k", *arguments, path)
        names = [name for key in report["limits"][0]["top"]
                 for name in [key["key"]] * (key["refused"] + key["allowed"])]
        return report["log"], collections.Counter(names)

    def test_each_server(self):
        self.assertEqual({f"{name}.log" for name in self.TEXTS}, set(os.listdir(f"{TESTS}/data/logs")))
        for name, (form, parts) in self.TEXTS.items():
            with self.subTest(name=name):
                path = f"{TESTS}/data/logs/{name}.log"
                log, keys = self.keys(path)
                self.assertEqual((log["files"][0]["format"], log["readable"], log["late"]), (form, 5, 1))
                self.assertEqual((log["keys"], log["first_key"]), (3, "192.0.2.7"))
                self.assertEqual(keys, {"192.0.2.7": 2, "2001:db8::17": 2})
                self.assertRegex(log["first_time"], r"^2026-03-02T08:00:00(\.007)?Z$")
                self.assertEqual(log["last_time"], "2026-03-02T08:01:00Z")
                out = self.good("replay", "--limit=1/s", path)
                self.assertIn(f"{name}.log: {form}", out)
                for part, values in parts.items():
                    several = "client," + part
                    names = self.keys(path, "--key", several)[1]
                    expected = collections.Counter(
                        f"{address} {self.quoted(value)}" for address, value in zip(self.ADDRESSES, values))
                    self.assertEqual(names, {key: count for key, count in expected.items() if count > 1})
                    self.assertEqual(self.report("--limit=1/s", "--key", part, path)["log"]["keys"],
                                     len(set(values)))

    @staticmethod
    def quoted(value):
        return value if " " not in value or value.startswith('"') else f'"{value}"'

    def test_behind_a_prefix(self):
        """Of what stands before a line nothing is the client, though it be an address; or no client is known."""
        stamp = "2026-03-02T08:00:00.123456789Z"
        lines = {name: Path(f"{TESTS}/data/logs/{name}.log").read_text().splitlines(True) for name in ("common", "combined")}
        for prefix, (name, text) in itertools.product(
                ("Mar  2 08:00:00 web1 nginx[12]: ", "<190>Mar 12 08:00:00 203.0.113.1 nginx: ",
                 f"<190>1 {stamp} 203.0.113.1 n 1 - - ", f"{stamp} stdout F ", "web-1  | ", "\ufeff"), lines.items()):
            with self.subTest(prefix=prefix, name=name):
                log, keys = self.keys(self.write("".join(prefix * (prefix != "\ufeff" or not n) + line
                                                         for n, line in enumerate(text))))
                self.assertEqual(log["files"][0]["format"], name + ", behind a prefix" * (prefix != "\ufeff"))
                self.assertEqual((log["keys"], keys), (3, {"192.0.2.7": 2, "2001:db8::17": 2}))
        hosts = self.write("".join("Mar  2 08:00:00 web1 nginx: " + re.sub("^[^ ]+", "example.org", line)
                                   for line in lines["common"]))
        code, out, err = replay("--limit=1/s", hosts)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no word before the time is an address, so which is the client? Name it by its number: --key N", err)
        self.assertEqual(self.keys(hosts, "--key=6")[1], {"example.org": 5})

    def test_keys_that_are_no_clients(self):
        for repeated in 9, 10:
            path = self.write("".join(f"id{n} - - [02/Mar/2026:08:00:00 +0000] x\n" for n in
                                      [*range(20), *range(repeated)]))
            code, _, err = replay("--limit=1/s", path)
            self.assertEqual((code, "note: most keys are no addresses, and do not come again: is 'id0' a client?" in err),
                             (0, repeated == 9))

    @unittest.skipUnless(shutil.which("jq"), "there is no jq")
    def test_recipes(self):
        """Those of doc/which-limit.md, on what the servers write."""
        page = (TESTS.parent / "doc" / "which-limit.md").read_text()
        commands_ = next(block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "alb.log" in block).splitlines()
        client = ["192.0.2.7", "198.51.100.9", "192.0.2.7"]
        clf = [f'{name} - - [02/Mar/2026:08:0{n}:00 +0000] "GET / HTTP/1.1" 200 17' for n, name in enumerate(client)]
        write = {
            "pod.log": lambda n, name: f'2026-03-02T08:00:00.1Z stdout F {{"ts":{1772438400 + 60 * n},"client":"{name}"}}',
            "docker-json.log": lambda n, name: json.dumps({"log": clf[n] + "\n", "stream": "stdout"}),
            "journal": lambda n, name: f"{1772438400 + 60 * n}.000000 web1 nginx[12]: {clf[n]}",
            "alb.log": lambda n, name: f'https 2026-03-02T08:0{n}:00.000000Z app/lb/1 {name}:2817 10.0.0.1:80 0.0 "GET"',
            "cloudfront.log": lambda n, name: f"2026-03-02\t08:0{n}:00\tLAX1\t392\t{name}\tGET",
            "iis.log": lambda n, name: f"2026-03-02 08:0{n}:00 10.0.0.1 GET / - 443 - {name} curl/8 - 200"}
        heads = {"cloudfront.log": "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method\n",
                 "iis.log": "#Software: IIS\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip\n"}
        for file, line in write.items():
            (self.directory / file).write_text(heads.get(file, "") +
                                               "".join(line(n, name) + "\n" for n, name in enumerate(client)))
        for name, text in ("stint", f'exec {os.path.abspath(STINT)} "$@"'), ("journalctl", "cat journal"):
            (self.directory / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.directory / name).chmod(0o755)
        self.assertEqual(len(commands_), len(write))
        for command in commands_:
            out = subprocess.run(command, shell=True, cwd=self.directory, timeout=60, check=True, capture_output=True, text=True,
                                 env={**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}"}).stdout
            self.assertIn("Lines         3, all readable\nTime          2026-03-02 08:00:00 to 2026-03-02 08:02:00 UTC",
                          out, command)
            self.assertRegex(out, r"Keys          2 by .*; the first is 192\.0\.2\.7\n", command)

    def test_agents(self):
        for name, part in ("combined", "agent"), ("caddy", "request.headers.User-Agent"):
            path = f"{TESTS}/data/logs/{name}.log"
            # The fourth has none in Caddy's log, so a line of 20 must be able to do without.
            path = self.write("".join(line for line in Path(path).read_text().splitlines(True) if "198.51.100.9" not in line))
            keys = self.keys(path, "--key", part)[1]
            quote = r"\x22" if name == "combined" else '"'
            self.assertEqual(keys, {f"{self.BROWSER} {quote}quoted{quote}": 2, "curl/8.5.0": 2})

    def test_a_field_of_a_name_is_missing(self):
        self.fails(1, "1 of 5 lines cannot be read, more than 5%:\n  line 4: a field of the key is missing", "replay",
                   "--limit=1/s", "--key=request.headers.User-Agent", f"{TESTS}/data/logs/caddy.log")

    def test_addresses(self):
        addresses = ["2001:db8::1", "2001:DB8:0:0::2", "2001:db8::ffff:0:1", "2001:db8:0:1::1", "192.0.2.7",
                     "::ffff:192.0.2.7", "192.0.2.255", "192.0.3.1"]
        path = self.write("".join(f"{address} - - [02/Mar/2026:08:00:00 +0000] x\n" for address in addresses))
        for option, expected in (
                ("--address", {"2001:db8::/64": 3, "192.0.2.7": 2}),
                ("--address=24", {"2001:db8::/64": 3, "192.0.2.0/24": 3}),
                ("--address=22,128", {"192.0.0.0/22": 4}),
                ("--address=1,32", {"2001:db8::/32": 4, "128.0.0.0/1": 4})):
            self.assertEqual(self.keys(path, option)[1], expected, option)
        self.assertEqual(self.report("--limit=1/s", path)["log"]["keys"], len(addresses))
        self.assertEqual(self.keys(path, "--address=24", "--key=client,4")[1],
                         {"2001:db8::/64 [02/Mar/2026:08:00:00": 3, "192.0.2.0/24 [02/Mar/2026:08:00:00": 3})
        self.assertIn("line 1: the key is no IP address", self.fails(1, "", "replay", "--limit=1/s", "--address",
                                                                     "--key=2", path))

    def test_the_client_stands_where_most_have_it(self):
        """Scanners ask for the server by its address, and nginx' $host is what they write."""
        path = self.write("".join(f"{host} 192.0.2.{n % 5} - - [02/Mar/2026:08:00:00 +0000] x\n"
                                  for n, host in enumerate(["203.0.113.1"] * 3 + ["example.org"] * 9)))
        self.assertEqual(set(self.keys(path)[1]), {f"192.0.2.{n}" for n in range(5)})
        # Two addresses in every line: the first is the client, the second what it was asked to believe.
        path = self.write("".join(f"192.0.2.{n} 203.0.113.{n % 2} - [02/Mar/2026:08:00:00 +0000] x\n" for n in range(6)))
        self.assertEqual(self.report("--limit=1/s", path)["log"]["keys"], 6)

    def test_other_compressions_are_named(self):
        for magic, name, command in ((b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"), (b"\xfd7zXZ\0", "xz", "xz -dc"),
                                     (b"BZh91AY&SY", "bzip2", "bzip2 -dc"), (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
                                     (b"\x1f\x9d\x90", "compress", "gzip -dc"), (b"PK\3\4", "zip", "unzip -p")):
            path = self.write(magic + b" " * 100)
            self.fails(1, f"{path}: it is compressed by {name}; pipe it in, FILE being -: {command} FILE | stint ...", "replay",
                       "--limit=1/s", path)
        self.assertEqual(replay("--limit=1/s", "--time=none", self.write("BZh.example.org\n"))[0], 0)

    def test_many_escapes_take_no_time(self):
        """A reader that looks for the end of the text at each of them anew takes ten minutes for this line."""
        line = '{"ts":1772438400,"client":"a","agent":"' + r"\\" * (1 << 22) + '"}\n'
        self.assertEqual(self.report("--limit=1/s", self.write(line))["log"]["first_key"], "a")

    def test_json_without_what_is_needed(self):
        for line, message in (('{"a":1}', "no field is known to have the time. Known are ts, StartUTC"),
                              ('{"ts":1772438400}', "no field is known to have the client. Name it: --key FIELD")):
            self.assertIn(message, self.fails(1, "", "replay", "--limit=1/s", self.write(line + "\n")))
        json_ = self.write('{"ts":1772438400,"from":"a"}\n')
        combined, haproxy = f"{TESTS}/data/logs/combined.log", f"{TESTS}/data/logs/haproxy.log"
        self.assertEqual(self.report("--limit=1/s", "--key=from", json_)["log"]["first_key"], "a")
        for key, path, message in (
                ("2", json_, "JSON, where fields have names, and no numbers"),
                ("user", json_, "JSON, and its first lines have no such field"),
                ("host", combined, "combined; vhost_combined has it"),
                ("host", haproxy, "HAProxy's httplog; vhost_combined has it"),
                ("user", haproxy, "HAProxy's httplog; common and combined have it"),
                ("agent", haproxy, "HAProxy's httplog; combined has it")):
            self.fails(2, f"--key '{key}': {path} is {message}\n", "replay", "--limit=1/s", "--key", key, path)


class Failures(Replay):

    def test_usage(self):
        limit = "--limit=20/minute"
        for message, *arguments in (
                ("--limit is missing",),
                ("--limit is missing", REAL_LOG),
                ("LOG is missing", limit),
                ("- is the standard input, and stands there twice", limit, "-", REAL_LOG, "-"),
                ("--key is missing: with --time epoch field 1 is the time", limit, "--time=epoch", REAL_LOG),
                ("--key 'client': with --time epoch or none a field has a number, and no name", limit,
                 "--time=none", "--key=1,client", REAL_LOG),
                ("--key 'remote_addr': " + REAL_LOG + " is combined, where fields have numbers. Names are "
                 "client, user, ", limit, "--key=remote_addr", REAL_LOG),
                *((f"--address '{bits}': not prefixes", limit, f"--address={bits}", REAL_LOG)
                  for bits in ("", "0", "33", "24,", "24,0", "24,129", "x", "24,64,1", "1k")),
                ("--limit: its value is missing", "--limit"),
                ("--key: its value is missing", limit, REAL_LOG, "--key"),
                ("there is no option '--foo'", "--foo", limit, REAL_LOG),
                ("there is no option '--limits=5/s'", "--limits=5/s", REAL_LOG),
                ("there is no option '-x'", "-x", limit, REAL_LOG),
                ("'--help=1': this option takes no value", "--help=1"),
                ("--time 'utc': not clf, epoch or none", limit, "--time", "utc", REAL_LOG),
                ("--time '': not clf", limit, "--time=", REAL_LOG),
                ("--format 'xml': not table or json", limit, "--format=xml", REAL_LOG),
                ("--top '-1': not a number", limit, "--top=-1", REAL_LOG),
                ("--top 'ten': not a number", limit, "--top", "ten", REAL_LOG),
                ("--top '2G': not a number", limit, "--top", "2G", REAL_LOG),
                *((f"--key '{key}': not up to 16 fields, such as client or 1,7", limit, "--key", key, REAL_LOG)
                  for key in ("", "0", "-1", "1,", ",1", "1,,2", "1;2", "-a", "1 ", "1k", "9999999",
                              "1,0", ",".join("1" * 17)))):
            with self.subTest(arguments=arguments):
                self.fails(2, message, "replay", *arguments)

    def test_limits(self):
        for text, wrong in (("20/minuet", "20/"), ("x/minute", ""), ("0/minute", ""),
                            ("5/second fast", "5/second "), ("", "")):
            with self.subTest(text=text):
                err = self.fails(2, f"--limit '{text}': ", "replay", "--limit=1/s", "--limit", text, REAL_LOG)
                first, shown, caret, *_ = err.splitlines()
                self.assertEqual(shown, "    " + text)
                self.assertEqual(caret, "    " + " " * len(wrong) + "^")
                self.assertRegex(first, r"': '?\w.{5,}")

    def test_limits_are_printed_safely(self):
        self.fails(2, "--limit '5/s in-flight': a log does not tell", "replay", "--limit=5/s in-flight", REAL_LOG)
        self.assertNotIn("\x1b", self.fails(2, r"--limit '5/\x1b[31m", "replay", "--limit", "5/\x1b[31m", REAL_LOG))

    def test_files(self):
        missing, empty = str(self.directory / "missing.log"), self.write(b"")
        packed = commands.Case.write(self, "empty.gz", gzip.compress(b""))
        for path, name, message in ((missing, missing, "No such file or directory"),
                                    (self.directory, self.directory, "Is a directory\n"),
                                    (empty, empty, "it is empty"), ("-", "standard input", "it is empty"),
                                    (packed, packed, "it is empty")):
            self.fails(1, f"{name}: {message}", "replay", "--limit=20/minute", path)

    def test_no_line_readable(self):
        path = self.write("junk\n\n" * 20)
        for more in [], ["--format=json"], ["--time=epoch", "--key=1"], ["--time=none", "--key=2"]:
            err = self.fails(1, path + ": no line of it can be read", "replay", "--limit=20/minute", *more, path)
            if "--key=1" not in more and "--key=2" not in more:
                for words in "line 1: " + REASONS["no time"], "line 2: " + REASONS["empty"], "and 30 more":
                    self.assertIn(words, err)

    def test_gzip_damaged(self):
        with open(REAL_LOG, "rb") as file:
            packed = file.read()
        for content, message in (
                (packed[:100000], ": the gzip data ends too early, after line "),
                (packed[:-1], ": the gzip data ends too early, after line 10000"),
                (packed[:5], ": the gzip data ends too early\n"),
                (packed[:100000] + b"\xff" * 100 + packed[100100:], ": the gzip data is damaged"),
                (packed[:-5] + b"\0" + packed[-4:], ": the gzip data is damaged"),
                (packed + b"\x1f", ": the gzip data ends too early, after line 10000"),
                (packed + b"\x1f\x8c", ": the gzip data is damaged: incorrect header check, after line 10000"),
                *((packed + more, ": bytes that are not gzip follow the gzip data, after line ")
                  for more in (b"hello", b"\0" + packed))):
            path = self.write(content)
            self.fails(1, path + message, "replay", "--limit=20/minute", path)
            self.fails(1, "standard input" + message, "replay", "--limit=20/minute", "-", stdin=content)

    def test_gzip_cut_anywhere(self):
        packed = gzip.compress(b"one\ntwo\nthree\n")
        for cut in range(2, len(packed)):
            path = self.write(packed[:cut])
            self.fails(1, path + ": the gzip data ends too early", "replay", "--limit=1/s", "--time=none", path)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    STINT = sys.argv[1]
    commands.COMMAND[:] = [STINT]
    SEED = int(sys.argv[2]) if len(sys.argv) == 3 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {SEED}")
    unittest.main(argv=sys.argv[:1], verbosity=2)
