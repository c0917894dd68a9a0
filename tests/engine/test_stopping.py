"""A worker that stops ends what runs, and leaves it claimed for whoever takes it over."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.engine.helpers import ask, client_of, engine_of, enqueue, reaches, state_of
from tests.support import eventually

from tollbar.db.session import Database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.errors import EngineRefused
from tollbar.engine.port import EngineState, Pending, Work


class Trials:
    """A flow whose step runs until it is released, and a log of what happened."""

    def __init__(self, *, slots: int = 1) -> None:
        self.log: list[str] = []
        self.release = asyncio.Event()
        self.slots = asyncio.Semaphore(slots)

    def register(self, engine: DbosEngine) -> None:
        @engine.flow("trial")
        async def trial(name: str) -> None:
            async with self.slots:
                await engine.step("agent", self.agent, name, preemptible=True)
                await engine.step("grade", self.grade, name)

    async def agent(self, name: str) -> str:
        self.log.append(f"agent {name}")
        try:
            await self.release.wait()
        finally:
            # What a sandbox needs at its end: threads that still work.
            await asyncio.to_thread(self.log.append, f"killed {name}")
        return name

    async def grade(self, name: str) -> None:
        self.log.append(f"grade {name}")

    async def begun(self) -> None:
        await eventually(lambda: asyncio.sleep(0, self.log))


def trial(name: str) -> Work:
    return Work(f"trial:{name}:1", "trial", "trials.bwrap", (name,))


@pytest.mark.requirement("G-ENG-16.13")
async def test_stopping_runs_every_finally_and_leaves_the_work_claimed(database: Database) -> None:
    trials = Trials()
    async with engine_of(database, trials.register, executor_id="first") as engine:
        await enqueue(database, engine, trial("a"))
        await trials.begun()
    assert trials.log == ["agent a", "killed a"]
    async with client_of(database) as client:
        assert await client.pending_of("first") == [Pending("trial:a:1", "trial", "trials.bwrap")]
        assert await client.holders() == {"first"}
    assert await asyncio.to_thread(lambda: "threads work afterwards")


async def test_what_is_nearly_done_finishes_within_the_grace_and_nothing_new_starts(database: Database) -> None:
    trials = Trials()
    engine = DbosEngine(database.url, "first")
    trials.register(engine)
    await engine.start(["trials.bwrap"])
    await enqueue(database, engine, trial("a"))
    await trials.begun()
    await enqueue(database, engine, trial("waits"))
    await eventually(lambda: asyncio.sleep(0, len(engine.running()) == 2))
    stopping = asyncio.create_task(engine.stop(grace_s=5))
    await asyncio.sleep(0)
    trials.release.set()
    async with asyncio.timeout(3):
        await stopping
    assert trials.log == ["agent a", "killed a"]
    async with client_of(database) as client:
        assert {item.id for item in await client.pending_of("first")} == {"trial:a:1", "trial:waits:1"}
    assert await ask(database, "SELECT function_name FROM dbos.operation_outputs") == [("agent",)]


async def test_nothing_begins_after_a_halt_and_what_was_claimed_stays_claimed(database: Database) -> None:
    trials = Trials()
    async with engine_of(database, trials.register, executor_id="first") as engine:
        engine.halt()
        await enqueue(database, engine, trial("a"))
        await reaches(engine, "trial:a:1", EngineState.PENDING)
    assert trials.log == []
    async with client_of(database) as client:
        assert [item.id for item in await client.pending_of("first")] == ["trial:a:1"]


@pytest.mark.requirement("G-ENG-16.1")
async def test_a_finished_step_is_not_run_again_by_the_next_worker(database: Database) -> None:
    first = Trials()
    engine = DbosEngine(database.url, "first")
    first.register(engine)
    await engine.start(["trials.bwrap"])
    await enqueue(database, engine, trial("a"))
    await first.begun()
    stopping = asyncio.create_task(engine.stop(grace_s=5))
    await asyncio.sleep(0)
    first.release.set()
    await stopping

    second = Trials()
    async with engine_of(database, second.register, executor_id="second") as engine:
        await engine.resume(["trial:a:1"], "trials.bwrap")
        await reaches(engine, "trial:a:1", EngineState.SUCCESS)
    assert second.log == ["grade a"]


@pytest.mark.requirement("G-ENG-16.14")
async def test_a_changed_order_of_steps_ends_the_work_with_an_error_that_says_so(database: Database) -> None:
    first = Trials()
    engine = DbosEngine(database.url, "first")
    first.register(engine)
    await engine.start(["trials.bwrap"])
    await enqueue(database, engine, trial("a"))
    await first.begun()
    stopping = asyncio.create_task(engine.stop(grace_s=5))
    await asyncio.sleep(0)
    first.release.set()
    await stopping

    def register(engine: DbosEngine) -> None:
        @engine.flow("trial")
        async def changed(name: str) -> None:
            await engine.step("prepare", first.grade, name)

    async with engine_of(database, register) as engine:
        await engine.resume(["trial:a:1"], "trials.bwrap")
        await reaches(engine, "trial:a:1", EngineState.ERROR)
    assert await ask(database, "SELECT error::jsonb ->> 'name' FROM dbos.workflow_output") == [
        ("DBOSUnexpectedStepError",)
    ]


@pytest.mark.requirement("G-ENG-16.1", "G-ENG-16.10")
async def test_a_former_owner_finishes_no_step_after_a_resume(database: Database) -> None:
    log, gates = list[str](), [asyncio.Event(), asyncio.Event()]
    gates[1].set()

    async def wait(number: int) -> int:
        log.append(f"begun {number}")
        await gates[number].wait()
        return number

    async def write(number: int) -> None:
        log.append(f"written {number}")

    runs: list[int] = []

    def register(engine: DbosEngine) -> None:
        @engine.flow("segment")
        async def segment() -> Any:
            runs.append(len(runs))
            number = await engine.step("wait", wait, runs[-1])
            await engine.step("write", write, number)

    async with engine_of(database, register) as engine:
        await enqueue(database, engine, Work("run:a:seg:1", "segment", "control"))
        await eventually(lambda: asyncio.sleep(0, log))
        await engine.resume(["run:a:seg:1"], "control")
        await reaches(engine, "run:a:seg:1", EngineState.SUCCESS)
        gates[0].set()
        await eventually(lambda: asyncio.sleep(0, not engine.running()))
    assert log == ["begun 0", "begun 1", "written 1"]
    assert await ask(database, "SELECT output FROM dbos.operation_outputs WHERE function_name = 'wait'") == [("1",)]


@pytest.mark.requirement("G-ENG-16.1")
async def test_resume_keeps_priority_and_leaves_ended_work_alone(database: Database) -> None:
    async with client_of(database) as client:
        await enqueue(database, client, Work("held", "x", "control", (), 7), Work("done", "x", "control"))
        await ask(
            database,
            "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = 'dead', application_version = '1'"
            " WHERE workflow_uuid = 'held'",
        )
        await ask(database, "UPDATE dbos.workflow_status SET status = 'SUCCESS' WHERE workflow_uuid = 'done'")
        with pytest.raises(Exception, match="missing"):
            await client.resume(["held", "missing"], "control")
        assert await state_of(client, "held") is EngineState.PENDING
        await client.resume(["held", "done"], "other")
    assert await ask(
        database,
        "SELECT workflow_uuid, status, queue_name, priority, application_version FROM dbos.workflow_status ORDER BY 1",
    ) == [("done", "SUCCESS", "control", 1000, None), ("held", "ENQUEUED", "other", 7, "1")]


async def test_cancels_and_stops_write_no_errors_in_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    trials = Trials(slots=2)
    async with engine_of(database, trials.register) as engine:
        await enqueue(database, engine, trial("a"), trial("b"))
        await eventually(lambda: asyncio.sleep(0, len(trials.log) == 2))
        await engine.cancel(["trial:a:1"])
        await eventually(lambda: asyncio.sleep(0, len(engine.running()) == 1))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_cloud_variable_of_the_library_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBOS__CLOUD", "true")
    engine = DbosEngine(database.url, "first")
    with pytest.raises(EngineRefused, match="DBOS__CLOUD"):
        await engine.start(["control"])
    await engine.stop()


async def test_ended_work_is_purged_after_its_time(database: Database, clock: Any) -> None:
    async with client_of(database) as client:
        await enqueue(database, client, *(Work(f"w:{n}", "x", "control") for n in range(4)))
        await ask(
            database,
            "UPDATE dbos.workflow_status SET status = 'SUCCESS', completed_at = :at WHERE workflow_uuid < 'w:3'",
            at=int(clock.now().timestamp() * 1000),
        )
        assert await client.purge(clock.now()) == 3
        assert await client.purge(clock.now()) == 0
        assert await client.state(["w:0", "w:3"]) == {"w:3": EngineState.ENQUEUED}
    assert await ask(database, "SELECT workflow_uuid FROM dbos.workflow_input") == [("w:3",)]
