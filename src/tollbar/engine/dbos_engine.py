"""The port on DBOS Transact, by its public calls only.

A process that only enqueues never launches it: a launched process serves queues. Flows run on the event loop that
called `start`, so pools and clients of that loop are usable in them.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, StepOptions
from dbos import error as library
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from tollbar.db.session import psycopg_url
from tollbar.engine import queues as queue_rules
from tollbar.engine.config import ENGINE_VERSION, NAME, check_environment, engine_config, quiet_log
from tollbar.engine.errors import WorkExists
from tollbar.engine.migrate import SCHEMA
from tollbar.engine.port import EngineState, F, Json, Pending, Work
from tollbar.kit.jsonio import compact

_MAX_RESULT_BYTES: Final = 64 << 10
_MAX_DISPATCHES: Final = 20
_BATCH: Final = 500
_ENDED: Final = [state.value for state in EngineState if state.is_terminal]
_DESTROY_S: Final = 3.0
_CLEANUP_S: Final = 10.0
"""How long `stop` waits for the `finally` blocks of what it cancelled."""

_log = structlog.get_logger()


class DbosEngine:
    """Implements `port.Engine`. One object per process; `slots` sizes how far claims run ahead.

    Making one does no I/O: the process may enqueue and ask at once, and works only after `start`. A process that
    never starts it needs no `executor_id`. `may_restart` false says that the database lives and dies with this
    process: connections are then not tested before each use.
    """

    def __init__(self, url: str, executor_id: str = "", *, slots: int = 4, may_restart: bool = True) -> None:
        self._url = psycopg_url(url)
        self._executor_id = executor_id
        self._slots = slots
        self._may_restart = may_restart
        self._tasks: set[asyncio.Task[Any]] = set()
        """Tasks of flows until they are done, the wait of a cancelled one for its outcome included."""
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._bodies: Counter[str] = Counter()
        """Ids of flows whose body runs now."""
        self._fewer = asyncio.Event()
        self._launched = False
        self._stopping = False
        self._client_engine = create_engine(
            self._url, pool_size=3, max_overflow=0, pool_pre_ping=may_restart, hide_parameters=True
        )
        self._client = DBOSClient(
            system_database_engine=self._client_engine,
            serializer=DBOSPortableJSONSerializer(),
            dbos_system_schema=SCHEMA,
            application_name=NAME,
            lazy=True,
            # A lost connection is an error of the call that met it: our loops try again by themselves, and a thread
            # that sleeps in a retry could hold the process's end.
            retry_connection_errors=False,
        )

    # --- flows and steps

    def flow(self, name: str) -> Callable[[F], F]:
        """Registers a flow; see the port."""

        def register(function: F) -> F:
            @functools.wraps(function)
            async def tracked(*args: Any) -> Any:
                return await self._run(function, *args)

            DBOS.workflow(name=name, max_recovery_attempts=_MAX_DISPATCHES)(tracked)
            return function

        return register

    async def _run(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        task = asyncio.current_task()
        work_id = DBOS.workflow_id
        assert task is not None
        assert work_id is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._go_on()
        self._bodies[work_id] += 1
        try:
            return await function(*args)
        finally:
            self._bodies[work_id] -= 1
            self._bodies += Counter()  # drops what is no longer counted
            self._fewer.set()

    def _go_on(self) -> None:
        """Ends the flow that asks when the process stops: its work stays claimed and is handed over."""
        if self._stopping:
            raise asyncio.CancelledError

    async def step(
        self,
        name: str,
        function: Callable[..., Awaitable[Json]],
        *args: Any,
        preemptible: bool = False,
        backstop_s: float | None = None,
    ) -> Any:
        """Runs a checkpointed step; see the port."""
        self._go_on()

        async def bounded() -> Json:
            result = await function(*args)
            if len(compact(result).encode()) > _MAX_RESULT_BYTES:
                msg = f"the step {name} returned more than {_MAX_RESULT_BYTES} bytes: large values are blobs"
                raise ValueError(msg)
            return result

        options: StepOptions = {"name": name, "preemptible": preemptible, "timeout_seconds": backstop_s}
        return await DBOS.run_step_async(options, bounded)

    # --- enqueueing and asking

    async def enqueue(self, session: AsyncSession, *work: Work) -> None:
        """Enqueues in the caller's transaction; see the port."""

        def write(sync: Session) -> None:
            for item in work:
                options: Any = {
                    "workflow_name": item.flow,
                    "queue_name": item.queue,
                    "workflow_id": item.id,
                    "workflow_id_reuse_policy": "reject",
                    "priority": item.priority,
                }
                try:
                    self._client.enqueue_in_transaction(sync, options, *item.args)
                except library.DBOSWorkflowIDInUseError:
                    raise WorkExists(item.id) from None

        await session.run_sync(write)

    async def cancel(self, ids: Sequence[str]) -> None:
        """Cancels work; see the port."""
        for batch in _batches(ids):
            await self._client.cancel_workflows_async(batch, cancel_children=True)

    async def state(self, ids: Sequence[str]) -> dict[str, EngineState]:
        """Returns states of known ids; see the port."""
        found: dict[str, EngineState] = {}
        for batch in _batches(ids):
            rows = await self._client.list_workflows_async(workflow_ids=batch, load_input=False, load_output=False)
            found |= {row.workflow_id: EngineState(row.status) for row in rows}
        return found

    async def pending_of(self, executor_id: str) -> list[Pending]:
        """Returns what an executor holds, at most 500; see the port."""
        rows = await self._client.list_workflows_async(
            status="PENDING", executor_id=executor_id, limit=_BATCH, load_input=False, load_output=False
        )
        return [
            Pending(row.workflow_id, row.name, row.queue_name, row.app_version not in {None, ENGINE_VERSION})
            for row in rows
        ]

    async def holders(self) -> set[str]:
        """Returns the executors that hold work, living or dead; see the port."""
        rows = await self._client.list_workflows_async(status="PENDING", load_input=False, load_output=False)
        return {row.executor_id for row in rows if row.executor_id}

    def running(self) -> Collection[str]:
        """Returns the ids of flows that run here; see the port."""
        return frozenset(self._bodies)

    async def resume(self, ids: Sequence[str], queue: str) -> None:
        """Hands work to the living; see the port."""
        for batch in _batches(ids):
            await self._client.resume_workflows_async(batch, queue_name=queue)

    async def purge(self, before: datetime, limit: int = _BATCH) -> int:
        """Deletes rows of ended work; see the port."""
        rows = await self._client.list_workflows_async(
            status=_ENDED,
            completed_before=before.astimezone(UTC).isoformat(),
            limit=limit,
            load_input=False,
            load_output=False,
        )
        if rows:
            await self._client.delete_workflows_async([row.workflow_id for row in rows])
        return len(rows)

    # --- working

    async def start(self, queues: Sequence[str], *, most_slots: int = 1) -> None:
        """Begins to claim work; see the port. The loop stands still for about 0.2 s. Raises `EngineRefused`."""
        check_environment()
        quiet_log()
        # Before the launch: queues that exist are polled at once, others are found a second later.
        for queue in queues:
            rules = queue_rules.limits(queue, max(self._slots, most_slots))
            await self._client.register_queue_async(
                queue,
                worker_concurrency=rules.worker_concurrency,
                polling_interval_sec=rules.polling_interval_s,
                on_conflict="always_update",
            )
        DBOS(config=engine_config(self._url, self._executor_id, may_restart=self._may_restart))
        DBOS.listen_queues(list(queues))
        self._launched = True
        # Here and now, on the loop's own thread: flows run on the loop that is running in the launching thread.
        DBOS.launch()

    def halt(self) -> None:
        """Starts nothing more; see the port."""
        self._stopping = True

    async def stop(self, grace_s: float = 0.0) -> None:
        """Stops claiming and ends what runs here; see the port."""
        self.halt()
        if self._launched:
            self._launched = False
            await self._wait_for_bodies(grace_s)
            # While threads and database still serve their `finally` blocks; what is claimed meanwhile does not start.
            await self._cancel_flows()
            # The library made its own threads the loop's default, and is about to end them.
            loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(thread_name_prefix="tollbar")
            loop.set_default_executor(threads)
            await _destroy()
            loop.set_default_executor(threads)
            await self._cancel_flows()
        self._client.destroy()
        self._client_engine.dispose()

    async def _wait_for_bodies(self, grace_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._bodies:
                    self._fewer.clear()
                    await self._fewer.wait()

    async def _cancel_flows(self) -> None:
        """Cancels each task of a flow once (a second time would cut its clean-up) and awaits its end, bounded."""
        fresh = self._tasks - self._cancelled
        self._cancelled |= fresh
        for task in fresh:
            task.cancel()
        left = (await asyncio.wait(fresh, timeout=_CLEANUP_S))[1] if fresh else set()
        if left:
            _log.error("flows did not end in time", count=len(left), after_s=_CLEANUP_S)


async def _destroy() -> None:
    """Ends the library's threads. Without a database some of them hang in retries, and then they are left behind."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def destroy() -> None:
        DBOS.destroy(destroy_registry=True)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(done.set)

    # A thread that may be left behind: one of a pool would hold the loop's end.
    threading.Thread(target=destroy, name="engine-end", daemon=True).start()
    try:
        async with asyncio.timeout(_DESTROY_S):
            await done.wait()
    except TimeoutError:
        _log.warning("threads of the engine did not end in time", after_s=_DESTROY_S)


def _batches(ids: Sequence[str]) -> list[list[str]]:
    return [list(ids[start : start + _BATCH]) for start in range(0, len(ids), _BATCH)]
