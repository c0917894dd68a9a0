"""Queries on workspaces, projects, keys, sign-in links and sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.access.tables import ApiKeyRow, ConsoleSessionRow, ProjectRow, SignInLinkRow, WorkspaceRow
from tollbar.db.base import Base

_FIRST_PROJECT_LOCK: Final = 0x746F6C6C62617201
_LISTED_KEYS: Final = 1000


async def add(session: AsyncSession, *rows: Base) -> None:
    """Writes rows in the order given."""
    for row in rows:
        session.add(row)
        await session.flush()


# --- workspaces and projects


async def lock_first_project(session: AsyncSession) -> None:
    """Lets one transaction at a time decide whether the first project exists."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _FIRST_PROJECT_LOCK})


async def first_project(session: AsyncSession) -> ProjectRow | None:
    return await session.scalar(select(ProjectRow).order_by(ProjectRow.id).limit(1))


async def workspace(session: AsyncSession, actor: Principal) -> WorkspaceRow | None:
    return await session.scalar(select(WorkspaceRow).where(WorkspaceRow.id == actor.workspace_id))


async def project(session: AsyncSession, actor: Principal) -> ProjectRow | None:
    return await session.scalar(
        select(ProjectRow).where(ProjectRow.id == actor.project_id, ProjectRow.workspace_id == actor.workspace_id)
    )


# --- keys


async def key_by_hash(session: AsyncSession, secret_sha256: str) -> ApiKeyRow | None:
    return await session.scalar(select(ApiKeyRow).where(ApiKeyRow.secret_sha256 == secret_sha256))


async def key(session: AsyncSession, actor: Principal, key_id: str) -> ApiKeyRow | None:
    return await session.scalar(
        select(ApiKeyRow).where(ApiKeyRow.id == key_id, ApiKeyRow.project_id == actor.project_id)
    )


async def keys(session: AsyncSession, actor: Principal) -> list[ApiKeyRow]:
    """Returns the project's keys, newest first, at most 1000."""
    query = select(ApiKeyRow).where(ApiKeyRow.project_id == actor.project_id)
    return list(await session.scalars(query.order_by(ApiKeyRow.id.desc()).limit(_LISTED_KEYS)))


async def key_used(session: AsyncSession, key_id: str, now: datetime, *, unless_after: datetime) -> None:
    """Writes when a key was used, unless somebody did so since `unless_after`."""
    await session.execute(
        update(ApiKeyRow)
        .where(
            ApiKeyRow.id == key_id,
            or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at <= unless_after),
        )
        .values(last_used_at=now)
    )


async def revoke_key(session: AsyncSession, actor: Principal, key_id: str, now: datetime) -> bool:
    """Revokes a key of the project, keeping the first moment; says whether there is such a key."""
    result: Any = await session.execute(
        update(ApiKeyRow)
        .where(ApiKeyRow.id == key_id, ApiKeyRow.project_id == actor.project_id)
        .values(revoked_at=func.coalesce(ApiKeyRow.revoked_at, now))
    )
    return result.rowcount == 1


# --- sign-in links and sessions


def _open_link(token_sha256: str, now: datetime) -> Any:
    link = SignInLinkRow
    return (link.token_sha256 == token_sha256) & link.used_at.is_(None) & (link.expires_at > now)


async def link_is_open(session: AsyncSession, token_sha256: str, now: datetime) -> bool:
    found = await session.scalar(select(SignInLinkRow.token_sha256).where(_open_link(token_sha256, now)))
    return found is not None


async def use_link(session: AsyncSession, token_sha256: str, now: datetime) -> SignInLinkRow | None:
    """Uses a link up and returns it; None for all but the first caller, and after its end."""
    return await session.scalar(
        update(SignInLinkRow)
        .where(_open_link(token_sha256, now))
        .values(used_at=now)
        .returning(SignInLinkRow)
        .execution_options(synchronize_session=False)
    )


async def console_session(session: AsyncSession, cookie_sha256: str) -> ConsoleSessionRow | None:
    return await session.scalar(
        select(ConsoleSessionRow)
        .where(ConsoleSessionRow.cookie_sha256 == cookie_sha256)
        .execution_options(populate_existing=True)
    )


async def session_seen(session: AsyncSession, session_id: str, now: datetime) -> None:
    await session.execute(
        update(ConsoleSessionRow)
        .where(ConsoleSessionRow.id == session_id, ConsoleSessionRow.seen_at < now)
        .values(seen_at=now)
    )


async def end_session(session: AsyncSession, cookie_sha256: str, now: datetime) -> None:
    await session.execute(
        update(ConsoleSessionRow)
        .where(ConsoleSessionRow.cookie_sha256 == cookie_sha256, ConsoleSessionRow.ended_at.is_(None))
        .values(ended_at=now)
    )
