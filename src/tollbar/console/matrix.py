"""The matrix of a Job: one row per task, one cell per attempt. A cell is told by sign, colour and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Final

from tollbar.console import words
from tollbar.kit.text import printable

_OPEN: Final = {"pending": "·"}
_AT_WORK: Final = "…"


def reasons(found: Sequence[Mapping[str, Any]], n_missing: int) -> list[dict[str, Any]]:
    """Returns why rewards are missing, most frequent first, each with the letter that stands in its cells."""
    return [
        {
            "letter": ascii_uppercase[index] if index < len(ascii_uppercase) else "",
            "code": item["code"],
            "count": item["count"],
            "trials": words.plural(item["count"], "Trial"),
            "share": round(100 * item["count"] / n_missing, 1) if n_missing else 0,
            "meaning": words.REASONS.get(item["code"], ""),
        }
        for index, item in enumerate(found)
    ]


def rows(
    tasks: Sequence[Mapping[str, Any]], listed: Sequence[Mapping[str, Any]], only: str | None
) -> list[dict[str, Any]]:
    """Returns the rows; `only` keeps those with a Trial that lacks its reward for that reason."""
    letters = {reason["code"]: reason["letter"] for reason in listed}
    return [
        {
            "task_id": printable(task["task_id"]),
            "flaky": task["flaky"],
            "passed": sum(cell["pass"] is True for cell in task["cells"]),
            "scored": sum(cell["reward"] is not None for cell in task["cells"]),
            "cells": [_cell(cell, letters) for cell in task["cells"]],
        }
        for task in tasks
        if only is None or any(cell["reason"] == only for cell in task["cells"])
    ]


def _cell(cell: Mapping[str, Any], letters: Mapping[str, str]) -> dict[str, str]:
    status, reason = cell["status"], cell["reason"]
    base = {"trial_id": cell["trial_id"], "name": f"attempt {cell['attempt']}"}
    if cell["reward"] is not None:
        passed = cell["pass"] is True
        verdict = "passes" if passed else "does not pass"
        outcome = cell["agent_outcome"]
        ended = "" if outcome in {None, "completed"} else f", agent: {outcome.replace('_', ' ')}"
        return {
            **base,
            "kind": "pass" if passed else "below",
            "sign": "✓" if passed else "✗",
            "shown": f"{cell['reward']:.3g}",
            "words": f"{status}, reward {cell['reward']:.6g}, {verdict}{ended}",
        }
    if reason is not None:
        said = f"{status}, no reward: {reason}"
        return {**base, "kind": "none", "sign": "!", "shown": letters.get(reason, ""), "words": said}
    kind = "open" if status in _OPEN else "work"
    return {**base, "kind": kind, "sign": _OPEN.get(status, _AT_WORK), "shown": "", "words": status}
