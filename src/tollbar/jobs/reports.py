"""What an agent said of itself, beside what the gateway counted: its report, and its trajectory with real figures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from tollbar.agents.adapter import Adapter, AgentOutput, AgentPlan, AgentReport
from tollbar.budget.usage import Used
from tollbar.kit.money import PUSD_PER_USD
from tollbar.sandboxes.interface import ExecResult, Sandbox

MAX_READ_BYTES: Final = 16 << 20


async def of_command(adapter: Adapter, plan: AgentPlan, sandbox: Sandbox, ended: ExecResult, log: bytes) -> AgentReport:
    """Returns what an adapter reads from what a command left, while no process lives."""
    files: dict[str, bytes] = {}
    for path in plan.reads:
        found = await sandbox.read_file(path, MAX_READ_BYTES)
        if found is not None:
            files[path] = found
    return adapter.report(AgentOutput(ended.exit_code, log, files))


def document(report: AgentReport) -> dict[str, Any] | None:
    """Returns the report as its Trial shows it; None: the agent said nothing."""
    if report.version is None and report.claims is None:
        return None
    return _storable({"version": report.version, "claims": report.claims})


def encoded(trajectory: Mapping[str, Any]) -> bytes:
    """Returns a trajectory as JSON that every reader takes, whatever text an agent put into it."""
    return json.dumps(_storable(trajectory), separators=(",", ":"), allow_nan=False).encode()


def _storable(value: Any) -> Any:
    """Returns a JSON value without what a database or a strict reader refuses: NUL, lone surrogates, NaN."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_storable(str(key)): _storable(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def with_figures(trajectory: Mapping[str, Any], calls: Sequence[Used]) -> dict[str, Any]:
    """Returns an ATIF trajectory with the ledger's tokens and money: the sums, and each turn's where they are certain.

    A turn's are certain when the agent had exactly as many answers as it has turns. What the agent said of its usage
    is taken out: the gateway counted.
    """
    whole = deepcopy(dict(trajectory))
    turns = [step for step in whole.get("steps", []) if step.get("source") == "agent"]
    answered = [call for call in calls if call.answered]
    for number, step in enumerate(turns):
        step.pop("metrics", None)
        if len(turns) == len(answered):
            step["metrics"] = _metrics(answered[number])
    whole["final_metrics"] = {
        "total_prompt_tokens": sum(call.input_tokens for call in calls),
        "total_completion_tokens": sum(call.output_tokens for call in calls),
        "total_cached_tokens": sum(call.cached_tokens for call in calls),
        "total_cost_usd": _usd(sum(call.cost_pusd for call in calls)),
        "total_steps": len(whole.get("steps", [])),
    }
    return whole


def _metrics(call: Used) -> dict[str, Any]:
    return {
        "prompt_tokens": call.input_tokens,
        "completion_tokens": call.output_tokens,
        "cached_tokens": call.cached_tokens,
        "cost_usd": _usd(call.cost_pusd),
    }


def _usd(pusd: int) -> float:
    """Returns USD as the number that the format of trajectories wants; no amount is computed with it."""
    return pusd / PUSD_PER_USD
