"""An operator's own prices: rows as decimal text, declared free where they are free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tollbar.gateway.errors import InvalidPrice
from tollbar.gateway.modellimits import ModelLimits
from tollbar.gateway.rates import Rate, Rates

_PRICES: Final = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
_REQUIRED: Final = ("input_mtok", "output_mtok")
_COUNTS: Final = ("context_window", "output_tokens_max", "image_tokens_max")
_KNOWN: Final = frozenset(
    {"provider", "model", "match", "tiers", "free", "images_in_window", "note", *_PRICES, *_COUNTS}
)
_DECIMAL: Final = re.compile(r"\d{1,12}(\.\d{1,12})?\Z", re.ASCII)


@dataclass(frozen=True)
class OwnPrice:
    """A row of an own table, checked."""

    provider: str
    model: str
    prefix: bool
    prices: Mapping[str, Rate]
    free: bool
    limits: ModelLimits
    note: str | None

    def matches(self, provider: str, model: str) -> bool:
        """Returns whether the row is for that model of that provider."""
        if provider != self.provider:
            return False
        return model.startswith(self.model) if self.prefix else model == self.model

    def rates(self, model: str, source: str) -> Rates:
        """Returns the row's rates for a model that it matches."""
        return Rates(self.provider, model, source, self.prices, self.limits.context_window, self.free, self.note)


@dataclass(frozen=True)
class OwnTable:
    """One version of a workspace's or an installation's prices; `source` is for example `workspace/7`."""

    source: str
    rows: Sequence[OwnPrice]
    documents: Sequence[Mapping[str, Any]] = ()
    """The rows as they were written, for `own_table` to read again."""

    def find(self, provider: str, model: str) -> OwnPrice | None:
        """Returns the first row that matches."""
        return next((row for row in self.rows if row.matches(provider, model)), None)


def own_table(source: str, documents: Sequence[Mapping[str, Any]]) -> OwnTable:
    """Returns a version of own prices from its rows; raises `InvalidPrice`."""
    return OwnTable(source, [own_price(row) for row in documents], documents)


def own_price(document: Mapping[str, Any]) -> OwnPrice:
    """Returns a row; raises `InvalidPrice` (422), also where `free` and rates that are all zero disagree."""
    name = document.get("model")
    row = _Row(document, name if isinstance(name, str) else "(no model)")
    for field in document:
        if field not in _KNOWN:
            raise row.wrong(field, "is unknown")
    prices = row.prices()
    free = row.switch("free")
    zero = all(rate.base == 0 and all(price == 0 for _, price in rate.tiers) for rate in prices.values())
    if free and not zero:
        raise row.wrong("free", "needs all rates to be zero")
    if zero and not free:
        raise row.wrong("free", "must be true, because all rates are zero")
    match = document.get("match", "exact")
    if match not in ("exact", "prefix"):
        raise row.wrong("match", "is neither exact nor prefix")
    limits = ModelLimits(
        context_window=row.count("context_window"),
        output_tokens_max=row.count("output_tokens_max"),
        image_tokens_max=row.count("image_tokens_max"),
        images_in_window=row.switch("images_in_window"),
    )
    note = document.get("note")
    if note is not None and not isinstance(note, str):
        raise row.wrong("note", "is not a text")
    return OwnPrice(row.text("provider"), row.text("model"), match == "prefix", prices, free, limits, note)


@dataclass(frozen=True)
class _Row:
    """A row while it is read."""

    document: Mapping[str, Any]
    name: str

    def wrong(self, field: str, problem: str) -> InvalidPrice:
        return InvalidPrice(self.name, field, problem)

    def text(self, field: str) -> str:
        value = self.document.get(field)
        if not isinstance(value, str) or not value:
            raise self.wrong(field, "is not a name")
        return value

    def switch(self, field: str) -> bool:
        value = self.document.get(field, False)
        if not isinstance(value, bool):
            raise self.wrong(field, "is not true or false")
        return value

    def count(self, field: str) -> int | None:
        value = self.document.get(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.wrong(field, "is not a whole number above 0")
        return value

    def price(self, field: str, value: object) -> Decimal:
        if not isinstance(value, str) or not _DECIMAL.match(value):
            raise self.wrong(field, "is not decimal text of at most 12 places, such as 0.25")
        return Decimal(value)

    def prices(self) -> dict[str, Rate]:
        tiers = self._tiers()
        found: dict[str, Rate] = {}
        for key in _PRICES:
            value = self.document.get(key)
            if value is None:
                if key in _REQUIRED:
                    raise self.wrong(key, "is missing")
                if any(key in prices for _, prices in tiers):
                    raise self.wrong(f"tiers.{key}", "has no base price")
                continue
            steps = tuple((start, prices[key]) for start, prices in tiers if key in prices)
            found[key] = Rate(self.price(key, value), steps)
        return found

    def _tiers(self) -> list[tuple[int, dict[str, Decimal]]]:
        given = self.document.get("tiers", [])
        if not isinstance(given, list):
            raise self.wrong("tiers", "is not a list")
        found: list[tuple[int, dict[str, Decimal]]] = []
        for index, tier in enumerate(given):
            path = f"tiers.{index}"
            if not isinstance(tier, dict) or set(tier) - {"start", *_PRICES}:
                raise self.wrong(path, "has a member that is neither start nor a price")
            start = tier.get("start")
            if isinstance(start, bool) or not isinstance(start, int) or start <= (found[-1][0] if found else 0):
                raise self.wrong(f"{path}.start", "is not a whole number above the tier before it")
            found.append((start, {key: self.price(f"{path}.{key}", tier[key]) for key in _PRICES if key in tier}))
        return found
