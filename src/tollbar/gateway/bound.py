"""The worst case of one call: a true upper bound, reserved before anything is sent.

`worst(x) = ceil(input_bound * r_in + x * candidates * r_out + request fee)`, in pUSD, with the dearest rates that the
request can trigger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Final

from tollbar.gateway.asks import Ask, CacheWrite
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.modellimits import ModelLimits
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.rates import Rates
from tollbar.gateway.traits import Traits
from tollbar.kit.money import PUSD_PER_USD

DEFAULT_OUTPUT_TOKENS: Final = 16_384
"""The output limit of a request that names none."""

HIDDEN_TOKENS: Final = 2_048
"""Margin for a provider's own tool and format prompts; an overrun is a fault to be reported, not a surprise."""

HIDDEN_TOKENS_PER_TOOL: Final = 1_024
LEAST_OUTPUT_TOKENS: Final = 256
_LONG_WINDOW: Final = 1_000_000
_DIGITS: Final = 60
_PUSD_PER_TOKEN: Final = Decimal(PUSD_PER_USD // 1_000_000)
_PUSD_PER_REQUEST: Final = Decimal(PUSD_PER_USD // 1_000)
_STANDARD_TIERS: Final = frozenset({None, "auto", "default", "flex"})


@dataclass(frozen=True)
class Quote:
    """What a call costs at most. Money is exact pUSD until `worst` rounds it up; `asked` and `least` are tokens.

    `rates` are None for a model without a price, which only a chain without a cap may call.
    """

    fixed_pusd: Decimal
    per_output_token_pusd: Decimal
    asked: int
    least: int
    input_bound: int
    candidates: int
    rates: Rates | None
    context: Mapping[str, str]

    def worst(self, output_tokens: int) -> int:
        """Returns the most that a call with that output limit can cost, in whole pUSD."""
        with localcontext(prec=_DIGITS):
            exact = self.fixed_pusd + self.per_output_token_pusd * output_tokens
            return int(exact.to_integral_value(rounding=ROUND_CEILING))

    def fitting(self, pusd: int) -> int:
        """Returns the highest output limit, at most `asked`, whose worst case is not above `pusd`; may be below 0."""
        if self.per_output_token_pusd == 0:
            return self.asked if self.worst(0) <= pusd else -1
        with localcontext(prec=_DIGITS):
            space = (Decimal(pusd) - self.fixed_pusd) / self.per_output_token_pusd
            return min(self.asked, int(space.to_integral_value(rounding=ROUND_FLOOR)))


def quote(
    ask: Ask,
    book: PriceBook,
    traits: Traits,
    at: datetime,
    until: datetime,
    *,
    capped: bool = True,
    default_output_tokens: int = DEFAULT_OUTPUT_TOKENS,
) -> Quote:
    """Returns the bound of a call that is sent at `at` and over by `until`, at the dearer of the two moments' rates.

    Raises `Refused` under a cap: `BUDGET_UNMETERED` for a model without a price, `REQUEST_UNBOUNDED` for a request
    whose input, tier or cache has no bound. Without a cap what cannot be bounded counts as nothing.
    """
    try:
        context = _context(ask)
        factor = traits.multiplier * _region(ask, traits)
        rows = [book.rates(traits.price_provider, ask.model, moment, context) for moment in (at, until)]
        rates = [row.times(factor) for row in rows if row is not None]
        if len(rates) < len(rows):
            raise _unpriced(ask, book, traits, at)
        limits = book.limits(traits.price_provider, ask.model)
        bound = _input_bound(ask, limits)
        return _priced(ask, rates, limits, bound, context, default_output_tokens)
    except Refused:
        if capped:
            raise
        asked = _asked(ask, ModelLimits(), default_output_tokens)
        return Quote(Decimal(0), Decimal(0), asked, _least(ask, asked), ask.body_bytes, ask.candidates, None, {})


def _priced(
    ask: Ask, rates: Sequence[Rates], limits: ModelLimits, bound: int, context: Mapping[str, str], default: int
) -> Quote:
    asked = _asked(ask, limits, default)
    with localcontext(prec=_DIGITS):
        fixed = max(
            bound * _dearest_input(ask, row, bound) * _PUSD_PER_TOKEN + _fee(row, bound) * _PUSD_PER_REQUEST
            for row in rates
        )
        per_token = max(ask.candidates * _dearest_output(row, bound) * _PUSD_PER_TOKEN for row in rates)
    return Quote(fixed, per_token, asked, _least(ask, asked), bound, ask.candidates, rates[0], context)


def _unbounded(problem: str) -> Refused:
    return Refused(Code.REQUEST_UNBOUNDED, problem)


def _unpriced(ask: Ask, book: PriceBook, traits: Traits, at: datetime) -> Refused:
    if book.rates(traits.price_provider, ask.model, at) is not None:
        return _unbounded(f"the model {ask.model} has no price for the service tier or speed that the request names")
    return Refused(Code.BUDGET_UNMETERED, f"the model {ask.model} has no price, and the spending here has a cap")


def _context(ask: Ask) -> dict[str, str]:
    """Returns the price variant that the request asks for; a cheaper one is bounded by the standard rates."""
    tier, speed = ask.service_tier, ask.speed
    if ask.dialect is Dialect.MESSAGES:
        if tier not in {None, "auto", "standard_only"}:
            raise _unbounded(f"the service tier {tier} has no price")
        if speed not in {None, "standard", "fast"}:
            raise _unbounded(f"the speed {speed} has no price")
        return {"speed": "fast"} if speed == "fast" else {}
    if tier in _STANDARD_TIERS:
        return {}
    if tier in {"priority", "fast"}:
        return {"service_tier": str(tier)}
    raise _unbounded(f"the service tier {tier} has no price")


def _region(ask: Ask, traits: Traits) -> Decimal:
    if ask.region in {None, "global"}:
        return Decimal(1)
    if (factor := traits.regions.get(str(ask.region))) is None:
        raise _unbounded(f"the field inference_geo names {ask.region}, which has no price")
    return factor


def _asked(ask: Ask, limits: ModelLimits, default: int) -> int:
    if ask.limit is not None:
        return ask.limit
    return min(default, limits.output_tokens_max or default)


def _least(ask: Ask, asked: int) -> int:
    """Returns the lowest useful limit; with a thinking budget the provider demands a limit above it."""
    return min(asked, LEAST_OUTPUT_TOKENS + (ask.thinking_budget or 0))


def _input_bound(ask: Ask, limits: ModelLimits) -> int:
    """Returns the most input tokens: a token has at least one byte, media are bounded by the model's limits."""
    window = limits.context_window
    if window is not None and ask.long_context:
        window = max(window, _LONG_WINDOW)
    tokens = ask.body_bytes - ask.base64_bytes + HIDDEN_TOKENS + HIDDEN_TOKENS_PER_TOOL * ask.hidden_tools
    if ask.images:
        if limits.image_tokens_max is None:
            raise _unbounded(f"the tokens of an image are not known for the model {ask.model}")
        tokens += ask.images * limits.image_tokens_max
    if ask.whole_window:
        if window is None:
            raise _unbounded(f"the tokens of a document are not known for the model {ask.model}")
        tokens += window
    if window is None or (ask.images and not limits.images_in_window):
        return tokens
    return min(window, tokens)


def _dearest_input(ask: Ask, row: Rates, bound: int) -> Decimal:
    """Returns the highest input rate that can apply; never a cache's discount."""
    keys = ["input_mtok"]
    if ask.images or ask.whole_window:
        keys += [key for key in row.prices if key.startswith("input_") and key.endswith("_mtok")]
    if ask.cache_write is not None or ask.dialect in {Dialect.CHAT, Dialect.RESPONSES}:
        keys.append("cache_write_mtok")
    if ask.cache_write is CacheWrite.UNKNOWN:
        raise _unbounded("a cache_control has a ttl that has no price")
    if ask.cache_write is CacheWrite.ONE_HOUR:
        if "cache_write_1h_mtok" not in row.prices and not row.free:
            raise _unbounded(f"the model {ask.model} has no price for a cache of one hour")
        keys.append("cache_write_1h_mtok")
    return max(row.prices[key].dearest(bound) for key in keys if key in row.prices)


def _dearest_output(row: Rates, bound: int) -> Decimal:
    return max(
        rate.dearest(bound) for key, rate in row.prices.items() if key.startswith("output_") and key.endswith("_mtok")
    )


def _fee(row: Rates, bound: int) -> Decimal:
    rate = row.prices.get("requests_kcount")
    return rate.dearest(bound) if rate is not None else Decimal(0)
