# SPDX-License-Identifier: MIT
"""Limits of functions."""
from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._stint import Group, Policy, Table

if TYPE_CHECKING:
    from ._stint import AnyKey, Style

Function = TypeVar("Function", bound=Callable[..., Any])


class Refused(Exception):
    """What a limited function raises in place of running. It pickles; its group is then None."""

    fields: dict[Style, list[tuple[str, str]]]  # of one that was pickled

    def __init__(self, group: Group) -> None:
        names = ", ".join(verdict.policy.name for verdict in group.verdicts if not verdict)
        super().__init__(f"refused by {names}; it may be asked again in {group.retry_after:.3f} s")
        self.group: Group | None = group
        self.retry_after = group.retry_after  # seconds; infinite if it can never fit

    def headers(self, style: Style = "draft") -> list[tuple[str, str]]:
        """Fields for the response, Retry-After among them."""
        return self.fields[style] if self.group is None else self.group.headers(style)

    def __reduce__(self) -> tuple[Any, ...]:
        fields: dict[Style, list[tuple[str, str]]] = {"draft": [], "legacy": [], "both": []}
        with contextlib.suppress(ValueError):  # the table is closed
            fields = {style: self.headers(style) for style in fields}
        return Refused.__new__, (Refused, *self.args), {"group": None, "retry_after": self.retry_after, "fields": fields}


def limited(*policies: Policy, key: AnyKey | Callable[..., AnyKey]) -> Callable[[Function], Function]:
    """Limits a function by these policies, all or none of which are charged. What is held in flight
    comes back when the function returns, or its coroutine does; of a view of Flask that streams, when
    its answer is closed.

    key: of whoever is limited, or a function that is given the call's arguments and returns it.
    Raises Refused in place of the call.
    """
    table = check(policies, "limited")

    def ask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Group:
        found: AnyKey = key(*args, **kwargs) if callable(key) else key
        group = table.all(*[(policy, found) for policy in policies])
        if not group:
            raise Refused(group)
        return group

    def decorate(function: Function) -> Function:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator, whose work begins after it was called: "
                            "decide inside it, by `with table.all(...)`")

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            with ask(args, kwargs):
                return await function(*args, **kwargs)

        @functools.wraps(function)
        def now(*args: Any, **kwargs: Any) -> Any:
            group, over = ask(args, kwargs), True
            try:
                answer = function(*args, **kwargs)
                if inspect.iscoroutine(answer):
                    answer, over = until_done(answer, group), False
                elif getattr(answer, "is_streamed", False) and hasattr(answer, "call_on_close"):  # werkzeug's
                    answer.call_on_close(group.done)
                    weakref.finalize(answer, group.done)  # it may be dropped
                    over = False
                return answer
            finally:
                if over:
                    group.done()

        return cast(Function, later if inspect.iscoroutinefunction(function) else now)

    return decorate


def until_done(work: Coroutine[Any, Any, Any], group: Group) -> Coroutine[Any, Any, Any]:
    """The work of a function that is no `async def`, and returns a coroutine. What is held is given
    back when it is done, or is dropped before it began, as a task that is cancelled at once is."""

    async def run() -> Any:
        with group:
            return await work

    running = run()
    weakref.finalize(running, group.done)
    return running


def check(policies: tuple[Policy, ...], what: str) -> Table:
    """The table of these policies."""
    if not policies or not all(isinstance(policy, Policy) for policy in policies):
        raise TypeError(f'{what} takes policies of a table, such as table["api"]')
    table = policies[0].table
    if any(policy.table is not table for policy in policies):
        raise ValueError(f"{what} takes policies of one table")
    if len({policy.name for policy in policies}) < len(policies):
        raise ValueError(f"{what} asks each policy once, as all are asked for one key: for a higher cost "
                         "decide by table.all((policy, key, cost))")
    return table
