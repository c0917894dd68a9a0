"""Asks a provider the smallest question in every dialect of its record, to see what of its answers can be metered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.headers import outgoing
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import Provider
from tollbar.gateway.relay import Ended, Head, Outgoing, Relays, Unreachable
from tollbar.gateway.taps import BlindTap, Tap, tap_for

OUTPUT_TOKENS: Final = 16
"""The output limit of a question; the least that every provider takes."""
_QUESTION: Final = "Count from one to a hundred, in words."
_SAID_BYTES: Final = 300


@dataclass(frozen=True)
class Probed:
    """How one question was answered. `usage` and `limit_held` are None where the provider gave no good answer."""

    dialect: Dialect
    streamed: bool
    http_status: int | None
    usage: bool | None
    """Whether the answer carried its usage: without it a call costs its worst case."""
    limit_held: bool | None
    """Whether the output stayed within its limit."""
    problem: str | None


async def probe(
    relays: Relays, client: httpx2.AsyncClient, provider: Provider, model: str, secret: str | None, book: PriceBook
) -> list[Probed]:
    """Returns an answer for each dialect of the record, plain and streamed. It costs what those calls cost."""
    found: list[Probed] = []
    for dialect in sorted(provider.dialects):
        for streamed in (False, True):
            traits = provider.traits
            path, query, headers, body = _question(dialect, model, traits.output_limit_field, streamed=streamed)
            whole = outgoing(headers, traits.kind, secret, provider.headers)
            out = Outgoing("POST", provider.url(path, query), whole, json.dumps(body).encode(), client)
            found.append(await _ask(relays, out, dialect, book, streamed=streamed))
    return found


def _question(
    dialect: Dialect, model: str, limit: str, *, streamed: bool
) -> tuple[str, str, Mapping[str, str], dict[str, Any]]:
    """Returns path, query, headers and body of the smallest question."""
    said = [{"role": "user", "content": _QUESTION}]
    match dialect:
        case Dialect.CHAT:
            options = {"stream_options": {"include_usage": True}} if streamed else {}
            body = {"model": model, "messages": said, limit: OUTPUT_TOKENS, "stream": streamed, **options}
            return "/v1/chat/completions", "", {}, body
        case Dialect.RESPONSES:
            body = {"model": model, "input": _QUESTION, "max_output_tokens": OUTPUT_TOKENS, "stream": streamed}
            return "/v1/responses", "", {}, body
        case Dialect.MESSAGES:
            body = {"model": model, "messages": said, "max_tokens": OUTPUT_TOKENS, "stream": streamed}
            return "/v1/messages", "", {"anthropic-version": "2023-06-01"}, body
        case Dialect.GEMINI:
            verb, query = ("streamGenerateContent", "alt=sse") if streamed else ("generateContent", "")
            contents = [{"role": "user", "parts": [{"text": _QUESTION}]}]
            body = {"contents": contents, "generationConfig": {"maxOutputTokens": OUTPUT_TOKENS}}
            return f"/v1beta/models/{model}:{verb}", query, {}, body


async def _ask(relays: Relays, out: Outgoing, dialect: Dialect, book: PriceBook, *, streamed: bool) -> Probed:
    ends: list[Ended] = []

    async def keep(ended: Ended) -> None:
        ends.append(ended)

    def tap(head: Head) -> Tap:
        good = 200 <= head.status < 300
        return tap_for(dialect, streamed=streamed, candidates=1, hide_usage=False) if good else BlindTap()

    relay = relays.start(out, tap, keep)
    said = b""
    try:
        head = await relay.head()
        async for chunk in relay.body():
            said = (said + chunk)[:_SAID_BYTES]
    except Unreachable as error:
        return Probed(dialect, streamed, None, None, None, error.outcome.value)
    if not 200 <= head.status < 300:
        return Probed(dialect, streamed, head.status, None, None, said.decode(errors="replace"))
    reported = ends[0].reported
    if reported is None:
        return Probed(dialect, streamed, head.status, usage=False, limit_held=None, problem=None)
    output = book.counts(dialect, reported.document)["output_tokens"]
    return Probed(dialect, streamed, head.status, usage=True, limit_held=output <= OUTPUT_TOKENS, problem=None)
