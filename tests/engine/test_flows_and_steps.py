"""Flows run on the loop that started the engine; their finished steps are not run again; a cancel ends what runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from dbos import DBOS
from tests.engine.helpers import ask, client_of, engine_of, enqueue, reaches, state_of
from tests.support import eventually

from tollbar.db.session import Database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.port import EngineState, Work


@contextlib.asynccontextmanager
async def working(
    database: Database, body: Any, *, queues: tuple[str, ...] = ("control",)
) -> AsyncIterator[DbosEngine]:
    """Yields an engine whose flow `flow` is `body(engine, *args)`, with one piece of such work, `it`, enqueued."""

    def register(engine: DbosEngine) -> None:
        @engine.flow("flow")
        async def flow(*args: Any) -> Any:
            return await body(engine, *args)

    async with engine_of(database, register, queues=queues) as engine:
        await enqueue(database, engine, Work("it", "flow", "control"))
        yield engine


@pytest.mark.requirement("G-ENG-16.8")
async def test_a_flow_runs_on_the_loop_that_called_start(database: Database) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    async def body(engine: DbosEngine) -> None:
        await note()
        await engine.step("plain", note)
        await engine.step("preemptible", note, preemptible=True)

    async with working(database, body) as engine:
        await reaches(engine, "it", EngineState.SUCCESS)
    assert loops == [asyncio.get_running_loop()] * 3


@pytest.mark.requirement("G-ENG-16.3")
async def test_everything_that_is_stored_is_json(database: Database) -> None:
    async def give() -> Any:
        return {"facts": [1, None, "x"]}

    async def fail() -> None:
        raise LookupError("no")

    async def body(engine: DbosEngine) -> Any:
        with contextlib.suppress(LookupError):
            await engine.step("fails", fail)
        return await engine.step("gives", give)

    async with working(database, body) as engine:
        await reaches(engine, "it", EngineState.SUCCESS)
    assert await ask(database, "SELECT DISTINCT serialization FROM dbos.workflow_status") == [("portable_json",)]
    assert await ask(
        database, "SELECT function_name, serialization, output::jsonb FROM dbos.operation_outputs ORDER BY function_id"
    ) == [("fails", "portable_json", None), ("gives", "portable_json", {"facts": [1, None, "x"]})]


@pytest.mark.parametrize(("size", "end"), [(60_000, EngineState.SUCCESS), (70_000, EngineState.ERROR)])
async def test_a_step_result_above_64_kib_is_refused(database: Database, size: int, end: EngineState) -> None:
    async def large() -> str:
        return "x" * size

    async def body(engine: DbosEngine) -> None:
        await engine.step("large", large)

    async with working(database, body) as engine:
        await reaches(engine, "it", end)


async def test_a_step_that_hangs_is_ended_by_its_backstop(database: Database) -> None:
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def body(engine: DbosEngine) -> None:
        await engine.step("hangs", hang, backstop_s=0.2)

    async with working(database, body) as engine:
        await reaches(engine, "it", EngineState.ERROR)
    assert ended.is_set()


@pytest.mark.requirement("G-ENG-16.9")
async def test_a_cancel_runs_the_finally_of_a_preemptible_step_and_ends_its_child(database: Database) -> None:
    children: list[asyncio.subprocess.Process] = []

    async def child() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
        children.append(process)
        try:
            await process.wait()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())

    async def body(engine: DbosEngine) -> None:
        await engine.step("child", child, preemptible=True)
        raise AssertionError("the flow went on after its cancel")

    async def dead() -> bool:
        return children[0].returncode is not None

    async with working(database, body) as engine:
        await eventually(lambda: asyncio.sleep(0, children))
        await engine.cancel(["it", "nobody"])
        assert await state_of(engine, "it") is EngineState.CANCELLED
        await eventually(dead, within_s=3)
        await eventually(lambda: asyncio.sleep(0, not engine.running()))
        assert await state_of(engine, "it") is EngineState.CANCELLED
        await engine.cancel(["it"])


async def test_a_step_that_is_not_preemptible_is_not_interrupted_by_a_cancel(database: Database) -> None:
    go_on, log = asyncio.Event(), list[str]()

    async def plain() -> None:
        log.append("begun")
        await go_on.wait()
        log.append("ended")

    async def other() -> None:
        log.append("another step")

    async def body(engine: DbosEngine) -> None:
        await engine.step("plain", plain)
        await engine.step("other", other)

    async with working(database, body) as engine:
        await eventually(lambda: asyncio.sleep(0, log))
        await engine.cancel(["it"])
        # Longer than the interval in which preemptible steps look for a cancel.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await eventually(lambda: asyncio.sleep(0, len(log) > 1))
        go_on.set()
        await eventually(lambda: asyncio.sleep(0, not engine.running()))
    assert log == ["begun", "ended"]


async def test_a_flow_that_is_cancelled_while_it_waits_for_a_slot_runs_no_step(database: Database) -> None:
    slots, release, ran = asyncio.Semaphore(1), asyncio.Event(), list[str]()

    async def hold(name: str) -> None:
        ran.append(name)
        await release.wait()

    def register(engine: DbosEngine) -> None:
        @engine.flow("trial")
        async def trial(name: str) -> None:
            async with slots:
                await engine.step("agent", hold, name, preemptible=True)

    async with engine_of(database, register) as engine:
        await enqueue(database, engine, Work("trial:a:1", "trial", "trials.bwrap", ("a",)))
        await eventually(lambda: asyncio.sleep(0, ran))
        await enqueue(
            database, engine, *(Work(f"trial:{name}:1", "trial", "trials.bwrap", (name,)) for name in ("b", "c"))
        )
        await eventually(lambda: asyncio.sleep(0, len(engine.running()) == 3))
        await engine.cancel(["trial:b:1"])
        release.set()
        await reaches(engine, "trial:a:1", EngineState.SUCCESS)
        await reaches(engine, "trial:c:1", EngineState.SUCCESS)
        assert await state_of(engine, "trial:b:1") is EngineState.CANCELLED
    assert ran == ["a", "c"]


@pytest.mark.requirement("G-ENG-16.1")
async def test_work_that_was_cancelled_before_it_was_claimed_never_starts(database: Database) -> None:
    async def body(engine: DbosEngine) -> None:
        raise AssertionError("started")

    async with client_of(database) as client:
        await enqueue(database, client, Work("before", "flow", "control"))
        await client.cancel(["before"])
    async with working(database, body) as engine:
        await reaches(engine, "it", EngineState.ERROR)
        assert await state_of(engine, "before") is EngineState.CANCELLED


@pytest.mark.requirement("G-ENG-16.2", "G-ENG-17.pickle")
async def test_a_pickled_row_is_refused_and_the_worker_goes_on(database: Database, tmp_path: Any) -> None:
    import base64
    import pickle  # noqa: TID251 - this is the attack

    class Payload:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "pwned"),)

    async def body(engine: DbosEngine) -> None:
        return None

    row = base64.b64encode(pickle.dumps({"args": (Payload(),), "kwargs": {}})).decode()
    async with client_of(database) as client:
        await enqueue(database, client, Work("planted", "flow", "control"))
    await ask(database, "UPDATE dbos.workflow_status SET serialization = 'py_pickle'")
    await ask(database, "UPDATE dbos.workflow_input SET inputs = :row", row=row)
    async with working(database, body) as engine:
        await reaches(engine, "planted", EngineState.ERROR)
        await reaches(engine, "it", EngineState.SUCCESS)
    assert not (tmp_path / "pwned").exists()


async def test_a_process_without_queues_of_its_own_still_serves_the_internal_one(database: Database) -> None:
    """The reason why a process that only enqueues never launches the engine."""

    async def body(engine: DbosEngine) -> None:
        return None

    async with working(database, body, queues=()) as engine:
        await enqueue(database, engine, Work("internal", "flow", "_dbos_internal_queue"))
        await reaches(engine, "internal", EngineState.SUCCESS)
        assert await state_of(engine, "it") is EngineState.ENQUEUED


@pytest.mark.requirement("G-ENG-16.5")
async def test_work_without_a_version_goes_to_the_newest_registered_one_alone(database: Database) -> None:
    async def body(engine: DbosEngine) -> None:
        return None

    async with working(database, body) as engine:
        await reaches(engine, "it", EngineState.SUCCESS)
        await ask(
            database,
            "INSERT INTO dbos.application_versions (version_id, version_name, application_name, version_timestamp)"
            " SELECT 'other', 'other', application_name, version_timestamp + 1 FROM dbos.application_versions",
        )
        await enqueue(database, engine, Work("later", "flow", "control"))
        with pytest.raises(AssertionError):
            await eventually(lambda: asyncio.sleep(0, engine.running()), within_s=0.8)
        assert await state_of(engine, "later") is EngineState.ENQUEUED
        await DBOS.set_latest_application_version_async("1")
        await reaches(engine, "later", EngineState.SUCCESS)
