"""A real worker on the real engine, with the stand-in backend: in the test's process, or in one of its own.

python worker.py '{"url": ..., "blobs": ..., "root": ..., "executor_id": ..., "blocks": true}' says in JSON lines on
stdout when it has started, and when an agent runs. Ends by SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession
from tests.jobs.standin import Call, FolderProvider, ended, solves

from tollbar.artifacts.blobs import BlobStore, local_blobs
from tollbar.budget import service as budget
from tollbar.db.session import Database, open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.liveness import Intervals, Worker, capacities
from tollbar.engine.loops import Loop
from tollbar.engine.process import WorkerProcess
from tollbar.engine.reaper import HandOver
from tollbar.jobs import flows
from tollbar.jobs.pump import Pump
from tollbar.jobs.recovery import Recovery
from tollbar.jobs.taskcache import TaskCache
from tollbar.jobs.tools import TrialTools
from tollbar.kit.clock import SystemClock
from tollbar.sandboxes.interface import ExecResult


@dataclass
class Running:
    """A worker that works."""

    provider: FolderProvider
    engine: DbosEngine
    process: WorkerProcess


@asynccontextmanager
async def working(
    database: Database, blobs: BlobStore, root: Path, executor_id: str, prepare: Callable[[FolderProvider], None]
) -> AsyncGenerator[Running]:
    """Yields a worker, and stops it in order: what runs is handed back."""
    clock, slots = SystemClock(), 4
    provider = FolderProvider(root / "provider")
    prepare(provider)
    engine = DbosEngine(database.url, executor_id, slots=slots)
    recovery = Recovery(database, engine, clock)
    (root / "logs").mkdir(parents=True, exist_ok=True)

    pump = Loop("pump", 0.1, Pump(database, engine, capacities).run_once, clock=clock)
    tools = TrialTools(
        database=database, engine=engine, provider=provider, blobs=blobs, clock=clock, executor_id=executor_id,
        tasks=TaskCache(root / "tasks", blobs, provider), slots=asyncio.Semaphore(slots), logs=root / "logs",
        kick_pump=pump.kick,
    )  # fmt: skip
    flows.register(engine, tools)

    async def on_dead(session: AsyncSession, executors: Sequence[str]) -> None:
        await budget.write_off(session, workers=executors)

    async def take_over(work_ids: Sequence[str], lost: bool) -> None:
        await recovery.take_over(work_ids, lost=lost)

    beats = open_database(database.url, pool_size=4)
    worker = Worker(beats, executor_id, slots, ("bwrap",), Intervals(0.2, 1.0, 1.5), lambda: None, clock)

    async def sweep(worker_id: str, lost: bool) -> None:
        await recovery.sweep(worker_id, lost=lost)

    loops = [pump, Loop("reconciler", 0.5, recovery.reconcile, clock=clock)]
    process = WorkerProcess.assemble(
        engine=engine,
        worker=worker,
        hand_over=HandOver(on_dead, take_over, sweep),
        clock=clock,
        alone=False,
        loops=loops,
    )
    await process.start(["control", "trials.bwrap"])
    try:
        yield Running(provider, engine, process)
    finally:
        await process.stop(0)
        await beats.close()


def say(event: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


async def blocks(call: Call) -> ExecResult:
    """An agent that says that it runs, and runs until it is ended."""
    say("agent", trial=call.sandbox.spec.name.trial_id)
    await asyncio.Event().wait()
    return ended()


async def main(options: dict[str, Any]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    database = open_database(options["url"], pool_size=6)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    def prepare(provider: FolderProvider) -> None:
        provider.agent = [blocks if options["blocks"] else solves]

    blobs = local_blobs(Path(options["blobs"]))
    async with working(database, blobs, Path(options["root"]), options["executor_id"], prepare):
        say("started")
        await stopping.wait()
    await database.close()
    say("stopped")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    asyncio.run(main(json.loads(sys.argv[1])))
