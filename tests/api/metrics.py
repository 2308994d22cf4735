#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint_metrics, as the parser of Prometheus's own Python client reads it.

    metrics.py METRICS_DUMP

METRICS_DUMP (metrics_dump.c) prints the metrics of a limiter whose counts are known here. In a cross
build meson says what runs it. Needs Debian's python3-prometheus-client; skipped (77) without it.
"""
import os
import re
import shlex
import subprocess
import sys
import unittest

try:
    from prometheus_client.openmetrics import parser
except ImportError:
    print("python3-prometheus-client is not installed")
    sys.exit(77)

DUMP = "metrics_dump"
WRAPPER = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))

# In the order in which they were added: name, limit, window in seconds.
PLAIN, ODD, UNUSED = '3/minute', 'a "b\\n\\', "{unused},"
POLICIES = {PLAIN: (3, 60), ODD: (2, 0.25), UNUSED: (2**28, 366 * 86400)}


def by_policy(name, plain, odd):
    """Samples of the three policies; the last was never used."""
    return {(name, (("policy", policy),)): value
            for policy, value in ((PLAIN, plain), (ODD, odd), (UNUSED, 0))}


def decisions(policy, **outcomes):
    return {("stint_decisions_total", (("outcome", outcome), ("policy", policy))): value
            for outcome, value in outcomes.items()}


def dump(*arguments):
    return subprocess.run([*WRAPPER, DUMP, *arguments], check=True, stdout=subprocess.PIPE,
                          timeout=30).stdout.decode("ascii")


class Metrics(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.families = list(parser.text_string_to_metric_families(dump()))
        cls.samples = {}
        for family in cls.families:
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in cls.samples, key
                cls.samples[key] = sample.value

    def test_all_samples_and_no_others(self):
        stats = {name: int(value) for name, value in
                 (line.split() for line in dump("stats").splitlines())}
        expected = {}
        for name, value in {
            "memory_bytes": stats["memory_bytes"],
            "slots": stats["slots"],
            "used_slots": 4,
            "live_slots": 4,
            "overrides": 0,
            "barred_keys": 0,
            "banned_keys": 0,
            "max_entries": 1000,
            "processes": 0,
            "max_policies": 8,
            "policy_ids": 5,
            "gone_policy_ids": 2,
            "labels": 8,
            "used_labels": 1,
            "max_reach_lines": 23,
            "reach_lines": 0,
            "lost": 0,
            "removed": 0,
            "placed_total": 4,
            "untracked_decisions_total": 13,
            "replaced_total": 13,
            "clock_steps_total": 14,
            "stray_tokens_total": 15,
            "unknown_policy_decisions_total": 9,
            "bad_requests_total": 17,
            "resets_total": 16,
        }.items():
            expected["stint_table_" + name, ()] = value
        for policy, (limit, window) in POLICIES.items():
            expected["stint_policy_limit", (("policy", policy),)] = limit
            expected["stint_policy_window_seconds", (("policy", policy),)] = window
        expected.update(decisions(PLAIN, allowed=7, refused=3, shadowed=0))
        expected.update(decisions(ODD, allowed=2, refused=0, shadowed=5))
        expected.update(decisions(UNUSED, allowed=0, refused=0, shadowed=0))
        expected.update(by_policy("stint_near_limit_decisions_total", 11, 0))
        expected.update(by_policy("stint_first_refusals_total", 2, 1))
        expected.update(by_policy("stint_untracked_decisions_total", 1, 12))
        expected.update(by_policy("stint_charged_tokens_total", 18, 0))
        expected.update(by_policy("stint_refunded_tokens_total", 0, 19))
        expected.update(by_policy("stint_lost_refunds_total", 1, 0))
        expected.update(by_policy("stint_mistaken_nows_total", 0, 1))
        self.assertEqual(self.samples, expected)
        self.assertGreater(stats["slots"], 1999)
        self.assertGreater(stats["memory_bytes"], 31999)

    def test_families_say_what_they_are(self):
        names = [family.name for family in self.families]
        self.assertEqual(len(set(names)), len(names))
        for family in self.families:
            with self.subTest(family=family.name):
                self.assertRegex(family.name, r"^stint_[a-z_]+[a-z]$")
                self.assertRegex(family.documentation, r"^[A-Z].*\.$")
                gauge = re.search(r"_(bytes|slots|limit|burst|seconds|overrides|entries|keys|processes|policies|ids|labels|lines|lost|removed)$", family.name)
                self.assertEqual(family.type, "gauge" if gauge else "counter")
                unit = re.search(r"_(bytes|seconds)$", family.name)
                self.assertEqual(family.unit, unit.group(1) if unit else "")


if __name__ == "__main__":
    DUMP = sys.argv.pop(1)
    unittest.main()
