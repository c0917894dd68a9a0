"""What an agent adapter is: from a task and parameters to the one command that runs the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class AgentTask:
    """What an adapter may know of a task."""

    instruction: str | None
    has_solution: bool
    solution_env: Mapping[str, str]
    workdir: str


@dataclass(frozen=True)
class AgentPlan:
    """How the agent phase runs: one command with its environment, or none."""

    argv: tuple[str, ...] | None
    """None: there is nothing to run; the phase ends at once as completed."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    needs_solution: bool = False
    """The task's solution is laid over the sandbox at `/solution`; only the oracle says so."""
    log: str = "agent.txt"
    """File name below `/logs/agent` for both output streams."""
    needs_gateway: bool = False
    commands: int = 1
    setup: tuple[tuple[str, ...], ...] = ()
    """Commands that make the agent ready in its sandbox; one that fails is `AGENT_SETUP_FAILED`, and tried again."""
    setup_timeout_s: float = 360.0
    """Of each of them, in seconds."""


class Adapter(Protocol):
    """One kind of agent."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters that it takes, upper case; any other is refused at submission."""
        ...

    @property
    def uses_solution(self) -> bool:
        """Says whether it runs the task's own solution, whose variables a Job must then give."""
        ...

    def problem(self, params: Mapping[str, Any]) -> str | None:
        """Returns what is wrong with a Job's parameters, before anything starts; None: it can run with them."""
        ...

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        """Returns the plan; raises `AgentSetupFailed` when this task cannot be run by this agent."""
        ...
