"""Which members of a request have a bounded price. The lists are data; what stands on none of them is refused by name.

They follow the parameter types of openai 3.57, anthropic 2.14 and google-genai 2.34.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from tollbar.gateway.contents import survey
from tollbar.gateway.dialects import Dialect
from tollbar.gateway.tools import provider_side, searching

MAX_CANDIDATES: Final = 128


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED: Final[Mapping[Dialect, frozenset[str]]] = {
    Dialect.CHAT: _names(
        """model messages max_tokens max_completion_tokens n stream stream_options tools tool_choice functions
        function_call parallel_tool_calls response_format temperature top_p stop seed presence_penalty
        frequency_penalty logit_bias logprobs top_logprobs reasoning_effort verbosity metadata user
        safety_identifier store prompt_cache_key prompt_cache_retention prompt_cache_options service_tier
        modalities"""
    ),
    Dialect.RESPONSES: _names(
        """model input instructions max_output_tokens stream stream_options tools tool_choice parallel_tool_calls
        reasoning text include store temperature top_p top_logprobs truncation metadata client_metadata user
        safety_identifier prompt_cache_key prompt_cache_retention prompt_cache_options service_tier max_tool_calls"""
    ),
    Dialect.MESSAGES: _names(
        """model messages system max_tokens stream tools tool_choice thinking output_config output_format temperature
        top_p top_k stop_sequences metadata cache_control service_tier speed diagnostics context_management"""
    ),
    Dialect.GEMINI: _names("contents systemInstruction tools toolConfig generationConfig safetySettings labels"),
}

GENERATION: Final = _names(
    """stopSequences responseMimeType responseSchema responseJsonSchema _responseJsonSchema responseModalities
    candidateCount maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty responseLogprobs
    logprobs thinkingConfig mediaResolution enableEnhancedCivicAnswers"""
)
"""Members of Gemini's `generationConfig`, which reads `max_output_tokens` too: what is not listed is refused."""

_LIMITS: Final[Mapping[Dialect, tuple[str, ...]]] = {
    Dialect.CHAT: ("max_completion_tokens", "max_tokens"),
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.MESSAGES: ("max_tokens",),
    Dialect.GEMINI: ("maxOutputTokens",),
}


def limit_names(dialect: Dialect) -> tuple[str, ...]:
    """Returns the members that limit the output in a dialect, the usual one first."""
    return _LIMITS[dialect]


def holder(dialect: Dialect, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the object in which the output limit and the number of candidates stand."""
    if dialect is not Dialect.GEMINI:
        return body
    config = body.get("generationConfig")
    return config if isinstance(config, dict) else {}


def refused(dialect: Dialect, body: Mapping[str, Any], allow_fields: Collection[str] = ()) -> str | None:
    """Returns why a request has no bounded price, naming the field; None when it has one.

    Under a cap the answer is `REQUEST_UNBOUNDED`. `allow_fields` are names that a provider's record adds.
    """
    for name in body:
        if name not in ALLOWED[dialect] and name not in allow_fields:
            return f"the field {name} can cost more than the body shows"
    for check in (_numbers, _values, _tool_types, _context):
        if (problem := check(dialect, body)) is not None:
            return problem
    found = survey(dialect, body)
    return found.problems[0] if found.problems else None


def egress(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    """Returns what would make the provider fetch a URL or search the web; None when nothing would.

    Where a subject may reach no network the answer is `EGRESS_REFUSED`, also without a cap.
    """
    for name in ("web_search_options", "mcp_servers"):
        if body.get(name):
            return f"the field {name} reaches the network"
    if (kind := searching(dialect, body)) is not None:
        return f"the tool {kind} reaches the network"
    found = survey(dialect, body)
    return f"{found.urls[0]} would be fetched by the provider" if found.urls else None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _numbers(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    held = holder(dialect, body)
    for name in limit_names(dialect):
        if held.get(name) is not None and not _whole(held[name]):
            return f"the field {name} is not a whole number of tokens"
    name = "candidateCount" if dialect is Dialect.GEMINI else "n"
    count = held.get(name)
    if count is not None and (not _whole(count) or not 1 <= count <= MAX_CANDIDATES):
        return f"the field {name} is not 1 to {MAX_CANDIDATES}"
    thinking = body.get("thinking")
    if dialect is Dialect.MESSAGES and isinstance(thinking, dict) and thinking.get("budget_tokens") is not None:
        return None if _whole(thinking["budget_tokens"]) else "the field thinking.budget_tokens is not a whole number"
    return None


def _values(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    """Refuses values of allowed fields that have no rate, or that produce something other than text."""
    options = body.get("prompt_cache_options")
    if isinstance(options, dict) and (options.get("ttl") == "12h" or options.get("prewarm")):
        return "the field prompt_cache_options asks for a cache that has no price"
    modalities = body.get("modalities")
    if modalities is not None and modalities != ["text"]:
        return "the field modalities asks for more than text"
    if dialect is Dialect.GEMINI:
        return _gemini_config(body)
    return None


def _gemini_config(body: Mapping[str, Any]) -> str | None:
    config = body.get("generationConfig")
    if config is None:
        return None
    if not isinstance(config, dict):
        return "the field generationConfig is not an object"
    for name in config:
        if name not in GENERATION:
            return f"the field generationConfig.{name} can cost more than the body shows"
    modalities = config.get("responseModalities")
    if modalities is not None and modalities != ["TEXT"]:
        return "the field responseModalities asks for more than text"
    return None


def _tool_types(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    given = body.get("tools")
    if given is not None and not (isinstance(given, list) and all(isinstance(tool, dict) for tool in given)):
        return "the field tools is not a list of objects"
    for kind in provider_side(dialect, body):
        return f"the tool {kind} runs at the provider, which bills every pass"
    return None


_EDITS: Final = ("clear_tool_uses_", "clear_thinking_")


def _context(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    """Refuses edits of the context that spend tokens of their own."""
    held = body.get("context_management")
    if dialect is not Dialect.MESSAGES or held is None:
        return None
    edits = held.get("edits", []) if isinstance(held, dict) else None
    if not isinstance(edits, list) or (isinstance(held, dict) and set(held) - {"edits"}):
        return "the field context_management has a form that has no bound"
    for edit in edits:
        kind = edit.get("type") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or not kind.startswith(_EDITS):
            return f"the field context_management has the edit {kind}, which can cost more than the body shows"
    return None
