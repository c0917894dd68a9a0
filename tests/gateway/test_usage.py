"""Usage is read from every form of an answer; what is missing or contradicts itself is never zero."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.gateway.cases import ANTHROPIC, AT, OPENAI, TRAITS, chat_usage, cost, messages_usage

from tollbar.gateway.cost import cost_pusd, settle
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Unmetered
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.traits import Kind, Traits
from tollbar.gateway.usage import Extractor, usage_only

CHAT, RESPONSES, MESSAGES, GEMINI = Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES, Dialect.GEMINI
MINI, CLAUDE, PRO = "gpt-5-mini", "claude-sonnet-4-5", "gemini-2.5-pro"
MODELS = {CHAT: MINI, RESPONSES: MINI, MESSAGES: CLAUDE, GEMINI: PRO}


def _read(dialect: Dialect, *events: Mapping[str, Any] | bytes, candidates: int = 1) -> Extractor:
    extractor = Extractor(dialect, streamed=True, candidates=candidates)
    for event in events:
        extractor.feed(event if isinstance(event, bytes) else json.dumps(event).encode())
    return extractor


def _cost(book: PriceBook, extractor: Extractor, dialect: Dialect, model: str | None = None) -> int:
    return settle(extractor.final(), book, TRAITS[dialect], model or MODELS[dialect], AT).cost_pusd


RESPONSE_USAGE = {
    "input_tokens": 2006,
    "input_tokens_details": {"cached_tokens": 1920},
    "output_tokens": 300,
    "output_tokens_details": {"reasoning_tokens": 256},
    "total_tokens": 2306,
}
GEMINI_USAGE = {"promptTokenCount": 1000, "candidatesTokenCount": 50, "thoughtsTokenCount": 20, "totalTokenCount": 1070}


@pytest.mark.requirement("G-GW-GL10")
@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_usage_is_read_from_every_end_of_a_response(book: PriceBook, kind: str) -> None:
    answer = {"model": MINI, "status": kind, "usage": RESPONSE_USAGE}
    streamed = _read(RESPONSES, {"type": "response.created"}, {"type": f"response.{kind}", "response": answer})
    assert _cost(book, streamed, RESPONSES) == cost(book, RESPONSES, answer, MINI) == 669_500_000
    assert streamed.failed is (kind == "failed")


def test_an_answer_at_its_output_limit_is_marked() -> None:
    ends = {
        CHAT: [{"choices": [{"index": 0, "finish_reason": "length"}]}, {"choices": [], "usage": chat_usage(1, 1)}],
        RESPONSES: [
            {
                "type": "response.incomplete",
                "response": {
                    "status": "incomplete",
                    "incomplete_details": {"reason": "max_output_tokens"},
                    "usage": RESPONSE_USAGE,
                },
            }
        ],
        MESSAGES: [
            {"type": "message_start", "message": {"usage": messages_usage(1, 1)}},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        ],
        GEMINI: [{"candidates": [{"index": 0, "finishReason": "MAX_TOKENS"}], "usageMetadata": GEMINI_USAGE}],
    }
    for dialect, events in ends.items():
        final = _read(dialect, *events).final()
        assert final is not None
        assert final.truncated


@pytest.mark.parametrize(
    ("dialect", "events"),
    [
        (CHAT, [{"choices": [{"index": 0, "finish_reason": "stop"}]}, b"[DONE]"]),
        (CHAT, [{"choices": [{"index": 0, "delta": {}, "finish_reason": None}], "usage": chat_usage(10, 1)}]),
        (RESPONSES, [{"type": "response.completed", "response": {"status": "completed", "usage": None}}]),
        (RESPONSES, [{"type": "response.in_progress", "response": {"usage": RESPONSE_USAGE}}]),
        (MESSAGES, [{"type": "message_start", "message": {"usage": messages_usage(10, 1)}}]),
        (MESSAGES, [{"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 5}}]),
        (GEMINI, [{"candidates": [{"content": {}}], "usageMetadata": GEMINI_USAGE}]),
        (GEMINI, [{"candidates": [{"finishReason": "STOP"}]}]),
        (CHAT, []),
        (CHAT, [b'{"usage": {"prompt_tokens": 1']),
    ],
)
def test_a_stream_without_its_final_usage_is_unmetered_never_zero(
    book: PriceBook, dialect: Dialect, events: list[Any]
) -> None:
    extractor = _read(dialect, *events)
    assert extractor.final() is None
    with pytest.raises(Unmetered):
        _cost(book, extractor, dialect)


def test_usage_on_the_way_is_final_only_when_all_candidates_have_ended() -> None:
    def chunk(index: int, reason: str | None, tokens: int) -> dict[str, Any]:
        return {"choices": [{"index": index, "finish_reason": reason}], "usage": chat_usage(10, tokens)}

    first = _read(CHAT, chunk(0, "stop", 5), candidates=2)
    assert first.final() is None
    first.feed(json.dumps(chunk(1, "stop", 9)).encode())
    final = first.final()
    assert final is not None
    assert final.document["usage"]["completion_tokens"] == 9


def test_a_chat_event_that_only_reports_usage_is_told_apart() -> None:
    assert usage_only(json.dumps({"choices": [], "usage": chat_usage(1, 1)}).encode())
    assert not usage_only(json.dumps({"choices": [], "usage": None}).encode())
    assert not usage_only(json.dumps({"choices": [{"delta": {}}], "usage": chat_usage(1, 1)}).encode())
    assert not usage_only(b"[DONE]")


def test_the_deltas_of_a_message_overwrite_what_its_start_said(book: PriceBook) -> None:
    start = {"type": "message_start", "message": {"model": CLAUDE, "usage": messages_usage(3, 1, written=12_304)}}
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": None, "output_tokens": 550},
    }
    ping = {"type": "content_block_delta", "delta": {"text": '"type": "message_delta", "usage": {"output_tokens": 9}'}}
    assert _cost(book, _read(MESSAGES, start, ping, delta, {"type": "message_stop"}), MESSAGES) == 54_399_000_000


def test_a_delta_that_reports_less_than_was_reported_before_is_not_believed(book: PriceBook) -> None:
    start = {"type": "message_start", "message": {"model": CLAUDE, "usage": messages_usage(1000, 1)}}
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 0, "output_tokens": 100},
    }
    assert _cost(book, _read(MESSAGES, start, delta), MESSAGES) == 1000 * 3_000_000 + 100 * 15_000_000


def test_gemini_leaves_out_zeros_and_its_total_tells_what_is_missing(book: PriceBook) -> None:
    def priced(usage: dict[str, int]) -> int:
        return cost(book, GEMINI, {"modelVersion": PRO, "usageMetadata": usage}, PRO)

    assert priced({"promptTokenCount": 1000, "totalTokenCount": 1000}) == 1000 * 1_250_000
    assert priced({"promptTokenCount": 1000, "totalTokenCount": 1070}) == 1000 * 1_250_000 + 70 * 10_000_000
    assert priced(GEMINI_USAGE) == 1000 * 1_250_000 + 70 * 10_000_000
    with_tool = {"promptTokenCount": 1000, "toolUsePromptTokenCount": 100, "totalTokenCount": 1100}
    assert priced(with_tool) == 1100 * 1_250_000


def test_reasoning_that_a_server_counts_beside_its_output_is_billed(book: PriceBook) -> None:
    usage = chat_usage(1000, 50) | {"total_tokens": 1250}
    assert cost(book, CHAT, {"model": MINI, "usage": usage}, MINI) == 1000 * 250_000 + 250 * 2_000_000


CONTRADICTIONS: list[tuple[Dialect, dict[str, Any]]] = [
    (CHAT, chat_usage(100, 10, cached=101)),
    (CHAT, chat_usage(100, 10, cached=60, written=60)),
    (CHAT, {"prompt_tokens": 100, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}}),
    (CHAT, {"prompt_tokens": -1, "completion_tokens": 5}),
    (CHAT, {"prompt_tokens": 1.5, "completion_tokens": 5}),
    (CHAT, {"prompt_tokens": "7", "completion_tokens": 5}),
    (CHAT, {"completion_tokens": 5}),
    (CHAT, {"prompt_tokens": 10**15, "completion_tokens": 5}),
    (CHAT, {"prompt_tokens": True, "completion_tokens": 5}),
    (CHAT, {}),
    (RESPONSES, {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 101}, "output_tokens": 1}),
    (MESSAGES, {"input_tokens": 1}),
    (MESSAGES, messages_usage(1, 1, written=10, hour=5) | {"cache_creation_input_tokens": 4}),
    (MESSAGES, messages_usage(1, 1) | {"cache_creation": {"ephemeral_5m_input_tokens": 1000}}),
    (MESSAGES, messages_usage(1, 1) | {"server_tool_use": {"code_execution_requests": 2}}),
    (MESSAGES, messages_usage(1, 1) | {"service_tier": "priority"}),
    (MESSAGES, messages_usage(1, 1) | {"service_tier": "batch"}),
    (MESSAGES, messages_usage(1, 1) | {"speed": "fast"}),
    (MESSAGES, messages_usage(1, 1) | {"inference_geo": "us"}),
    (MESSAGES, messages_usage(1, 1) | {"iterations": ["x"]}),
    (MESSAGES, messages_usage(1, 1) | {"iterations": [{"type": "compaction", "input_tokens": "many"}]}),
    (MESSAGES, messages_usage(1, 1) | {"iterations": [{"type": "advisor_message", "model": "other"}]}),
    (MESSAGES, {"input_tokens": 1, "output_tokens": "2", "iterations": [{"type": "message", "output_tokens": 1}]}),
    (MESSAGES, messages_usage(1, 1) | {"iterations": [{"type": "message", "cache_creation": [1], "input_tokens": []}]}),
    (GEMINI, {"candidatesTokenCount": 50}),
    (GEMINI, {"promptTokenCount": 100, "cachedContentTokenCount": 101, "candidatesTokenCount": 1}),
    (
        GEMINI,
        {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 60,
            "promptTokensDetails": [{"modality": "IMAGE", "tokenCount": 101}],
            "candidatesTokenCount": 1,
        },
    ),
]


@pytest.mark.parametrize(("dialect", "usage"), CONTRADICTIONS)
def test_usage_that_contradicts_itself_or_has_no_price_is_unmetered(
    book: PriceBook, dialect: Dialect, usage: dict[str, Any]
) -> None:
    model = MODELS[dialect]
    root = "usageMetadata" if dialect is GEMINI else "usage"
    with pytest.raises(Unmetered):
        cost(book, dialect, {"model": model, "modelVersion": model, root: usage}, model)


def test_passes_that_the_top_level_leaves_out_are_added(book: PriceBook) -> None:
    plain = messages_usage(100, 50)
    message = {"type": "message", "input_tokens": 100, "output_tokens": 50}
    compaction = {"type": "compaction", "input_tokens": 1000, "output_tokens": 200}

    def priced(iterations: list[Any]) -> int:
        return cost(book, MESSAGES, {"model": CLAUDE, "usage": plain | {"iterations": iterations}}, CLAUDE)

    alone = 100 * 3_000_000 + 50 * 15_000_000
    assert priced([]) == priced([message]) == alone
    assert priced([compaction, message]) == alone + 1000 * 3_000_000 + 200 * 15_000_000
    assert priced([message, message]) == 2 * alone


def test_web_searches_are_priced_where_the_row_has_their_price(book: PriceBook) -> None:
    usage = messages_usage(100, 50) | {"server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 2}}
    expected = 100 * 3_000_000 + 50 * 15_000_000 + 3 * 10**10
    assert cost(book, MESSAGES, {"model": CLAUDE, "usage": usage}, CLAUDE) == expected
    rates = book.rates("openai", "gpt-4", AT)
    assert rates is not None
    assert "web_searches_kcount" not in rates.prices
    with pytest.raises(Unmetered):
        cost_pusd({"input_tokens": 1, "output_tokens": 1, "web_searches": 1}, rates)


def test_the_answers_service_tier_sets_the_price(book: PriceBook) -> None:
    usage = chat_usage(1000, 100)

    def priced(tier: str | None) -> int:
        return cost(book, CHAT, {"model": MINI, "service_tier": tier, "usage": usage}, MINI)

    assert priced(None) == priced("default") == 1000 * 250_000 + 100 * 2_000_000
    assert priced("priority") == 1000 * 450_000 + 100 * 3_600_000
    assert priced("flex") == 1000 * 125_000 + 100 * 1_000_000
    with pytest.raises(Unmetered):
        priced("scale")


def test_the_reported_model_sets_the_price_and_an_unknown_one_leaves_the_asked(book: PriceBook) -> None:
    usage = chat_usage(1000, 100)
    nano = 1000 * 50_000 + 100 * 400_000
    mini = 1000 * 250_000 + 100 * 2_000_000
    assert cost(book, CHAT, {"model": "gpt-5-nano-2025-08-07", "usage": usage}, MINI) == nano
    assert cost(book, CHAT, {"model": "gpt-99", "usage": usage}, MINI) == mini
    assert cost(book, CHAT, {"usage": usage}, MINI) == mini


@pytest.mark.requirement("G-GW-GL6")
@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-99"),
        ("openai", "ft:gpt-4o-mini:acme"),
        ("openai", "whisper-1"),
        ("google", "gemma-3"),
        ("nobody", "gpt-5-mini"),
        ("my-openai-proxy", "gpt-5-mini"),
    ],
)
def test_a_model_without_both_rates_is_unknown(book: PriceBook, provider: str, model: str) -> None:
    assert book.rates(provider, model, AT) is None
    with pytest.raises(Unmetered):
        final = Extractor(CHAT, streamed=False)
        final.feed(json.dumps({"usage": chat_usage(10, 10)}).encode())
        settle(final.final(), book, Traits(Kind.OPENAI, provider), model, AT)


def test_bound_cost_and_multiplier_use_one_table_of_rates(book: PriceBook) -> None:
    extractor = Extractor(CHAT, streamed=False)
    extractor.feed(json.dumps({"model": MINI, "usage": chat_usage(2006, 300, cached=1920)}).encode())
    dearer = Traits(Kind.OPENAI, "openai", multiplier=Decimal("1.1"))
    assert settle(extractor.final(), book, dearer, MINI, AT).cost_pusd == 736_450_000
    settled = settle(extractor.final(), book, OPENAI, MINI, AT)
    assert settled.rates.effective(2006)["cache_read_mtok"] == "0.025"
    assert settled.rates.snapshot.startswith("genai-prices/0.2.3/")
    assert len(settled.rates.snapshot.rpartition("/")[2]) == 12


def test_a_region_that_the_provider_record_names_is_priced(book: PriceBook) -> None:
    extractor = Extractor(MESSAGES, streamed=False)
    extractor.feed(json.dumps({"model": CLAUDE, "usage": messages_usage(1000, 0) | {"inference_geo": "us"}}).encode())
    regional = Traits(Kind.ANTHROPIC, "anthropic", regions={"us": Decimal("1.1")})
    assert settle(extractor.final(), book, regional, CLAUDE, AT).cost_pusd == 3_300_000_000
    with pytest.raises(Unmetered):
        settle(extractor.final(), book, ANTHROPIC, CLAUDE, AT)


def test_rates_follow_the_date_and_the_time_of_day(book: PriceBook) -> None:
    def rate(provider: str, model: str, at: datetime) -> str:
        rates = book.rates(provider, model, at)
        assert rates is not None
        return rates.effective(0)["input_mtok"]

    assert rate("openai", "o3", datetime(2025, 6, 9, tzinfo=UTC)) == "10"
    assert rate("openai", "o3", datetime(2025, 6, 10, tzinfo=UTC)) == "2"
    assert rate("deepseek", "deepseek-chat", datetime(2026, 12, 1, 0, 29, tzinfo=UTC)) == "0.135"
    assert rate("deepseek", "deepseek-chat", datetime(2026, 12, 1, 0, 30, tzinfo=UTC)) == "0.27"


def test_strange_events_are_read_without_harm() -> None:
    chat = _read(CHAT, {"choices": [{"index": [1], "finish_reason": "stop"}, None, 7]}, {"choices": "x", "usage": {}})
    assert chat.final() is not None
    gemini = _read(GEMINI, {"candidates": [{"index": {}, "finishReason": "STOP"}], "usageMetadata": {}})
    assert gemini.final() is not None
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": -5}}
    assert _read(MESSAGES, start, delta).final() is not None
