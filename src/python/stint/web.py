# SPDX-License-Identifier: MIT
"""Middleware: limits in front of a whole application, for WSGI and for ASGI."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from ._decorator import check

if TYPE_CHECKING:
    from ._stint import AnyKey, Group, Policy, Style

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["ASGI", "WSGI"]

WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)](?::[0-9]+)?|([0-9.]+):[0-9]+")
BODY = b"Too Many Requests\n"
FIELDS = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(BODY)))]
NO_PEER = "the client has no address, as the server listens on a unix socket: give key=, a function of the request"


class Middleware:
    """Asks before each request whether it fits all of the policies, and answers 429 if not.

    policies: of one table; all of them are charged, or none is. Also as a list by this name, for
    `add_middleware(stint.web.ASGI, policies=[...])`.
    key: a function of the request (WSGI's environ, ASGI's scope) that returns the key. A request for
    which it returns None is not limited. Left out: the peer's address (of IPv6 its first 64 bits).
    headers: which fields tell clients of the limits: "draft", "legacy" (X-RateLimit), "both", or None.
    """

    def __init__(self, app: Any, *asked: Policy, policies: Iterable[Policy] = (),
                 key: Callable[[Any], AnyKey | None] | None = None, headers: Style | None = "draft") -> None:
        policies = (*asked, *policies)
        self.table = check(policies, type(self).__name__)
        if headers not in ("draft", "legacy", "both", None):
            raise ValueError(f"headers is 'draft', 'legacy', 'both' or None, not {headers!r}")
        self.app, self.policies, self.headers = app, policies, headers
        self.key = key if key is not None else self.peer

    def peer(self, request: Any) -> AnyKey:
        raise NotImplementedError

    def address(self, *told: str) -> AnyKey:
        """Of the first that is an address, with a port or without. Proxies hand on what clients write: what is
        none, anywhere, is one client."""
        for text in told:
            found = WITH_PORT.fullmatch(text)
            with contextlib.suppress(ValueError):
                return self.table.address(text if found is None else found[1] or found[2])
        return self.table.key("unknown")

    def decide(self, request: Any) -> Group | None:
        key = self.key(request)
        if key is None:
            return None
        return self.table.all(*((policy, key) for policy in self.policies))

    def fields(self, group: Group) -> list[tuple[str, str]]:
        """Of a refusal Retry-After in any case."""
        if self.headers is not None:
            return group.headers(self.headers)
        return [] if group else [field for field in group.headers() if field[0] == "Retry-After"]


class WSGI(Middleware):
    """application = stint.web.WSGI(application, table["api"])"""

    def peer(self, environ: dict[str, Any]) -> AnyKey:
        address = environ.get("REMOTE_ADDR")
        if not address:
            raise ValueError(NO_PEER)
        # Of werkzeug's ProxyFix: who has connected.
        return self.address(address, environ.get("werkzeug.proxy_fix.orig", {}).get("REMOTE_ADDR") or "")

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        group = self.decide(environ)
        if group is None:
            answer: Iterable[bytes] = self.app(environ, start_response)
            return answer
        fields = self.fields(group)
        if not group:
            start_response("429 Too Many Requests", FIELDS + fields)
            # A server may send what it is given, and HEAD's answer ends with its fields: the next begins there.
            return [] if environ.get("REQUEST_METHOD") == "HEAD" else [BODY]

        def start(status: str, headers: list[tuple[str, str]], *raised: Any) -> Any:
            return start_response(status, [*headers, *fields], *raised)

        try:
            answer = self.app(environ, start)
        except BaseException:
            group.done()
            raise
        return Answer(answer, group) if group.in_flight else answer


class Answer:
    """An answer of WSGI, which is done when the server closes it."""

    def __init__(self, answer: Iterable[bytes], group: Group) -> None:
        self.answer, self.group = answer, group

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.answer)

    def close(self) -> None:
        try:
            if hasattr(self.answer, "close"):
                self.answer.close()
        finally:
            self.group.done()


class ASGI(Middleware):
    """application = stint.web.ASGI(application, table["api"])

    A websocket counts as one request, and is in flight until it is closed."""

    def peer(self, scope: Scope) -> AnyKey:
        client = scope.get("client")
        if not client:
            raise ValueError(NO_PEER)
        return self.address(client[0] or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        group = self.decide(scope) if scope["type"] in ("http", "websocket") else None
        if group is None:
            await self.app(scope, receive, send)
            return
        fields = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.fields(group)]
        with group:
            if not group:
                await self.refuse(scope["type"], fields, receive, send)
                return

            async def tell(message: MutableMapping[str, Any]) -> None:
                if message["type"] in ("http.response.start", "websocket.accept"):
                    message = {**message, "headers": [*message.get("headers", ()), *fields]}
                await send(message)

            await self.app(scope, receive, tell)

    @staticmethod
    async def refuse(kind: str, fields: list[tuple[bytes, bytes]], receive: Receive, send: Send) -> None:
        if kind == "websocket":  # a server answers 403 to a socket that is closed before it is accepted
            await receive()
            await send({"type": "websocket.close", "code": 1013})
            return
        own = [(name.lower().encode(), value.encode()) for name, value in FIELDS]
        await send({"type": "http.response.start", "status": 429, "headers": own + fields})
        await send({"type": "http.response.body", "body": BODY})
