"""Rules of profiles: which agent a submission runs, and with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.agents import software, store
from tollbar.agents.adapter import Adapter
from tollbar.agents.errors import (
    AgentNotInstalled,
    InvalidProfile,
    ProfileArchived,
    ProfileDefaultRequired,
    ProfileNotFound,
)
from tollbar.agents.registry import ADAPTERS
from tollbar.agents.tables import ProfileRow, ProfileVersionRow
from tollbar.engine import liveness
from tollbar.kit.clock import Clock, wire_time
from tollbar.kit.jsonio import canonical_sha256
from tollbar.kit.paging import Page, PageRequest

SEEDED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "oracle": ("oracle", {}),
    "nop": ("nop", {}),
    "command": ("command", {}),
    "replay": ("replay", {}),
    "scripted": ("llm", {"MODEL": "scripted:demo"}),
    "claude-code": ("claude-code", {"MODEL": "anthropic:claude-sonnet-4-5"}),
    "codex": ("codex", {"MODEL": "openai:gpt-5-mini"}),
    "mini-swe-agent": ("mini-swe-agent", {"MODEL": "openai:gpt-5-mini"}),
}
"""Agent and parameters of each profile `tollbar/<name>` that every project has from the start."""
PROJECT_DEFAULT: Final = "oracle"


@dataclass(frozen=True)
class ProfileSnapshot:
    """A profile as a Job freezes it."""

    name: str
    version: str
    sha256: str
    agent: str
    runner: str | None
    params: Mapping[str, Any]
    """Upper-case names; the Job's own parameters are laid over them."""

    def wire(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version, "sha256": self.sha256}


async def seed(session: AsyncSession, actor: Principal, clock: Clock) -> None:
    """Gives a project the profiles that it has from the start; repeating it changes nothing."""
    for name, (agent, params) in SEEDED.items():
        spec: dict[str, Any] = {
            "schema_version": "envplatform.profile/v2",
            "name": f"tollbar/{name}",
            "version": "1",
            "runner": "envhub/base@main",
            "agent": agent,
            "spec": {"params": dict(params), "env": {}},
        }
        row = {
            "name": spec["name"],
            "version": "1",
            "seq": 1,
            "spec": spec,
            "sha256": canonical_sha256(spec),
            "created_at": clock.now(),
        }
        await store.add_version(session, actor, row)
        profile = await store.profile(session, actor, spec["name"], lock=True)
        assert profile is not None
        profile.default_version = profile.default_version or "1"
        if name == PROJECT_DEFAULT and await store.project_default(session, actor) is None:
            profile.is_project_default = True
        await session.flush()


async def resolve(
    session: AsyncSession, actor: Principal, name: str | None, version: str | None
) -> ProfileSnapshot | None:
    """Returns the profile that a submission means; None when it names none and the project has no default.

    Raises `ProfileNotFound`, `ProfileDefaultRequired`, `ProfileArchived`, `InvalidProfile`.
    """
    profile = await store.project_default(session, actor) if name is None else await store.profile(session, actor, name)
    if profile is None:
        if name is None:
            return None
        raise ProfileNotFound(name)
    label = version or profile.default_version
    if label is None:
        raise ProfileDefaultRequired(profile.name)
    row = await store.version(session, actor, profile.name, label)
    if row is None:
        raise ProfileNotFound(profile.name, label)
    if row.archived_at is not None:
        raise ProfileArchived(row.name, row.version)
    return _snapshot(row)


def adapter_of(agent: str) -> Adapter:
    """Returns the adapter of a frozen profile; it was known when the Job was submitted."""
    return ADAPTERS[agent]


async def require_software(session: AsyncSession, agent: str, params: Mapping[str, Any]) -> None:
    """Raises `AgentNotInstalled` when workers live and none of their machines has what the agent runs on."""
    wanted = ADAPTERS[agent].software(params)
    if wanted is None:
        return
    offers = await liveness.software(session)
    if offers and not any(software.fits(wanted, one) for one in offers):
        raise AgentNotInstalled(wanted)


def _snapshot(row: ProfileVersionRow) -> ProfileSnapshot:
    agent = row.spec.get("agent")
    if agent is None:
        raise InvalidProfile(row.name, "it names no agent")
    if agent not in ADAPTERS:
        raise InvalidProfile(row.name, f"there is no agent {agent!r} (known: {', '.join(sorted(ADAPTERS))})")
    params = {str(key).upper(): value for key, value in _given(row.spec).items()}
    unknown = sorted(set(params) - ADAPTERS[agent].parameters)
    if unknown:
        raise InvalidProfile(row.name, f"the agent {agent} does not know the parameter {unknown[0]}")
    return ProfileSnapshot(row.name, row.version, row.sha256, agent, row.spec.get("runner"), params)


def _given(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the parameters of a profile: the first version of the form has them at the top."""
    inner = spec if spec.get("schema_version") == "envplatform.profile/v1" else spec.get("spec") or {}
    return inner.get("params") or {}


async def list_page(session: AsyncSession, actor: Principal, page: PageRequest) -> Page[dict[str, Any]]:
    """Returns a page of profiles by name."""
    rows = await store.profiles_page(session, actor, page)
    cut = page.page(rows, lambda row: [row[0].name])
    return Page([_profile_object(row[0], row[1]) for row in cut.items], cut.next_cursor)


async def versions_page(
    session: AsyncSession, actor: Principal, name: str, page: PageRequest, *, include_archived: bool
) -> Page[dict[str, Any]]:
    """Returns a page of a profile's versions, newest first."""
    profile = await store.profile(session, actor, name)
    if profile is None:
        raise ProfileNotFound(name)
    rows = await store.versions_page(session, actor, name, page, archived=include_archived)
    cut = page.page(rows, lambda row: [row.seq])
    return Page([_version_object(profile, row) for row in cut.items], cut.next_cursor)


async def detail(session: AsyncSession, actor: Principal, name: str, version: str | None) -> dict[str, Any]:
    """Returns one version with exactly the spec that was stored."""
    profile = await store.profile(session, actor, name)
    label = version or (profile.default_version if profile else None)
    row = await store.version(session, actor, name, label) if profile and label else None
    if profile is None or row is None:
        raise ProfileNotFound(name, version)
    return _version_object(profile, row)


def _profile_object(row: ProfileRow, versions: int) -> dict[str, Any]:
    return {
        "name": row.name,
        "version_count": versions,
        "default_version": row.default_version,
        "is_project_default": row.is_project_default,
        "updated_at": wire_time(row.updated_at),
    }


def _version_object(profile: ProfileRow, row: ProfileVersionRow) -> dict[str, Any]:
    return {
        "id": f"{row.name}/{row.version}",
        "name": row.name,
        "version": row.version,
        "is_default": profile.default_version == row.version,
        "spec": row.spec,
        "sha256": row.sha256,
        "warnings": [],
        "archived_at": wire_time(row.archived_at),
        "created_at": wire_time(row.created_at),
    }
