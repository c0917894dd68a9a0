"""What the price data lacks: the most output, the most tokens of an image, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ModelLimits:
    """Limits of one model in tokens; None is unknown.

    `images_in_window` says that an image's billed tokens are those that enter the window, so that the window bounds
    a request with images.
    """

    context_window: int | None = None
    output_tokens_max: int | None = None
    image_tokens_max: int | None = None
    images_in_window: bool = False


_IMAGES: Final = {"anthropic": 8_192, "google": 8_192, "openai": 32_768}
"""Margins above what has been measured, per provider; others have none."""

_IN_WINDOW: Final = frozenset({"anthropic", "google"})

_OUTPUT: Final[tuple[tuple[str, str, int], ...]] = (
    ("anthropic", "claude-opus-4-5", 64_000),
    ("anthropic", "claude-sonnet-4-5", 64_000),
    ("anthropic", "claude-haiku-4-5", 64_000),
    ("anthropic", "claude-3-5-haiku", 8_192),
    ("google", "gemini-2.5-", 65_535),
    ("google", "gemini-2.0-flash", 8_192),
    ("openai", "gpt-5", 128_000),
    ("openai", "gpt-4.1", 32_768),
    ("openai", "gpt-4o", 16_384),
    ("openai", "o3", 100_000),
    ("openai", "o4-mini", 100_000),
)

_WINDOWS: Final[tuple[tuple[str, str, int], ...]] = (("google", "gemini-2.5-", 1_048_576),)


def shipped(provider: str, model: str) -> ModelLimits:
    """Returns the limits that tollbar brings for a model of a provider."""
    return ModelLimits(
        context_window=_first(_WINDOWS, provider, model),
        output_tokens_max=_first(_OUTPUT, provider, model),
        image_tokens_max=_IMAGES.get(provider),
        images_in_window=provider in _IN_WINDOW,
    )


def _first(rows: tuple[tuple[str, str, int], ...], provider: str, model: str) -> int | None:
    return next((value for owner, prefix, value in rows if owner == provider and model.startswith(prefix)), None)
