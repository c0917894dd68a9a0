"""The agent that does nothing. What it scores is what a task gives away for free: it must be 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollbar.agents.adapter import AgentPlan, AgentTask, WithoutModel


@dataclass(frozen=True)
class Nop(WithoutModel):
    """Runs no command at all."""

    name: str = "nop"
    parameters: frozenset[str] = frozenset()
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        del params
        return None

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        del task, params
        return AgentPlan(argv=None)
