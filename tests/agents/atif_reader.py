"""A strict reader of ATIF-v1.8, written from the format's description: it refuses what the format's own reader does."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

_ROOT = {"schema_version", "session_id", "agent", "steps", "notes", "final_metrics"}
_AGENT = {"name", "version", "model_name"}
_STEP = {"step_id", "timestamp", "source", "message"}
_AGENT_STEP = _STEP | {"model_name", "reasoning_content", "tool_calls", "observation", "metrics"}
_METRICS = {"prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"}
_SUMS = {
    "total_prompt_tokens",
    "total_completion_tokens",
    "total_cached_tokens",
    "total_cost_usd",
    "total_steps",
}


def read(document: Any) -> list[dict[str, Any]]:
    """Returns the steps; fails on anything that is not the format's."""
    document = json.loads(json.dumps(document, allow_nan=False))
    assert set(document) <= _ROOT
    assert document["schema_version"] == "ATIF-v1.8"
    assert {"name", "version"} <= set(document["agent"]) <= _AGENT
    assert set(document["final_metrics"]) <= _SUMS
    assert document["final_metrics"]["total_steps"] == len(document["steps"]) > 0
    for number, step in enumerate(document["steps"], 1):
        assert step["step_id"] == number
        assert step["source"] in {"system", "user", "agent"}
        assert set(step) <= (_AGENT_STEP if step["source"] == "agent" else _STEP)
        assert isinstance(step["message"], str)
        if "timestamp" in step:
            datetime.fromisoformat(step["timestamp"])
        _calls(step)
    return document["steps"]


def _calls(step: dict[str, Any]) -> None:
    calls = step.get("tool_calls", [])
    for call in calls:
        assert set(call) == {"tool_call_id", "function_name", "arguments"}
        assert isinstance(call["arguments"], dict)
    for result in step.get("observation", {"results": []})["results"]:
        assert set(result) == {"source_call_id", "content"}
        assert result["source_call_id"] in {call["tool_call_id"] for call in calls}
    assert set(step.get("metrics", {})) <= _METRICS
