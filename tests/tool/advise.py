#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint advise: advise.py STINT TEST[,TEST..] [SEED]

Every figure is compared with a naive twin written here, which knows who sent what when from the maker of
the log and not from its lines; and with what `stint replay` says, whose verdicts are the library's. What the
lines of each server's log say, in whatever order and files: replay.py.
"""
import calendar
import collections
import gzip
import itertools
import json
import os
import random
import re
import sys
import time
import unittest
from html.parser import HTMLParser
from pathlib import Path

import logs
from logs import DAY, HOUR, MINUTE, REAL_LOG, SECOND, bucket_refuses, commands, iso_ns, window_refuses
import browser
from commands import told as stint

SEED = 0
UNITS = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
SHARES = {"half": 500, "90%": 900, "99%": 990, "99.9%": 999, "highest": 1000}
START = calendar.timegm((2026, 3, 2, 7, 59, 30)) * SECOND


def combined(name, now, user="-"):
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now // SECOND))
    return f'{name} - {user} [{stamp}] "GET / HTTP/1.1" 200 17 "-" "curl/8.5.0"\n'


# ---- The twin -------------------------------------------------------------------------------------------


def tally(refusals):
    refusals = list(refusals)
    return {"clients": len({key for key, _ in refusals}), "requests": len(refusals)}


def peaks_of(requests, unit):
    counts, peaks = collections.Counter((key, now // unit) for key, now in requests), {}
    for (key, _), count in counts.items():
        peaks[key] = max(peaks.get(key, 0), count)
    return peaks


def share_of(peaks, thousandths):
    """The least number that no fewer than this share of the clients stay within."""
    ordered = sorted(peaks.values())
    return next(peak for n, peak in enumerate(ordered, 1) if 1000 * n >= thousandths * len(ordered))


def rounded(number):
    unit = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit


def limit_of(requests, name, share):
    """The notation, the smallest limit that hits no more of the clients, rounded up, and what it refuses."""
    peaks, unit = peaks_of(requests, UNITS[name]), UNITS[name]
    if name != "second":
        limit = rounded(share_of(peaks, share))
        return f"{limit}/{name}", limit, list(window_refuses(requests, unit, limit))
    most = (1000 - share) * len(peaks) // 1000
    limit = rounded(next(limit for limit in itertools.count(1)
                         if tally(bucket_refuses(requests, unit, limit, limit))["clients"] <= most))
    return f"{limit}/second burst={limit}", limit, list(bucket_refuses(requests, unit, limit, limit))


# ---- What is told ---------------------------------------------------------------------------------------


class Case(logs.Case):
    def advise(self, *arguments):
        return self.json("advise", *arguments)

    def check(self, report, requests):
        """Compares all that is said of requests, pairs of a key and a time, with the twin."""
        requests = sorted(requests, key=lambda request: request[1])
        first, last = requests[0][1], requests[-1][1]
        log = report["log"]
        self.assertEqual((log["readable"], log["keys"]), (len(requests), len({key for key, _ in requests})))
        self.assertEqual((iso_ns(log["first_time"]), iso_ns(log["last_time"])), (first, last))
        self.assertEqual([unit["unit"] for unit in report["units"]], list(UNITS))
        for told in report["units"]:
            name, unit = told["unit"], UNITS[told["unit"]]
            self.assertEqual(told["judged"], name == "second" or last - first >= unit)
            peaks = peaks_of(requests, unit)
            self.assertEqual(told["peaks"], {share: share_of(peaks, part) for share, part in SHARES.items()})
            if not told["judged"]:
                self.assertEqual(told["limits"], [])
                continue
            limits = {limit_of(requests, name, 999)[1], *list(told["peaks"].values())[1:]}
            self.assertEqual([row["limit"] for row in told["limits"]], sorted(limits))
            for row in told["limits"]:
                limit = row["limit"]
                self.assertEqual(row["window"], tally(window_refuses(requests, unit, limit)), (name, row))
                self.assertEqual(row["bucket"], tally(bucket_refuses(requests, unit, limit, limit)), (name, row))
            self.check_closely(told, requests, peaks)

    def check_closely(self, told, requests, peaks):
        """The limits that are suggested, and the clients that they hit first."""
        sent, refused = collections.Counter(key for key, _ in requests), {}
        for which, share in ("suggested", 999), ("strict", 990):
            notation, _, refusals = limit_of(requests, told["unit"], share)
            self.assertEqual((told[which]["notation"], told[which]["refused"]), (notation, tally(refusals)))
            refused[which] = collections.Counter(key for key, _ in refusals)
            self.check_over_time(told[which]["over_time"], refusals, requests[0][1], requests[-1][1], False)
        self.assertEqual([client["peak"] for client in told["top"]], sorted(peaks.values(), reverse=True)[:10])
        self.assertEqual(len({client["key"] for client in told["top"]}), len(told["top"]))
        for client in told["top"]:
            key = client["key"]
            self.assertEqual(client, {"key": key, "peak": peaks[key], "requests": sent[key],
                                      "refused": refused["suggested"][key], "refused_strictly": refused["strict"][key]})


def made_up(chance, span, clients=60, count=4000):
    """Requests of clients who come now and then, some of them in bursts; times are whole seconds."""
    requests = []
    while len(requests) < count:
        key = f"192.0.2.{int(chance.paretovariate(0.6)) % clients}"
        at = START + chance.randrange(span)
        for _ in range(chance.choice((1, 1, 2, 3, 20))):
            requests.append((key, at // SECOND * SECOND))
            at += chance.choice((0, 0, 0, 1, 7)) * SECOND
    return sorted(requests, key=lambda request: request[1])


class Figures(Case):
    def test_real_log(self):
        self.check(self.advise(REAL_LOG), [(line.split()[0], logs.clf_ns(line)) for line in logs.real_lines()])

    def test_the_library_says_the_same(self):
        """Each limit of the report and of the page's curves, decided by stint itself."""
        page = self.directory / "page.html"
        report = self.advise("--html", page, REAL_LOG)
        told = {}
        for unit in report["units"]:
            for row in unit["limits"]:
                told[f"{row['limit']}/{unit['unit']}"] = row["window"]
                told[f"{row['limit']}/{unit['unit']} burst={row['limit']}"] = row["bucket"]
            for which in "suggested", "strict":
                told[unit[which]["notation"]] = unit[which]["refused"]
        points = Page(page.read_text()).points
        self.assertGreater(len(points), 100)
        for (notation, what), count in points.items():
            self.assertEqual(told.setdefault(notation, {}).setdefault(what, count), count)
        options = [option for notation in told for option in ("--limit", notation)]
        self.assertEqual({limit["notation"]: {"clients": limit["keys_refused"], "requests": limit["refused"]}
                          for limit in self.json("replay", "--top=0", *options, REAL_LOG)["limits"]}, told)

    def test_made_up(self):
        """Four days of bursts, whose lines come in any order."""
        chance = random.Random(SEED)
        requests = made_up(chance, 4 * UNITS["day"])
        lines = [combined(*request) for request in requests]
        report = self.advise(self.write("a.log", "".join(chance.sample(lines, len(lines)))))
        self.assertTrue(all(unit["judged"] for unit in report["units"]))
        self.check(report, requests)

    def test_one_network(self):
        """Three thousand addresses of one /64: nobody sends two requests, or one sends them all."""
        requests = [(f"2001:db8:1:2::{n:x}", START + n * SECOND // 8) for n in range(3000)]
        path = self.write("a.log", "".join(combined(*request) for request in requests))
        requests = [(key, now // SECOND * SECOND) for key, now in requests]
        report = self.advise(path)
        self.check(report, requests)
        self.assertEqual((report["log"]["ipv6_keys"], report["log"]["ipv6_networks"]), (3000, 1))
        self.assertIn("\nIPv6          3,000 addresses of 1 /64; --address=32,64 counts each /64 as one\n",
                      stint("advise", path)[1])
        self.assertNotIn("IPv6", stint("advise", "--address", path)[1])
        network = self.advise("--address=32,64", path)
        self.check(network, [("2001:db8:1:2::/64", now) for _, now in requests])
        self.assertEqual([unit["peaks"]["half"] for unit in network["units"][:2]], [8, 480])

    def test_parts_of_seconds(self):
        chance = random.Random(SEED)
        requests = [(f"c{chance.randrange(9)}", START + chance.randrange(90) * SECOND + chance.randrange(1000) * 10**6)
                    for _ in range(2000)]
        text = "".join(json.dumps({"ts": now / SECOND, "who": {"id": key}}) + "\n" for key, now in requests)
        self.check(self.advise("--key=who.id", self.write("a.log", text)), requests)

    def test_few(self):
        """One request; many at one instant; a client without a limit that hits nobody."""
        for requests in ([("192.0.2.1", START)],
                         [("192.0.2.1", START)] * 50 + [("192.0.2.2", START)],
                         [(f"192.0.2.{n}", START + n * SECOND) for n in range(99)] +
                         [("192.0.2.200", START)] * 345):
            text = "".join(combined(*request) for request in requests)
            page = self.directory / "page.html"
            self.check(self.advise("--html", page, self.write("a.log", text)), requests)
            Page(page.read_text())

    def test_one_is_not_several(self):
        page = self.directory / "page.html"
        self.advise("--html", page, self.write("a.log", combined("192.0.2.1", START)))
        for words in "<p>1 request of 1 client, ", ". 0 of 1 line could not be read.":
            self.assertIn(words, page.read_text())
        for span, words in (60, "a second"), (3600, "a minute"), (216000, "an hour"):  # in 60 bars
            text = "".join(combined(f"192.0.2.{n % 150}", START + at * SECOND) for n in range(150)
                           for at in [0] * (1 + 9 * (n == 0)) + [span - 1] * (n == 0))
            self.advise("--html", page, self.write("a.log", text))
            for words in f"Each bar is {words}.", ": 1 client hit by a window (", "Limits for a second: clients":
                self.assertIn(words, page.read_text())
        self.assertIn("Limits for an hour: clients", page.read_text())

    def test_table(self):
        out = self.good("advise", REAL_LOG)
        for pattern in (r"^Keys +1,753 by client; the first is 83\.149\.9\.216$",
                        r"^  minute +2 +7 +33 +75 +108$",
                        r"^  33/minute +17 +0\.97% +346 +3\.46% +2 +0\.11% +73 +0\.73%$",
                        r"^  75/minute shadow +# hits 1 of 1,753 clients, 42 requests$",
                        r"^  5/second burst=5 shadow +# hits 1 of 1,753 clients, 3 requests$"):
            self.assertRegex(out, re.compile(pattern, re.MULTILINE))
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_what_is_to_be_copied_is_taken(self):
        """The lines are policies of a file, comments and all."""
        out = stint("advise", REAL_LOG)[1]
        lines = re.findall(r"^  (\S.* shadow +# .*)$", out, re.MULTILINE)
        self.assertEqual(len(lines), 4)
        policies = self.write("policies", "\n".join(lines) + "\n")
        table = self.directory / "table"
        self.good("make", "--entries=1k", "--policies", policies, table)
        self.assertEqual(len(self.json("policies", table)["policies"]), 4)

    def test_short_logs_say_so(self):
        requests = made_up(random.Random(SEED), 10 * UNITS["minute"], count=200)
        out = stint("advise", self.write("a.log", "".join(combined(*request) for request in requests)))[1]
        self.assertRegex(out, r"\nThe logs cover \d+ min.*, too little to advise a limit of an hour or more\.\n")
        self.assertNotIn("/hour", out)
        self.assertNotIn("/day", out)
        self.assertIn("\nWith fewer than 1,000 clients that is nobody, robots included. See whom", out)
        self.assertNotIn("With fewer than 1,000", stint("advise", REAL_LOG)[1])


class Failures(Case):

    def test_usage(self):
        for message, *arguments in (
                ("LOG is missing",),
                ("there is no option '--limit=5/s'", "--limit=5/s", REAL_LOG),
                ("there is no option '--json': it is --format json here", "--json", REAL_LOG),
                ("--html: its value is missing", REAL_LOG, "--html"),
                ("--html '-': give the page a name: the standard output has the report", "--html", "-", REAL_LOG),
                ("--format 'xml': not table or json", "--format=xml", REAL_LOG),
                ("--key is missing: with --time epoch", "--time=epoch", REAL_LOG),
                ("--time none: without times there is no limit to advise", "--time=none", "--key=1", REAL_LOG)):
            self.fails(2, message, "advise", *arguments)

    def test_logs(self):
        """What cannot be read is told by the reader that replay has."""
        packed = Path(REAL_LOG).read_bytes()
        cut = self.write("cut.gz", packed[:100000])
        self.fails(1, f"{cut}: the gzip data ends too early, after line ", "advise", REAL_LOG, cut)
        empty = self.write("empty", "")
        self.fails(1, f"{empty}: it is empty", "advise", empty)
        self.fails(1, "/no/such: No such file or directory", "advise", REAL_LOG, "/no/such")
        bad = self.write("bad", gzip.decompress(packed) + b"junk\n" * 600)
        err = self.fails(1, "600 of 10,600 lines cannot be read, more than 5%:\n  line 10,001: there is no time", "advise", bad)
        self.assertIn("and 590 more\nLeave out what is no request", err)
        # One that has just been rotated is empty, and no harm is done.
        self.assertEqual(self.advise(empty, REAL_LOG)["units"], self.advise(REAL_LOG)["units"])

    def test_a_page_that_cannot_be_written(self):
        for path, why in ("/no/such/page", "No such file or directory"), ("/dev/full", "No space left on device"):
            code, out, err = stint("advise", "--html", path, REAL_LOG)
            self.assertEqual(code, 1)
            self.assertEqual(err, f"stint advise: {path} cannot be written: {why}\n")

    def test_a_log_is_no_page(self):
        """Whoever forgets the name of the page keeps the log."""
        log, other = self.write("a.log", combined("a", START)), self.write("b.log", combined("b", START))
        for content in Path(log).read_bytes(), Path(REAL_LOG).read_bytes(), b"<!DOCTYPE":
            Path(log).write_bytes(content)
            self.fails(2, f"--html '{log}': it is there, and is no page: give the page another name", "advise",
                       "--html", log, other)
            self.assertEqual(Path(log).read_bytes(), content)
        for content in b"", b"<!DOCTYPE html>\nolder":
            Path(log).write_bytes(content)
            self.assertEqual(stint("advise", "--html", log, other)[::2], (0, ""))
            self.assertTrue(Path(log).read_bytes().endswith(b"</html>\n"))


# ---- The page -------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The points of the curves: {(notation, "clients"): how many}; what else it holds."""

    def __init__(self, text):
        super().__init__()
        self.points, self.open, self.unit = {}, [], None
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert tag not in ("script", "img", "link", "iframe", "object"), tag
        assert not {"src", "href", "onload", "onclick"} & attributes.keys(), attributes
        if tag != "meta":
            self.open.append(tag)
        if tag == "h2":
            self.unit = attributes.get("id")
        if tag == "circle":
            form, what = attributes["class"].split()
            limit = attributes["data-limit"]
            notation = f"{limit}/{self.unit}" + (f" burst={limit}" if form == "bucket" else "")
            self.points[notation, what] = int(attributes["data-count"])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


@unittest.skipUnless(browser.CHROMIUM, "skipped: there is no chromium (Debian package chromium)")
class Browser(Case):
    """The page as a reader sees it."""
    WIDTHS = 390, 1400

    def page(self, *logs):
        path = self.directory / "page.html"
        report = self.advise("--html", path, *logs)
        return path, report

    def shown(self, page, selector, expression):
        """What an expression of `e` is for each element, in the order of the page."""
        return page.value(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => ({expression}))")

    def check_layout(self, page, width):
        """Nothing is wider than the screen, cut off, or written over something else."""
        self.assertLessEqual(page.value("document.scrollingElement.scrollWidth"), width)
        wide = self.shown(page, ".wide, pre", "[e.scrollWidth, e.clientWidth]")
        self.assertTrue(all(inside <= room for inside, room in wide), wide)
        boxes = self.shown(page, "svg text", "(({left, right, top, bottom}) => ["
                           "[...document.querySelectorAll('svg')].indexOf(e.closest('svg')), e.textContent, left, right, "
                           "top, bottom])(e.getBoundingClientRect())")
        self.assertGreater(len(boxes), 4)
        for box in boxes:
            self.assertTrue(0 <= box[2] and box[3] <= width, box)
            self.assertGreaterEqual(box[5] - box[4], 10, box)  # that high, in pixels, or it cannot be read
        for one, other in itertools.combinations(boxes, 2):
            if one[0] == other[0]:
                apart = one[3] <= other[2] or other[3] <= one[2] or one[5] <= other[4] + 3 or other[5] <= one[4] + 3
                self.assertTrue(apart, (width, one, other))

    def check_contrast(self, page):
        """Lines and bars stand out from what they lie on, and the bars from each other."""
        def light(selector, name):
            colour = page.value(f"getComputedStyle(document.querySelector('{selector}')).{name}")
            red, green, blue = ((share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4) for share in
                                (int(part) / 255 for part in re.findall(r"\d+", colour)[:3]))
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
        seen = [light(*of) for of in ((".card", "backgroundColor"), (".axis", "stroke"), ("rect.strict", "fill"),
                                      ("rect.refused", "fill"))]
        for one, other in (0, 1), (0, 2), (0, 3), (2, 3):
            self.assertGreaterEqual(max(seen[one], seen[other]) / min(seen[one], seen[other]), 3, (one, other))

    def check_points(self, page, report):
        """Each curve falls, and its points stand where their numbers belong."""
        requests, clients = report["log"]["readable"], report["log"]["keys"]
        points = self.shown(page, "svg.curves circle", "(({x, y, width}) => [e.closest('section').parentElement."
                            "parentElement.previousElementSibling.previousElementSibling.id, e.getAttribute('class'), "
                            "+e.dataset.limit, +e.dataset.count, x, y, width])(e.getBoundingClientRect())")
        curves = collections.defaultdict(list)
        for unit, kind, *point in points:
            curves[unit, kind].append(point)
        self.assertEqual(len(curves), 16)
        for (unit, kind), points in curves.items():
            form, what = kind.split()
            limits, counts, xs, ys, widths = zip(*points)
            self.assertEqual(list(limits), sorted(set(limits)))
            self.assertEqual((limits[0], list(xs)), (1, sorted(xs)))
            self.assertTrue(all(width > 3 for width in widths))
            # On the screen the share is the square of the height: all points agree on what 100% is.
            zero = page.value(f"document.getElementById('{unit}').parentElement.querySelector('h2#{unit} ~ .grid .axis')"
                              ".getBoundingClientRect().y")
            heights = [zero - y - widths[0] / 2 for y in ys]
            shares = [count / (clients if what == "clients" else requests) for count in counts]
            scale = heights[0] ** 2 / shares[0]
            for height, share in zip(heights, shares):
                self.assertAlmostEqual(max(height, 0) ** 2 / scale, share, delta=0.01 + share / 20)

    def test_what_a_reader_sees(self):
        path, report = self.page(REAL_LOG)
        with browser.Browser(path) as page:
            for width in self.WIDTHS:
                for dark in False, True:
                    page.show(width, dark=dark)
                    self.check_layout(page, width)
                    ink, ground = (page.value(f"getComputedStyle(document.body).{name}") for name in
                                   ("color", "backgroundColor"))
                    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, ground)]
                    self.assertEqual(light[0] > light[1], dark, (ink, ground))
                    self.check_contrast(page)
                    if "STINT_TEST_PICTURES" in os.environ:
                        page.picture(f"{os.environ['STINT_TEST_PICTURES']}/{width}{'-dark' if dark else ''}.png")
                self.check_points(page, report)
            text = page.value("document.body.innerText")
            self.assertEqual(page.requested, [page.url])
            self.assertEqual(page.said, [])
        for words in ("Which limit do these clients need?", "10,000 requests of 1,753 clients",
                      "2015-05-17 10:05:00 to 2015-05-20 21:05:59 UTC (3 d 11 h)", "access.log.gz: combined",
                      "0 of 10,000 lines could not be read", "5/second burst=5 shadow", "75/minute shadow",
                      "75/hour shadow", "190/day shadow", "Limits for a minute", "Limits for an hour",
                      "75/minute hits 1 (0.06%) of the clients and refuses 42 (0.42%) of the requests",
                      "clients hit by a window", "requests refused by a bucket", "limit, requests a day",
                      "75/minute: 42 refused", "33/minute: 346 refused", "Each bar is 1 h 23 min.",
                      "Whom it would hit first", "75.97.9.59", "\nmsnbot/2.0b (+http://search.msn.com/msnbot.htm)\n",
                      "130.237.218.86"):
            self.assertIn(words, text)

    def test_bars_are_what_was_refused(self):
        path, report = self.page(REAL_LOG)
        with browser.Browser(path) as page:
            page.show(1400)
            bars = self.shown(page, "svg.over-time rect", "[e.getAttribute('class'), +e.dataset.count, "
                              "e.getBoundingClientRect().height]")
            rows = self.shown(page, "svg.over-time ~ details td", "e.textContent.replace(',', '')")
        expected = [[name, step["refused"]] for unit in report["units"]
                    for name, which in (("strict", "strict"), ("refused", "suggested"))
                    for step in unit[which]["over_time"] if step["refused"]]
        self.assertEqual([bar[:2] for bar in bars], expected)
        self.assertEqual(rows, [cell for unit in report["units"]
                                for step, strict in zip(unit["suggested"]["over_time"], unit["strict"]["over_time"])
                                if step["refused"] or strict["refused"]
                                for cell in (step["start"].replace("T", " ").rstrip("Z"), str(strict["refused"]),
                                             str(step["refused"]))])
        self.assertTrue(all(height > 0.5 for *_, height in bars))

    def test_names_are_no_markup(self):
        """What a client calls itself is shown as it is, and does nothing."""
        names = ["<script>console.log(1)</script>", "&lt;b&gt;", "a\"'b", "<!--", "</table>", "\x1b[31m", "ü" * 40,
                 "x" * 500]
        text = "".join(json.dumps({"ts": START // SECOND + n % 70, "client": name, "request": {"headers": {
            "User-Agent": [f"<b>{name}" if n == 0 else "later"]}}}) + "\n"
                       for n in range(100) for name in names)
        log = self.write("<b>&.log", text)
        path, _ = self.page(log)
        with browser.Browser(path) as page:
            page.show(400)
            self.check_layout(page, 400)
            rows = self.shown(page, "h2#second ~ .grid .names td:first-child", "e.textContent")
            heading = page.value("document.querySelector('.soft').textContent")
            self.assertEqual((page.requested, page.said), ([page.url], []))
            self.assertEqual(page.value("document.querySelectorAll('script, b').length"), 0)
        self.assertIn(f"{log}: JSON", heading)
        for name in names[:5]:
            self.assertIn(name, rows)
        self.assertIn(r"\x1b[31m", rows)
        self.assertIn("x" * 36 + "~" + "x" * 35, rows)
        for name in names[:4]:  # and what it sent with its first request
            self.assertEqual(rows[rows.index(name) + 1], "<b>" + name)

    def test_logs_of_all_kinds(self):
        """Few clients, one client, large numbers, nothing refused: each page can be read."""
        for requests in ([("a", START)], [("a", START + n * SECOND // 9) for n in range(4000)],
                         [(f"c{n % 100}", START + n * SECOND) for n in range(5000)],
                         [("hot", START + n // 2000 * SECOND) for n in range(200000)] + [("cold", START)]):
            path, _ = self.page(self.write("a.log", "".join(combined(*request) for request in requests)))
            with browser.Browser(path) as page:
                for width in self.WIDTHS:
                    page.show(width)
                    self.check_layout(page, width)
                    self.assertEqual(page.value("document.querySelectorAll('svg.curves circle').length") % 4, 0)
                    self.assertNotIn("nan", page.value("document.documentElement.outerHTML"))
                    self.assertNotIn("inf", page.value("document.documentElement.outerHTML").replace("information", ""))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    commands.COMMAND[:] = sys.argv[1:2]
    SEED = int(sys.argv[3]) if len(sys.argv) == 4 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {SEED}")
    if sys.argv[2] == "Browser" and not browser.CHROMIUM:
        print("skipped: there is no chromium (Debian package chromium)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2].split(",")], verbosity=2)
