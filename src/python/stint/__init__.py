# SPDX-License-Identifier: MIT
"""A rate limiter whose counts all processes of a host share, in a table that is a file.

    table = stint.open("/run/app/limits", max_entries=100_000, policies=["100/minute name=api"])
    if not table["api"].allow(user):
        ...

README.md of this package has more. stint.h is the contract: what it says of a function of C holds
for the method of that name.
"""
from ._decorator import Refused, limited
from ._stint import (FullTableWarning, Group, Key, NotSharedWarning, Policy, Table, Verdict,
                     __version__, open)

__all__ = ["FullTableWarning", "Group", "Key", "NotSharedWarning", "Policy", "Refused", "Table", "Verdict",
           "limited", "open", "__version__"]
