"""Tool types: those that the client executes are bounded; those that run at the provider are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tollbar.gateway.contents import camel
from tollbar.gateway.dialects import Dialect

_OPENAI: Final = frozenset({"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"})
_ANTHROPIC: Final = ("bash_", "text_editor_", "memory_", "computer_")
_GEMINI: Final = frozenset({"functionDeclarations", "computerUse"})

_STAYS_INSIDE: Final = (
    "image_generation",
    "programmatic_tool_calling",
    "tool_search",
    "advisor",
    "code_interpreter",
    "code_execution",
    "codeExecution",
)
"""Run at the provider and cost unbounded money, but neither fetch a URL nor search."""

_WITHOUT_SCHEMA: Final = frozenset({"local_shell", "apply_patch", "computer", "computer_use_preview", "shell"})


def tools(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the tools of a request that are objects."""
    given = body.get("tools")
    return [tool for tool in given if isinstance(tool, dict)] if isinstance(given, list) else []


def provider_side(dialect: Dialect, body: Mapping[str, Any]) -> Iterator[str]:
    """Yields the type of each tool that the provider would run, and of each that nobody knows."""
    for tool in tools(body):
        if dialect is Dialect.GEMINI:
            yield from (camel(name) for name in tool if camel(name) not in _GEMINI)
        else:
            kind = tool.get("type")
            text = kind if isinstance(kind, str) else ""
            runs_here = _anthropic(text, kind) if dialect is Dialect.MESSAGES else _openai(tool, text)
            if not runs_here:
                yield text or "(no type)"


def _anthropic(kind: str, given: object) -> bool:
    return given is None or kind == "custom" or kind.startswith(_ANTHROPIC)


def _openai(tool: Mapping[str, Any], kind: str) -> bool:
    if kind == "shell":
        environment = tool.get("environment")
        return isinstance(environment, dict) and environment.get("type") == "local"
    if kind == "namespace":
        members = tools(tool)
        return bool(members) and all(_openai(member, str(member.get("type"))) for member in members)
    return kind in _OPENAI


def searching(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    """Returns the type of a tool through which the provider reaches the network, None when there is none."""
    for kind in provider_side(dialect, body):
        if not kind.startswith(_STAYS_INSIDE):
            return kind
    return None


def without_schema(dialect: Dialect, body: Mapping[str, Any]) -> int:
    """Returns how many client tools the provider defines itself: their prompts are not in the body."""
    if dialect is Dialect.GEMINI:
        return sum("computerUse" in {camel(name) for name in tool} for tool in tools(body))
    flat = [inner for tool in tools(body) for inner in (tools(tool) if tool.get("type") == "namespace" else [tool])]
    if dialect is Dialect.MESSAGES:
        return sum(str(tool.get("type")).startswith(_ANTHROPIC) for tool in flat)
    return sum(tool.get("type") in _WITHOUT_SCHEMA for tool in flat)
