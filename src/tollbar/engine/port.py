"""What the rest of the product knows of durable execution: work by name and id, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class EngineState(StrEnum):
    """What the engine says of one piece of work."""

    DELAYED = "DELAYED"
    ENQUEUED = "ENQUEUED"
    PENDING = "PENDING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"
    EXHAUSTED = "MAX_RECOVERY_ATTEMPTS_EXCEEDED"

    @property
    def is_terminal(self) -> bool:
        """Says whether the engine will do nothing more for it."""
        return self not in {EngineState.DELAYED, EngineState.ENQUEUED, EngineState.PENDING}


@dataclass(frozen=True)
class Work:
    """One piece of work. `flow` is a registered name, `args` are ids and small values; smaller priority goes first."""

    id: str
    flow: str
    queue: str
    args: tuple[Json, ...] = ()
    priority: int = 1000


@dataclass(frozen=True)
class Pending:
    """Work that an executor holds."""

    id: str
    flow: str
    queue: str | None
    is_stale: bool = False
    """It began under an engine version that is not this process's, and only workers of that one could go on with it."""


class Engine(Protocol):
    """The port. Everything that enqueues needs only this; `start` and `stop` are for processes that work."""

    def flow(self, name: str) -> Callable[[F], F]:
        """Registers an async function as the flow of that name; all flows are registered before `start`."""
        ...

    async def step(
        self,
        name: str,
        function: Callable[..., Awaitable[Json]],
        *args: Any,
        preemptible: bool = False,
        backstop_s: float | None = None,
    ) -> Any:
        """Runs `function(*args)` as a checkpointed step of the running flow and returns its JSON result (64 KB).

        A finished step is not run again after a crash. A preemptible step is cancelled within about two seconds when
        its flow is cancelled: its `finally` must kill what it started. `backstop_s` cancels a step that hangs and
        raises; a time limit that is an outcome is kept inside the step, about 60 s earlier.
        """
        ...

    async def enqueue(self, session: AsyncSession, *work: Work) -> None:
        """Enqueues inside the caller's transaction; raises `WorkExists` for an id that exists (a bug or lost race)."""
        ...

    async def cancel(self, ids: Sequence[str]) -> None:
        """Cancels work and its children; what ended stays as it is, unknown ids are passed over."""
        ...

    async def state(self, ids: Sequence[str]) -> dict[str, EngineState]:
        """Returns the state of each known id."""
        ...

    async def pending_of(self, executor_id: str) -> list[Pending]:
        """Returns what that executor has claimed and not ended, at most 500."""
        ...

    async def holders(self) -> set[str]:
        """Returns the executors that have claimed work which has not ended, whether they live or not."""
        ...

    def running(self) -> Collection[str]:
        """Returns the ids of the flows whose body runs in this process now."""
        ...

    async def resume(self, ids: Sequence[str], queue: str) -> None:
        """Hands a dead executor's work to the living; only under the reaper's lock."""
        ...

    async def purge(self, before: datetime, limit: int = 500) -> int:
        """Deletes rows of work that ended before that moment; returns how many."""
        ...

    async def start(self, queues: Sequence[str], *, most_slots: int = 1) -> None:
        """Begins to claim work from those queues; called once, on the event loop's own thread.

        A queue has one limit for all workers: it is sized for `most_slots`, the most that one of them has.
        """
        ...

    def halt(self) -> None:
        """Starts no flow and no step from now on; what runs goes on until `stop`."""
        ...

    async def stop(self, grace_s: float = 0.0) -> None:
        """Starts nothing more, waits up to `grace_s` for what is nearly done, then cancels and awaits the rest.

        What was cancelled stays claimed by this executor, where the reaper finds it. Nothing can be enqueued
        afterwards.
        """
        ...
