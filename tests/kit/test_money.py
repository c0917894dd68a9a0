"""Money is read as decimal text, kept as whole pico-USD, and rounded up once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbar.kit import money
from tollbar.kit.errors import InvalidAmount


def cap(value: object) -> int:
    return money.parse_usd(value, field="max_cost_usd", minimum="0.000001", maximum="100000")


@pytest.mark.parametrize(
    ("value", "pusd"),
    [
        (5, 5 * 10**12),
        (5.0, 5 * 10**12),
        ("5.00", 5 * 10**12),
        (0.1, 10**11),
        ("0.000001", 10**6),
        (1e-6, 10**6),
        (100000, 10**17),
        ("12345.123456789", 12345123456789000),
    ],
)
def test_an_amount_counts_by_its_decimal_text(value: object, pusd: int) -> None:
    assert cap(value) == pusd


@pytest.mark.parametrize(
    "value",
    [0, "0", "0.0000009", 100000.01, 1e9, -1, "-1", "+1", "NaN", float("nan"), float("inf"), "1e999", True, None, [],
     "", " 5", "5 ", "1_000", "\uff15", "0.1234567890123", "1234567890.1234567"],
)  # fmt: skip
def test_everything_else_is_refused_with_the_field(value: object) -> None:
    with pytest.raises(InvalidAmount) as error:
        cap(value)
    assert error.value.facts["fields"][0]["path"] == "max_cost_usd"


@pytest.mark.parametrize(
    ("pusd", "text"), [(428 * 10**9, "0.428"), (5 * 10**12, "5"), (0, "0"), (1, "0.000000000001"), (10**13, "10")]
)
def test_amounts_go_out_without_exponent_or_superfluous_zeros(pusd: int, text: str) -> None:
    assert money.format_usd(pusd) == text


@given(st.integers(min_value=0, max_value=10**17))
def test_what_goes_out_comes_in_again(pusd: int) -> None:
    assert Decimal(money.format_usd(pusd)) * 10**12 == pusd


def test_a_cost_is_never_rounded_down() -> None:
    assert money.ceil_pusd(Decimal("0.0000000000001")) == 1
    assert money.ceil_pusd(Decimal("0.18000000000000002")) == 180000000001


def test_a_quotient_is_rounded_half_even_to_twelve_places() -> None:
    assert money.divide_usd(428 * 10**9, 12) == "0.035666666667"
    assert money.divide_usd(428 * 10**9, 5) == "0.0856"
    assert money.divide_usd(610 * 10**9, 9) == "0.067777777778"
