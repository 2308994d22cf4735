# SPDX-License-Identifier: MIT
"""Peers side by side, by turns: their servers, and the two steps of a contest."""
import contextlib
import time

from driver import Failed
from servers import Server, installed

HALF_DAY = 43200


def window():
    """A length of window, s, that leaves half a day of the present one."""
    day, now, days = 2 * HALF_DAY, int(time.time()), 7
    while now % (days * day) >= days * day - HALF_DAY:
        days += 1
    return days * day


def step(driver, job, label, peers, about):
    """Asks those of the peers that are good so far, each server's with a server of its own. Notes in
    them what came out."""
    with contextlib.ExitStack() as servers:
        asked = []
        for peer in peers:
            if not peer["checked"]:
                continue
            entrant = {"peer": peer["name"]}
            try:
                if peer["program"]:
                    server = Server(peer["program"], about["keys"])
                    servers.callback(server.stop)
                    entrant.update(socket=server.socket, server=server.pid)
                asked.append(entrant)
            except Failed as why:
                peer.update(checked=False, wrong=str(why))
        answers = driver.ask(job, label, entrants=asked, **about)["entrants"]
    for answer in answers:
        next(peer for peer in peers if peer["name"] == answer["peer"]).update(answer)


def run(driver, label, peers, **about):
    """First a small table, with a limit that every key exceeds, then one that holds the keys.
    Returns what came out of each peer, by its name. Look at "absent" and "checked" before any
    number."""
    found = {peer["name"]: {**peer, "absent": not installed(peer["program"]), "granted": 0,
                            "refused": 0, "preempted": 0, "version": "", "wrong": "",
                            "checked": installed(peer["program"])} for peer in peers}
    for peer in found.values():
        step(driver, "rehearse", label, [peer], about)
    step(driver, "contest", label, list(found.values()), about)
    return found
