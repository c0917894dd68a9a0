"""What a request may hold under a cap, and what reaches the network: each refused field and tool by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.gateway.cases import AT, TRAITS, UNTIL, ask, bound

from tollbar.gateway.bodies import parse
from tollbar.gateway.bound import quote
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.fields import ALLOWED, egress, refused
from tollbar.gateway.prices import PriceBook

CHAT, RESPONSES, MESSAGES, GEMINI = Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES, Dialect.GEMINI

FIELDS: list[tuple[Dialect, str, Any]] = [
    *((CHAT, name, {}) for name in ("web_search_options", "prediction", "audio", "moderation", "input", "unheard_of")),
    (CHAT, "modalities", ["text", "audio"]),
    *((dialect, "prompt_cache_options", {"ttl": "12h"}) for dialect in (CHAT, RESPONSES)),
    *((dialect, "prompt_cache_options", {"prewarm": True}) for dialect in (CHAT, RESPONSES)),
    *((CHAT, "n", value) for value in (129, 0, -1, 1.5, "2", True)),
    *((CHAT, name, -1) for name in ("max_tokens", "max_completion_tokens")),
    (CHAT, "max_tokens", 1.5),
    *(
        (RESPONSES, name, "x")
        for name in (
            "previous_response_id",
            "conversation",
            "prompt",
            "background",
            "background_options",
            "context_management",
            "moderation",
            "access_programs",
            "image",
        )
    ),
    (RESPONSES, "max_output_tokens", "100"),
    *(
        (MESSAGES, name, {"x": 1})
        for name in (
            "thread",
            "fallbacks",
            "fallback_credit_token",
            "compaction",
            "container",
            "mcp_servers",
            "billing_policy",
            "inference_geo",
        )
    ),
    (MESSAGES, "context_management", {"edits": [{"type": "compact_20260112"}]}),
    (MESSAGES, "context_management", {"edits": [{"type": "clear_tool_uses_20250919"}], "other": 1}),
    (MESSAGES, "max_tokens", -5),
    (MESSAGES, "thinking.budget_tokens", None),
    *(
        (GEMINI, name, "x")
        for name in ("cachedContent", "fileData", "generation_config", "system_instruction", "model")
    ),
    *(
        (GEMINI, f"generationConfig.{name}", value)
        for name, value in (
            ("speechConfig", {}),
            ("max_output_tokens", 65_536),
            ("imageConfig", {}),
        )
    ),
    (GEMINI, "responseModalities", ["TEXT", "IMAGE"]),
    (GEMINI, "maxOutputTokens", "100"),
    (GEMINI, "candidateCount", 200),
]


def _with(dialect: Dialect, name: str, value: Any) -> dict[str, Any]:
    if name == "thinking.budget_tokens":
        return {"thinking": {"type": "enabled", "budget_tokens": "many"}}
    if name.startswith("generationConfig."):
        return {"generationConfig": {name.partition(".")[2]: value}}
    if dialect is GEMINI and name in {"responseModalities", "maxOutputTokens", "candidateCount"}:
        return {"generationConfig": {name: value}}
    return {name: value}


@pytest.mark.parametrize(("dialect", "name", "value"), FIELDS)
def test_a_field_without_a_bound_is_refused_by_its_name(dialect: Dialect, name: str, value: Any) -> None:
    problem = refused(dialect, _with(dialect, name, value))
    assert problem is not None
    assert name in problem


@pytest.mark.parametrize("dialect", Dialect)
def test_every_allowed_field_is_accepted(dialect: Dialect) -> None:
    simple = {"modalities": ["text"], "n": 2, "max_tokens": 5, "max_completion_tokens": 5, "max_output_tokens": 5}
    body = {name: simple.get(name) for name in ALLOWED[dialect]}
    assert refused(dialect, body) is None
    assert egress(dialect, body) is None


def test_a_provider_record_may_allow_a_field() -> None:
    assert refused(CHAT, {"top_k": 40}) is not None
    assert refused(CHAT, {"top_k": 40}, {"top_k"}) is None


OPENAI_TOOLS = (
    "web_search",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "programmatic_tool_calling",
    "tool_search",
    "unheard_of",
)
ANTHROPIC_TOOLS = (
    "web_search_20250305",
    "web_fetch_20250910",
    "code_execution_20250825",
    "mcp_toolset",
    "tool_search_tool_regex_20251119",
    "advisor_20260301",
    "browser_toolset_20260401",
    "programmatic_tool_calling",
    "unheard_of",
)
GEMINI_TOOLS = ("googleSearch", "googleMaps", "urlContext", "fileSearch", "retrieval", "codeExecution", "google_search")

TOOLS: list[tuple[Dialect, str, dict[str, Any]]] = [
    *((dialect, kind, {"type": kind}) for dialect in (CHAT, RESPONSES) for kind in OPENAI_TOOLS),
    (RESPONSES, "shell", {"type": "shell", "environment": {"type": "container_auto"}}),
    (RESPONSES, "shell", {"type": "shell"}),
    (RESPONSES, "namespace", {"type": "namespace", "tools": [{"type": "function"}, {"type": "web_search"}]}),
    (RESPONSES, "namespace", {"type": "namespace", "tools": []}),
    *((MESSAGES, kind, {"type": kind, "name": "x"}) for kind in ANTHROPIC_TOOLS),
    *((GEMINI, kind.replace("google_s", "googleS"), {kind: {}}) for kind in GEMINI_TOOLS),
]


@pytest.mark.parametrize(("dialect", "kind", "tool"), TOOLS)
def test_a_tool_that_runs_at_the_provider_is_refused_by_its_type(
    dialect: Dialect, kind: str, tool: dict[str, Any]
) -> None:
    problem = refused(
        dialect, {"tools": [{"functionDeclarations": []} if dialect is GEMINI else {"type": "custom"}, tool]}
    )
    assert problem is not None
    assert f"the tool {kind}" in problem


@pytest.mark.parametrize(
    ("dialect", "tools"),
    [
        (CHAT, [{"type": "function", "function": {}}, {"type": "custom"}]),
        (
            RESPONSES,
            [
                {"type": "function"},
                {"type": "local_shell"},
                {"type": "apply_patch"},
                {"type": "computer"},
                {"type": "computer_use_preview"},
                {"type": "shell", "environment": {"type": "local"}},
                {"type": "namespace", "tools": [{"type": "function"}, {"type": "custom"}]},
            ],
        ),
        (
            MESSAGES,
            [
                {"name": "x"},
                {"type": "custom"},
                {"type": "bash_20250124"},
                {"type": "text_editor_20250728"},
                {"type": "memory_20250818"},
                {"type": "computer_20251124"},
            ],
        ),
        (GEMINI, [{"functionDeclarations": []}, {"computerUse": {}}, {"function_declarations": []}]),
    ],
)
def test_tools_that_the_client_runs_are_accepted(dialect: Dialect, tools: list[Any]) -> None:
    assert refused(dialect, {"tools": tools}) is None
    assert egress(dialect, {"tools": tools}) is None


def _in_message(dialect: Dialect, part: dict[str, Any]) -> dict[str, Any]:
    if dialect is RESPONSES:
        return {"input": [{"role": "user", "content": [part]}]}
    if dialect is GEMINI:
        return {"contents": [{"role": "user", "parts": [part]}]}
    return {"messages": [{"role": "user", "content": [part]}]}


OUTSIDE: list[tuple[Dialect, str, dict[str, Any]]] = [
    (CHAT, "file.file_id", _in_message(CHAT, {"type": "file", "file": {"file_id": "file_1"}})),
    (CHAT, "message.audio", {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}),
    (RESPONSES, "item_reference", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
    (RESPONSES, "input_image.file_id", _in_message(RESPONSES, {"type": "input_image", "file_id": "f"})),
    (RESPONSES, "input_file.file_id", _in_message(RESPONSES, {"type": "input_file", "file_id": "f"})),
    (RESPONSES, "reasoning item", {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}),
    (RESPONSES, "item web_search_call", {"input": [{"type": "web_search_call", "id": "ws_1"}]}),
    (MESSAGES, "image.source.file_id", _in_message(MESSAGES, {"type": "image", "source": {"type": "file"}})),
    (
        MESSAGES,
        "document.source.file_id",
        _in_message(
            MESSAGES,
            {"type": "tool_result", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]},
        ),
    ),
    (MESSAGES, "container_upload", _in_message(MESSAGES, {"type": "container_upload", "file_id": "f"})),
    (MESSAGES, "block unheard_of", _in_message(MESSAGES, {"type": "unheard_of"})),
    (GEMINI, "fileData", _in_message(GEMINI, {"fileData": {"fileUri": "gs://x"}})),
    (GEMINI, "fileData", _in_message(GEMINI, {"file_data": {"file_uri": "files/1"}})),
    (GEMINI, "fileData", _in_message(GEMINI, {"functionResponse": {"parts": [{"fileData": {}}]}})),
    (GEMINI, "part unheardOf", _in_message(GEMINI, {"unheard_of": 1})),
]


@pytest.mark.parametrize(("dialect", "name", "body"), OUTSIDE)
def test_input_that_the_body_does_not_hold_is_refused(dialect: Dialect, name: str, body: dict[str, Any]) -> None:
    problem = refused(dialect, body)
    assert problem is not None
    assert name in problem


URL = "https://example.com/cat.png"
FETCHED: list[tuple[Dialect, dict[str, Any]]] = [
    (CHAT, _in_message(CHAT, {"type": "image_url", "image_url": {"url": URL}})),
    (RESPONSES, _in_message(RESPONSES, {"type": "input_image", "image_url": URL})),
    (RESPONSES, _in_message(RESPONSES, {"type": "input_file", "file_url": URL})),
    (RESPONSES, {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": URL}]}]}),
    (MESSAGES, _in_message(MESSAGES, {"type": "image", "source": {"type": "url", "url": URL}})),
    (MESSAGES, _in_message(MESSAGES, {"type": "document", "source": {"type": "url", "url": URL}})),
    (GEMINI, _in_message(GEMINI, {"fileData": {"fileUri": URL}})),
    (CHAT, {"web_search_options": {"search_context_size": "low"}}),
    (CHAT, {"tools": [{"type": "web_search"}]}),
    (RESPONSES, {"tools": [{"type": "web_search"}]}),
    (RESPONSES, {"tools": [{"type": "mcp", "server_url": URL}]}),
    (MESSAGES, {"tools": [{"type": "web_search_20250305"}]}),
    (MESSAGES, {"tools": [{"type": "web_fetch_20250910"}]}),
    (MESSAGES, {"mcp_servers": [{"url": URL}]}),
    (GEMINI, {"tools": [{"googleSearch": {}}]}),
    (GEMINI, {"tools": [{"url_context": {}}]}),
]


@pytest.mark.parametrize(("dialect", "body"), FETCHED)
def test_what_the_provider_would_fetch_or_search_is_seen(dialect: Dialect, body: dict[str, Any]) -> None:
    assert egress(dialect, body) is not None


def test_an_image_inside_the_body_reaches_no_network() -> None:
    body = _in_message(CHAT, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})
    assert egress(CHAT, body) is None
    assert refused(CHAT, body) is None


FIRST_REQUESTS: list[tuple[str, Dialect, dict[str, Any]]] = [
    (
        "claude-sonnet-4-5",
        MESSAGES,
        {
            "model": "claude-sonnet-4-5",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}}]}
            ],
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "Bash", "description": "d", "input_schema": {"type": "object"}}],
            "metadata": {"user_id": "u"},
            "max_tokens": 32_000,
            "thinking": {"type": "enabled", "budget_tokens": 31_999},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "stream": True,
        },
    ),
    (
        "gpt-5-mini",
        RESPONSES,
        {
            "model": "gpt-5-mini",
            "instructions": "i",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}]}],
            "tools": [
                {"type": "function", "name": "exec_command", "strict": False, "parameters": {}},
                {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
                {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f"}]},
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k",
            "client_metadata": {"x": "y"},
        },
    ),
    (
        "gpt-5-mini",
        CHAT,
        {
            "model": "gpt-5-mini",
            "max_tokens": 8192,
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "t"}],
            "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    (
        "gemini-2.5-pro",
        GEMINI,
        {
            "contents": [{"role": "user", "parts": [{"text": "t"}]}],
            "systemInstruction": {"role": "user", "parts": [{"text": "s"}]},
            "tools": [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": {}}]}],
            "generationConfig": {
                "temperature": 0,
                "topP": 1,
                "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192},
            },
        },
    ),
    (
        "gpt-5-mini",
        CHAT,
        {
            "model": "gpt-5-mini",
            "messages": [{"role": "user", "content": "t"}],
            "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
            "parallel_tool_calls": True,
        },
    ),
]


@pytest.mark.parametrize(("model", "dialect", "body"), FIRST_REQUESTS)
def test_requests_in_the_form_of_the_five_command_lines_have_a_bound(
    book: PriceBook, model: str, dialect: Dialect, body: dict[str, Any]
) -> None:
    raw = json.dumps(body).encode()
    assert refused(dialect, parse(raw)) is None
    assert egress(dialect, parse(raw)) is None
    quote_ = bound(book, dialect, parse(raw), len(raw), model=model if dialect is GEMINI else None)
    assert quote_.worst(quote_.asked) > 0


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (CHAT, {"model": "gpt-5-mini", "service_tier": "scale"}),
        (CHAT, {"model": "gpt-5-mini", "service_tier": "ultrafast"}),
        (CHAT, {"model": "gpt-4-turbo", "service_tier": "fast"}),
        (MESSAGES, {"model": "claude-sonnet-4-5", "speed": "fast"}),
        (MESSAGES, {"model": "claude-sonnet-4-5", "speed": "ludicrous"}),
        (MESSAGES, {"model": "claude-sonnet-4-5", "service_tier": "priority"}),
        (MESSAGES, {"model": "claude-sonnet-4-5", "inference_geo": "us"}),
        (MESSAGES, {"model": "claude-sonnet-4-5", "cache_control": {"ttl": "2h"}}),
    ],
)
def test_a_tier_speed_region_or_cache_without_a_price_is_unbounded(
    book: PriceBook, dialect: Dialect, body: dict[str, Any]
) -> None:
    with pytest.raises(Refused) as problem:
        bound(book, dialect, body, 100)
    assert problem.value.code is Code.REQUEST_UNBOUNDED


@pytest.mark.parametrize("field", ["model", "stream", "service_tier"])
def test_members_that_decide_about_money_have_their_type(field: str) -> None:
    with pytest.raises(Refused) as problem:
        ask(CHAT, {"model": "m"} | {field: 1}, 10)
    assert problem.value.code is Code.INVALID_REQUEST


def test_without_a_cap_an_unbounded_request_is_only_unpriced(book: PriceBook) -> None:
    body = {"model": "gpt-99", "max_tokens": 100}
    free = quote(ask(CHAT, body, 10), book, TRAITS[CHAT], AT, UNTIL, capped=False)
    assert (free.worst(100), free.rates, free.asked) == (0, None, 100)


@pytest.mark.requirement("G-GW-GL6")
@pytest.mark.parametrize(
    ("dialect", "model"),
    [(CHAT, "gpt-99"), (RESPONSES, "whisper-1"), (MESSAGES, "gpt-5-mini"), (GEMINI, "gemma-3")],
)
def test_a_model_without_both_rates_is_refused_under_a_cap(book: PriceBook, dialect: Dialect, model: str) -> None:
    with pytest.raises(Refused) as problem:
        bound(book, dialect, {"model": model, "max_tokens": 1}, 100, model=model)
    assert problem.value.code is Code.BUDGET_UNMETERED


@pytest.mark.parametrize("body", [{"max_tokens": 10**20}, {"n": 10**6}, {"max_completion_tokens": 10**8}])
def test_a_number_that_no_ledger_could_hold_is_refused_even_without_a_cap(body: dict[str, Any]) -> None:
    with pytest.raises(Refused) as problem:
        ask(CHAT, {"model": "gpt-5-mini"} | body, 10)
    assert problem.value.code is Code.INVALID_REQUEST
