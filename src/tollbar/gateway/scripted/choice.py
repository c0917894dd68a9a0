"""Which case and which turn answer a request. The turn follows from the request's history, so nothing is remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, Final

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.scripted.script import Case, OnEnd, Script, Turn

_AT_END: Final = Turn(text="(end of script)")
_ASSISTANT_ITEMS: Final = frozenset(
    {"reasoning", "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"}
)


@dataclass(frozen=True)
class Facts:
    """Who asks, from the virtual key and never from the prompt. None: not known, and fits no pattern."""

    task: str | None = None
    task_ref: str | None = None
    dataset: str | None = None
    adapter: str | None = None
    profile: str | None = None
    attempt: int | None = None
    team: str | None = None
    agent_key: str | None = None
    purpose: str | None = None


@dataclass(frozen=True)
class Chosen:
    """The turn that answers, and a name for it that is the same at every retry."""

    turn: Turn
    place: str


def choose(script: Script, dialect: Dialect, body: Mapping[str, Any], facts: Facts, *, offers_tools: bool) -> Chosen:
    """Returns the turn for a request.

    A request without tools (a title, a summary) gets the script's side answer, except from an agent of a team. Raises
    `Refused`: `SCRIPT_NO_MATCH`, `SCRIPT_EXHAUSTED`.
    """
    said = _last_user_text(dialect, body)
    if not offers_tools and facts.agent_key is None:
        for index, side in enumerate(script.sides):
            if _fits(side, facts, said):
                return Chosen(side.turns[0], f"side{index}")
    for index, case in enumerate(script.cases):
        if _fits(case, facts, said):
            turn = turns_so_far(dialect, body)
            place = f"case{index}.turn{turn}"
            if turn < len(case.turns):
                return Chosen(case.turns[turn], place)
            if case.on_end is OnEnd.ERROR:
                raise Refused(Code.SCRIPT_EXHAUSTED, f"the script {script.name} has no turn {turn + 1} for this case")
            return Chosen(_AT_END, place)
    raise Refused(Code.SCRIPT_NO_MATCH, f"no case of the script {script.name} fits this request")


def _fits(case: Case, facts: Facts, said: str) -> bool:
    for key, pattern in case.match.items():
        if key == "contains":
            fits = pattern in said
        elif key == "attempt":
            fits = facts.attempt in pattern
        else:
            values = [getattr(facts, key)] + ([facts.task_ref] if key == "task" else [])
            fits = any(value is not None and fnmatchcase(value, pattern) for value in values)
        if not fits:
            return False
    return True


def turns_so_far(dialect: Dialect, body: Mapping[str, Any]) -> int:
    """Returns how many turns of the assistant the request's history has: maximal runs of its items."""
    return sum(1 for mine, _ in groupby(_assistant(dialect, item) for item in _history(dialect, body)) if mine)


def _history(dialect: Dialect, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    name = {Dialect.RESPONSES: "input", Dialect.GEMINI: "contents"}.get(dialect, "messages")
    items = body.get(name)
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, dict))


def _assistant(dialect: Dialect, item: Mapping[str, Any]) -> bool:
    if dialect is Dialect.GEMINI:
        return item.get("role") == "model"
    if dialect is Dialect.RESPONSES and item.get("type") in _ASSISTANT_ITEMS:
        return True
    return item.get("role") == "assistant"


def _last_user_text(dialect: Dialect, body: Mapping[str, Any]) -> str:
    if dialect is Dialect.RESPONSES and isinstance(body.get("input"), str):
        return str(body["input"])
    texts = [
        text
        for item in _history(dialect, body)
        if item.get("role") == "user" and (text := _text_of(item.get("parts", item.get("content"))))
    ]
    return texts[-1] if texts else ""


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
