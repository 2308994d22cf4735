# SPDX-License-Identifier: MIT
"""One row: a table is filled, its answers are checked, workload and floor are timed by turns, and
the answers of all that are checked again.

A repeat's ns are the median of its stretches of 512 decisions, so what other work on the machine
takes away now and then does not show; a row's are the median of the repeats, beside the least and
the most of them."""
import contextlib
import dataclasses
import statistics
import time

from driver import machine
from workloads import (FEW, KINDS, LIMIT_MAX, Path, floor_of, goal_of, slots_half, top_share,
                       zipf_period)

REPEATS = 5
REPEATS_LONG = 3  # where one pass over the keys takes longer than a repeat should
REPEATS_NEW = 9  # where every repeat has tables of its own
PASS_KEY_NS = 50  # about, to choose how many passes make a repeat
TABLES_MAX = 100  # in a repeat: opening one takes longer than filling a small one
ALONE_NS = 100  # about, of one call that is timed by itself
FAR = 4  # a table of so many caches is far beyond the cache
SLICES, SLICE_NS = 50, 10**6  # of a repeat of two rows by turns: so many at most, and about so long
SMOOTH_LIMIT_MAX = 16383
PATH_FIT = LIMIT_MAX // 8  # five times that is a limit, too
BUCKET_RATE = LIMIT_MAX  # in 366 days, in which all of a burst must come back
USED_UP_FIT = 10
REHEARSAL_KEYS, REHEARSAL_LIMIT = 20000, 3
NO_END = 2**62
SECOND, DAY = 10**9, 86400 * 10**9
POINTS = ["p50", "p90", "p99", "p99.9", "p99.99", "max"]


class Wrong(Exception):
    """An answer was."""


def right(what, wanted, found):
    if wanted != found:
        raise Wrong(f"{what}: {wanted} would be right, it is {found}")


def tail(all_ns, parts):
    """Percentiles of all times, beside the least and the most of a part."""
    return {point: {"ns": ns, "min": min(of), "max": max(of)}
            for point, ns, of in zip(POINTS, all_ns, zip(*parts))}


# ---- A table, and the threads that ask it ----

class Bed(contextlib.AbstractContextManager):
    """Has a table for so many keys at the row's load, with policies by which a key is granted `fit`
    runs in a window. The table is empty."""

    def __init__(self, driver, row, keys, fit, at=0, beside=False):
        kind = self.kind = KINDS[row["workload"]]
        path = self.path = kind.path
        if beside:
            path = self.path = Path(still=path.still, file=path.file) if path.parts == 1 else (
                dataclasses.replace(path, bucket=False))
        self.driver, self.at, self.row, self.keys, self.fit = driver, at, row, keys, fit
        self.threads = row["threads"]
        self.run = (floor_of("dependent load" if kind.used_up else kind.floor, None)["floor"]
                    if row["bare"] or beside else kind.timed if row["latency"]
                    else "take-policies" if row["policies"] > 1 else kind.run)
        self.before = ("take-policies" if row["policies"] > 1 else "batch" if not kind.is_path
                       else path.before or self.run)
        # Decisions of a run, by the limiter's statistics.
        self.counted = 0 if path.asks in ("peek", "charge") else path.parts
        self.used_up = kind.used_up or path.used_up
        self.refused_part = 1 if self.used_up else row["refused_part"]
        self.requests = self.allowed = 0  # that the limiter counted, looks apart
        self.extra_tokens = 0  # that were granted beyond one for each request allowed
        self.preempted = 0  # times that a thread lost its core
        options, own_limit = self.policy()
        start = (int(time.time()) + 1) * SECOND
        if kind.windows:
            window, clock = "1s", "turned"
        else:
            # The limiter reads the real clock here, so the window must not end during the run: a
            # year of which half has passed. Those of each key's own begin when they do.
            window, clock = path.window, "still" if path.still else "real"
            if window == "year":
                # One that begins in January or in July, whichever is months away on both sides.
                options += "" if 4 <= time.gmtime().tm_mon <= 9 else " start=1970-07-01"
            elif not ("start=" in options or "in-flight" in options or path.bucket):
                half = time.gmtime((start - 183 * DAY) // SECOND)
                options += time.strftime(" start=%Y-%m-%dT%H:%M:%SZ", half)
        policies = path.parts if path.parts > 1 and not path.each_key else row["policies"]
        stripes = 1 if beside else row["stripes"]
        if stripes > 1:
            options += f" stripes={stripes}"
        if row["latency"]:
            driver.ticks()
        opened = self.ask(
            "open", keys=keys, threads=self.threads, key_length=row["key_length"], clock=clock,
            policies=[self.policy_text(i, window, options) for i in range(policies)],
            max_entries=slots_half({**row, "stripes": stripes}, keys, path), own_limit=own_limit,
            parts=path.parts, each_key=path.each_key, last_cost=path.cost if path.parts > 1 else 1,
            refused_part=self.refused_part, start=start,
            epoch_ns=SECOND if kind.windows else 366 * DAY if path.still else 0,
            new_keys=kind.new_keys, latency=row["latency"], distribution=row["distribution"],
            period=zipf_period(keys), labels=keys if path.labels else 0, file=path.file,
            watched=path.watched, **{path.asks: True} if path.asks else {})
        self.lines, self.floor_bytes = opened["lines"], opened["floor_bytes"]

    def policy_text(self, i, window, options):
        second = self.path.second if i % 2 else ""
        if self.path.bucket or second == "bucket":
            return f"{BUCKET_RATE}/{window} name=bench-{i} burst={self.limit}"
        return f"{self.limit}/{window} name=bench-{i} {options} {second}"

    def policy(self):
        """Chooses the limit. Returns the policy's options and the requests' own limit."""
        path, own_limit = self.path, 0
        limit, options = self.fit * path.cost, path.policy
        if path.own_limit:
            own_limit, limit = limit, limit + 1
        if path.roll_over:
            limit, options = limit - 1, f"capacity={limit}"
        if path.asks == "reserve":
            limit -= 1
        self.limit = limit
        return options, own_limit

    def __exit__(self, kind, *_):
        if kind in (None, Wrong):  # else the program ends
            self.ask("close")

    def ask(self, job, **about):
        return self.driver.ask(job, bed=self.at, **about)

    def renew(self):
        """Puts an empty table in place of the one that is there."""
        self.ask("renew")
        self.requests = self.allowed = self.extra_tokens = 0

    def span(self, run, **about):
        """A stretch of work by all threads: passes over all keys ("once"), or draws from the
        sequence."""
        return {"bed": self.at, "run": run, "part": "whole", "epoch": 0, **about}

    def run_span(self, span, times=1):
        return spans([self], [span], times)[0]

    def fill(self):
        """Brings the table to the state that the workload starts from. Returns the next epoch."""
        if self.kind.new_table:
            return 0
        span = self.span(self.before, once=True, passes=self.path.windows)
        if self.kind.new_keys:
            # As many keys as there are slots, all in one window: nearly every slot is used, and
            # stale from the next window on.
            span.update(still=True, passes=-(-self.lines * 4 // self.keys))
        self.run_span(span)
        if self.refused_part > 0:
            used = self.ask("use-up", limit=self.limit)
            self.requests += 2 * used["keys"]
            self.allowed += used["allowed"]
            # Such a key takes 1, limit - 1, and is refused 1.
            self.extra_tokens += used["keys"] * (self.limit - 2)
        return span["passes"]

    def audit(self, epoch, each=0, base=0, used_up=0, **present):
        """Every key used the smaller of demand and limit; what was allowed is the sum of that; the
        limiter counted the same answers as we did. Returns unplaced keys and the reach."""
        found = self.ask("audit", epoch=epoch, limit=self.limit, each=each, base=base,
                         used_up=used_up, **present)
        if "right" in found:
            right("tokens used by one key", found["right"], found["found"])
        right("requests allowed, by the limiter's own count", self.allowed, found["allowed"])
        right("requests refused, by the limiter's own count", self.requests - self.allowed,
              found["refused"])
        if found["lost"] and not found["untracked"]:
            right("keys without a count, though none was untracked", 0, found["lost"])
        if self.kind.uniform_only and not self.used_up:
            right("requests allowed", self.requests, self.allowed)
        else:
            right("tokens allowed, of all keys", found["tokens"] + found["lost_tokens"],
                  self.allowed + self.extra_tokens)
            right("untracked requests",
                  found["lost_tokens"] - found["lost_used_up"] * (self.limit - 2),
                  found["untracked"])
        return found["lost"], found["reach"]


def spans(beds, asked, times):
    """Runs spans, each of its bed, by turns. Returns what each did."""
    answers = beds[0].driver.ask("spans", spans=asked, times=times)["spans"]
    for bed, span, answer in zip(beds, asked, answers):
        bed.preempted += answer["preempted"]
        counted = bed.path.parts if span["run"] == bed.before else bed.counted
        limited = [answer["work"]]
        if span.get("present") or span.get("alone"):
            limited.append(answer["floor"])
        for did in limited if not bed.row["bare"] else []:
            bed.requests += did["ops"] * counted
            bed.allowed += did["allowed"] * counted
    return answers


# ---- Rehearsal ----

def rehearse(driver, row, beside=False):
    """A small table with a small limit before the large one, asked the same way by as many threads:
    each key must be granted the smaller of demand and limit in each window, counted one by one."""
    kind = KINDS[row["workload"]]
    limit = max(row["stripes"] if not beside else 1, REHEARSAL_LIMIT)
    again = kind.path.leaves_nothing and not beside
    # With room for every key: this is about counts. Several slots of a key crowd its home line.
    half = {**row, "load": 0.25 if kind.path.parts > 1 else 0.5, "refused_part": 0, "bare": False}
    if again:  # threads could be refused for what others have not given back yet
        half["threads"] = 1
    with Bed(driver, half, min(row["keys"], REHEARSAL_KEYS), limit, beside=beside) as bed:
        endless = "shadow" in bed.path.policy or bed.path.asks == "charge"
        for epoch in range(4 if kind.windows and not kind.new_table else 1):
            span = bed.span(bed.before if again else bed.run, count=True, epoch=epoch)
            if kind.each_once:
                span.update(once=True, shared=True, hold=True, passes=limit + 1)
                demand = {"each": 0, "base": row["threads"] * (limit + 1)}
            else:
                span.update(budget_ns=NO_END, max_ops=-(-2 * limit * bed.keys // bed.threads))
                demand = {"each": 1, "base": 0}
            demand.update(used_up=0, limit=limit)
            bed.run_span(span)
            granted(bed, "tokens granted to one key in one window", "all" if endless else "limit",
                    demand)
            if again:
                # What leaves nothing behind is asked for again, where the takes before it have used
                # up some keys and left others something: of those it is granted each time.
                bed.run_span({**span, "run": bed.run})
                granted(bed, "times that a key was granted", "rest", demand)


def granted(bed, what, rule, demand):
    found = bed.ask("granted", right=rule, **demand)
    if "right" in found:
        right(f"rehearsal, {what}", found["right"], found["found"])
    right("rehearsal, requests shadowed", found["beyond"] if "shadow" in bed.path.policy else 0,
          found["shadowed"])


# ---- What is timed ----

class Work:
    """What a row's table is asked, and what comes of it."""

    def __init__(self, bed, floor, budget):
        self.bed, self.row, self.kind, self.budget = bed, bed.row, bed.kind, int(budget)
        self.floor, self.repeats, self.times = floor, REPEATS, 1
        self.span = bed.span(bed.run)
        if not self.row["latency"]:  # each call by itself needs no floor: it has the empty section
            self.span.update(floor_of(floor, bed.run), sample=True)
        self.ns, self.floor_ns, self.tails = [], [], []
        self.samples, self.floor_samples = [], []
        self.allowed = self.refused = self.unplaced = self.reach = 0

    def took(self, answer):
        work = answer["work"]
        if not self.row["bare"]:
            self.allowed += work["allowed"]
            self.refused += work["ops"] - work["allowed"]
        self.samples += work["ns"]
        self.floor_samples += answer["floor"]["ns"]

    def repeat(self):
        self.took(self.bed.run_span(self.span, self.times))

    def repeat_end(self):
        if self.row["latency"]:
            self.tails.append(self.bed.ask("tails"))
            return
        self.ns.append(statistics.median(self.samples))
        self.floor_ns.append(statistics.median(self.floor_samples))
        self.samples, self.floor_samples = [], []

    def audit(self, **about):
        if not self.row["bare"]:
            unplaced, reach = self.bed.audit(**about)
            self.unplaced, self.reach = max(self.unplaced, unplaced), max(self.reach, reach)
            if self.kind.is_path:  # looks, too
                right("requests granted" if self.bed.used_up else "requests refused", 0,
                      self.allowed if self.bed.used_up else self.refused)

    def result(self):
        found = {"stripes": self.row["stripes"], "repeats": self.repeats, "allowed": self.allowed,
                 "refused": self.refused, "unplaced": self.unplaced, "reach": self.reach,
                 "preempted": self.bed.preempted, "checked": True}
        if self.row["latency"]:
            last = self.tails[-1]
            for name in "call", "empty":
                found[name] = tail(last["all"][name], [each["since"][name] for each in self.tails])
            return {**found, "calls": last["calls"], **self.bed.driver.ticks()}
        ns, floor_ns = statistics.median(self.ns), statistics.median(self.floor_ns)
        return {**found, **ratios_of(self.ns, self.floor_ns), **times_of(self, ns, floor_ns),
                "floor": self.floor}


def times_of(work, ns, floor_ns):
    cores = min(work.row["threads"], machine()["cores"])
    return {"ns_per_op": ns, "ns_min": min(work.ns), "ns_max": max(work.ns),
            "mops": cores * 1000 / ns, "floor_ns": floor_ns, "ratio": ns / floor_ns}


def ratios_of(these, those):
    """Of the same repeats."""
    ratios = [a / b for a, b in zip(these, those)]
    return {"ratio_median": statistics.median(ratios), "ratio_min": min(ratios),
            "ratio_max": max(ratios)}


class Sequence(Work):
    """Draws from the sequence until a repeat's time, or a slice of it, is over."""

    def begin(self, slices=1):
        row = self.row
        # No key may come to its limit, where requests become refusals: the repeats end before. Half
        # of them may be the floor's.
        fit = LIMIT_MAX if self.bed.used_up else self.bed.fit
        most = (0.45 * fit / top_share(row["distribution"], row["keys"]) / row["threads"] /
                REPEATS / slices)
        self.span.update(epoch=self.bed.fill() - 1, budget_ns=self.budget // slices,
                         max_ops=max(1, int(most)))

    def end(self):
        """What the sequence asked of every key is what it has used."""
        path = self.bed.path
        # What it was filled with: half a window's share of one token is one (smooth),
        # and in flight it is one, too.
        self.audit(epoch=self.span["epoch"], each=0 if path.leaves_nothing else path.cost,
                   base=path.cost * path.windows, used_up=self.bed.limit + 1)


class Passes(Work):
    """Passes over all keys, each a window or a table of its own."""

    def begin(self, _slices=1):
        pass_ns = PASS_KEY_NS * self.bed.keys // self.bed.threads + 1
        passes = -(-self.budget // pass_ns)
        self.span.update(epoch=self.bed.fill(), once=True, passes=passes)
        self.tables = 1
        if self.kind.new_table:
            self.tables, self.span["passes"] = min(passes, TABLES_MAX), 1
        if pass_ns > self.budget:
            self.repeats = REPEATS_LONG

    def repeat(self):
        bed, span = self.bed, self.span
        for _ in range(self.tables):
            if self.kind.new_table:
                bed.renew()
                bed.run_span(bed.span(bed.before, once=True, passes=1, part="first",
                                      epoch=span["epoch"]))
                span["part"] = "last"
            super().repeat()
            span["epoch"] += span["passes"]
            if self.kind.new_keys:
                self.end()

    def end(self):
        """What every key was asked for in the last pass is what it has used."""
        present = {"present": self.span["part"]} if self.span.get("present") else {}
        self.audit(epoch=self.span["epoch"] - 1, base=1, **present)


class Together(Work):
    """All windows end at one instant, at which all threads stand ready; then as many draws as there
    are keys. The first to ask for a key rolls it over, and threads may meet there."""

    def begin(self, _slices=1):
        ops = -(-self.bed.keys // self.row["threads"])
        self.times = 1 + self.budget // (ALONE_NS * ops)
        self.span.update(epoch=self.bed.fill(), restart=True, budget_ns=NO_END, max_ops=ops)

    def repeat(self):
        super().repeat()
        self.span["epoch"] += self.times

    def end(self):
        self.audit(epoch=self.span["epoch"] - 1, each=1)


def work_of(bed, budget, cache):
    kind, row = bed.kind, bed.row
    far = bed.floor_bytes > FAR * (cache or 2**25) and row["distribution"] != "hot"
    floor = (row.get("floor") or kind.is_path and kind.path.locked or
             (kind.far_floor if far else kind.floor))
    work = Passes if kind.each_once else Together if kind.windows else Sequence
    return work(bed, floor, budget)


# ---- Rows ----

def timed_fit(row, beside=False):
    """Runs that fit in a window of each key while it is timed."""
    kind = KINDS[row["workload"]]
    if kind.used_up or kind.path.used_up and not beside:
        return USED_UP_FIT
    if not kind.is_path:
        return LIMIT_MAX
    return SMOOTH_LIMIT_MAX if kind.path.policy in ("smooth", "in-flight") else PATH_FIT


def measure_rows(driver, rows, seconds, cache=0, beside=False, show=lambda part: None):
    """A row; or two by turns, so that what disturbs the one disturbs the other: of some
    milliseconds if both draw from a sequence, of a repeat if both ask for each key once. Both
    tables are there at once. With `beside` the first is what the second, a path, is measured
    beside.

    A table's place in memory can make half as much again of a decision in cache: so there every
    repeat of a path has tables of its own. Returns what came of each."""
    renew = KINDS[rows[0]["workload"]].is_path and rows[0]["keys"] <= FEW
    repeats = REPEATS_NEW if renew else REPEATS
    budget = seconds * SECOND / repeats
    slices = int(min(budget // SLICE_NS + 1, SLICES)) if len(rows) > 1 else 1
    rows = [(row, beside and at == 0) for at, row in enumerate(rows)]
    for row, is_beside in rows:
        rehearse(driver, row, is_beside)
    with contextlib.ExitStack() as stack:
        beds = [stack.enter_context(Bed(driver, row, row["keys"], timed_fit(row, is_beside), at,
                                    is_beside))
                for at, (row, is_beside) in enumerate(rows)]
        works = [work_of(bed, budget, cache) for bed in beds]
        for work in works:
            work.repeats = repeats
            work.begin(slices)
        repeats = min(work.repeats for work in works)
        for repeat in range(repeats):
            show((repeat + 1) / (repeats + 1))
            if renew and repeat:
                for bed in beds:
                    bed.renew()
                    bed.fill()
            if isinstance(works[0], Sequence):
                answers = spans(beds, [work.span for work in works], slices)
                for work, answer in zip(works, answers):
                    work.took(answer)
            else:
                for work in works:
                    work.repeat()
            for work in works:
                work.repeat_end()
                if renew or repeat + 1 == repeats:
                    work.end()
        return works


def measure_path(driver, row, seconds):
    """A path, by turns with what it is measured beside; both in turn with its second floor. The
    fastest repeat counts."""
    kind = KINDS[row["workload"]]
    plain, work = measure_rows(driver, [row, row], seconds / 2, beside=True)
    ns, floor_ns, locked_ns = min(work.ns), min(plain.ns), min(work.floor_ns)
    goal = goal_of(row)
    found = {**work.result(), **times_of(work, ns, floor_ns), **ratios_of(work.ns, plain.ns),
             "floor": kind.floor, "goal": goal, "locked": kind.path.locked, "locked_ns": locked_ns,
             "reached": ns <= goal * floor_ns or ns <= 1.15 * locked_ns}
    found["ratio_median"] = found["ratio"]
    found["preempted"] += plain.bed.preempted
    return found


def measure(driver, row, seconds, cache, show):
    """What came out of the row; look at "checked" before any number.
      seconds  of timed work, all repeats together; a workload that needs a whole pass over its keys
               may take longer
      cache    bytes of the last-level cache, 0: unknown; decides which floor is the right one
      show     is told the part that is done, 0 to 1"""
    try:
        if KINDS[row["workload"]].is_path:
            return measure_path(driver, row, seconds)
        return measure_rows(driver, [row], seconds, cache, show=show)[0].result()
    except Wrong as wrong:
        return {"ns_per_op": None, "floor": None, "repeats": 0, "unplaced": 0, "preempted": 0,
                "checked": False, "wrong": str(wrong)}


def beside(driver, a, b, seconds):
    """Two rows of one kind by turns: what came of each, and b's ns to a's."""
    works = measure_rows(driver, [a, b], seconds)
    return *(work.result() for work in works), ratios_of(works[1].ns, works[0].ns)
