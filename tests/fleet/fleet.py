#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A sticky fleet: three nginx nodes with stint's module behind HAProxy, and behind nginx, with the
configurations of this directory, over real HTTP on this host. Nodes stay, die, return, flap and leave;
every key's requests are counted.

    fleet.py MODULE_SO [TEST...]

STINT_TEST_SEED=N repeats the order of the requests of an earlier run.
"""
import collections
import http.client
import os
import queue
import random
import signal
import sys
import threading
import time
import unittest

from balancers import Application, Haproxy, NginxBalancer, Node, ask
from servers import HAPROXY, NGINX, stop_all, until

MODULE = "ngx_http_stint_module.so"
SEED = int(os.environ.get("STINT_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

LIMIT = 20
EXTRA = 4  # requests of a key above its limit
KEYS = [f"key-{i}" for i in range(48)]
THREADS = 6

# A window that does not end while a test runs. Windows are aligned to the epoch.
WEEK = 7 * 86400
WEEKS = next(weeks for weeks in (52, 51, 50) if -time.time() % (weeks * WEEK) > 3600)
POLICY = f"{LIMIT}/{WEEKS}w name=client"

ANSWERS = (200, 429)


class Traffic:
    """Requests of many keys, in an order drawn from the seed, by several connections at once. A
    request that fails (the node died under it) is asked again, as a client would."""

    def __init__(self, port, keys, each):
        self.port = port
        self.asked = queue.SimpleQueue()
        self.length = len(keys) * each
        order = list(keys) * each
        random.Random(SEED).shuffle(order)
        for key in order:
            self.asked.put(key)
        self.admitted = collections.Counter()
        self.nodes = collections.defaultdict(set)  # that answered a key
        self.failed = collections.Counter()  # by status
        self.answered = 0
        self.lock = threading.Lock()
        self.wrong = []
        self.threads = [threading.Thread(target=self.run) for _ in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        patience = time.monotonic() + 120
        try:
            while time.monotonic() < patience:
                try:
                    key = self.asked.get_nowait()
                except queue.Empty:
                    return
                if not self.one(connection, key):
                    self.asked.put(key)
                    time.sleep(0.02)
            self.wrong.append("120 s were not enough")
        except BaseException as error:
            self.wrong.append(repr(error))
            raise
        finally:
            connection.close()

    def one(self, connection, key):
        try:
            status, node = ask(self.port, [("X-Api-Key", key)], connection=connection)
        except (http.client.HTTPException, ConnectionError):
            connection.close()
            status, node = 0, None
        with self.lock:
            if status not in ANSWERS:
                self.failed[status] += 1
                return False
            self.answered += 1
            self.nodes[key].add(node)
            self.admitted[key] += status == 200
            return True

    def part_done(self, part):
        """Waits until this part of all requests was answered."""
        until(lambda: self.answered >= part * self.length or self.wrong, "answers")

    def end(self):
        for thread in self.threads:
            thread.join()
        if self.wrong:
            raise AssertionError(self.wrong)
        return self


class Fleet(unittest.TestCase):
    """Three nodes and one balancer. The tests of all balancers are in Sticky."""

    balancer_kind = None

    def started(self, server):
        self.addCleanup(server.close)
        return server.start()

    def setUp(self):
        self.application = self.started(Application())
        self.nodes = [self.started(Node(MODULE, self.application, POLICY)) for _ in range(3)]
        self.balancer = self.started(self.balancer_kind(self.nodes))
        self.total = collections.Counter()  # admitted, by key

    def spend(self):
        """Every key asks for more than its limit. Returns when all were answered."""
        traffic = Traffic(self.balancer.port, KEYS, LIMIT + EXTRA).end()
        self.total += traffic.admitted
        return traffic

    def one(self, key, balancer=None):
        """One request, which must be answered. Returns the node that did."""
        status, node = ask((balancer or self.balancer).port, [("X-Api-Key", key)])
        self.assertIn(status, ANSWERS)
        self.total[key] += status == 200
        return node

    def homes(self, node=None):
        """The node of each key, every node having some; and the keys of this one."""
        homes = {key: self.one(key) for key in KEYS}
        self.assertEqual(set(homes.values()), {each.port for each in self.nodes})
        return homes, [key for key in KEYS if node and homes[key] == node.port]

    def check_homes(self, traffic):
        """Each key got its limit, and from one node."""
        for key in KEYS:
            self.assertEqual((key, traffic.admitted[key], len(traffic.nodes[key])), (key, LIMIT, 1))

    def assert_totals(self, moved, limits):
        """Keys that were moved got so many limits, the others one."""
        self.assertEqual(self.total, {key: (limits if key in moved else 1) * LIMIT for key in KEYS})

    def assert_bounds(self, moved, limits):
        """Keys that were moved got one limit to so many, the others one."""
        for key in KEYS:
            self.assertGreaterEqual((key, self.total[key]), (key, LIMIT))
            self.assertLessEqual((key, self.total[key]), (key, (limits if key in moved else 1) * LIMIT))


class Sticky:
    def test_with_stable_nodes_each_key_gets_exactly_its_limit(self):
        traffic = self.spend()
        self.assertEqual(traffic.failed, {})
        self.check_homes(traffic)
        self.assertEqual(set.union(*traffic.nodes.values()), {node.port for node in self.nodes})

    def test_a_node_dies_and_returns_under_load(self):
        """Whatever happens to the requests that are under way: no key of another node gets more than
        its limit, and no key of this one more than two limits, as the node forgets nothing."""
        dead = self.nodes[1]
        homes, moved = self.homes(dead)
        traffic = Traffic(self.balancer.port, KEYS, 4 * LIMIT)
        traffic.part_done(0.2)
        dead.kill()
        traffic.part_done(0.5)
        dead.start()
        self.total += traffic.end().admitted
        self.assert_bounds(moved, 2)
        for key in set(KEYS) - set(moved):
            self.assertEqual((key, traffic.nodes[key]), (key, {homes[key]}))

    def test_a_node_that_crashes_again_and_again(self):
        """Only its keys move. They get one limit at the other node, and no more, as its zone is a file."""
        self.crashes(self.nodes[2], forgets=0)

    def test_a_node_that_crashes_again_and_again_and_forgets(self):
        """They get one limit more for each time that it returns."""
        node = self.nodes[2]
        node.kill()
        node.forgetful().start()
        self.back(node)
        self.crashes(node, forgets=1)

    def crashes(self, crashing, forgets, flaps=3):
        homes, moved = self.homes(crashing)
        self.spend()
        self.assert_totals(moved, 1)
        for flap in range(flaps):
            crashing.kill()
            self.balancer.sees(crashing, up=False)
            nodes = self.spend().nodes
            self.assert_totals(moved, 2 + forgets * flap)
            for key in KEYS:
                self.assertEqual((key, len(nodes[key])), (key, 1))
                self.assertEqual((key, nodes[key] != {homes[key]}), (key, key in moved))
            crashing.start()
            self.back(crashing, moved[0])
            nodes = self.spend().nodes
            self.assert_totals(moved, 2 + forgets * (flap + 1))
            self.assertEqual(nodes, {key: {home} for key, home in homes.items()})

    def test_a_reload_of_the_nodes_moves_and_forgets_nothing(self):
        traffic = Traffic(self.balancer.port, KEYS, 2 * LIMIT)
        for part, node in zip((0.2, 0.4, 0.6), self.nodes):
            traffic.part_done(part)
            node.reload(ending=False)
        traffic.end()
        self.check_homes(traffic)

    def test_a_second_key_in_the_request_buys_nothing(self):
        """Of two keys the first is hashed and counted, or the request is refused. What has another name
        is no key."""
        statuses = collections.Counter()
        for i in range(LIMIT):
            for headers in ([("X-Api-Key", "one"), ("X-Api-Key", f"other-{i}")],
                            [("X-Api-Key", "one"), ("x-api-key", f"other-{i}")],
                            [("X-Api-Key", "one"), ("X_Api_Key", f"other-{i}")],
                            [("X_Api_Key", f"other-{i}"), ("X-Api-Key", "one")]):
                statuses[ask(self.balancer.port, headers)[0]] += 1
        self.assertEqual(statuses[200], LIMIT)
        self.assertEqual(statuses[429] + statuses[400], 3 * LIMIT)

    def test_nobody_without_a_key(self):
        for headers in ([], [("X-Api-Key", "")], [("X-Api-Key", " ")]):
            self.assertEqual(ask(self.balancer.port, headers), (401, None))

    def test_nobody_but_the_balancer_reaches_a_node(self):
        """Nor uses up the limit of others by trying."""
        for _ in range(LIMIT):
            status, _ = ask(self.nodes[0].port, [("X-Api-Key", KEYS[0])], source="127.0.0.2")
            self.assertEqual(status, 403)
        self.spend()
        self.assert_totals([], 1)

    def test_balancers_agree(self):
        """On the nodes of keys, in whatever order they list the nodes, and if one of them has left."""
        homes, _ = self.homes()
        other = self.started(self.balancer_kind(self.nodes, *self.another_order))
        fewer = self.started(self.balancer_kind(self.nodes, *self.without_node1))
        for key in KEYS:
            self.assertEqual((key, self.one(key, other)), (key, homes[key]))
            if homes[key] != self.nodes[0].port:
                self.assertEqual((key, self.one(key, fewer)), (key, homes[key]))

    def test_what_is_not_consistent_moves_far_more(self):
        """So the tests above can tell the difference."""
        before, after = (self.started(self.balancer_kind(self.nodes, *self.not_consistent, *edit))
                         for edit in ([], self.without_node1))
        keys = [f"many-{i}" for i in range(240)]
        homes = {key: self.one(key, before) for key in keys}
        moved = [key for key in keys
                 if homes[key] != self.nodes[0].port and self.one(key, after) != homes[key]]
        self.assertGreater(len(moved), len(keys) / 5)


@unittest.skipUnless(HAPROXY, "there is no haproxy")
class BehindHaproxy(Sticky, Fleet):
    balancer_kind = Haproxy
    lines = [f"    server node{i} 10.0.0.1{i}:8080 id {i}\n" for i in (1, 2, 3)]
    another_order = [("".join(lines), lines[2] + lines[0] + lines[1])]
    without_node1 = [(lines[0], "")]
    not_consistent = [("    hash-type consistent\n", "")]

    def back(self, node, key=None):
        """Waits until the balancer sends the key, or any, to the node again."""
        self.balancer.sees(node, up=True)

    def test_checks_that_flap(self):
        """The node is well and forgets nothing, so two nodes count: twice the limit at most, however
        often its keys come and go."""
        node, flaps = self.nodes[0], 4
        sick = node.directory / "sick"
        node.kill()
        node.edit(("return 204;", f"if (-e {sick}) {{ return 503; }} return 204;"))
        node.start()
        self.balancer.sees(node, up=True)
        homes, moved = self.homes(node)
        self.spend()
        self.assert_totals(moved, 1)
        for _ in range(flaps):
            for up in (False, True):
                traffic = Traffic(self.balancer.port, KEYS, LIMIT // 4)  # across the change
                sick.unlink() if up else sick.touch()
                self.balancer.sees(node, up)
                self.total += traffic.end().admitted
                nodes = self.spend().nodes
                for key in moved:
                    self.assertEqual((key, nodes[key] == {node.port}), (key, up))
                self.assert_totals(moved, 2)

    def test_a_node_leaves_by_request_and_returns(self):
        """No request fails; its keys get at most one more limit, and none when it returns."""
        node = self.nodes[0]
        homes, moved = self.homes(node)
        traffic = Traffic(self.balancer.port, KEYS, 4 * LIMIT)
        traffic.part_done(0.2)
        node.drain.touch()
        self.balancer.sees(node, up=False)
        traffic.part_done(0.6)
        node.drain.unlink()
        self.balancer.sees(node, up=True)
        self.total += traffic.end().admitted
        self.assertEqual(traffic.failed, {})
        self.assert_bounds(moved, 2)

    def test_with_redispatch_no_request_waits_for_the_checks(self):
        """But a key may count on a third node, for one more limit (haproxy.cfg says so)."""
        self.balancer = self.started(Haproxy(self.nodes, ("    retries 2",
                                                          "    retries 2\n    option redispatch 1")))
        dead = self.nodes[0]
        homes, moved = self.homes(dead)
        traffic = Traffic(self.balancer.port, KEYS, 4 * LIMIT)
        traffic.part_done(0.2)
        dead.kill()
        self.total += traffic.end().admitted
        # A request that was under way when the node died fails as it would without (502).
        self.assertEqual(traffic.failed[503], 0)
        self.assert_bounds(moved, 3)


class BehindNginx(Sticky, Fleet):
    balancer_kind = NginxBalancer
    lines = [f"        server 10.0.0.1{i}:8080 max_fails=2 fail_timeout=1s;\n" for i in (1, 2, 3)]
    another_order = [("".join(lines), lines[2] + lines[0] + lines[1])]
    without_node1 = [(lines[0], "")]
    not_consistent = [("hash $http_x_api_key consistent;", "hash $http_x_api_key;")]

    def back(self, node, key=None):
        """Waits until the balancer sends the key, or any, to the node again."""
        until(lambda: node.port in [self.one(each) for each in ([key] if key else KEYS)], "the node to be tried again")


if __name__ == "__main__":
    MODULE = os.path.abspath(sys.argv.pop(1))
    print(f"STINT_TEST_SEED={SEED}", file=sys.stderr)
    signal.signal(signal.SIGTERM, stop_all)
    if not NGINX:
        print("there is no nginx", file=sys.stderr)
        sys.exit(77)
    unittest.main()
