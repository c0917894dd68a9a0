"""How values are written for people: money, scores, times, sizes. What is unknown is `-`, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final

from tollbar.kit.text import printable

UNKNOWN: Final = "-"
_CENT: Final = Decimal("0.01")
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def cell(value: object) -> str:
    """Returns any value on one line, with nothing in it that could move a terminal's cursor or break a column."""
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value)).replace("\n", "\\n").replace("\t", "\\t")


def money(amount: str | None) -> str:
    """Returns decimal text of USD with its currency: two decimals, below a cent two significant digits."""
    if amount is None:
        return UNKNOWN
    try:
        value = Decimal(amount)
        with localcontext() as context:
            context.prec = 2 if abs(value) < _CENT else 40
            shown = +value if value and abs(value) < _CENT else value.quantize(_CENT)
    except InvalidOperation:
        return cell(amount)
    return f"{shown:f} USD"


def number(value: float | None) -> str:
    """Returns a reward or score with up to four decimals."""
    return UNKNOWN if value is None else f"{value:.4f}".rstrip("0").rstrip(".")


def marked(text: str, owner: Mapping[str, Any]) -> str:
    """Returns a score or a cost, marked where it came from a script instead of a model."""
    return f"{text} SIMULATED" if owner.get("simulated") else text


def measured(owner: Mapping[str, Any], name: str) -> str:
    """Returns `score` or `pass` of a Job with its interval and coverage, without which it means nothing."""
    return marked(_measured(owner, name), owner)


def _measured(owner: Mapping[str, Any], name: str) -> str:
    value = owner.get(name)
    coverage = f"{owner.get('n_scored', UNKNOWN)}/{owner.get('n_total', UNKNOWN)} scored"
    if value is None:
        return f"{UNKNOWN} ({coverage})"
    intervals = owner.get("intervals") or {}
    interval = intervals.get(name)
    if interval is None:
        return f"{number(value)} (no interval, {coverage})"
    level = number(100 * intervals.get("level", 0.95))
    return f"{number(value)} ({level} % {number(interval[0])} to {number(interval[1])}, {coverage})"


def in_short(owner: Mapping[str, Any], name: str) -> str:
    """Returns `score` or `pass` with its interval, for a list that has a column for the coverage."""
    interval = (owner.get("intervals") or {}).get(name)
    between = UNKNOWN if interval is None else f"{number(interval[0])}, {number(interval[1])}"
    return UNKNOWN if owner.get(name) is None else f"{number(owner[name])} [{between}]"


def by_k(values: Mapping[str, float | None]) -> str:
    """Returns `1: 0.5, 2: 0.75`."""
    return ", ".join(f"{k}: {number(value)}" for k, value in values.items()) or UNKNOWN


def size(count: int | None) -> str:
    """Returns a number of bytes in the largest unit that keeps it above 1."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def age(moment: str | None, now: datetime) -> str:
    """Returns a wire time as `3 min ago`."""
    if moment is None:
        return UNKNOWN
    try:
        seconds = int((now - datetime.fromisoformat(moment)).total_seconds())
    except (ValueError, TypeError):
        return cell(moment)
    for length_s, unit in _AGES:
        if seconds >= length_s:
            return f"{seconds // length_s} {unit} ago"
    return "now"
