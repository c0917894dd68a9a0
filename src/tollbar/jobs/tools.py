"""What the durable flows of Jobs use, handed in by the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tollbar.agents.adapter import Adapter
from tollbar.agents.registry import ADAPTERS
from tollbar.artifacts.blobs import BlobStore
from tollbar.budget.schemas import Chain, trial_budget_id
from tollbar.db.session import Database
from tollbar.engine.port import Engine
from tollbar.gateway.egress import Outside
from tollbar.jobs.limits import MAX_PHASE_S
from tollbar.jobs.models import ModelGateway
from tollbar.jobs.sinks import Sink
from tollbar.jobs.tables import JobRow, JobTaskRow, TrialRow
from tollbar.jobs.taskcache import TaskCache
from tollbar.kit.clock import Clock
from tollbar.sandboxes.errors import BackendUnusable
from tollbar.sandboxes.interface import Sandbox, SandboxProvider, SealLimits
from tollbar.vault.redactor import Redactor


@dataclass
class Line:
    """How many claimed Trials of this process wait for a slot."""

    waiting: int = 0


@dataclass(frozen=True)
class Waiting:
    """A sandbox whose agent is done: for a shared verifier, and to be kept so long if its Trial does not pass."""

    sandbox: Sandbox
    keep_failed_s: float


@dataclass(frozen=True)
class Site:
    """Where Trials of one backend run on this machine."""

    provider: SandboxProvider
    tasks: TaskCache


@dataclass(frozen=True)
class TrialTools:
    """The worker's tools. `slots` bounds what runs here; claims run ahead of it, so no slot waits for a poll."""

    database: Database
    engine: Engine
    provider: SandboxProvider
    blobs: BlobStore
    tasks: TaskCache
    clock: Clock
    executor_id: str
    slots: asyncio.Semaphore
    logs: Path
    """Folder of logs that are being written; each is removed once it is stored."""
    kick_pump: Callable[[], None]
    kick_below: int = 4
    """The end of a Trial calls the pump only when fewer claimed ones than this wait here for a slot."""
    seal_limits: SealLimits = field(default_factory=SealLimits)
    max_phase_s: float = MAX_PHASE_S
    """Longest agent phase."""
    waiting: dict[tuple[str, int], Waiting] = field(default_factory=dict[tuple[str, int], Waiting])
    """Sandboxes of Trials after their first step, by (trial, try)."""
    line: Line = field(default_factory=Line)
    software: Path | None = None
    """Folder of the agents' software on this machine; None: it has none."""
    adapters: Mapping[str, Adapter] = field(default_factory=lambda: ADAPTERS)
    """How agents are run, by their names."""
    gateway: ModelGateway | None = None
    """For agents that call models; None: this process has none."""
    outside: Outside = field(default_factory=Outside)
    """The hosts that tasks list, as this process reaches them."""
    redactor: Redactor = field(default_factory=Redactor)
    """Knows what may stand in nothing that a Trial leaves."""

    sites: Mapping[str, Site] = field(default_factory=dict[str, Site])
    """The backends of this machine beside that of `provider`, by their names."""

    def clean(self, values: dict[str, Any]) -> dict[str, Any]:
        """Returns columns of a row without secrets in their texts."""
        return self.redactor.value(values)

    @property
    def sink(self) -> Sink:
        """Returns where files of Trials are stored."""
        return Sink(self.blobs, self.redactor)

    def on(self, backend: str) -> TrialTools:
        """Returns these tools with the sandboxes of that backend. Raises `BackendUnusable` when it is not here."""
        if backend == self.provider.name:
            return self
        site = self.sites.get(backend)
        if site is None:
            msg = f"this worker has no {backend} sandboxes"
            raise BackendUnusable(msg)
        return replace(self, provider=site.provider, tasks=site.tasks)

    def trial_left(self) -> None:
        """Calls for further Trials when the line in front of the slots runs out."""
        if self.line.waiting < self.kick_below:
            self.kick_pump()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Waits for a free slot and holds it."""
        self.line.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.line.waiting -= 1
        try:
            yield
        finally:
            self.slots.release()


@dataclass(frozen=True)
class WorkingSet:
    """One try of one Trial with everything frozen for it."""

    trial: TrialRow
    job: JobRow
    task_row: JobTaskRow
    try_no: int

    @property
    def chain(self) -> Chain:
        """The budgets that this Trial is charged to, beside the project's day."""
        share = () if self.job.trial_cap_pusd is None else (trial_budget_id(self.trial.id),)
        return Chain(self.job.project_id, (self.job.budget_id, *share))
