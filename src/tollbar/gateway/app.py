"""The gateway's ASGI app: one request after the other through key, bounds, ledger and provider (`guard`, `metering`).

It never translates a dialect, never retries, and answers refusals in the client's own form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

from tollbar.gateway import keys
from tollbar.gateway.bodies import MAX_BODY_BYTES
from tollbar.gateway.dialects import Answer, Dialect, Operation, model_list, refusal, route
from tollbar.gateway.dispatch import Dispatch, Request
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.headers import presented, returned
from tollbar.gateway.keys import Key
from tollbar.gateway.relay import Relay, Unreachable

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SUBJECT: Final = "tollbar.subject"
"""Under this name the state of a connection holds whose listener accepted it; None: any key may come this way."""
_MOST_KNOWN: Final = 4096
_NO_ROUTE: Final = Refused(Code.ROUTE_NOT_ALLOWED, "this gateway has no such route")


class _Gone(Exception):
    """The client left before its body was whole."""


@dataclass(frozen=True)
class _Call:
    """One HTTP request on its way: names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    subject: str | None

    @classmethod
    def of(cls, scope: Scope) -> _Call:
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name = raw_name.decode("latin-1").lower()
            value = raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        query = scope["query_string"].decode("latin-1")
        return cls(scope["method"], scope["path"], query, headers, scope.get("state", {}).get(SUBJECT))

    @property
    def dialect(self) -> Dialect:
        """Returns the dialect of a path that may have no route: whose client would ask for it."""
        if self.path.startswith("/v1beta"):
            return Dialect.GEMINI
        if self.path.startswith("/v1/messages") or "anthropic-version" in self.headers:
            return Dialect.MESSAGES
        return Dialect.RESPONSES if self.path.startswith("/v1/responses") else Dialect.CHAT


@dataclass(frozen=True, eq=False)
class Gateway:
    """The model gateway of one worker, as an ASGI app. `close` ends it; every call is settled when that returns."""

    dispatch: Dispatch
    max_body_bytes: int = MAX_BODY_BYTES
    _known: dict[str, Key] = field(default_factory=dict[str, Key], repr=False)
    """Keys that were valid when they came first; what is in them never changes."""
    _free_counts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))
    """Counting tokens costs nothing, so it is bounded by how many ask at once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = _Call.of(scope)
        try:
            await self._answer(call, receive, send)
        except _Gone:
            return
        except Refused as refused:
            await _send(send, refusal(call.dialect, refused.code, refused.message))

    async def close(self, grace_s: float = 20.0) -> None:
        """Waits up to `grace_s` for calls under way, then cuts them."""
        await self.dispatch.close(grace_s)

    async def _answer(self, call: _Call, receive: Receive, send: Send) -> None:
        found = route(call.method, call.path, call.query, call.headers)
        if found is None:
            raise _NO_ROUTE
        if found.operation is Operation.PING:
            await _send(send, Answer(200, {}, b""))
            return
        # A metered call holds its key when it reserves; what is free is asked of the database each time.
        key = await self._key(call, may_be_known=found.operation is Operation.GENERATE)
        if found.operation is Operation.MODELS:
            await _send(send, model_list(found.dialect, sorted(key.routes)))
            return
        raw = await _body(receive, self.max_body_bytes)
        request = Request(found, key, call.path, _without_key(call.query), call.headers, raw)
        if found.operation is Operation.COUNT:
            async with self._free_counts:
                await _converse(lambda: self.dispatch.count(request), receive, send)
        else:
            await _converse(lambda: self.dispatch.generate(request), receive, send)

    async def _key(self, call: _Call, *, may_be_known: bool) -> Key:
        """Returns the key of a request, which must belong to whose listener the request came through.

        It is valid, or `may_be_known`: it was when it was first seen, and whoever spends by it asks again.
        """
        secret = presented(call.headers, parse_qs(call.query))
        found = self._known.get(secret) if may_be_known else None
        if found is None and secret.startswith(keys.PREFIX):
            async with self.dispatch.metering.database.glance() as session:
                found = await keys.find(session, secret)
            if found is not None:
                self._remember(secret, found)
        if found is None or call.subject not in {None, found.subject}:
            raise Refused(Code.KEY_INVALID, "the key is unknown, over, or not of this sandbox")
        return found

    def _remember(self, secret: str, key: Key) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[secret] = key


def _without_key(query: str) -> str:
    return "&".join(part for part in query.split("&") if part and not part.startswith("key="))


async def _body(receive: Receive, max_bytes: int) -> bytes:
    """Returns the whole body. Raises `Refused` as soon as it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > max_bytes:
            raise Refused(Code.REQUEST_TOO_LARGE, f"the body is larger than {max_bytes} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _converse(begin: Callable[[], Awaitable[Relay]], receive: Receive, send: Send) -> None:
    """Passes a call's answer on. A client that leaves ends its waiting, and never the call that it began."""
    gone = asyncio.create_task(_disconnected(receive))
    work = asyncio.create_task(_pass_on(begin, send))
    try:
        await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pass_on(begin: Callable[[], Awaitable[Relay]], send: Send) -> None:
    relay = await begin()
    try:
        head = await relay.head()
        headers = returned(head.headers)
        await send({"type": "http.response.start", "status": head.status, "headers": headers})
        async for chunk in relay.body():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except Unreachable as error:
        if relay.head_seen:
            # The answer breaks off here as it did there: an end in order would be a lie.
            raise
        text = f"the provider gave no answer ({error.outcome.value.replace('_', ' ')})"
        raise Refused(Code.UPSTREAM_UNREACHABLE, text) from None
    finally:
        relay.leave()


async def _send(send: Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
