# SPDX-License-Identifier: MIT
"""One result beside an earlier one of the same command. Rows are paired by what was asked, as far
as both say it, so that results of older versions can be read; a row that has no partner is only
counted."""
import json

from driver import Usage

# What rows are paired by, and what is usual.
ASKED = {"series": None, "workload": None, "distribution": None, "peer": None, "point": 0,
         "goal": None, "rate": 0, "keys": 0, "threads": 1, "key_length": 16, "load": 0.5,
         "policies": 1, "stripes": 1, "refused_part": 0, "latency": None, "limits": 1}
# The value, its least and its most; in what rows or in what part of them.
VALUES = (("ns_per_op", "ns_min", "ns_max"), ("measured", "measured_min", "measured_max"))


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


def same(a, b):
    return all(a[name] == b[name] for name in ASKED if name in a and name in b)


def partner(row, rows):
    return next((other for other in rows if same(row, other)), None)


def name_of(row):
    """take uniform 1000 keys threads=2: what is usual is left out."""
    words = []
    for name, usual in ASKED.items():
        value = row.get(name)
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        elif name in ("keys", "rate", "point"):
            words.append({"keys": "%d keys", "rate": "%d/s", "point": "%d"}[name] % value)
        elif value != usual:
            words.append(f"{name}={value:g}")
    return " ".join(words)


def values_of(row):
    """What can be compared: name -> value, min, max."""
    found = {}
    for value, low, high in VALUES:
        if isinstance(row.get(value), (int, float)):
            found[value] = {"value": row[value], "min": row.get(low, row[value]),
                            "max": row.get(high, row[value])}
    for tail in "call", "late":
        for point, about in (row.get(tail) or {}).items():
            found[f"{tail} {point}"] = {"value": about["ns"], "min": about["min"],
                                        "max": about["max"]}
    return found


def results(path, old, new):
    """What changed from one result to another, row by row."""
    pairs, only_new = [], 0
    for row in new["rows"]:
        before = partner(row, old["rows"])
        if before is None:
            only_new += 1
            continue
        then, now = values_of(before), values_of(row)
        for what in [name for name in now if name in then]:
            a, b = then[what], now[what]
            change = ("less" if b["max"] < a["min"] else "more" if b["min"] > a["max"] else "same")
            if change != "same":
                higher = what == "measured" and row.get("better") == "higher"
                change = "faster" if (change == "more") == higher else "slower"
            pairs.append({"row": name_of(row), "what": what, "old": a, "new": b,
                          "ratio": b["value"] / a["value"] if a["value"] else None,
                          "change": change})
    changes = [pair["change"] for pair in pairs]
    return {"old": path, "date": old.get("date", "unknown"),
            "commit": old.get("build", {}).get("commit", "unknown"),
            "same_machine": old["machine"] == new["machine"], "pairs": pairs,
            "faster": changes.count("faster"), "slower": changes.count("slower"),
            "only_old": sum(partner(row, new["rows"]) is None for row in old["rows"]),
            "only_new": only_new}


def table(found):
    other = "" if found["same_machine"] else " (ANOTHER MACHINE)"
    lines = [f"\nCompared with {found['old']}, {found['date']}, commit {found['commit']}{other}:",
             f"{'row':44} {'what':11} {'old':>8} [min, max] {'new':>8} [min, max]  ratio"]
    for pair in found["pairs"]:
        times = " ".join("{value:8.4g} [{min:.4g}, {max:.4g}]".format(**pair[side])
                         for side in ("old", "new"))
        ratio = "" if pair["ratio"] is None else f" {pair['ratio']:6.2f}"
        change = "" if pair["change"] == "same" else f"  {pair['change'].upper()}"
        lines.append(f"{pair['row']:44.44} {pair['what']:11} {times}{ratio}{change}")
    within = len(found["pairs"]) - found["faster"] - found["slower"]
    lines.append(f"{found['faster']} faster, {found['slower']} slower, {within} within the noise "
                 f"(their ranges overlap); {found['only_old']} rows only then, "
                 f"{found['only_new']} only now")
    return "\n".join(lines)
