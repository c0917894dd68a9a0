"""Runners: where Trials run, and at which price."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import JSONResponse

from tollbar.access.principal import Capability, Principal
from tollbar.http.answers import page_answer
from tollbar.http.authorise import needs
from tollbar.http.deps import Deps
from tollbar.http.parameters import PageQuery
from tollbar.sandboxes import service as runners

router = APIRouter(tags=["runners"])


@router.get("/runners")
async def list_runners(
    deps: Deps, actor: Annotated[Principal, needs(Capability.RUNNERS_READ)], page: PageQuery
) -> JSONResponse:
    """The runner revisions that the project can use, by name."""
    async with deps.database.session() as session:
        return page_answer(await runners.list_page(session, actor, page.of("runners", actor)))
