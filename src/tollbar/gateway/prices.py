"""The price book: own tables first, then the pinned price data, which is read when the first call is priced.

Reading it costs a fraction of a second and about 100 MB, so that nothing imports it at start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Unmetered
from tollbar.gateway.modellimits import ModelLimits, shipped
from tollbar.gateway.owntable import OwnTable
from tollbar.gateway.rates import Rate, Rates

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider

_PACKAGE: Final = "genai-prices"
_ASKED: Final = frozenset({"service_tier", "speed"})
_MAPPINGS: Final = {
    Dialect.CHAT: ("openai", "chat"),
    Dialect.RESPONSES: ("openai", "responses"),
    Dialect.MESSAGES: ("anthropic", "default"),
    Dialect.GEMINI: ("google", "default"),
}


@dataclass(frozen=True)
class PriceBook:
    """Prices of an installation. `tables` are own prices, the first match wins before the shipped data."""

    tables: Sequence[OwnTable] = field(default=())

    @property
    def is_read(self) -> bool:
        """Says whether the price data are in memory, so that a question does not block."""
        return "_data" in self.__dict__

    @cached_property
    def _data(self) -> DataSnapshot:
        from genai_prices.data import providers
        from genai_prices.data_snapshot import DataSnapshot

        return DataSnapshot(providers=providers, from_auto_update=False)

    @cached_property
    def _providers(self) -> dict[str, Provider]:
        return {provider.id: provider for provider in self._data.providers}

    @cached_property
    def _source(self) -> str:
        return f"{_PACKAGE}/{version(_PACKAGE)}"

    def rates(self, provider: str, model: str, at: datetime, context: Mapping[str, str] | None = None) -> Rates | None:
        """Returns the rates of a model at a moment, None when it is unknown or lacks the input or the output rate.

        `context` is what chooses a variant, e.g. `{"service_tier": "priority"}`; None too when the model has no such
        variant, because the standard price would be a guess.
        """
        for table in self.tables:
            if (row := table.find(provider, model)) is not None:
                return None if context else row.rates(model, table.source)
        if (info := self._model(provider, model)) is None or not _knows(info, at, context or {}):
            return None
        prices = info.get_prices(at, dict(context or {}))
        found = {key: _rate(value) for key, value in vars(prices).items() if value is not None}
        rates = Rates(provider, info.id, self._source, found, info.context_window)
        return rates if rates.priced else None

    def variants(self, provider: str, model: str, at: datetime) -> list[dict[str, str]]:
        """Returns the contexts in which the model has other prices at a moment and that a call here can ask for."""
        if any(table.find(provider, model) is not None for table in self.tables):
            return []
        info = self._model(provider, model)
        return [
            dict(variant.when)
            for variant in (info.price_variants if info is not None else None) or ()
            if variant.when.keys() <= _ASKED and (variant.constraint is None or variant.constraint.active(at))
        ]

    def settling(
        self, provider: str, reported: str | None, asked: str, at: datetime, context: Mapping[str, str]
    ) -> Rates | None:
        """Returns the rates that settle a call: of the model that the answer reports, else of the one asked for.

        An own price of the asked model is not replaced by the shipped price of the reported one.
        """
        if reported is not None and self._rank(provider, reported) <= self._rank(provider, asked):
            found = self.rates(provider, reported, at, context)
            if found is not None:
                return found
        return self.rates(provider, asked, at, context)

    def limits(self, provider: str, model: str) -> ModelLimits:
        """Returns a model's limits: what an own row says, else what tollbar ships, else the price data's window."""
        base = shipped(provider, model)
        for table in self.tables:
            if (row := table.find(provider, model)) is not None:
                own = row.limits
                return ModelLimits(
                    own.context_window or base.context_window,
                    own.output_tokens_max or base.output_tokens_max,
                    own.image_tokens_max or base.image_tokens_max,
                    own.images_in_window if own.image_tokens_max else base.images_in_window,
                )
        info = self._model(provider, model)
        window = base.context_window or (info.context_window if info is not None else None)
        return ModelLimits(window, base.output_tokens_max, base.image_tokens_max, base.images_in_window)

    def counts(self, dialect: Dialect, document: Mapping[str, Any]) -> dict[str, int]:
        """Returns the counted units of a usage document by name (`input_tokens`, cache included, ...).

        Raises `Unmetered` when it has no usage, or a count that is not a whole number.
        """
        provider, flavour = _MAPPINGS[dialect]
        try:
            _, usage = self._providers[provider].extract_usage(document, api_flavor=flavour)
        except (ValueError, TypeError, LookupError) as error:
            raise Unmetered(f"the usage cannot be read: {error}") from None
        counts: dict[str, int] = {}
        for key, value in vars(usage).items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise Unmetered(f"{key} is not a whole number")
            counts[key] = value
        return counts

    def _rank(self, provider: str, model: str) -> int:
        found = (index for index, table in enumerate(self.tables) if table.find(provider, model) is not None)
        return next(found, len(self.tables))

    def _model(self, provider: str, model: str) -> ModelInfo | None:
        # by its exact id: the data's own search takes any name that contains "google" for Google
        if (owner := self._providers.get(provider)) is None:
            return None
        try:
            return self._data.find_provider_model(model, owner, None, None)[1]
        except LookupError:
            return None


def _knows(info: ModelInfo, at: datetime, context: Mapping[str, str]) -> bool:
    """Returns whether each pair of the context is one of the model's variants in effect."""
    variants = [
        variant.when
        for variant in info.price_variants or ()
        if variant.constraint is None or variant.constraint.active(at)
    ]
    return all(any(when == {key: value} for when in variants) for key, value in context.items())


def _rate(value: Any) -> Rate:
    """Returns a price of the data; it has `base` and `tiers` where it has tiers."""
    if hasattr(value, "tiers"):
        return Rate(value.base, tuple((tier.start, tier.price) for tier in value.tiers))
    return Rate(value)
