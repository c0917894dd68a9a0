"""`tollbar prices show`: what a model costs."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from tollbar.cli.output import Rows
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import UNKNOWN

_WORDS = (
    ("input", "input_usd"),
    ("cache read", "cache_read_usd"),
    ("cache write", "cache_write_usd"),
    ("cache write 1 h", "cache_write_1h_usd"),
    ("output", "output_usd"),
)


def show_prices(
    model: Annotated[str, Parameter(help="provider:model, such as openai:gpt-5-mini.")],
    /,
    *,
    options: Global = NO_OPTIONS,
) -> None:
    """Show what a model costs, in USD per million tokens, and the limits that bound a call of it.

    Example: tollbar prices show anthropic:claude-sonnet-4-5
    """
    session = Session(options)
    with session.client() as client:
        found = client.model_prices(model)
    session.out.record(found, _rows(found))


def _rows(found: dict[str, Any]) -> Rows:
    head: list[tuple[str, object]] = [
        ("model", found["model"]),
        ("priced as", found["priced_as"]),
        ("price snapshot", found["snapshot"]),
        ("context window", found["context_window"] or UNKNOWN),
        ("most output tokens", found["output_tokens_max"] or UNKNOWN),
        ("prices", "in USD per million tokens"),
    ]
    if found["free"]:
        head.append(("free", found["note"] or "declared"))
    return [*head, *((_when(price), _amounts(price)) for price in found["prices"])]


def _when(price: dict[str, Any]) -> str:
    start = price["above_input_tokens"]
    context = [f"{name.replace('_', ' ')} {value}" for name, value in (price["when"] or {}).items()]
    return ", ".join(context + ([f"above {start} input tokens"] if start else [])) or "standard"


def _amounts(price: dict[str, Any]) -> str:
    return ", ".join(f"{word} {price[member]}" for word, member in _WORDS if price[member] is not None)
