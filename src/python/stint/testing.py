# SPDX-License-Identifier: MIT
"""For tests of programs that limit: a clock that stands still, and moves as the test says.

    with stint.testing.clock() as clock:
        table = stint.open("/run/app/limits", max_entries=1000, policies=["1/minute name=api"])
        assert table["api"].allow("ann") and not table["api"].allow("ann")
        clock.advance(60)
        assert table["api"].allow("ann")

Until the block ends, stint.open opens tables in memory, whatever their path, which count by the clock.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ._stint import clock_set

__all__ = ["Clock", "clock"]

START = 1893456000.0  # 1 January 2030: windows begin


class Clock:
    """What the tables of a test have for time."""

    def __init__(self, start: float) -> None:
        self.now = 0.0  # a Unix time
        self.advance(start)

    def advance(self, seconds: float) -> None:
        """Time goes on by so much, never back."""
        if not seconds >= 0:
            raise ValueError(f"a clock goes on by seconds, not by {seconds!r}")
        self.now += seconds
        clock_set(round(self.now * 1e6) * 1000)


@contextlib.contextmanager
def clock(start: float = START) -> Iterator[Clock]:
    """A clock for the tables that are opened in the block. One test at a time has one.

    start: a Unix time, such as time.time().
    """
    try:
        yield Clock(start)
    finally:
        clock_set(None)
