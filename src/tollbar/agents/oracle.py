"""The oracle: runs the task's own solution. Its score says whether the task can be solved and is graded right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollbar.agents.adapter import AgentPlan, AgentTask, WithoutModel
from tollbar.agents.errors import AgentSetupFailed


@dataclass(frozen=True)
class Oracle(WithoutModel):
    """Starts `/solution/solve.sh` directly (its `#!` line counts) in the working directory."""

    name: str = "oracle"
    parameters: frozenset[str] = frozenset()
    uses_solution: bool = True

    def problem(self, params: Mapping[str, Any]) -> str | None:
        del params
        return None

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        del params
        if not task.has_solution:
            raise AgentSetupFailed("install", "The task has no solution/solve.sh for the oracle to run.")
        env = {"DEBIAN_FRONTEND": "noninteractive", **task.solution_env}
        return AgentPlan(argv=("/solution/solve.sh",), env=env, needs_solution=True, log="oracle.txt")
