"""Requests and answers that several tests of the gateway use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tollbar.gateway.asks import Ask, read
from tollbar.gateway.bound import Quote, quote
from tollbar.gateway.cost import settle
from tollbar.gateway.dialects import Dialect, Operation, Route
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.traits import Kind, Traits
from tollbar.gateway.usage import Extractor

AT: Final = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
UNTIL: Final = AT + timedelta(seconds=960)
OPENAI: Final = Traits(Kind.OPENAI, "openai")
ANTHROPIC: Final = Traits(Kind.ANTHROPIC, "anthropic")
GOOGLE: Final = Traits(Kind.GOOGLE, "google")
CHAT_TRAITS_LOCAL: Final = Traits(Kind.OPENAI_COMPATIBLE, "local-vllm")
TRAITS: Final = {
    Dialect.CHAT: OPENAI,
    Dialect.RESPONSES: OPENAI,
    Dialect.MESSAGES: ANTHROPIC,
    Dialect.GEMINI: GOOGLE,
}


def ask(dialect: Dialect, body: Mapping[str, Any], size: int, *, model: str | None = None, beta: str = "") -> Ask:
    """Returns what a body asks as if its decoded length were `size` bytes."""
    streamed = False if dialect is Dialect.GEMINI else None
    return read(Route(dialect, Operation.GENERATE, model, streamed), body, size, beta=beta)


def bound(book: PriceBook, dialect: Dialect, body: Mapping[str, Any], size: int, **options: Any) -> Quote:
    """Returns the worst case of a body of `size` bytes with its dialect's provider."""
    return quote(ask(dialect, body, size, **options), book, TRAITS[dialect], AT, UNTIL)


def cost(book: PriceBook, dialect: Dialect, answer: Mapping[str, Any], model: str) -> int:
    """Returns what a plain answer costs in pUSD."""
    extractor = Extractor(dialect, streamed=False)
    extractor.feed(json.dumps(answer).encode())
    return settle(extractor.final(), book, TRAITS[dialect], model, AT).cost_pusd


def chat_usage(
    prompt: int, completion: int, *, cached: int = 0, written: int = 0, reasoning: int = 0
) -> dict[str, Any]:
    """Returns OpenAI's usage of a chat completion."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def messages_usage(fresh: int, output: int, *, read: int = 0, written: int = 0, hour: int = 0) -> dict[str, Any]:
    """Returns Anthropic's usage; `written` is all that was written, `hour` the part of it for one hour."""
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour},
        "output_tokens": output,
    }
