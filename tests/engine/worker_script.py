"""A worker process of the tests: says on stdout, in JSON lines, what happens to it. Ends by SIGTERM.

python worker_script.py '{"url": ..., "executor_id": ..., "alone": false, "blocks": true, "beat_s": 0.2, ...}'
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.errors import DeclaredDead
from tollbar.engine.liveness import Intervals, Worker
from tollbar.engine.process import WorkerProcess
from tollbar.engine.reaper import HandOver
from tollbar.kit.clock import SystemClock


def say(event: str, **facts: Any) -> None:
    # One write: lines of the watchdog's thread and of the loop must not mix.
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def register(engine: DbosEngine, database: Any, executor_id: str, *, blocks: bool) -> None:
    async def note(name: str) -> str:
        say("step", name=name)
        async with database.transaction() as session:
            await session.execute(
                text("INSERT INTO step_run (name, executor_id) VALUES (:n, :e)"), {"n": name, "e": executor_id}
            )
        return name

    async def wait(name: str) -> str:
        await note(name)
        if blocks:
            try:
                await asyncio.Event().wait()
            finally:
                say("finally", name=name)
        return name

    @engine.flow("trial")
    async def trial(name: str, try_no: int) -> None:
        await engine.step("agent", wait, f"{name}:{try_no}:agent", preemptible=True)

    @engine.flow("segment")
    async def segment(name: str) -> None:
        await engine.step("one", note, f"{name}:one")
        await engine.step("two", wait, f"{name}:two", preemptible=True)
        await engine.step("three", note, f"{name}:three")

    del trial, segment


def hand_over() -> HandOver:
    async def on_dead(session: AsyncSession, executor_ids: Any) -> None:
        say("on_dead", ids=list(executor_ids))

    async def take_over(work_ids: Any, lost: bool) -> None:
        say("take_over", ids=sorted(work_ids), lost=lost)

    async def sweep(executor_id: str, lost: bool) -> None:
        """This worker has no rows above the engine's."""

    return HandOver(on_dead, take_over, sweep)


async def main(options: dict[str, Any]) -> int:
    # Plain lines: the default ones draw tracebacks for seconds, in which the loop stands still.
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    database = open_database(options["url"], pool_size=3)
    ours = open_database(options["url"], pool_size=5)
    executor_id = options["executor_id"]
    engine = DbosEngine(options["url"], executor_id)
    register(engine, ours, executor_id, blocks=options.get("blocks", True))
    intervals = Intervals(options.get("beat_s", 0.2), options.get("self_kill_s", 1.0), options.get("dead_after_s", 1.5))
    clock = SystemClock()
    worker = Worker(database, executor_id, 4, ("bwrap",), intervals, lambda: say("killed"), clock)
    process = WorkerProcess.assemble(
        engine=engine, worker=worker, hand_over=hand_over(), clock=clock, alone=options.get("alone", False), loops=[]
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await process.start(["control", "trials.bwrap"])
    say("started")
    dead, stopped = asyncio.create_task(process.declared_dead()), asyncio.create_task(stopping.wait())
    await asyncio.wait({dead, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if dead.done() and isinstance(dead.exception(), DeclaredDead):
        say("declared dead")
        os._exit(70)
    await process.stop(grace_s=0)
    await ours.close()
    await database.close()
    say("stopped")
    return 0


if __name__ == "__main__":
    # As the product does: threads of the library that cannot reach the database would hold the interpreter.
    os._exit(asyncio.run(main(json.loads(sys.argv[1]))))
