"""What holds for every request and every usage: the worst case is a bound, and it grows with what is asked."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.source import python_files
from tests.gateway.cases import AT, TRAITS, UNTIL, ask, bound

import tollbar.gateway
from tollbar.gateway.bound import quote
from tollbar.gateway.cost import cost_pusd
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Refused
from tollbar.gateway.prices import PriceBook

FEW: Final = settings(max_examples=60, deadline=None)
BOOK: Final = PriceBook()
CASES: Final = [
    (Dialect.CHAT, "gpt-5-mini"),
    (Dialect.RESPONSES, "gpt-5.4"),
    (Dialect.CHAT, "gpt-6-luna"),
    (Dialect.MESSAGES, "claude-sonnet-4-5"),
    (Dialect.MESSAGES, "claude-haiku-5-5"),
    (Dialect.GEMINI, "gemini-2.5-pro"),
]
SIZES: Final = st.integers(2, 1_500_000)
LIMITS: Final = st.integers(0, 200_000)
cases = st.sampled_from(CASES)


def _body(dialect: Dialect, model: str, limit: int, *, n: int = 1, hour: bool = False) -> dict[str, Any]:
    if dialect is Dialect.GEMINI:
        return {"generationConfig": {"maxOutputTokens": limit, "candidateCount": n}}
    if dialect is Dialect.MESSAGES:
        control = {"type": "ephemeral", "ttl": "1h" if hour else "5m"}
        return {"model": model, "max_tokens": limit, "cache_control": control}
    name = "max_completion_tokens" if dialect is Dialect.CHAT else "max_output_tokens"
    return {"model": model, name: limit} | ({"n": n} if dialect is Dialect.CHAT else {})


@FEW
@given(cases, SIZES, LIMITS, st.booleans(), st.data())
def test_no_usage_within_its_bounds_costs_more_than_the_worst_case(
    case: tuple[Dialect, str], size: int, limit: int, hour: bool, data: st.DataObject
) -> None:
    dialect, model = case
    quoted = bound(BOOK, dialect, _body(dialect, model, limit, hour=hour), size, model=model)
    total = data.draw(st.integers(0, quoted.input_bound), "input")
    read = data.draw(st.integers(0, total), "read")
    written = data.draw(st.integers(0, total - read), "written") if dialect is not Dialect.GEMINI else 0
    counts = {
        "input_tokens": total,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": data.draw(st.integers(0, limit), "output"),
    }
    if dialect is Dialect.MESSAGES and hour:
        counts["cache_write_1h_tokens"] = data.draw(st.integers(0, written), "hour")
    assert quoted.rates is not None
    assert cost_pusd(counts, quoted.rates) <= quoted.worst(limit)


@FEW
@given(cases, SIZES, st.integers(0, 100_000), LIMITS, st.integers(0, 5000), st.integers(1, 8), st.integers(0, 8))
def test_the_worst_case_grows_with_bytes_output_and_candidates(
    case: tuple[Dialect, str], size: int, more_bytes: int, limit: int, more_output: int, n: int, more_n: int
) -> None:
    dialect, model = case

    def worst(size_: int, limit_: int, n_: int) -> int:
        return bound(BOOK, dialect, _body(dialect, model, limit_, n=n_), size_, model=model).worst(limit_)

    least = worst(size, limit, n)
    assert worst(size + more_bytes, limit, n) >= least
    assert worst(size, limit + more_output, n) >= least
    assert worst(size, limit, n + more_n) >= least


@FEW
@given(cases, st.integers(2, 200_000), LIMITS, st.integers(0, 10**13))
def test_the_fitting_limit_is_the_highest_that_fits(
    case: tuple[Dialect, str], size: int, limit: int, left: int
) -> None:
    dialect, model = case
    quoted = bound(BOOK, dialect, _body(dialect, model, limit), size, model=model)
    fitting = quoted.fitting(left)
    assert fitting <= quoted.asked
    if fitting >= 0:
        assert quoted.worst(fitting) <= left
    if fitting < quoted.asked:
        assert quoted.worst(max(fitting + 1, 0)) > left


@pytest.mark.requirement("G-GW-GL5")
@FEW
@given(st.integers(0, 199_000), st.integers(0, 199_000), st.integers(0, 199_000), st.integers(0, 199_000), LIMITS)
def test_the_cost_is_what_integer_arithmetic_gives(fresh: int, read: int, five: int, hour: int, output: int) -> None:
    total = fresh + read + five + hour
    counts = {
        "input_tokens": total,
        "cache_read_tokens": read,
        "cache_write_tokens": five + hour,
        "cache_write_5m_tokens": five,
        "cache_write_1h_tokens": hour,
        "output_tokens": output,
    }
    rates = BOOK.rates("anthropic", "claude-sonnet-4-5", AT)
    assert rates is not None
    dear = total > 200_000
    factor = 2 if dear else 1
    expected = factor * (fresh * 3_000_000 + read * 300_000 + five * 3_750_000 + hour * 6_000_000)
    expected += output * (22_500_000 if dear else 15_000_000)
    assert cost_pusd(counts, rates) == expected


@pytest.mark.requirement("G-GW-GL5")
def test_one_place_prices_usage() -> None:
    package = Path(tollbar.gateway.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in python_files("src")}
    places = [path for path, text in sources.items() if "calc_price" in text]
    assert places == [package / "cost.py"]
    assert sources[package / "cost.py"].count("calc_price") == 1


def test_fractions_of_a_unit_are_rounded_up_once() -> None:
    rates = BOOK.rates("openai", "gpt-5-nano", AT)
    assert rates is not None
    odd = rates.times(Decimal("0.0000001"))
    # 0.05 USD a million x 1e-7 = 0.005 pUSD a token: a thousand tokens are 5, one token is not nothing
    assert cost_pusd({"input_tokens": 1000, "output_tokens": 0}, odd) == 5
    assert cost_pusd({"input_tokens": 1, "output_tokens": 0}, odd) == 1


IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4000}}
PDF: Final = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 4000}}


def test_media_are_bounded_by_the_models_limits_and_not_by_their_bytes(book: PriceBook) -> None:
    def bound_of(*parts: dict[str, Any]) -> int:
        body = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": list(parts)}], "max_tokens": 1}
        return bound(book, Dialect.MESSAGES, body, 10_000).input_bound

    assert bound_of() == 10_000 + 2048
    assert bound_of(IMAGE) == 10_000 - 4000 + 2048 + 8192
    assert bound_of(IMAGE, IMAGE) == 10_000 - 8000 + 2048 + 2 * 8192
    assert bound_of(PDF) == 200_000
    assert bound_of({"type": "tool_result", "content": [IMAGE]}) == 10_000 - 4000 + 2048 + 8192


def test_a_window_does_not_bound_images_whose_bill_leaves_it(book: PriceBook) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 100}
    body = {"model": "gpt-5-mini", "input": [{"role": "user", "content": [image] * 20}]}
    assert bound(book, Dialect.RESPONSES, body, 10_000).input_bound == 10_000 - 2000 + 2048 + 20 * 32_768


def test_an_image_or_a_document_of_a_model_without_limits_is_unbounded(book: PriceBook) -> None:
    traits = TRAITS[Dialect.CHAT].__class__(TRAITS[Dialect.CHAT].kind, "deepseek")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = ask(Dialect.CHAT, {"model": "deepseek-chat", "messages": [{"content": [image]}]}, 100)
    with pytest.raises(Refused) as refused:
        quote(asked, book, traits, AT, UNTIL)
    assert "image" in refused.value.message


def test_a_long_context_header_widens_the_window(book: PriceBook) -> None:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1}
    assert bound(book, Dialect.MESSAGES, body, 900_000).input_bound == 200_000
    assert bound(book, Dialect.MESSAGES, body, 900_000, beta="x,context-1m-2025-08-07").input_bound == 902_048


def test_tools_that_the_provider_defines_add_their_hidden_prompts(book: PriceBook) -> None:
    tools = [{"type": "bash_20250124"}, {"type": "text_editor_20250728"}, {"name": "own"}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1, "tools": tools}
    assert bound(book, Dialect.MESSAGES, body, 1000).input_bound == 1000 + 2048 + 2 * 1024


def test_without_a_limit_the_default_holds_lowered_to_the_models_own(book: PriceBook) -> None:
    assert bound(book, Dialect.CHAT, {"model": "gpt-5-mini"}, 10).asked == 16_384
    assert bound(book, Dialect.GEMINI, {}, 10, model="gemini-2.0-flash").asked == 8192


def test_the_dearer_of_now_and_the_calls_end_is_the_bound(book: PriceBook) -> None:
    traits = TRAITS[Dialect.CHAT].__class__(TRAITS[Dialect.CHAT].kind, "deepseek")
    asked = ask(Dialect.CHAT, {"model": "deepseek-chat", "max_tokens": 0}, 0)
    cheap, dear = AT.replace(hour=0, minute=20), AT.replace(hour=0, minute=36)
    for start, end in ((cheap, dear), (dear, cheap), (dear, dear)):
        assert quote(asked, book, traits, start, end).worst(0) == 2048 * 270_000
    assert quote(asked, book, traits, cheap, cheap).worst(0) == 2048 * 135_000
