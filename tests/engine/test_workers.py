"""Two and more worker processes on one database: killed, stopped, frozen, restarted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url
from tests.engine.helpers import ask, client_of, enqueue, reaches, state_of
from tests.support import eventually

from tollbar.db.session import Database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.port import EngineState, Work

pytestmark = pytest.mark.slow


@pytest.fixture
async def client(database: Database) -> AsyncIterator[DbosEngine]:
    async with client_of(database) as engine:
        yield engine


def work(*names: str) -> list[Work]:
    return [
        *(Work(f"trial:{name}:1", "trial", "trials.bwrap", (name, 1)) for name in names),
        *(Work(f"run:{name}:seg:1", "segment", "control", (name,)) for name in names),
    ]


async def steps(database: Database, executor_id: str | None = None) -> list[str]:
    rows = await ask(
        database,
        "SELECT name FROM step_run WHERE :who = '' OR executor_id = :who ORDER BY name",
        who=executor_id or "",
    )
    return [row[0] for row in rows]


async def worker_states(database: Database) -> dict[str, str]:
    return dict(await ask(database, "SELECT executor_id, state FROM worker"))


async def becomes(database: Database, executor_id: str, state: str) -> None:
    async def there() -> bool:
        return (await worker_states(database)).get(executor_id) == state

    await eventually(there)


async def test_a_restart_after_sigkill_takes_everything_over_at_its_first_tick(
    database: Database, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    first = await spawn("first")
    await enqueue(database, client, *work("a", "b"))
    await first.hears("step", 6)
    await first.kill()

    # At the default intervals, so nothing that waits for one of them could pass.
    second = await spawn("second", alone=True, blocks=False, beat_s=5, self_kill_s=20, dead_after_s=30)
    (handed,) = await second.hears("take_over", within_s=3)
    assert handed == {"event": "take_over", "ids": ["trial:a:1", "trial:b:1"], "lost": True}
    assert (await second.hears("on_dead"))[0]["ids"] == ["first"]
    for name in ("a", "b"):
        await reaches(client, f"run:{name}:seg:1", EngineState.SUCCESS)
        assert await state_of(client, f"trial:{name}:1") is EngineState.CANCELLED
    assert await steps(database, "second") == ["a:three", "a:two", "b:three", "b:two"]
    await becomes(database, "first", "gone")
    assert (await worker_states(database))["second"] == "live"


async def test_the_work_of_a_killed_worker_is_taken_over_by_another_one_after_its_silence(
    database: Database, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    first = await spawn("first")
    await enqueue(database, client, *work("a"))
    await first.hears("step", 3)
    second, third = await asyncio.gather(spawn("second", blocks=False), spawn("third", blocks=False))
    assert await steps(database) == ["a:1:agent", "a:one", "a:two"]
    await first.kill()
    await reaches(client, "run:a:seg:1", EngineState.SUCCESS)
    await becomes(database, "first", "gone")
    handed = [line for one in (second, third) for line in one.said if line["event"] == "take_over"]
    assert handed == [{"event": "take_over", "ids": ["trial:a:1"], "lost": True}]
    assert await steps(database) == ["a:1:agent", "a:one", "a:three", "a:two", "a:two"]


async def test_a_worker_that_leaves_hands_back_at_once_and_nothing_counts_as_lost(
    database: Database, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    first = await spawn("first")
    await enqueue(database, client, *work("a"))
    await first.hears("step", 3)
    second = await spawn("second", blocks=False)
    first.send(signal.SIGTERM)
    assert await first.ends(5) == 0
    assert sorted(line["name"] for line in first.said if line["event"] == "finally") == ["a:1:agent", "a:two"]
    assert (await second.hears("take_over", within_s=1.4))[0]["lost"] is False
    await reaches(client, "run:a:seg:1", EngineState.SUCCESS)
    await becomes(database, "first", "gone")


@pytest.mark.requirement("G-ENG-17.zombie")
async def test_a_frozen_worker_kills_its_sandboxes_and_ends_with_70_when_it_wakes(
    database: Database, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    first = await spawn("first")
    await enqueue(database, client, *work("a"))
    await first.hears("step", 3)
    second = await spawn("second", blocks=False)
    first.send(signal.SIGSTOP)
    await second.hears("take_over")
    await reaches(client, "run:a:seg:1", EngineState.SUCCESS)
    first.send(signal.SIGCONT)
    assert await first.ends() == 70
    events = [line["event"] for line in first.said]
    assert "killed" in events
    assert events[-1] == "declared dead"
    assert await steps(database, "second") == ["a:three", "a:two"]
    assert await steps(database, "first") == ["a:1:agent", "a:one", "a:two"]


async def test_a_worker_alone_that_was_frozen_for_long_goes_on_after_killing_its_sandboxes(
    database: Database, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    only = await spawn("only", blocks=False)
    only.send(signal.SIGSTOP)
    await asyncio.sleep(2)  # longer than dead-after: time that passes is what is tested
    only.send(signal.SIGCONT)
    await only.hears("killed")
    await enqueue(database, client, *work("a"))
    await reaches(client, "run:a:seg:1", EngineState.SUCCESS)
    assert await worker_states(database) == {"only": "live"}


async def test_a_worker_whose_connections_were_all_cut_goes_on_working(
    database: Database, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    await spawn("only", blocks=False)
    for name in ("a", "b"):
        await enqueue(database, client, *work(name))
        await reaches(client, f"run:{name}:seg:1", EngineState.SUCCESS)
        await reaches(client, f"trial:{name}:1", EngineState.SUCCESS)
        await ask(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
    assert await worker_states(database) == {"only": "live"}


async def test_a_worker_without_a_database_still_ends_what_it_runs_and_itself(
    database: Database, database_server: str, client: DbosEngine, spawn: Callable[..., Any]
) -> None:
    only = await spawn("only")
    await enqueue(database, client, *work("a"))
    await only.hears("step", 3)
    with closed(database, database_server):
        await asyncio.sleep(1)  # so that threads of the library are in their retries
        only.send(signal.SIGTERM)
        assert await only.ends(8) == 0
    assert sorted(line["name"] for line in only.said if line["event"] == "finally") == ["a:1:agent", "a:two"]


@contextmanager
def closed(database: Database, server: str) -> Iterator[None]:
    """Ends every connection to the database and lets nobody in until the block ends."""
    name = make_url(database.url).database
    url = make_url(server).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        yield
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
