"""The scripted provider's answer to one request: bytes, and what goes wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from tollbar.gateway.asks import Ask
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import InvalidScript
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.rates import Rates
from tollbar.gateway.scripted import chat, gemini, messages, responses
from tollbar.gateway.scripted.choice import Chosen, Facts, choose
from tollbar.gateway.scripted.offers import Called, Offer, named_call, offers, shell_call
from tollbar.gateway.scripted.reply import Counts, Piece, Reply, limited, measure
from tollbar.gateway.scripted.script import Fault, Script, Stop, Turn

_SUBMIT: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_SUBMITTING: Final = frozenset({"mini-swe-agent"})
"""Adapters whose agents end by a shell command instead of a text."""

_DONE: Final = "Done."
_OVER: Final = 10
_HIDDEN: Final = 2_048
_WIRES: Final[Mapping[Dialect, tuple[Callable[[Reply], dict[str, Any]], Callable[[Reply], Iterator[Piece]]]]] = {
    Dialect.CHAT: (chat.document, chat.events),
    Dialect.RESPONSES: (responses.document, responses.events),
    Dialect.MESSAGES: (messages.document, messages.events),
    Dialect.GEMINI: (gemini.document, gemini.events),
}


@dataclass(frozen=True)
class Scripted:
    """An answer. Its chunks are one for a plain answer, one for each event of a stream, `delay_ms` apart.

    `reset_after_bytes` and `stall_s` are for whoever sends it: break the connection after so many bytes, or send
    nothing for so long before the last chunk.
    """

    status: int
    headers: Mapping[str, str]
    chunks: Sequence[bytes]
    delay_ms: int = 0
    reset_after_bytes: int | None = None
    stall_s: float | None = None

    @property
    def body(self) -> bytes:
        """Returns all bytes of the answer."""
        return b"".join(self.chunks)


def answer(script: Script, ask: Ask, body: Mapping[str, Any], facts: Facts, *, created: int) -> Scripted:
    """Returns what the script answers to a request; `created` is the time of the answer, in seconds since 1970.

    Raises `Refused`: no case fits, no turn is left, or a tool is not offered.
    """
    offered = offers(ask.dialect, body)
    chosen = choose(script, ask.dialect, body, facts, offers_tools=bool(offered))
    fault = chosen.turn.fault or Fault()
    if fault.status is not None:
        return _failed(ask.dialect, fault.status)
    reply = _faulty(_reply(script, ask, chosen, offered, facts, created), ask, fault)
    chunks = _streamed(ask.dialect, reply, fault) if ask.streamed else _plain(ask.dialect, reply, fault)
    kind = "text/event-stream" if ask.streamed else "application/json"
    return Scripted(
        200,
        {"content-type": kind, "x-request-id": reply.name("req_")},
        chunks,
        chosen.turn.delay_ms,
        fault.reset_after_bytes,
        fault.stall_s,
    )


def price_row(script: Script, book: PriceBook, at: datetime) -> Rates:
    """Returns the rates that the script is charged at; raises `InvalidScript` when that model has no price."""
    if (rates := book.rates(script.provider, script.model, at)) is None:
        raise InvalidScript("priced_as", f"names {script.provider}:{script.model}, which has no price")
    return rates


def count(dialect: Dialect, body_bytes: int) -> Scripted:
    """Returns the answer of the free counter of input tokens."""
    name = "totalTokens" if dialect is Dialect.GEMINI else "input_tokens"
    document = json.dumps({name: -(-body_bytes // 4)}).encode()
    return Scripted(200, {"content-type": "application/json"}, [document])


def _reply(script: Script, ask: Ask, chosen: Chosen, offered: Mapping[str, Offer], facts: Facts, created: int) -> Reply:
    turn = chosen.turn
    text, calls = _content(turn, offered, facts)
    reply = Reply(
        model=script.model,
        key=f"{script.sha256[:12]}{chosen.place.replace('.', '')}",
        created=created,
        text=text,
        calls=calls,
        stop=Stop.TOOL if calls and turn.stop is Stop.END else turn.stop,
        usage=measure(turn, text, calls, ask.body_bytes, script.usage),
        candidates=ask.candidates,
        reports_usage=ask.reports_usage,
        chunk_chars=turn.chunk_chars,
    )
    cut = limited(reply, ask.limit)
    assert cut.usage is not None
    many = ask.candidates
    return replace(cut, usage=replace(cut.usage, output=cut.usage.output * many, reasoning=cut.usage.reasoning * many))


def _content(turn: Turn, offered: Mapping[str, Offer], facts: Facts) -> tuple[str, list[Called]]:
    calls = [shell_call(turn.shell, offered)] if turn.shell is not None else []
    calls += [named_call(call, offered) for call in turn.calls]
    if not turn.finish:
        return turn.text, calls
    if facts.adapter in _SUBMITTING:
        return turn.text, [shell_call(_SUBMIT, offered)]
    return turn.text or _DONE, calls


def _faulty(reply: Reply, ask: Ask, fault: Fault) -> Reply:
    if fault.no_usage:
        return replace(reply, usage=None)
    if fault.usage_over and reply.usage is not None:
        output = _OVER * ((ask.limit or 0) * ask.candidates + ask.body_bytes + _HIDDEN)
        return replace(reply, usage=Counts(reply.usage.input, 0, 0, 0, output, 0))
    return reply


def _plain(dialect: Dialect, reply: Reply, fault: Fault) -> list[bytes]:
    whole = json.dumps(_WIRES[dialect][0](reply)).encode()
    return [whole[: len(whole) // 2] if fault.bad_json else whole]


def _streamed(dialect: Dialect, reply: Reply, fault: Fault) -> list[bytes]:
    pieces = list(_WIRES[dialect][1](reply))
    if fault.no_terminal:
        pieces = [piece for piece in pieces if not piece.terminal]
    return [_event(piece, broken=fault.bad_json and piece.terminal) for piece in pieces]


def _event(piece: Piece, *, broken: bool) -> bytes:
    text = piece.document if isinstance(piece.document, str) else json.dumps(piece.document)
    name = f"event: {piece.name}\n" if piece.name else ""
    # without its closing bracket: still the words that mark a usage report, no longer JSON
    return f"{name}data: {text[:-1] if broken else text}\n\n".encode()


def _failed(dialect: Dialect, status: int) -> Scripted:
    """Returns a provider's own error in its dialect's shape."""
    text = "the script fails here"
    if dialect is Dialect.MESSAGES:
        kind = {429: "rate_limit_error", 529: "overloaded_error"}.get(status, "api_error")
        document: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": text}}
    elif dialect is Dialect.GEMINI:
        document = {"error": {"code": status, "message": text, "status": "UNAVAILABLE"}}
    else:
        kind = "rate_limit_error" if status == 429 else "server_error"
        document = {"error": {"message": text, "type": kind, "param": None, "code": None}}
    return Scripted(status, {"content-type": "application/json"}, [json.dumps(document).encode()])
