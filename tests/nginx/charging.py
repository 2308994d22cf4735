#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Limits that the nginx module charges by the response, whatever clients do to be charged late or not.

    charging.py MODULE_SO [TEST...]
"""
import contextlib
import re
import socket
import struct
import sys
import threading

sys.dont_write_bytecode = True  # of what is beside it
import module
from features import policy_status, status
from module import PATIENCE, PER_LONG, STATUS, Storm, Server, close, location, main, until
from operating import Upstream

FAILED = "map $status $failed { 401 1; default 0; }\n"


class Charging(Upstream):
    def behind(self, http, *directives, **more):
        """Before a server that answers by the path: /200, /401, /503; and with X-Cost if asked."""
        server = Server(module.MODULE, workers=more.pop("workers", 1), **more)
        behind = server.directory / "upstream"
        answers = "".join(location(f"/{code}", f"return {code} answer;") for code in (200, 401, 503))
        server.configure(
            f"stint_zone z entries=1k;\n{http}\nserver {{ listen unix:{behind}; stint_limit off;"
            f"access_log off; add_header X-Cost $arg_cost always; {answers} }}",
            STATUS + location("/", *directives, "proxy_hide_header X-Cost;",
                              f"proxy_pass http://unix:{behind};"))
        return server

    def test_failed_logins(self):
        with self.behind(FAILED + f"stint_policy z 3{PER_LONG} name=failures;\nstint_headers draft;",
                         "stint_limit z failures $arg_user charge=$failed;") as server:
            # Logins that succeed are not counted, however many.
            self.assertEqual(server.statuses(20, "/200?user=a"), [200] * 20)
            self.assertEqual(server.statuses(3, "/401?user=a"), [401] * 3)
            response = self.expect((429, "REJECTED failures 3/3 0"), server.get("/200?user=a"))
            self.assertIsNotNone(response["Retry-After"])
            self.assertEqual(server.statuses(2, "/401?user=b"), [401] * 2)
            # The module's fields and the access log tell what is settled; add_header comes before it.
            response = self.expect((200, "PASSED failures 3/3 0"), server.get("/200?user=b"))
            self.assertEqual(response["RateLimit"].split(";")[1], "r=1")
            self.assertEqual(server.access_log(27)[-1][3:8], ["PASSED", "failures", "3", "2", "1"])
            # The failure that used up what there was is the first refusal, and is logged.
            server.statuses(5, "/401?user=a")
            self.assertEqual(len(server.logged('limiting requests, 3 of 3 used, by policy "failures"')), 1)
            found = policy_status(server, "failures")
            self.assertEqual([found[name] for name in ("allowed", "refused", "charged", "refunded")], [26, 7, 0, 21])

    def test_successes_only(self):
        """What a server of mine could not answer is not on the client's account."""
        with self.behind("map $status $answered { ~^5 0; default 1; }\n"
                         f"stint_policy z 2{PER_LONG} name=p;",
                         "stint_limit z p $remote_addr charge=$answered;") as server:
            self.assertEqual(server.statuses(9, "/503"), [503] * 9)
            self.assertEqual(server.statuses(3, "/200"), [200, 200, 429])
            # Refusals are not charged, whatever the map says of a 429.
            self.assertEqual(server.statuses(5, "/200"), [429] * 5)
            self.assertEqual(policy_status(server, "p")["refunded"], 9)

    def test_the_cost_that_the_upstream_tells(self):
        with self.behind(f"stint_policy z 10{PER_LONG} name=p;",
                         "stint_limit z p $remote_addr charge=$upstream_http_x_cost;") as server:
            response = server.get("/200?cost=7")
            self.assertEqual((response.status, response["X-Cost"]), (200, None))
            for nothing in "", "?cost=0", "?cost=1.5", "?cost=1", "?cost=999999999999":
                self.assertEqual(server.get("/200" + nothing).stint,
                                 "PASSED p 9/10 1" if "9" in nothing else "PASSED p 8/10 2", nothing)
            self.assertEqual(server.get("/200").status, 429)
            self.assertEqual(server.logged(r'\[error\] .*stint charge "(.*?)" is not a number, nothing '
                                           'is charged, in zone "z"'), ["1.5"])

    def test_beside_another_limit(self):
        """Who is refused by the one takes nothing of the other, and the other way round."""
        with self.behind(FAILED + f"stint_policy z 2{PER_LONG} name=failures; stint_policy z 5{PER_LONG} name=all;",
                         "stint_limit z all $remote_addr;", "stint_limit z failures $arg_user charge=$failed;") as server:
            self.assertEqual(server.statuses(4, "/401?user=a"), [401, 401, 429, 429])
            self.assertEqual(server.get("/200?user=b").stint, "PASSED failures 1/2 1")
            self.assertEqual(policy_status(server, "all")["allowed"], 3)
            self.assertEqual(server.statuses(3, "/401?user=b"), [401, 401, 429])
            # A request without user is limited by the other only.
            self.assertEqual(server.get("/200").stint, "REJECTED all 5/5 0")
            self.assertEqual(policy_status(server, "failures")["refunded"], 1)

    def test_dry_run_and_shadow(self):
        for more, policy in ("stint_dry_run on;", ""), ("", "shadow"):
            with self.subTest(more=more, policy=policy), self.behind(
                    FAILED + f"stint_policy z 2{PER_LONG} name=p {policy};{more}", "stint_limit z p k charge=$failed;") as server:
                self.assertEqual(server.statuses(5, "/401"), [401] * 5)
                found = policy_status(server, "p")
                self.assertEqual((found["allowed"], found["charged"], found["refused"] + found["shadowed"]), (2, 3, 4))

    def test_under_load_nothing_is_lost(self):
        """Each response is charged once, over several workers and reloads."""
        with self.behind("stint_policy z 1M/52w name=p;", "stint_limit z p $remote_addr charge=2;", workers=3) as server:
            storm = Storm(server, "/200", threads=6, enough=lambda storm: storm.allowed >= 1500)
            storm.run(lambda: [server.reload() for _ in range(2)])
            self.assertLessEqual(set(storm.count), {200, None})
            # Those whose connection broke may have been answered, too.
            until(lambda: 0 <= policy_status(server, "p")["charged"] - storm.allowed <= storm.count[None], "all charges")


# ---- Clients that would rather not pay --------------------------------------------------------

REQUEST = "{} {} HTTP/1.1\r\nHost: x\r\n{}\r\n"


def connected(server, stack, listener="one"):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE)
    client.connect(f"{server.directory}/{listener}")
    return stack.enter_context(client)


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def told(client, count=1):
    """The statuses of so many responses, or of those that came before the end."""
    read = b""
    while len(found := re.findall(rb"HTTP/1.1 (\d+)", read)) < count and (more := client.recv(65536)):
        read += more
    return [int(status) for status in found]


def by_turns(method="GET", fields="", ends=None, reads=True):
    """Each request on a connection of its own, which is left open, or ended so."""
    def statuses(server, path, stack):
        for _ in range(GUESSES):
            client = connected(server, stack)
            client.sendall(REQUEST.format(method, path, fields).encode())
            yield from told(client) if reads else []
            if ends is not None:
                ends(client)
    return statuses


def at_once(server, path, stack):
    clients = [connected(server, stack) for _ in range(GUESSES)]
    for client in clients:
        client.sendall(REQUEST.format("GET", path, "").encode())
    for client in clients:
        yield from told(client)


def pipelined(server, path, stack):
    client = connected(server, stack)
    client.sendall(REQUEST.format("GET", path, "").encode() * GUESSES)
    yield from told(client, GUESSES)


def streams(window=65535, ends=True, turns=False, resets=False, reads=True):
    """HTTP/2 streams of one connection: with a window for bodies; with a request that ends, or with a
    body that never comes; one after the other or all at once; reset when the status is there."""
    def frame(kind, flags, stream, payload):
        return struct.pack("!IBI", len(payload) << 8 | kind, flags, stream) + payload

    def answered(client):
        """The status of the next response."""
        while True:
            head = client.recv(9, socket.MSG_WAITALL)
            size = int.from_bytes(head[:3], "big")
            payload = client.recv(size, socket.MSG_WAITALL) if size else b""
            if head[3] == 1:  # a status that has no number of HPACK's is three digits
                return int((re.search(rb"\x03(\d{3})", payload) or [0, 200])[1])

    def statuses(server, path, stack):
        client = connected(server, stack, "two")
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack("!HI", 4, window)))
        block = b"".join(b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode()) for name, value in (
            (":method", "GET" if ends else "POST"), (":scheme", "http"), (":path", path), (":authority", "x")))
        for i in range(GUESSES):
            client.sendall(frame(1, 5 if ends else 4, 2 * i + 1, block))
            if turns:
                yield answered(client)
            if resets:
                client.sendall(frame(3, 0, 2 * i + 1, struct.pack("!I", 8)))
        for _ in range(0 if turns or not reads else GUESSES):
            yield answered(client)
    return statuses


BODY = "Content-Length: 9\r\n"
GUESSES = 9  # of which LIMIT are answered
LIMIT = 3

WAYS = {
    "asks": by_turns(ends=socket.socket.close), "leaves-open": by_turns(), "body-never-comes": by_turns("POST", BODY),
    "chunks-never-come": by_turns("POST", "Transfer-Encoding: chunked\r\n"),
    "resets": by_turns("POST", BODY, reset), "resets-unread": by_turns(ends=reset, reads=False),
    "at-once": at_once, "pipelined": pipelined,
    "2": streams(), "2-turns": streams(turns=True), "2-window-0": streams(0, turns=True),
    "2-window-0-at-once": streams(0), "2-body-never-comes": streams(0, False, True),
    "2-resets": streams(0, True, True, True), "2-resets-unread": streams(resets=True, reads=False),
}

# Who says that a guess was wrong, by what the limit knows it, and what the client sees of it.
WRONG = {
    "basic": ("auth_basic x; auth_basic_user_file users;", "$failed", 401),
    "proxied": ("proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:{}/wrong;", "$failed", 401),
    "asked": ("auth_request /wrong;", "$failed", 401),
    "page": ("auth_request /wrong; error_page 401 =418 /told;", "$failed_or_page", 418),
    "paged": ("proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://unix:{}/wrong; proxy_intercept_errors on;"
              "error_page 401 =418 /told;", "$failed_behind", 418),
}


class Paid(Upstream):
    """Of the failures that are begun in a window as many are answered as the limit says."""

    def guarded(self, policy=f"{LIMIT}{PER_LONG}", wrong=("basic",), zone="entries=10k labels=100", more="", http="",
                workers=2):
        """A server with these locations of WRONG, each with a limit; and /slow, which waits to be let go."""
        self.asked, self.let_go = threading.Semaphore(0), threading.Semaphore(0)
        address = self.upstream(lambda: (self.asked.release(), self.let_go.acquire(timeout=PATIENCE)))
        server = Server(module.MODULE, workers=workers)
        here = server.directory
        limit = 'stint_limit z p "$uri $arg_way" charge={};' + more
        server.configure(
            FAILED + "map $upstream_status $failed_behind { 401 1; default 0; }\n"
            "map $status $failed_or_page { 401 1; 418 1; default 0; }\n"
            f"stint_zone z {zone}; stint_policy z {policy} name=p; {http}\n"
            f"server {{ listen unix:{here}/behind; access_log off; location /wrong {{ return 401; }} }}",
            f"listen unix:{here}/one; listen unix:{here}/two http2;" + STATUS +
            location("/wrong", "internal;", "return 401;") + location("/told", "internal;", "return 200 told;") +
            location("/slow", limit.format("$failed"), f"proxy_pass {address};") +
            "".join(location(f"/{name}", limit.format(WRONG[name][1]), WRONG[name][0].format(f"{here}/behind:"))
                    for name in wrong))
        return server

    def check_ways(self, server, name):
        wrong = WRONG[name][2]
        for way, guesses in WAYS.items():
            path = f"/{name}?way={way}"
            with self.subTest(path=path), contextlib.ExitStack() as stack:
                statuses = list(guesses(server, path, stack))
                if "unread" not in way:
                    self.assertEqual(sorted(statuses), sorted([wrong] * LIMIT + [429] * (GUESSES - LIMIT)))
                self.assertLessEqual(server.statuses(LIMIT + 1, path).count(wrong), LIMIT - statuses.count(wrong))

    def test_whatever_clients_do(self):
        with self.guarded(wrong=WRONG) as server:
            for name in WRONG:
                self.check_ways(server, name)

    def test_by_other_policies(self):
        """A bucket, a policy with a ban, several limits that are charged, and a shadow beside one."""
        for policy, more, http in (
                (f"{LIMIT}{PER_LONG} burst={LIMIT}", "", ""), (f"{LIMIT}{PER_LONG} ban=1h", "", ""),
                (f"9999{PER_LONG}", f'stint_limit z q "$uri $arg_way" charge=$failed;',
                 f"stint_policy z {LIMIT}{PER_LONG} name=q;"),
                (f"{LIMIT}{PER_LONG}", f'stint_limit z q "$uri $arg_way" charge=$failed;',
                 f"stint_policy z 1{PER_LONG} shadow name=q;")):
            with self.subTest(policy=policy), self.guarded(policy, more=more, http=http) as server:
                self.check_ways(server, "basic")

    def slow(self, server, count):
        """Begins requests of /slow. Returns their connections once those that are let through are asked for."""
        connections = server.begin(count, "/slow")
        found = until(lambda: (found := policy_status(server, "p")) and found["allowed"] + found["refused"] >= count and found,
                      "all to be decided")
        self.assertEqual([self.asked.acquire(timeout=PATIENCE) for _ in range(found["allowed"])], [True] * found["allowed"])
        return connections

    def end(self, connections):
        """Lets them go. Returns their statuses."""
        self.let_go.release(len(connections))
        statuses = [connection.getresponse().status for connection in connections]
        close(connections)
        return sorted(statuses)

    def test_who_fails_at_nothing_is_not_banned(self):
        """More at once than the limit are refused, and that is all. Who fails so often is banned."""
        with self.guarded(f"{LIMIT}{PER_LONG} ban=1h") as server:
            self.assertEqual(self.end(self.slow(server, 6)), [200] * 3 + [429] * 3)
            found = policy_status(server, "p")
            self.assertEqual([found[name] for name in ("allowed", "refused", "refunded", "first_refusals", "bans")],
                             [3, 3, 3, 0, 0])
            self.assertEqual(server.logged("limiting requests"), [])
            self.let_go.release(LIMIT)
            self.assertEqual(server.statuses(LIMIT, "/slow"), [200] * LIMIT)
            self.assertEqual(server.statuses(LIMIT, "/basic"), [401] * LIMIT)
            self.assertEqual(server.get("/basic").stint.split()[0], "BANNED")
            self.assertEqual(server.logged("limiting requests, (banned.*?), by policy"),
                             [f'banned for 3600 s, key "/basic ", {LIMIT} of {LIMIT} used'])

    def test_over_reloads_and_kills(self):
        """What an old worker has is settled; what a killed one had stays taken."""
        with self.guarded(f"6{PER_LONG}", workers=1) as server:
            connections = self.slow(server, 2)
            server.reload_beside()
            self.assertEqual(self.end(connections), [200] * 2)
            until(lambda: policy_status(server, "p")["refunded"] == 2, "both to be settled")
            until(lambda: len(server.worker_pids()) == 1, "the old worker to end")
            connections = server.begin(2, "/slow")
            self.assertEqual([self.asked.acquire(timeout=PATIENCE) for _ in connections], [True] * 2)
            server.kill_worker(*server.worker_pids())
            close(connections)
            self.let_go.release(9)
            self.assertEqual(server.get("/slow").stint, "PASSED p 3/6 3")

    def test_a_full_zone(self):
        """What it cannot count it lets through or refuses; what it counts is exact."""
        exact = [401] * 3 + [429] * 2
        for full, answered in ("admit", [401] * 5), ("refuse", [429] * 5), ("replace", exact):
            with self.subTest(full=full), self.guarded(zone=f"entries=1 policies=1 full={full}") as server:
                self.assertEqual(server.statuses(5, "/basic?way=0"), exact)
                for way in range(1, 400):
                    server.statuses(1, f"/basic?way={way}")
                self.assertEqual(server.statuses(5, "/basic?way=400"), answered)
                if full != "replace":
                    self.assertEqual(server.statuses(2, "/basic?way=0"), [429] * 2)


if __name__ == "__main__":
    main()
