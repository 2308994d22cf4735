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
import measure
import tables
from driver import (Driver, Failed, Parser, Usage, available, count, gib, list_of, machine, main,
                    one_of, real, short)
from report import Report
from workloads import DISTRIBUTIONS, FEW, KINDS, MILLION, PATHS, memory_of, row_of

KEYS_MAX = 4 * 10**9
THREADS_MAX = 1024

keys_list = list_of(count(1, KEYS_MAX, "from 1 to 4G"))
threads_count = count(1, 2**64 - 1, "of at least 1")


def threads_of(n):
    return f"{n} thread" if n == 1 else f"{n} threads"


def check_threads(threads, cores):
    if threads > cores:
        raise Usage(f"--threads {threads}: there are {cores} cores to pin them to")


class Rows:
    """Rows of the program's own workloads."""

    def __init__(self, driver, command):
        self.driver, self.command, self.machine = driver, command, machine()

    def fit(self, plan, selected):
        """Rows that this machine cannot measure are refused if they were asked for; if they were
        selected by us, they are left out, and that is said."""
        kept, have = [], available()
        for row in plan:
            keys, need = short(row["keys"]), memory_of(row)
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
        label = f"{row['workload']}, {short(row['keys'])} keys, {threads_of(row['threads'])}"
        self.driver.show(label, 0)
        answer = measure.measure(self.driver, row, seconds, self.machine["cache"],
                                 lambda part: self.driver.show(label, part))
        self.driver.wipe()
        if not answer["checked"]:
            self.complain(label, answer["wrong"])
        return answer

    def complain(self, label, wrong):
        print(f"stint-bench {self.command}: {label}: wrong answers: {wrong}", file=sys.stderr)

    def run(self, plan, options, kind):
        report = Report(self.command, options, self.driver.ask("build"), options.seconds,
                        *kind(self.driver)).begin()
        good, self.driver.of = True, len(plan)
        for self.driver.done, row in enumerate(plan):
            shown = {**row, **self.measure(row, options.seconds)}
            shown.pop("ratio_median", None)
            del shown["bare"]
            if row["workload"] == "refuse":
                shown["refused_part"] = 1
            report.row(shown)
            good = good and shown["checked"]
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


def run_parser():
    def lines(is_path):
        return "\n".join(f"  {name:10} {kind.help}" for name, kind in KINDS.items()
                         if kind.is_path == is_path)

    parser = Parser("run", "Measures decisions, and in the same run the floors that no limiter can "
                    "beat. A time is the median of stretches of 512 decisions; min and max are "
                    "those of the repeats.",
                    RUN_HELP.format(workloads=lines(False), paths=lines(True)))
    parser.add_argument("--workload", type=list_of(one_of([*KINDS, "paths"], "no workload")),
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
                        "table, 0.05 to 2 (0.5: keys is max_entries; above 1 the last ones are a "
                        "flood that finds it full; paths have room for all: at most 0.5)")
    parser.add_seconds(0.5, "timed work a row, 0.001 to 3600; workloads that need whole passes "
                       "over many keys take longer")
    parser.add_argument("--latency", action="store_true", help="the time of each call by itself, "
                        "hashing its key included: its percentiles, beside those of a section with "
                        "nothing in it, which are the machine's own noise")
    parser.add_output()
    return parser


def check_run(options):
    """What is asked for, but does not go together."""
    for workload in options.workload or []:
        kind = KINDS[workload]
        if kind.uniform_only and "uniform" not in (options.distribution or ["uniform"]):
            raise Usage(f"--distribution {options.distribution[0]}: {workload} is uniform only")
        if not (kind.timed if options.latency else kind.run):
            raise Usage(f"--workload {workload}: only {'without' if options.latency else 'with'} "
                        "--latency")
        if kind.is_path and (options.load or 0) > 0.5:
            raise Usage(f"--load {options.load:g}: {workload} has room for all keys: at most 0.5")


def plan_run(options):
    if options.latency:
        workloads, all_keys = ["take", "first-seen", "roll", "roll-all"], [MILLION]
    else:
        workloads, all_keys = ["take", "take-at", "batch"], [FEW, 10**5, MILLION, 10**7]
    for workload in options.workload or workloads:
        kind = KINDS[workload]
        for distribution in options.distribution or ["uniform"]:
            if kind.uniform_only and distribution != "uniform":
                continue
            for threads in options.threads or [1]:
                for keys in options.keys or ([FEW, MILLION] if kind.is_path else all_keys):
                    yield row_of(workload, distribution, keys, threads=threads,
                                 load=options.load or 0.5)


def run(driver, read):
    rows = Rows(driver, "run")
    options = read(run_parser())
    if options.workload:
        options.workload = [name for given in options.workload
                            for name in (PATHS if given == "paths" else [given])]
    check_run(options)
    selected = not any((options.workload, options.keys, options.threads, options.distribution,
                        options.load))
    if not selected:
        plan = plan_run(options)
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


class NotMeasured(Exception):
    """And why."""


def good(answer):
    if not answer["checked"]:
        raise NotMeasured("wrong answers")
    return answer


def ratios(answer):
    """The value, the least and the most."""
    return answer["ratio_median"], answer["ratio_min"], answer["ratio_max"]


class Goals:
    def __init__(self, rows, options, report):
        self.rows, self.options, self.report = rows, options, report
        self.keys = options.keys
        self.out = min(options.keys, MILLION)  # of a table out of cache, if --keys is not less
        self.good = True
        rows.driver.of = 13 + 2 * len(PATHS)

    def show(self, point, name, limit, find, better="lower", **about):
        """A goal: find() returns what was measured (the value, the least, the most), the floor, and
        whether it is reached although it is beyond the limit."""
        goal = {"point": point, "goal": name, "better": better, "limit": limit, "measured": None,
                "floor": "", "absent": False, "aside": False, "reached": False, **about}
        met = False
        try:
            measured, goal["floor"], goal["reached"] = find()
            goal.update(zip(("measured", "measured_min", "measured_max"), measured))
            met = goal["reached"] or (measured[0] >= limit if better == "higher"
                                      else measured[0] <= limit)
        except NotMeasured as why:
            goal["why"] = str(why)
        goal["met"] = None if goal["absent"] or goal["aside"] else met
        self.good = self.good and goal["met"] is not False
        self.rows.driver.wipe()
        self.report.row(goal)

    def measure(self, workload, distribution, keys, **more):
        answer = self.rows.measure(row_of(workload, distribution, keys, **more),
                                   self.options.seconds)
        self.rows.driver.done += 1
        self.good = self.good and answer["checked"]
        return answer

    def ratio(self, point, name, limit, answer):
        """A row's ratio to its floor, or what stands in its place."""
        def find():
            good(answer)
            floor, ns = (answer[name] for name in (("locked", "locked_ns") if "locked" in answer
                                                   else ("floor", "floor_ns")))
            return ratios(answer), f"{floor:.15} {ns:.3g}", answer.get("reached", False)
        self.show(point, name, limit, find)

    def scale(self, name, limit, workload, distribution, keys, stripes=1):
        """Two threads at once, to one while the other waits."""
        about = {"threads": 2, "stripes": stripes, "floor": "one alone"}

        def find():
            if self.rows.machine["cores"] < 2:
                raise NotMeasured("there is one core")
            value, low, high = ratios(good(self.measure(workload, distribution, keys, **about)))
            floor = "ideal 2"  # both on one line are no floor of what stripes set apart
            if stripes == 1:
                bare = good(self.measure(workload, distribution, keys, bare=True, **about))
                floor = f"bare {2 / bare['ratio_median']:.3g}"
            return (2 / value, 2 / high, 2 / low), floor, False
        self.show(4, name, limit, find, "higher")

    def unplaced(self, name, limit, answer):
        self.show(5, name, limit, lambda: ((good(answer)["unplaced"],) * 3, "none", False))

    def beside(self, point, name, limit, a, b, floor):
        """Two rows by turns."""
        def find():
            self.rows.driver.show(name, 0)
            try:
                ours, theirs, ratio = measure.beside(self.rows.driver, a, b, self.options.seconds)
            except measure.Wrong as wrong:
                self.rows.complain(name, wrong)
                raise NotMeasured("wrong answers") from None
            self.rows.driver.done += 1
            return ratios(ratio), floor(ours, theirs), False
        self.show(point, name, limit, find)

    def all(self):
        keys = self.keys
        self.ratio(1, "take in cache / clock+hash+xadd", 1.5,
                   self.measure("take", "uniform", FEW, floor="clock+hash+xadd"))
        self.ratio(2, "batch out of cache / xadd", 2,
                   self.measure("batch", "uniform", keys, floor="xadd"))
        self.ratio(3, "take out of cache / dependent load", 0.6,
                   self.measure("take", "uniform", keys, floor="dependent load"))
        self.scale("two threads, uniform", 1.9, "take", "uniform", keys)
        self.scale("two threads, one hot key refused", 1.9, "refuse", "hot", FEW)
        self.scale("two threads, one hot key in stripes", 1.7, "take", "hot", FEW, 2)
        half = self.measure("first-seen", "uniform", keys, floor="present key")
        self.ratio(5, "first seen at 50% load / present key", 2.3, half)
        self.unplaced("keys unplaced at 50% load", 0, half)
        more = self.measure("first-seen", "uniform", keys, floor="present key", load=0.7)
        self.unplaced("keys unplaced at 70% load", keys / 10000, more)
        self.beside(5, "churn / first seen, 1M keys", 2,
                    *(row_of(workload, "uniform", self.out, floor="present key")
                      for workload in ("first-seen", "churn")),
                    lambda _, churn: f"reach {churn['reach']} lines")
        self.many_keys()
        self.all_redis()
        # Every other kind of decision beside plain takes, in cache and out.
        for where, keys in ("in cache", FEW), ("out", self.out):
            for path in PATHS:
                self.ratio(8, f"{path} {where} / {KINDS[path].floor}",
                           KINDS[path].path.goal[where == "out"],
                           self.measure(path, "uniform", keys))

    def many_keys(self):
        name = "take, ten times as many keys / large"
        both = [row_of("take", "uniform", keys, floor="dependent load")
                for keys in (self.keys, 10 * self.keys)]

        def too_little():
            raise NotMeasured("too little memory is free")
        if sum(map(memory_of, both)) > available():
            self.show(6, name, 1.5, too_little)
        else:
            self.beside(6, name, 1.5, *both, lambda few, many:
                        f"dependent load {many['floor_ns'] / few['floor_ns']:.3g}")

    def all_redis(self):
        peers = [peer for peer in contest.ONE if peer.name in
                 ("stint", "stint-batch", "redis-incr", "redis-incr-16")]
        found = contest.run(self.rows.driver, "Redis: ", peers, self.options.seconds,
                            keys=self.out, threads=1, limits=1, window=contest.window())
        self.rows.driver.done += 1
        for name, peer in found.items():
            if peer.wrong:
                self.rows.driver.wipe()
                print(f"stint-bench goals: {name}: {peer.wrong}", file=sys.stderr)
                self.good = False
        for recipe, redis, limit in (("one at a time", found["redis-incr"], 300),
                                     ("16 pipelined", found["redis-incr-16"], 20)):
            for ours, stint in ("take", found["stint"]), ("batch", found["stint-batch"]):
                def find():
                    """How many times Redis's ns ours are."""
                    if redis.absent:
                        raise NotMeasured("redis-server; ./bench/run goals installs it")
                    if not redis.good or not stint.good:
                        raise NotMeasured("it failed")
                    times = measure.ratios_of(redis.ns, stint.ns)
                    return ratios(times), f"Redis {statistics.median(redis.ns) / 1e3:.3g} us", False
                self.show(7, f"Redis {recipe} / {ours}", limit, find, "higher", absent=redis.absent,
                          aside=(recipe == "one at a time") != (ours == "take"))


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

class WithDpdk(argparse.Action):
    """Refuses the option at once, unless the program has that peer."""

    def __call__(self, parser, namespace, values, option_string=None):
        if not self.const:
            parser.error("--dpdk: this stint-bench was built without DPDK; "
                         "`bench/run peers --dpdk` builds one with it")


def peers_parser(one, several):
    def lines(peers):
        return "\n".join(f"      {peer.name:14} {peer.help}" for peer in peers)

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
    return [peer.name for peer in peers]


def peers(driver, read):
    one, several = contest.peers(driver)
    options = read(peers_parser(one, several))
    league, references = ((several, ("stint-all", "stint-groups")) if options.limits > 1
                          else (one, ("stint", "stint-batch")))
    if options.peer is not None:
        chosen = options.peer.split(",")
        for name in chosen:
            if name not in names_of(league):
                raise Usage(f"--peer: '{name}' is no peer" +
                            (" that decides by several limits" if options.limits > 1 else ""))
        league = [peer for peer in league if peer.name in (*chosen, *references)]
    cores, have = machine()["cores"], available()
    options.threads = options.threads or ([1, 2] if cores >= 2 else [1])
    for threads in options.threads:
        check_threads(threads, cores)
    for keys in options.keys:
        need = 2**26 + keys * sum(peer.bytes_per_key * options.limits + 8 for peer in league)
        if need > have:
            raise Usage(f"--keys {short(keys)} needs {gib(need)} of memory for {len(league)} "
                        f"peers, and {gib(have)} are free")
    shown = tables.Peers(*references, {peer.name: peer.program for peer in league})
    report = Report("peers", options, driver.ask("build"), options.seconds, shown.head, shown.row,
                    shown.foot).begin()
    window, good = contest.window(), True
    driver.of = len(options.threads) * len(options.keys)
    for threads in options.threads:
        for keys in options.keys:
            if report.result["rows"] and not report.json:
                print()
            found = contest.run(driver, f"{short(keys)}/{threads} ", league, options.seconds,
                                keys=keys, threads=threads, limits=options.limits, window=window)
            driver.done += 1
            driver.wipe()
            rates = {name: peer.result()["decisions_per_second"] for name, peer in found.items()}
            for name, peer in found.items():
                if peer.wrong:
                    good = False
                    print(f"stint-bench peers: {name}, {short(keys)} keys, {threads_of(threads)}: "
                          f"{peer.wrong}", file=sys.stderr)
                report.preempted += peer.preempted
                report.row({**peer.result(), **{
                    ratio: rates[best] / rates[name] if rates[best] and rates[name] else None
                    for ratio, best in zip(("ratio_take", "ratio_batch"), references)}})
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

CONTROL_SECONDS = 10  # at most, of the run without stint


def load_row(asked, seconds, control, answer):
    """What came of a run, beside the control run."""
    wall, all_of, parts = answer["wall_ns"], answer["all"], answer["parts"]
    each = [part["ns"] / part["arrivals"] for part in parts]
    ns, share = all_of["ns"] / all_of["arrivals"], all_of["ns"] / wall
    allowed = answer["allowed"]
    row = {**asked, "workload": "arrivals", "distribution": "zipf", "key_length": 16, "parts": 10,
           "by_limit": answer["by_limit"], "arrivals": answer["arrivals"], "allowed": allowed,
           "refused": answer["arrivals"] - allowed, "untracked": answer["untracked"],
           "wall_seconds": wall / 1e9, "core_share": share,
           "core_share_min": share * min(each) / ns, "core_share_max": share * max(each) / ns,
           "ns_per_op": ns, "ns_min": min(each),
           "ns_max": max(each), "cpu_share_with": answer["cpu_ns"] / wall,
           "cpu_share_without": control["cpu_ns"] / control["wall_ns"],
           "late_arrivals": answer["late"], "late_after_ns": answer["late_after_ns"]}
    for name, of, what in (("call", answer, "took"), ("empty", control, "took"),
                           ("late", answer, "late"), ("late_without", control, "late")):
        row[name] = measure.tail(of["all"][what], [part[what] for part in of["parts"]])
    # What we counted is what the limiter counted.
    counted = [sum(limit[name] for limit in answer["by_limit"]) for name in ("allowed", "refused")]
    row["checked"] = (row["arrivals"] == int(asked["rate"] * seconds + 0.5) and
                      counted == [allowed, row["refused"]])
    if not row["checked"]:
        print(f"stint-bench load: wrong counts: {row['arrivals']} arrivals were served and "
              f"{allowed} allowed;\nthe limiter counted {counted[0]} allowed and {counted[1]} "
              "refused", file=sys.stderr)
    return row


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
    check_threads(options.threads, machine()["cores"])
    rate, seconds, threads = options.rate, options.seconds, options.threads
    if rate * seconds < 1:
        raise Usage(f"--seconds {seconds:g}: nothing arrives in that time, at --rate {rate}")
    period = 2**12  # 16 MiB of draws a thread at most
    while period < 2**22 and period < rate * seconds / threads:
        period *= 2
    need = options.keys * len(limits) * 64 + threads * period * 4 + 2**26
    if need > available():
        raise Usage(f"--keys {short(options.keys)} needs {gib(need)} of memory for {len(limits)} "
                    f"policies, and {gib(available())} are free")
    asked = {"rate": rate, "keys": options.keys, "threads": threads, "limits": limits}
    report = Report("load", options, driver.ask("build"), seconds, *tables.load(limits))

    def serve(label, seconds, **about):
        answer = driver.ask("load", label=label, arrivals=int(rate * seconds + 0.5), period=period,
                            **asked, **about)
        driver.wipe()
        return answer

    ticks = driver.ticks()
    control = serve("control run without stint", min(seconds, CONTROL_SECONDS), control=True)
    answer = serve("load", seconds)
    row = load_row(asked, seconds, control, answer)
    report.begin()
    report.row({**row, **ticks})
    # A row is taken for about a second there.
    report.preempted = answer["preempted"] / seconds
    report.end()
    if not row["checked"]:
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
