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
_PATIENCE_S: Final = 120.0
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


def run(k: int, n: int, rounds: int) -> list[EngineRun]:
    """Runs rounds of `k` flows with claims as far ahead as for `n` slots, in a new process.

    Raises `CalledProcessError`.
    """
    words = ["-m", "bench.engine_cost", "--k", str(k), "--n", str(n), "--rounds", str(rounds)]
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return [EngineRun(**found) for found in json.loads(done.stdout)]


async def _measure(folder: Path, k: int, n: int, rounds: int) -> list[EngineRun]:
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
    found: list[EngineRun] = []
    try:
        for number, count in enumerate([n, *[k] * rounds]):
            before = machine.own_cpu_s(), _database_s(server)
            started = time.perf_counter()
            left["count"] = count
            empty.clear()
            async with database.transaction() as session:
                works = (Work(f"bench:{number}:{i}", "bench", _QUEUE, (i,)) for i in range(count))
                await engine.enqueue(session, *works)
            async with asyncio.timeout(_PATIENCE_S):
                await empty.wait()
            wall_s = time.perf_counter() - started
            found.append(EngineRun(wall_s, machine.own_cpu_s() - before[0], _database_s(server) - before[1]))
        return found[1:]
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
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder:
        found = asyncio.run(_measure(Path(folder), options.k, options.n, options.rounds))
    sys.stdout.write(json.dumps([asdict(run) for run in found]) + "\n")


if __name__ == "__main__":
    main()
