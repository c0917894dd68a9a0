"""The effective rates of one model: base and tiers of each price, with the mark that names them for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from typing import Any

from tollbar.kit.jsonio import canonical_sha256

_HASH_DIGITS = 12


@dataclass(frozen=True)
class Rate:
    """One price. Tiers are cliffs: above `start` input tokens every token of the request pays the tier's price."""

    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()

    def at(self, input_tokens: int) -> Decimal:
        """Returns the price for a request of that many input tokens."""
        found = self.base
        for start, price in self.tiers:
            if input_tokens > start:
                found = price
        return found

    def dearest(self, input_bound: int) -> Decimal:
        """Returns the highest price that a request of at most that many input tokens can pay."""
        return max([self.base, *(price for start, price in self.tiers if input_bound > start)])

    def times(self, factor: Decimal) -> Rate:
        """Returns the price with a provider's multiplier."""
        with localcontext(prec=60):
            return Rate(self.base * factor, tuple((start, price * factor) for start, price in self.tiers))

    def document(self) -> Any:
        """Returns the price as JSON: decimal text, or base and tiers."""
        if not self.tiers:
            return _plain(self.base)
        return {"base": _plain(self.base), "tiers": [[start, _plain(price)] for start, price in self.tiers]}


def _plain(price: Decimal) -> str:
    return format(price.normalize(), "f") if price else "0"


@dataclass(frozen=True)
class Rates:
    """The row that prices a model at one moment in one context; keys as in genai-prices (`input_mtok`, ...).

    Token prices are USD per million, `*_kcount` USD per thousand. `source` names the table and its version.
    """

    provider: str
    model: str
    source: str
    prices: Mapping[str, Rate]
    context_window: int | None = None
    free: bool = False
    note: str | None = None

    @property
    def priced(self) -> bool:
        """Returns whether both rates are set; a row without them knows the model's name and not its price."""
        return "input_mtok" in self.prices and "output_mtok" in self.prices

    @cached_property
    def snapshot(self) -> str:
        """Returns the name of these prices, e.g. `genai-prices/0.2.3/0a1b2c3d4e5f`: equal only for equal rows."""
        row = {
            "provider": self.provider,
            "model": self.model,
            "free": self.free,
            "prices": {key: rate.document() for key, rate in self.prices.items()},
        }
        return f"{self.source}/{canonical_sha256(row)[:_HASH_DIGITS]}"

    def times(self, factor: Decimal) -> Rates:
        """Returns the row with a provider's multiplier on every price."""
        if factor == 1:
            return self
        prices = {key: rate.times(factor) for key, rate in self.prices.items()}
        return Rates(self.provider, self.model, self.source, prices, self.context_window, self.free, self.note)

    def effective(self, input_tokens: int) -> dict[str, str]:
        """Returns the prices of a request of that many input tokens as decimal text, for the record of the call."""
        return {key: _plain(rate.at(input_tokens)) for key, rate in sorted(self.prices.items())}
