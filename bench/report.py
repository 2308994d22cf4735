# SPDX-License-Identifier: MIT
"""Rows as a table for people, of at most 100 columns, or as one JSON object, of one shape whatever
was measured: command, machine, build, date, seconds, rows. Where a result goes beside the terminal:
into pictures, and beside an earlier result."""
import json
import os
import shutil
import sys
import time

import compare
import plot
from driver import Failed, Usage, machine

QUIET = 10  # preemptions a row, about one second, that a machine with no work shows


def number(value, digits=6):
    """As many digits as are worth printing."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


class Report:
    """A result on the standard output.

    head, table and foot say what stands in the table: head() and foot() return text, table(row) the
    lines of a row. What is asked for is looked at before anything is measured; nothing is printed
    before begin()."""

    def __init__(self, command, options, build, seconds, head, table, foot=lambda: "",
                 pictures=plot.PICTURES):
        self.options, self.table, self.foot, self.pictures = options, table, foot, pictures
        self.json = options.format == "json"
        self.preempted = 0
        self.result = {"command": command, "machine": machine(), "build": build,
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "seconds": seconds, "rows": []}
        self.head, self.old = head, None
        self.prepare()

    def begin(self):
        if self.json:
            start = json.dumps({**self.result, "rows": None}, indent=2)
            print(start.removesuffix("null\n}") + "[", end="", flush=True)
        else:
            print(self.start() + self.head(), flush=True)
        return self

    def prepare(self):
        """Sees to it, before anything is measured, that there is gnuplot, a directory for it, and a
        result to compare with."""
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
        if old:
            self.old = compare.read(old, self.result["command"])

    def start(self):
        about, build = self.result["machine"], self.result["build"]
        cores = "core" if about["cores"] == 1 else "cores"
        text = (f"machine  {about['cpu']:.60}, {about['cores']} {cores}, "
                f"{about['memory'] / 2**30:.1f} GiB\n"
                f"         {about['kernel']:.60}, huge pages: {about['huge_pages']}\n"
                f"build    stint {build['version']}, commit {build['commit']:.20}, "
                f"{build['compiler']:.50}\n"
                f"         {build['flags']:.88}\n"
                f"run      {self.result['date']}, ")
        if self.result["seconds"]:  # else nothing is timed
            text += f"{self.result['seconds']:g} s a row; "
        return text

    def row(self, row):
        row = {name: number(value) for name, value in row.items()}
        rows = self.result["rows"]
        rows.append(row)
        self.preempted += row.get("preempted", 0)
        if self.json:  # row by row: one that is interrupted has those that were measured
            print(f"{',' if len(rows) > 1 else ''}\n    {json.dumps(row)}", end="", flush=True)
        else:
            print(self.table(row), flush=True)

    def end(self):
        """Draws and compares, if that is asked for."""
        if self.json:
            print("\n  ]", end="")
        else:
            print(self.foot(), end="")
            if self.preempted > QUIET * len(self.result["rows"]):
                print(f"\nNOT QUIET: other work took the cores {self.preempted:.0f} times while "
                      "this was measured.")
        if self.old is not None:
            found = compare.results(self.options.compare, self.old, self.result)
            if self.json:
                print(f',\n  "compare": {json.dumps(found, indent=2)}', end="")
            else:
                print(compare.table(found))
        if self.json:
            print("\n}")
        sys.stdout.flush()
        if getattr(self.options, "plot", None):
            plot.draw_all(self.pictures, self.result, self.options.plot)
