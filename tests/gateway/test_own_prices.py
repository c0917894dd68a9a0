"""An operator's own prices: decimal text, declared free where they are free, before the shipped data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.gateway.cases import AT, CHAT_TRAITS_LOCAL, UNTIL, ask, chat_usage

from tollbar.gateway.bound import quote
from tollbar.gateway.cost import settle
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import InvalidPrice, Unmetered
from tollbar.gateway.owntable import OwnTable, own_price
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.usage import Extractor

FREE: dict[str, Any] = {
    "provider": "local-vllm",
    "model": "qwen3-coder-30b",
    "match": "exact",
    "input_mtok": "0",
    "output_mtok": "0",
    "cache_read_mtok": None,
    "cache_write_mtok": None,
    "cache_write_1h_mtok": None,
    "tiers": [],
    "free": True,
    "context_window": 131_072,
    "output_tokens_max": 8192,
    "image_tokens_max": None,
    "images_in_window": False,
    "note": "our own GPU",
}
DEAR = FREE | {
    "model": "big-",
    "match": "prefix",
    "input_mtok": "3",
    "output_mtok": "15.5",
    "free": False,
    "tiers": [{"start": 1000, "input_mtok": "6", "output_mtok": "31"}],
}


def _book(*rows: dict[str, Any], source: str = "workspace/3") -> PriceBook:
    return PriceBook((OwnTable(source, [own_price(row) for row in rows]),))


@pytest.mark.requirement("G-GW-GL36")
@pytest.mark.parametrize(
    "row",
    [
        FREE | {"free": False},
        DEAR | {"free": True},
        FREE | {"tiers": [{"start": 10, "input_mtok": "1"}]},
        FREE | {"cache_read_mtok": "0.1"},
        {key: value for key, value in FREE.items() if key != "free"},
    ],
)
def test_free_needs_zero_rates_and_zero_rates_need_free(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidPrice) as refused:
        own_price(row)
    assert "free" in refused.value.message
    assert (refused.value.code, refused.value.status) == ("INVALID_PRICE", 422)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_mtok", 0.25),
        ("input_mtok", "-1"),
        ("input_mtok", "1e3"),
        ("input_mtok", "0.0000000000001"),
        ("input_mtok", None),
        ("output_mtok", None),
        ("match", "regex"),
        ("tiers", [{"start": 0, "input_mtok": "6"}]),
        ("tiers", [{"start": 5, "input_mtok": "6"}, {"start": 5, "input_mtok": "7"}]),
        ("tiers", [{"start": 5, "cache_read_mtok": "6"}]),
        ("tiers", [{"start": 5, "price": "6"}]),
        ("tiers", {}),
        ("context_window", 0),
        ("context_window", True),
        ("free", "no"),
        ("note", 5),
        ("model", ""),
        ("provider", None),
        ("inputs_mtok", "1"),
    ],
)
def test_a_row_with_a_wrong_member_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidPrice) as refused:
        own_price(DEAR | {field: value})
    assert field in refused.value.message


def test_a_declared_free_model_has_a_bound_of_nothing_and_a_limit() -> None:
    free = quote(ask(Dialect.CHAT, {"model": "qwen3-coder-30b"}, 500), _book(FREE), CHAT_TRAITS_LOCAL, AT, UNTIL)
    assert (free.worst(free.asked), free.asked) == (0, 8192)
    assert free.rates is not None
    assert free.rates.free
    assert free.fitting(0) == 8192


def test_own_rows_are_priced_by_prefix_and_tier_and_named_by_their_table() -> None:
    extractor = Extractor(Dialect.CHAT, streamed=False)
    extractor.feed(json.dumps({"model": "big-7", "usage": chat_usage(1001, 10)}).encode())
    settled = settle(extractor.final(), _book(DEAR), CHAT_TRAITS_LOCAL, "big-7", AT)
    assert settled.cost_pusd == 1001 * 6_000_000 + 10 * 31_000_000
    assert settled.rates.snapshot.startswith("workspace/3/")
    extractor.feed(json.dumps({"service_tier": "priority", "usage": chat_usage(1, 1)}).encode())
    with pytest.raises(Unmetered):
        settle(extractor.final(), _book(DEAR), CHAT_TRAITS_LOCAL, "big-7", AT)


def test_an_own_price_comes_before_the_shipped_one_also_when_the_answer_names_a_dated_model(book: PriceBook) -> None:
    own = PriceBook(_book(DEAR | {"provider": "openai", "model": "gpt-5-mini", "match": "exact"}).tables)
    rates = own.settling("openai", "gpt-5-mini-2025-08-07", "gpt-5-mini", AT, {})
    assert rates is not None
    assert rates.effective(0)["output_mtok"] == "15.5"
    other = own.settling("openai", "gpt-5-nano", "gpt-5-nano", AT, {})
    assert other == book.rates("openai", "gpt-5-nano", AT)


def test_equal_rows_have_equal_snapshots_and_a_changed_price_another(book: PriceBook) -> None:
    first = _book(DEAR).rates("local-vllm", "big-1", AT)
    again = _book(DEAR).rates("local-vllm", "big-1", AT)
    changed = _book(DEAR | {"output_mtok": "15.6"}).rates("local-vllm", "big-1", AT)
    assert first is not None
    assert again is not None
    assert changed is not None
    assert first.snapshot == again.snapshot != changed.snapshot
