"""Statements on virtual keys. A key is found by its hash, which only whoever holds the secret can name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.gateway.tables import PriceTableRow, VirtualKeyRow


async def add(session: AsyncSession, values: Mapping[str, Any]) -> None:
    """Writes a key."""
    await session.execute(insert(VirtualKeyRow).values(**values))


async def valid(session: AsyncSession, secret_sha256: bytes) -> VirtualKeyRow | None:
    """Returns a key that is neither revoked nor expired, by the database's clock."""
    query = select(VirtualKeyRow).where(
        VirtualKeyRow.secret_sha256 == secret_sha256,
        VirtualKeyRow.revoked_at.is_(None),
        VirtualKeyRow.expires_at > func.clock_timestamp(),
    )
    return await session.scalar(query)


async def still_valid(session: AsyncSession, key_id: str) -> bool:
    """Says whether a key still holds, and keeps it so until the transaction ends: a revocation waits, or wins."""
    query = (
        select(VirtualKeyRow.id)
        .where(
            VirtualKeyRow.id == key_id,
            VirtualKeyRow.revoked_at.is_(None),
            VirtualKeyRow.expires_at > func.clock_timestamp(),
        )
        .with_for_update(read=True)
    )
    return await session.scalar(query) is not None


async def revoke(session: AsyncSession, subjects: Sequence[str]) -> int:
    """Revokes every key of these subjects and returns how many it were."""
    result: Any = await session.execute(
        update(VirtualKeyRow)
        .where(VirtualKeyRow.subject.in_(subjects), VirtualKeyRow.revoked_at.is_(None))
        .values(revoked_at=func.clock_timestamp())
    )
    return result.rowcount


async def add_prices(session: AsyncSession, source: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keeps a version of own prices, once."""
    values = {"source": source, "rows": [dict(row) for row in rows]}
    await session.execute(postgresql.insert(PriceTableRow).values(**values).on_conflict_do_nothing())


async def prices(session: AsyncSession, source: str) -> list[dict[str, Any]] | None:
    """Returns the rows of a version of own prices."""
    return await session.scalar(select(PriceTableRow.rows).where(PriceTableRow.source == source))


async def forget(session: AsyncSession, before: datetime) -> int:
    """Deletes keys that were worth nothing any more at that moment; returns how many."""
    over = or_(VirtualKeyRow.revoked_at < before, VirtualKeyRow.expires_at < before)
    result: Any = await session.execute(delete(VirtualKeyRow).where(over))
    return result.rowcount
