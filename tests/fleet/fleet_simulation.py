#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The simulated fleet (fleet/simulate.py): cases whose numbers can be worked out by hand, the
formulas for the others, what it prints and what it refuses. The fleet of real servers is tested in
fleet/fleet.py.

    fleet_simulation.py FLEET_SIMULATION
"""
import math
import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, f"{HERE.parent}/kit")
import commands  # noqa: E402
from commands import needs_gnuplot, result, svg_texts  # noqa: E402

BALANCERS = ["haproxy", "nginx", "envoy-ring", "envoy-maglev", "modulo"]
RINGS = BALANCERS[:2]  # where a change moves the keys of one node and no others


def rows(*arguments):
    return result(*arguments)["rows"]


class ByHand(unittest.TestCase):
    def test_nodes_that_stay_keep_every_limit(self):
        for row in rows("--churn", "stable", "--balancer", ",".join(BALANCERS), "--demand",
                        "greedy,steady,zipf", "--nodes", "2,10,1k", "--windows", "2"):
            with self.subTest(row=row):
                keeps = row["keeps"]
                self.assertEqual((keeps["over"], keeps["extra_limits"], keeps["mean"], keeps["p99"],
                                  keeps["max"], keeps["theory"]), (0, 0, 0, 0, 0, 0))
                self.assertEqual((row["moves_max"], row["moved"], row["deaths"]), (0, 0, 0))
                self.assertNotIn("forgets", row)

    def test_a_deploy_of_two_nodes(self):
        """Each key moves to the other node and back: three limits in all, two if nothing is
        forgotten. With two nodes all balancers do the same: one place is left."""
        for row in rows("--churn", "deploy", "--balancer", ",".join(BALANCERS), "--nodes", "2",
                        "--windows", "3", "--keys", "1000"):
            with self.subTest(row=row):
                self.assertEqual((row["deaths"], row["moves_max"], row["moved"]), (6, 2, 0.5))
                for restart, limits in (("forgets", 2), ("keeps", 1)):
                    out = row[restart]
                    self.assertEqual((out["over"], out["extra_limits"]), (3000, 3000 * limits))
                    self.assertEqual((out["mean"], out["p99"], out["max"]), (100 * limits,) * 3)

    def test_a_deploy_under_steady_demand(self):
        """Twice the limit, evenly. Node 0 restarts at a quarter of the window, node 1 at three
        quarters; nobody is away for long. Of 200 requests in a window a key of node 0 has 50 granted
        before, and then 100 of 150 by the node that forgot all (its own, again): 50 too many. A key
        of node 1 has 100 granted before, and then the last 50."""
        for seed in range(3):
            for row in rows("--churn", "deploy", "--demand", "steady", "--nodes", "2", "--down",
                            "10ms", "--windows", "1", "--keys", "500", "--seed", str(seed)):
                with self.subTest(row=row):
                    # A request can stand on either side of a change: one token of 100.
                    self.assertAlmostEqual(row["forgets"]["mean"], 50, delta=1)
                    self.assertAlmostEqual(row["forgets"]["max"], 50, delta=1)
                    self.assertLessEqual(row["keeps"]["max"], 1)

    def test_flapping_checks(self):
        """However often a node is left and found again: two nodes count, and both remember."""
        for row in rows("--churn", "flap", "--balancer", "haproxy,nginx", "--nodes", "2,10",
                        "--windows", "20"):
            with self.subTest(row=row):
                keeps = row["keeps"]
                self.assertEqual((row["moves_max"], keeps["max"]), (10, 100))
                self.assertEqual(keeps["over"], keeps["extra_limits"])
                self.assertEqual(row["deaths"], 100)
                self.assertNotIn("forgets", row)

    def test_a_zipf_mix_passes_only_limits_that_are_reached(self):
        (row,) = rows("--demand", "zipf", "--nodes", "10", "--keys", "1000")
        ranks = [n ** -0.99 for n in range(1, 1001)]
        reach = sum(rank / sum(ranks) * 1000 / 4 > 1 for rank in ranks)
        self.assertLess(0, row["forgets"]["over"])
        self.assertLessEqual(row["forgets"]["over"], row["windows"] * reach)


class Formulas(unittest.TestCase):
    def test_the_part_of_the_keys_that_a_change_moves(self):
        """1/N of them, and what each balancer adds: Envoy's ring shares its 1,024 points among the
        nodes that are up, so the others get more points when one leaves."""
        for row in rows("--churn", "death", "--balancer", ",".join(BALANCERS), "--nodes",
                        "10,30,100", "--windows", "50", "--keys", "3000"):
            with self.subTest(row=row):
                nodes, balancer = row["nodes"], row["balancer"]
                expected = 1 / nodes
                if balancer == "modulo":
                    expected = 1 - 1 / nodes
                elif balancer == "envoy-ring":
                    before, after = math.ceil(1024 / nodes), math.ceil(1024 / (nodes - 1))
                    expected += (1 - expected) * (after - before) / after
                if balancer == "envoy-maglev":
                    self.assertGreater(row["moved"], 0.9 / nodes)
                    self.assertLess(row["moved"], 2 / nodes)
                else:
                    self.assertAlmostEqual(row["moved"] / expected, 1, delta=0.1)

    def test_the_mean(self):
        for row in rows("--churn", "death,crashes,deploy,flap", "--balancer", ",".join(RINGS),
                        "--nodes", "10,100", "--windows", "200", "--keys", "1000", "--between",
                        "6h"):
            for restart in ("forgets", "keeps"):
                if restart not in row:
                    continue
                with self.subTest(row=row, restart=restart):
                    self.assertAlmostEqual(row[restart]["mean"] / row[restart]["theory"], 1,
                                           delta=0.12)
                    self.assertLessEqual(row[restart]["max"], 100 * row["moves_max"])

    def test_the_mean_under_steady_demand(self):
        """At t of the window the dead node has granted min(1, 2t) limits, and grants min(1, 2(1-t))
        after its return; above one limit that is 1/2 in the mean of all t, for 1/N of the keys."""
        for row in rows("--demand", "steady", "--nodes", "10,100", "--windows", "500", "--keys",
                        "2000", "--down", "10ms"):
            with self.subTest(row=row):
                self.assertAlmostEqual(row["forgets"]["mean"] * row["nodes"] / 50, 1, delta=0.12)

    def test_the_load_of_the_busiest_node(self):
        """More points make it even: the spread of a node's part falls with their root."""
        light, heavy = (rows("--churn", "stable", "--nodes", "100", "--weight", weight, "--windows",
                             "1")[0]["busiest"] for weight in ("1", "256"))
        self.assertGreater(light, 1.3)
        self.assertLess(heavy, 1.1)
        self.assertGreaterEqual(heavy, 1)

    def test_no_bound_is_passed_in_many_fleets(self):
        for seed in range(2):
            for row in rows("--nodes", "2,3,30", "--churn", "crashes,death,deploy", "--balancer",
                            ",".join(BALANCERS), "--between", "3h", "--down", "20m", "--windows",
                            "5", "--keys", "300", "--seed", str(seed)):
                with self.subTest(row=row):
                    self.assertEqual((row["passed"], row["untracked"]), (0, 0))
                    self.assertLessEqual(row["keeps"]["over"], row["forgets"]["over"])
                    self.assertLessEqual(row["keeps"]["extra_limits"],
                                         row["forgets"]["extra_limits"])


class Output(commands.Case):
    def test_a_seed_gives_the_same_again(self):
        arguments = ["--churn", "crashes", "--nodes", "20", "--between", "1d", "--keys", "500"]
        first = rows(*arguments, "--seed", "7")
        self.assertEqual(first, rows(*arguments, "--seed", "7"))
        self.assertNotEqual(first, rows(*arguments, "--seed", "8"))
        self.assertEqual(first[0]["seed"], 7)

    def test_the_selection_as_table_and_json(self):
        small = ["--keys", "200", "--windows", "5", "--nodes", "3,5"]
        found = {(row["balancer"], row["churn"], row["demand"]) for row in rows(*small)}
        self.assertEqual(found, {(balancer, "death", "greedy") for balancer in BALANCERS} |
                         {("haproxy", "death", demand) for demand in ("steady", "zipf")} |
                         {("haproxy", churn, "greedy") for churn in ("crashes", "deploy", "flap")})
        self.table(*small, words=["seed 1"])

    @needs_gnuplot
    def test_pictures(self):
        rows("--keys", "1000", "--windows", "20", "--nodes", "5,10", "--plot", self.directory)
        self.assertEqual(sorted(os.listdir(self.directory)), ["balancers.svg", "fleet.svg"])
        for name, words in (("balancers.svg", BALANCERS + ["two limits for 1 of N keys"]),
                            ("fleet.svg", ["death, node forgets", "deploy, node keeps", "flap"])):
            self.assertLessEqual(set(words), set(svg_texts(self.directory / name)))

    def test_the_option_and_the_value_are_named(self):
        for option, value in (("--nodes", "10,1"), ("--nodes", "10,20k"), ("--nodes", "ten"),
                              ("--balancer", "haproxy,f5"), ("--churn", "rain"), ("--demand", ""),
                              ("--keys", "0"), ("--keys", "2M"), ("--windows", "0"),
                              ("--weight", "257"), ("--seed", "-1"), ("--down", "30"),
                              ("--down", "1 s"), ("--between", "never"), ("--format", "csv"),
                              ("--limit", "100/fortnight"), ("--limit", "100/hour smooth"),
                              ("--limit", "100/hour capacity=200")):
            self.refused(option, value, help_="stint-bench fleet --help",
                         words=(option, "'%s'" % (value if option == "--limit" else value.split(",")[-1])))
        for word, *arguments in (
                ("--nothing", "--nothing"), ("--keys needs a value", "--keys"),
                ("--down", "--limit", "10/second", "--down", "1s"),
                ("--windows", "--limit", "1/366d", "--windows", "300"),
                ("GiB", "--balancer", "modulo", "--churn", "deploy", "--nodes", "10k", "--keys", "1M")):
            self.refused(*arguments, words=word, help_="stint-bench fleet --help")

    def test_help(self):
        self.table("--help", words=("--nodes", "--churn", "flap", "--plot", "Exit codes"))


if __name__ == "__main__":
    commands.main(sys.executable, str(HERE / "simulate.py"))
