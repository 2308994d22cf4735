# SPDX-License-Identifier: MIT
"""What the scripts that measure share: their options, the program that they ask, the machine."""
import argparse
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path


class Failed(Exception):
    """It cannot be measured: exit code 1."""


class Usage(Exception):
    """What was asked is wrong: exit code 2."""


# ---- Options ----

class Parser(argparse.ArgumentParser):
    """Says what is wrong with an option, and names it."""

    def __init__(self, command, description, epilog=None):
        def formatter(prog):
            return argparse.RawDescriptionHelpFormatter(prog, max_help_position=24, width=98)
        super().__init__(prog=f"stint-bench {command}",
                         description=textwrap.fill(description, 98), epilog=epilog,
                         allow_abbrev=False, formatter_class=formatter)
        self.command = command

    def error(self, message):
        message = re.sub(r"^argument (\S+): expected one argument$", r"\1 needs a value", message)
        message = re.sub(r"^argument (\S+): ignored explicit argument.*", r"\1 takes no value",
                         message)
        message = message.removeprefix("argument ")
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help lists the options.\n")

    def read(self, arguments):
        options, rest = self.parse_known_args(arguments)
        if rest:
            self.error(f"there is no option '{rest[0]}'")
        return options

    def add_output(self, plot=True, compare=True):
        formats = ["table", "json"] + ["csv"] * compare
        self.add_argument("--format", type=one_of(formats, f"not {' or '.join(formats)}"),
                          default="table", metavar="F", help=f"{', '.join(formats)} (table)")
        if plot:
            self.add_argument("--plot", metavar="DIR", help="draws what the rows show into DIR, "
                              "as SVG (needs gnuplot)")
        if compare:
            self.add_argument("--compare", metavar="OLD", help="what changed since that --format "
                              "json; or, if OLD is another build's stint-bench, from that one to "
                              "this, by turns in one run")
            self.add_argument("--processes", type=count(1, 1000, "from 1 to 1000"), metavar="N",
                              help="repeats of a row, each a process of its own (5, with --compare "
                              "15): with fewer than 5 no change is told")

    def add_seconds(self, default, text="timed work a row, 0.001 to 3600"):
        self.add_argument("--seconds", type=real(0.001, 3600), default=default, metavar="S",
                          help=f"{text} ({default:g})")


def one_of(names, why):
    def read(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"'{text}' is {why}")
        return text
    return read


def list_of(read):
    return lambda text: [read(part) for part in text.split(",")]


def count(low, high, why):
    """Such as 1000, 1k, 10M: k, M and G are powers of 1000."""
    def read(text):
        found = re.fullmatch(r"([0-9]+)([kmg]?)", text, re.ASCII | re.IGNORECASE)
        value = -1
        if found:
            value = int(found[1]) * 1000 ** " kmg".index(found[2].lower() or " ")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a count {why}")
        return value
    return read


def real(low, high):
    def read(text):
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {low:g} to {high:g}")
        return value
    return read


def short(number):
    """A count as 1k, 10M or, if it is not round, as it is."""
    for letter, scale in ("G", 10**9), ("M", 10**6), ("k", 1000):
        if number and number % scale == 0:
            return f"{number // scale}{letter}"
    return str(number)


def gib(size):
    return f"{size / 2**30:.1f} GiB"


def safe(text):
    """Printable on any terminal."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
                   for byte in os.fsencode(text))


# ---- The program ----

class Bar:
    """How far the work in hand is, on a terminal."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.shown = 0
        self.done, self.of = 0, 1  # jobs that the bar is about

    def show(self, label, part):
        """Tells how far the jobs in hand are, 0 to 1."""
        now = time.monotonic()
        if self.terminal and now - self.shown > 0.05:
            self.shown = now
            part = (self.done + part) / self.of
            print(f"\r[{'#' * int(40 * part):.<40}] {part:4.0%} {label:36.36}", end="", flush=True,
                  file=sys.stderr)

    def wipe(self):
        """Before anything else is printed."""
        if self.shown:
            self.shown = 0
            print(f"\r{'':85}\r", end="", flush=True, file=sys.stderr)


class Driver(Bar):
    """A process of the program that measures: it does one job after the other."""
    starting, stopped = False, None  # a signal while one starts waits until it can be ended

    def __init__(self, program):
        super().__init__()
        Driver.starting = True
        self.process = subprocess.Popen([program], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        Driver.starting = False
        if Driver.stopped:
            self.__exit__()
            raise Stopped(Driver.stopped)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, job, **about):
        """Returns the answer to the job."""
        try:
            print(json.dumps({"job": job, **about}), file=self.process.stdin, flush=True)
            answer = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self.wipe()
            raise Failed("") from None  # it has said why
        if "usage" in answer:
            self.wipe()
            raise Usage(answer["usage"])
        return answer

    def policy(self, text):
        """A policy in stint's notation, the value of --limit."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Usage(f"--limit '{safe(text)}': it is no text") from None
        policy = self.ask("policy", text=text)
        if "wrong" in policy:
            before = safe(text.encode()[:policy["at"]])
            raise Usage(f"--limit '{safe(text)}': {policy['wrong']}\n    {safe(text)}\n"
                        f"    {' ' * len(before)}^")
        return policy


# ---- The machine ----

def field(path, name):
    """What follows the colon in the first line of a file that starts with the name."""
    try:
        found = re.search(rf"^{name}\s*:\s*(.*)$", Path(path).read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else ""


def number(path, missing):
    """The number at the start of a file."""
    try:
        return int(re.match(r"\d+", Path(path).read_text())[0])
    except (OSError, TypeError):
        return missing


def busy_seconds():
    """What all processes have used of the CPUs that this one may run on, and what a hypervisor has
    given to others. None if the system does not tell."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    ours = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    ticks = sum(sum(map(int, fields[1:4] + fields[6:9])) for fields in map(str.split, lines)
                if fields[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """What this process has used, and all that it started and that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in
               map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def work_of_others():
    """Returns what tells the part of the CPUs' time that others took since; None: unknown."""
    before, own, began = busy_seconds(), own_seconds(), time.monotonic()

    def tell():
        now, passed = busy_seconds(), time.monotonic() - began
        if now is None or before is None or not passed:
            return None
        others = now - before - (own_seconds() - own)
        return max(0.0, others / (passed * len(os.sched_getaffinity(0))))
    return tell


def machine():
    """What a number depends on."""
    try:
        pages = re.search(r"\[(\w+)\]",
                          Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text())[1]
    except (OSError, TypeError):
        pages = "unknown"
    # Not from sysconf(), which on AMD adds up the caches of cores that a virtual machine does not
    # have. Files say "32768K".
    cache = max(number(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size", 0) * 1024
                for index in range(8))
    return {"cpu": field("/proc/cpuinfo", "model name") or platform.machine(),
            "cores": min(len(os.sched_getaffinity(0)), 1024), "cpus": field("/proc/self/status", "Cpus_allowed_list"),
            "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "cache": cache, "huge_pages": pages,
            "kernel": f"{platform.system()} {platform.release()}"}


def available():
    """Bytes that can be had now, a control group's limit included."""
    free = int((field("/proc/meminfo", "MemAvailable") or "0").split()[0]) * 1024
    return min(free or machine()["memory"], number("/sys/fs/cgroup/memory.max", 1 << 64))


class Stopped(BaseException):
    """By a signal."""


def stop(signum, _):
    signal.signal(signum, signal.SIG_DFL)  # the second time it does what it does to any process
    if Driver.starting:
        Driver.stopped = signum
    else:
        raise Stopped(signum)


def main(work, parser):
    """Runs the work and returns an exit code; interrupted, it ends by that signal."""
    for signum in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(signum) != signal.SIG_IGN:  # nohup
            signal.signal(signum, stop)
    try:
        work()
    except Usage as wrong:
        parser.error(str(wrong))
    except Failed as why:
        if str(why):
            print(f"{parser.prog}: {why}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        os.kill(os.getpid(), stopped.args[0])
    return 0
