#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What a decision costs from Python: stint, and the storages of the package limits in memory and in Redis,
by turns in one run.

    tests/python/run.py SOURCE BUILD MESON CC costs

Of 31 turns it prints the quickest, which other work on the machine disturbs least, and the median. Each
call checks its answer.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import limits
import servers
import stint.limits
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import FixedWindowRateLimiter

TURNS = 31
KEYS = [f"198.51.{n // 250}.{n % 250}" for n in range(1000)]


def redis(directory):
    """limits' storage in a Redis of its own at a unix socket, the nearest that a Redis can be; None: there is none."""
    if shutil.which("redis-server") is None:
        return None, None
    path = f"{directory}/redis"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"],
                              stdout=subprocess.DEVNULL)
    servers.until(lambda: os.path.exists(path), "Redis")
    return storage_from_string(f"redis+unix://{path}"), server


def ways(directory, stored):
    """What each row calls with a key, and how many calls a turn has."""
    table = stint.open(f"{directory}/limits", 100_000, ["10M/day name=api", "10M/hour name=hourly"])
    api, hourly = table["api"], table["hourly"]
    per_day = limits.parse("10000000/day")
    yield "stint: `allow`", api.allow, 20_000
    yield "stint: `take`, a verdict", api.take, 20_000
    yield "stint: `all` of two policies", lambda key: table.all((api, key), (hourly, key)), 10_000
    yield "stint: a call that `@limited` limits", stint.limited(api, key=lambda key: key)(lambda key: True), 10_000
    yield "an empty function of Python", lambda key: True, 20_000
    for name, storage, calls in (("stint", stint.limits.StintStorage(f"stint://{directory}/stored"), 2_000),
                                 ("memory, which no worker shares", MemoryStorage(), 2_000),
                                 ("Redis on this host", stored, 500)):
        if storage is not None:
            limiter = FixedWindowRateLimiter(storage)  # which holds it weakly
            yield f"limits' `hit`: {name}", lambda key, limiter=limiter, _=storage: limiter.hit(per_day, key), calls


def turn(call, calls):
    """ns of each call."""
    keys = (KEYS * (calls // len(KEYS) + 1))[:calls]
    began = time.perf_counter_ns()
    for key in keys:
        if not call(key):
            raise SystemExit(f"a request was refused that fits: {key}")
    return (time.perf_counter_ns() - began) / calls


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        stored, server = redis(directory)
        try:
            rows = list(ways(directory, stored))
            figures = {name: [] for name, _, _ in rows}
            for _ in range(TURNS):
                for name, call, calls in rows:
                    figures[name].append(turn(call, calls))
        finally:
            if server is not None:
                server.terminate()
                server.wait()
    print("| call | ns | median |\n|---|---|---|")
    for name, turns in figures.items():
        print(f"| {name} | {min(turns):,.0f} | {statistics.median(turns):,.0f} |")
    sys.stdout.flush()
    os._exit(0)  # the storage in memory has a timer, which a process waits for


if __name__ == "__main__":
    main()
