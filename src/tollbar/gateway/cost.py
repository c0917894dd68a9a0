"""The price of an answer: one formula, exact in decimals, rounded up once. What cannot be priced is never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import localcontext
from typing import Any, Final

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Unmetered
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.rates import Rate, Rates
from tollbar.gateway.traits import Traits
from tollbar.gateway.usage import Reported
from tollbar.kit.money import ceil_pusd

_MOST_TOKENS: Final = 10**12
_ITERATION: Final = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True)
class Settlement:
    """What a call costs and by which prices: enough to check the bill later."""

    cost_pusd: int
    counts: Mapping[str, int]
    rates: Rates
    context: Mapping[str, str]


def settle(reported: Reported | None, book: PriceBook, traits: Traits, asked_model: str, at: datetime) -> Settlement:
    """Returns the cost of a call that was sent at `at`; raises `Unmetered` when its usage has no certain price."""
    if reported is None:
        raise Unmetered("the answer has no final usage")
    counts = read_counts(reported, book)
    context = dict(reported.context)
    factor = traits.multiplier
    if (region := context.pop("inference_geo", None)) is not None:
        if region not in traits.regions:
            raise Unmetered(f"the region {region} has no price")
        factor *= traits.regions[region]
    rates = book.settling(traits.price_provider, reported.model, asked_model, at, context)
    if rates is None:
        raise Unmetered(f"the model {reported.model or asked_model} has no price for {context or 'its usage'}")
    rates = rates.times(factor)
    return Settlement(cost_pusd(counts, rates), counts, rates, reported.context)


def cost_pusd(counts: Mapping[str, int], rates: Rates) -> int:
    """Returns the price of counted units in whole pUSD; `input_tokens` include the cache's.

    Raises `Unmetered` when counts contradict each other, or one of them has no price.
    """
    from genai_prices.types import ModelPrice, Usage

    _check(counts, rates)
    try:
        with localcontext(prec=60):
            price = ModelPrice(**{key: _as_data(rate) for key, rate in rates.prices.items()})
            return ceil_pusd(price.calc_price(Usage(**counts))["total_price"])
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise Unmetered(f"the usage cannot be priced: {error}") from None


def _as_data(rate: Rate) -> Any:
    from genai_prices.types import Tier, TieredPrices

    return TieredPrices(rate.base, [Tier(start, price) for start, price in rate.tiers]) if rate.tiers else rate.base


def _check(counts: Mapping[str, int], rates: Rates) -> None:
    if "input_tokens" not in counts or "output_tokens" not in counts:
        raise Unmetered("the usage does not say how many tokens went in and came out")
    if any(not 0 <= count <= _MOST_TOKENS for count in counts.values()):
        raise Unmetered("the usage has a count that is out of range")
    read, written = counts.get("cache_read_tokens", 0), counts.get("cache_write_tokens", 0)
    hour = counts.get("cache_write_1h_tokens", 0)
    if read + written > counts["input_tokens"]:
        raise Unmetered("more tokens are cached than went in")
    if counts.get("cache_write_5m_tokens", 0) + hour > written:
        raise Unmetered("the parts of the written cache are more than the whole")
    for key, count in counts.items():
        whole = "output_tokens" if key.startswith("output_") else "input_tokens"
        if key.startswith(("input_", "output_", "cache_")) and key.endswith("_tokens") and count > counts[whole]:
            raise Unmetered(f"{key} are more than {whole}")
    if hour and "cache_write_1h_mtok" not in rates.prices and not rates.free:
        raise Unmetered("a cache of one hour has no price")
    if counts.get("web_searches", 0) and "web_searches_kcount" not in rates.prices:
        raise Unmetered("web searches have no price")


def read_counts(reported: Reported, book: PriceBook) -> dict[str, int]:
    """Returns the counted units of an answer; raises `Unmetered` when they are missing or cannot be told apart."""
    document = dict(reported.document)
    if reported.dialect is Dialect.MESSAGES:
        usage = _with_iterations(document["usage"], reported.model)
        _no_other_server_tool(usage)
        return book.counts(reported.dialect, document | {"usage": usage})
    counts = book.counts(reported.dialect, document)
    if reported.dialect is Dialect.GEMINI:
        usage = document["usageMetadata"]
        _whole(usage, "promptTokenCount")
        # a count of zero is left out of the answer
        counts.setdefault("output_tokens", 0)
        total = usage.get("totalTokenCount")
    else:
        total = document["usage"].get("total_tokens")
    if isinstance(total, int) and not isinstance(total, bool):
        counts["output_tokens"] += max(0, total - counts["input_tokens"] - counts["output_tokens"])
    return counts


def _whole(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unmetered(f"{name} is not a whole number")
    return value


def _no_other_server_tool(usage: Mapping[str, Any]) -> None:
    """Refuses what the provider's own tools did, but for free fetches and priced searches."""
    used = usage.get("server_tool_use")
    if isinstance(used, dict):
        for name, count in used.items():
            if count and name not in {"web_search_requests", "web_fetch_requests"}:
                raise Unmetered(f"{name} has no price")


def _with_iterations(usage: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """Adds the passes that the top-level counts leave out, such as a compaction of the context."""
    entries = usage.get("iterations")
    if not entries:
        return dict(usage)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Unmetered("the usage's iterations cannot be read")
    if any(entry.get("model", model) != model for entry in entries):
        raise Unmetered("another model has worked on the answer")
    if any(_hour(entry.get("cache_creation")) for entry in entries):
        raise Unmetered("the usage's iterations write a cache of one hour")
    others = [entry for entry in entries if entry.get("type") != "message"]
    whole = dict(usage)
    for name in _ITERATION:
        top = _total([dict(usage)], name)
        whole[name] = max(top + _total(others, name), _total(entries, name))
    return whole


def _hour(split: object) -> bool:
    return isinstance(split, dict) and bool(split.get("ephemeral_1h_input_tokens"))


def _total(entries: list[dict[str, Any]], name: str) -> int:
    return sum(_whole(entry, name) for entry in entries if entry.get(name) is not None)
