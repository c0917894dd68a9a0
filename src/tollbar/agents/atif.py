"""Trajectories in the form ATIF-v1.8, made of what an agent left. Its reader refuses unknown members and wrong types.

Whatever goes in was written by an agent, so every value is looked at before it is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

SCHEMA: Final = "ATIF-v1.8"
_MOST: Final = 2**53


@dataclass
class Turn:
    """One step: what was said, the tools that were called, and what came back for each of the calls."""

    source: str = "agent"
    """`system`, `user` or `agent`; only an agent's step has more than a message."""
    message: str = ""
    reasoning: str = ""
    model: str | None = None
    calls: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, str, Mapping[str, Any]]])
    """Id, name of the tool, arguments."""
    results: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Id of the call, text."""
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])
    timestamp: str | None = None

    def step(self, number: int) -> dict[str, Any]:
        """Returns the step as it is written; results of calls that the step does not have are left out."""
        step: dict[str, Any] = {"step_id": number, "source": self.source, "message": self.message}
        if self.timestamp is not None:
            step["timestamp"] = self.timestamp
        if self.source != "agent":
            return step
        known = {call[0] for call in self.calls}
        results = [{"source_call_id": call, "content": text} for call, text in self.results if call in known]
        calls = [
            {"tool_call_id": call, "function_name": name, "arguments": dict(arguments)}
            for call, name, arguments in self.calls
        ]
        optional = {
            "model_name": self.model,
            "reasoning_content": self.reasoning or None,
            "tool_calls": calls or None,
            "observation": {"results": results} if results else None,
            "metrics": self.metrics or None,
        }
        return step | {name: value for name, value in optional.items() if value is not None}


def trajectory(
    name: str,
    version: str | None,
    turns: Sequence[Turn],
    *,
    claims: Mapping[str, Any],
    model: str | None = None,
    session_id: str | None = None,
    notes: str | None = None,
) -> dict[str, Any] | None:
    """Returns the document, or None when there is no step. `claims` are those of `AgentReport`."""
    if not turns:
        return None
    sums = {
        "total_prompt_tokens": claims.get("input_tokens"),
        "total_completion_tokens": claims.get("output_tokens"),
        "total_cached_tokens": claims.get("cached_input_tokens"),
        "total_cost_usd": None if claims.get("cost_usd") is None else float(claims["cost_usd"]),
        "total_steps": len(turns),
    }
    agent = {"name": name, "version": version or "unknown", "model_name": model}
    document: dict[str, Any] = {
        "schema_version": SCHEMA,
        "session_id": session_id,
        "agent": {key: value for key, value in agent.items() if value is not None},
        "steps": [turn.step(number) for number, turn in enumerate(turns, 1)],
        "notes": notes,
        "final_metrics": {key: value for key, value in sums.items() if value is not None},
    }
    return {key: value for key, value in document.items() if value is not None}


def lines(log: bytes) -> Iterator[Mapping[str, Any]]:
    """Yields the JSON objects of a log, one a line; other lines are passed over."""
    for line in log.split(b"\n"):
        if line.startswith(b"{"):
            found = parsed(line)
            if isinstance(found, dict):
                yield cast("Mapping[str, Any]", found)


def parsed(text: bytes) -> object:
    """Returns a JSON value, or None for what is none, nested too deep, or has a number that JSON cannot write."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def mapping(value: object) -> Mapping[str, Any]:
    """Returns a mapping, empty when the value is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> Iterable[Mapping[str, Any]]:
    """Returns the mappings of a list."""
    return [mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def text(value: object) -> str:
    """Returns a text, empty when the value is none."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """Returns a count, 0 when the value is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else 0


def amount(value: object) -> str | None:
    """Returns a sum of USD as text, or None when the value is none; an agent counts in binary fractions."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        exact = Decimal(str(value))
    except InvalidOperation:
        return None
    return f"{exact.normalize():f}" if exact.is_finite() and 0 <= exact < _MOST else None


def moment(value: object) -> str | None:
    """Returns a time in ISO 8601, from such a text or from seconds since 1970; None when the value is none."""
    try:
        if isinstance(value, str):
            datetime.fromisoformat(value)
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
    return None


def metrics(prompt: int, cached: int, completion: int | None, cost_usd: str | None = None) -> dict[str, Any]:
    """Returns a step's metrics; `prompt` includes what was cached."""
    found: dict[str, Any] = {"prompt_tokens": prompt, "cached_tokens": cached}
    if completion is not None:
        found["completion_tokens"] = completion
    if cost_usd is not None:
        found["cost_usd"] = float(cost_usd)
    return found
