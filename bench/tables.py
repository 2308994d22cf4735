# SPDX-License-Identifier: MIT
"""The tables of the commands: for each what stands above, a row, and what stands below."""
import textwrap

from driver import short
from measure import POINTS
from workloads import FEW, MILLION

ROWS_FOOT = """
ns/op: one decision on its thread, the median of the processes. Mop/s: what all threads together
did in the time that passed. ref: measured apart, and ratio: ns/op to it. It is no floor:
  clock+hash+add   reads the clock, hashes the key, one atomic add to memory as large as the table
  hash+add         the same without the clock
  present keys     take-at of keys that are there
  plain take       take, of the same keys (or as many takes, by the same policies)
"""
WHERE_TO_GO_ON = """
Where to go on:
  ./bench/run run --workload paths       every kind of decision
  ./bench/run load --rate N --limit L    your rate, by your limits
  ./bench/run run --keys 1k,1M,100M      more keys; or --threads, --load, --key-length
  ./bench/run peers                      what one would use instead
  ./bench/run --help                     all commands; bench/README.md says what is timed, and how
"""


def ns(time):
    """A time that does not outgrow 7 columns."""
    return f"{time:.{2 if time < 100 else 1 if time < 10000 else 0}f}"


def numbers(row):
    if not row["checked"]:
        return "WRONG ANSWERS"
    times = " ".join(f"{ns(row[name]):>7}" for name in ("ns_per_op", "ns_min", "ns_max"))
    return (f"{times} {row['mops']:8.2f}  {row['reference']:15} {ns(row['reference_ns']):>7} "
            f"{row['ratio']:6.2f}")


def pages(rows):
    """Whether large tables had huge pages: what was found, not what the system says."""
    large = [row["huge_pages"] for row in rows
             if row.get("keys", 0) >= MILLION and row.get("huge_pages") is not None]
    if not large:
        return ""
    part = sum(large) / len(large)
    few = ": a million keys cost less with them" if part < 0.5 else ""
    return f"Of the memory with a million keys or more {100 * part:.0f}% was on huge pages{few}.\n"


def rows():
    seen = []

    def head():
        return ("threads pinned, CPU by CPU\n\n"
                f"{'workload':10} {'order':7} {'keys':>6} {'thr':>3} {'load':>4} {'ns/op':>7} "
                f"{'min':>7} {'max':>7} {'Mop/s':>8}  {'ref':15} {'ns':>7} {'ratio':>6}")

    def table(row):
        seen.append(row)
        lines = [f"{row['workload']:10} {row['distribution']:7} {short(row['keys']):>6} {row['threads']:3} {row['load']:4.2g} "
                 f"{numbers(row)}"]
        if row["checked"] and row["unplaced"]:
            lines.append(f"{'':10} {row['unplaced']} requests found no slot")
        return "\n".join(lines)

    return head, table, lambda: ROWS_FOOT + pages(seen)


def answers(rows, load, loud):
    """What one came for, in four lines; what cannot be said is said. `loud`: others were at work,
    who only ever add to times."""
    def mops(order, keys, threads, workload="take"):
        for row in rows:
            if (row["workload"], row["distribution"], row["keys"], row["threads"]) == (
                    workload, order, keys, threads) and row["checked"]:
                return row["mops"]
        return None

    def rate(order, keys, threads=1):
        value = mops(order, keys, threads)
        return f"{value:.3g} million" if value else "an unknown number"

    def time(of):
        return f"{of['ns'] / 1e3:.3g} us" if of["ns"] < 1e6 else f"{of['ns'] / 1e6:.3g} ms"

    done, most = load["done"], max(row["threads"] for row in rows)
    least, within = ("at least ", "in at most") if loud else ("", "within")
    share = f"{100 * load['core_share']:.1f}%"
    cost = f"{share} of a core ({load['ns_per_op']:.0f} ns each, a million keys)"
    if loud:
        usual = load["rate"] * load["call"]["p50"]["ns"] / 1e9
        cost = f"{100 * usual:.1f}% of a core (by the median; at most {share})"
    lines = [f"{load['rate']:,} decisions a second take {cost}.",
             f"One core decides {least}{rate('uniform', FEW)} a second of a thousand keys, "
             f"{rate('uniform', MILLION)} of a million.",
             f"At {load['rate']:,} a second 99% are decided {within} {time(done['p99'])} after they "
             f"are due, 99.9% {within} {time(done['p99.9'])}."]
    if most == 1:
        return lines + ["There is one CPU: what more threads give cannot be said here."]
    gains = []
    for name, order, keys in (("1k keys", "uniform", FEW), ("1M keys", "uniform", MILLION),
                              ("one hot key", "hot", FEW)):
        one, all_of = mops(order, keys, 1), mops(order, keys, most)
        gains.append(f"{name} {all_of / one:.2f}" if one and all_of else f"{name} unknown")
    if loud:
        return lines + [f"{most} threads: not to be said while others work (seen: "
                        f"{', '.join(gains)})."]
    return lines + [f"{most} threads decide so many times what one does: {', '.join(gains)}."]


class Peers:
    """take and batch: those that all are compared with; programs: the servers' of the peers."""

    def __init__(self, take, batch, programs):
        self.take, self.batch, self.programs = take, batch, programs
        self.above = [f"x {name.removeprefix('stint-').replace('stint', 'take')}"
                      for name in (take, batch)]
        self.versions, self.rows = {}, []

    def head(self):
        return ("threads pinned, CPU by CPU\n\n"
                f"{'peer':14} {'keys':>5} {'thr':>3} {'decisions/s':>11} {'ns/op':>8} {'min':>8} "
                f"{'max':>8} {'CPU s/M':>8} {'B/key':>7} {self.above[0]:>8} {self.above[1]:>8}")

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
        times = " ".join(f"{number(row[name]):>8}" for name in ("ns_per_op", "ns_min", "ns_max"))
        self.rows.append(row)
        return (f"{start}{rate:>11} {times} {cpu:>8} {number(row['bytes_per_key']):>7} "
                f"{number(row['ratio_take']):>8} {number(row['ratio_batch']):>8}")

    def foot(self):
        versions = "".join(f"{', '.join(self.versions)}\n" if self.versions else "")
        huge = ", ".join(f"{row['peer']} {100 * row['huge_pages']:.0f}%" for row in self.rows
                         if row["huge_pages"] and row["keys"] == max(r["keys"] for r in self.rows)
                         and row["threads"] == 1)
        huge = textwrap.fill(f"own: threads share no limit. On huge pages: {huge or 'nothing'}.", 98)
        return ("\ndecisions/s: what all threads together did in the time that passed. ns/op: one "
                "decision on its\nthread. CPU s/M: seconds of CPU for a million decisions, the "
                "server's included. B/key: growth of\nresident memory / keys, the server's if "
                f"there is one. {', '.join(self.above)}: {self.take}'s,\n{self.batch}'s decisions/s "
                f"for one of its own.\n{huge}\n{versions}")


def load(limits):
    def head():
        return "every decision is timed by itself\n"

    def share(row, name):
        return f"{100 * row[name]:.3f}"

    def us(tail):
        return "".join(f"{tail[point]['ns'] / 1e3:11.2f}" for point in POINTS)

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
            f"{share(row, 'core_share_min')} to {share(row, 'core_share_max')} % by process",
            f"          {row['ns_per_op']:7.1f} ns each, {row['ns_min']:.1f} to "
            f"{row['ns_max']:.1f} ({row['overhead_ns']:.1f} ns of timing subtracted)",
            "",
            f"{'':18}" + "".join(f"{point:>11}" for point in POINTS),
            f"{'decision, us':18}" + us(row["call"]),
            f"{'due to decided, us':18}" + us(row["done"]),
            "",
            f"late      {row['late_arrivals']} arrivals "
            f"({100 * row['late_arrivals'] / row['arrivals']:.4f} %) were decided more than "
            f"{row['late_after_ns'] / 1e6:.0f} ms after they were due"]
        return "\n".join(lines)

    return head, table
