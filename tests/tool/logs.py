# SPDX-License-Identifier: MIT
"""What the tests of `stint replay` and `stint advise` share: a real log, and a naive twin of both kinds of limits."""
import bisect
import calendar
import collections
import functools
import gzip
import re
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, f"{TESTS}/kit")
import commands  # noqa: E402
from commands import iso_ns  # noqa: E402

REAL_LOG = f"{TESTS}/data/access.log.gz"
SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND


def real_lines():
    with gzip.open(REAL_LOG, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def clf_ns(line):
    """The time in the first brackets, ns since the epoch."""
    return stamp_ns(re.search(r"\[([^]]+)\]", line)[1])


@functools.cache
def stamp_ns(stamp):
    local, zone = stamp.rsplit(" ", 1)
    seconds = calendar.timegm(time.strptime(local, "%d/%b/%Y:%H:%M:%S"))
    offset = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
    return (seconds - offset if zone[0] == "+" else seconds + offset) * SECOND


def window_refuses(requests, window, limit, start=0):
    """Of requests, pairs of a key and a time in the order of the times, those that a limit refuses."""
    used = collections.Counter()
    for key, now in requests:
        fits = used[key, (now - start) // window] < limit
        used[key, (now - start) // window] += fits
        if not fits:
            yield key, now


def bucket_refuses(requests, window, limit, burst):
    """It holds `burst` tokens, each of which takes a `limit`th of the window to come, a whole ns at least."""
    token, has = -(-window // limit), {}
    for key, now in requests:
        tokens, seen = has.get(key, (burst * token, now))
        tokens = min(burst * token, tokens + now - seen)
        fits = tokens >= token
        has[key] = tokens - token * fits, now
        if not fits:
            yield key, now


class Case(commands.Stint):
    maxDiff = 4000

    def fails(self, code, message, *arguments, **options):
        err = super().fails(code, f"stint {arguments[0]}: {message}", *arguments, **options)
        self.assertEqual("--help lists the options." in err, code == 2, err)
        return err

    def check_over_time(self, steps, refusals, first, last, whole=True):
        """Steps of one length, of whole seconds, from the first request to the last, with what was refused in each."""
        starts = [iso_ns(step["start"]) for step in steps]
        self.assertTrue(starts[0] == first and starts[-1] <= last and len(starts) <= 60)
        for before, after in zip(starts, starts[1:]):
            self.assertEqual(after - before, starts[1] - first)
            self.assertGreater(starts[-1] + after - before, last)
            self.assertTrue(not whole or (after - before) % SECOND == 0)
        refused = collections.Counter(bisect.bisect_right(starts, now) - 1 for _, now in refusals)
        self.assertEqual([step["refused"] for step in steps], [refused[n] for n in range(len(starts))])
