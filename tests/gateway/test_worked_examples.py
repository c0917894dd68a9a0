"""The guide's worked examples, section 13: every number that does not need the ledger."""

from __future__ import annotations

import pytest
from tests.gateway.cases import AT, bound, chat_usage, cost, messages_usage

from tollbar.gateway.cost import cost_pusd
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.prices import PriceBook

CHAT = {"model": "gpt-5-mini", "messages": [], "max_completion_tokens": 1000}
CACHED = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
CLAUDE = {
    "model": "claude-sonnet-4-5",
    "system": CACHED,
    "messages": [],
    "max_tokens": 32_000,
    "thinking": {"type": "enabled", "budget_tokens": 31_999},
}


def test_a_mini_call_is_bounded_and_priced(book: PriceBook) -> None:
    quote = bound(book, Dialect.CHAT, CHAT, 4000)
    assert quote.input_bound == 6048
    assert quote.fixed_pusd == 1_512_000_000
    assert quote.worst(quote.asked) == 3_512_000_000
    usage = chat_usage(2006, 300, cached=1920, reasoning=256)
    assert cost(book, Dialect.CHAT, {"model": "gpt-5-mini", "usage": usage}, "gpt-5-mini") == 669_500_000


def test_a_mini_call_is_clamped_to_what_is_left_and_then_refused(book: PriceBook) -> None:
    quote = bound(book, Dialect.CHAT, CHAT, 4000)
    assert quote.worst(256) == 2_024_000_000
    assert quote.fitting(2_024_000_000) == quote.least == 256
    assert quote.fitting(2_023_999_999) == 255
    assert quote.fitting(10**12) == 1000


def test_three_candidates_and_priority_raise_the_bound(book: PriceBook) -> None:
    assert bound(book, Dialect.CHAT, CHAT | {"n": 3}, 4000).worst(1000) == 7_512_000_000
    assert bound(book, Dialect.CHAT, CHAT | {"service_tier": "priority"}, 4000).worst(1000) == 6_321_600_000


def test_the_first_call_of_a_claude_agent(book: PriceBook) -> None:
    quote = bound(book, Dialect.MESSAGES, CLAUDE, 115_429)
    assert quote.input_bound == 117_477
    assert quote.fixed_pusd == 440_538_750_000
    assert quote.worst(quote.asked) == 920_538_750_000
    assert quote.least == 32_000
    hour = CLAUDE | {"messages": [{"role": "user", "content": [{"type": "text", "cache_control": {"ttl": "1h"}}]}]}
    assert bound(book, Dialect.MESSAGES, hour, 115_429).worst(32_000) == 1_184_862_000_000
    large = bound(book, Dialect.MESSAGES, CLAUDE, 900_000)
    assert (large.input_bound, large.worst(32_000)) == (200_000, 1_230_000_000_000)


def test_the_first_call_of_a_claude_agent_with_lower_limits(book: PriceBook) -> None:
    body = CLAUDE | {"max_tokens": 8192, "thinking": {"type": "enabled", "budget_tokens": 4096}}
    quote = bound(book, Dialect.MESSAGES, body, 115_428)
    assert quote.worst(quote.asked) == 563_415_000_000
    assert (quote.least, quote.worst(quote.least)) == (4352, 505_815_000_000)


@pytest.mark.requirement("G-GW-GL2")
def test_what_the_first_call_of_a_claude_agent_costs(book: PriceBook) -> None:
    model = "claude-sonnet-4-5"
    five = {"model": model, "usage": messages_usage(3, 550, written=12_304)}
    hour = {"model": model, "usage": messages_usage(3, 550, written=12_304, hour=12_304)}
    unsplit = {
        "model": model,
        "usage": {"input_tokens": 3, "cache_creation_input_tokens": 12_304, "output_tokens": 550},
    }
    assert cost(book, Dialect.MESSAGES, five, model) == 54_399_000_000
    assert cost(book, Dialect.MESSAGES, hour, model) == 82_083_000_000
    assert cost(book, Dialect.MESSAGES, unsplit, model) == 54_399_000_000


def test_a_scripted_turn_at_two_models_prices(book: PriceBook) -> None:
    claude = {"model": "claude-sonnet-4-5", "usage": messages_usage(100, 50, read=400, written=500)}
    mini = {"model": "gpt-5-mini", "usage": chat_usage(1000, 50, cached=400)}
    assert cost(book, Dialect.MESSAGES, claude, "claude-sonnet-4-5") == 3_045_000_000
    assert cost(book, Dialect.CHAT, mini, "gpt-5-mini") == 260_000_000


@pytest.mark.requirement("G-GW-GL14")
def test_a_body_that_can_reach_the_dearer_tier_is_bounded_by_it(book: PriceBook) -> None:
    body = {"model": "gpt-5.4", "input": "x", "max_output_tokens": 4096}
    quote = bound(book, Dialect.RESPONSES, body, 300_000)
    assert (quote.input_bound, quote.worst(4096)) == (302_048, 1_602_400_000_000)
    usage = {"input_tokens": 71_000, "input_tokens_details": {"cached_tokens": 60_000}, "output_tokens": 1200}
    assert cost(book, Dialect.RESPONSES, {"model": "gpt-5.4", "usage": usage}, "gpt-5.4") == 60_500_000_000


@pytest.mark.requirement("G-GW-GL14")
@pytest.mark.parametrize(
    ("provider", "model", "tokens", "expected"),
    [
        ("openai", "gpt-5.4", 272_000, 695_000_000_000),
        ("openai", "gpt-5.4", 272_001, 1_382_505_000_000),
        ("anthropic", "claude-sonnet-4-5", 200_000, 615_000_000_000),
        ("anthropic", "claude-sonnet-4-5", 200_001, 1_222_506_000_000),
    ],
)
def test_a_tier_is_a_cliff(book: PriceBook, provider: str, model: str, tokens: int, expected: int) -> None:
    rates = book.rates(provider, model, AT)
    assert rates is not None
    assert cost_pusd({"input_tokens": tokens, "output_tokens": 1000}, rates) == expected


@pytest.mark.requirement("G-GW-GL1")
def test_cached_tokens_of_gemini_and_openai_are_charged_once(book: PriceBook) -> None:
    usage = {
        "promptTokenCount": 262_960,
        "cachedContentTokenCount": 257_955,
        "candidatesTokenCount": 1744,
        "thoughtsTokenCount": 100,
        "totalTokenCount": 264_804,
    }
    answer = {"modelVersion": "gemini-2.5-pro", "usageMetadata": usage}
    assert cost(book, Dialect.GEMINI, answer, "gemini-2.5-pro") == 104_661_250_000
    mini = {"model": "gpt-5-mini", "usage": chat_usage(2006, 300, cached=1920)}
    assert cost(book, Dialect.CHAT, mini, "gpt-5-mini") == 669_500_000


def test_a_provider_that_bills_cache_writes_by_itself_is_bounded_by_them(book: PriceBook) -> None:
    quote = bound(book, Dialect.CHAT, CHAT | {"model": "gpt-6-luna"}, 4000)
    assert quote.worst(1000) == 1_256_000_000
    answer = {"model": "gpt-6-luna", "usage": chat_usage(2006, 300, written=1920)}
    assert cost(book, Dialect.CHAT, answer, "gpt-6-luna") == 398_600_000
