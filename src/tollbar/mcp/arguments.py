"""What a call gives a tool, before any service sees it: names, presence, plain types, and values that can be stored.

Values with a code of their own (amounts, attempts, tags, selectors) are left to the services, so that every interface
refuses them with the same words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tollbar.kit.errors import InvalidLimit, InvalidRequest
from tollbar.kit.paging import PageRequest, page_request
from tollbar.kit.text import printable, unstorable
from tollbar.mcp.schemas import Schema

MAX_LIMIT: Final = 100
_MAX_DEPTH: Final = 32
_SHOWN_NAMES: Final = 20
_SHOWN_CHARACTERS: Final = 64
_OWN_CODE: Final = frozenset({"max_cost_usd", "request_id", "tag"})


def checked(schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments less null ones; raises `InvalidRequest` that names every one that is wrong.

    A missing `max_cost_usd` passes: its refusal has a code of its own.
    """
    known: dict[str, Any] = schema["properties"]
    given = {name: value for name, value in arguments.items() if value is not None}
    unknown = sorted(set(arguments) - set(known))
    problems = [{"path": _short(name), "problem": "is not an argument of this tool"} for name in unknown[:_SHOWN_NAMES]]
    problems += [
        {"path": name, "problem": "is required"}
        for name in schema.get("required", ())
        if name not in given and name != "max_cost_usd"
    ]
    for name in known:
        if name in given:
            problem = _problem(name, known[name], given[name])
            problems += [{"path": name, "problem": problem}] if problem else []
    if problems:
        raise InvalidRequest(problems)
    return given


def _problem(name: str, schema: Schema, value: Any) -> str | None:
    if name in _OWN_CODE or schema["type"] == "integer":
        return None
    if schema["type"] == "string" and not isinstance(value, str):
        return "must be text"
    if _depth(value) > _MAX_DEPTH:
        return f"is nested more than {_MAX_DEPTH} levels deep"
    if unstorable(value) is not None:
        return "holds a character that no text can have"
    return None if _finite(value) else "holds a number that is not finite"


def _depth(value: Any) -> int:
    """Returns how deeply lists and objects are nested, without recursion: the caller chooses the depth."""
    level, depth = [value], 0
    while level := [member for item in level if isinstance(item, dict | list) for member in _members(item)]:
        depth += 1
        if depth > _MAX_DEPTH:
            break
    return depth


def _members(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_finite, _members(value))) if isinstance(value, dict | list) else True


def _short(name: str) -> str:
    return printable(name[:_SHOWN_CHARACTERS])


def page_of(
    given: Mapping[str, Any], scope: Mapping[str, Any], *, prefix: str = "", default: int | None = None
) -> PageRequest:
    """Returns the page that `limit` and `cursor` ask for; `prefix` stands before the two names.

    Raises `InvalidLimit` also for a number that is written as text, and `InvalidCursor`.
    """
    limit = given.get(f"{prefix}limit", default)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidLimit(MAX_LIMIT)
    return page_request(limit, given.get(f"{prefix}cursor"), scope=scope, maximum=MAX_LIMIT)
