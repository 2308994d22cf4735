#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint replay from end to end: replay.py STINT [SEED]

Every figure is compared with a naive twin written here: a dict from (key, window) to a count, and a
clock that is the latest time seen so far.
"""

import bisect
import calendar
import collections
import functools
import gzip
import json
import os
import random
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, f"{TESTS}/kit")
import commands  # noqa: E402

REAL_LOG = f"{TESTS}/data/access.log.gz"
STINT = ""
SEED = 0

SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
REASONS = {
    "empty": "the line is empty",
    "field": "a field of the key is missing",
    "no time": "there is no time in brackets",
    "form": "the brackets hold no time like [17/May/2015:10:05:03 +0000]",
    "early": "the time is before 1970",
}


def replay(*arguments, stdin=b""):
    """Returns exit code, standard output, standard error."""
    done = subprocess.run([STINT, "replay", *arguments], input=stdin, capture_output=True,
                          timeout=120, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def clf_ns(line):
    """The time in the first brackets, ns since the epoch."""
    return stamp_ns(re.search(r"\[([^]]+)\]", line).group(1))


@functools.cache
def stamp_ns(stamp):
    local, zone = stamp.rsplit(" ", 1)
    seconds = calendar.timegm(time.strptime(local, "%d/%b/%Y:%H:%M:%S"))
    offset = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
    return (seconds - offset if zone[0] == "+" else seconds + offset) * SECOND


def epoch_ns(line):
    whole, _, part = line.split()[0].partition(".")
    return int(whole) * SECOND + int((part + "000000000")[:9])


class Plain:
    """What a key has used in each window, and nothing else."""

    def __init__(self, limit):
        self.limit, self.used = limit, collections.Counter()

    def take(self, key, number, _left, _window):
        fits = self.used[key, number] < self.limit
        self.used[key, number] += fits
        return fits


class RollOver:
    """What a key has: `capacity` at first, and `limit` more in each window, up to that."""

    def __init__(self, limit, capacity):
        self.limit, self.capacity, self.has = limit, capacity, {}

    def take(self, key, number, _left, _window):
        tokens, seen = self.has.get(key, (self.capacity, number))
        tokens = min(self.capacity, tokens + self.limit * (number - seen))
        self.has[key] = (tokens - (tokens > 0), number)
        return tokens > 0


class Smooth(Plain):
    """The window before counts for the part of it that a sliding window still sees."""

    def take(self, key, number, left, window):
        share = -(-self.used[key, number - 1] * left // window)
        fits = share + self.used[key, number] < self.limit
        self.used[key, number] += fits
        return fits


class Bucket:
    """Holds `burst` tokens, each of which takes a `limit`th of the window to come, a whole ns at least."""

    def __init__(self, limit, burst):
        self.limit, self.burst, self.has = limit, burst, {}

    def take(self, key, number, left, window):
        now, token = (number + 1) * window - left, -(-window // self.limit)
        full = self.burst * token
        has, seen = self.has.get(key, (full, now))
        has = min(full, has + now - seen)
        fits = has >= token
        self.has[key] = has - token * fits, now
        return fits


class Banning(Plain):
    """A key that was refused in `after` windows within some time (the ban's), counted from the first,
    is refused everything for the ban's time."""

    def __init__(self, limit, length, after, within=None):
        super().__init__(limit)
        self.length, self.after, self.within, self.bans = length, after, within or length, 0
        self.until, self.strikes, self.refused = {}, {}, set()

    def take(self, key, number, left, window):
        now = (number + 1) * window - left
        if now < self.until.get(key, 0):
            return False
        if super().take(key, number, left, window):
            return True
        if (key, number) not in self.refused:
            self.refused.add((key, number))
            count, since = self.strikes.get(key, (0, 0))
            count, since = (count + 1, since) if count and now < since + self.within else (1, now)
            self.strikes[key] = count, since
            if count == self.after:
                self.until[key] = now + self.length
                self.strikes[key] = 0, 0
                self.bans += 1
        return False


def naive(lines, fields, read_time, limit, window, start=0):
    """What the limit (a number, or one of the classes above) does, one request after another."""
    rule = Plain(limit) if isinstance(limit, int) else limit
    allowed, refused = collections.Counter(), collections.Counter()
    clock, first, late, refused_at = None, None, 0, []
    for line in lines:
        parts = line.split()
        key = " ".join(parts[field - 1] for field in fields)
        now = read_time(line)
        if clock is None:
            first = now
        elif now < clock:
            late += 1
        clock = now if clock is None else max(clock, now)
        number, into = divmod(clock - start, window)
        if rule.take(key, number, window - into, window):
            allowed[key] += 1
        else:
            refused[key] += 1
            refused_at.append(clock)
    top = sorted(refused, key=lambda key: (-refused[key], key.encode()))
    return {
        "requests": len(lines),
        "keys": len(set(allowed) | set(refused)),
        "allowed": sum(allowed.values()),
        "refused": sum(refused.values()),
        "keys_refused": len(refused),
        "top": [{"key": key, "refused": refused[key], "allowed": allowed[key]} for key in top],
        "refused_at": refused_at,
        "first": first,
        "last": clock,
        "late": late,
    }


def iso_ns(text):
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", text)
    seconds = calendar.timegm(time.strptime(found.group(1), "%Y-%m-%dT%H:%M:%S"))
    return seconds * SECOND + int(((found.group(2) or "") + "000000000")[:9])


class Replay(commands.Case):
    maxDiff = 4000

    def write(self, content):
        return str(super().write("access.log", content))

    def reports(self, policies, *arguments):
        """What is said of each of these limits; and of the whole."""
        options = [option for notation in policies for option in ("--limit", notation)]
        report = self.report(*options, "--top", "10k", *arguments)
        self.assertEqual([limit["notation"] for limit in report["limits"]], list(policies))
        return report, report["limits"]

    def printed(self, *arguments, stdin=b""):
        code, out, err = replay(*arguments, stdin=stdin)
        self.assertEqual((code, err), (0, ""), arguments)
        return out

    def report(self, *arguments, stdin=b""):
        return json.loads(self.printed("--format", "json", *arguments, stdin=stdin))

    def check(self, report, limit, lines, fields, read_time, *policy):
        """Compares all that is said about one limit with the naive twin."""
        expected = naive(lines, fields, read_time, *policy)
        for name in ("requests", "allowed", "refused", "keys_refused"):
            self.assertEqual(limit[name], expected[name], (name, limit["notation"]))
        self.assertEqual(limit["top"], expected["top"])
        self.assertEqual(report["distinct_keys"], expected["keys"])
        self.assertEqual(report["log"]["late"], expected["late"])
        self.assertEqual(iso_ns(report["log"]["first_time"]), expected["first"])
        self.assertEqual(iso_ns(report["log"]["last_time"]), expected["last"])
        self.assertGreater(limit["decisions_per_second"], 0)

        starts = [iso_ns(bucket["start"]) for bucket in limit["over_time"]]
        self.assertEqual(starts[0], expected["first"])
        self.assertLessEqual(starts[-1], expected["last"])
        self.assertLessEqual(len(starts), 60)
        steps = {after - before for before, after in zip(starts, starts[1:])}
        self.assertLessEqual(len(steps), 1)
        for step in steps:
            self.assertGreater(starts[-1] + step, expected["last"])
            if read_time is clf_ns:
                self.assertEqual(step % SECOND, 0)
        buckets = [0] * len(starts)
        for at in expected["refused_at"]:
            buckets[bisect.bisect_right(starts, at) - 1] += 1
        self.assertEqual([bucket["refused"] for bucket in limit["over_time"]], buckets)


class RealLog(Replay):
    @classmethod
    def setUpClass(cls):
        with gzip.open(REAL_LOG, "rt", encoding="utf-8") as file:
            cls.lines = file.read().splitlines()

    def test_published_figures(self):
        report = self.report("--limit", "20/minute", "--limit", "100/day", REAL_LOG)
        self.assertEqual(report["log"]["lines"], 10000)
        self.assertEqual(report["log"]["readable"], 10000)
        self.assertEqual(report["log"]["unreadable"], 0)
        self.assertEqual(report["log"]["unreadable_lines"], [])
        self.assertEqual(report["distinct_keys"], 1753)
        self.assertEqual(report["key_fields"], [1])
        names = ("notation", "name", "requests", "allowed", "refused", "keys_refused")
        self.assertEqual([[limit[name] for name in names] for limit in report["limits"]],
                         [["20/minute", "20/minute", 10000, 9069, 931, 50],
                          ["100/day", "100/day", 10000, 9607, 393, 4]])

    def test_table_has_the_same_figures(self):
        out = self.printed("--limit", "20/minute", "--limit=100/day", REAL_LOG)
        for pattern in (r"^Lines +10,000, all readable$", r"^Keys +1,753 by field 1$",
                        r"^Time +2015-05-17 10:05:03 to 2015-05-20 21:05:59 UTC, 3 d 11 h$",
                        r"^20/minute\n +Requests +10,000 .*\n +Allowed +9,069 +90\.69%\n"
                        r" +Refused +931 +9\.31%\n +Keys refused +50 ",
                        r"^100/day\n +Requests +10,000 .*\n +Allowed +9,607 .*\n"
                        r" +Refused +393 .*\n +Keys refused +4 ",
                        r"^ +Speed +[\d,]+ decisions per second$",
                        r"^  130\.237\.218\.86 +214 +143$",
                        r"^  130\.237\.218\.86 +157 +200$"):
            self.assertRegex(out, re.compile(pattern, re.MULTILINE))
        self.assertLessEqual(max(map(len, out.splitlines())), 100)
        lines = re.findall("│(.*)│", out)
        self.assertEqual([len(line) for line in lines], [60, 60])
        for line in lines:
            self.assertLessEqual(set(line), set(" ▁▂▃▄▅▆▇█"))
            self.assertIn("█", line)

    def test_one_key_field(self):
        policies = {
            "1/day": (1, DAY), "2/minute": (2, MINUTE), "10/minute": (10, MINUTE),
            "5/second": (5, SECOND), "1000/hour": (1000, HOUR), "50/hour": (50, HOUR),
            "3/10s": (3, 10 * SECOND), "7 per 15 minutes": (7, 15 * MINUTE),
            "300/week": (300, 7 * DAY), "1/10ms": (1, SECOND // 100),
            "30/hour start=2015-05-17T00:30:00Z": (30, HOUR, 30 * MINUTE),
            "10/minute capacity=25": (RollOver(10, 25), MINUTE),
            "10/minute capacity=25 reserve=7": (RollOver(10, 25), MINUTE),
            "2/minute capacity=100": (RollOver(2, 100), MINUTE),
            "1/hour capacity=50 near=80%": (RollOver(1, 50), HOUR),
            "3/10s capacity=4 start=2015-05-17T00:00:03Z": (RollOver(3, 4), 10 * SECOND,
                                                            3 * SECOND),
            "20/minute capacity=12": (12, MINUTE),
            "20/minute smooth": (Smooth(20), MINUTE),
            "5/10s smooth": (Smooth(5), 10 * SECOND),
            "60/hour smooth jitter=10%": (Smooth(60), HOUR),
            "100/day smooth": (Smooth(100), DAY),
            "20/minute burst=20": (Bucket(20, 20), MINUTE),
            "7/minute burst=3": (Bucket(7, 3), MINUTE),
            "60/hour burst=100 jitter=10%": (Bucket(60, 100), HOUR),
            "1/s burst=1": (Bucket(1, 1), SECOND),
            "100/day burst=10 reserve=5": (Bucket(100, 10), DAY),
            "20/minute stripes=8": (20, MINUTE),
            "64/hour stripes=64": (64, HOUR),
            "7/10s stripes=4 near=50%": (7, 10 * SECOND),
        }
        report, limits = self.reports(policies, REAL_LOG)
        for limit, policy in zip(limits, policies.values()):
            self.check(report, limit, self.lines, [1], clf_ns, *policy)
        self.assertEqual([limit["notation"] for limit in limits if limit["refused"] == 0],
                         ["1000/hour"])

    def test_windows_per_key(self):
        # Where a key's windows start depends on the secret, but it is one of 60 seconds.
        report = self.report("--limit", "5/minute start=per-key", "--top", "10k", REAL_LOG)
        lines = [line[:line.index("]") + 1] for line in self.lines]  # all that is asked of them
        times = {line: clf_ns(line) for line in lines}
        possible = [naive(lines, [1], times.get, 5, MINUTE, phase * SECOND) for phase in range(60)]
        refused = [{key["key"]: key["refused"] for key in start["top"]} for start in possible]
        keys = set().union(*refused)
        least = sum(min(start.get(key, 0) for start in refused) for key in keys)
        most = sum(max(start.get(key, 0) for start in refused) for key in keys)
        [limit] = report["limits"]
        self.assertLess(least, most)
        self.assertTrue(least <= limit["refused"] <= most, (least, limit["refused"], most))
        self.assertEqual(limit["allowed"] + limit["refused"], len(self.lines))
        for key in limit["top"]:
            self.assertIn(key["refused"], {start.get(key["key"], 0) for start in refused})

    def test_several_key_fields(self):
        for fields in ([1, 7], [7], [9, 1], [6, 9, 1]):
            key = ",".join(map(str, fields))
            report = self.report("--limit", "5/hour", "--limit", "2/day", "--key", key, "--top=1G",
                                 REAL_LOG)
            self.assertEqual(report["key_fields"], fields)
            self.check(report, report["limits"][0], self.lines, fields, clf_ns, 5, HOUR)
            self.check(report, report["limits"][1], self.lines, fields, clf_ns, 2, DAY)

    def test_without_times_all_is_one_instant(self):
        report = self.report("--limit", "50/second", "--time", "none", "--top=1k", REAL_LOG)
        counts = collections.Counter(line.split()[0] for line in self.lines)
        over = {key: count for key, count in counts.items() if count > 50}
        limit = report["limits"][0]
        self.assertEqual(limit["refused"], sum(over.values()) - 50 * len(over))
        self.assertEqual({key["key"] for key in limit["top"]}, set(over))
        self.assertEqual(limit["over_time"], [])
        self.assertIsNone(report["log"]["first_time"])
        self.assertIsNone(report["log"]["last_time"])
        out = self.printed("--limit", "50/second", "--time=none", REAL_LOG)
        self.assertIn("all requests happen at one instant", out)
        self.assertNotIn("│", out)

    def test_plain_and_standard_input_say_the_same(self):
        plain = "\n".join(self.lines).encode()
        with open(REAL_LOG, "rb") as file:
            packed = file.read()
        expected = self.report("--limit", "20/minute", REAL_LOG)
        for report in (self.report("--limit", "20/minute", self.write(plain)),
                       self.report("--limit", "20/minute", "-", stdin=plain),
                       self.report("--limit", "20/minute", "-", stdin=packed),
                       self.report("--limit", "20/minute",
                                   self.write(plain.replace(b"\n", b"\r\n") + b"\r\n"))):
            report["log"]["file"] = expected["log"]["file"]
            for limit in report["limits"] + expected["limits"]:
                limit["decisions_per_second"] = None
            self.assertEqual(report, expected)

    def test_bans(self):
        policies = {
            "20/minute ban=10m": (Banning(20, 10 * MINUTE, 1), MINUTE),
            "20/minute ban=2h": (Banning(20, 2 * HOUR, 1), MINUTE),
            "20/minute ban=1d after=2": (Banning(20, DAY, 2), MINUTE),
            "5/minute ban=6h after=3 shadow": (Banning(5, 6 * HOUR, 3), MINUTE),
            "20/minute ban=1h after=2 within=2h": (Banning(20, HOUR, 2, 2 * HOUR), MINUTE),
            "5/minute ban=1d after=2 within=90m": (Banning(5, DAY, 2, 90 * MINUTE), MINUTE),
            "20/minute": (20, MINUTE),
        }
        report, limits = self.reports(policies, REAL_LOG)
        for limit, (rule, window) in zip(limits, policies.values()):
            self.check(report, limit, self.lines, [1], clf_ns, rule, window)
            self.assertEqual(limit["bans"], 0 if rule == 20 else rule.bans, limit["notation"])
        for limit in limits[2], limits[4], limits[5]:
            self.assertGreater(limit["bans"], 0)
        out = self.printed("--limit", "20/minute ban=2h", "--limit", "20/minute", REAL_LOG)
        self.assertEqual(re.findall(r"^  Bans +(\d+)$", out, re.MULTILINE), ["55"])

    def test_what_refuses_no_less(self):
        """A shadow tells what it would refuse. Refusals stay in their window, so a limit that counts them
        refuses the same requests."""
        for option in "shadow", "count-refused":
            report = self.report("--limit", f"20/minute {option}", REAL_LOG)
            self.assertEqual(report["limits"][0]["refused"], 931)

    def test_top(self):
        for top in (0, 1, 3, 49, 50, 51):
            report = self.report("--limit", "20/minute", "--top", str(top), REAL_LOG)
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
            key = ",".join(map(str, fields))
            report = self.report("--limit", "5/s", "--limit", "20/minute", "--limit", "1/20ms",
                                 "--limit", "3/s burst=4", "--key", key, "--time=epoch", "--top=1k", path)
            self.check(report, report["limits"][0], lines, fields, epoch_ns, 5, SECOND)
            self.check(report, report["limits"][1], lines, fields, epoch_ns, 20, MINUTE)
            self.check(report, report["limits"][2], lines, fields, epoch_ns, 1, SECOND // 50)
            self.check(report, report["limits"][3], lines, fields, epoch_ns, Bucket(3, 4), SECOND)

    def test_epoch_from_its_first_instant(self):
        lines = ["0 a", "0.000000000 a", "0.5 a", "0.999999999 a", "1 a", "0 a"]
        report = self.report("--limit", "2/s", "--key=2", "--time=epoch", "--top=1",
                             self.write("\n".join(lines)))
        self.check(report, report["limits"][0], lines, [2], epoch_ns, 2, SECOND)
        self.assertEqual(report["limits"][0]["refused"], 2)

    def test_times_have_the_decimals_they_need(self):
        path = self.write("5.000001234 a\n5.042 a\n")
        log = self.report("--limit=1/s", "--key=2", "--time=epoch", path)["log"]
        self.assertEqual(log["first_time"], "1970-01-01T00:00:05.000001234Z")
        self.assertEqual(log["last_time"], "1970-01-01T00:00:05.042Z")
        out = replay("--limit=1/s", "--key=2", "--time=epoch", path)[1]
        self.assertIn("1970-01-01 00:00:05.000001234 to 1970-01-01 00:00:05.042 UTC, 41 ms 998 us",
                      out)

    def test_epoch_without_key_is_noted(self):
        code, _, err = replay("--limit=2/s", "--time=epoch", self.write("1.5 a\n"))
        self.assertEqual(code, 0)
        self.assertIn("the key is field 1, which is the time", err)

    def test_late_requests_join_the_newer_window(self):
        # By their own times the last two would be in a minute with room.
        lines = [f"a - - [17/May/2015:10:{stamp} +0000] x"
                 for stamp in ("05:59", "06:00", "06:01", "05:58", "05:59")]
        report = self.report("--limit", "2/minute", self.write("\n".join(lines)))
        self.assertEqual(report["limits"][0]["refused"], 2)
        self.assertEqual(report["log"]["late"], 2)
        self.assertEqual(report["log"]["last_time"], "2015-05-17T10:06:01Z")

    def test_one_line_of_another_year(self):
        """It is told, and left out; all else is decided as without it."""
        with gzip.open(REAL_LOG, "rt", encoding="utf-8") as file:
            real = file.read().splitlines()
        for year, places in ("2035", (0, 1, 5000, 9999)), ("1971", (1, 5000, 9999, 10000)), ("1971", (0,)):
            for at in places:
                far = re.sub(r"\[17/May/2015", f"[17/May/{year}", real[0]).replace(real[0].split()[0], "far")
                lines = real[:at] + [far] + real[at:]
                path = self.write("\n".join(lines) + "\n")
                log = self.report("--limit", "20/minute", "--top=10k", path)
                if (year, at) == ("1971", 0):  # a log may begin long before: nothing is out of order
                    self.assertEqual((log["log"]["left_out"], log["limits"][0]["refused"]), (0, 931))
                    continue
                self.assertEqual((log["log"]["readable"], log["log"]["left_out"]), (10001, 1))
                self.assertEqual(log["log"]["left_out_lines"], [
                    {"line": at + 1, "last_line": at + 1, "count": 1, "time": f"{year}-05-17T10:05:03Z"}])
                self.check(log, log["limits"][0], real, [1], clf_ns, 20, MINUTE)
                self.assertEqual(log["limits"][0]["refused"], 931)
        code, out, _ = replay("--limit", "20/minute", self.write("\n".join(real[:9] + [
            real[0].replace("2015", "2035"), real[0].replace("2015", "2034"), real[0].replace("2015", "2034")] + real[9:])))
        self.assertEqual(code, 0)
        self.assertIn("Left out      3, out of order by more than a day:\n"
                      "                line 10: 2035-05-17 10:05:03 UTC\n"
                      "                lines 11 to 12: 2034-05-17 10:05:03 UTC\n", out)
        self.assertIn("Refused                  931 ", out)

    def test_a_day_is_not_far(self):
        """A line is left out if it is out of order by more than a day; who was idle for years is not."""
        for shift, out in (DAY, 0), (DAY + SECOND, 1):
            for sign in 1, -1:
                at = 1431857103 * SECOND
                times = [at, at + sign * shift, at]
                if sign < 0:
                    times = [at, at, at - shift, at]
                lines = [f"{time // SECOND} a" for time in times]
                log = self.report("--limit=1/s", "--key=2", "--time=epoch", self.write("\n".join(lines)))["log"]
                self.assertEqual(log["left_out"], out, (shift, sign))
        log = self.report("--limit=1/s", "--key=2", "--time=epoch", self.write("5 a\n900000000 a\n1800000000 a\n"))
        self.assertEqual(log["log"]["left_out"], 0)

    def test_as_many_lines_as_can_be_are_kept(self):
        """Beside a twin that tries all choices; what is kept is decided as if it stood alone."""
        chance = random.Random(SEED)
        for turn in range(60):
            lines = []
            for _ in range(chance.randint(1, 9)):
                day = chance.choice((100, 200, 300, 400, 500)) * DAY
                lines += [f"{(day + chance.randrange(HOUR)) // SECOND} c{chance.randint(0, 3)}"
                          for _ in range(chance.randint(1, 4))]
            runs = []  # of line numbers
            for i, line in enumerate(lines):
                if not runs or abs(epoch_ns(line) - epoch_ns(lines[i - 1])) > DAY:
                    runs.append([])
                runs[-1].append(i)
            most = 0
            for choice in range(1, 1 << len(runs)):
                kept = [run for bit, run in enumerate(runs) if choice >> bit & 1]
                if all(epoch_ns(lines[a[-1]]) <= epoch_ns(lines[b[0]]) + DAY for a, b in zip(kept, kept[1:])):
                    most = max(most, sum(map(len, kept)))
            report = self.report("--limit", "2/minute", "--key=2", "--time=epoch", "--top=10",
                                 self.write("\n".join(lines) + "\n"))
            log = report["log"]
            self.assertEqual(log["left_out"], len(lines) - most, (turn, lines))
            gone = {n for run in log["left_out_lines"] for n in range(run["line"], run["last_line"] + 1)}
            self.assertEqual(len(gone), log["left_out"])
            rest = [line for n, line in enumerate(lines, 1) if n not in gone]
            self.check(report, report["limits"][0], rest, [2], epoch_ns, 2, MINUTE)

    def test_joined_fields_stay_apart(self):
        report = self.report("--limit", "1/minute", "--time=none", "--key=1,2", "--top=5",
                             self.write("ab c\na bc\nab  c\nc ab\n"))
        self.assertEqual(report["distinct_keys"], 3)
        self.assertEqual(report["limits"][0]["top"], [{"key": "ab c", "refused": 1, "allowed": 1}])

    def test_many_keys(self):
        report = self.report("--limit", "1/day", "--time=none", "--top=2",
                             "-", stdin=b"".join(b"k%d\n" % (i % 150000) for i in range(200000)))
        limit = report["limits"][0]
        self.assertEqual((report["distinct_keys"], limit["allowed"], limit["refused"]),
                         (150000, 150000, 50000))

    def test_unreadable_lines_are_told(self):
        good = "a - - [17/May/2015:10:05:03 +0000] x"
        path = self.write("\n".join([good, "", "junk", good, "a - - [yesterday] x",
                                     "a - - [31/Dec/1969:23:59:59 +0000] x",
                                     "a - - [17/May/2015:10:05:03 +0000]", good]))
        log = self.report("--limit", "2/minute", "--key", "1,6", path)["log"]
        self.assertEqual((log["lines"], log["readable"], log["unreadable"]), (8, 3, 5))
        self.assertEqual(log["unreadable_lines"],
                         [{"line": number, "why": REASONS[why]} for number, why in
                          ((2, "empty"), (3, "no time"), (5, "form"), (6, "early"), (7, "field"))])
        out = self.printed("--limit=2/minute", "--key=1,6", path)
        self.assertIn("8, of which 5 unreadable:", out)
        for text in ("line 2: " + REASONS["empty"], "line 7: " + REASONS["field"]):
            self.assertIn(text, out)

    def test_only_the_first_unreadable_are_listed(self):
        path = self.write("junk\n" * 1234 + "a - - [17/May/2015:10:05:03 +0000] x\n")
        log = self.report("--limit", "2/minute", path)["log"]
        self.assertEqual(log["unreadable"], 1234)
        self.assertEqual([line["line"] for line in log["unreadable_lines"]], list(range(1, 11)))
        self.assertIn("and 1,224 more", replay("--limit=2/minute", path)[1])

    def test_a_line_beyond_the_bound(self):
        longest = b"x" * (1 << 26)
        path = self.write(gzip.compress(longest + b"\n" + longest + b"y\nb 2\n", 1))
        log = self.report("--limit", "2/minute", "--time=none", path)["log"]
        self.assertEqual((log["lines"], log["readable"]), (3, 2))
        self.assertEqual(log["unreadable_lines"], [{"line": 2, "why": "it is too long"}])

    def test_keys_of_any_bytes(self):
        names = [b"\x1b[31mred", b"nul\0nul", b"\xff\xfe", "ü".encode(), b"\"\\", b"x" * 3000000,
                 b"\xc2\x9b31m", b"\x7f\x08\r"]
        path = self.write(b"".join(name + b" 1\n" + name + b" 2\r\n" for name in names))
        report = self.report("--limit", "1/minute", "--time=none", path)
        self.assertEqual(report["distinct_keys"], len(names))
        self.assertEqual({key["key"] for key in report["limits"][0]["top"]},
                         {name.decode("utf-8", "replace") for name in names})
        out = self.printed("--limit=1/minute", "--time=none", path)
        for text in (r"\x1b[31mred ", r"nul\x00nul ", r"\xff\xfe ", r"\xc3\xbc ", "\"\\ ",
                     "x" * 61 + "... ", r"\xc2\x9b31m ", r"\x7f\x08\x0d "):
            self.assertIn("\n  " + text, out)
        self.assertRegex(out, r"\A[ -~\n]*\Z")
        self.assertLessEqual(max(map(len, out.splitlines())), 100)


class Failures(Replay):
    def fails(self, code, message, *arguments, stdin=b""):
        got, out, err = replay(*arguments, stdin=stdin)
        self.assertEqual((got, out), (code, ""), err)
        self.assertIn("stint replay: " + message, err)
        self.assertEqual("--help lists the options." in err, code == 2, err)
        return err

    def test_usage(self):
        limit = "--limit=20/minute"
        for message, *arguments in (
                ("--limit is missing",),
                ("--limit is missing", REAL_LOG),
                ("FILE is missing", limit),
                ("'b': one FILE is enough", limit, "a", "b"),
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
                *((f"--key '{key}': not up to 16 field numbers", limit, "--key", key, REAL_LOG)
                  for key in ("", "0", "-1", "1,", ",1", "1,,2", "1;2", "a", "1 ", "1k", "9999999",
                              "1,0", ",".join("1" * 17)))):
            with self.subTest(arguments=arguments):
                self.fails(2, message, *arguments)

    def test_most_key_fields(self):
        self.assertEqual(replay("--limit=1/s", "--key", ",".join("1" * 16), REAL_LOG)[0], 0)

    def test_limits(self):
        for text, wrong in (("20/minuet", "20/"), ("x/minute", ""), ("0/minute", ""),
                            ("5/second fast", "5/second "), ("", "")):
            with self.subTest(text=text):
                err = self.fails(2, f"--limit '{text}': ", "--limit=1/s", "--limit", text, REAL_LOG)
                first, shown, caret, *_ = err.splitlines()
                self.assertEqual(shown, "    " + text)
                self.assertEqual(caret, "    " + " " * len(wrong) + "^")
                self.assertRegex(first, r"': '?\w.{5,}")

    def test_limits_are_printed_safely(self):
        self.fails(2, "--limit '5/s in-flight': a log does not tell", "--limit=5/s in-flight",
                   REAL_LOG)
        err = self.fails(2, r"--limit '5/\x1b[31m", "--limit", "5/\x1b[31m", REAL_LOG)
        self.assertNotIn("\x1b", err)

    def test_help(self):
        for name in ("--limit", "--key", "--time", "--format", "--top", "FILE"):
            self.assertIn(name, self.printed("--help"))

    def test_files(self):
        limit = "--limit=20/minute"
        missing = str(self.directory / "missing.log")
        self.fails(1, missing + ": No such file or directory", limit, missing)
        self.fails(1, str(self.directory) + ": Is a directory\n", limit, str(self.directory))
        path = self.write(b"")
        self.fails(1, path + ": it is empty", limit, path)
        self.fails(1, "standard input: it is empty", limit, "-")
        path = self.write(gzip.compress(b""))
        self.fails(1, path + ": it is empty", limit, path)

    def test_no_line_readable(self):
        path = self.write("junk\n\n" * 20)
        for form in ("table", "json"):
            err = self.fails(1, path + ": no line of it can be read", "--limit=20/minute",
                             "--format", form, path)
            self.assertIn("line 1: " + REASONS["no time"], err)
            self.assertIn("line 2: " + REASONS["empty"], err)
            self.assertIn("and 30 more", err)
        self.fails(1, path + ": no line of it can be read", "--limit=1/s", "--time=epoch",
                   "--key=1", path)
        self.fails(1, path + ": no line of it can be read", "--limit=1/s", "--time=none",
                   "--key=2", path)

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
            self.fails(1, path + message, "--limit=20/minute", path)
            self.fails(1, "standard input" + message, "--limit=20/minute", "-", stdin=content)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_report_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([STINT, "replay", "--limit=1/s", REAL_LOG], stdout=full,
                                  stderr=subprocess.PIPE, timeout=120, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the report cannot be written", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    STINT = sys.argv[1]
    SEED = int(sys.argv[2]) if len(sys.argv) == 3 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {SEED}")
    unittest.main(argv=sys.argv[:1], verbosity=2)
