"""An engine in this process, and what its tests look at in the database."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import text
from tests.support import eventually

from tollbar.db.session import Database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.port import EngineState, Work

QUEUES = ("control", "trials.bwrap")


@asynccontextmanager
async def engine_of(
    database: Database,
    register: Callable[[DbosEngine], None] = lambda _: None,
    *,
    queues: tuple[str, ...] = QUEUES,
    executor_id: str | None = None,
) -> AsyncIterator[DbosEngine]:
    """Yields an engine that works here, and stops it."""
    engine = DbosEngine(database.url, executor_id or uuid.uuid4().hex)
    register(engine)
    await engine.start(queues)
    try:
        yield engine
    finally:
        await engine.stop()


@asynccontextmanager
async def client_of(database: Database) -> AsyncIterator[DbosEngine]:
    """Yields an engine that only enqueues and asks."""
    engine = DbosEngine(database.url, uuid.uuid4().hex)
    try:
        yield engine
    finally:
        await engine.stop()


async def enqueue(database: Database, engine: DbosEngine, *work: Work) -> None:
    async with database.transaction() as session:
        await engine.enqueue(session, *work)


async def state_of(engine: DbosEngine, work_id: str) -> EngineState | None:
    return (await engine.state([work_id])).get(work_id)


async def reaches(engine: DbosEngine, work_id: str, state: EngineState) -> None:
    """Returns once the work is in that state; fails when it is not within the bound."""

    async def there() -> bool:
        return await state_of(engine, work_id) is state

    await eventually(there)


async def ask(database: Database, statement: str, **values: Any) -> list[Any]:
    """Returns the rows of a statement, committed."""
    async with database.transaction() as session:
        result: Any = await session.execute(text(statement), values)
        return [tuple(row) for row in result] if result.returns_rows else []
