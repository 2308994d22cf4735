# SPDX-License-Identifier: MIT
"""Peers side by side, by turns, so that a machine that is slower for a while is slower for all. In
each turn every peer has a process of its own, which fills its table and is timed; a server runs on,
and its clients are new. Each must grant every key the smaller of demand and limit, counted one by
one on a small table first; no key comes to its limit while it is timed, and all must be granted."""
import contextlib
import dataclasses
import shutil
import time

from driver import Driver, Failed
from measure import rates_of, resident, spread
from servers import Server
from workloads import LIMIT_MAX

HALF_DAY = 43200
REHEARSAL_KEYS, REHEARSAL_KEYS_SERVER = 2000, 300
REHEARSAL_LIMIT = 3
CONNECTIONS = 32  # to a server, of each thread; each has a request on its way
BYTES_KEYS = 10**5  # with fewer, what a process takes beside them shows
BYTES_ABOUT = 136  # a key, to say beforehand what does not fit
FILL_DEPTH = 256  # requests on their way when a server is filled, which is not timed


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    help: str
    depth: int = 1  # requests in flight of each thread, or in a call
    of: str | None = None  # the program's name of it, if that is another
    program: str | None = None  # the server's; None: it is in the process
    how: str | None = None  # "huge_pages" or "sharded", see peer.h


def redis(name, help, of="redis-lua"):
    return Peer(name, help, CONNECTIONS, of, "redis-server")


# In the order of the table: each after what it is to be compared with.
ONE = [
    Peer("stint", "one request at a time, for a yes or no; the limiter reads its clock"),
    Peer("stint-verdict", "the same, with a verdict: tokens left, time to wait and all"),
    Peer("stint-batch",
         "16 requests in one call, with verdicts; lines fetched as keys become known", 16),
    Peer("stint-batch-64", "the same, 64 requests in one call", 64, "stint-batch"),
    Peer("dpdk-64", "DPDK's rte_hash: readers without locks, 64 in a call", 64),
    Peer("own", "a pre-sized open-addressing table for each thread: no lock, no shared limit"),
    Peer("open-64", "a pre-sized open-addressing table behind 64 mutexes, xxhash"),
    Peer("open-64-huge", "open-64 on huge pages, as stint's table is", of="open-64",
         how="huge_pages"),
    Peer("stint-bucket", "stint, by a token bucket"),
    Peer("bucket-64", "the table of open-64 with token buckets: an instant beside the key",
         of="open-64-bucket"),
    Peer("mutex-64", "a hash table (uthash, by XXH3) in 64 shards, each behind a mutex", of="mutex",
         how="sharded"),
    Peer("mutex", "one such table behind one mutex"),
    redis("redis-incr", "Redis: INCR and EXPIRE sent together", "redis-incr"),
    redis("redis-lua", "Redis: TIME, INCR, EXPIRE, TTL in a script (EVALSHA)"),
]
# Those that decide by several limits at once.
SEVERAL = [
    Peer("stint-all", "stint_decide_all, for a yes or no; the limiter reads its clock"),
    Peer("stint-takes",
         "a take for each limit, the clock read once; what the first took stays taken"),
    Peer("stint-groups", "stint_decide_groups, 32 keys in a call, with verdicts", 32),
    Peer("open-64-all", "open-64, with a count for each limit beside the key, checked together",
         of="open-64"),
    Peer("mutex-64-all", "as mutex-64, with counts that are checked together", of="mutex",
         how="sharded"),
    Peer("mutex-all", "as mutex, with counts that are checked together", of="mutex"),
    redis("redis-all", "Redis: one script (EVALSHA) that adds to all counts or to none"),
]


def window():
    """A length of window, s, that leaves half a day of the present one."""
    day, now, days = 2 * HALF_DAY, int(time.time()), 7
    while now % (days * day) >= days * day - HALF_DAY:
        days += 1
    return days * day


def cpu_seconds(pid):
    """What a process has used."""
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)  # the clock of a process, as libc names it
    return 0


class Entrant:
    """One peer, and what came out."""

    def __init__(self, program, peer, about):
        self.program, self.peer, self.about = program, peer, about
        self.absent = peer.program is not None and shutil.which(peer.program) is None
        self.wrong = None if not self.absent else ""  # None: every answer was right
        self.server = None
        self.ns, self.lows, self.threads = [], [], []  # of each turn
        self.ops = self.cpu = self.huge = 0
        self.bytes_per_key, self.version = None, ""

    @property
    def good(self):
        return self.wrong is None

    @contextlib.contextmanager
    def started(self):
        """A process, that asks or has it."""
        with Driver(self.program) as self.driver:
            self.pid = self.server.pid if self.server else self.driver.process.pid
            yield

    @contextlib.contextmanager
    def opened(self, keys, limit):
        """It is open for so many keys. Of several limits the last says what a key is granted,
        whatever other threads do meanwhile: the others are not as tight, and of longer windows that
        end when some of its do."""
        about = self.about
        limits = [{"limit": limit + (limit < LIMIT_MAX and left > 1),
                   "window": about["window"] * left} for left in range(about["limits"], 0, -1)]
        answer = self.ask("open", peer=self.peer.of or self.peer.name, depth=self.peer.depth,
                          keys=keys, threads=about["threads"], limits=limits, period=0,
                          distribution="uniform", **{self.peer.how: True} if self.peer.how
                          else {}, **{"socket": self.server.socket} if self.server else {})
        self.version = answer.get("version", "")
        yield
        self.ask("close")

    def ask(self, job, **asked):
        """An empty answer if something is wrong, by now or before."""
        answer = self.driver.ask(job, **asked) if self.good else {}
        if "right" in answer:
            answer = {"wrong": f"tokens granted to one key: {answer['right']} would be right, it is "
                               f"{answer['found']}"}
        self.wrong = answer.get("wrong", self.wrong)
        return answer if self.good else {}

    def span(self, **about):
        return self.ask("span", run="peer", epoch=0, **about)

    def serve(self, stack):
        """Starts the server, if it needs one."""
        if not self.peer.program or not self.good:
            return
        try:
            self.server = Server(self.peer.program)
        except Failed as why:
            self.wrong = str(why)
            return
        stack.callback(self.server.stop)

    def rehearse(self):
        keys = min(self.about["keys"],
                   REHEARSAL_KEYS_SERVER if self.peer.program else REHEARSAL_KEYS)
        with contextlib.ExitStack() as stack:
            self.serve(stack)
            with self.started(), self.opened(keys, REHEARSAL_LIMIT):
                self.span(count=True,
                          max_ops=2 * REHEARSAL_LIMIT * keys // self.about["threads"] + 1)
                self.ask("granted", right="apart" if self.peer.name == "own" else "limit",
                         limit=REHEARSAL_LIMIT, base=0)
        self.server = None

    def fill(self):
        self.span(once=True, passes=1, shared=self.peer.name == "own",
                  **{"depth": FILL_DEPTH} if self.server else {})

    def turn(self, seconds):
        with self.started():
            if not self.ns:  # what it has beside its keys comes before they do
                with self.opened(1, LIMIT_MAX):
                    self.fill()
                self.before = resident(self.pid)
            with self.opened(self.about["keys"], LIMIT_MAX):
                self.timed(seconds)

    def timed(self, seconds):
        about, first = self.about, not self.ns
        if first or not self.server:
            self.fill()
            now = resident(self.pid)
            if first:
                if about["keys"] >= BYTES_KEYS:
                    self.bytes_per_key = max(0, now[0] - self.before[0]) / about["keys"]
                self.huge = now[1] / max(1, now[0])
        cpu = cpu_seconds(self.pid) if self.server else 0
        most = 0.9 * LIMIT_MAX * about["keys"] / about["threads"] / about["processes"]
        did = self.span(budget_ns=int(seconds * 1e9), max_ops=int(most), cpu=True,
                        depth=self.peer.depth)
        if not did:
            return
        threads = did["threads"]
        ops = sum(one["ops"] for one in threads)
        refused = ops - sum(one["allowed"] for one in threads)
        if refused:
            self.wrong = f"{refused} requests were refused"
        self.ns.append(did["median"])
        self.lows.append(did["low"])
        self.threads.append(threads)
        self.ops += ops
        self.cpu += sum(one["cpu_ns"] for one in threads) / 1e9
        self.cpu += cpu_seconds(self.pid) - cpu if self.server else 0

    def end(self, window):
        now = int(time.time()) // self.about["window"]
        if self.good and now != window:
            self.wrong = f"the window ended; its number: {window} would be right, it is {now}"

    def result(self):
        """Look at "absent" and "checked" before any number."""
        peer = self.peer
        found = {"peer": peer.name, **self.about, "depth": peer.depth,
                 "absent": self.absent}
        numbers = dict.fromkeys(["decisions_per_second", "ns_per_op", "ns_min", "ns_max", "each",
                                 "cpu_seconds_per_million", "bytes_per_key", "huge_pages"])
        if self.good:
            ns = spread(self.ns)
            numbers.update(decisions_per_second=1e6 * sum(rates_of(self.threads)),
                           ns_per_op=ns["value"], ns_min=ns["min"], ns_max=ns["max"],
                           each=self.lows, cpu_seconds_per_million=1e6 * self.cpu / self.ops,
                           bytes_per_key=self.bytes_per_key, huge_pages=self.huge)
        found.update(numbers, granted=self.ops if self.good else 0, refused=0,
                     version=self.version, checked=self.good)
        if self.wrong:
            found["wrong"] = self.wrong
        return found


def run(program, bar, label, peers, seconds, **about):
    """Returns what came out of each peer, by its name."""
    entrants = [Entrant(program, peer, about) for peer in peers]
    steps = len(entrants) * (1 + about["processes"])

    def each(what):
        for entrant in entrants:
            if entrant.good:
                bar.show(f"{label}{entrant.peer.name}: {what}", each.step / steps)
                yield entrant
            each.step += 1
    each.step = 0

    for entrant in each("rehearsal"):
        entrant.rehearse()
    window = int(time.time()) // about["window"]
    with contextlib.ExitStack() as servers:
        for entrant in entrants:
            entrant.serve(servers)
        for _ in range(about["processes"]):
            for entrant in each("timing"):
                entrant.turn(seconds / about["processes"])
        for entrant in entrants:
            entrant.end(window)
    return {entrant.peer.name: entrant for entrant in entrants}
