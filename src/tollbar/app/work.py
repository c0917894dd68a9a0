"""The work of a process: what claims Trials and runs them, and its part in the installation's housekeeping."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import structlog
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.agents.software import FOLDER, offered
from tollbar.app.backends import Backends, find_backends
from tollbar.app.gateway import WorkerGateway, start_gateway
from tollbar.app.installation import Installation, made
from tollbar.app.retention import Leftovers, Patient, Retention
from tollbar.budget import service as budget
from tollbar.db.session import open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.liveness import Intervals, Worker, capacities
from tollbar.engine.locks import Lock, under_lock
from tollbar.engine.loops import Loop
from tollbar.engine.process import WorkerProcess
from tollbar.engine.queues import BRANCHES, CONTROL, trials
from tollbar.engine.reaper import HandOver
from tollbar.gateway.egress import Outside
from tollbar.jobs import flows
from tollbar.jobs.pump import Pump
from tollbar.jobs.recovery import Recovery
from tollbar.jobs.taskcache import TaskCache
from tollbar.jobs.tools import Site, TrialTools
from tollbar.sandboxes.interface import Capabilities

_PUMP_S: Final = 0.5
_RECONCILE_BEATS: Final = 5
"""Two passes find what nobody drives: at the defaults within a minute."""
_REAP_SANDBOXES_S: Final = 60.0
_HOUSEKEEPING_S: Final = 3600.0
_BEAT_CONNECTIONS: Final = 5

_log = structlog.get_logger()


@dataclass(frozen=True)
class Work:
    """Work that has begun. `ended` raises `DeclaredDead` when the other workers gave this one up."""

    engine: DbosEngine
    worker_id: str
    backends: tuple[str, ...]
    """Names of the sandbox backends that work here."""
    capabilities: Mapping[str, Capabilities]
    """What each backend's sandboxes can enforce; empty when none can run here."""
    ended: asyncio.Task[None]


async def start_work(stack: AsyncExitStack, installation: Installation, *, grace_s: float) -> Work:
    """Begins to claim and run work; `stack` hands it back, after `grace_s` for what is nearly done.

    Without a usable sandbox backend no Trial is claimed here, only control work.
    """
    backends = await find_backends(stack, installation.settings, installation.data_dir)
    worker_id = uuid.uuid4().hex
    clock = installation.clock
    engine = DbosEngine(
        installation.database.url,
        worker_id,
        slots=installation.settings.slots,
        may_restart=not installation.alone,
    )
    gateway = await start_gateway(stack, installation, engine, worker_id)
    recovery = Recovery(installation.database, engine, clock, gateway)
    loops = _loops(installation, engine, recovery, backends)
    flows.register(engine, _tools(installation, engine, backends, gateway, worker_id, loops[0]))
    process = WorkerProcess.assemble(
        engine=engine,
        worker=_worker(stack, installation, worker_id, backends),
        hand_over=_hand_over(recovery, reaper=loops[-1]),
        clock=clock,
        alone=installation.alone,
        loops=loops,
        keep_days=installation.settings.keep_engine_days,
    )
    stack.push_async_callback(process.stop, grace_s)
    await process.start([CONTROL, BRANCHES, *map(trials, backends.names)])
    ended = asyncio.create_task(process.declared_dead())
    return Work(engine, worker_id, backends.names, backends.capabilities, ended)


def _tools(
    installation: Installation,
    engine: DbosEngine,
    backends: Backends,
    gateway: WorkerGateway,
    worker_id: str,
    pump: Loop,
) -> TrialTools:
    data_dir, slots = installation.data_dir, installation.settings.slots
    sites = {
        name: Site(backend, TaskCache(data_dir / "tasks", installation.blobs, backend))
        for name, backend in backends.usable.items()
    }
    provider = backends.first
    return TrialTools(
        database=installation.database,
        engine=engine,
        provider=provider,
        blobs=installation.blobs,
        tasks=TaskCache(data_dir / "tasks", installation.blobs, provider),
        clock=installation.clock,
        executor_id=worker_id,
        slots=asyncio.Semaphore(slots),
        logs=made(data_dir / "logs"),
        kick_pump=pump.kick,
        kick_below=slots,
        software=data_dir / FOLDER,
        gateway=gateway,
        redactor=installation.vault.redactor,
        sites=sites,
        outside=Outside(own_hosts=_own_hosts(installation)),
    )


def _own_hosts(installation: Installation) -> tuple[str, ...]:
    """Returns the hosts of the server and its database, as far as they have names or addresses."""
    public = urlsplit(installation.settings.public_url or "").hostname
    database = make_url(installation.database.url).host
    return tuple(host for host in (public, database) if host and not host.startswith("/"))


def _worker(stack: AsyncExitStack, installation: Installation, worker_id: str, backends: Backends) -> Worker:
    """Returns this process as a worker, with connections of its own: a busy pool is no death."""
    settings = installation.settings
    beats = open_database(installation.database.url, pool_size=_BEAT_CONNECTIONS)
    stack.push_async_callback(beats.close)
    return Worker(
        database=beats,
        executor_id=worker_id,
        slots=settings.slots,
        backends=backends.names,
        intervals=Intervals(settings.beat_s, settings.self_kill_s, settings.dead_after_s),
        kill_sandboxes=backends.kill_now,
        clock=installation.clock,
        software=lambda: offered(installation.data_dir / FOLDER),
    )


def _loops(installation: Installation, engine: DbosEngine, recovery: Recovery, backends: Backends) -> list[Loop]:
    """Returns the periodic work of the layers above the engine: the pump comes first, the reaper of sandboxes last."""
    database, clock = installation.database, installation.clock
    settings = installation.settings
    housekeeping = Patient(
        Retention(database, installation.blobs, clock, settings.keep_artifacts_days),
        Leftovers(database, installation.data_dir, clock, settings.keep_cache_days),
        clock,
    )

    async def reap() -> None:
        await backends.reap(clock.now())

    reconcile_s = _RECONCILE_BEATS * installation.settings.beat_s
    pump = Pump(database, engine, capacities)
    return [
        Loop("pump", _PUMP_S, pump.run_once, clock=clock),
        Loop("reconciler", reconcile_s, under_lock(database, Lock.RECONCILER, recovery.reconcile), clock=clock),
        Loop("housekeeping", _HOUSEKEEPING_S, housekeeping.run_once, clock=clock),
        Loop("sandboxes", _REAP_SANDBOXES_S, reap, clock=clock),
    ]


def _hand_over(recovery: Recovery, reaper: Loop) -> HandOver:
    """What a dead worker of this machine left is removed at once: containers do not end with it."""

    async def on_dead(session: AsyncSession, executors: Sequence[str]) -> None:
        await budget.write_off(session, workers=executors)

    async def take_over(work_ids: Sequence[str], lost: bool) -> None:
        await recovery.take_over(work_ids, lost=lost)

    async def sweep(worker_id: str, lost: bool) -> None:
        await recovery.sweep(worker_id, lost=lost)
        reaper.kick()

    return HandOver(on_dead, take_over, sweep)
