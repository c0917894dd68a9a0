"""Probes: is the process alive, can it serve. No key, no limit, no secret told."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog
from fastapi import APIRouter
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse

from tollbar.db import migrate
from tollbar.engine import store as workers
from tollbar.engine.tables import WorkerState
from tollbar.http.answers import answer
from tollbar.http.deps import Deps, HttpDeps
from tollbar.kit.errors import TollbarError

router = APIRouter(include_in_schema=False)

_PATIENCE_S: Final = 5.0
_log = structlog.get_logger()


@router.get("/healthz")
async def alive() -> JSONResponse:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/readyz")
async def ready(deps: Deps) -> JSONResponse:
    """The database answers and is migrated, and files can be stored; else 503. `workers` is a fact, not a condition."""
    facts: dict[str, Any] = {"database": False, "migrated": False, "artifacts": False, "workers": 0}
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await _look(deps, facts)
    except (TollbarError, SQLAlchemyError, OSError) as error:
        # What failed is told by the first fact that is false; the rest, which may name hosts, is for the log alone.
        _log.warning("not ready", error=str(error), **facts)
    if not facts["artifacts"]:
        body = {"code": "SERVICE_UNAVAILABLE", "message": "The server is not ready.", "status": "not_ready"}
        return answer({**body, **facts}, status=503)
    return answer({"status": "ready", **facts})


async def _look(deps: HttpDeps, facts: dict[str, Any]) -> None:
    async with deps.database.session() as session:
        states = await workers.states(session)
    facts["database"] = True
    living = {WorkerState.LIVE, WorkerState.LEAVING}
    facts["workers"] = sum(state in living for state in states.values())
    await asyncio.to_thread(migrate.require_current, deps.database.url)
    facts["migrated"] = True
    await deps.blobs.check()
    facts["artifacts"] = True
