"""Queries on secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.vault.tables import VaultCheckRow, VaultSecretRow


async def check(session: AsyncSession) -> bytes | None:
    return await session.scalar(select(VaultCheckRow.sealed))


async def add_check(session: AsyncSession, sealed: bytes) -> None:
    """Writes the known text, unless another process was quicker."""
    await session.execute(insert(VaultCheckRow).values(id=1, sealed=sealed).on_conflict_do_nothing())


async def lock_name(session: AsyncSession, workspace_id: str, owner: str, name: str) -> None:
    """Lets one transaction at a time write a version of that secret."""
    key = f"vault:{workspace_id}:{owner}:{name}"
    await session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": key})


async def last_version(session: AsyncSession, workspace_id: str, owner: str, name: str) -> int:
    """Returns the highest version ever given, 0 for none."""
    return await session.scalar(select(func.max(VaultSecretRow.version)).where(_named(workspace_id, owner, name))) or 0


async def add(session: AsyncSession, row: VaultSecretRow) -> None:
    session.add(row)
    await session.flush()


async def current(session: AsyncSession, workspace_id: str, owner: str, name: str) -> VaultSecretRow | None:
    """Returns the newest version that was not revoked."""
    query = select(VaultSecretRow).where(_named(workspace_id, owner, name), VaultSecretRow.revoked_at.is_(None))
    return await session.scalar(query.order_by(VaultSecretRow.version.desc()).limit(1))


async def version(
    session: AsyncSession, workspace_id: str, owner: str, name: str, number: int
) -> VaultSecretRow | None:
    return await session.scalar(
        select(VaultSecretRow).where(_named(workspace_id, owner, name), VaultSecretRow.version == number)
    )


async def live(session: AsyncSession, actor: Principal, owner: str) -> list[VaultSecretRow]:
    """Returns the newest version of each secret of that owner in the actor's workspace, by name."""
    query = (
        select(VaultSecretRow)
        .where(
            VaultSecretRow.workspace_id == actor.workspace_id,
            VaultSecretRow.owner == owner,
            VaultSecretRow.revoked_at.is_(None),
        )
        .ext(distinct_on(VaultSecretRow.name))
        .order_by(VaultSecretRow.name, VaultSecretRow.version.desc())
    )
    return list(await session.scalars(query))


async def every_live(session: AsyncSession) -> list[VaultSecretRow]:
    """Returns every version of every workspace that can still be used: what the redactor has to know."""
    return list(await session.scalars(select(VaultSecretRow).where(VaultSecretRow.revoked_at.is_(None))))


async def revoke(session: AsyncSession, workspace_id: str, owner: str, name: str, now: datetime) -> int:
    """Wipes every version of a secret and returns how many could still be used."""
    result: Any = await session.execute(
        update(VaultSecretRow)
        .where(_named(workspace_id, owner, name), VaultSecretRow.revoked_at.is_(None))
        .values(revoked_at=now, sealed=None)
    )
    return result.rowcount


def _named(workspace_id: str, owner: str, name: str) -> Any:
    return (
        (VaultSecretRow.workspace_id == workspace_id) & (VaultSecretRow.owner == owner) & (VaultSecretRow.name == name)
    )
