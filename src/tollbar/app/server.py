"""Builds the whole server out of its packages: database, seeds, worker, interfaces; one process, one event loop."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.types import ASGIApp

from tollbar.access import service as access
from tollbar.app.assembly import build_app
from tollbar.app.ports import listen, origin_of
from tollbar.app.seeds import local_key, seed
from tollbar.artifacts.blobs import BlobStore, local_blobs
from tollbar.budget import service as budget
from tollbar.db import migrate
from tollbar.db.embedded import EmbeddedServer, hold_directory, write_server_facts
from tollbar.db.errors import EmbeddedDatabaseFailed
from tollbar.db.session import Database, open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.liveness import Intervals, Worker, capacity
from tollbar.engine.locks import Lock, under_lock
from tollbar.engine.loops import Loop
from tollbar.engine.migrate import migrate as migrate_engine
from tollbar.engine.process import WorkerProcess
from tollbar.engine.queues import BRANCHES, CONTROL, trials
from tollbar.engine.reaper import HandOver
from tollbar.jobs import flows
from tollbar.jobs.pump import Pump
from tollbar.jobs.recovery import Recovery
from tollbar.jobs.service import JobsContext
from tollbar.jobs.taskcache import TaskCache
from tollbar.jobs.tools import TrialTools
from tollbar.kit.clock import Clock, SystemClock
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.interface import Capabilities
from tollbar.settings import Settings

_PUMP_S: Final = 0.5
_RECONCILE_S: Final = 60.0
_REAP_SANDBOXES_S: Final = 60.0
_STOP_S: Final = 5
_GRACE_S: Final = 2.0
_WATCH_S: Final = 2.0

_log = structlog.get_logger()


@dataclass(frozen=True)
class Server:
    """A running server; `facts` is the first line of `up --json`."""

    facts: dict[str, Any]
    _http: uvicorn.Server
    _serving: asyncio.Task[None]
    _watched: tuple[asyncio.Task[None], ...]

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Serves until told to stop; raises what ended the server from within (`DeclaredDead`, a lost database)."""
        waiting = asyncio.create_task(stopping.wait())
        done, _ = await asyncio.wait({waiting, self._serving, *self._watched}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        self._http.should_exit = True
        await self._serving
        for task in done - {waiting}:
            task.result()


async def start_server(stack: AsyncExitStack, settings: Settings, *, explicit_port: bool, demo: bool) -> Server:
    """Starts everything and returns when the server answers; `stack` holds the stops, in the right order."""
    del demo
    data_dir = settings.data_dir.expanduser().resolve()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = hold_directory(data_dir)
    stack.callback(held.release)
    url, embedded = settings.database_url, None
    if url is None:
        embedded = await EmbeddedServer.start(data_dir, pg_uid=settings.pg_uid, held=held)
        stack.push_async_callback(embedded.stop)
        url = embedded.url
    await asyncio.to_thread(migrate.upgrade, url)
    await asyncio.to_thread(migrate_engine, url)
    database = open_database(url, pool_size=20, may_restart=embedded is None)
    stack.push_async_callback(database.close)
    clock, blobs = SystemClock(), local_blobs(data_dir / "blobs")
    actor = await seed(database, blobs, clock)
    key = await local_key(database, actor, data_dir, clock)
    listener = listen(settings.host, settings.port, explicit=explicit_port)
    stack.callback(listener.close)
    origin = settings.public_url or origin_of(listener, settings.host)
    worker = await _start_worker(stack, settings, database, blobs, data_dir, alone=embedded is not None)
    context = JobsContext(worker.engine, clock, origin, worker.capabilities)
    app = build_app(settings, database, blobs, context, clock, origin, data_dir / "uploads")
    http = await _serve(stack, app, listener)
    async with database.transaction() as session:
        link = await access.create_sign_in_link(session, actor, clock)
    facts = {
        "url": origin,
        "api_key": key,
        "mcp_urls": {"evaluation": f"{origin}/v1/mcp", "teams": None},
        "sign_in_url": f"{origin}/sign-in?link={link}",
        "data_dir": str(data_dir),
    }
    write_server_facts(data_dir, {"url": origin, "database_url": url})
    watched = asyncio.create_task(_watch(embedded))
    stack.callback(watched.cancel)
    return Server(facts, http.server, http.task, (worker.task, watched))


async def _watch(embedded: EmbeddedServer | None) -> None:
    """Raises when the embedded database ended by itself: without it nothing can go on."""
    while embedded is None or embedded.running:  # noqa: ASYNC110 - a process tells nobody that it ended
        await asyncio.sleep(_WATCH_S)
    raise EmbeddedDatabaseFailed("it ended while the server ran", hint="Look at postgres.log in the data directory.")


@dataclass(frozen=True)
class _Http:
    server: uvicorn.Server
    task: asyncio.Task[None]


async def _serve(stack: AsyncExitStack, app: ASGIApp, listener: socket.socket) -> _Http:
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=_STOP_S, server_header=False, lifespan="on"
    )
    server = _QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))

    async def stop() -> None:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(stop)
    while not server.started:
        if task.done():
            task.result()
        await asyncio.sleep(0.01)
    return _Http(server, task)


class _QuietServer(uvicorn.Server):
    """Leaves signals to the composition root: interfaces close first, then the work is handed back."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@dataclass(frozen=True)
class _Work:
    engine: DbosEngine
    capabilities: Capabilities | None
    task: asyncio.Task[None]


async def _start_worker(
    stack: AsyncExitStack,
    settings: Settings,
    database: Database,
    blobs: BlobStore,
    data_dir: Path,
    *,
    alone: bool,
) -> _Work:
    """Starts what claims and runs work. Without a usable sandbox backend Jobs can be submitted, and wait."""
    clock, executor_id = SystemClock(), uuid.uuid4().hex
    provider = BwrapProvider(data_dir / "sandboxes", sandbox_uid=settings.sandbox_uid, host=socket.gethostname())
    problems = await provider.preflight()
    for problem in problems:
        _log.error("no sandbox can run here", code=problem.code, problem=problem.message, fix=problem.fix)
    engine = DbosEngine(database.url, executor_id, slots=settings.slots)
    recovery = Recovery(database, engine, clock)
    trial_queue = trials(provider.name)

    async def held_by_all(session: AsyncSession) -> int:
        return await capacity(session, provider.name)

    pump = Pump(database, engine, held_by_all, trial_queue)
    loops = _loops(database, recovery, pump, provider, clock)
    tools = TrialTools(
        database=database,
        engine=engine,
        provider=provider,
        blobs=blobs,
        tasks=TaskCache(data_dir / "tasks", blobs, provider),
        clock=clock,
        executor_id=executor_id,
        slots=asyncio.Semaphore(settings.slots),
        logs=_private(data_dir / "logs"),
        kick_pump=loops[0].kick,
        kick_below=settings.slots,
    )
    flows.register(engine, tools)
    worker = _worker(stack, settings, database.url, executor_id, provider, clock, usable=not problems)
    process = WorkerProcess.assemble(
        engine=engine,
        worker=worker,
        hand_over=_hand_over(recovery),
        clock=clock,
        alone=alone,
        loops=loops,
    )
    stack.push_async_callback(process.stop, _GRACE_S)
    await process.start([CONTROL, BRANCHES, *([] if problems else [trial_queue])])
    ended = asyncio.create_task(process.declared_dead())
    return _Work(engine, None if problems else provider.capabilities(), ended)


def _worker(
    stack: AsyncExitStack,
    settings: Settings,
    url: str,
    executor_id: str,
    provider: BwrapProvider,
    clock: Clock,
    *,
    usable: bool,
) -> Worker:
    """Returns this process as a worker, with connections of its own: a busy pool is no death."""
    beats = open_database(url, pool_size=5)
    stack.push_async_callback(beats.close)
    return Worker(
        database=beats,
        executor_id=executor_id,
        slots=settings.slots,
        backends=(provider.name,) if usable else (),
        intervals=Intervals(settings.beat_s, settings.self_kill_s, settings.dead_after_s),
        kill_sandboxes=provider.kill_now,
        clock=clock,
    )


def _loops(database: Database, recovery: Recovery, pump: Pump, provider: BwrapProvider, clock: Clock) -> list[Loop]:
    """Returns the periodic work of the layers above the engine; the pump comes first."""

    async def reap() -> None:
        await provider.reap((), now=clock.now())

    return [
        Loop("pump", _PUMP_S, pump.run_once, clock=clock),
        Loop("reconciler", _RECONCILE_S, under_lock(database, Lock.RECONCILER, recovery.reconcile), clock=clock),
        Loop("sandboxes", _REAP_SANDBOXES_S, reap, clock=clock),
    ]


def _hand_over(recovery: Recovery) -> HandOver:
    async def on_dead(session: AsyncSession, executors: Sequence[str]) -> None:
        await budget.write_off(session, workers=executors)

    async def take_over(work_ids: Sequence[str], lost: bool) -> None:
        await recovery.take_over(work_ids, lost=lost)

    return HandOver(on_dead, take_over)


def _private(folder: Path) -> Path:
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder
