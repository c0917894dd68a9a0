"""What the engine relies on in the library and its tables; a change there must be noticed here first."""

from __future__ import annotations

import asyncio
import inspect
from importlib.metadata import version

import pytest
from dbos import DBOSClient
from dbos._serialization import DefaultSerializer
from tests.engine.helpers import ask, engine_of, enqueue, reaches, state_of

from tollbar.db.session import Database, open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.migrate import migrate
from tollbar.engine.port import EngineState, Work


def keyword_only(function: object) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_library_is_the_measured_one() -> None:
    assert version("dbos").startswith("3.4.")


@pytest.mark.requirement("G-ENG-16.1")
def test_the_calls_of_a_take_over_have_the_signatures_that_were_verified() -> None:
    listing = keyword_only(DBOSClient.list_workflows_async)
    assert {"status", "executor_id", "limit", "load_input", "load_output", "completed_before", "workflow_ids"} <= set(
        listing
    )
    assert keyword_only(DBOSClient.resume_workflows_async) == {"queue_name": None, "shard_key": None}
    assert keyword_only(DBOSClient.cancel_workflows_async) == {"cancel_children": False, "shard_key": None}
    assert {"delete_children"} <= set(keyword_only(DBOSClient.delete_workflows_async))


@pytest.mark.requirement("G-ENG-16.2")
def test_pickle_is_refused_where_rows_are_read_and_nowhere_else() -> None:
    assert DefaultSerializer.deserialize.__module__ == "tollbar.engine.guard"
    assert DefaultSerializer.serialize.__module__ == "dbos._serialization"


async def test_the_engine_makes_its_tables_in_a_schema_of_its_own_once(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    await asyncio.gather(*(asyncio.to_thread(migrate, empty_database_url) for _ in range(2)))
    counts = "SELECT table_schema, count(*) FROM information_schema.tables WHERE table_schema IN ('dbos', 'public')"
    made = await ask(database, f"{counts} GROUP BY 1")
    await asyncio.to_thread(migrate, empty_database_url)
    assert made == [("dbos", 13)]
    assert await ask(database, f"{counts} GROUP BY 1") == made
    await database.close()


@pytest.mark.requirement("G-ENG-16.12")
async def test_the_columns_and_states_that_we_read_exist(database: Database) -> None:
    found = dict(
        await ask(
            database,
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'dbos' AND table_name = 'workflow_status'",
        )
    )
    expected = {
        "workflow_uuid": "text",
        "status": "text",
        "name": "text",
        "queue_name": "text",
        "executor_id": "text",
        "application_version": "text",
        "application_name": "text",
        "recovery_attempts": "bigint",
        "serialization": "text",
        "started_at_epoch_ms": "bigint",
        "completed_at": "bigint",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert {state.value for state in EngineState} == {
        "DELAYED",
        "ENQUEUED",
        "PENDING",
        "SUCCESS",
        "ERROR",
        "CANCELLED",
        "MAX_RECOVERY_ATTEMPTS_EXCEEDED",
    }


@pytest.mark.requirement("G-ENG-16.7")
async def test_a_process_that_listens_to_no_queue_still_serves_the_internal_one(database: Database) -> None:
    """Why a process of interfaces alone never launches the library."""
    ran: list[str] = []

    def register(engine: DbosEngine) -> None:
        @engine.flow("job")
        async def job(name: str) -> None:
            ran.append(name)

        del job

    async with engine_of(database, register, queues=()) as engine:
        await enqueue(database, engine, Work("job:a", "job", "control", ("a",)))
        await enqueue(database, engine, Work("job:b", "job", "_dbos_internal_queue", ("b",)))
        await reaches(engine, "job:b", EngineState.SUCCESS)
        assert await state_of(engine, "job:a") is EngineState.ENQUEUED
    assert ran == ["b"]
