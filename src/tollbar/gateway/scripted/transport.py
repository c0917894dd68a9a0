"""The scripted provider as a transport of the HTTP client: no connection, and the same road as every other provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from tollbar.gateway.asks import Ask
from tollbar.gateway.scripted.answers import Scripted, answer
from tollbar.gateway.scripted.choice import Facts
from tollbar.gateway.scripted.script import Script

QUESTION: Final = "tollbar.scripted"
"""Under this name the extensions of a request hold its `Question`, or the answer itself."""


@dataclass(frozen=True)
class Question:
    """One request as the scripted provider reads it, bounded and edited like any other."""

    script: Script
    ask: Ask
    body: Mapping[str, Any]
    facts: Facts


class ScriptedTransport(httpx2.AsyncBaseTransport):
    """Answers from the script in the request's extensions. `now` gives the time of answers, in seconds since 1970."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Returns the scripted answer. Raises `Refused` when the script has none for the request."""
        asked: Question | Scripted = request.extensions[QUESTION]
        made = asked if isinstance(asked, Scripted) else self._answer(asked)
        return httpx2.Response(made.status, headers=dict(made.headers), stream=_Stream(made))

    def _answer(self, asked: Question) -> Scripted:
        return answer(asked.script, asked.ask, asked.body, asked.facts, created=self._now())


class _Stream(httpx2.AsyncByteStream):
    """The chunks of an answer at their pace, with the fault that the script asks for."""

    def __init__(self, made: Scripted) -> None:
        self._made = made

    async def __aiter__(self) -> AsyncIterator[bytes]:
        made, sent = self._made, 0
        for index, chunk in enumerate(made.chunks):
            if index == len(made.chunks) - 1 and made.stall_s:
                await asyncio.sleep(made.stall_s)
            elif index and made.delay_ms:
                await asyncio.sleep(made.delay_ms / 1000)
            if made.reset_after_bytes is not None and sent + len(chunk) > made.reset_after_bytes:
                yield chunk[: made.reset_after_bytes - sent]
                msg = "the script breaks the answer off here"
                raise httpx2.ReadError(msg)
            yield chunk
            sent += len(chunk)
