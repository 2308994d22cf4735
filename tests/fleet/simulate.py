#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the limits of a fleet are off when its nodes change, behind a balancer that sends each key to
one node: the table of tests/fleet/README.md, in which each node grants a key its limit once in a window, as
long as it knows it.

    simulate.py                 prints the table
    simulate.py --weight W      prints how many times its part the busiest of 100 nodes of HAProxy has
    simulate.py --test          checks what can be worked out by hand, and the page's table
"""
import bisect
import collections
import functools
import random
import sys
import unittest
from pathlib import Path

PAGE = Path(__file__).with_name("README.md")
NODES = 10, 100, 1000
KEYS, WINDOWS, DOWN = 3000, 100, 30 / 3600  # a window is an hour, and of length 1
# Of each row: the balancer, what happens, whether a node forgets, and what keys ask for in a window, in
# limits; None: all that they can get at any instant.
ROWS = (
    ("one node dies in each window, returns, and forgets", "haproxy", "death", True, None),
    ("the same, nothing forgotten", "haproxy", "death", False, None),
    ("every node crashes once a day on average, and forgets", "haproxy", "crashes", True, None),
    ("the same, nothing forgotten", "haproxy", "crashes", False, None),
    ("a deploy in each window, and nodes forget", "haproxy", "deploy", True, None),
    ("a deploy in each window, nothing forgotten", "haproxy", "deploy", False, None),
    ("one node dies and returns; keys ask for twice their limit, evenly", "haproxy", "death", True, 2),
    ("not consistent (`map-based`): one node dies and returns", "modulo", "death", True, None),
)


class Haproxy:
    """hash-type consistent: 16 points by weight; a key is the node's whose point is the nearest of those that are
    up. Of each key the four nearest nodes are known: more are never away at once."""

    def __init__(self, chance, nodes, keys, weight=16):
        points = sorted((chance.random(), node) for node in range(nodes) for _ in range(16 * weight))
        self.orders = [self.nearest(points, chance.random(), min(4, nodes)) for _ in range(keys)]
        self.of = collections.defaultdict(list)
        for key, order in enumerate(self.orders):
            for node in order:
                self.of[node].append(key)

    @staticmethod
    def nearest(points, at, count):
        after = bisect.bisect(points, (at,))
        before, found = after - 1, []
        while len(found) < count:
            ahead, behind = points[after % len(points)], points[before % len(points)]
            forwards = (ahead[0] - at) % 1 < (at - behind[0]) % 1
            node = ahead[1] if forwards else behind[1]
            after, before = after + forwards, before - (not forwards)
            if node not in found:
                found.append(node)
        return found

    def may_move(self, node):
        return self.of[node]

    def home(self, key, away):
        return next((node for node in self.orders[key] if node not in away), None)


class Modulo:
    """HAProxy's map-based, its default: the hash modulo the nodes that are up."""

    def __init__(self, chance, nodes, keys):
        self.nodes, self.hashes = nodes, [chance.randrange(1 << 32) for _ in range(keys)]

    def may_move(self, _):
        return range(len(self.hashes))

    def home(self, key, away):
        at = self.hashes[key] % (self.nodes - len(away))
        for node in sorted(away):
            at += at >= node
        return at


def absences(chance, what, nodes, windows):
    """When a node is away, and which, in order; none twice at once."""
    found, back = [], [0] * nodes
    if what == "death":
        found = [(window + chance.random(), chance.randrange(nodes)) for window in range(windows)]
    if what == "crashes":  # once in 24 windows
        for node in range(nodes):
            at = chance.expovariate(1 / 24)
            while at < windows:
                found.append((at, node))
                at += DOWN + chance.expovariate(1 / 24)
    if what == "deploy":
        found = [(window + (node + 0.5) / nodes, node) for window in range(windows) for node in range(nodes)]
    for at, node in sorted(found):
        if at >= back[node]:
            back[node] = at + DOWN
            yield at, node


def granted(visits, forgets, asks):
    """What a key got in a window, in limits: of each node its limit, or again if that has forgotten."""
    known = {}
    for node, forgot, begin, end in visits:
        if node is not None:
            of = node, forgot if forgets else 0
            known[of] = min(1, known.get(of, 0) + (1 if asks is None else asks * (end - begin)))
    return sum(known.values())


@functools.lru_cache(4)
def simulate(*fleet):
    return list(simulated(*fleet))


def simulated(balancer, what, nodes, keys, windows):
    """The visits of each key in each window in which it moves."""
    chance = random.Random(1)
    route = (Haproxy if balancer == "haproxy" else Modulo)(chance, nodes, keys)
    events = sorted(event for at, node in absences(chance, what, nodes, windows)
                    for event in ((at, node, True), (at + DOWN, node, False)))
    away, forgot, moved, window = set(), [0] * nodes, {}, 0
    at_home, at_forgot = [route.home(key, away) for key in range(keys)], [0] * keys

    def ended():
        for key, (visits, since) in moved.items():
            yield [*visits, (at_home[key], at_forgot[key], since, window + 1)]

    for at, node, leaves in [*events, (windows, None, None)]:
        while at >= window + 1:
            yield from ended()
            moved, window = {}, window + 1
        if node is None:
            return
        (away.add if leaves else away.remove)(node)
        forgot[node] += not leaves
        for key in route.may_move(node):
            home = route.home(key, away)
            if home != at_home[key]:
                visits, since = moved.get(key, ([], window))
                moved[key] = [*visits, (at_home[key], at_forgot[key], since, at)], at
                at_home[key], at_forgot[key] = home, 0 if home is None else forgot[home]


def percent(balancer, what, forgets, asks, nodes, keys=KEYS, windows=WINDOWS):
    """What a key got above its limit in the mean, in percent of it."""
    windows = min(windows, 5 if what == "deploy" else 20 if balancer == "modulo" else windows)  # all keys move in each
    over = sum(max(0, granted(visits, forgets, asks) - 1) for visits in simulate(balancer, what, nodes, keys, windows))
    return 100 * over / keys / windows


def busiest(weight):
    keys = collections.Counter(order[0] for order in Haproxy(random.Random(1), 100, 100000, weight).orders)
    return max(keys.values()) / 1000


def table():
    lines = [f"| HAProxy, consistent | {NODES[0]} nodes | 100 | 1,000 |", "|---|---|---|---|"]
    for name, *row in ROWS:
        figures = [percent(*row, nodes) for nodes in NODES]
        digits = 0 if figures[0] > 50 else 2 if figures[-1] < 1 else 1
        lines.append(f"| {name} | " + " | ".join(f"{figure:.{digits}f}%" for figure in figures) + " |")
    return "\n".join(lines) + "\n"


class Simulated(unittest.TestCase):
    def test_two_nodes(self):
        """A deploy moves each key to the other node and back: three limits if nodes forget, or two."""
        for balancer in "haproxy", "modulo":
            for forgets, extra in (True, 200), (False, 100):
                self.assertAlmostEqual(percent(balancer, "deploy", forgets, None, 2, 1000, 3), extra)
            self.assertEqual(percent(balancer, "stay", True, None, 2, 1000, 3), 0)

    def test_a_death(self):
        """1/N of the keys get two limits more, or one; who asks for twice his limit gets half of one."""
        for row in (True, None, 200), (False, None, 100), (True, 2, 50):
            self.assertAlmostEqual(percent("haproxy", "death", *row[:2], 30) * 30 / row[2], 1, delta=0.12)
        self.assertAlmostEqual(percent("modulo", "death", False, None, 10), 90, delta=6)

    def test_the_page(self):
        self.assertIn("\n" + table(), PAGE.read_text())
        self.assertTrue(1.05 < busiest(16) < 1.2 and 1.3 < busiest(1), (busiest(16), busiest(1)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--test"]:
        unittest.main(argv=sys.argv[:1])
    print(f"{busiest(int(sys.argv[2])):.2f}\n" if sys.argv[1:2] == ["--weight"] else table(), end="")
