#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the limits of a fleet are off when its nodes change, behind a load balancer that sends
each key to one node.

    simulate.py FLEET_SIMULATION [OPTIONS]      simulate.py FLEET_SIMULATION --help
"""
import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from driver import (Driver, Failed, Parser, Usage, available, count, gib,  # noqa: E402
                    list_of, main, one_of, short)
from plot import GREY, Picture  # noqa: E402
from report import Report  # noqa: E402

BALANCERS = ["haproxy", "nginx", "envoy-ring", "envoy-maglev", "modulo"]
CHURNS = ["death", "crashes", "deploy", "flap", "stable"]
DEMANDS = ["greedy", "steady", "zipf"]
RESTARTS = ["forgets", "keeps"]
DEPLOY_WINDOWS = 5  # every key is moved in each: a few windows say it all

HELP = """\
balancers: haproxy (consistent), nginx (consistent), envoy-ring, envoy-maglev, modulo (what is not
consistent)

churn: what happens to the nodes
  death         in every window one node dies at some instant, and returns
  crashes       every node dies now and then, whatever the others do (--between)
  deploy        in every window all nodes restart, one after the other
  flap          the health checks of one node in every window fail and pass 5 times; the node is
                well and forgets nothing
  stable        nothing

demand: what the keys ask for
  greedy        all that they can get at every instant: the worst case
  steady        twice their limit, evenly over the window
  zipf          the nth key's part is 1/n^0.99 of a quarter of all limits, evenly

Without --balancer, --churn and --demand: death for all balancers, all churns and all demands for
haproxy. Nobody gets an answer from a node that is down: the time until the balancer notices loses
requests, and admits nothing.
Exit codes: 0 good, 1 a bound was passed, 2 wrong usage."""

FOOT = """
busiest  keys of the busiest node, in times the mean
moved    part of the keys that one change (a node away, a node back) moved, the mean
moves    most changes of node of one key in one window
restart  a node that returns forgets what it counted, or keeps it (it never stopped, or
         its table is in a file that outlives it)
over     keys that got more than their limit, of all keys in all windows
mean, p99, max   what keys got above it in a window, in percent of the limit
theory   the mean to expect of consistent hashing: a whole limit more from each node
         that does not know the key
Checked in every row: no key gets more in a window than (1 + its moves) limits.
"""


def make_parser():
    parser = Parser("fleet", "Simulates a fleet of nodes that count for themselves, behind a load "
                    "balancer that sends each key to one node, and tells how far the limits are "
                    "off when the nodes change.", HELP)
    parser.add_argument("--nodes", type=list_of(count(2, 10000, "from 2 to 10k")), metavar="N,..",
                        default=[10, 30, 100, 300, 1000], help="2 to 10k each (10,30,100,300,1k)")
    for name, names in ("balancer", BALANCERS), ("churn", CHURNS), ("demand", DEMANDS):
        parser.add_argument(f"--{name}", type=list_of(one_of(names, f"no {name}")),
                            metavar=f"{name[0].upper()},..", help="see below")
    parser.add_argument("--keys", type=count(1, 10**6, "from 1 to 1M"), default=10000, metavar="N",
                        help="1 to 1M (10k)")
    parser.add_argument("--limit", default="100/hour", metavar="L",
                        help="of each key: a plain policy in stint's notation (100/hour)")
    parser.add_argument("--windows", type=count(1, 100000, "from 1 to 100k"), default=100,
                        metavar="N", help="1 to 100k; deploy has 5 (100)")
    parser.add_argument("--down", default="30s", metavar="T",
                        help="how long a node is away, such as 30s or 5m; less than a window (30s)")
    parser.add_argument("--between", default="1d", metavar="T",
                        help="crashes: how long a node is up, in the mean (1d)")
    parser.add_argument("--weight", type=count(1, 256, "from 1 to 256"), metavar="W",
                        help="of each node, for haproxy and nginx, 1 to 256 (haproxy 16, nginx 1)")
    parser.add_argument("--seed", type=count(0, 2**64 - 1, "from 0 on"), default=1, metavar="N",
                        help="of all that is random (1)")
    parser.add_output(compare=False)
    return parser


def read_time(driver, name, text):
    """A time such as 30s, ns: what may stand behind "1/" in the notation of policies."""
    policy = {} if re.search(r"[ \t/]", text) else driver.ask("policy", text=f"1/{text}")
    if "window" not in policy:
        raise Usage(f"--{name}: '{text}' is not a time such as 30s, 10m or 7d, of 10 ms to 366 "
                    "days")
    return policy["window"]


def read_limit(driver, text):
    policy = driver.policy(text)
    if not policy["plain"]:
        raise Usage(f"--limit '{text}': only a count and a window are simulated")
    return policy


def plan(options):
    """What is simulated: balancer, churn, demand."""
    if options.balancer or options.churn or options.demand:
        return itertools.product(options.balancer or ["haproxy"], options.churn or ["death"],
                                 options.demand or ["greedy"])
    return ([(balancer, "death", "greedy") for balancer in BALANCERS] +
            [("haproxy", "death", demand) for demand in ("steady", "zipf")] +
            [("haproxy", churn, "greedy") for churn in ("crashes", "deploy", "flap")])


def rows_of(options, window, down, between):
    for (balancer, churn, demand), nodes in itertools.product(plan(options), options.nodes):
        yield {"balancer": balancer, "churn": churn, "demand": demand, "nodes": nodes,
               "weight": options.weight or (16 if balancer == "haproxy" else 1),
               "keys": options.keys, "limit": options.limit,
               "windows": min(options.windows, DEPLOY_WINDOWS) if churn == "deploy"
               else options.windows,
               # As the program reads it: 64 bits with a sign.
               "seed": (options.seed + 2**63) % 2**64 - 2**63, "down": down, "between": between}


def table(row):
    lines = []
    start = (f"{row['balancer']:12} {row['churn']:7} {row['demand']:6} {row['nodes']:5} "
             f"{row['busiest']:7.2f} {row['moved'] * 100:5.2f}% {row['moves_max']:5} ")
    for restart in RESTARTS:
        if restart in row:
            out = row[restart]
            theory = "" if out["theory"] is None else f"{out['theory']:.3f}%"
            over = out["over"] * 100 / (row["windows"] * row["keys"])
            lines.append(f"{'' if lines else start:54}{restart:7} {over:6.2f}% {out['mean']:7.3f}% "
                         f"{theory:>8} {out['p99']:4.0f}% {out['max']:4.0f}%")
    if row["passed"] or row["untracked"]:
        lines.append(f"WRONG: {row['passed']} keys passed their bound, {row['untracked']} "
                     "decisions were not counted")
    return "\n".join(lines)


# ---- Pictures ----

FLEET_AXES = ("set logscale xy\nset autoscale xfix\nset offsets graph 0.04,graph 0.04,0,0\n"
              "set ytics ('0.01%%' 0.01,'0.1%%' 0.1,'1%%' 1,'10%%' 10,'100%%' 100,'1000%%' 1000)\n"
              "set xtics (2,3,5,10,30,100,300,1000,3000,10000)\n")


def churn_picture(rows):
    """One balancer, whatever happens to the nodes."""
    picture = Picture(
        "fleet", "What a key gets above its limit in a window, in the mean, if it takes all it can",
        "nodes behind HAProxy, consistent hashing", "in percent of the limit", FLEET_AXES)
    for colour, churn in enumerate(("deploy", "death", "crashes", "flap")):
        for restart in "forgets", "keeps":
            for row in rows:
                if ((row.get("balancer"), row.get("demand"), row.get("churn")) !=
                        ("haproxy", "greedy", churn) or not row.get(restart, {}).get("mean")):
                    continue  # 0 has no place on a logarithmic axis
                name = f"{churn}, node {restart}" if "forgets" in row else churn
                faint = "forgets" in row and restart == "keeps"
                picture.curve(name, colour, faint).add(row["nodes"], row[restart]["mean"])
    return picture


def balancer_picture(rows):
    """All balancers, by the same deaths."""
    picture = Picture(
        "balancers", "What a key gets above its limit if one node dies and returns in each window",
        "nodes", "in percent of the limit", FLEET_AXES)
    rows = [row for row in rows if row.get("churn") == "death"]
    for row in rows:
        if row["demand"] == "greedy" and row["forgets"]["mean"]:
            picture.curve(row["balancer"]).add(row["nodes"], row["forgets"]["mean"])
    if len(picture.curves) < 2:  # nothing to compare
        picture.curves.clear()
        return picture
    for row in rows:
        # What consistent hashing leads one to expect.
        if row["balancer"] == "haproxy" and row["forgets"]["theory"]:
            picture.curve("two limits for 1 of N keys", GREY, True).add(row["nodes"],
                                                                       row["forgets"]["theory"])
    return picture


# ---- The rows ----

def run(driver, options):
    policy = read_limit(driver, options.limit)
    window = policy["window"]
    down, between = (read_time(driver, name, getattr(options, name))
                     for name in ("down", "between"))
    if (options.windows + 2) * window > 2**63:
        raise Usage(f"--windows {options.windows}: so many windows of that length are more than "
                    "292 years")
    if down >= window:
        raise Usage("--down: a node must be away for less than the limit's window")
    rows, have = list(rows_of(options, window, down, between)), available()
    for row in rows:
        need = driver.ask("memory", **row)["bytes"]
        if need > have:
            raise Usage(f"{row['churn']} with {row['nodes']} nodes, {row['balancer']}, needs "
                        f"{gib(need)} of memory, and {gib(have)} are free")

    def head():
        return (f"seed {options.seed}\nfleet    {short(options.keys)} keys, each "
                f"{options.limit:.40}; a node that is away returns after {down / 1e9:g} s\n\n"
                f"{'balancer':12} {'churn':7} {'demand':6} {'nodes':>5} {'busiest':>7} "
                f"{'moved':>6} {'moves':>5} {'restart':7} {'over':>7} {'mean':>8} {'theory':>8} "
                f"{'p99':>5} {'max':>5}")

    report = Report("fleet", options, driver.ask("build"), 0, head, table,
                    lambda: FOOT, (churn_picture, balancer_picture)).begin()
    wrong = False
    driver.of = len(rows)
    for driver.done, row in enumerate(rows):
        answer = driver.ask("simulate", **row)
        driver.wipe()
        shown = {**row, "limit": policy["limit"], "window_s": window / 1e9, "down_s": down / 1e9,
                 "between_s": between / 1e9, "seed": options.seed, **answer}
        report.row({name: value for name, value in shown.items()
                    if name not in ("down", "between")})
        wrong = wrong or bool(answer["passed"] or answer["untracked"])
        if wrong:
            break
    report.end()
    if wrong:
        raise Failed("a bound was passed")


def simulate(program, arguments):
    parser = make_parser()

    def work():
        options = parser.read(arguments)
        with Driver(program) as driver:
            run(driver, options)
    return main(work, parser)


if __name__ == "__main__":
    sys.exit(simulate(sys.argv[1], sys.argv[2:]))
