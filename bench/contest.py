# SPDX-License-Identifier: MIT
"""Peers side by side: all are open at the same time and asked by turns, so that a machine that is
slower for a while is slower for all. First a small table, with a limit that every key exceeds, then
one that holds the keys. Each must grant every key the smaller of demand and limit, counted one by
one."""
import contextlib
import dataclasses
import statistics
import time

from driver import Failed, field
from servers import Server, installed
from workloads import LIMIT_MAX

HALF_DAY = 43200
REPEATS = 15  # short turns, so that a disturbance is in a few of them for each peer
REHEARSAL_KEYS, REHEARSAL_KEYS_SERVER = 2000, 300  # one request at a time is slow there
REHEARSAL_LIMIT = 3
TIMED_LIMIT = LIMIT_MAX  # more than a key is asked for while it is timed
NO_END = 2**62


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    label: str  # in a picture
    help: str
    bytes_per_key: int  # about, to say beforehand what does not fit
    depth: int = 1  # requests in flight of each thread, or in a call
    of: str | None = None  # the program's name of it, if that is another
    program: str | None = None  # the server's; None: it is in the process
    how: str | None = None  # "huge_pages" or "sharded", see peer.h


def redis(name, label, help, depth=1, of="redis-lua"):
    return Peer(name, label, help, 128, depth, of, "redis-server")


# In the order of the table: each after what it is to be compared with.
ONE = [
    Peer("stint", "stint, one at a time",
         "one request at a time, for a yes or no; the limiter reads its clock", 64),
    Peer("stint-verdict", "stint, with a verdict",
         "the same, with a verdict: tokens left, time to wait and all", 64),
    Peer("stint-ahead", "stint, fetched ahead",
         "as stint, with the line of each key fetched eight requests before", 64),
    Peer("stint-batch", "stint, 16 in a call",
         "16 requests in one call, with verdicts; lines fetched as keys become known", 64, 16),
    Peer("stint-batch-64", "stint, 64 in a call", "the same, 64 requests in one call", 64, 64,
         "stint-batch"),
    Peer("dpdk-64", "DPDK rte_hash, 64 in a call",
         "DPDK's rte_hash: readers without locks, 64 looked up in a call", 136, 64),
    Peer("counter", "floor: one count for all keys",
         "floor: one atomic add to one count for all; no keys, no limit, no clock", 0),
    Peer("open-64", "open addressing, 64 mutexes",
         "a pre-sized open-addressing table behind 64 mutexes, xxhash", 40),
    Peer("open-64-huge", "open addressing, huge pages",
         "open-64 on huge pages, as stint's table is", 40, of="open-64", how="huge_pages"),
    Peer("stint-bucket", "stint, a token bucket", "stint, by a token bucket", 64),
    Peer("bucket-64", "token buckets, 64 mutexes",
         "the table of open-64 with token buckets: an instant beside the key", 40,
         of="open-64-bucket"),
    Peer("rwlock", "uthash, reader-writer lock",
         "a reader-writer lock around a hash table (uthash) of atomic counts", 128),
    Peer("mutex-64", "uthash, 64 mutexes", "the same in 64 shards", 128, of="mutex",
         how="sharded"),
    Peer("mutex", "uthash, one mutex", "a mutex around a hash table (uthash)", 128),
    Peer("memcached", "memcached",
         "memcached: incr, or add where there is none, one request at a time", 160,
         program="memcached"),
    Peer("memcached-16", "memcached, 16 pipelined", "the same, 16 requests pipelined", 160, 16,
         "memcached", "memcached"),
    redis("redis-incr", "Redis INCR",
          "Redis: INCR and EXPIRE sent together, one request at a time", of="redis-incr"),
    redis("redis-incr-16", "Redis INCR, 16 pipelined", "the same, 16 requests pipelined", 16,
          "redis-incr"),
    redis("redis-lua", "Redis script",
          "Redis: TIME, INCR, EXPIRE, TTL in a script (EVALSHA), one request at a time"),
    redis("redis-lua-16", "Redis script, 16 pipelined", "the same, 16 requests pipelined", 16),
]
# Those that decide by several limits at once.
SEVERAL = [
    Peer("stint-all", "stint, all as one",
         "stint_decide_all, for a yes or no; the limiter reads its clock", 64),
    Peer("stint-takes", "stint, one take a limit",
         "a take for each limit, the clock read once; what the first took stays taken", 64),
    Peer("stint-groups", "stint, 32 groups in a call",
         "stint_decide_groups, 32 keys in a call, with verdicts", 64, 32),
    Peer("open-64-all", "open addressing, 64 mutexes",
         "open-64, with a count for each limit beside the key, checked together", 40, of="open-64"),
    Peer("open-huge-all", "open addressing, huge pages",
         "open-64-all on huge pages, as stint's table is", 40, of="open-64", how="huge_pages"),
    Peer("mutex-64-all", "uthash, 64 mutexes", "the same in 64 shards", 128, of="mutex",
         how="sharded"),
    Peer("mutex-all", "uthash, one mutex",
         "a mutex around a hash table (uthash) of counts, checked together", 128, of="mutex"),
    redis("redis-all", "Redis script",
          "Redis: one script (EVALSHA) that adds to all counts or to none"),
    redis("redis-all-16", "Redis script, 16 pipelined", "the same, 16 requests pipelined", 16),
]


def peers(driver):
    """Those of one limit that the program was built with, and those of several."""
    there = driver.ask("peers")["peers"]
    return [peer for peer in ONE if (peer.of or peer.name) in there], SEVERAL


def window():
    """A length of window, s, that leaves half a day of the present one."""
    day, now, days = 2 * HALF_DAY, int(time.time()), 7
    while now % (days * day) >= days * day - HALF_DAY:
        days += 1
    return days * day


def resident(pid):
    """Bytes. From smaps_rollup, which counts pages; statm is behind by what each thread has not yet
    added."""
    found = field(f"/proc/{pid}/smaps_rollup", "Rss") or "0"  # it has died
    return int(found.split()[0]) * 1024


class Entrant:
    """One peer, and what came out."""

    def __init__(self, driver, peer, at, about):
        self.driver, self.peer, self.at, self.about = driver, peer, at, about
        self.absent = not installed(peer.program)
        self.wrong = None if not self.absent else ""  # None: every answer was right
        self.ns = []  # of one decision on its thread, of each repeat in turn
        self.ops = self.cpu_ns = self.preempted = self.granted = 0
        self.bytes_per_key, self.version = 0, ""

    @property
    def good(self):
        return self.wrong is None

    def ask(self, job, **asked):
        """An empty answer if something is wrong, by now or before."""
        answer = self.driver.ask(f"peer-{job}", at=self.at, **asked) if self.good else {}
        self.wrong = answer.get("wrong", self.wrong)
        return answer if self.good else {}

    @contextlib.contextmanager
    def field(self, keys, limit):
        """Has it ready to be opened for so many keys, a server of its own beside it if it needs
        one. Of several limits the last says what a key is granted, whatever other threads do
        meanwhile: the others are not as tight, and of longer windows that end when some of its
        do."""
        about = self.about
        limits = [{"limit": limit + (limit < LIMIT_MAX and left > 1),
                   "window": about["window"] * left} for left in range(about["limits"], 0, -1)]
        asked = {"peer": self.peer.of or self.peer.name, "depth": self.peer.depth, "keys": keys,
                 "threads": about["threads"], "limits": limits}
        if self.peer.how:
            asked[self.peer.how] = True
        self.pid = self.driver.process.pid
        with contextlib.ExitStack() as stack:
            if self.peer.program:
                try:
                    server = Server(self.peer.program, about["keys"])
                except Failed as why:
                    self.wrong = str(why)
                    yield
                    return
                stack.callback(server.stop)
                self.pid = server.pid
                asked.update(socket=server.socket, server=server.pid)
            self.driver.ask("peer-prepare", at=self.at, **asked)
            yield
            self.driver.ask("peer-close", at=self.at)

    def audit(self, demand):
        """Every key was granted the smaller of demand and limit, and all were asked for what was
        meant."""
        found = self.ask("audit")
        if found and found["demand"] != demand:
            self.wrong = f"requests, of all keys: {demand} would be right, it is {found['demand']}"
        return found.get("granted", 0)

    def rehearse(self):
        keys = min(self.about["keys"],
                   REHEARSAL_KEYS_SERVER if self.peer.program else REHEARSAL_KEYS)
        with self.field(keys, REHEARSAL_LIMIT):
            self.ask("open")
            did = self.ask("ask", budget_ns=NO_END,
                           max_ops=2 * REHEARSAL_LIMIT * keys // self.about["threads"] + 1)
            self.audit(did.get("ops", 0))

    def fill(self):
        """Opens it and asks for every key once. Its memory is what grows meanwhile; but a server
        without keys is no part of what its keys take."""
        before = resident(self.pid)
        self.version = self.ask("open").get("version", "")
        if self.good and self.peer.program:
            before = resident(self.pid)
        self.ask("ask", fill=True)
        if self.good:
            self.bytes_per_key = max(0, resident(self.pid) - before) / self.about["keys"]

    def repeat(self, seconds):
        # No key may come to its limit, where requests become refusals.
        most = 0.9 * TIMED_LIMIT * self.about["keys"] / self.about["threads"] / REPEATS
        did = self.ask("ask", budget_ns=int(seconds * 1e9), max_ops=int(most))
        if did:
            self.ns.append(did["ns"] / did["ops"])
            self.ops += did["ops"]
            self.cpu_ns += did["cpu_ns"]
            # A server's clients share the cores with it.
            self.preempted += did["preempted"] if not self.peer.program else 0

    def end(self, window):
        # The first of each key filled.
        self.granted = self.audit(self.about["keys"] + self.ops) - self.about["keys"]
        now = int(time.time()) // self.about["window"]
        if self.good and now != window:
            self.wrong = f"the window ended; its number: {window} would be right, it is {now}"

    def result(self):
        """Look at "absent" and "checked" before any number."""
        peer = self.peer
        found = {"peer": peer.name, "label": peer.label, **self.about, "depth": peer.depth,
                 "absent": self.absent}
        numbers = dict.fromkeys(["decisions_per_second", "ns_per_op", "ns_min", "ns_max",
                                 "cpu_seconds_per_million", "bytes_per_key"])
        if self.good:
            ns = statistics.median(self.ns)
            numbers.update(decisions_per_second=self.about["threads"] * 1e9 / ns, ns_per_op=ns,
                           ns_min=min(self.ns), ns_max=max(self.ns),
                           cpu_seconds_per_million=self.cpu_ns / 1e3 / self.ops,
                           bytes_per_key=None if peer.name == "counter" else self.bytes_per_key)
        found.update(numbers, granted=self.granted if self.good else 0,
                     refused=self.ops - self.granted if self.good else 0, version=self.version,
                     checked=self.good)
        if self.wrong:
            found["wrong"] = self.wrong
        return found


def run(driver, label, peers, seconds, **about):
    """Returns what came out of each peer, by its name."""
    entrants = [Entrant(driver, peer, at, about) for at, peer in enumerate(peers)]
    steps = len(entrants) * (2 + REPEATS)

    def each(what, entrants):
        for entrant in entrants:
            if entrant.good:
                driver.show(f"{label}{entrant.peer.name}: {what}", each.step / steps)
                yield entrant
            each.step += 1
    each.step = 0

    for entrant in each("rehearsal", entrants):
        entrant.rehearse()
    window = int(time.time()) // about["window"]
    with contextlib.ExitStack() as fields:
        # Servers first: what they take is theirs alone.
        for entrant in each("filling", sorted(entrants, key=lambda one: not one.peer.program)):
            fields.enter_context(entrant.field(about["keys"], TIMED_LIMIT))
            if entrant.good:
                entrant.fill()
        for _ in range(REPEATS):
            for entrant in each("timing", entrants):
                entrant.repeat(seconds / REPEATS)
        for entrant in entrants:
            if entrant.good:
                entrant.end(window)
    return {entrant.peer.name: entrant for entrant in entrants}
