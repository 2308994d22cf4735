# SPDX-License-Identifier: MIT
"""Rows as a table for people, of at most 100 columns, as CSV, or as one JSON object, of one shape
whatever was measured: command, machine, build, date, seconds, rows, others. Where a result goes
beside the terminal: into pictures, and beside another result."""
import csv
import json
import os
import shutil
import sys
import time

import compare
import plot
from driver import Failed, Usage, machine, work_of_others

QUIET = 0.03  # of the CPUs' time, that others may take


def number(value, digits=6):
    """As many digits as are worth printing."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def flat(row, prefix=""):
    """A row's values by name, those of a tail too: call.p99.ns."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, " ".join(map(str, value))
        else:
            yield prefix + name, value


class Report:
    """A result on the standard output.

    head, table and foot say what stands in the table: head() and foot() return text, table(row) the
    lines of a row. What is asked for is looked at before anything is measured; nothing is printed
    before begin(). `programs`: of a command that can compare builds, the one that is measured; an
    earlier one comes to stand before it."""

    def __init__(self, command, options, build, seconds, head, table, foot=lambda: "",
                 pictures=(plot.keys_picture,), programs=None):
        self.options, self.table, self.foot, self.pictures = options, table, foot, pictures
        self.json, self.csv = options.format == "json", options.format == "csv"
        self.result = {"command": command, "machine": machine(), "build": build,
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "seconds": seconds, "rows": []}
        self.head, self.old, self.by_turns = head, None, False
        self.more, self.others = {}, work_of_others() if seconds else None  # else nothing is timed
        self.prepare(programs)

    def prepare(self, programs):
        """Sees to it, before anything is measured, that there is gnuplot, a directory for it, and
        something to compare with."""
        directory = getattr(self.options, "plot", None)
        old = getattr(self.options, "compare", None)
        if directory:
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise Usage(f"--plot '{directory}': {error.strerror}") from None
            if not os.access(directory, os.W_OK | os.X_OK):
                raise Usage(f"--plot '{directory}': nothing can be written there")
            if shutil.which("gnuplot") is None:
                raise Failed("--plot needs gnuplot, which is not there (Debian: gnuplot-nox)")
        if old and self.csv:
            raise Usage("--compare: not with --format csv")
        if old and programs and compare.is_program(old):
            programs.insert(0, old)
            self.by_turns, self.old = True, {**self.result, "rows": [], "build": {}}
        elif old:
            self.old = compare.read(old, self.result["command"])

    def begin(self):
        if self.json:
            start = json.dumps({**self.result, "rows": None}, indent=2)
            print(start.removesuffix("null\n}") + "[", end="", flush=True)
        elif not self.csv:
            print(self.start() + self.head(), flush=True)
        return self

    def start(self):
        about, build = self.result["machine"], self.result["build"]
        cores = "core" if about["cores"] == 1 else "cores"
        text = (f"machine  {about['cpu']:.60}, {about['cores']} {cores} (CPU {about['cpus']:.20}), "
                f"{about['memory'] / 2**30:.1f} GiB\n"
                f"         {about['kernel']:.60}\n"
                f"build    stint {build['version']}, commit {build['commit']:.20}, "
                f"{build['compiler']:.50}\n"
                f"         {build['flags']:.88}\n"
                f"run      {self.result['date']}, ")
        if self.result["seconds"]:  # else nothing is timed
            text += f"{self.result['seconds']:g} s a row; "
        return text

    def row(self, row, old=None):
        row = {name: number(value) for name, value in row.items()}
        rows = self.result["rows"]
        rows.append(row)
        if old is not None:
            self.old["rows"].append(old)
        if self.json:  # row by row: one that is interrupted has those that were measured
            print(f"{',' if len(rows) > 1 else ''}\n    {json.dumps(row)}", end="", flush=True)
        elif self.csv:
            values = dict(flat(row))
            if len(rows) == 1:
                self.columns = list(values)
                csv.writer(sys.stdout).writerow(self.columns)
            csv.writer(sys.stdout).writerow([values.get(name, "") for name in self.columns])
            sys.stdout.flush()
        else:
            print(self.table(row), flush=True)

    def quiet(self):
        """What others took while this was measured, as a part of the CPUs' time, and what to say of
        it."""
        if self.others is None:
            return ""
        part = self.result["others"] = number(self.others(), 3)
        if part is None or part <= QUIET:
            return ""
        return (f"\nNOT QUIET: others took {100 * part:.0f}% of the CPUs' time while this was "
                "measured.\n")

    def end(self):
        """Draws and compares, if that is asked for."""
        said = self.quiet()
        if self.json:
            print("\n  ]", end="")
            if self.others:
                self.more = {"others": self.result["others"], **self.more}
            for name, value in self.more.items():
                print(f',\n  "{name}": {json.dumps(value)}', end="")
        elif not self.csv:
            print(self.foot(), end=said)
        if self.old is not None:
            found = compare.results(self.options.compare, self.old, self.result, self.by_turns)
            if self.json:
                print(f',\n  "compare": {json.dumps(found, indent=2)}', end="")
            else:
                print(compare.table(found))
        if self.json:
            print("\n}")
        sys.stdout.flush()
        if getattr(self.options, "plot", None):
            plot.draw_all(self.pictures, self.result, self.options.plot)
