"""What must be known of a provider to bound, edit and price a call; its secret and address are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum


class Kind(StrEnum):
    """How a provider behaves beyond its dialects."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"
    OPENAI_COMPATIBLE = "openai-compatible"
    ANTHROPIC_COMPATIBLE = "anthropic-compatible"
    SCRIPTED = "scripted"


@dataclass(frozen=True)
class Traits:
    """The priced side of a provider's record.

    `price_provider` names the rows that price it; `multiplier` is on every rate (a reseller's margin), and
    `regions` has a further one for each `inference_geo` that is allowed.
    """

    kind: Kind
    price_provider: str
    output_limit_field: str = "max_completion_tokens"
    priority_commitment: bool = False
    multiplier: Decimal = Decimal(1)
    regions: Mapping[str, Decimal] = field(default_factory=dict)
    allow_fields: frozenset[str] = frozenset()

    @property
    def allowed(self) -> frozenset[str]:
        """Returns the fields that this provider takes beyond its dialect's list."""
        return self.allow_fields | {"inference_geo"} if self.regions else self.allow_fields
