"""The check of a dataset version: can its tasks be solved, and is nothing given away for free.

Two Jobs say so: the oracle, three times, and the agent that does nothing, once. No model runs. That one sealed attempt
grades the same a second time is not part of it: grading again is not offered yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts.blobs import BlobStore
from tollbar.datasets import lint, selection
from tollbar.datasets import service as datasets
from tollbar.datasets.schemas import Selection
from tollbar.jobs import store, submission, submitting
from tollbar.jobs.context import JobsContext
from tollbar.kit.ids import new_id
from tollbar.kit.money import format_usd, parse_usd

ORACLE_ATTEMPTS: Final = 3
_ORACLE_SHARE: Final = Decimal("0.75")


async def check(
    session: AsyncSession,
    context: JobsContext,
    actor: Principal,
    blobs: BlobStore,
    name: str,
    revision: str,
    request: Mapping[str, Any],
) -> dict[str, Any]:
    """Starts the check of a version in the caller's transaction: returns both Jobs, and what needs no run.

    `request` may hold `request_id`, which makes repeating safe, `max_cost_usd` for both Jobs together, and `runner`.
    """
    version = await selection.find_version(session, actor, name, revision)
    chosen = await selection.select(session, actor, {"dataset": {"name": version.name, "version": version.version}})
    found = await _lint(blobs, chosen)
    jobs: dict[str, dict[str, Any]] = {}
    for agent, attempts, cap in _parts(request):
        body = {
            "dataset": {"name": version.name, "version": version.version},
            "profile_name": f"tollbar/{agent}",
            "attempts": attempts,
            "tag": "check",
            "max_cost_usd": cap,
            "request_id": _request_id(request, agent),
            "runner": request.get("runner"),
        }
        jobs[agent], _ = await submitting.submit(session, context, actor, body)
    row = {
        "id": new_id("check"),
        "project_id": actor.project_id,
        "name": version.name,
        "version": version.version,
        "oracle_job_id": jobs["oracle"]["job_id"],
        "nop_job_id": jobs["nop"]["job_id"],
        "created_at": context.clock.now(),
    }
    await store.add_check(session, row)
    return {"oracle": jobs["oracle"], "nop": jobs["nop"], "lint": found}


async def _lint(blobs: BlobStore, chosen: Selection) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for task in chosen.tasks:
        read, files = await datasets.load(blobs, task.files_sha256, task.name)
        found += [
            {"task": task.name, "code": each.code.value, "message": each.message} for each in lint.lint(read, files)
        ]
    return found


def _parts(request: Mapping[str, Any]) -> tuple[tuple[str, int, str | None], tuple[str, int, str | None]]:
    """Returns agent, attempts and cap of both Jobs; three of four attempts are the oracle's."""
    given = request.get("max_cost_usd")
    if given is None:
        return ("oracle", ORACLE_ATTEMPTS, None), ("nop", 1, None)
    whole = parse_usd(given, field="max_cost_usd", minimum=submission.MIN_CAP_USD, maximum=submission.MAX_CAP_USD)
    oracle = int(whole * _ORACLE_SHARE)
    return ("oracle", ORACLE_ATTEMPTS, format_usd(oracle)), ("nop", 1, format_usd(whole - oracle))


def _request_id(request: Mapping[str, Any], agent: str) -> str | None:
    given = submission.request_id_of(request)
    return None if given is None else f"{given[:120]}:{agent}"
