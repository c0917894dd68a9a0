"""Takes in the rest of a body that nobody wanted, so that a client which sends before it reads sees its refusal.

A server that closes a connection with unread bytes resets it, and the reset overtakes the answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.http.paths import header

_MAX_BYTES: Final = 16 << 20
_MAX_S: Final = 2.0


class Draining:
    """Sends every answer in full at once, and holds back only its end while the client is still sending."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        unread = True

        async def noting() -> Message:
            nonlocal unread
            message = await receive()
            unread = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def ending(message: Message) -> None:
            if unread and message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _drain(receive)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, noting, ending)


def _has_body(scope: Scope) -> bool:
    return (header(scope, b"content-length") or "0") != "0" or header(scope, b"transfer-encoding") is not None


async def _drain(receive: Receive) -> None:
    """Drops what still comes, within bounds of bytes and time."""
    dropped = 0
    try:
        async with asyncio.timeout(_MAX_S):
            while dropped < _MAX_BYTES:
                message = await receive()
                dropped += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
