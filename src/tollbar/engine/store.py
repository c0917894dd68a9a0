"""Statements on workers. They are the installation's own rows, so no actor scopes them.

Times come from `clock_timestamp()` of the database, never from a worker's clock.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.engine.tables import WorkerRow, WorkerState, origins

_BEATING = [WorkerState.LIVE.value, WorkerState.LEAVING.value]


async def add_worker(
    session: AsyncSession,
    executor_id: str,
    *,
    host: str,
    pid: int,
    engine_version: str,
    backends: list[str],
    slots: int,
    software: list[str] | None = None,
) -> None:
    """Adds a living worker."""
    await session.execute(
        insert(WorkerRow).values(
            executor_id=executor_id,
            host=host,
            pid=pid,
            engine_version=engine_version,
            backends=backends,
            slots=slots,
            software=software or [],
            state=WorkerState.LIVE.value,
        )
    )


async def beat(session: AsyncSession, executor_id: str, software: list[str]) -> bool:
    """Notes that a worker lives, and what its machine has; False when it was declared dead."""
    result: Any = await session.execute(
        update(WorkerRow)
        .where(WorkerRow.executor_id == executor_id, WorkerRow.state.in_(_BEATING))
        .values(beat_at=func.clock_timestamp(), software=software)
    )
    return result.rowcount == 1


async def move(session: AsyncSession, executor_id: str, target: WorkerState) -> bool:
    """Moves a worker where its state allows it, and says whether it did."""
    result: Any = await session.execute(
        update(WorkerRow)
        .where(WorkerRow.executor_id == executor_id, WorkerRow.state.in_(origins(target)))
        .values(state=target.value)
    )
    return result.rowcount == 1


async def declare_dead(session: AsyncSession, me: str, silent_s: float) -> list[str]:
    """Declares workers dead that gave no sign for longer than `silent_s`, never the caller; returns their ids."""
    silence = func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, silent_s)
    return list(
        await session.scalars(
            update(WorkerRow)
            .where(
                WorkerRow.executor_id != me,
                WorkerRow.state.in_(origins(WorkerState.DEAD)),
                WorkerRow.beat_at < silence,
            )
            .values(state=WorkerState.DEAD.value)
            .returning(WorkerRow.executor_id)
        )
    )


async def ended(session: AsyncSession) -> dict[str, WorkerState]:
    """Returns the workers whose work waits for a take-over, dead or left, the oldest first."""
    states = [WorkerState.DEAD.value, WorkerState.LEFT.value]
    rows = await session.execute(
        select(WorkerRow.executor_id, WorkerRow.state).where(WorkerRow.state.in_(states)).order_by(WorkerRow.beat_at)
    )
    return {row[0]: WorkerState(row[1]) for row in rows}


async def states(session: AsyncSession) -> dict[str, WorkerState]:
    """Returns every known worker with its state."""
    rows = await session.execute(select(WorkerRow.executor_id, WorkerRow.state))
    return {row[0]: WorkerState(row[1]) for row in rows}


async def workers(session: AsyncSession) -> list[tuple[WorkerRow, float]]:
    """Returns the workers that beat or whose work waits for a take-over, each with its silence in seconds."""
    silence = func.extract("epoch", func.clock_timestamp() - WorkerRow.beat_at)
    query = select(WorkerRow, silence).where(WorkerRow.state != WorkerState.GONE.value).order_by(WorkerRow.started_at)
    return [(row[0], float(row[1])) for row in await session.execute(query)]


async def living_slots(session: AsyncSession, backend: str) -> list[int]:
    """Returns the slots of each worker that takes work of that backend."""
    query = select(WorkerRow.slots).where(
        WorkerRow.state == WorkerState.LIVE.value, WorkerRow.backends.contains([backend])
    )
    return list(await session.scalars(query))


async def slots_of_each(session: AsyncSession) -> list[tuple[str, int]]:
    """Returns backend and slots of each worker that takes work, once for each of its backends."""
    query = select(func.unnest(WorkerRow.backends), WorkerRow.slots).where(WorkerRow.state == WorkerState.LIVE.value)
    return [(row[0], row[1]) for row in await session.execute(query)]


async def living_software(session: AsyncSession) -> list[list[str]]:
    """Returns for each worker that takes work what its machine has of the software of agents."""
    query = select(WorkerRow.software).where(WorkerRow.state == WorkerState.LIVE.value)
    return list(await session.scalars(query))


async def slots_by_backend(session: AsyncSession) -> dict[str, int]:
    """Returns how many slots the living workers have together, by backend."""
    backend = func.unnest(WorkerRow.backends).column_valued("backend")
    query = select(backend, func.sum(WorkerRow.slots)).where(WorkerRow.state == WorkerState.LIVE.value)
    return {row[0]: int(row[1]) for row in await session.execute(query.group_by(backend))}


async def served_backends(session: AsyncSession, silent_s: float) -> frozenset[str]:
    """Returns the backends of the workers that live and have beaten within `silent_s`."""
    silence = func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, silent_s)
    query = select(func.unnest(WorkerRow.backends)).where(
        WorkerRow.state == WorkerState.LIVE.value, WorkerRow.beat_at >= silence
    )
    return frozenset(await session.scalars(query))


async def forget_gone(session: AsyncSession, silent_days: int) -> None:
    """Deletes workers of which nothing has been left for so long."""
    silence = func.clock_timestamp() - func.make_interval(0, 0, 0, silent_days)
    await session.execute(
        delete(WorkerRow).where(WorkerRow.state == WorkerState.GONE.value, WorkerRow.beat_at < silence)
    )


async def try_lock(session: AsyncSession, space: int, key: int) -> bool:
    """Takes an advisory lock until the transaction ends, or says that another holds it."""
    statement = text("SELECT pg_try_advisory_xact_lock(:space, :key)")
    return bool(await session.scalar(statement, {"space": space, "key": key}))


async def wait_lock(session: AsyncSession, space: int, key: int) -> None:
    """Takes an advisory lock until the transaction ends, once others have let it go."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:space, :key)"), {"space": space, "key": key})


async def limit_idle(session: AsyncSession, limit_s: float) -> None:
    """Ends this transaction, and with it its locks, when its process stands still for so long."""
    statement = text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)")
    await session.execute(statement, {"limit": f"{int(limit_s * 1000)}ms"})


async def touch(session: AsyncSession) -> None:
    """Uses the connection; raises when the database has ended it."""
    await session.execute(text("SELECT 1"))
