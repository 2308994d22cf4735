#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint_metrics, as the parser of Prometheus's own Python client reads it: metrics.py STINT

That each count has a line of its own is metrics.c's part. In a cross build meson says what runs the
command. Needs Debian's python3-prometheus-client; skipped (77) without it.
"""
import collections
import os
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402

try:
    from prometheus_client.openmetrics import parser
except ImportError:
    print("python3-prometheus-client is not installed")
    sys.exit(77)

POLICIES = {"3/366 days": (3, 366 * 86400), 'a "b\\n\\': (2, 0.25), "{unused},": (2**28, 366 * 86400)}
TEXT = '3/366d\n2 per 250 ms name="a \\"b\\\\n\\\\" shadow\n268435456 per 366 days name="{unused},"\n'
TABLE = {  # that are not 0
    "used_slots": 2, "live_slots": 2, "max_entries": 1000, "max_policies": 8, "policy_ids": 3, "labels": 8,
    "used_labels": 1, "max_reach_lines": 23, "placed_total": 2}
NOTHING = ("overrides barred_keys banned_keys gone_policy_ids processes reach_lines lost removed "
           "untracked_decisions_total replaced_total clock_steps_total stray_tokens_total "
           "unknown_policy_decisions_total bad_requests_total resets_total").split()
COUNTS = "near_limit_decisions first_refusals untracked_decisions charged_tokens refunded_tokens lost_refunds mistaken_nows"
UNITS = "slots|limit|burst|overrides|entries|keys|processes|policies|ids|labels|lines|lost|removed"


class Metrics(commands.Case):
    maxDiff = None

    def test_all_samples_and_no_others(self):
        table = self.directory / "table"
        self.good("make", "--entries=1000", "--max-policies=8", "--labels=7", table)
        self.good("apply", table, "-", stdin=TEXT)
        for key, code in ("one", 0), ("two", 0), ("two", 0), ("two", 0), ("two", 1):
            self.assertEqual(commands.call("take", table, "3/366 days", key).returncode, code)
        families = list(parser.text_string_to_metric_families(self.good("metrics", table)))
        self.assertEqual(max(collections.Counter(family.name for family in families).values()), 1)
        samples = {}
        for family in families:
            self.assertRegex(family.name, r"^stint_[a-z_]+[a-z]$")
            self.assertRegex(family.documentation, r"^[A-Z].*\.$")
            unit = re.search(r"_(bytes|seconds)$", family.name)
            self.assertEqual(family.unit, unit[1] if unit else "")
            self.assertEqual(family.type, "gauge" if unit or re.search(f"_({UNITS})$", family.name) else "counter")
            for sample in family.samples:
                self.assertLessEqual(set(sample.labels), {"policy", "outcome"})
                key = sample.name.removeprefix("stint_"), *(sample.labels[label] for label in ("policy", "outcome")
                                                            if label in sample.labels)
                self.assertNotIn(key, samples)
                samples[key] = sample.value
        self.assertGreater(samples.pop(("table_memory_bytes",)), 16 * samples[("table_slots",)])
        self.assertGreater(samples.pop(("table_slots",)), 1999)
        expected = {(f"table_{name}",): value for name, value in {**TABLE, **dict.fromkeys(NOTHING, 0)}.items()}
        for policy, (limit, window) in POLICIES.items():
            expected["policy_limit", policy] = limit
            expected["policy_window_seconds", policy] = window
            expected.update({(f"{name}_total", policy): 0 for name in COUNTS.split()})
            expected.update({("decisions_total", policy, outcome): 0 for outcome in ("allowed", "refused", "shadowed")})
        expected.update({("decisions_total", "3/366 days", "allowed"): 4, ("decisions_total", "3/366 days", "refused"): 1,
                         ("first_refusals_total", "3/366 days"): 1})
        self.assertEqual(samples, expected)


if __name__ == "__main__":
    commands.main(*shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")))
