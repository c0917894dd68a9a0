"""The file format of a script: TOML, `schema = "tollbar.script/1"`, named by the digest of its text."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from tollbar.gateway.errors import InvalidScript

SCHEMA: Final = "tollbar.script/1"
_RULE: Final = re.compile(r"bytes/([1-9]\d{0,3})\Z", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,4})-(\d{1,4})\Z", re.ASCII)
_GLOBS: Final = ("task", "dataset", "adapter", "profile", "team", "agent_key", "purpose")
_COUNTS: Final = ("input", "cached", "cache_write", "cache_write_1h", "output", "reasoning")


class Stop(StrEnum):
    """Why an answer ended; `TOOL` follows from its calls and is not written in a script."""

    END = "end"
    LENGTH = "length"
    REFUSAL = "refusal"
    TOOL = "tool"


class OnEnd(StrEnum):
    """What follows the last turn."""

    STOP = "stop"
    ERROR = "error"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a turn, for tests of what the gateway does then. Exactly one member is set."""

    status: int | None = None
    reset_after_bytes: int | None = None
    stall_s: float | None = None
    no_usage: bool = False
    no_terminal: bool = False
    usage_over: bool = False
    bad_json: bool = False


@dataclass(frozen=True)
class Call:
    """A tool that a turn calls by name, with these arguments."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One answer of the model. `usage` has counts of tokens, `input` with the cache in it; None: by the rule."""

    text: str = ""
    shell: str | None = None
    calls: Sequence[Call] = ()
    finish: bool = False
    usage: Mapping[str, int] | None = None
    stop: Stop = Stop.END
    delay_ms: int = 0
    chunk_chars: int = 40
    fault: Fault | None = None


@dataclass(frozen=True)
class Case:
    """The turns of the Trials or runs that `match` fits: keys of `_GLOBS`, `attempt` (numbers), `contains` (text)."""

    match: Mapping[str, Any]
    turns: Sequence[Turn]
    on_end: OnEnd


@dataclass(frozen=True)
class UsageRule:
    """Usage where a turn gives none: bytes a token, or a fixed count; `cached` is a share of the input."""

    input_divisor: int | None
    input_tokens: int
    output_divisor: int | None
    output_tokens: int
    cached: Decimal


@dataclass(frozen=True)
class Script:
    """A script. `provider` and `model` are those of the price row that its usage is charged at."""

    name: str
    version: int
    provider: str
    model: str
    usage: UsageRule
    cases: Sequence[Case]
    sides: Sequence[Case]
    sha256: str


def load(text: str) -> Script:
    """Returns a script; raises `InvalidScript` (422) naming the table and key that are wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidScript("the file", f"is not TOML: {error}") from None
    top = _Table(document, "")
    top.only("schema", "name", "version", "priced_as", "usage", "on_end", "case", "side")
    if document.get("schema") != SCHEMA:
        raise top.wrong("schema", f'is not "{SCHEMA}"')
    provider, _, model = top.text("priced_as").partition(":")
    if not provider or not model:
        raise top.wrong("priced_as", "is not a provider and a model, such as openai:gpt-5-mini")
    on_end = top.on_end(OnEnd.STOP)
    cases = [_case(table, on_end) for table in top.tables("case")]
    if not cases:
        raise top.wrong("case", "is missing")
    return Script(
        name=top.text("name"),
        version=top.count("version", least=1),
        provider=provider,
        model=model,
        usage=_rule(top),
        cases=cases,
        sides=[_side(table) for table in top.tables("side")],
        sha256=hashlib.sha256(text.encode("utf-8")).hexdigest(),
    )


@dataclass(frozen=True)
class _Table:
    """A table of the file while it is read."""

    members: Mapping[str, Any]
    path: str

    def wrong(self, key: str, problem: str) -> InvalidScript:
        return InvalidScript(f"{self.path}.{key}".lstrip("."), problem)

    def only(self, *known: str) -> None:
        for key in self.members:
            if key not in known:
                raise self.wrong(key, "is unknown")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.members.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(key, "is not a text")
        return value

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        value = self.members.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(key, f"is not a whole number from {least}")
        return value

    def flag(self, key: str) -> bool:
        value = self.members.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "is not true or false")
        return value

    def table(self, key: str) -> _Table:
        value = self.members.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "is not a table")
        return _Table(value, f"{self.path}.{key}".lstrip("."))

    def tables(self, key: str) -> list[_Table]:
        value = self.members.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "is not a list of tables")
        path = f"{self.path}.{key}".lstrip(".")
        return [_Table(item, f"{path}[{index}]") for index, item in enumerate(value)]

    def on_end(self, default: OnEnd) -> OnEnd:
        value = self.members.get("on_end", default)
        if value not in list(OnEnd):
            raise self.wrong("on_end", "is neither stop nor error")
        return OnEnd(value)


def _rule(top: _Table) -> UsageRule:
    table = top.table("usage")
    table.only("input", "output", "cached")
    share = table.members.get("cached", 0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise table.wrong("cached", "is not a share from 0 to 1")
    fixed: dict[str, tuple[int | None, int]] = {}
    for key in ("input", "output"):
        value = table.members.get(key, "bytes/4")
        if isinstance(value, str) and (match := _RULE.match(value)) is not None:
            fixed[key] = (int(match[1]), 0)
        else:
            fixed[key] = (None, table.count(key))
    return UsageRule(*fixed["input"], *fixed["output"], Decimal(str(share)))


def _case(table: _Table, on_end: OnEnd) -> Case:
    table.only("match", "turn", "on_end")
    turns = [_turn(turn) for turn in table.tables("turn")]
    if not turns:
        raise table.wrong("turn", "is missing")
    return Case(_match(table.table("match")), turns, table.on_end(on_end))


def _side(table: _Table) -> Case:
    """Returns an answer to requests without tools; it is the same however often it is asked for."""
    match = _match(table.table("match"))
    rest = {key: value for key, value in table.members.items() if key != "match"}
    return Case(match, [_turn(_Table(rest, table.path))], OnEnd.STOP)


def _match(table: _Table) -> dict[str, Any]:
    table.only(*_GLOBS, "attempt", "contains")
    found: dict[str, Any] = {key: table.text(key) for key in (*_GLOBS, "contains") if key in table.members}
    if "attempt" in table.members:
        found["attempt"] = _attempts(table, table.members["attempt"])
    return found


def _attempts(table: _Table, value: object) -> frozenset[int]:
    if isinstance(value, str) and (match := _RANGE.match(value)) is not None:
        return frozenset(range(int(match[1]), int(match[2]) + 1))
    given = value if isinstance(value, list) else [value]
    numbers = [number for number in given if isinstance(number, int) and not isinstance(number, bool)]
    if not numbers or len(numbers) < len(given):
        raise table.wrong("attempt", 'is neither a number, a list of numbers, nor a range such as "1-2"')
    return frozenset(numbers)


def _turn(table: _Table) -> Turn:
    table.only("text", "shell", "calls", "finish", "usage", "stop", "delay_ms", "chunk_chars", "fault")
    stop = table.members.get("stop", Stop.END)
    if stop not in {Stop.END, Stop.LENGTH, Stop.REFUSAL}:
        raise table.wrong("stop", "is not end, length or refusal")
    turn = Turn(
        text=table.text("text", ""),
        shell=table.text("shell") if "shell" in table.members else None,
        calls=[_call(call) for call in table.tables("calls")],
        finish=table.flag("finish"),
        usage=_usage(table),
        stop=Stop(stop),
        delay_ms=table.count("delay_ms", 0),
        chunk_chars=table.count("chunk_chars", 40, least=1),
        fault=_fault(table),
    )
    if turn.finish and (turn.shell is not None or turn.calls):
        raise table.wrong("finish", "stands beside a shell command or calls")
    return turn


def _call(table: _Table) -> Call:
    table.only("tool", "args")
    args = table.table("args").members
    try:
        json.dumps(args, allow_nan=False)
    except (TypeError, ValueError):
        raise table.wrong("args", "holds a value that JSON has not") from None
    return Call(table.text("tool"), args)


def _usage(table: _Table) -> Mapping[str, int] | None:
    if "usage" not in table.members:
        return None
    usage = table.table("usage")
    usage.only(*_COUNTS)
    found = {key: usage.count(key, 0) for key in _COUNTS}
    if found["cached"] + found["cache_write"] > found["input"]:
        raise usage.wrong("input", "is less than the cache that it includes")
    if found["cache_write_1h"] > found["cache_write"]:
        raise usage.wrong("cache_write", "is less than its part for one hour")
    if found["reasoning"] > found["output"]:
        raise usage.wrong("output", "is less than the reasoning that it includes")
    return found


def _fault(table: _Table) -> Fault | None:
    if "fault" not in table.members:
        return None
    fault = table.table("fault")
    fault.only("status", "reset_after_bytes", "stall_s", "no_usage", "no_terminal", "usage_over", "bad_json")
    if len(fault.members) != 1:
        raise table.wrong("fault", "does not name exactly one fault")
    match next(iter(fault.members)):
        case "status":
            status = fault.count("status", least=400)
            if status > 599:
                raise fault.wrong("status", "is not an error of HTTP")
            return Fault(status=status)
        case "reset_after_bytes":
            return Fault(reset_after_bytes=fault.count("reset_after_bytes"))
        case "stall_s":
            value = fault.members["stall_s"]
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise fault.wrong("stall_s", "is not a number of seconds")
            return Fault(stall_s=float(value))
        case name:
            return Fault(**{name: fault.flag(name)})
