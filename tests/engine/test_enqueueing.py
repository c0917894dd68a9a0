"""Work is enqueued in the caller's own transaction, by processes that never launch the engine."""

from __future__ import annotations

import pytest
from dbos import DBOS
from sqlalchemy import text
from tests.engine.helpers import ask, client_of, engine_of, enqueue, reaches, state_of

from tollbar.db.session import Database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.errors import WorkExists
from tollbar.engine.port import EngineState, Work


@pytest.fixture
async def notes(database: Database) -> Database:
    """A table of our own beside the engine's."""
    await ask(database, "CREATE TABLE note (id text PRIMARY KEY)")
    return database


@pytest.mark.requirement("G-ENG-16.4")
async def test_work_is_committed_with_our_rows(notes: Database) -> None:
    async with client_of(notes) as engine:
        async with notes.transaction() as session:
            await session.execute(text("INSERT INTO note VALUES ('a')"))
            await engine.enqueue(
                session, Work("job:a", "job", "control", ("a", 1, None, ["x"], {"k": 1.5}), priority=7)
            )
        assert await state_of(engine, "job:a") is EngineState.ENQUEUED
    assert await ask(notes, "SELECT id FROM note") == [("a",)]
    assert await ask(
        notes,
        "SELECT name, queue_name, priority, application_version, application_name, serialization, status"
        " FROM dbos.workflow_status",
    ) == [("job", "control", 7, None, "tollbar", "portable_json", "ENQUEUED")]
    assert await ask(notes, "SELECT inputs::jsonb FROM dbos.workflow_input") == [
        ({"namedArgs": {}, "positionalArgs": ["a", 1, None, ["x"], {"k": 1.5}]},)
    ]


@pytest.mark.requirement("G-ENG-16.4")
async def test_a_rolled_back_transaction_leaves_no_work(notes: Database) -> None:
    async def submit(engine: DbosEngine) -> None:
        async with notes.transaction() as session:
            await session.execute(text("INSERT INTO note VALUES ('a')"))
            await engine.enqueue(session, Work("job:a", "job", "control", ("a",)))
            raise LookupError

    async with client_of(notes) as engine:
        with pytest.raises(LookupError):
            await submit(engine)
        assert await engine.state(["job:a"]) == {}
    for table in ("note", "dbos.workflow_status", "dbos.workflow_input"):
        assert await ask(notes, f"SELECT * FROM {table}") == []


@pytest.mark.requirement("G-ENG-16.4")
async def test_an_id_that_exists_is_refused_and_the_transaction_goes_on(notes: Database) -> None:
    async with client_of(notes) as engine:
        await enqueue(notes, engine, Work("job:a", "job", "control", ("first",)))
        async with notes.transaction() as session:
            with pytest.raises(WorkExists) as refusal:
                await engine.enqueue(session, Work("job:a", "job", "control", ("second",)))
            await session.execute(text("INSERT INTO note VALUES ('after')"))
        assert refusal.value.work_id == "job:a"
    assert await ask(notes, "SELECT id FROM note") == [("after",)]
    assert await ask(notes, "SELECT inputs::jsonb -> 'positionalArgs' FROM dbos.workflow_input") == [(["first"],)]


@pytest.mark.requirement("G-ENG-16.4")
async def test_our_statements_still_find_our_tables_after_an_enqueue(notes: Database) -> None:
    async with client_of(notes) as engine, notes.transaction() as session:
        before = await session.scalar(text("SHOW search_path"))
        await engine.enqueue(session, Work("job:a", "job", "control"))
        assert await session.scalar(text("SHOW search_path")) == before
        assert await session.scalar(text("SELECT count(*) FROM note")) == 0


async def test_five_hundred_pieces_of_work_go_in_one_transaction(notes: Database) -> None:
    async with client_of(notes) as engine:
        await enqueue(notes, engine, *(Work(f"trial:{n}:1", "trial", "trials.bwrap", (n, 1)) for n in range(500)))
        assert len(await engine.state([f"trial:{n}:1" for n in range(600)])) == 500


@pytest.mark.requirement("G-ENG-16.6")
async def test_smaller_priorities_start_first_and_a_row_without_one_before_all(database: Database) -> None:
    started: list[str] = []

    def register(engine: DbosEngine) -> None:
        @engine.flow("note")
        async def note(name: str) -> None:
            started.append(name)

    async with engine_of(database, register, queues=("solo",)) as engine:
        await DBOS.register_queue_async(
            "solo", worker_concurrency=1, polling_interval_sec=0.02, on_conflict="always_update"
        )
        async with database.transaction() as session:
            for name, priority in (("third", 1000), ("second", 1), ("first", 500)):
                await engine.enqueue(session, Work(f"note:{name}", "note", "solo", (name,), priority))
            await session.execute(
                text("UPDATE dbos.workflow_status SET priority = 0 WHERE workflow_uuid = 'note:first'")
            )
        await reaches(engine, "note:third", EngineState.SUCCESS)
    assert started == ["first", "second", "third"]
