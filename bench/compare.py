# SPDX-License-Identifier: MIT
"""One result beside another of the same command: an earlier one, or that of another build, measured
by turns. Rows are paired by what was asked, as far as both say it; a row that has no partner is
only counted.

What is told is told by the repeats, which are processes. If it did not matter which process was of
which build, then any mixture of the two would differ by as much as the two do. A row has changed if
fewer than one in a hundred mixtures does, and if it is by 2% at least. What a build costs is the
mean of the faster half of its processes: others at work on the machine only ever add."""
import json
import math
import random

from driver import Usage

# What rows are paired by, and what is usual.
ASKED = {"workload": None, "distribution": None, "peer": None, "rate": 0, "keys": 0, "threads": 1,
         "key_length": 16, "load": 0.5, "stripes": 1, "limits": 1}
LEAST = 1.02  # a change that is worth a word
REPEATS_MIN = 5  # of each: with fewer nothing can be told
MIXTURES, ODDS = 2000, 0.01


def is_program(path):
    """Whether it is a program and no result."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError as error:
        raise Usage(f"--compare '{path}': {error.strerror}") from None


def read(path, command):
    """The earlier result."""
    try:
        with open(path, encoding="utf-8") as file:
            old = json.load(file)
        of = old["command"]
        good = isinstance(of, str) and "machine" in old and isinstance(old["rows"], list)
    except OSError as error:
        raise Usage(f"--compare '{path}': {error.strerror}") from None
    except ValueError as error:
        raise Usage(f"--compare '{path}': {error}") from None
    except (KeyError, TypeError):
        good = False
    if not good:
        raise Usage(f"--compare '{path}': it is no result of stint-bench")
    if of != command:
        raise Usage(f"--compare '{path}': it is a result of stint-bench {of}")
    return old


def partner(row, rows):
    return next((other for other in rows if all(
        row[name] == other[name] for name in ASKED if name in row and name in other)), None)


def name_of(row):
    """take uniform 1000 keys threads=2: what is usual is left out."""
    words = []
    for name, usual in ASKED.items():
        value = row.get(name)
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        elif name in ("keys", "rate"):
            words.append({"keys": "%d keys", "rate": "%d/s"}[name] % value)
        elif value != usual:
            words.append(f"{name}={value:g}")
    return " ".join(words)


def values_of(row):
    """What can be compared: name -> what each process found."""
    found = {"ns_per_op": row["each"]} if row.get("each") else {}
    for tail in "call", "done":
        for point in "p50", "p99", "p99.9":
            if each := (row.get(tail) or {}).get(point, {}).get("each"):
                found[f"{tail} {point}"] = each
    return found


def logs_of(values):
    return [math.log(max(value, 1e-9)) for value in values]


def told_cost(values):
    return math.exp(cost(logs_of(values)))


def cost(logs):
    """The (geometric) mean of the faster half."""
    faster = sorted(logs)[:(len(logs) + 1) // 2]
    return sum(faster) / len(faster)


def change(old, new, by_turns):
    """What happened, the ratio, and the ratio from which on something would have been told."""
    old, new = logs_of(old), logs_of(new)
    found, by_turns = cost(new) - cost(old), by_turns and len(old) == len(new)
    chance, mixed = random.Random(1), []
    for _ in range(MIXTURES):
        if by_turns:  # which of the two of a turn is which
            pairs = [pair if chance.random() < 0.5 else pair[::-1] for pair in zip(old, new)]
            a, b = zip(*pairs)
        else:
            every = old + new
            chance.shuffle(every)
            a, b = every[:len(old)], every[len(old):]
        mixed.append(abs(cost(b) - cost(a)))
    noise = max(math.log(LEAST), sorted(mixed)[int(MIXTURES * (1 - ODDS))])
    few = min(len(old), len(new)) < REPEATS_MIN
    told = "same" if few or abs(found) <= noise else "slower" if found > 0 else "faster"
    return told, math.exp(found), math.exp(noise)


def results(path, old, new, by_turns=False):
    """What changed from one result to another, row by row."""
    pairs, only_new = [], 0
    for row in new["rows"]:
        before = partner(row, old["rows"])
        if before is None:
            only_new += 1
            continue
        then, now = values_of(before), values_of(row)
        for what in [name for name in now if name in then]:
            told, ratio, noise = change(then[what], now[what], by_turns)
            pairs.append({"row": name_of(row), "what": what, "old": told_cost(then[what]),
                          "new": told_cost(now[what]), "ratio": ratio, "noise": noise,
                          "change": told})
    return {"old": path, "date": old.get("date", "unknown"),
            "commit": old.get("build", {}).get("commit", "unknown"),
            "same_machine": old["machine"] == new["machine"], "pairs": pairs,
            "changed": sum(pair["change"] != "same" for pair in pairs),
            "only_old": sum(partner(row, new["rows"]) is None for row in old["rows"]),
            "only_new": only_new}


def table(found):
    other = "" if found["same_machine"] else " (ANOTHER MACHINE)"
    lines = [f"\nCompared with {found['old']}, {found['date']}, commit {found['commit']}{other}:",
             f"{'row':50} {'what':11} {'old':>8} {'new':>8} {'ratio':>6} {'told from':>9}"]
    for pair in found["pairs"]:
        told = "" if pair["change"] == "same" else f"  {pair['change'].upper()}"
        lines.append(f"{pair['row']:50.50} {pair['what']:11} {pair['old']:8.4g} {pair['new']:8.4g} "
                     f"{pair['ratio']:6.3f} {pair['noise']:9.3f}{told}")
    lines.append(f"{found['changed']} of {len(found['pairs'])} changed by more than the noise; "
                 f"{found['only_old']} rows only then, {found['only_new']} only now")
    return "\n".join(lines)
