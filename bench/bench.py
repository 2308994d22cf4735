#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a core of this machine decides per second. Each command plans rows, asks the program to
measure them, and prints what comes out; bench/run builds the program and calls this.

    bench.py STINT_BENCH COMMAND [OPTIONS]      bench.py STINT_BENCH COMMAND --help
"""
import argparse
import statistics
import sys

import contest
import tables
from driver import (Driver, Failed, Parser, Usage, available, count, gib, list_of, machine, main,
                    one_of, real, short)
from report import Report

FEW, MILLION = 1000, 10**6  # in cache, and out of it, or near
KEYS_MAX = 4 * 10**9
THREADS_MAX = 1024
DISTRIBUTIONS = ["uniform", "zipf", "hot"]

keys_list = list_of(count(1, KEYS_MAX, "from 1 to 4G"))
threads_count = count(1, 2**64 - 1, "of at least 1")


def threads_of(n):
    return f"{n} thread" if n == 1 else f"{n} threads"


def row_of(workload, distribution, keys, **more):
    """A row with all that is usual."""
    return {"workload": workload, "distribution": distribution, "keys": keys, "threads": 1,
            "key_length": 16, "load": 0.5, "policies": 1, "stripes": 1, "refused_part": 0,
            "latency": False, "bare": False, **more}


class Rows:
    """Rows of the program's own workloads."""

    def __init__(self, driver, command):
        self.driver, self.command = driver, command
        self.kinds = {kind["name"]: kind for kind in driver.ask("kinds")["workloads"]}
        self.paths = [name for name, kind in self.kinds.items() if kind["path"]]
        self.machine = machine()

    def fit(self, plan, selected):
        """Rows that this machine cannot measure are refused if they were asked for; if they were
        selected by us, they are left out, and that is said."""
        kept, have = [], available()
        for row in plan:
            keys, need = short(row["keys"]), self.driver.ask("memory", **row)["bytes"]
            if row["threads"] > THREADS_MAX:
                raise Usage(f"--threads {row['threads']}: at most {THREADS_MAX}")
            if need > have and not selected:
                raise Usage(f"--keys {keys} needs {gib(need)} of memory, and {gib(have)} are free")
            why = None
            if row["threads"] > self.machine["cores"] and selected:
                why = f"with {row['threads']} threads, there are {self.machine['cores']} cores"
            elif need > have:
                why = f"of {keys} keys, it needs {gib(need)} and {gib(have)} are free"
            if why:
                print(f"left out: {row['workload']} {why}", file=sys.stderr)
            else:
                kept.append(row)
        most, cores = max((row["threads"] for row in kept), default=0), self.machine["cores"]
        if most > cores:
            print(f"note: {most} threads on {cores} {'core' if cores == 1 else 'cores'} take "
                  "turns: this shows that they cost nothing more, not how they scale",
                  file=sys.stderr)
        return kept

    def measure(self, row, seconds):
        """What came out of the row."""
        label = (f"{row['workload']}, {short(row['keys'])} keys, {threads_of(row['threads'])}")
        answer = self.driver.ask("row", label, seconds=seconds, cache=self.machine["cache"], **row)
        self.complain(answer, label)
        return answer

    def complain(self, answer, label):
        if not answer["checked"]:
            print(f"stint-bench {self.command}: {label}: wrong answers: {answer['wrong']}",
                  file=sys.stderr)

    def run(self, plan, options, kind):
        report = Report(self.command, options, self.driver.ask("build"), options.seconds,
                        *kind(self)).begin()
        good, self.driver.of = True, len(plan)
        for self.driver.done, row in enumerate(plan):
            answer = self.measure(row, options.seconds)
            answer.pop("ratio_median", None)
            shown = {**row, **answer}
            del shown["bare"]
            if row["workload"] == "refuse":
                shown["refused_part"] = 1
            report.row(shown)
            good = good and answer["checked"]
        report.end()
        if not good:
            raise Failed("")


# ---- run ----

# What an operator wants to know first, chosen so that it takes little more than a minute on two
# cores: workload, keys, and what is not usual.
SELECTION = [
    *(row_of(workload, "uniform", keys) for workload in ("take", "take-at", "batch")
      for keys in (FEW, 10**5, MILLION, 10**7)),
    row_of("take", "zipf", MILLION),
    row_of("roll", "uniform", MILLION),
    row_of("churn", "uniform", MILLION),
    row_of("first-seen", "uniform", 10**7),
    row_of("first-seen", "uniform", 10**7, load=0.7),
    row_of("take", "uniform", 10**7, threads=2),
    row_of("batch", "uniform", 10**7, threads=2),
    row_of("refuse", "hot", FEW),
    row_of("refuse", "hot", FEW, threads=2),
    *(row_of(path, "uniform", FEW) for path in ("cost-5", "own-limit", "peek", "refund", "smooth",
                                                "all-2", "groups")),
    row_of("cost-5", "uniform", MILLION),
    row_of("all-2", "uniform", MILLION),
]

RUN_HELP = """\
Without --workload, --keys, --threads, --distribution and --load it measures a selection (in a
minute and a half), else every combination of what is given. --latency has a selection of its own:
take, first-seen, roll and roll-all (on all cores), of a million keys.

workloads:
{workloads}
  paths      all of these, by turns with plain takes, of 1k and 1M keys:
{paths}

distributions:
  uniform    every key equally often
  zipf       the nth key with weight 1/n^0.99
  hot        one key; the table holds the others
first-seen, roll and churn ask for every key once in turn, roll-all draws anew in every window:
uniform only. So are the paths.

Every row checks its own answers first: what each key was granted must be the smaller of its
demand and its limit. Exit codes: 0 good, 1 wrong answers or not measured, 2 wrong usage."""


def run_parser(rows):
    def lines(path):
        return "\n".join(f"  {kind['name']:10} {kind['help']}" for kind in rows.kinds.values()
                         if kind["path"] == path)

    parser = Parser("run", "Measures decisions, and in the same run the floors that no limiter can "
                    "beat. A time is the median of stretches of 512 decisions; min and max are "
                    "those of the repeats.",
                    RUN_HELP.format(workloads=lines(False), paths=lines(True)))
    parser.add_argument("--workload", type=list_of(one_of([*rows.kinds, "paths"], "no workload")),
                        metavar="W,..", help="(take,take-at,batch)")
    parser.add_argument("--keys", type=keys_list, metavar="N,..", help="keys in the table, 1 to "
                        "4G, as in 500, 1k, 10M (1k,100k,1M,10M)")
    parser.add_argument("--threads", type=list_of(threads_count), metavar="N,..", help="each "
                        "pinned to a core; more than there are cores take turns (1)")
    parser.add_argument("--distribution", metavar="D,..", help="(uniform)",
                        type=list_of(one_of(DISTRIBUTIONS, "not uniform, zipf or hot")))
    parser.add_argument("--key-length", type=count(4, 1024, "from 4 to 1024"), default=16,
                        metavar="N", help="bytes of a key, 4 to 1024 (16)")
    parser.add_argument("--load", type=real(0.05, 2), metavar="L", help="keys / slots of the "
                        "table, 0.05 to 2 (0.5: keys is max_keys; above 1 the last ones are a "
                        "flood that finds it full; paths have room for all: at most 0.5)")
    parser.add_seconds(0.5, "timed work a row, 0.001 to 3600; workloads that need whole passes "
                       "over many keys take longer")
    parser.add_argument("--latency", action="store_true", help="the time of each call by itself, "
                        "hashing its key included: its percentiles, beside those of a section with "
                        "nothing in it, which are the machine's own noise")
    parser.add_output()
    return parser


def check_run(rows, options):
    """What is asked for, but does not go together."""
    for workload in options.workload or []:
        kind = rows.kinds[workload]
        if kind["uniform_only"] and "uniform" not in (options.distribution or ["uniform"]):
            raise Usage(f"--distribution {options.distribution[0]}: {workload} is uniform only")
        if not kind["timed" if options.latency else "run"]:
            raise Usage(f"--workload {workload}: only {'without' if options.latency else 'with'} "
                        "--latency")
        if kind["path"] and (options.load or 0) > 0.5:
            raise Usage(f"--load {options.load:g}: {workload} has room for all keys: at most 0.5")


def plan_run(rows, options):
    if options.latency:
        workloads, all_keys = ["take", "first-seen", "roll", "roll-all"], [MILLION]
    else:
        workloads, all_keys = ["take", "take-at", "batch"], [FEW, 10**5, MILLION, 10**7]
    for workload in options.workload or workloads:
        kind = rows.kinds[workload]
        for distribution in options.distribution or ["uniform"]:
            if kind["uniform_only"] and distribution != "uniform":
                continue
            for threads in options.threads or [1]:
                for keys in options.keys or ([FEW, MILLION] if kind["path"] else all_keys):
                    yield row_of(workload, distribution, keys, threads=threads,
                                 load=options.load or 0.5)


def run(driver, read):
    rows = Rows(driver, "run")
    options = read(run_parser(rows))
    if options.workload:
        options.workload = [name for given in options.workload
                            for name in (rows.paths if given == "paths" else [given])]
    check_run(rows, options)
    selected = not any((options.workload, options.keys, options.threads, options.distribution,
                        options.load))
    if not selected:
        plan = plan_run(rows, options)
    elif options.latency:
        plan = [row_of(workload, "uniform", MILLION) for workload in ("take", "first-seen", "roll")]
        plan.append(row_of("roll-all", "uniform", MILLION, threads=rows.machine["cores"]))
    else:
        plan = SELECTION
    plan = [{**row, "key_length": options.key_length, "latency": options.latency} for row in plan]
    rows.run(rows.fit(plan, selected), options, tables.tails if options.latency else tables.rows)


# ---- growth ----

GROWTH_HELP = """\
series:
  keys         1k to 100M keys (3.2 GB, and as much again for the floor)
  load         keys / slots of the table from 10% to 95%; unplaced keys are counted
  threads      1 to all cores: uniform, zipf 0.99, one hot key, one refused hot key, each beside one
               thread that works while the others wait
  key-length   4 to 1024 bytes
  policies     1 to 4096, the keys spread over them
  refused      none to all of the keys have used up their limit

Exit codes: 0 good, 1 wrong answers or not measured, 2 wrong usage."""


def grow_keys(largest, _keys, _cores):
    for workload in "take", "batch":
        keys = FEW
        while keys <= largest:
            yield row_of(workload, "uniform", keys)
            keys *= 10


def grow_load(_largest, keys, _cores):
    for workload in "take", "first-seen":
        for load in 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95:
            yield row_of(workload, "uniform", keys, load=load)


def grow_threads(_largest, keys, cores):
    numbers = sorted({1 << i for i in range(cores.bit_length()) if 1 << i <= cores} | {cores})
    for workload, distribution, striped in (("take", "uniform", False), ("take", "zipf", False),
                                            ("take", "hot", False), ("take", "hot", True),
                                            ("refuse", "hot", False)):
        for threads in numbers:
            stripes = 1
            while striped and (stripes < 2 or stripes < min(threads, 64)):
                stripes *= 2
            yield row_of(workload, distribution, keys, threads=threads, stripes=stripes,
                         floor="one alone")


def grow_key_length(_largest, _keys, _cores):
    return (row_of("take", "uniform", FEW, key_length=4 << i) for i in range(9))


def grow_policies(_largest, keys, _cores):
    return (row_of("take", "uniform", keys, policies=4**i) for i in range(7))


def grow_refused(_largest, keys, _cores):
    return (row_of("take", "uniform", keys, refused_part=part)
            for part in (0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1))


SERIES = {"keys": grow_keys, "load": grow_load, "threads": grow_threads,
          "key-length": grow_key_length, "policies": grow_policies, "refused": grow_refused}


def growth(driver, read):
    parser = Parser("growth", "Measures how the cost of a decision grows, one thing at a time. "
                    "Times are measured as in stint-bench run, beside the same floors, and all "
                    "answers are checked.", GROWTH_HELP)
    parser.add_argument("--by", type=list_of(one_of(SERIES, "no series")), metavar="S,..",
                        help="only these series (all)")
    parser.add_argument("--keys", type=count(FEW, KEYS_MAX, "from 1k to 4G"), metavar="N",
                        help="the largest table, 1k to 4G keys (100M)")
    parser.add_seconds(0.3)
    parser.add_output()
    options = read(parser)
    rows = Rows(driver, "growth")
    largest = options.keys or 10**8
    plan = [{"series": name, **row} for name, grow in SERIES.items()
            if name in (options.by or SERIES)
            for row in grow(largest, min(largest, MILLION), rows.machine["cores"])]
    rows.run(rows.fit(plan, options.keys is None), options, tables.series)


# ---- goals ----

GOALS_HELP = """\
Redis is asked by one thread on one connection for the same decisions, of a million keys (or of
--keys, if that is less), by its faster recipe: INCR and EXPIRE, sent together. Like is set beside
like: one request at a time beside single takes, 16 pipelined beside batches of 16. The other two
ratios are shown beside those and decide nothing.

Exit codes: 0 all are met, 1 one is missed, or could not be measured, 2 wrong usage. That
redis-server is not installed is said, and counts as neither."""


class Goals:
    def __init__(self, rows, options, report):
        self.rows, self.options, self.report = rows, options, report
        self.keys = options.keys
        self.out = min(options.keys, MILLION)  # of a table out of cache, if --keys is not less
        self.good = True
        rows.driver.of = 13 + 2 * len(rows.paths)

    def show(self, point, name, better, limit, measured=None, floor="", **more):
        """measured: value, least, most; None: it was not measured, and `why` says why not."""
        goal = {"point": point, "goal": name, "better": better, "limit": limit, "measured": None,
                "floor": floor, "absent": False, "aside": False, "reached": False, **more}
        met = False
        if measured:
            goal.update(zip(("measured", "measured_min", "measured_max"), measured))
            met = goal["reached"] or (measured[0] >= limit if better == "higher"
                                      else measured[0] <= limit)
        goal["met"] = None if goal["absent"] or goal["aside"] else met
        self.good = self.good and goal["met"] is not False
        self.report.row(goal)

    def measure(self, workload, distribution, keys, floor, **more):
        if floor:
            more["floor"] = floor
        answer = self.rows.measure(row_of(workload, distribution, keys, **more),
                                   self.options.seconds)
        self.rows.driver.done += 1
        self.good = self.good and answer["checked"]
        return answer

    def ratio(self, point, name, limit, answer):
        """A row's ratio to its floor."""
        if not answer["checked"]:
            self.show(point, name, "lower", limit, why="wrong answers")
            return
        self.show(point, name, "lower", limit,
                  (answer["ratio_median"], answer["ratio_min"], answer["ratio_max"]),
                  f"{answer['floor']:.15} {answer['floor_ns']:.3g}")

    def scale(self, name, limit, workload, distribution, keys, striped=False):
        """Two threads at once, to one while the other waits."""
        about = {"threads": 2, "stripes": 2 if striped else 1}
        if self.rows.machine["cores"] < 2:
            self.show(4, name, "higher", limit, why="there is one core")
            return
        row = self.measure(workload, distribution, keys, "one alone", **about)
        floor = "ideal 2"  # both on one line are no floor of what stripes set apart
        good = row["checked"]
        if good and not striped:
            bare = self.measure(workload, distribution, keys, "one alone", bare=True, **about)
            good = bare["checked"]
            floor = f"bare {2 / bare['ratio_median']:.3g}" if good else ""
        if not good:
            self.show(4, name, "higher", limit, why="wrong answers")
            return
        self.show(4, name, "higher", limit, [2 / row[ratio] for ratio in
                                             ("ratio_median", "ratio_max", "ratio_min")], floor)

    def unplaced(self, name, limit, answer):
        if answer["checked"]:
            self.show(5, name, "lower", limit, (answer["unplaced"],) * 3, "none")
        else:
            self.show(5, name, "lower", limit, why="wrong answers")

    def beside(self, point, name, limit, a, b, floor):
        """Two rows by turns."""
        answer = self.rows.driver.ask("beside", name, a=a, b=b, seconds=self.options.seconds)
        self.rows.driver.done += 1
        for row in answer["a"], answer["b"]:
            self.rows.complain(row, name)
        if answer["a"]["checked"] and answer["b"]["checked"]:
            self.show(point, name, "lower", limit,
                      (answer["median"], answer["min"], answer["max"]), floor(answer))
        else:
            self.show(point, name, "lower", limit, why="wrong answers")

    def redis(self, found, redis, ours, name, limit):
        """How many times Redis's ns ours are."""
        a, b = found[ours], found[redis]
        about = {"aside": (redis == "redis-incr") != (ours == "stint"), "absent": b["absent"]}
        if b["absent"]:
            self.show(7, name, "higher", limit,
                      why="redis-server; ./bench/run goals installs it", **about)
        elif not a["checked"] or not b["checked"]:
            self.show(7, name, "higher", limit, why="it failed", **about)
        else:
            ratios = [theirs / own for own, theirs in zip(a["ns"], b["ns"])]
            self.show(7, name, "higher", limit,
                      (statistics.median(ratios), min(ratios), max(ratios)),
                      f"Redis {b['ns_per_op'] / 1e3:.3g} us", **about)

    def all(self):
        keys = self.keys
        self.ratio(1, "take in cache / clock+hash+xadd", 1.5,
                   self.measure("take", "uniform", FEW, "clock+hash+xadd"))
        self.ratio(2, "batch out of cache / xadd", 2,
                   self.measure("batch", "uniform", keys, "xadd"))
        self.ratio(3, "take out of cache / dependent load", 0.6,
                   self.measure("take", "uniform", keys, "dependent load"))
        self.scale("two threads, uniform", 1.9, "take", "uniform", keys)
        self.scale("two threads, one hot key refused", 1.9, "refuse", "hot", FEW)
        self.scale("two threads, one hot key in stripes", 1.7, "take", "hot", FEW, striped=True)
        half = self.measure("first-seen", "uniform", keys, "present key")
        self.ratio(5, "first seen at 50% load / present key", 2.3, half)
        self.unplaced("keys unplaced at 50% load", 0, half)
        more = self.measure("first-seen", "uniform", keys, "present key", load=0.7)
        self.unplaced("keys unplaced at 70% load", keys / 10000, more)
        self.beside(5, "churn / first seen, 1M keys", 2,
                    *(row_of(workload, "uniform", self.out, floor="present key")
                      for workload in ("first-seen", "churn")),
                    lambda answer: f"reach {answer['b']['reach']} lines")
        self.many_keys()
        self.all_redis()
        self.all_paths()

    def many_keys(self):
        name = "take, ten times as many keys / large"
        both = [row_of("take", "uniform", keys, floor="dependent load")
                for keys in (self.keys, 10 * self.keys)]
        if sum(self.rows.driver.ask("memory", **row)["bytes"] for row in both) > available():
            self.show(6, name, "lower", 1.5, why="too little memory is free")
        else:
            self.beside(6, name, 1.5, *both, lambda answer: "dependent load "
                        f"{answer['b']['floor_ns'] / answer['a']['floor_ns']:.3g}")

    def all_redis(self):
        peers = [peer for peer in self.rows.driver.ask("kinds")["peers"] if peer["name"] in
                 ("stint", "stint-batch", "redis-incr", "redis-incr-16")]
        found = contest.run(self.rows.driver, "Redis: ", peers, keys=self.out, threads=1, limits=1,
                            seconds=self.options.seconds, window=contest.window())
        self.rows.driver.done += 1
        for name, peer in found.items():
            if not peer["checked"] and not peer["absent"]:
                print(f"stint-bench goals: {name}: {peer['wrong']}", file=sys.stderr)
                self.good = False
        for redis, ours, name, limit in (
                ("redis-incr", "stint", "Redis one at a time / take", 300),
                ("redis-incr", "stint-batch", "Redis one at a time / batch", 300),
                ("redis-incr-16", "stint", "Redis 16 pipelined / take", 20),
                ("redis-incr-16", "stint-batch", "Redis 16 pipelined / batch", 20)):
            self.redis(found, redis, ours, name, limit)

    def all_paths(self):
        """Every other kind of decision beside plain takes, in cache and out."""
        for i, (where, keys) in enumerate((("in cache", FEW), ("out", self.out))):
            for path in self.rows.paths:
                row = self.measure(path, "uniform", keys, None)
                name, limit = f"{path} {where} / {row['floor']}", self.rows.kinds[path]["goal"][i]
                if row["checked"]:
                    self.show(8, name, "lower", limit,
                              (row["ratio_median"], row["ratio_min"], row["ratio_max"]),
                              f"{row['locked']:.15} {row['locked_ns']:.3g}",
                              reached=row["ns_per_op"] <= 1.15 * row["locked_ns"])
                else:
                    self.show(8, name, "lower", limit, why="wrong answers")


def goals(driver, read):
    parser = Parser("goals", "Measures what the library is meant to reach, and prints a line for "
                    "each goal: the goal, what was measured (the median of the repeats, the least "
                    "and the most), the floor, and whether it is met. On ratios, because absolute "
                    "times are the machine's.", GOALS_HELP)
    parser.add_argument("--keys", type=count(FEW, 4 * 10**8, "from 1k to 400M"), metavar="N",
                        help="keys of the large table, 1k to 400M (10M); the largest has ten times "
                        "as many, which takes 7 GiB for 100M")
    parser.add_seconds(1, "timed work a measurement, 0.001 to 3600")
    parser.add_output(plot=False)
    options = read(parser)
    rows = Rows(driver, "goals")
    if options.keys:  # refused, if that was asked for and does not fit
        rows.fit([row_of("take", "uniform", 10 * options.keys)], False)
    options.keys = options.keys or 10**7
    report = Report("goals", options, driver.ask("build"), options.seconds,
                    *tables.goals()).begin()
    work = Goals(rows, options, report)
    work.all()
    report.end()
    if not work.good:
        raise Failed("")


# ---- peers ----

PEERS_HELP = """\
peers:
{one}
peers with --limits 2 or 3:
{several}
stint and stint-batch (stint-all and stint-groups) are always measured, for the ratios.

Servers are found in PATH, started on unix sockets in temporary directories, with no configuration
but what keeps them off the network and the disk, and stopped at the end, Ctrl-C included. A
server that is not installed is reported as absent; `bench/run peers` installs them. Each thread
has one connection.

Every key is asked for once before the time is taken, and none comes to its limit while it is: all
pay for a request that is granted. (Before that a small table with a limit of 3 is asked for six
tokens a key.)

Exit codes: 0 good, 1 wrong answers or a server that failed, 2 wrong usage."""

NUMBERS = ("decisions_per_second", "ns_per_op", "ns_min", "ns_max", "cpu_seconds_per_million",
           "bytes_per_key")


class WithDpdk(argparse.Action):
    """Refuses the option at once, unless the program has that peer."""

    def __call__(self, parser, namespace, values, option_string=None):
        if not self.const:
            parser.error("--dpdk: this stint-bench was built without DPDK; "
                         "`bench/run peers --dpdk` builds one with it")


def peers_parser(one, several):
    def lines(peers):
        return "\n".join(f"      {peer['name']:14} {peer['help']}" for peer in peers)

    parser = Parser("peers", "Asks stint and others for the same decisions: the same keys in the "
                    "same order, by the same policy, by turns in one run. Every peer's answers are "
                    "checked: each key must be granted the smaller of its demand and its limit, "
                    "counted key by key.",
                    PEERS_HELP.format(one=lines(one), several=lines(several)))
    parser.add_argument("--peer", metavar="P,..", help="(all)")
    parser.add_argument("--dpdk", action=WithDpdk, nargs=0, const="dpdk-64" in names_of(one),
                        help="DPDK's rte_hash among them (dpdk-64), which stint-bench must have "
                        "been built with: `bench/run peers --dpdk` sees to it")
    parser.add_argument("--limits", type=count(1, 3, "from 1 to 3"), default=1, metavar="N",
                        help="of each request, 1 to 3: it is granted if all grant it (1)")
    parser.add_argument("--keys", type=list_of(count(1, 10**9, "from 1 to 1G")), metavar="N,..",
                        default=[FEW, MILLION],
                        help="keys that are live, 1 to 1G, as in 500, 1k, 10M (1k,1M)")
    parser.add_argument("--threads", type=list_of(threads_count), metavar="N,..", help="that ask, "
                        "each pinned to a core of its own (1, and 2 where there are 2)")
    parser.add_seconds(0.5, "timed work a row, 0.001 to 3600; filling a server with a million keys "
                       "takes several seconds more")
    parser.add_output()
    return parser


def names_of(peers):
    return [peer["name"] for peer in peers]


def peers(driver, read):
    kinds = driver.ask("kinds")["peers"]
    # Those that decide by several limits at once come last.
    cut = names_of(kinds).index("stint-all")
    options = read(peers_parser(kinds[:cut], kinds[cut:]))
    league = kinds[cut:] if options.limits > 1 else kinds[:cut]
    references = ("stint-all", "stint-groups") if options.limits > 1 else ("stint", "stint-batch")
    if options.peer is not None:
        chosen = options.peer.split(",")
        for name in chosen:
            if name not in names_of(league):
                raise Usage(f"--peer: '{name}' is no peer" +
                            (" that decides by several limits" if options.limits > 1 else ""))
        league = [peer for peer in league if peer["name"] in (*chosen, *references)]
    cores, have = machine()["cores"], available()
    options.threads = options.threads or ([1, 2] if cores >= 2 else [1])
    for threads in options.threads:
        if threads > cores:
            raise Usage(f"--threads {threads}: there are {cores} cores to pin them to")
    for keys in options.keys:
        need = (64 << 20) + keys * sum(peer["bytes_per_key"] * options.limits + 8
                                       for peer in league)
        if need > have:
            raise Usage(f"--keys {short(keys)} needs {gib(need)} of memory for {len(league)} "
                        f"peers, and {gib(have)} are free")
    run_peers(driver, options, league, references)


def peer_row(peer, found, references, about):
    row = {"peer": peer["name"], "label": peer["label"], **about, "depth": peer["depth"],
           "absent": peer["absent"]}
    for name in NUMBERS:
        row[name] = peer[name] if peer["checked"] else None
    if peer["one_count"]:
        row["bytes_per_key"] = None
    for ratio, name in zip(("ratio_take", "ratio_batch"), references):
        best = found[name]
        row[ratio] = (best["decisions_per_second"] / peer["decisions_per_second"]
                      if peer["checked"] and best["checked"] else None)
    row.update((name, peer[name]) for name in ("granted", "refused", "version", "checked"))
    if not peer["checked"] and not peer["absent"]:
        row["wrong"] = peer["wrong"]
    return row


def run_peers(driver, options, league, references):
    shown = tables.Peers(*references, {peer["name"]: peer["program"] for peer in league})
    report = Report("peers", options, driver.ask("build"), options.seconds, shown.head, shown.row,
                    shown.foot).begin()
    window, good = contest.window(), True
    driver.of = len(options.threads) * len(options.keys)
    for threads in options.threads:
        for keys in options.keys:
            if report.result["rows"] and not report.json:
                print()
            about = {"keys": keys, "threads": threads, "limits": options.limits, "window": window}
            found = contest.run(driver, f"{short(keys)}/{threads} ", league,
                                seconds=options.seconds, **about)
            driver.done += 1
            for peer in found.values():
                if not peer["checked"] and not peer["absent"]:
                    good = False
                    print(f"stint-bench peers: {peer['name']}, {short(keys)} keys, "
                          f"{threads_of(threads)}: {peer['wrong']}", file=sys.stderr)
                report.preempted += peer["preempted"]
                report.row(peer_row(peer, found, references, about))
    report.end()
    if not good:
        raise Failed("")


# ---- load ----

LOAD_HELP = """\
Arrival n is due at start + n / rate. The generator wakes every millisecond and serves what is due
by then in order. An arrival is late if its decision began more than 2 ms after it was due.

The share of a core is the sum of the times of all decisions (hashing the key, reading the clock,
deciding) divided by the time that the run took. Each is timed by itself by the time-stamp
counter, with fences, what timing itself takes subtracted; so no decision overlaps the next, as it
would in a loop, and what a decision was interrupted for is in it. Beside it stands the CPU time
of the whole thread, with the decisions and in a control run without them (the same arrivals, keys
and timing). The noise is how far tenths of the run differ.

Every arrival is counted: what was allowed and refused must be what the limiter counted. Exit
codes: 0 good, 1 wrong counts or not measured, 2 wrong usage."""

LIMITS_MAX = 16


def load(driver, read):
    parser = Parser("load", "Serves arrivals on a schedule, as a server with that many requests a "
                    "second does, and tells the share of a core that the decisions take, how long "
                    "they take, and how late they were begun.", LOAD_HELP)
    parser.add_argument("--rate", type=count(1, 10**7, "from 1 to 10M"), default=400000,
                        metavar="N",
                        help="arrivals a second, all threads together, 1 to 10M (400k)")
    parser.add_seconds(60, "0.001 to 3600, and a control run of at most 10 before")
    parser.add_argument("--keys", type=count(1, KEYS_MAX, "from 1 to 4G"), default=MILLION,
                        metavar="N", help="keys, drawn with weight 1/n^0.99 (zipf), 1 to 4G (1M)")
    parser.add_argument("--threads", type=threads_count, default=1, metavar="N", help="that share "
                        "the arrivals, each pinned to a core of its own (1)")
    parser.add_argument("--limit", action="append", metavar="L",
                        help="a policy in stint's notation; up to 16 times. An arrival asks for "
                        "one of them, equally often (10/second, 100/minute, 2000/hour)")
    parser.add_output()
    options = read(parser)
    # Else what people set side by side: a burst, a steady rate, a quota.
    limits = options.limit or ["10/second", "100/minute", "2000/hour"]
    for limit in limits:
        driver.policy(limit)
    if len(limits) > LIMITS_MAX:
        raise Usage(f"--limit '{limits[LIMITS_MAX]}': more than {LIMITS_MAX}")
    cores = machine()["cores"]
    if options.threads > cores:
        raise Usage(f"--threads {options.threads}: there are {cores} cores to pin them to")
    if options.rate * options.seconds < 1:
        raise Usage(f"--seconds {options.seconds:g}: nothing arrives in that time, "
                    f"at --rate {options.rate}")
    asked = {"rate": options.rate, "keys": options.keys, "threads": options.threads,
             "limits": limits}
    report = Report("load", options, driver.ask("build"), options.seconds, *tables.load(limits))
    answer = driver.ask("load", "", seconds=options.seconds, available=available(), **asked)
    report.begin()
    report.row({**asked, **answer})
    # A row is taken for about a second there.
    report.preempted = answer["preempted"] / options.seconds
    report.end()
    if not answer["checked"]:
        raise Failed("")


COMMANDS = {
    "run": (run, "decide under load; ns per decision beside the floors of this machine"),
    "growth": (growth, "how that grows with keys, load, threads, policies and more"),
    "goals": (goals, "whether the library is as fast as it is meant to be, point by point"),
    "peers": (peers, "the same decisions by mutexes, Redis and memcached"),
    "load": (load, "arrivals on a schedule: the share of a core, and how late they are"),
}


def bench(program, arguments):
    commands = "\n".join(f"  {name:8} {about}" for name, (_, about) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="stint-bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="stint-bench COMMAND [OPTIONS]",
        epilog=f"commands:\n{commands}\n\nstint-bench COMMAND --help lists the options of a "
               "command.\nExit codes: 0 good, 1 failed, 2 wrong usage.")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", nargs="?")
    options = parser.parse_args(arguments[:1])
    command = options.command
    if command is None and not options.version:
        parser.error("which command?")

    def work():
        with Driver(program) as driver:
            if command is None:
                print("stint-bench", driver.ask("build")["version"])
                return
            COMMANDS[command][0](driver, lambda own: own.read(arguments[1:]))

    return main(work, Parser(command, ""))


if __name__ == "__main__":
    sys.exit(bench(sys.argv[1], sys.argv[2:]))
