"""The engine alone: flows of two empty steps through a queue, on a database of their own, nothing of tollbar's rows.

Run as a program it works in a process of its own and writes one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import machine
from tollbar.db.embedded import EmbeddedServer
from tollbar.db.session import open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.migrate import migrate
from tollbar.engine.port import Work
from tollbar.engine.queues import trials

_QUEUE: Final = trials("bwrap")
_STEPS: Final = ("first", "second")


@dataclass(frozen=True)
class EngineRun:
    """What `k` flows took."""

    wall_s: float
    process_s: float
    database_s: float

    @property
    def cpu_s(self) -> float:
        return self.process_s + self.database_s


def run(k: int, n: int) -> EngineRun:
    """Runs `k` flows with claims as far ahead as for `n` slots, in a new process. Raises `CalledProcessError`."""
    words = ["-m", "bench.engine_cost", "--k", str(k), "--n", str(n)]
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return EngineRun(**json.loads(done.stdout))


async def _measure(folder: Path, k: int, n: int) -> EngineRun:
    server = await EmbeddedServer.start(folder)
    await asyncio.to_thread(migrate, server.url)
    engine = DbosEngine(server.url, uuid.uuid4().hex, slots=n)
    left, empty = {"count": 0}, asyncio.Event()

    async def nothing() -> None:
        return None

    @engine.flow("bench")
    async def bench(number: int) -> None:
        del number
        for name in _STEPS:
            await engine.step(name, nothing)
        left["count"] -= 1
        if not left["count"]:
            empty.set()

    del bench
    database = open_database(server.url)
    await engine.start([_QUEUE])
    try:
        for count, kind in ((n, "warm"), (k, "work")):
            before = machine.own_cpu_s(), _database_s(server)
            started = time.perf_counter()
            left["count"] = count
            empty.clear()
            async with database.transaction() as session:
                await engine.enqueue(session, *(Work(f"{kind}:{i}", "bench", _QUEUE, (i,)) for i in range(count)))
            async with asyncio.timeout(120):
                await empty.wait()
        return EngineRun(
            time.perf_counter() - started, machine.own_cpu_s() - before[0], _database_s(server) - before[1]
        )
    finally:
        await engine.stop()
        await database.close()
        await server.stop()


def _database_s(server: EmbeddedServer) -> float:
    return sum(process.cpu_s for process in machine.tree(server.pid))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engine_cost", description=__doc__)
    parser.add_argument("--k", type=int, default=200, help="flows")
    parser.add_argument("--n", type=int, default=4, help="slots")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder:
        found = asyncio.run(_measure(Path(folder), options.k, options.n))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


if __name__ == "__main__":
    main()
