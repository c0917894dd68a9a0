"""Worker processes of these tests, ended with the test that started them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.helpers import ask
from tests.support import eventually

from tollbar.db.session import Database

_SCRIPT = Path(__file__).with_name("worker_script.py")


class WorkerUnderTest:
    """A worker process and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def hears(self, event: str, count: int = 1, within_s: float = 10.0) -> list[dict[str, Any]]:
        """Returns the lines of that event once there are `count` of them."""

        async def enough() -> list[dict[str, Any]] | None:
            found = [line for line in self.said if line["event"] == event]
            return found if len(found) >= count else None

        return await eventually(enough, within_s) or []

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ends(self, within_s: float = 10.0) -> int:
        async with asyncio.timeout(within_s):
            code = await self.process.wait()
            await self._reading
        return code

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.ends()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(json.loads(line))


@pytest.fixture
async def spawn(database: Database) -> AsyncIterator[Callable[..., Any]]:
    """Starts worker processes: `await spawn("executor id", alone=True, blocks=False)`."""
    await ask(database, "CREATE TABLE step_run (name text, executor_id text)")
    workers: list[WorkerUnderTest] = []

    async def start(executor_id: str, **options: Any) -> WorkerUnderTest:
        text = json.dumps({"url": database.url, "executor_id": executor_id, **options})
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(_SCRIPT), text, stdout=asyncio.subprocess.PIPE
        )
        worker = WorkerUnderTest(process)
        workers.append(worker)
        await worker.hears("started", within_s=30)
        return worker

    yield start
    for worker in workers:
        await worker.kill()
