"""A model's prices and limits as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from tollbar.gateway.errors import PriceNotFound
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.rates import Rates

_MEMBERS: Final = {
    "input_usd": "input_mtok",
    "cache_read_usd": "cache_read_mtok",
    "cache_write_usd": "cache_write_mtok",
    "cache_write_1h_usd": "cache_write_1h_mtok",
    "output_usd": "output_mtok",
}


def price_document(book: PriceBook, name: str, at: datetime) -> dict[str, Any]:
    """Returns the prices of `provider:model` at a moment, in USD per million tokens, one row per tier and variant.

    Raises `PriceNotFound` (404) when the model is unknown, or lacks the price of its input or its output. Reads the
    price data at its first use, so call it off the event loop.
    """
    provider, _, model = name.partition(":")
    rates = book.rates(provider, model, at) if model else None
    if rates is None:
        raise PriceNotFound(name)
    limits = book.limits(provider, model)
    rows = _rows(rates, None)
    for context in book.variants(provider, model, at):
        if (variant := book.rates(provider, model, at, context)) is not None and variant.prices != rates.prices:
            rows += _rows(variant, context)
    return {
        "model": name,
        "priced_as": f"{rates.provider}:{rates.model}",
        "snapshot": rates.snapshot,
        "free": rates.free,
        "note": rates.note,
        "context_window": limits.context_window,
        "output_tokens_max": limits.output_tokens_max,
        "image_tokens_max": limits.image_tokens_max,
        "unit": "million tokens",
        "prices": rows,
    }


def _rows(rates: Rates, context: Mapping[str, str] | None) -> list[dict[str, Any]]:
    starts = sorted({0, *(start for rate in rates.prices.values() for start, _ in rate.tiers)})
    rows: list[dict[str, Any]] = []
    for start in starts:
        prices = rates.effective(start + 1)
        row: dict[str, Any] = {"when": dict(context) if context else None, "above_input_tokens": start}
        rows.append(row | {member: prices.get(key) for member, key in _MEMBERS.items()})
    return rows
