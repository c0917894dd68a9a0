"""A request is sent as it came, but for its output limit, its usage report and its service tier."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.gateway.cases import ANTHROPIC, GOOGLE, OPENAI

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.edits import edit
from tollbar.gateway.traits import Kind, Traits

CHAT, RESPONSES, MESSAGES, GEMINI = Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES, Dialect.GEMINI
LOCAL = Traits(Kind.OPENAI_COMPATIBLE, "local", output_limit_field="max_tokens")


def _edited(dialect: Dialect, body: dict[str, Any], limit: int, traits: Traits) -> dict[str, Any]:
    return json.loads(edit(dialect, body, b"raw", limit, traits))


@pytest.mark.parametrize(
    ("dialect", "body", "traits"),
    [
        (CHAT, {"max_completion_tokens": 100, "service_tier": "default"}, OPENAI),
        (CHAT, {"max_tokens": 100, "stream": True, "stream_options": {"include_usage": True}}, LOCAL),
        (RESPONSES, {"max_output_tokens": 100, "service_tier": "flex", "stream": True}, OPENAI),
        (MESSAGES, {"max_tokens": 100, "stream": True}, ANTHROPIC),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 100}}, GOOGLE),
    ],
)
def test_the_received_bytes_are_sent_where_nothing_has_to_change(
    dialect: Dialect, body: dict[str, Any], traits: Traits
) -> None:
    raw = b'  {"as": "it came"}'
    assert edit(dialect, body, raw, 100, traits) is raw


@pytest.mark.parametrize(
    ("dialect", "body", "traits", "expected"),
    [
        (CHAT, {}, OPENAI, {"max_completion_tokens": 64, "service_tier": "default"}),
        (CHAT, {}, LOCAL, {"max_tokens": 64}),
        (CHAT, {"max_tokens": 100}, OPENAI, {"max_tokens": 64, "service_tier": "default"}),
        (CHAT, {"max_completion_tokens": 100}, LOCAL, {"max_completion_tokens": 64, "max_tokens": 64}),
        (
            CHAT,
            {"max_tokens": 100, "max_completion_tokens": 10},
            OPENAI,
            {"max_tokens": 64, "max_completion_tokens": 10, "service_tier": "default"},
        ),
        (CHAT, {"max_tokens": None}, LOCAL, {"max_tokens": 64}),
        (RESPONSES, {"service_tier": "auto"}, OPENAI, {"max_output_tokens": 64, "service_tier": "default"}),
        (MESSAGES, {"max_tokens": 100}, ANTHROPIC, {"max_tokens": 64}),
        (GEMINI, {}, GOOGLE, {"generationConfig": {"maxOutputTokens": 64}}),
        (
            GEMINI,
            {"generationConfig": {"temperature": 0, "maxOutputTokens": 100}},
            GOOGLE,
            {"generationConfig": {"temperature": 0, "maxOutputTokens": 64}},
        ),
    ],
)
def test_the_output_limit_is_added_or_lowered_where_the_client_has_it(
    dialect: Dialect, body: dict[str, Any], traits: Traits, expected: dict[str, Any]
) -> None:
    assert _edited(dialect, body, 64, traits) == expected


def test_a_limit_below_the_reserved_one_is_not_raised() -> None:
    assert _edited(MESSAGES, {"max_tokens": 10, "x": 1}, 64, Traits(Kind.ANTHROPIC, "a", priority_commitment=True)) == {
        "max_tokens": 10,
        "x": 1,
        "service_tier": "standard_only",
    }


def test_a_stream_of_chat_reports_its_usage_and_keeps_its_other_options() -> None:
    body = {"max_tokens": 5, "stream": True, "stream_options": {"include_obfuscation": False, "include_usage": False}}
    assert _edited(CHAT, body, 5, LOCAL)["stream_options"] == {"include_obfuscation": False, "include_usage": True}
    assert _edited(CHAT, {"max_tokens": 5, "stream": True}, 5, LOCAL)["stream_options"] == {"include_usage": True}


def test_text_survives_an_edit() -> None:
    body = {"messages": [{"content": "\ud800 ü 😀"}]}
    sent = edit(CHAT, body, b"", 5, LOCAL)
    assert json.loads(sent)["messages"] == body["messages"]
    assert b": " not in sent
    assert sent.isascii()
