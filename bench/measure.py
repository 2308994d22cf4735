# SPDX-License-Identifier: MIT
"""One row: repeats are processes, by turns with what it stands beside. Each process rehearses on a
small table, fills a table of its own, is timed, and checks the answers; then it times a reference.

A process tells three numbers. Its ns are the median of its stretches of 512 decisions, so what
other work on the machine takes away now and then does not show: the row's are the median of the
processes. Decisions a second are what was done in the time that passed. And what the fastest tenth
of the stretches took at most is compared ("each"): others only ever add."""
import contextlib
import dataclasses
import statistics
import time

from compare import change
from driver import Driver, field
from workloads import KINDS, LIMIT_MAX, Path, slots_half, top_share, zipf_period

PROCESSES = 5
MORE, MORE_MAX = 5, 4  # turns, until TOLD_FROM is reached; at most so many times what was asked
TOLD_FROM = 1.05
PASS_KEY_NS = 50  # about, to choose how many passes a process makes
TABLES_MAX = 100  # in a process: opening one takes longer than filling a small one
SMOOTH_LIMIT_MAX = 16383
PATH_FIT = LIMIT_MAX // 8  # five times that is a limit, too
BUCKET_RATE = LIMIT_MAX  # in 366 days, in which all of a burst must come back
USED_UP_FIT = 10
REHEARSAL_KEYS, REHEARSAL_LIMIT = 20000, 3
SECOND, DAY = 10**9, 86400 * 10**9
POINTS = ["p50", "p90", "p99", "p99.9", "p99.99", "max"]


class Wrong(Exception):
    """An answer was."""


def right(what, wanted, found):
    if wanted != found:
        raise Wrong(f"{what}: {wanted} would be right, it is {found}")


def resident(pid):
    """Bytes of memory that are there, and of them on huge pages. From smaps_rollup, which counts
    pages; statm is behind by what each thread has not yet added."""
    path = f"/proc/{pid}/smaps_rollup"
    rss, *huge = (int((field(path, name) or "0").split()[0]) * 1024
                  for name in ("Rss", "AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"))
    return rss, sum(huge)


def spread(values):
    """The value of a row, the least and the most of its processes, and each."""
    return {"value": statistics.median(values), "min": min(values), "max": max(values),
            "each": values}


def rates_of(threads):
    """Million decisions a second of each thread, by the time that passed, from what it did in each
    process."""
    return [1000 * sum(did["ops"] for did in thread) / max(1, sum(did["ns"] for did in thread))
            for thread in zip(*threads)]


# ---- A table, and the threads that ask it ----

class Bed(contextlib.AbstractContextManager):
    """Has a table for so many keys at the row's load, with policies by which a key is granted `fit`
    runs in a window. The table is empty."""

    def __init__(self, driver, row, keys, fit, beside=False):
        kind = self.kind = KINDS[row["workload"]]
        path = self.path = kind.path
        if beside and path.parts == 1:
            path = self.path = Path(still=path.still)
        self.driver, self.row, self.keys, self.fit = driver, row, keys, fit
        self.threads = row["threads"]
        self.run = kind.beside if beside else kind.run
        self.before = path.before or self.run if kind.is_path else "batch"
        # Decisions of a run, by the limiter's statistics.
        self.counted = 0 if path.asks in ("peek", "charge") else path.parts
        self.used_up = kind.used_up or path.used_up
        self.requests = self.allowed = 0  # that the limiter counted, looks apart
        self.untracked = 0  # of them, those that filled it
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
        policies = path.parts if not path.each_key else 1
        stripes = 1 if beside else row["stripes"]
        if stripes > 1:
            options += f" stripes={stripes}"
        opened = self.ask(
            "open", keys=keys, threads=self.threads, key_length=row["key_length"], clock=clock,
            policies=[self.policy_text(i, window, options) for i in range(policies)],
            max_entries=slots_half({**row, "stripes": stripes}, keys, path), own_limit=own_limit,
            parts=path.parts, each_key=path.each_key, last_cost=path.cost if path.parts > 1 else 1,
            start=start,
            epoch_ns=SECOND if kind.windows else 366 * DAY if path.still else 0,
            new_keys=kind.new_keys, distribution=row["distribution"],
            period=zipf_period(keys), **{path.asks: True} if path.asks else {})
        self.lines = opened["lines"]

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
        return self.driver.ask(job, **about)

    def renew(self):
        """Puts an empty table in place of the one that is there."""
        self.ask("renew")
        self.requests = self.allowed = 0

    def span(self, run, **about):
        """All threads work: passes over all keys ("once"), or draws from the sequence. Returns the
        stretches, and what each thread did."""
        answer = self.driver.ask("span", run=run, **{"epoch": 0, **about})
        counted = self.path.parts if run == self.before else self.counted
        self.requests += counted * sum(did["ops"] for did in answer["threads"])
        self.allowed += counted * sum(did["allowed"] for did in answer["threads"])
        return answer

    def fill(self):
        """Brings the table to the state that the workload starts from. Returns the next epoch."""
        if self.kind.new_table:
            return 0
        span = {"once": True, "passes": self.path.windows}
        if self.kind.new_keys:
            # As many keys as there are slots, all in one window: nearly every slot is used, and
            # stale from the next window on.
            span.update(still=True, passes=-(-self.lines * 4 // self.keys))
        self.span(self.before, **span)
        if self.used_up:
            self.requests += 2 * self.keys
            self.allowed += self.ask("use-up", limit=self.limit)["allowed"]
        self.untracked = self.ask("counts")["untracked"]
        return span["passes"]

    def check(self):
        """The limiter counted the same answers as we did. Returns how many of them, since the table
        was filled, had no slot."""
        found = self.ask("counts")
        right("requests allowed, by the limiter's own count", self.allowed, found["allowed"])
        right("requests refused, by the limiter's own count", self.requests - self.allowed,
              found["refused"])
        return found["untracked"] - self.untracked


# ---- Rehearsal ----

def rehearse(driver, row, beside=False):
    """A small table with a small limit before the large one, asked the same way by as many threads:
    each key must be granted the smaller of demand and limit in each window, counted one by one."""
    kind = KINDS[row["workload"]]
    limit = max(row["stripes"] if not beside else 1, REHEARSAL_LIMIT)
    again = kind.path.leaves_nothing and not beside
    # With room for every key: this is about counts. Several slots of a key crowd its home line.
    half = {**row, "load": 0.25 if kind.path.parts > 1 else 0.5}
    if again:  # threads could be refused for what others have not given back yet
        half["threads"] = 1
    with Bed(driver, half, min(row["keys"], REHEARSAL_KEYS), limit, beside=beside) as bed:
        endless = "shadow" in bed.path.policy or bed.path.asks == "charge"
        for epoch in range(4 if kind.windows and not kind.new_table else 1):
            span = {"count": True, "epoch": epoch}
            if kind.each_once:
                span.update(once=True, shared=True, hold=True, passes=limit + 1)
                demand = {"limit": limit, "base": row["threads"] * (limit + 1)}
            else:
                span.update(max_ops=-(-2 * limit * bed.keys // bed.threads))
                demand = {"limit": limit, "base": 0}
            bed.span(bed.before if again else bed.run, **span)
            granted(bed, "tokens granted to one key in one window", "all" if endless else "limit",
                    demand)
            if again:
                # What leaves nothing behind is asked for again, where the takes before it have used
                # up some keys and left others something: of those it is granted each time.
                bed.span(bed.run, **span)
                granted(bed, "times that a key was granted", "rest", demand)


def granted(bed, what, rule, demand):
    found = bed.ask("granted", right=rule, **demand)
    if "right" in found:
        right(f"rehearsal, {what}", found["right"], found["found"])
    right("rehearsal, requests shadowed", found["beyond"] if "shadow" in bed.path.policy else 0,
          found["shadowed"])


# ---- What is timed ----

class Work:
    """What a table is asked while time is taken, and what comes of it."""

    def __init__(self, bed, budget):
        self.bed, self.row, self.kind, self.budget = bed, bed.row, bed.kind, max(1, int(budget))
        self.medians, self.lows, self.threads = [], [], []
        self.allowed = self.refused = self.unplaced = 0

    def time(self, **span):
        answer = self.bed.span(self.bed.run, **span)
        threads = answer["threads"]
        self.medians.append(answer["median"])
        self.lows.append(answer["low"])
        self.threads.append(threads)
        allowed = sum(did["allowed"] for did in threads)
        self.allowed += allowed
        self.refused += sum(did["ops"] for did in threads) - allowed

    def check(self):
        """No key came to its limit, or all had: looks tell that, too."""
        self.unplaced = max(self.unplaced, self.bed.check())
        if not self.bed.used_up:
            right("requests refused", 0, self.refused)
        elif not self.unplaced:
            right("requests granted", 0, self.allowed)

    def sequence(self):
        """Draws from the sequence until the time is over."""
        bed, row = self.bed, self.row
        # No key may come to its limit, where requests become refusals.
        fit = LIMIT_MAX if bed.used_up else bed.fit
        most = max(1, int(0.8 * fit / top_share(row["distribution"], row["keys"]) / row["threads"]))
        span = {"epoch": bed.fill() - 1, "budget_ns": self.budget, "max_ops": most}
        self.huge = resident(bed.driver.process.pid)
        self.time(**span)
        self.check()
        return span

    def passes(self):
        """Passes over all keys, each a window or a table of its own."""
        bed, new_table = self.bed, self.kind.new_table
        passes = -(-self.budget // (PASS_KEY_NS * bed.keys // bed.threads + 1))
        epoch, tables = bed.fill(), 1
        if new_table:
            passes, tables = 1, min(passes, TABLES_MAX)
        self.huge = resident(bed.driver.process.pid)
        for table in range(tables):
            part = {}
            if new_table:
                if table:
                    bed.renew()
                bed.span(bed.before, once=True, passes=1, to=7, epoch=epoch)
                part = {"from": 7}
            self.time(once=True, passes=passes, epoch=epoch, **part)
            self.check()
        return {"epoch": 0, "budget_ns": self.budget}


@dataclasses.dataclass(frozen=True)
class Job:
    """What a process measures: a row, or what a path stands beside."""
    program: str
    row: dict
    beside: bool = False
    reference: bool = True

    def fit(self):
        """Runs that fit in a window of each key while it is timed."""
        kind = KINDS[self.row["workload"]]
        if kind.used_up or kind.path.used_up and not self.beside:
            return USED_UP_FIT
        if not kind.is_path:
            return LIMIT_MAX
        return SMOOTH_LIMIT_MAX if kind.path.policy in ("smooth", "in-flight") else PATH_FIT

    def measure(self, seconds, first, alone=False):
        """What one process found; `alone`: without a reference."""
        row, kind = self.row, KINDS[self.row["workload"]]
        with Driver(self.program) as driver:
            if first:
                rehearse(driver, row, self.beside)
            with Bed(driver, row, row["keys"], self.fit(), self.beside) as bed:
                work = Work(bed, seconds * SECOND)
                span = work.passes() if kind.each_once else work.sequence()
                found = {"ns": statistics.median(work.medians), "allowed": work.allowed,
                         "low": statistics.median(work.lows),
                         "threads": [{name: sum(did[name] for did in thread) for name in thread[0]}
                                     for thread in zip(*work.threads)],
                         "refused": work.refused, "unplaced": work.unplaced,
                         "resident": work.huge[0], "huge": work.huge[1]}
                if self.reference and not (alone or kind.beside):
                    found["reference_ns"] = driver.ask("span", run=kind.reference,
                                                       **span)["median"]
        return found


def by_turns(jobs, seconds, processes, show=lambda part: None, pair=False):
    """Measures each in so many processes. The order turns round in every second turn, so that what
    comes first is not always the same. With `pair` the last two are builds of one row: there are
    more turns until a small change between them would be told."""
    found, turn = [[] for _ in jobs], 0

    def enough():
        old, new = ([one["low"] for one in each] for each in found[-2:])
        return change(old, new, True)[2] <= TOLD_FROM or turn >= MORE_MAX * processes

    most = processes
    while turn < most:
        order = list(range(len(jobs)))
        for at in order[::-1] if turn % 2 else order:
            found[at].append(jobs[at].measure(seconds / processes, turn == 0, pair and turn > 0))
        turn += 1
        show(turn / most)
        if pair and turn == most and not enough():
            most += MORE
    return found


def beside_of(job):
    """What a row stands beside in processes of its own, or None."""
    kind = KINDS[job.row["workload"]]
    if kind.is_path:
        return dataclasses.replace(job, beside=True)
    if kind.beside:
        return dataclasses.replace(job, row={**job.row, "workload": kind.beside}, reference=False)
    return None


def result(job, found, beside):
    """What came out of the row, from what its processes found, and those it stands beside."""
    kind, ns = KINDS[job.row["workload"]], spread([one["ns"] for one in found])
    rates = rates_of([one["threads"] for one in found])
    rest = beside or found
    reference = spread([one["ns" if beside else "reference_ns"] for one in rest
                        if beside or "reference_ns" in one])
    ratios = spread([a / b for a, b in zip(ns["each"], reference["each"])])
    return {"stripes": job.row["stripes"], "repeats": len(found),
            **{name: sum(one[name] for one in found) for name in ("allowed", "refused")},
            "unplaced": max(one["unplaced"] for one in found), "ns_per_op": ns["value"],
            "ns_min": ns["min"], "ns_max": ns["max"], "each": [one["low"] for one in found],
            "mops": sum(rates),
            "thread_mops": rates, "reference": kind.reference, "reference_ns": reference["value"],
            "ratio": ratios["value"], "ratio_min": ratios["min"], "ratio_max": ratios["max"],
            "huge_pages": sum(one["huge"] for one in found) / sum(one["resident"] for one in found),
            "checked": True}


def measure(programs, row, seconds, processes, show):
    """What came out of the row by each program, by turns; look at "checked" before any number.
      seconds  of timed work, all processes together; a workload that needs a whole pass over its
               keys may take longer"""
    jobs = [Job(program, row) for program in programs]
    beside = [other for other in map(beside_of, jobs[-1:]) if other]
    try:
        found = by_turns(beside + jobs, seconds, processes, show, len(jobs) > 1)
    except Wrong as wrong:
        return [{"ns_per_op": None, "reference": None, "repeats": 0, "unplaced": 0,
                 "checked": False, "wrong": str(wrong)}] * len(jobs)
    other = found[0] if beside else None
    return [result(job, one, other) for job, one in zip(jobs, found[len(beside):])]


# ---- Arrivals on a schedule ----

def load_row(asked, seconds, found):
    """What came of a run, from what its processes found."""
    ns = spread([one["ns"] / one["arrivals"] for one in found])
    share = spread([one["ns"] / one["wall_ns"] for one in found])
    total = {name: sum(one[name] for one in found)
             for name in ("arrivals", "allowed", "late", "untracked", "wall_ns")}
    by_limit = [{name: sum(limit[name] for limit in limits) for name in ("allowed", "refused")}
                for limits in zip(*(one["by_limit"] for one in found))]
    row = {**asked, "workload": "arrivals", "distribution": "zipf", "key_length": 16,
           "repeats": len(found), "by_limit": by_limit, "arrivals": total["arrivals"],
           "allowed": total["allowed"], "refused": total["arrivals"] - total["allowed"],
           "untracked": total["untracked"], "wall_seconds": total["wall_ns"] / 1e9,
           "core_share": share["value"], "core_share_min": share["min"],
           "core_share_max": share["max"], "ns_per_op": ns["value"], "ns_min": ns["min"],
           "ns_max": ns["max"], "each": ns["each"], "late_arrivals": total["late"],
           "late_after_ns": found[0]["late_after_ns"]}
    for name, what in ("call", "took"), ("done", "done"):
        row[name] = {point: {"ns": values["value"], "min": values["min"], "max": values["max"],
                             "each": values["each"]}
                     for point, *each in zip(POINTS, *(one[what] for one in found))
                     for values in [spread(each)]}
    # What we counted is what the limiter counted.
    counted = [sum(limit[name] for limit in by_limit) for name in ("allowed", "refused")]
    row["overhead_ns"] = found[0]["overhead_ns"]
    row["checked"] = (counted == [row["allowed"], row["refused"]] and row["arrivals"] ==
                      len(found) * arrivals_of(asked["rate"], seconds / len(found)))
    return row


def arrivals_of(rate, seconds):
    return max(1, int(rate * seconds + 0.5))


def load(programs, asked, seconds, processes, bar):
    """What came of arrivals at that rate by each program, by turns."""
    found = [[] for _ in programs]
    for turn in range(processes):
        for at, program in enumerate(programs):
            bar.show("load", turn / processes)
            with Driver(program) as driver:
                found[at].append(driver.ask(
                    "load", period=zipf_period(asked["keys"]), **asked,
                    arrivals=arrivals_of(asked["rate"], seconds / processes)))
    bar.wipe()
    return [load_row(asked, seconds, one) for one in found]
