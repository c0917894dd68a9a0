"""Locks of the whole installation: one process at a time pumps, reaps, reconciles.

PostgreSQL's advisory locks in their two-integer form; the first integer is tollbar's, so they cannot meet others.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import Database
from tollbar.engine import store

SPACE: Final = 0x70_6F_6C
_LONGEST_S: Final = 600.0


class Lock(IntEnum):
    """What only one process does at a time; the numbers never change."""

    PUMP = 1
    REAPER = 2
    RECONCILER = 3
    RETENTION = 4
    SEEDS = 5
    BLOBS = 6
    """Blobs are being removed, or copied by a backup."""


async def take_turns(session: AsyncSession, lock: Lock) -> None:
    """Waits until no other process holds `lock` and holds it until the transaction ends."""
    await store.wait_lock(session, SPACE, lock)


@asynccontextmanager
async def elected(
    database: Database, lock: Lock, *, limit_s: float | None = None
) -> AsyncGenerator[AsyncSession | None]:
    """Yields the session that holds `lock` until the block ends, or None when another process holds it.

    The session is there to be asked whether it still holds the lock, not for the work. A holder that stands still
    longer than `limit_s` loses it.
    """
    async with database.transaction() as session:
        if limit_s is not None:
            await store.limit_idle(session, limit_s)
        yield session if await store.try_lock(session, SPACE, lock) else None


def under_lock(
    database: Database, lock: Lock, work: Callable[[], Awaitable[Any]], *, limit_s: float = _LONGEST_S
) -> Callable[[], Awaitable[None]]:
    """Returns `work` as something that every process may call and only the elected one does, for `limit_s` at most."""

    async def run() -> None:
        async with elected(database, lock, limit_s=limit_s) as mine:
            if mine is not None:
                await work()

    return run
