"""Who am I, and the workspaces and projects that a key reaches."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import JSONResponse

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.http.answers import answer
from tollbar.http.authorise import needs
from tollbar.http.deps import Deps

router = APIRouter(tags=["access"])


@router.get("/me")
async def who_am_i(deps: Deps, actor: Annotated[Principal, needs()]) -> JSONResponse:
    """The key, its workspace and project, and what it may do."""
    async with deps.database.session() as session:
        return answer(await access.who_am_i(session, actor))


@router.get("/workspaces")
async def list_workspaces(deps: Deps, actor: Annotated[Principal, needs()]) -> JSONResponse:
    """The workspaces that the key reaches, all at once."""
    async with deps.database.session() as session:
        return answer({"items": await access.workspaces(session, actor)})


@router.get("/workspaces/{workspace_id}/projects")
async def list_projects(deps: Deps, actor: Annotated[Principal, needs()], workspace_id: str) -> JSONResponse:
    """The projects of a workspace that the key reaches, all at once."""
    async with deps.database.session() as session:
        return answer({"items": await access.projects(session, actor, workspace_id)})
