"""Rules of access: keys, who is calling, the first project, and signing a browser in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access import store, tokens
from tollbar.access.errors import ProjectAccessDenied, SignInLinkSpent, Unauthenticated, WorkspaceAccessDenied
from tollbar.access.principal import PRESETS, Capability, Principal, in_order, known, system_principal
from tollbar.access.tables import ApiKeyRow, ConsoleSessionRow, ProjectRow, SignInLinkRow, WorkspaceRow
from tollbar.access.tokens import TokenKind
from tollbar.kit.clock import Clock, wire_time
from tollbar.kit.errors import InvalidRequest, NotFound
from tollbar.kit.ids import is_id, new_id

FIRST_WORKSPACE: Final = "Main"
FIRST_PROJECT: Final = "Default"
LINK_LIFE: Final = timedelta(minutes=10)
SESSION_IDLE: Final = timedelta(hours=12)
SESSION_LIFE: Final = timedelta(days=14)
_SEEN_EVERY: Final = timedelta(minutes=1)
_MAX_KEY_NAME: Final = 128


@dataclass(frozen=True)
class NewKey:
    """A key just made: the only time that anybody sees its secret."""

    key_id: str
    secret: str


@dataclass(frozen=True)
class SessionToken:
    """What the browser keeps as its cookie, and until when at most."""

    value: str
    expires_at: datetime


# --- who is calling


async def authenticate(
    session: AsyncSession, token: str, *, workspace: str | None, project: str | None, clock: Clock
) -> Principal:
    """Returns who holds a key; `workspace` and `project` are what the request's headers name, and must then match.

    Needs a transaction: the use of the key is written at most once a minute. Raises `Unauthenticated`,
    `WorkspaceAccessDenied`, `ProjectAccessDenied`.
    """
    row = await store.key_by_hash(session, tokens.sha256(token))
    now = clock.now()
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
        raise Unauthenticated(presented=True)
    if workspace is not None and workspace != row.workspace_id:
        raise WorkspaceAccessDenied
    if project is not None and project != row.project_id:
        raise ProjectAccessDenied
    if row.last_used_at is None or row.last_used_at <= now - _SEEN_EVERY:
        await store.key_used(session, row.id, now, unless_after=now - _SEEN_EVERY)
    return Principal(row.kind, row.id, row.workspace_id, row.project_id, known(row.capabilities))


async def who_am_i(session: AsyncSession, actor: Principal) -> dict[str, Any]:
    """Returns the contract's answer to "who am I": the key, its workspace and project, and what it may do."""
    key = await store.key(session, actor, actor.key_id)
    return {
        "auth_method": "api_key" if key is not None else actor.kind,
        "key": None if key is None else _key_object(key, ("key_id", "kind", "preset", "expires_at")),
        "workspace": await _workspace_object(session, actor),
        "project": await _project_object(session, actor),
        "capabilities": in_order(actor.capabilities),
    }


async def workspaces(session: AsyncSession, actor: Principal) -> list[dict[str, Any]]:
    """Returns the workspaces that the caller can reach: its own."""
    return [await _workspace_object(session, actor)]


async def projects(session: AsyncSession, actor: Principal, workspace_id: str) -> list[dict[str, Any]]:
    """Returns the projects of that workspace that the caller can reach; raises `WorkspaceAccessDenied`."""
    if workspace_id != actor.workspace_id:
        raise WorkspaceAccessDenied
    return [await _project_object(session, actor)]


async def project(session: AsyncSession, actor: Principal, workspace_id: str, project_id: str) -> dict[str, Any]:
    """Returns the caller's own project; raises `WorkspaceAccessDenied` and `ProjectAccessDenied` for any other."""
    if workspace_id != actor.workspace_id:
        raise WorkspaceAccessDenied
    if project_id != actor.project_id:
        raise ProjectAccessDenied
    return await _project_object(session, actor)


async def ensure_first_project(session: AsyncSession, clock: Clock) -> Principal:
    """Makes the workspace "Main" with the project "Default" once, whoever asks; returns the server's principal there.

    Needs a transaction, which keeps other servers that start at the same moment waiting until it ends.
    """
    await store.lock_first_project(session)
    first = await store.first_project(session)
    if first is None:
        now = clock.now()
        workspace = WorkspaceRow(id=new_id("ws"), name=FIRST_WORKSPACE, created_at=now)
        first = ProjectRow(id=new_id("prj"), workspace_id=workspace.id, name=FIRST_PROJECT, created_at=now)
        await store.add(session, workspace, first)
    return system_principal(first.workspace_id, first.id)


# --- keys


async def create_key(
    session: AsyncSession,
    actor: Principal,
    *,
    preset: str,
    name: str,
    clock: Clock,
    expires_at: datetime | None = None,
) -> NewKey:
    """Makes a project key with the rights of a preset; its secret is returned here and never again.

    Raises `AccessDenied` (only people and the server itself make keys) and `InvalidRequest`.
    """
    actor.require(Capability.KEYS_MANAGE)
    _check_key(preset, name)
    secret = tokens.mint(TokenKind.PROJECT_KEY)
    row = ApiKeyRow(
        id=new_id("key"),
        secret_sha256=tokens.sha256(secret),
        kind="project",
        workspace_id=actor.workspace_id,
        project_id=actor.project_id,
        name=name,
        preset=preset,
        capabilities=in_order(PRESETS[preset]),
        shown=tokens.shown(secret),
        created_by=actor.key_id,
        created_at=clock.now(),
        expires_at=expires_at,
    )
    await store.add(session, row)
    return NewKey(row.id, secret)


async def list_keys(session: AsyncSession, actor: Principal) -> list[dict[str, Any]]:
    """Returns the project's keys without their secrets, newest first, revoked and expired ones included."""
    actor.require(Capability.KEYS_MANAGE)
    return [_key_object(row) for row in await store.keys(session, actor)]


async def revoke_key(session: AsyncSession, actor: Principal, key_id: str, clock: Clock) -> None:
    """Ends a key for good, from the next request on; repeating it changes nothing. Raises `NotFound`."""
    actor.require(Capability.KEYS_MANAGE)
    if not is_id(key_id, "key") or not await store.revoke_key(session, actor, key_id, clock.now()):
        raise NotFound("such key in this project")


def _check_key(preset: str, name: str) -> None:
    fields: list[dict[str, str]] = []
    if preset not in PRESETS:
        fields.append({"path": "preset", "problem": f"must be one of {', '.join(sorted(PRESETS))}"})
    if not 1 <= len(name) <= _MAX_KEY_NAME or not name.isprintable():
        fields.append({"path": "name", "problem": f"must be text of 1 to {_MAX_KEY_NAME} printable characters"})
    if fields:
        raise InvalidRequest(fields)


# --- signing a browser in


async def create_sign_in_link(session: AsyncSession, actor: Principal, clock: Clock) -> str:
    """Returns a token that signs one browser in, once, within ten minutes. Raises `AccessDenied` for keys."""
    actor.require(Capability.KEYS_MANAGE)
    token = tokens.mint(TokenKind.SIGN_IN_LINK)
    now = clock.now()
    await store.add(
        session,
        SignInLinkRow(
            token_sha256=tokens.sha256(token),
            workspace_id=actor.workspace_id,
            project_id=actor.project_id,
            created_at=now,
            expires_at=now + LINK_LIFE,
        ),
    )
    return token


async def sign_in_link_is_open(session: AsyncSession, token: str, clock: Clock) -> bool:
    """Says whether a link can still be used, without using it: previews and prefetchers fetch links too."""
    return await store.link_is_open(session, tokens.sha256(token), clock.now())


async def redeem_sign_in_link(session: AsyncSession, token: str, clock: Clock) -> SessionToken:
    """Uses a link up and returns a fresh session for the browser; raises `SignInLinkSpent`."""
    now = clock.now()
    link = await store.use_link(session, tokens.sha256(token), now)
    if link is None:
        raise SignInLinkSpent
    cookie = tokens.mint(TokenKind.SESSION)
    row = ConsoleSessionRow(
        id=new_id("session"),
        cookie_sha256=tokens.sha256(cookie),
        workspace_id=link.workspace_id,
        project_id=link.project_id,
        created_at=now,
        seen_at=now,
        expires_at=now + SESSION_LIFE,
    )
    await store.add(session, row)
    return SessionToken(cookie, row.expires_at)


async def session_principal(session: AsyncSession, cookie: str, clock: Clock) -> Principal | None:
    """Returns the signed-in person of a cookie; None after 12 idle hours, after 14 days, or signed out.

    Needs a transaction: that the session was seen is written at most once a minute.
    """
    row = await store.console_session(session, tokens.sha256(cookie))
    now = clock.now()
    if row is None or row.ended_at is not None or row.expires_at <= now or row.seen_at <= now - SESSION_IDLE:
        return None
    if row.seen_at <= now - _SEEN_EVERY:
        await store.session_seen(session, row.id, now)
    return Principal("session", row.id, row.workspace_id, row.project_id, frozenset(Capability))


async def sign_out(session: AsyncSession, cookie: str, clock: Clock) -> None:
    """Ends the session of a cookie; an unknown one is passed over."""
    await store.end_session(session, tokens.sha256(cookie), clock.now())


# --- wire objects


def _key_object(row: ApiKeyRow, members: tuple[str, ...] | None = None) -> dict[str, Any]:
    whole = {
        "key_id": row.id,
        "kind": row.kind,
        "preset": row.preset,
        "name": row.name,
        "shown": row.shown,
        "capabilities": in_order(known(row.capabilities)),
        "created_at": wire_time(row.created_at),
        "expires_at": wire_time(row.expires_at),
        "revoked_at": wire_time(row.revoked_at),
        "last_used_at": wire_time(row.last_used_at),
    }
    return whole if members is None else {name: whole[name] for name in members}


async def _workspace_object(session: AsyncSession, actor: Principal) -> dict[str, Any]:
    row = await store.workspace(session, actor)
    assert row is not None
    return {"workspace_id": row.id, "name": row.name}


async def _project_object(session: AsyncSession, actor: Principal) -> dict[str, Any]:
    row = await store.project(session, actor)
    assert row is not None
    return {"project_id": row.id, "workspace_id": row.workspace_id, "name": row.name}
