"""Agent Jobs: submit, list, ask, stop."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import JSONResponse

from tollbar.access.principal import Capability, Principal
from tollbar.http.answers import answer, page_answer
from tollbar.http.authorise import needs
from tollbar.http.bodies import json_object
from tollbar.http.deps import Deps
from tollbar.http.parameters import LogQuery, PageQuery, TrialsQuery
from tollbar.jobs import service as jobs
from tollbar.jobs.errors import JobActionUnsupported
from tollbar.jobs.events import service as events

router = APIRouter(tags=["jobs"])

_SUBMISSION: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "Exactly one of dataset, dataset_ref and task_ref says what to run.",
                    "properties": {
                        "type": {"type": "string", "enum": ["agent"], "default": "agent"},
                        "request_id": {"type": "string", "minLength": 1, "maxLength": 128},
                        "dataset": {"type": ["string", "object"], "description": "name@version, or a selector."},
                        "dataset_ref": {"type": "object"},
                        "task_ref": {"type": "object"},
                        "profile_name": {"type": "string"},
                        "profile_version": {"type": "string"},
                        "profile_id": {"type": "string", "description": "name@version, in place of the two."},
                        "profile": {"type": "object"},
                        "runner": {"type": "string", "description": "name@revision"},
                        "attempts": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
                        "params": {"type": "object"},
                        "tag": {"type": "string", "minLength": 1, "maxLength": 128},
                        "max_cost_usd": {
                            "type": ["string", "number"],
                            "description": "The most that the Job may spend, 0.000001 to 100000 USD.",
                        },
                        "max_cost_per_trial_usd": {
                            "type": ["string", "number"],
                            "description": "The most that one Trial may spend; reaching it ends that Trial alone.",
                        },
                        "seed": {"type": "integer"},
                        "priority": {"type": "integer", "minimum": -100, "maximum": 100, "default": 0},
                        "max_concurrent": {
                            "type": "integer",
                            "minimum": 1,
                            "description": "The most Trials of the Job that run at once.",
                        },
                        "command": {
                            "type": "string",
                            "description": "What the agent command runs, as a line of the sandbox's shell.",
                        },
                        "retry_of": {
                            "type": "string",
                            "description": "An ended Job: only its Trials without reward, on its frozen snapshot.",
                        },
                        "queue_id": {"type": "string", "enum": ["default"]},
                        "execution": {"type": "object"},
                        "allow_base_substitution": {"type": "boolean"},
                        "dry_run": {"type": "boolean", "default": False},
                    },
                    "additionalProperties": False,
                }
            }
        },
    }
}


@router.post("/job", status_code=202, openapi_extra=_SUBMISSION)
async def submit_job(
    deps: Deps,
    actor: Annotated[Principal, needs(Capability.JOBS_RUN)],
    request: Annotated[dict[str, Any], Depends(json_object)],
) -> JSONResponse:
    """Submits an Agent Job: 202 when it is new, 200 for the same request_id with the same arguments."""
    async with deps.database.transaction() as session:
        job, is_new = await jobs.submit(session, deps.jobs, actor, request)
    return answer(job, 202 if is_new else 200)


@router.get("/job")
async def list_jobs(
    deps: Deps,
    actor: Annotated[Principal, needs(Capability.JOBS_READ)],
    page: PageQuery,
    kind: Annotated[str | None, Query(alias="type")] = None,
    status: str | None = None,
    tag: str | None = None,
) -> JSONResponse:
    """The project's Jobs, newest first."""
    asked = page.of("jobs", actor, type=kind, status=status, tag=tag)
    async with deps.database.session() as session:
        found = await jobs.list_page(session, deps.jobs, actor, asked, kind=kind, state=status, tag=tag)
    return page_answer(found)


@router.get("/job/{job_id}")
async def get_job(deps: Deps, actor: Annotated[Principal, needs(Capability.JOBS_READ)], job_id: str) -> JSONResponse:
    """A Job: status, phase, scores so far, how many Trials are where."""
    async with deps.database.session() as session:
        return answer(await jobs.status(session, deps.jobs, actor, job_id))


@router.get("/job/{job_id}/result")
async def get_job_result(
    deps: Deps, actor: Annotated[Principal, needs(Capability.JOBS_READ)], job_id: str, trials: TrialsQuery
) -> JSONResponse:
    """A Job with usage and a page of its Trials; `final` is false until the Job ends."""
    asked = trials.of("job.result", actor, job=job_id)
    async with deps.database.session() as session:
        return answer(await jobs.result(session, deps.jobs, actor, job_id, asked))


@router.get("/job/{job_id}/logs")
async def get_job_logs(
    deps: Deps, actor: Annotated[Principal, needs(Capability.JOBS_READ)], job_id: str, asked: LogQuery
) -> JSONResponse:
    """What happened to a Job and its Trials, line by line, oldest first; `next_cursor` goes on from there."""
    async with deps.database.session() as session:
        return answer(await events.job_log(session, actor, job_id, asked))


@router.get("/job/{job_id}/events")
async def list_job_events(
    deps: Deps, actor: Annotated[Principal, needs(Capability.JOBS_READ)], job_id: str, page: PageQuery
) -> JSONResponse:
    """What happened to a Job and its Trials, oldest first."""
    asked = page.of("job.events", actor, job=job_id)
    async with deps.database.session() as session:
        return page_answer(await events.events_page(session, actor, job_id, asked))


@router.post("/job/{job_id}/stop")
async def stop_job(deps: Deps, actor: Annotated[Principal, needs(Capability.JOBS_STOP)], job_id: str) -> JSONResponse:
    """Stops a Job and its running Trials; one that ended stays as it is."""
    async with deps.database.transaction() as session:
        job = await jobs.stop(session, deps.jobs, actor, job_id)
    return answer(job)


@router.post("/job/{job_id}/pause")
@router.post("/job/{job_id}/resume")
@router.post("/job/{job_id}/wake")
async def refuse_action(
    deps: Deps, actor: Annotated[Principal, needs(Capability.JOBS_STOP)], job_id: str, request: Request
) -> JSONResponse:
    """An Agent Job cannot be paused, resumed or woken."""
    async with deps.database.session() as session:
        await jobs.status(session, deps.jobs, actor, job_id)
    raise JobActionUnsupported(request.url.path.rpartition("/")[2])
