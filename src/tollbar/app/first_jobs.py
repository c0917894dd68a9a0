"""What a new installation shows before anybody submits: one small dataset, run by three agents, in real sandboxes."""

from __future__ import annotations

from typing import Any, Final

from tollbar.access.principal import Principal
from tollbar.db.session import Database
from tollbar.jobs import service as jobs
from tollbar.jobs.service import JobsContext
from tollbar.kit.paging import page_request

TAG: Final = "demo"
_PROFILES: Final = ("tollbar/oracle", "tollbar/nop", "tollbar/scripted")
"""The last one is the first that a person sees."""
_CAP_USD: Final = "0.5"


async def submit_first_jobs(database: Database, context: JobsContext, actor: Principal) -> int:
    """Submits the demo Jobs of a project that has no Job yet; returns how many. Repeating it adds nothing."""
    async with database.transaction() as session:
        scope = {"route": "first", "project": actor.project_id}
        if (await jobs.list_page(session, context, actor, page_request("1", None, scope=scope))).items:
            return 0
        made = [await jobs.submit(session, context, actor, _request(profile)) for profile in _PROFILES]
    return sum(new for _, new in made)


def _request(profile: str) -> dict[str, Any]:
    return {
        "request_id": f"tollbar-demo-{profile.rpartition('/')[2]}",
        "dataset": "demo/mini@1",
        "profile_name": profile,
        "max_cost_usd": _CAP_USD,
        "tag": TAG,
    }
