#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Four processes of Python share a limit, through cffi and a table in a file.

    processes.py STINT.H LIBSTINT.SO TABLE LIMIT

It shows how stint.h itself is read by cffi, so that no declaration is written twice; requests that are
decided 64 in a call, which is what makes the way from Python cheap; and that the sum over all processes
is exact.

It leaves out an interface that looks like Python: cffi's structs are used as they are. The table is not
removed: the next run goes on from its counts.
"""
import multiprocessing
import re
import sys

import cffi

BATCH = 64


def library(header, path):
    """The functions and types of stint.h."""
    ffi = cffi.FFI()
    text = re.sub(r"/\*.*?\*/", "", open(header).read(), flags=re.DOTALL)
    text = re.sub(r"\bSTINT_(API|CHECKED|(NONNULL|READS|CHANGES|WRITES)\([\d, ]*\))", "", text.replace("\\\n", ""))
    numbers = re.findall(r"^#define (STINT_\w+) +(\d+)U?L?L? *$", text, re.MULTILINE)
    text = re.sub(r'^(#.*|extern "C" \{|\})$', "", text, flags=re.MULTILINE)
    ffi.cdef("".join(f"#define {name} {value}\n" for name, value in numbers) + text)
    return ffi, ffi.dlopen(path)


def open_limiter(ffi, stint, table, limit):
    """The limiter and the id of its policy: made by whoever comes first, found by the others."""
    def check(error):
        if error < 0:
            raise RuntimeError(ffi.string(stint.stint_reason()).decode())

    options, policy = ffi.new("struct stint_options *"), ffi.new("struct stint_policy *")
    options.size, policy.size = ffi.sizeof(options[0]), ffi.sizeof(policy[0])
    options.max_entries = 10000
    path = options.path = ffi.new("char[]", table.encode())
    limiter, identity = ffi.new("struct stint_limiter **"), ffi.new("uint32_t *")
    check(stint.stint_open(options, limiter))
    check(stint.stint_policy_parse(limit.encode(), policy, ffi.NULL))
    check(stint.stint_policy_add(limiter[0], policy, identity))
    del path  # it had to live until now
    return limiter[0], identity[0]


def work(arguments):
    """Asks for 20,000 tokens of one key. Returns how many it got."""
    header, path, table, limit = arguments
    ffi, stint = library(header, path)
    limiter, policy = open_limiter(ffi, stint, table, limit)
    requests = ffi.new("struct stint_request[]", BATCH)
    key = stint.stint_key_of(limiter, b"192.0.2.7", 9)
    for request in requests:
        request.key, request.policy, request.cost = key, policy, 1
    granted = sum(stint.stint_decide_batch(limiter, requests, BATCH, stint.STINT_NOW, ffi.NULL)
                  for _ in range(20000 // BATCH))
    stint.stint_close(limiter)
    return granted


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        granted = pool.map(work, [sys.argv[1:]] * 4)
    print("granted:", sum(granted))
