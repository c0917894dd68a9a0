"""One answer before it takes a dialect's form: text, calls, why it stopped, and what it used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from tollbar.gateway.scripted.offers import Called
from tollbar.gateway.scripted.script import Stop, Turn, UsageRule

_BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class Counts:
    """Tokens: `input` includes `cached` and `cache_write`, which includes `cache_write_1h`; `output` the reasoning."""

    input: int
    cached: int
    cache_write: int
    cache_write_1h: int
    output: int
    reasoning: int


@dataclass(frozen=True)
class Reply:
    """An answer. `usage` None: the provider reports none. `key` makes its ids, the same at every retry."""

    model: str
    key: str
    created: int
    text: str
    calls: Sequence[Called]
    stop: Stop
    usage: Counts | None
    candidates: int
    reports_usage: bool
    chunk_chars: int

    def pieces(self, text: str) -> Iterator[str]:
        """Yields a text in the pieces of a stream."""
        for start in range(0, len(text), self.chunk_chars):
            yield text[start : start + self.chunk_chars]

    def name(self, prefix: str, index: int = 0) -> str:
        """Returns an id of this answer, or of its part number `index`."""
        return f"{prefix}{self.key}_{index}"


@dataclass(frozen=True)
class Piece:
    """One event of a stream. `terminal` ones end the answer or report its usage."""

    document: Mapping[str, Any] | str
    name: str = ""
    terminal: bool = False


def compact(value: object) -> str:
    """Returns JSON text as providers write the arguments of a call."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def measure(turn: Turn, text: str, calls: Sequence[Called], body_bytes: int, rule: UsageRule) -> Counts:
    """Returns what a turn used: its own counts, else those of the script's rule."""
    if turn.usage is not None:
        return Counts(**turn.usage)
    size = len(text.encode()) + sum(len(compact(call.args).encode()) for call in calls)
    entered = rule.input_tokens if rule.input_divisor is None else -(-body_bytes // rule.input_divisor)
    left = rule.output_tokens if rule.output_divisor is None else max(1, -(-size // rule.output_divisor))
    return Counts(entered, int(Decimal(entered) * rule.cached), 0, 0, left, 0)


def limited(reply: Reply, limit: int | None) -> Reply:
    """Returns the answer within the request's output limit: a longer one is cut and stops for its length."""
    counts = reply.usage
    if limit is None or counts is None:
        return reply
    size = len(reply.text.encode()) + sum(len(compact(call.args).encode()) for call in reply.calls)
    if counts.output <= limit and -(-size // _BYTES_PER_TOKEN) <= limit:
        return reply
    kept_bytes = max(0, limit) * _BYTES_PER_TOKEN
    output = min(counts.output, limit)
    return replace(
        reply,
        text=reply.text.encode()[:kept_bytes].decode("utf-8", "ignore"),
        calls=[],
        stop=Stop.LENGTH,
        usage=replace(counts, output=output, reasoning=min(counts.reasoning, output)),
    )
