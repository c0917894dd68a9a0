"""What an agent adapter is: from a task and parameters to the one command, or the loop of ours, that runs the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from tollbar.gateway.dialects import Dialect
from tollbar.sandboxes.interface import ExecResult


@dataclass(frozen=True)
class ModelUse:
    """A model that an agent calls. `side`: not the one that solves the task, but titles, summaries, sub-agents."""

    name: str
    """As the parameters say it: `provider:model`."""
    dialect: Dialect
    """In which the agent asks for it."""
    side: bool = False


@dataclass(frozen=True)
class ServedModel:
    """How the gateway serves a model that an adapter named: by a bare name, and by a provider of some kind."""

    wire: str
    """What stands in the requests and on the command line: `claude-sonnet-4-5`; of a script what it is priced as."""
    kind: str
    """Kind of its provider: `openai`, `anthropic`, `google`, `openai-compatible`, `scripted`, ..."""


@dataclass(frozen=True)
class GatewayAccess:
    """The only way out of a sandbox: the gateway's origin inside it, and the key that opens it for this try alone."""

    base_url: str
    """`http://127.0.0.1:8787`, without a path."""
    key: str
    models: Mapping[str, ServedModel] = field(default_factory=dict[str, ServedModel])
    """By the names of the adapter's `models`."""


@dataclass(frozen=True)
class AgentTask:
    """What an adapter may know of a task."""

    instruction: str | None
    has_solution: bool
    solution_env: Mapping[str, str]
    workdir: str
    gateway: GatewayAccess | None = None
    """None exactly for an agent that calls no model."""


class AgentSession(Protocol):
    """The held sandbox of a run, for a loop that runs in the worker and acts in there."""

    @property
    def gateway(self) -> GatewayAccess:
        """The gateway as this process reaches it; its key is the sandbox's."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> ExecResult:
        """Runs one command in the sandbox; what it started in the background lives on."""
        ...

    def log(self, text: str) -> None:
        """Adds a line to the agent's log."""
        ...

    def note(self, report: AgentReport) -> None:
        """Says how far the loop has come, in place of what it said before; a loop that is cut short keeps it."""
        ...


class DriveEnd(StrEnum):
    """How a loop ended; all but `COMPLETED` say that the agent gave up, or could not go on."""

    COMPLETED = "completed"
    FAILED = "failed"
    CONTEXT_OVERFLOW = "context_overflow"
    REFUSED = "refused"


@dataclass(frozen=True)
class DriveResult:
    """The end of a loop, with a message for whoever looks at the Trial."""

    end: DriveEnd = DriveEnd.COMPLETED
    message: str | None = None


Drive = Callable[[AgentSession], Awaitable[DriveResult]]
"""Runs the agent's loop; it is cancelled at the time limit, at a stop and at a cap."""


@dataclass(frozen=True)
class AgentPlan:
    """How the agent phase runs: one command with its environment, or a loop, or neither."""

    argv: tuple[str, ...] | None
    """None: no command; without `drive` there is nothing to run, and the phase ends at once as completed."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    needs_solution: bool = False
    """The task's solution is laid over the sandbox at `/solution`; only the oracle says so."""
    log: str = "agent.txt"
    """File name below `/logs/agent` for both output streams."""
    commands: int = 1
    setup: tuple[tuple[str, ...], ...] = ()
    """Commands that make the agent ready in its sandbox; one that fails is `AGENT_SETUP_FAILED`, and tried again."""
    setup_timeout_s: float = 360.0
    """Of each of them, in seconds."""
    drive: Drive | None = None
    """The loop that is the agent, in place of a command."""
    software: str | None = None
    """What the operator installed, as `NAME` or `NAME@VERSION`; laid over the sandbox. Absent: `AGENT_SETUP_FAILED`."""
    reads: tuple[str, ...] = ()
    """Absolute paths of files that `report` wants to see after the run, up to 16 MiB each."""


@dataclass(frozen=True)
class AgentOutput:
    """What a run left for its adapter to read. It is untrusted: the agent could write whatever it liked."""

    exit_code: int | None
    """None: ended by a signal or a timer."""
    log: bytes
    """Both streams, first and last part when they were long."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Those of the plan's `reads` that are there."""
    instruction: str | None = None
    """What the agent was asked."""
    software: str | None = None
    """What it ran as, as `NAME@VERSION`: of what was installed, not what the agent says."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class AgentReport:
    """What the agent says of itself: evidence beside the ledger, never used for money."""

    version: str | None = None
    claims: Mapping[str, Any] | None = None
    """What it counted: `turns`, `input_tokens` (with cache), `cached_input_tokens`, `output_tokens`, `cost_usd`."""
    trajectory: Mapping[str, Any] | None = None
    """ATIF-v1.8, kept as the artifact `agent/trajectory.json`."""


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

    def models(self, params: Mapping[str, Any]) -> tuple[ModelUse, ...]:
        """Returns the models that it calls with parameters that have no problem, its own first; empty: no gateway."""
        ...

    def software(self, params: Mapping[str, Any]) -> str | None:
        """Returns which software a worker must have, as `NAME` or `NAME@VERSION`; the plan names the same."""
        ...

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        """Returns the plan; raises `AgentSetupFailed` when this task cannot be run by this agent."""
        ...

    def report(self, left: AgentOutput) -> AgentReport:
        """Returns what can be read from a command's output; never raises for what an agent wrote."""
        ...


class WithoutSoftware:
    """What an adapter inherits that needs nothing installed."""

    def software(self, params: Mapping[str, Any]) -> str | None:
        del params
        return None


class WithoutModel(WithoutSoftware):
    """What an adapter inherits that calls no model and reports nothing."""

    def models(self, params: Mapping[str, Any]) -> tuple[ModelUse, ...]:
        del params
        return ()

    def report(self, left: AgentOutput) -> AgentReport:
        del left
        return AgentReport()
