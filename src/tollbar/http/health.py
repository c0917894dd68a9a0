"""Probes: is the process alive, can it serve. No key, no limit, nothing told."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse

from tollbar.http.answers import answer
from tollbar.http.deps import Deps

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def alive() -> JSONResponse:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/readyz")
async def ready(deps: Deps) -> JSONResponse:
    """The process and its database answer; else 503."""
    async with deps.database.session() as session:
        await session.connection()
    return answer({"status": "ready"})
