# SPDX-License-Identifier: MIT
"""The tables of the commands: for each what stands above, a row, and what stands below."""
from driver import short
from measure import POINTS
from workloads import KINDS

ROWS_FOOT = """
ns/op: one decision on its thread. Mop/s: all threads together. ratio: ns/op to its floor:
  clock+hash+xadd  reads the clock, hashes the key, one atomic add to a line of memory
  hash+xadd        the same without the clock
  xadd             nothing but the add, to lines that are known in advance
  dependent load   one load from a line whose address needs the load before it
  present key      take-at of keys that are there, in the same table
  one alone        the same work by one thread while the others wait
The first four go to as many lines as the table has, in the same order. A repeat's ns are
the median of its stretches of 512; work and floor have 16 of them by turns.
Other kinds of decisions stand beside a plain take (as many takes, batches of 64) of the same
keys in a table of its own, by turns. Their second line has their goal, and the floor that
does the same locked operations: who is within 15% of it has met the goal, too. The fastest
repeat counts; of up to 1k keys each has tables of its own.
"""


def ns(time):
    """A time that does not outgrow 7 columns."""
    return f"{time:.{2 if time < 100 else 1 if time < 10000 else 0}f}"


def numbers(row):
    if not row["checked"]:
        return "WRONG ANSWERS"
    times = " ".join(f"{ns(row[name]):>7}" for name in ("ns_per_op", "ns_min", "ns_max"))
    return (f"{times} {row['mops']:8.2f}  {row['floor']:15} {ns(row['floor_ns']):>7} "
            f"{row['ns_per_op'] / row['floor_ns']:6.2f}")


def order(row):
    return f"{row['workload']:10} {row['distribution']:7}"


def rows(_driver):
    def head():
        return ("ns are the median of the repeats\n\n"
                f"{'workload':10} {'order':7} {'keys':>6} {'thr':>3} {'load':>4} {'ns/op':>7} "
                f"{'min':>7} {'max':>7} {'Mop/s':>8}  {'floor':15} {'ns':>7} {'ratio':>6}")

    def table(row):
        lines = [f"{order(row)} {short(row['keys']):>6} {row['threads']:3} {row['load']:4.2g} "
                 f"{numbers(row)}"]
        if row["checked"] and row["unplaced"]:
            lines.append(f"{'':10} {row['unplaced']} of {row['keys']} keys unplaced")
        if row["checked"] and KINDS[row["workload"]].new_keys:
            lines.append(f"{'':10} the farthest claim is {row['reach']} lines from home")
        if row["checked"] and "goal" in row:
            met = "met" if row["reached"] else "MISSED"
            lines.append(f"{'goal':>62} {met:6} {row['goal']:4g}  "
                         f"{row['locked']:15} {row['locked_ns']:7.2f} "
                         f"{row['ns_per_op'] / row['locked_ns']:6.2f}")
        return "\n".join(lines)

    return head, table, lambda: ROWS_FOOT


def series(_driver):
    """What one thing costs as it grows."""
    def head():
        return ("ns are the median of the repeats\n\n"
                f"{'as grows':10} {'to':>5} {'workload':10} {'order':7} {'ns/op':>7} {'min':>7} "
                f"{'max':>7} {'Mop/s':>8}  {'floor':15} {'ns':>7} {'ratio':>6}")

    def table(row):
        of = row["series"]
        to = {"load": f"{row['load'] * 100:.0f}%", "threads": row["threads"],
              "key-length": row["key_length"], "policies": row["policies"],
              "refused": f"{row['refused_part'] * 100:.0f}%"}.get(of, short(row["keys"]))
        how = "striped" if row["stripes"] > 1 else row["distribution"]
        lines = [f"{of:10} {to:>5} {row['workload']:10} {how:7} {numbers(row)}"]
        if row["checked"] and (row["unplaced"] or of == "load"):
            lines.append(f"{'':10} {'':5} {row['unplaced']} of {short(row['keys'])} keys unplaced")
        return "\n".join(lines)

    return head, table, lambda: ROWS_FOOT


def tails(driver):
    def head():
        ticks = driver.ticks()
        steady = "" if ticks["timer"] == "tsc" else " (no steady TSC here)"
        return (f"ns of each call, of all repeats\ntimer    {ticks['timer']}{steady}, in steps of "
                f"{ticks['step_ns']:.1f} ns\n         an empty section takes {ticks['overhead_ns']:.1f} ns, "
                "which is subtracted\n\n"
                f"{'workload':10} {'order':7} {'keys':>6} {'thr':>3} {'timed':6} " +
                " ".join(f"{point:>8}" for point in POINTS) + f" {'calls':>9}")

    def line(tail):
        return " ".join(f"{tail[point]['ns']:8}" for point in POINTS)

    def table(row):
        start = f"{order(row)} {short(row['keys']):>6} {row['threads']:3} "
        if not row["checked"]:
            return start + "WRONG ANSWERS"
        return (f"{start}{'call':6} {line(row['call'])} {row['calls']:9}\n"
                f"{'':29} {'empty':6} {line(row['empty'])}")

    def foot():
        return ("\ncall: hashing the key and deciding, by itself: fences keep other work from "
                "overlapping it.\nempty: a section with nothing in it after each call. What the "
                "two share is the machine's noise.\n")

    return head, table, foot


def goals():
    def head():
        return ("work and floor by turns\n\n"
                f"{'':2} {'goal':36} {'':8} {'measured':>8} {'':14} {'floor':20}")

    def ratio(value):
        """Three digits, and all that are left of the point."""
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"

    def table(goal):
        sign = ">=" if goal["better"] == "higher" else "<="
        start = f"{goal['point']}  {goal['goal']:36} {sign} {goal['limit']:<5g} "
        if goal["measured"] is None:
            return start + f"{'absent' if goal['absent'] else 'not measured'}: {goal['why']}"
        span = ""
        if goal["measured_min"] != goal["measured_max"]:
            span = f"[{ratio(goal['measured_min'])}, {ratio(goal['measured_max'])}]"
        outcome = "aside" if goal["aside"] else "met" if goal["met"] else "MISSED"
        return f"{start}{ratio(goal['measured']):>8} {span:14} {goal['floor']:20} {outcome}"

    def foot():
        return """
All times are medians of stretches of 512 decisions, by turns of 16 with the floor; the
range is that of the repeats. Goals for times are ratios to the floor; for two threads,
to one thread alone, and their floor is what the same floor gains by a second core. For
more keys the floor is a dependent load in the one table, to one in the other. For Redis
it is what Redis takes, like beside like; what is aside is shown for comparison. Other
kinds of decisions stand beside plain takes; their floor does the same locked operations,
and who is within 15% of it has met the goal.
"""

    return head, table, foot


class Peers:
    """take and batch: those that all are compared with; programs: the servers' of the peers."""

    def __init__(self, take, batch, programs):
        self.take, self.batch, self.programs = take, batch, programs
        self.above = [f"x {name.removeprefix('stint-').replace('stint', 'take')}"
                      for name in (take, batch)]
        self.versions = {}

    def head(self):
        return ("ns are the median of the repeats\n\n"
                f"{'peer':14} {'keys':>5} {'thr':>3} {'decisions/s':>11} {'ns/op':>9} "
                f"{'CPU s/M':>9} {'B/key':>8} {self.above[0]:>8} {self.above[1]:>8}")

    def row(self, row):
        start = f"{row['peer']:14} {short(row['keys']):>5} {row['threads']:3} "
        if row["version"]:
            self.versions[row["version"]] = None
        if row["absent"]:
            return start + f"absent: {self.programs[row['peer']]} is not installed"
        if not row["checked"]:
            return start + "FAILED"

        def number(value):
            """Four digits or so, in at most 8 columns."""
            if value is None:
                return "-"
            return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"

        rate = row["decisions_per_second"]
        rate = f"{rate / 1e3:.1f} k" if rate < 1e6 else f"{rate / 1e6:.2f} M"
        cpu = row["cpu_seconds_per_million"]
        cpu = f"{cpu:.{4 if cpu < 0.1 else 3}f}"
        return (f"{start}{rate:>11} {number(row['ns_per_op']):>9} {cpu:>9} "
                f"{number(row['bytes_per_key']):>8} {number(row['ratio_take']):>8} "
                f"{number(row['ratio_batch']):>8}")

    def foot(self):
        versions = "".join(f"{', '.join(self.versions)}\n" if self.versions else "")
        return ("\ndecisions/s: all threads together. ns/op: of one decision on its thread. CPU "
                "s/M: seconds of\nCPU for a million decisions, the server's included. B/key: "
                "growth of resident memory / keys,\nthe server's if there is one. "
                f"{', '.join(self.above)}: {self.take}'s, {self.batch}'s decisions/s for\none of "
                f"its own.\n{versions}")


def load(limits):
    def head():
        return "every decision is timed by itself\n"

    def share(row, name):
        return f"{100 * row[name]:.3f}"

    def table(row):
        lines = [f"arrivals  {row['arrivals']} in {row['wall_seconds']:.3f} s, {row['rate']} a "
                 f"second; {short(row['keys'])} keys, zipf; {row['threads']} "
                 f"thread{'s' * (row['threads'] != 1)}"]
        for limit, counts in zip(limits, row["by_limit"]):
            lines.append(f"          {limit:40.40} {counts['allowed']:12} allowed "
                         f"{counts['refused']:12} refused")
        if row["untracked"]:
            lines.append(f"          {row['untracked']} of them without a slot, the table being "
                         "full")
        lines += [
            "",
            f"decisions {share(row, 'core_share'):>7} % of one core, "
            f"{share(row, 'core_share_min')} to {share(row, 'core_share_max')} % in a tenth of the "
            "run",
            f"          {row['ns_per_op']:7.1f} ns each, {row['ns_min']:.1f} to "
            f"{row['ns_max']:.1f} ({row['timer']}, {row['overhead_ns']:.1f} ns of timing "
            "subtracted)",
            f"threads   {share(row, 'cpu_share_with'):>7} % of one core with the decisions, "
            f"{share(row, 'cpu_share_without')} % without, "
            f"{100 * (row['cpu_share_with'] - row['cpu_share_without']):.3f} % apart",
            "",
            f"{'':14}" + "".join(f"{point:>12}" for point in POINTS),
            f"{'decision, ns':14}" + "".join(f"{row['call'][point]['ns']:12}" for point in POINTS),
            f"{'begun, us late':14}" + "".join(f"{row['late'][point]['ns'] / 1e3:12.1f}"
                                              for point in POINTS),
            "",
            f"late      {row['late_arrivals']} arrivals "
            f"({100 * row['late_arrivals'] / row['arrivals']:.4f} %) were begun more than "
            f"{row['late_after_ns'] / 1e6:.0f} ms after they were due"]
        return "\n".join(lines)

    return head, table
