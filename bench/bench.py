#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a core of this machine decides per second. Each command plans rows, asks processes of the
program to measure them, and prints what comes out; bench/run builds the program and calls this.

    bench.py STINT_BENCH COMMAND [OPTIONS]      bench.py STINT_BENCH COMMAND --help
"""
import argparse
import itertools
import sys

import contest
import measure
import tables
from compare import is_program
from driver import (Bar, Driver, Failed, Parser, Usage, available, count, gib, list_of, machine,
                    main, one_of, real, short)
from report import Report
from workloads import DISTRIBUTIONS, FEW, KINDS, MILLION, PATHS, memory_of, row_of

KEYS_MAX = 4 * 10**9
THREADS_MAX = 1024
PROCESSES_COMPARED = 15

keys_list = list_of(count(1, KEYS_MAX, "from 1 to 4G"))
threads_count = count(1, 2**64 - 1, "of at least 1")


def threads_of(n):
    return f"{n} thread{'s' * (n != 1)}"


def check_threads(threads, cores):
    if threads > cores:
        raise Usage(f"--threads {threads}: there are {cores} cores to pin them to")


def build_of(program):
    with Driver(program) as driver:
        return driver.ask("build")


class Rows:
    """Rows of stint's own workloads."""

    def __init__(self, program, command, options, kind):
        self.command, self.options, self.bar = command, options, Bar()
        self.programs = [program]
        self.report = Report(command, options, build_of(program), options.seconds, *kind,
                             programs=self.programs)
        self.processes = options.processes or (PROCESSES_COMPARED if options.compare
                                               else measure.PROCESSES)
        self.good = True

    def fit(self, plan, selected):
        """Rows that this machine cannot measure are refused if they were asked for; if they were
        selected by us, they are left out, and that is said."""
        kept, have, cores = [], available(), machine()["cores"]
        for row in plan:
            keys, need = short(row["keys"]), memory_of(row)
            if row["threads"] > THREADS_MAX:
                raise Usage(f"--threads {row['threads']}: at most {THREADS_MAX}")
            if need > have and not selected:
                raise Usage(f"--keys {keys} needs {gib(need)} of memory, and {gib(have)} are free")
            if need > have:
                print(f"left out: {row['workload']} of {keys} keys, it needs {gib(need)} and "
                      f"{gib(have)} are free", file=sys.stderr)
            elif row["threads"] <= cores or not selected:
                kept.append(row)
        most = max((row["threads"] for row in kept), default=0)
        if most > cores:
            print(f"note: {most} threads on {cores} {'core' if cores == 1 else 'cores'} take "
                  "turns: this shows that they cost nothing more, not how they scale",
                  file=sys.stderr)
        return kept

    def measure(self, row, seconds):
        """The row with what came out of it; and by the other program, if there are two."""
        label = f"{row['workload']}, {short(row['keys'])} keys, {threads_of(row['threads'])}"
        self.bar.show(label, 0)
        *old, new = measure.measure(self.programs, row, seconds, self.processes,
                                    lambda part: self.bar.show(label, part))
        self.bar.wipe()
        self.bar.done += 1
        if not new["checked"]:
            print(f"stint-bench {self.command}: {label}: wrong answers: {new['wrong']}",
                  file=sys.stderr)
        self.good = self.good and new["checked"]
        return [{**row, **found} for found in (new, *old)]

    def run(self, plan):
        self.report.begin()
        self.bar.of = len(plan)
        for row in plan:
            self.report.row(*self.measure(row, self.options.seconds))
        self.end()

    def end(self):
        self.report.end()
        if not self.good:
            raise Failed("")


# ---- run ----

RUN_HELP = """\
Without any of the first six options it answers what one wants to know first, in four lines and a
short table: a minute. Else it measures every combination of what is given.

workloads:
{workloads}
  paths      all of these, by turns with plain takes, or as many takes by the same policies, of
             1k and 1M keys:
{paths}

distributions:
  uniform    every key equally often
  zipf       the nth key with weight 1/n^0.99
  hot        one key; the table holds the others
first-seen, roll and churn ask for every key once in turn: uniform only. So are the paths.

Every row checks its own answers first: what each key was granted must be the smaller of its
demand and its limit. Exit codes: 0 good, 1 wrong answers or not measured, 2 wrong usage."""

RATE, LIMITS = 400000, ["10/second", "100/minute", "2000/hour"]
LOAD_SECONDS = 10


def run_parser():
    def lines(is_path):
        return "\n".join(f"  {name:10} {kind.help}" for name, kind in KINDS.items()
                         if kind.is_path == is_path)

    parser = Parser("run", "Measures decisions, and apart from them a reference. ns are the median "
                    "of stretches of 512 decisions; min and max are those of the processes. "
                    "Decisions a second are those that were done in the time that passed.",
                    RUN_HELP.format(workloads=lines(False), paths=lines(True)))
    parser.add_argument("--workload", type=list_of(one_of([*KINDS, "paths"], "no workload")),
                        metavar="W,..", help="(take,take-at,batch)")
    parser.add_argument("--keys", type=keys_list, metavar="N,..", help="keys in the table, 1 to "
                        "4G, as in 500, 1k, 10M (1k,100k,1M,10M)")
    parser.add_argument("--threads", type=list_of(threads_count), metavar="N,..", help="each "
                        "pinned to a core; more than there are cores take turns (1)")
    parser.add_argument("--distribution", metavar="D,..", help="(uniform)",
                        type=list_of(one_of(DISTRIBUTIONS, "not uniform, zipf or hot")))
    parser.add_argument("--key-length", type=list_of(count(4, 1024, "from 4 to 1024")),
                        metavar="N,..", help="bytes of a key, 4 to 1024 (16)")
    parser.add_argument("--load", type=list_of(real(0.05, 2)), metavar="L,..", help="keys / slots of the "
                        "table, 0.05 to 2 (0.5: keys is max_entries; above 1 the last ones are a "
                        "flood that finds it full; paths have room for all: at most 0.5)")
    parser.add_seconds(0.5, "timed work a row, of all its processes, 0.001 to 3600; workloads that "
                       "need whole passes over many keys take longer")
    parser.add_output()
    return parser


def check_run(options):
    """What is asked for, but does not go together."""
    for workload in options.workload or []:
        kind = KINDS[workload]
        if kind.uniform_only and "uniform" not in (options.distribution or ["uniform"]):
            raise Usage(f"--distribution {options.distribution[0]}: {workload} is uniform only")
        load = max(options.load or [0])
        if kind.is_path and load > 0.5:
            raise Usage(f"--load {load:g}: {workload} has room for all keys: at most 0.5")


def plan_run(options):
    for workload in options.workload or ["take", "take-at", "batch"]:
        kind = KINDS[workload]
        usual = [FEW, MILLION] if kind.is_path else [FEW, 10**5, MILLION, 10**7]
        for distribution, threads, keys, load, length in itertools.product(
                options.distribution or ["uniform"], options.threads or [1], options.keys or usual,
                options.load or [0.5], options.key_length or [16]):
            if distribution == "uniform" or not kind.uniform_only:
                yield row_of(workload, distribution, keys, threads=threads, load=load,
                             key_length=length)


def plan_first(cores):
    """The rows of the first screen: those that its four lines need, and what else one asks."""
    rows = [("take", "uniform", FEW, 1), ("take", "uniform", MILLION, 1), ("take", "hot", FEW, 1),
            ("batch", "uniform", FEW, 1), ("batch", "uniform", MILLION, 1),
            ("refuse", "uniform", FEW, 1), ("bucket", "uniform", FEW, 1),
            ("first-seen", "uniform", MILLION, 1)]
    if cores > 1:
        rows += [("take", "uniform", FEW, cores), ("take", "uniform", MILLION, cores),
                 ("take", "hot", FEW, cores)]
    return [row_of(workload, distribution, keys, threads=threads)
            for workload, distribution, keys, threads in rows]


def run(program, arguments):
    parser = run_parser()
    options = parser.read(arguments)
    if options.workload:
        options.workload = [name for given in options.workload
                            for name in (PATHS if given == "paths" else [given])]
    check_run(options)
    selected = not any((options.workload, options.keys, options.threads, options.distribution,
                        options.load, options.key_length))
    rows = Rows(program, "run", options, tables.rows())
    if not selected:
        rows.run(rows.fit(list(plan_run(options)), False))
        return
    plan = rows.fit(plan_first(machine()["cores"]), True)
    if options.compare or options.format == "csv":
        rows.run(plan)
        return
    # All is measured before anything is printed: what one came for stands first.
    rows.bar.of = len(plan) + 2
    found = [rows.measure(row, options.seconds)[0] for row in plan]
    asked = {"rate": RATE, "keys": MILLION, "threads": 1, "limits": LIMITS}
    loaded, = measure.load(rows.programs, asked, min(LOAD_SECONDS, 20 * options.seconds),
                           rows.processes, rows.bar)
    rows.bar.wipe()
    rows.good = rows.good and loaded["checked"]
    report = rows.report
    report.more = {"load": loaded}
    if options.format != "json":
        said = report.quiet()
        print("\n".join(tables.answers(found, loaded, bool(said))) + f"\n{said}")
        report.quiet, report.foot = lambda: "", lambda: (
            "\n" + tables.pages(found) + tables.WHERE_TO_GO_ON)
    report.begin()
    for row in found:
        report.row(row)
    rows.end()


# ---- peers ----

PEERS_HELP = """\
peers:
{one}
peers with --limits 2 or 3:
{several}
stint and stint-batch (stint-all and stint-groups) are always measured, for the ratios.

Redis is found in PATH, started on a unix socket in a temporary directory, and stopped at the end,
Ctrl-C included. If it is not installed, it is told as absent. Each thread has {connections} connections,
each with one request on its way.

Every key is asked for once before the time is taken, and none comes to its limit while it is: all
pay for a request that is granted. (Before that a small table with a limit of 3 is asked for six
tokens a key.)

Exit codes: 0 good, 1 wrong answers or a server that failed, 2 wrong usage."""


def peers_parser():
    def lines(peers):
        return "\n".join(f"      {peer.name:14} {peer.help}" for peer in peers)

    parser = Parser("peers", "Asks stint and others for the same decisions: the same keys in the "
                    "same order, by the same policy, by turns in one run. Every peer's answers are "
                    "checked: each key must be granted the smaller of its demand and its limit, "
                    "counted key by key.",
                    PEERS_HELP.format(one=lines(contest.ONE), several=lines(contest.SEVERAL),
                                      connections=contest.CONNECTIONS))
    parser.add_argument("--peer", metavar="P,..", help="(all)")
    parser.add_argument("--dpdk", action="store_true",
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
    parser.add_output(plot=False)
    return parser


def peers(program, arguments):
    options = peers_parser().read(arguments)
    build = build_of(program)
    dpdk = "DPDK" in build["flags"]
    if options.dpdk and not dpdk:
        raise Usage("--dpdk: this stint-bench was built without DPDK; `bench/run peers --dpdk` "
                    "builds one with it")
    league, references = ((contest.SEVERAL, ("stint-all", "stint-groups")) if options.limits > 1
                          else (contest.ONE, ("stint", "stint-batch")))
    league = [peer for peer in league if dpdk or peer.name != "dpdk-64"]
    if options.peer is not None:
        chosen = options.peer.split(",")
        for name in chosen:
            if name not in (peer.name for peer in league):
                raise Usage(f"--peer: '{name}' is no peer" +
                            (" that decides by several limits" if options.limits > 1 else ""))
        league = [peer for peer in league if peer.name in (*chosen, *references)]
    cores, have = machine()["cores"], available()
    options.threads = options.threads or ([1, 2] if cores >= 2 else [1])
    for threads in options.threads:
        check_threads(threads, cores)
    for keys in options.keys:
        need = 2**26 + keys * contest.BYTES_ABOUT * (
            max(options.threads) * options.limits + sum(peer.program is not None for peer in league))
        if need > have:
            raise Usage(f"--keys {short(keys)} needs {gib(need)} of memory for {len(league)} "
                        f"peers, and {gib(have)} are free")
    if options.compare and is_program(options.compare):
        raise Usage(f"--compare '{options.compare}': peers compares results only")
    shown = tables.Peers(*references, {peer.name: peer.program for peer in league})
    report = Report("peers", options, build, options.seconds, shown.head, shown.row,
                    shown.foot).begin()
    bar, window, good = Bar(), contest.window(), True
    bar.of = len(options.threads) * len(options.keys)
    processes = options.processes or measure.PROCESSES
    for threads in options.threads:
        for keys in options.keys:
            if report.result["rows"] and options.format == "table":
                print()
            found = contest.run(program, bar, f"{short(keys)}/{threads} ", league, options.seconds,
                                keys=keys, threads=threads, limits=options.limits, window=window,
                                processes=processes)
            bar.done += 1
            bar.wipe()
            rates = {name: peer.result()["decisions_per_second"] for name, peer in found.items()}
            for name, peer in found.items():
                if peer.wrong:
                    good = False
                    print(f"stint-bench peers: {name}, {short(keys)} keys, {threads_of(threads)}: "
                          f"{peer.wrong}", file=sys.stderr)
                report.row({**peer.result(), **{
                    ratio: rates[best] / rates[name] if rates[best] and rates[name] else None
                    for ratio, best in zip(("ratio_take", "ratio_batch"), references)}})
    report.end()
    if not good:
        raise Failed("")


# ---- load ----

LOAD_HELP = """\
Arrival n is due at start + n / rate, whatever became of those before it. The generator waits
busily until then; an arrival that is due already is served at once. So what is told from due to
decided has the wait behind others, and what the machine does meanwhile.

The share of a core is the sum of the times of all decisions divided by the time that the run took.
Each is timed by itself, what reading the clock takes subtracted; so no decision overlaps the next.

Every arrival is counted: what was allowed and refused must be what the limiter counted. Exit
codes: 0 good, 1 wrong counts or not measured, 2 wrong usage."""


def load(program, arguments):
    parser = Parser("load", "Serves arrivals on a schedule, as a server with that many requests a "
                    "second does, and tells the share of a core that the decisions take, how long "
                    "they take, and how long after they were due they were done.", LOAD_HELP)
    parser.add_argument("--rate", type=count(1, 10**7, "from 1 to 10M"), default=RATE,
                        metavar="N",
                        help="arrivals a second, all threads together, 1 to 10M (400k)")
    parser.add_seconds(60, "of all processes, 0.001 to 3600")
    parser.add_argument("--keys", type=count(1, KEYS_MAX, "from 1 to 4G"), default=MILLION,
                        metavar="N", help="keys, drawn with weight 1/n^0.99 (zipf), 1 to 4G (1M)")
    parser.add_argument("--threads", type=threads_count, default=1, metavar="N", help="that share "
                        "the arrivals, each pinned to a core of its own (1)")
    parser.add_argument("--limit", action="append", metavar="L",
                        help="a policy in stint's notation; up to 16 times. An arrival asks for "
                        "one of them, equally often (10/second, 100/minute, 2000/hour)")
    parser.add_output(plot=False)
    options = parser.read(arguments)
    # Else what people set side by side: a burst, a steady rate, a quota.
    limits = options.limit or LIMITS
    with Driver(program) as driver:
        for limit in limits:
            driver.policy(limit)
    check_threads(options.threads, machine()["cores"])
    if options.rate * options.seconds < 1:
        raise Usage(f"--seconds {options.seconds:g}: nothing arrives in that time, at --rate "
                    f"{options.rate}")
    need = (options.keys * len(limits) * 64 + options.threads * 2**24 + 2**26 +
            8 * int(options.rate * options.seconds))
    if need > available():
        raise Usage(f"--keys {short(options.keys)} needs {gib(need)} of memory for {len(limits)} "
                    f"policies and the times of all arrivals, and {gib(available())} are free")
    programs = [program]
    report = Report("load", options, build_of(program), options.seconds, *tables.load(limits),
                    programs=programs)
    asked = {"rate": options.rate, "keys": options.keys, "threads": options.threads,
             "limits": limits}
    processes = options.processes or (PROCESSES_COMPARED if options.compare else measure.PROCESSES)
    *old, row = measure.load(programs, asked, options.seconds, processes, Bar())
    report.begin()
    report.row(row, *old)
    report.end()
    if not row["checked"]:
        raise Failed("wrong counts: the limiter counted other answers than it gave")


COMMANDS = {
    "run": (run, "what a core decides: four lines and a short table, or the rows you choose"),
    "peers": (peers, "the same decisions by tables behind locks, and by Redis"),
    "load": (load, "arrivals on a schedule: the share of a core, and how late each is decided"),
    "nginx": (None, "nginx without limits, with limit_req, with stint (bench/run only)"),
}


def bench(program, arguments):
    commands = "\n".join(f"  {name:8} {about}" for name, (_, about) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="stint-bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="stint-bench [COMMAND] [OPTIONS]",
        epilog=f"commands:\n{commands}\n\nWithout a command it does what `run` does. "
               "stint-bench COMMAND --help lists the\noptions of a command. Exit codes: 0 good, 1 "
               "failed, 2 wrong usage.")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("command", choices=[name for name in COMMANDS if name != "nginx"],
                        metavar="COMMAND", nargs="?")
    if not arguments or arguments[0].startswith("-") and arguments[0] not in ("-h", "--help",
                                                                              "--version"):
        arguments = ["run", *arguments]
    command = parser.parse_args(arguments[:1]).command
    if command is None:
        print("stint-bench", build_of(program)["version"])
        return 0
    return main(lambda: COMMANDS[command][0](program, arguments[1:]), Parser(command, ""))


if __name__ == "__main__":
    sys.exit(bench(sys.argv[1], sys.argv[2:]))
