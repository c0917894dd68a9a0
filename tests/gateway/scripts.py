"""Scripts, requests and readers for the tests of the scripted provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.gateway.cases import AT

from tollbar.gateway.asks import read
from tollbar.gateway.cost import Settlement, settle
from tollbar.gateway.dialects import Dialect, Operation, Route
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.scripted import Facts, Script, Scripted, answer
from tollbar.gateway.sse import Reader
from tollbar.gateway.traits import Kind, Traits
from tollbar.gateway.usage import Extractor

SCHEMA: Final = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def script_text(turns: str, *, priced_as: str = "anthropic:claude-sonnet-4-5", head: str = "") -> str:
    """Returns a script of one case that fits everything."""
    return f'schema = "tollbar.script/1"\nname = "t"\nversion = 1\npriced_as = "{priced_as}"\n{head}\n[[case]]\n{turns}'


def request(dialect: Dialect, *, stream: bool = False, turns: int = 0, tool: str | None = "bash", **more: Any) -> Any:
    """Returns a request whose history has that many turns of the assistant, each followed by a tool's result."""
    pairs: list[Any] = []
    for _ in range(turns):
        pairs += _PAIRS[dialect]
    if dialect is Dialect.GEMINI:
        body: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "do it"}]}, *pairs]}
        declared = {"name": tool, "parametersJsonSchema": SCHEMA}
        return body | ({"tools": [{"functionDeclarations": [declared]}]} if tool else {}) | more
    name = "input" if dialect is Dialect.RESPONSES else "messages"
    body = {"model": "claude-sonnet-4-5", name: [{"role": "user", "content": "do it"}, *pairs], "stream": stream}
    if dialect is Dialect.CHAT:
        body["stream_options"] = {"include_usage": True} if stream else None
    tools = {
        Dialect.CHAT: {"type": "function", "function": {"name": tool, "parameters": SCHEMA}},
        Dialect.RESPONSES: {"type": "function", "name": tool, "parameters": SCHEMA},
        Dialect.MESSAGES: {"name": tool, "input_schema": SCHEMA},
    }
    return body | ({"tools": [tools[dialect]]} if tool else {}) | more


_PAIRS: Final[dict[Dialect, list[dict[str, Any]]]] = {
    Dialect.CHAT: [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "x", "content": "ok"},
    ],
    Dialect.RESPONSES: [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "function_call", "name": "bash", "call_id": "x", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "x", "output": "ok"},
    ],
    Dialect.MESSAGES: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "ok"}]},
    ],
    Dialect.GEMINI: [
        {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {}}}]},
    ],
}


def play(
    script: Script, dialect: Dialect, body: Mapping[str, Any], *, stream: bool = False, facts: Facts | None = None
) -> Scripted:
    """Returns the script's answer to a request as the gateway would ask for it."""
    gemini = dialect is Dialect.GEMINI
    route = Route(dialect, Operation.GENERATE, script.model if gemini else None, stream if gemini else None)
    asked = read(route, body, len(json.dumps(body)))
    return answer(script, asked, body, facts or Facts(), created=1_796_000_000)


def extract(dialect: Dialect, body: bytes, *, stream: bool, candidates: int = 1) -> Extractor:
    """Returns the extractor after it read an answer, a streamed one in chunks of 7 bytes."""
    extractor = Extractor(dialect, streamed=stream, candidates=candidates)
    if not stream:
        extractor.feed(body)
        return extractor
    reader = Reader()
    for start in range(0, len(body), 7):
        for event in reader.feed(body[start : start + 7]):
            extractor.feed(event.data)
    return extractor


def settled(book: PriceBook, script: Script, dialect: Dialect, scripted: Scripted, *, stream: bool) -> Settlement:
    """Returns what an answer costs at the script's price row."""
    traits = Traits(Kind.SCRIPTED, script.provider)
    return settle(extract(dialect, scripted.body, stream=stream).final(), book, traits, script.model, AT)
