"""Money: integer pico-USD inside, decimal text of USD outside, never a float.

One USD is 10**12 pico-USD (pUSD). A BIGINT holds 9.22 million USD. Amounts are rounded once, always up.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation, localcontext
from typing import Final

from tollbar.kit.errors import InvalidAmount

PUSD_PER_USD: Final = 10**12
_PLACES: Final = 12
_SIGNIFICANT: Final = 15
_FORM: Final = re.compile(r"\d{1,18}(\.\d{1,30})?([eE][+-]?\d{1,3})?\Z", re.ASCII)


def parse_usd(value: object, *, field: str, minimum: str, maximum: str) -> int:
    """Reads an amount in USD from JSON (number or decimal text) and returns pUSD.

    A float counts by its shortest text. Raises `InvalidAmount` for another type, NaN, an infinity, a sign,
    more than 12 decimal places or 15 significant digits, or a value outside `minimum`..`maximum` (USD).
    """
    amount = _decimal(value, field)
    _, digits, exponent = amount.normalize().as_tuple()
    assert isinstance(exponent, int)
    if -exponent > _PLACES or len(digits) > _SIGNIFICANT:
        raise InvalidAmount(field, f"has more than {_PLACES} decimal places or {_SIGNIFICANT} significant digits")
    if not Decimal(minimum) <= amount <= Decimal(maximum):
        raise InvalidAmount(field, f"must be between {minimum} and {maximum} USD")
    return int(amount * PUSD_PER_USD)


def _decimal(value: object, field: str) -> Decimal:
    text = value if isinstance(value, str) else repr(value) if isinstance(value, int | float) else str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal) or not _FORM.match(text):
        raise InvalidAmount(field, "must be a positive decimal number of USD")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise InvalidAmount(field, "must be a positive decimal number of USD") from None


def format_usd(pusd: int) -> str:
    """Returns decimal text of USD without exponent or superfluous zeros, e.g. `428 * 10**9` -> `"0.428"`."""
    sign, rest = ("-", -pusd) if pusd < 0 else ("", pusd)
    whole, part = divmod(rest, PUSD_PER_USD)
    return f"{sign}{whole}.{part:012d}".rstrip("0").rstrip(".")


def ceil_pusd(usd: Decimal) -> int:
    """Returns a USD amount in pUSD, rounded up: a reservation or a cost is never below the exact value."""
    with localcontext() as context:
        context.prec = 60
        return int((usd * PUSD_PER_USD).to_integral_value(rounding=ROUND_CEILING))


def divide_usd(pusd: int, count: int) -> str:
    """Returns `pusd / count` as decimal text of USD, rounded half-even to 12 places (contract, section 15)."""
    with localcontext() as context:
        context.prec = 60
        return format_usd(int((Decimal(pusd) / Decimal(count)).to_integral_value()))
