"""How a model that somebody names is served here, and what one call of it reserves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tollbar.gateway.asks import Ask
from tollbar.gateway.bound import Quote, quote
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Refused
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import Providers, parse_model
from tollbar.gateway.relay import WHOLE_CALL_S
from tollbar.gateway.scripts import Scripts

SMALL_REQUEST_BYTES: Final = 4_000
_MEMBERS: Final = {
    "input_usd": "input_mtok",
    "cache_read_usd": "cache_read_mtok",
    "cache_write_usd": "cache_write_mtok",
    "output_usd": "output_mtok",
}


@dataclass(frozen=True)
class Offer:
    """A served model. Prices are USD per million tokens; amounts in pUSD, None where the model has no price."""

    name: str
    """`provider:model` as it was asked for."""
    wire: str
    """The bare name in requests; of a script the model that it is priced as."""
    kind: str
    """Kind of its provider."""
    provider: str
    """Id of the provider's record."""
    snapshot: str | None
    prices: Mapping[str, str] | None
    least_pusd: int | None
    """Reserved at least for a request of 4,000 bytes."""
    usual_pusd: int | None
    """Reserved for it where it names no output limit."""

    @property
    def priced(self) -> bool:
        return self.least_pusd is not None

    @property
    def simulated(self) -> bool:
        return self.kind == "scripted"

    @property
    def route(self) -> str:
        """Returns where a key's route for `wire` leads."""
        return self.name if self.simulated else self.provider


def offer(name: object, book: PriceBook, providers: Providers, scripts: Scripts, at: datetime) -> Offer:
    """Returns how `provider:model` is served. Reads the price data at its first use: call it off the event loop.

    Raises `InvalidModelName`, `UnsupportedProvider`, `ProviderNotFound`, `ScriptNotFound`.
    """
    parsed = parse_model(name)
    provider = providers.get(parsed.provider)
    traits, wire = provider.traits, parsed.model
    if provider.is_scripted:
        script = scripts.get(parsed.model)
        traits, wire = replace(traits, price_provider=script.provider), script.model
    dialect = min(provider.dialects)
    quoted: Quote | None
    try:
        quoted = quote(_small(dialect, wire), book, traits, at, at + timedelta(seconds=WHOLE_CALL_S))
    except Refused:
        quoted = None
    rates = None if quoted is None else quoted.rates
    prices = None if rates is None else rates.effective(SMALL_REQUEST_BYTES)
    return Offer(
        name=str(parsed),
        wire=wire,
        kind=traits.kind.value,
        provider=provider.id,
        snapshot=None if rates is None else rates.snapshot,
        prices=None if prices is None else {key: prices[row] for key, row in _MEMBERS.items() if row in prices},
        least_pusd=None if quoted is None else quoted.worst(quoted.least),
        usual_pusd=None if quoted is None else quoted.worst(quoted.asked),
    )


def _small(dialect: Dialect, model: str) -> Ask:
    return Ask(
        dialect=dialect,
        model=model,
        streamed=False,
        reports_usage=False,
        limits={},
        candidates=1,
        thinking_budget=None,
        body_bytes=SMALL_REQUEST_BYTES,
        base64_bytes=0,
        images=0,
        whole_window=False,
        hidden_tools=0,
        cache_write=None,
        service_tier=None,
        speed=None,
        region=None,
        long_context=False,
    )
