#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures that stint-bench puts first beside those of a loop that shares nothing with it but
stint.h (own_loop.c), by turns: at most 5% apart.

    own_loop.py BENCH_PY STINT_BENCH OWN_LOOP
"""
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402
from commands import must, result  # noqa: E402

APART = 1.05
TURNS, TURNS_MAX = 5, 60  # until they are that close


class OwnLoop(unittest.TestCase):
    def test_each_figure(self):
        for workload, keys, seconds in (("take", 1000, 0.02), ("refuse", 1000, 0.02), ("batch", 1000, 0.02),
                                        ("take", 10**6, 0.1), ("batch", 10**6, 0.1)):
            with self.subTest(workload=workload, keys=keys):
                ours, own, ratio = [], [], 0
                while len(own) < TURNS or not 1 / APART < ratio < APART and len(own) < TURNS_MAX:
                    own.append(float(must(OWN, workload, keys, seconds)))
                    row, = result("run", "--workload", workload, "--keys", str(keys), "--seconds",
                                  str(seconds), "--processes", "1")["rows"]
                    ours += row["each"]
                    ratio = min(ours) / min(own)  # others at work on the machine only ever add
                print(f"{workload}, {keys} keys: {min(ours):.2f} ns, by an own loop {min(own):.2f}; {len(own)} turns")
                self.assertLess(1 / APART, ratio)
                self.assertLess(ratio, APART)


if __name__ == "__main__":
    OWN = os.path.abspath(sys.argv.pop(3))
    commands.main(sys.executable, arguments=2)
