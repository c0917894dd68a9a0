"""A whole installation of Jobs on a real database, with a stand-in backend and an engine that runs when told to."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text
from tests.jobs.standin import CAPABILITIES, FolderProvider, TableEngine
from tests.support import ManualClock, eventually

from tollbar.access.principal import Principal
from tollbar.artifacts.blobs import BlobStore
from tollbar.datasets import service as datasets
from tollbar.db.session import Database
from tollbar.jobs import flows, service
from tollbar.jobs.pump import Pump
from tollbar.jobs.recovery import Recovery
from tollbar.jobs.service import JobsContext
from tollbar.jobs.taskcache import TaskCache
from tollbar.jobs.tools import TrialTools
from tollbar.kit.paging import PageRequest

SEPARATE = """\
schema_version = "1.4"
artifacts = ["/app/out.txt"]

[agent]
timeout_sec = 30

[verifier]
environment_mode = "separate"
timeout_sec = 20

[environment]
network_mode = "no-network"
"""
SHARED = SEPARATE.replace('"separate"', '"shared"')
FILES = {
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM scratch\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/sh\n",
    "solution/solve.sh": "#!/bin/sh\n",
}
ONE = {"name": "team/set", "version": "1", "task_id": "one"}
SHARED_ONE = {**ONE, "name": "team/shared"}
METERED = "envhub/metered@main"
RATE_PUSD = 12 * 10**9
"""Of the metered runner with its default limits: 1 vCPU at 0.01 USD and 2 GiB at 0.001 USD a second."""


class SteppedClock:
    """A clock whose sleepers wake only when the test says so; `due` tells for when they have asked."""

    def __init__(self) -> None:
        self._start = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
        self._at = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = 0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._at)

    def monotonic(self) -> float:
        return self._at

    async def sleep(self, delay_s: float) -> None:
        self._numbers += 1
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._at + delay_s, self._numbers, waiting))
        await waiting

    def due(self) -> list[float]:
        """Returns when somebody wants to be woken, the earliest first."""
        return sorted(at for at, _, waiting in self._sleepers if not waiting.done())

    async def sleeps_until(self, moment: float) -> None:
        """Returns once somebody sleeps until exactly that moment."""

        async def there() -> bool:
            return moment in self.due()

        await eventually(there, within_s=4)

    def advance_to(self, moment: float) -> None:
        """Moves to that moment and wakes whom it is due for."""
        self._at = moment
        while self._sleepers and self._sleepers[0][0] <= moment:
            _, _, waiting = heapq.heappop(self._sleepers)
            if not waiting.done():
                waiting.set_result(None)


class PatientClock(ManualClock):
    """Short pauses pass at once; whoever waits for a renewal of a lease waits for ever."""

    async def sleep(self, delay_s: float) -> None:
        if delay_s > 12:
            await asyncio.Event().wait()
        await super().sleep(delay_s)


@dataclass
class World:
    """What tests of Jobs use."""

    database: Database
    blobs: BlobStore
    actor: Principal
    engine: TableEngine
    provider: FolderProvider
    clock: Any
    root: Path
    context: JobsContext
    tools: TrialTools
    pump: Pump
    recovery: Recovery
    capacity: int = 24

    # --- what a user does

    async def publish(
        self, name: str, tasks: Sequence[str] = ("one", "two"), toml: str = SEPARATE, **files: str | None
    ) -> None:
        """Publishes a dataset of equal tasks; `files` by name (`__`: slash, `_dot_`: dot), None: there is none."""
        folder = self.root / "datasets" / name.replace("/", "-")
        given = FILES | {key.replace("__", "/").replace("_dot_", "."): value for key, value in files.items()}
        for task in tasks:
            for path, content in {"task.toml": toml, **given}.items():
                if content is None:
                    continue
                place = folder / task / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content)
        async with self.database.transaction() as session:
            await datasets.publish_folder(
                session, self.actor, folder=folder, name=name, version="1", visibility="private", blobs=self.blobs,
                clock=self.clock,
            )  # fmt: skip

    async def submit(self, **members: Any) -> dict[str, Any]:
        """Submits a Job on `team/set` and returns its object."""
        request = {"dataset": "team/set@1", **members}
        async with self.database.transaction() as session:
            return (await service.submit(session, self.context, self.actor, request))[0]

    async def stop(self, job_id: str) -> dict[str, Any]:
        async with self.database.transaction() as session:
            return await service.stop(session, self.context, self.actor, job_id)

    async def job(self, job_id: str) -> dict[str, Any]:
        async with self.database.session() as session:
            return await service.status(session, self.context, self.actor, job_id)

    async def result(self, job_id: str) -> dict[str, Any]:
        async with self.database.session() as session:
            page = PageRequest(1000, None, "")
            return await service.result(session, self.context, self.actor, job_id, page)

    async def trial_results(self, job_id: str) -> list[dict[str, Any]]:
        """Returns the results of a Job's Trials by task and attempt."""
        items = (await self.result(job_id))["trials"]["items"]
        async with self.database.session() as session:
            return [await service.trial_result(session, self.actor, item["trial_id"]) for item in items]

    # --- what workers do

    async def expand(self, job_id: str) -> None:
        """Runs only the Job's expansion and admits what fits."""
        await self.engine.run(f"job:{job_id}")
        await self.pump.run_once()

    async def run(self, **members: Any) -> dict[str, Any]:
        """Submits a Job, runs everything and returns the ended Job."""
        job = await self.submit(**members)
        await self.engine.drain(self.pump.run_once)
        return await self.job(job["job_id"])

    async def one(self, **members: Any) -> dict[str, Any]:
        """Runs a Job of one Trial and returns the Trial's result."""
        job = await self.run(**members)
        (trial,) = await self.trial_results(job["job_id"])
        return trial

    # --- what stands in the database

    async def rows(self, statement: str, **values: Any) -> list[Any]:
        async with self.database.transaction() as session:
            result: Any = await session.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []

    async def value(self, statement: str, **values: Any) -> Any:
        return (await self.rows(statement, **values))[0][0]

    def log_files(self) -> list[str]:
        """Returns what lies in the worker's folder of logs, less the empty folder that verifiers start with."""
        return sorted(path.name for path in self.tools.logs.iterdir() if path.name != "empty")


_NEVER_S: Final = 86_400.0
"""The seeded worker beats once, when it is seeded."""


def world_of(
    database: Database, blobs: BlobStore, actor: Principal, root: Path, clock: Any = None, *, tools_database: Any = None
) -> World:
    """Joins everything; `tools_database` is what the workers use in place of the database itself."""
    clock = clock or ManualClock()
    engine = TableEngine(database)
    provider = FolderProvider(root / "provider")
    (root / "logs").mkdir(parents=True)
    tools = TrialTools(
        database=tools_database or database,
        engine=engine,
        provider=provider,
        blobs=blobs,
        tasks=TaskCache(root / "tasks", blobs, provider),
        clock=clock,
        executor_id="worker-1",
        slots=asyncio.Semaphore(4),
        logs=root / "logs",
        kick_pump=lambda: None,
    )
    flows.register(engine, tools)
    context = JobsContext(engine, clock, "https://tollbar.example", {"bwrap": CAPABILITIES}, dead_after_s=_NEVER_S)
    made: list[World] = []

    async def capacity(_: Any) -> dict[str, int]:
        return {"bwrap": made[0].capacity}

    pump = Pump(database, engine, capacity)
    recovery = Recovery(database, engine, clock)
    made.append(World(database, blobs, actor, engine, provider, clock, root, context, tools, pump, recovery))
    return made[0]
