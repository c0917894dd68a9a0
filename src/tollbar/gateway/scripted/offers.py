"""The tools that a request offers, and how a shell command becomes a call of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.scripted.script import Call
from tollbar.gateway.tools import tools

SHELLS: Final = (
    "Bash",
    "bash",
    "shell",
    "exec_command",
    "local_shell",
    "run_shell_command",
    "execute_bash",
    "terminal",
    "shell_command",
    "run_command",
)
"""Names under which agents offer a shell; the first that is offered is called."""

_NEUTRAL: Final[Mapping[str, Any]] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "null": None,
}


class Form(StrEnum):
    """How a call of the tool is written."""

    FUNCTION = "function"
    FREE_TEXT = "free text"
    LOCAL_SHELL = "local shell"


@dataclass(frozen=True)
class Offer:
    """A tool of a request: its name, its form, the JSON schema of its arguments, the namespace that it is in."""

    name: str
    form: Form
    schema: Mapping[str, Any]
    namespace: str | None = None


@dataclass(frozen=True)
class Called:
    """A call that an answer makes of an offered tool."""

    offer: Offer
    args: Mapping[str, Any]


def offers(dialect: Dialect, body: Mapping[str, Any]) -> dict[str, Offer]:
    """Returns the tools of a request by name."""
    return {offer.name: offer for tool in tools(body) for offer in _offer(dialect, tool)}


def _offer(dialect: Dialect, tool: Mapping[str, Any]) -> Iterator[Offer]:
    if dialect is Dialect.GEMINI:
        declared = tool.get("functionDeclarations", tool.get("function_declarations"))
        for held in declared if isinstance(declared, list) else []:
            if isinstance(held, dict):
                schema = held.get("parametersJsonSchema", held.get("parameters"))
                yield from _named(held, Form.FUNCTION, schema)
        return
    kind = tool.get("type")
    if kind == "namespace":
        for member in tools(tool):
            for offer in _offer(dialect, member):
                yield Offer(offer.name, offer.form, offer.schema, str(tool.get("name")))
    elif kind == "local_shell":
        yield Offer("local_shell", Form.LOCAL_SHELL, {})
    elif dialect is Dialect.CHAT:
        held = tool.get(str(kind))
        if isinstance(held, dict):
            yield from _named(held, Form.FREE_TEXT if kind == "custom" else Form.FUNCTION, held.get("parameters"))
    elif dialect is Dialect.RESPONSES:
        yield from _named(tool, Form.FREE_TEXT if kind == "custom" else Form.FUNCTION, tool.get("parameters"))
    else:
        yield from _named(tool, Form.FUNCTION, tool.get("input_schema"))


def _named(held: Mapping[str, Any], form: Form, schema: object) -> Iterator[Offer]:
    if isinstance(name := held.get("name"), str):
        yield Offer(name, form, schema if isinstance(schema, dict) else {})


def shell_call(command: str, offered: Mapping[str, Offer]) -> Called:
    """Returns the call that runs a command; raises `Refused` (`SCRIPT_TOOL_MISSING`) when no shell is offered."""
    name = next((name for name in SHELLS if name in offered), None)
    if name is None:
        raise Refused(Code.SCRIPT_TOOL_MISSING, "the script runs a command and the request offers no shell")
    offer = offered[name]
    if offer.form is Form.LOCAL_SHELL:
        return Called(offer, {"command": ["bash", "-lc", command]})
    if offer.form is Form.FREE_TEXT:
        return Called(offer, {"input": command})
    properties = offer.schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    key = next((key for key in ("command", "cmd") if key in known), "command")
    as_list = "array" in _types(known.get(key))
    args: dict[str, Any] = {key: ["bash", "-lc", command] if as_list else command}
    required = offer.schema.get("required")
    for other in required if isinstance(required, list) else []:
        if other not in args:
            args[other] = _neutral(known.get(other))
    return Called(offer, args)


def named_call(call: Call, offered: Mapping[str, Offer]) -> Called:
    """Returns the call of a tool by its name; raises `Refused` (`SCRIPT_TOOL_MISSING`) when it is not offered."""
    if call.tool not in offered:
        raise Refused(Code.SCRIPT_TOOL_MISSING, f"the script calls {call.tool}, which the request does not offer")
    return Called(offered[call.tool], call.args)


def _types(schema: object) -> list[str]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return [str(name).lower() for name in kind] if isinstance(kind, list) else [str(kind).lower()]


def _neutral(schema: object) -> Any:
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    return _NEUTRAL.get(_types(schema)[0], "")
