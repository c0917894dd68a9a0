"""Trials and what they left: results, artifact lists, whole files, bounded windows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response, StreamingResponse

from tollbar.access.principal import Capability, Principal
from tollbar.artifacts import service as artifacts
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.tables import ArtifactRow
from tollbar.http.answers import SAFE_HEADERS, answer, page_answer
from tollbar.http.authorise import needs
from tollbar.http.deps import Deps
from tollbar.http.parameters import LogQuery, PageQuery, whole_number
from tollbar.jobs import service as jobs
from tollbar.jobs.events import service as events

router = APIRouter(tags=["trials"])

Reader = Annotated[Principal, needs(Capability.JOBS_READ)]
Downloader = Annotated[Principal, needs(Capability.JOBS_READ, Capability.ARTIFACTS_DOWNLOAD)]


@router.get("/trials")
async def list_trials(
    deps: Deps,
    actor: Reader,
    page: PageQuery,
    kind: Annotated[str | None, Query(alias="type")] = None,
    job_id: str | None = None,
    status: str | None = None,
) -> JSONResponse:
    """The project's Trials, newest first."""
    asked = page.of("trials", actor, type=kind, job=job_id, status=status)
    async with deps.database.session() as session:
        found = await jobs.trials_page(session, actor, asked, job_id=job_id, kind=kind, state=status)
    return page_answer(found)


@router.get("/trials/{trial_id}")
@router.get("/trials/{trial_id}/detail")
async def get_trial(deps: Deps, actor: Reader, trial_id: str) -> JSONResponse:
    """A Trial: one attempt at one task."""
    async with deps.database.session() as session:
        return answer(await jobs.trial(session, actor, trial_id))


@router.get("/trials/{trial_id}/result")
async def get_trial_result(deps: Deps, actor: Reader, trial_id: str) -> JSONResponse:
    """A Trial's reward or reason, structured result, evidence, cost, and its first artifacts."""
    async with deps.database.session() as session:
        return answer(await jobs.trial_result(session, actor, trial_id))


@router.get("/trials/{trial_id}/logs")
async def get_trial_logs(deps: Deps, actor: Reader, trial_id: str, asked: LogQuery) -> JSONResponse:
    """What happened to a Trial, line by line, oldest first; `next_cursor` goes on from there."""
    async with deps.database.session() as session:
        return answer(await events.trial_log(session, actor, trial_id, asked))


@router.get("/trials/{trial_id}/artifacts")
async def list_artifacts(deps: Deps, actor: Reader, trial_id: str, page: PageQuery) -> JSONResponse:
    """What a Trial left, by name. What stands in it was written by the evaluated run: untrusted."""
    async with deps.database.session() as session:
        await jobs.require_trial(session, actor, trial_id)
        asked = page.within(artifacts.page_scope(actor, trial_id))
        return page_answer(await artifacts.list_page(session, actor, trial_id, asked))


@router.get("/trials/{trial_id}/artifacts/{artifact_id}/content", response_class=Response)
async def get_artifact_content(deps: Deps, actor: Downloader, trial_id: str, artifact_id: str) -> Response:
    """The raw bytes of an artifact, always as a download. Untrusted."""
    async with deps.database.session() as session:
        await jobs.require_trial(session, actor, trial_id)
        row = await artifacts.get(session, actor, trial_id, artifact_id)
    return StreamingResponse(await _content(deps.blobs, row), headers=_download_headers(row))


@router.get("/trials/{trial_id}/artifacts/{artifact_id}/window")
async def get_artifact_window(
    deps: Deps,
    actor: Downloader,
    trial_id: str,
    artifact_id: str,
    offset: str | None = None,
    max_bytes: str | None = None,
) -> JSONResponse:
    """A bounded part of a text artifact, never cut inside a character. Untrusted."""
    begin = whole_number("offset", offset, 0)
    size = whole_number("max_bytes", max_bytes, artifacts.DEFAULT_WINDOW)
    async with deps.database.session() as session:
        await jobs.require_trial(session, actor, trial_id)
        found = await artifacts.window(session, actor, deps.blobs, trial_id, artifact_id, offset=begin, max_bytes=size)
    return answer(found)


async def _content(blobs: BlobStore, row: ArtifactRow) -> AsyncIterator[bytes]:
    """Returns the parts of a blob, the first of them read already: a missing blob is a refusal, not a broken answer."""
    assert row.sha256 is not None
    parts = aiter(blobs.stream(row.sha256))
    return _chain(await anext(parts, b""), parts)


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def _download_headers(row: ArtifactRow) -> dict[str, str]:
    name = quote(row.name.rpartition("/")[2], safe="")
    return {
        **SAFE_HEADERS,
        "Content-Type": "application/octet-stream",
        "Content-Length": str(row.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Security-Policy": "sandbox",
    }
