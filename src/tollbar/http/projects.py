"""A project and its limits, to be read; people change them in the console, the server's owner on its machine."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

from tollbar.access import service as access
from tollbar.access.principal import Capability, Principal
from tollbar.budget import limits
from tollbar.http.answers import answer
from tollbar.http.authorise import needs
from tollbar.http.deps import Deps
from tollbar.jobs import service as jobs
from tollbar.kit.clock import wire_time
from tollbar.kit.money import format_usd

router = APIRouter(tags=["project and money"])

Reader = Annotated[Principal, needs(Capability.PROJECT_READ)]


@router.get("/workspaces/{workspace_id}/projects/{project_id}")
async def get_project(deps: Deps, actor: Reader, workspace_id: str, project_id: str) -> JSONResponse:
    """The project of the key."""
    async with deps.database.session() as session:
        found = await access.project(session, actor, workspace_id, project_id)
    slug = re.sub(r"[^a-z0-9]+", "-", found["name"].lower()).strip("-")
    return answer({**found, "slug": slug, "version": 1})


@router.get("/workspaces/{workspace_id}/projects/{project_id}/limits")
async def list_limits(deps: Deps, actor: Reader, workspace_id: str, project_id: str) -> JSONResponse:
    """What bounds the project, and how much of it is used; a null `limit` is none. Money is decimal text of USD."""
    async with deps.database.session() as session:
        await access.project(session, actor, workspace_id, project_id)
        today = await limits.today(session, actor.project_id, deps.clock.now())
        default = (await limits.limits_of(session, actor.project_id)).job_cap_pusd
        running = await jobs.running_trials(session, actor)
    rate = await deps.limiter.state(actor)
    resets_at = None if rate.resets_at is None else wire_time(datetime.fromtimestamp(rate.resets_at, UTC))
    day = today.wire()
    return answer(
        {
            "items": [
                _item("requests_per_minute", rate.limit, rate.used, "requests", resets_at),
                _item("concurrent_trials", deps.jobs.project_running, running, "Trials"),
                _item("daily_spend", day["daily_cap_usd"], day["spent_today_usd"], "USD", today.resets_at)
                | {"reserved": day["reserved_usd"], "warning": day["warning"]},
                _item("default_job_cap", None if default is None else format_usd(default), None, "USD"),
            ]
        }
    )


def _item(name: str, limit: Any, used: Any, unit: str, resets_at: str | None = None) -> dict[str, Any]:
    return {"name": name, "limit": limit, "used": used, "unit": unit, "resets_at": resets_at}
