# SPDX-License-Identifier: MIT
"""A storage for the package limits, and so for flask-limiter and others that stand on it: stint://.

    import stint.limits
    storage = limits.storage.storage_from_string("stint:///run/app/limits", max_entries=100_000)

Each duration that is counted is a policy of the table: `limits-60s` counts what any limit per
minute has used. What a limit allows, the package limits decides.
"""
from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from limits.errors import ConfigurationError
from limits.limits import GRANULARITIES
from limits.storage.base import Storage

from . import Policy, Verdict, open

__all__ = ["StintStorage"]

LONGEST = 366 * 86400  # seconds
MOST = 1 << 28  # tokens; a count stays there
PREFIX = "limits-"


class StintStorage(Storage):
    """Fixed windows in a table that all processes of the host share."""

    STORAGE_SCHEME = ["stint"]

    def __init__(self, uri: str, max_entries: Any = 100_000, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri)
        self.wrap_exceptions = wrap_exceptions  # newer versions of limits read it
        self.table = open(self.path(uri), int(max_entries), **options)
        self.policies: dict[int, Policy] = {}

    @staticmethod
    def path(uri: str) -> str:
        parts = urlsplit(uri)
        if parts.netloc or not parts.path.strip("/") or parts.query or parts.fragment:
            raise ConfigurationError(
                f"'{uri}' is no table: write stint:// and a whole path, as in stint:///run/app/limits, and options "
                "such as max_entries as options of the storage (RATELIMIT_STORAGE_OPTIONS)")
        return parts.path

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        """What newer versions of limits may wrap."""
        return OSError, ValueError

    # ---- Policies --------------------------------------------------------------------------------

    def policy(self, expiry: int) -> Policy:
        """Of a duration: it is added to the table when it is first counted."""
        policy = self.policies.get(expiry)
        return policy if policy is not None else self.add(expiry)

    def add(self, expiry: int) -> Policy:
        if not 1 <= expiry <= LONGEST:
            raise ConfigurationError(f"a limit per {expiry} seconds: stint counts windows of 1 second to 366 days")
        try:
            policy = self.table.add(f"{MOST}/{expiry}s start=first name={PREFIX}{expiry}s")
        except OSError as error:
            raise ConfigurationError(
                f"a limit per {expiry} seconds is one duration more than the table has policies for: open a new "
                f"table with more max_policies, or use fewer durations ({error})") from error
        self.policies[expiry] = policy
        return policy

    def counted(self, key: str) -> Iterator[Verdict]:
        """What looks at the key tell, where it has used anything. The key of a limit ends in its
        duration, which is looked at first; another process may have added it."""
        first = expiry_of(key)
        names = [f"{PREFIX}{first}s"] if first else []
        for name in [*names, *(name for name in self.table.policies if name.startswith(PREFIX) and name not in names)]:
            try:
                verdict = self.table[name].peek(key)
            except KeyError:  # it is not there yet, or is no more
                continue
            if verdict.used:
                yield verdict

    # ---- What limits calls -----------------------------------------------------------------------

    def incr(self, key: str, expiry: int, elastic_expiry: bool = False, amount: int = 1) -> int:
        if elastic_expiry:
            raise NotImplementedError("stint has no elastic windows, which a client that never rests never leaves: use "
                                      "the strategy fixed-window, or a policy of stint's own with a ban")
        check_amount(key)
        policy = self.policy(expiry)
        try:
            return policy.charge(key, amount).used
        except KeyError:  # another process has reset the storage
            return self.add(expiry).charge(key, amount).used

    def get(self, key: str) -> int:
        check_amount(key)
        return next((verdict.used for verdict in self.counted(key)), 0)

    def get_expiry(self, key: str) -> int:
        return int(next((verdict.resets_at or 0 for verdict in self.counted(key)), time.time()))

    def clear(self, key: str) -> None:
        for verdict in self.counted(key):
            verdict.policy.reset(key)

    def reset(self) -> int | None:
        """Forgets all that limits has counted in this table, whoever counted it."""
        for name in self.table.policies:
            if name.startswith(PREFIX):
                try:
                    self.table.remove(name)
                except KeyError:  # another process has removed it
                    pass
        self.policies.clear()
        return None

    def check(self) -> bool:
        """Whether the table is there, and shared."""
        stats = self.table.stats()
        return not stats["lost"] and not stats["removed"]


def check_amount(key: str) -> None:
    """Refuses a limit that no count goes beyond. RateLimitItem.key_for has written it before the duration."""
    parts = key.rsplit("/", 3)
    if len(parts) < 4 or len(parts[1]) < 9 or not parts[1].isdecimal() or parts[3] not in GRANULARITIES:
        return
    amount, unit = int(parts[1]), 1
    if amount < MOST:
        return
    while amount // unit >= MOST:
        unit *= 1000
    raise ValueError(f"a limit of {amount}: stint counts to {MOST - 1}. Count in units of {unit} (of bytes: "
                     f"{'kMGTPE'[len(str(unit)) // 3 - 1]}B), costs too: {amount // unit} per {parts[2]} {parts[3]}")


def expiry_of(key: str) -> int:
    """The seconds that RateLimitItem.key_for has written at the end of a key; 0: none."""
    parts = key.rsplit("/", 2)
    item = GRANULARITIES.get(parts[-1])
    if len(parts) < 3 or item is None or not parts[1].isdecimal():
        return 0
    return item.GRANULARITY.seconds * int(parts[1])
