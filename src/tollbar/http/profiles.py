"""Profiles: how an agent is run, in immutable versions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import JSONResponse

from tollbar.access.principal import Capability, Principal
from tollbar.agents import service as profiles
from tollbar.http.answers import answer, page_answer
from tollbar.http.authorise import needs
from tollbar.http.deps import Deps
from tollbar.http.parameters import PageQuery, ProfileName, flag

router = APIRouter(tags=["profiles"])

Reader = Annotated[Principal, needs(Capability.PROFILES_READ)]


@router.get("/profiles")
async def list_profiles(deps: Deps, actor: Reader, page: PageQuery) -> JSONResponse:
    """The project's profiles, last changed first."""
    async with deps.database.session() as session:
        return page_answer(await profiles.list_page(session, actor, page.of("profiles", actor)))


@router.get("/profiles/{b64}/versions")
async def list_profile_versions(
    deps: Deps, actor: Reader, name: ProfileName, page: PageQuery, include_archived: str | None = None
) -> JSONResponse:
    """The versions of a profile, newest first."""
    archived = flag("include_archived", include_archived)
    asked = page.of("profile.versions", actor, name=name, archived=archived)
    async with deps.database.session() as session:
        found = await profiles.versions_page(session, actor, name, asked, include_archived=archived)
    return page_answer(found)


@router.get("/profiles/{b64}/detail")
async def get_profile(deps: Deps, actor: Reader, name: ProfileName, version: str | None = None) -> JSONResponse:
    """One version with exactly the spec that was stored; without `version` the default one."""
    async with deps.database.session() as session:
        return answer(await profiles.detail(session, actor, name, version))
