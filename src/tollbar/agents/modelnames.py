"""In which dialect the providers of a kind are asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tollbar.gateway.dialects import Dialect

_DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect.RESPONSES,
    "anthropic": Dialect.MESSAGES,
    "anthropic-compatible": Dialect.MESSAGES,
    "google": Dialect.GEMINI,
}


def dialect_of(kind: str) -> Dialect:
    """Returns in which dialect a provider of a kind (or a model of it by name) is asked: chat unless it has its own."""
    return _DIALECTS.get(kind.partition(":")[0], Dialect.CHAT)
