#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A sticky fleet: three nodes behind HAProxy, nginx and Varnish, by the files of doc/nodes, over real HTTP in
a network of their own. Nodes stay, die, return, leave and are deployed to; every client's requests are counted.

    fleet.py MODULE_SO STINT [TEST...]

STINT_TEST_SEED=N repeats what an earlier run drew.
"""
import collections
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from hosts import (NODES, Haproxy, Host, NginxBalancer, Node, Varnish, ask, enter, over_and_over, run, stand_in_for_ssh,
                   until)

MODULE, STINT = "ngx_http_stint_module.so", "stint"
SEED = int(os.environ.get("STINT_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
RANDOM = random.Random(SEED)

LIMIT = 5
EXTRA = 2  # requests of a client above its limit
THREADS = 4
ANSWERS = (200, 429)

# A window that does not end while a test runs. Windows are aligned to the epoch.
WEEK = 7 * 86400
WEEKS = next(weeks for weeks in (52, 51, 50) if -time.time() % (weeks * WEEK) > 3600)
LIMITS = [(f"{limit} name={name}", f"{LIMIT}/{WEEKS}w name={name}")
          for limit, name in (("100/minute", "client"), ("100/minute", "guest"), ("10/hour", "login"))]

APPLICATION = "events {} http { access_log off; server { listen 127.0.0.1:9000; return 200; } }"
DEPLOY = ("nginx -c /run/nginx.conf -s quit; while [ -e /run/nginx.pid ]; do sleep 0.1; done; "
          "nginx -c /run/nginx.conf")


class Client:
    """One whom the nodes count as one: a `key`; or an address, or network of IPv6: as `guest`, without a key,
    or at `login`, whatever its key."""

    def __init__(self, kind, name):
        self.kind, self.name = kind, name

    def request(self):
        """Path, fields and address. What does not count is another each time."""
        any_ = RANDOM.randrange(1, 250)
        if self.kind == "key":
            return "/", [("X-Api-Key", self.name)], RANDOM.choice([f"203.0.113.{any_}", f"2001:db8:ffff:{any_:x}::1"])
        return ("/" if self.kind == "guest" else "/login",
                [("X-Api-Key", f"any-{any_}")] if self.kind == "login" and any_ % 2 else [],
                f"{self.name}:{any_ % 3:x}::{any_:x}" if self.name.count(":") == 3 else self.name)

    def ask(self, *more):
        path, fields, source = self.request()
        return ask("2001:db8::1" if ":" in source else "10.0.0.1", path, [*fields, *more], source)[0]

    def __repr__(self):
        return f"{self.kind} {self.name}"


NUMBERS = itertools.count(1)


def clients():
    """Of all kinds; no test has seen them before."""
    def v4():
        number = next(NUMBERS)
        return f"198.18.{number // 250}.{number % 250 + 1}"

    def v6():
        number = next(NUMBERS)
        return f"2001:db8:{number % 3 * number:x}:{number:x}"

    return ([Client("key", f"key-{next(NUMBERS)}") for _ in range(8)] +
            [Client(kind, address()) for kind in ("guest", "login") for address in (v4, v6) for _ in range(3)])


class Traffic:
    """Requests of all clients over and over, several at once, as long as `with` lasts."""

    def __init__(self, everybody):
        self.everybody = everybody
        self.admitted, self.answered = collections.Counter(), collections.Counter()
        self.failed = collections.Counter()  # by status
        self.lock, self.running = threading.Lock(), over_and_over(self.round, THREADS)

    def round(self, _):
        for client in RANDOM.sample(self.everybody, len(self.everybody)):
            status = client.ask()
            with self.lock:
                self.admitted[client] += status == 200
                self.answered[client] += status in ANSWERS
                if status not in ANSWERS:
                    self.failed[status] += 1
        time.sleep(0.01)

    def spend(self):
        """Waits until everybody was answered more often than his limit."""
        before = self.answered.copy()
        until(lambda: all(self.answered[client] - before[client] >= LIMIT + EXTRA + THREADS
                          for client in self.everybody), "answers", 60)

    def __enter__(self):
        self.running.__enter__()
        return self

    def __exit__(self, *error):
        return self.running.__exit__(*error)


class Fleet:
    """Three nodes and one balancer, whose kind the classes below name."""

    @classmethod
    def setUpClass(cls):
        cls.application = Host()
        cls.application.file("/run/nginx.conf").write_text(APPLICATION)
        cls.application.run("nginx -c /run/nginx.conf")
        cls.nodes = [Node(number, MODULE, LIMITS) for number in (1, 2, 3)]
        cls.balancer = cls.kind()
        for host in [*cls.nodes, cls.balancer]:
            host.start()
        cls.balancer.sees(3)
        cls.ssh = stand_in_for_ssh({"10.0.0.1": cls.balancer, **{node.address: node for node in cls.nodes}})

    @classmethod
    def tearDownClass(cls):
        for host in [*cls.nodes, cls.balancer, cls.application]:
            host.close()
        shutil.rmtree(cls.ssh)

    def setUp(self):
        self.everybody = clients()
        self.total = collections.Counter()

    def spend(self):
        """Everybody asks for more than his limit."""
        with Traffic(self.everybody) as traffic:
            traffic.spend()
        self.total += traffic.admitted
        return traffic

    def edit(self, *pairs):
        """Other words in the files of all nodes, as long as the test lasts."""
        for node in self.nodes:
            node.edit(*pairs)
            self.addCleanup(node.edit, *((new, old) for old, new in pairs))

    def rebalance(self, *edit):
        """Another balancer, as long as the test lasts."""
        self.addCleanup(self.balancer.restart)
        self.balancer.restart(*edit)

    def home(self, client):
        """The node that an operator finds."""
        _, fields, source = client.request()
        return self.balancer.home(fields if client.kind == "key" else [("X-Client", source)])

    def homes(self):
        return {client: self.home(client) for client in self.everybody}

    def of(self, node):
        """Whose node it is."""
        return {client for client, home in self.homes().items() if home == node.address}

    def check(self, moved, limits, *traffics):
        """Clients that moved got so many limits, the others one."""
        for traffic in traffics:
            self.total += traffic.admitted
        self.assertEqual({client: self.total[client] for client in self.everybody},
                         {client: (limits if client in moved else 1) * LIMIT for client in self.everybody})

    def script(self, text, **environment):
        status, said = run(["sh", "-ec", text],
                           {**os.environ, "PATH": f"{self.ssh}:{os.environ['PATH']}", **environment})
        self.assertEqual(status, 0, said)
        return said

    def test_nodes_that_stay(self):
        """Everybody gets exactly his limit, from a node of his own."""
        traffic = self.spend()
        self.assertEqual(traffic.failed, {})
        self.check([], 1)
        self.assertEqual(set(self.homes().values()), {node.address for node in self.nodes})
        self.assertEqual(ask("10.0.0.1")[1].get("X-Node"), None)

    def test_a_reload_of_the_nodes_moves_and_forgets_nothing(self):
        with Traffic(self.everybody) as traffic:
            for node in self.nodes:
                traffic.spend()
                node.run("nginx -c /run/nginx.conf -s reload")
            traffic.spend()
        self.check([], 1, traffic)

    def test_a_node_dies_and_returns(self):
        """Only its clients move. They get one limit at the other node, and no more if it returns as it was; one
        more if it has forgotten."""
        node = self.nodes[1]
        moved = self.of(node)
        homes = self.homes()
        with Traffic(self.everybody) as traffic:
            traffic.spend()
            for limits in (2, 2, 3):
                node.kill()
                self.balancer.sees(2)
                traffic.spend()
                if limits == 3:
                    node.file("/run/stint/clients").unlink()
                node.start()
                self.balancer.sees(3)
                until(lambda: self.homes() == homes, "all to be at home")
                traffic.spend()
                self.total = traffic.admitted.copy()
                self.check(moved, limits)

    def test_a_rolling_deploy(self):
        """No request fails, and nobody gets more than two limits."""
        with Traffic(self.everybody) as traffic:
            traffic.spend()
            said = self.script(f"{NODES}/rolling-deploy '{DEPLOY}'", **self.deploy)
            traffic.spend()
        self.assertEqual(said.split("\n")[-2], "10.0.0.13 is done")
        self.assertEqual(traffic.failed, {})
        for client in self.everybody:
            self.assertIn(traffic.admitted[client], range(LIMIT, 2 * LIMIT + 1), client)

    def test_a_node_is_removed_and_added(self):
        """And the order of the lines does not matter."""
        node, homes = self.nodes[2], self.homes()
        moved = self.of(node)
        self.spend()
        self.balancer.restart(*self.balancer.without(node))
        self.assertEqual({client for client in self.everybody if self.home(client) != homes[client]}, moved)
        self.spend()
        self.balancer.restart(*self.balancer.turned())
        self.assertEqual(self.homes(), homes)
        self.spend()
        self.check(moved, 2)
        self.balancer.restart()

    def test_what_else_a_request_says_buys_nothing(self):
        key, guest, login = Client("key", "one"), Client("guest", "192.0.2.1"), Client("login", "192.0.2.1")
        admitted = collections.Counter()
        for i in range(2 * LIMIT):
            for more in (("X-Api-Key", f"other-{i}"), ("x-api-key", f"other-{i}"), ("X_Api_Key", f"other-{i}"),
                         ("X-Hashed-By", "ip"), ("X-Forwarded-For", f"192.0.2.{i + 2}")):
                admitted["key"] += key.ask(more) == 200
            for more in (("X-Api-Key", ""), ("X-Api-Key", " "), ("X-Hashed-By", "key"),
                         ("X-Forwarded-For", f"192.0.2.{i + 2}"), ("X-Real-IP", f"192.0.2.{i + 2}")):
                admitted["guest"] += guest.ask(more) == 200
                admitted["login"] += login.ask(more) == 200
            for path in ("/%6cogin", "//login", "/x/../login"):
                admitted["login"] += ask("10.0.0.1", path, [("X-Api-Key", f"other-{i}")], "192.0.2.1")[0] == 200
        self.assertEqual(admitted, {"key": LIMIT, "guest": LIMIT, "login": LIMIT})

    def test_nobody_but_the_balancer_reaches_a_node(self):
        """Nor uses up the limit of others by trying."""
        for client in self.everybody:
            for node in self.nodes:
                self.assertEqual(ask(node.address, "/", [("X-Api-Key", client.name), ("X-Hashed-By", "key")],
                                     "192.0.2.1", port=8080)[0], 403)
        self.spend()
        self.check([], 1)

    def test_logs_and_fail2ban_name_the_client(self):
        client = self.everybody[-1]
        while client.ask() == 200:
            pass
        node = next(node for node in self.nodes if node.address == self.home(client))
        log = node.file("/var/log/nginx/error.log")
        self.assertIn(f"client: {client.name}", log.read_text())
        self.assertIn(f"\n{client.name}", node.file("/var/log/nginx/access.log").read_text())
        if shutil.which("fail2ban-regex"):
            found = subprocess.run(["fail2ban-regex", "--out", "ip", str(log),
                                    str(NODES.parents[1] / "src" / "nginx" / "fail2ban-filter.conf")],
                                   stdout=subprocess.PIPE, text=True, check=False).stdout
            self.assertIn(client.name, found)
            self.assertNotIn("10.0.0.1\n", found)

    def test_a_change_on_all_nodes(self):
        """The page's loop: whoever is refused stays so wherever his key goes."""
        page = (NODES.parent / "several-nodes.md").read_text()
        loop = re.search(r"```sh\n(on_all\(\) .*?\n}\n)", page, re.DOTALL)[1]
        with tempfile.TemporaryDirectory() as tools:
            (Path(tools) / "stint").symlink_to(STINT)
            commands = [f"PATH=$PATH:{tools}", loop]
            for client in self.everybody:
                name = f"client {client.name}" if client.kind == "key" else f"{client.kind} {client.request()[2]}"
                form = "" if client.kind == "key" else "--address=32,64"
                commands.append(f"on_all stint override --for 1h {form} /run/stint/clients {name} 0")
            self.script("\n".join(commands))
        node = self.nodes[0]
        self.assertEqual(sum(client.ask() == 200 for client in self.everybody), 0)
        node.kill()
        self.balancer.sees(2)
        self.assertEqual(sum(client.ask() == 200 for client in self.everybody), 0)
        node.start()
        self.balancer.sees(3)


class Checked(Fleet):
    """The balancer checks its nodes' health."""

    def test_a_node_leaves_and_returns(self):
        """Asked to leave, no request fails. Two nodes count, however often."""
        node = self.nodes[0]
        moved = self.of(node)
        with Traffic(self.everybody) as traffic:
            traffic.spend()
            for _ in range(2):
                node.file("/run/stint-drain").touch()
                self.balancer.sees(2)
                traffic.spend()
                node.file("/run/stint-drain").unlink()
                self.balancer.sees(3)
                traffic.spend()
        self.assertEqual(traffic.failed, {})
        self.check(moved, 2, traffic)

    def test_a_table_that_is_cut_off(self):
        """Its node lets everybody through, so the balancer has to take it out."""
        node = self.nodes[0]
        self.assertEqual(ask(node.address, "/health", source="10.0.0.1", port=8080)[0], 204)
        os.truncate(node.file("/run/stint/clients"), 0)
        self.balancer.sees(2)
        self.assertEqual(ask(node.address, "/health", source="10.0.0.1", port=8080)[0], 503)
        self.spend()
        self.check([], 1)
        node.file("/run/stint/clients").unlink()
        node.run("nginx -c /run/nginx.conf -s reload")
        self.balancer.sees(3)


class BehindHaproxy(Checked, unittest.TestCase):
    kind, deploy = Haproxy, {}

    def test_a_ladder(self):
        """Hashed by its widest prefix, a network has its limit on one node."""
        self.edit(("login $address prefix=32,64", "login $address prefix=24,48"))
        self.rebalance(("ipmask(32,64)", "ipmask(24,48)"))
        for network in ("198.19.1.%d", "198.19.2.%d", "2001:db8:a1:%d::1", "2001:db8:a2:%d::1"):
            self.assertEqual(sum(Client("login", network % i).ask() == 200 for i in range(1, 4 * LIMIT)), LIMIT)

    def test_redispatch(self):
        """No request waits for the checks, but a key may count on a third node."""
        self.rebalance(("    retries 2", "    retries 2\n    option redispatch 1"))
        moved = self.of(self.nodes[0])
        with Traffic(self.everybody) as traffic:
            traffic.spend()
            self.nodes[0].kill()
            traffic.spend()
        self.nodes[0].start()
        self.assertEqual(traffic.failed[503], 0)
        for client in self.everybody:
            self.assertLessEqual(traffic.admitted[client], (3 if client in moved else 1) * LIMIT)

    def test_outage_of_who_observes_refusals(self):
        """One client that is refused takes out all nodes."""
        self.edit(("stint_status  429", "stint_status  503"))
        self.rebalance(("rise 4", "rise 100 observe layer7 error-limit 10 on-error mark-down"))
        for _ in range(40 * LIMIT):
            self.everybody[0].ask()
        self.assertEqual(self.balancer.run(self.balancer.UP).strip(), "0")
        self.assertEqual(self.everybody[1].ask(), 503)

    def test_outage_of_who_repeats_refusals(self):
        """Everybody gets the limits of two nodes."""
        self.edit(("stint_status  429", "stint_status  503"))
        self.rebalance(("    retries 2", "    retries 2\n    option redispatch 1\n    retry-on all-retryable-errors"))
        for client in self.everybody:
            self.assertGreater(sum(client.ask() == 200 for _ in range(4 * LIMIT)), LIMIT)


class BehindNginx(Fleet, unittest.TestCase):
    kind, deploy = NginxBalancer, {"UP": "", "PAUSE": "4"}

    def test_outage_of_who_repeats_refusals(self):
        """One client that is refused keeps out others."""
        self.rebalance(("proxy_next_upstream error;", "proxy_next_upstream error http_429;"))
        self.assertIn(502, [self.everybody[i % 2].ask() for i in range(80 * LIMIT)][1::2])


class BehindVarnish(Checked, unittest.TestCase):
    kind, deploy = Varnish, {"UP": Varnish.UP}

    def test_a_node_leaves_amid_requests(self):
        """Between vcl_backend_fetch and the request, where a sleep stands here. A node that is chosen after it needs
        no second try; one that is chosen before it does."""
        node = self.nodes[0]
        its_own = list(self.of(node))
        self.addCleanup(self.balancer.restart)
        for resolve, edit in ("LAZY", ("return (retry);", "")), ("NOW", ("resolve=LAZY", "resolve=NOW")):
            self.balancer.restart(("import std;", "import std;\nimport vtc;"), edit,
                                  (f"resolve={resolve});", f"resolve={resolve});\n    vtc.sleep(50ms);"))
            with Traffic(its_own) as traffic:
                node.file("/run/stint-drain").touch()
                self.balancer.sees(2)
            node.file("/run/stint-drain").unlink()
            self.assertEqual(traffic.failed, {}, resolve)


if __name__ == "__main__":
    if not all(map(shutil.which, ("nginx", "haproxy", "varnishd"))) or not enter():
        print("this needs nginx, HAProxy, Varnish, and the right to make a network namespace", file=sys.stderr)
        sys.exit(77)
    MODULE, STINT = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    print(f"STINT_TEST_SEED={SEED}", file=sys.stderr)
    unittest.main()
