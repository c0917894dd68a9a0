"""The catalogue of datasets: list, look at versions and tasks, publish."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import JSONResponse

from tollbar.access.principal import Capability, Principal
from tollbar.datasets import service as datasets
from tollbar.http.answers import answer, page_answer
from tollbar.http.authorise import needs
from tollbar.http.bodies import json_object, saved_upload
from tollbar.http.deps import Deps
from tollbar.http.parameters import DatasetName, PageQuery
from tollbar.jobs import checking, checks
from tollbar.kit.clock import wire_time
from tollbar.kit.errors import InvalidRequest

router = APIRouter(tags=["datasets"])

Reader = Annotated[Principal, needs(Capability.DATASETS_READ)]

_TAR: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A tar of the dataset folder, plain or gzip.",
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
    }
}


_CHECK: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "request_id": {"type": "string", "description": "Makes repeating safe."},
                        "max_cost_usd": {
                            "type": ["string", "number"],
                            "description": "What both Jobs may spend together; three quarters are the oracle's.",
                        },
                        "runner": {"type": "string", "description": "Default: envhub/base@main."},
                    },
                    "additionalProperties": False,
                }
            }
        },
    }
}


@router.get("/datasets")
async def list_datasets(
    deps: Deps,
    actor: Reader,
    page: PageQuery,
    kind: Annotated[str | None, Query(alias="type")] = None,
    q: Annotated[str | None, Query(description="A part of the name.")] = None,
) -> JSONResponse:
    """The datasets that the project can use, newest first."""
    asked = page.of("datasets", actor, type=kind, q=q)
    async with deps.database.session() as session:
        found = await datasets.list_page(session, actor, asked, dataset_type=kind, q=q)
    return page_answer(found, observed_at=wire_time(deps.clock.now()))


@router.get("/datasets/{b64}")
async def get_dataset(deps: Deps, actor: Reader, name: DatasetName) -> JSONResponse:
    """A dataset with its versions."""
    async with deps.database.session() as session:
        return answer(await datasets.get(session, actor, name))


@router.get("/datasets/{b64}/versions")
async def list_dataset_versions(
    deps: Deps, actor: Reader, name: DatasetName, page: PageQuery, version: str | None = None
) -> JSONResponse:
    """The versions of a dataset, newest first; `version` keeps exactly that one."""
    asked = page.of("dataset.versions", actor, name=name, version=version)
    async with deps.database.session() as session:
        found = await datasets.versions_page(session, actor, name, asked, label=version)
        checked = await checks.outcomes(session, actor, name, [item["version"] for item in found.items])
    for item in found.items:
        item["check"] = checked.get(item["version"])
    return page_answer(found, observed_at=wire_time(deps.clock.now()))


@router.post("/datasets/{b64}/versions", status_code=201, openapi_extra=_TAR)
async def publish_dataset(
    deps: Deps,
    actor: Annotated[Principal, needs(Capability.DATASETS_WRITE)],
    name: DatasetName,
    request: Request,
    version: str | None = None,
    visibility: str | None = None,
) -> JSONResponse:
    """Publishes a version: 201 when it is new, 200 for the same content again, 409 for other content."""
    async with saved_upload(request, deps.upload_dir) as archive, deps.database.transaction() as session:
        published, is_new = await datasets.publish(
            session,
            actor,
            archive=archive,
            name=name,
            version=version,
            visibility=visibility,
            blobs=deps.blobs,
            clock=deps.clock,
        )
    return answer(published, 201 if is_new else 200)


@router.get("/datasets/{b64}/versions/{revision}")
async def get_dataset_version(deps: Deps, actor: Reader, name: DatasetName, revision: str) -> JSONResponse:
    """One version, by its label or its revision."""
    async with deps.database.session() as session:
        found = await datasets.version(session, actor, name, revision)
        checked = await checks.outcomes(session, actor, name, [found["version"]])
    return answer(found | {"check": checked.get(found["version"])})


@router.post("/datasets/{b64}/versions/{revision}/check", status_code=202, openapi_extra=_CHECK)
async def check_dataset_version(
    deps: Deps,
    actor: Annotated[Principal, needs(Capability.JOBS_RUN)],
    name: DatasetName,
    revision: str,
    request: Annotated[dict[str, Any], Depends(json_object)],
) -> JSONResponse:
    """Runs the oracle three times and the agent that does nothing once; the outcome stands on the version later."""
    unknown = sorted(set(request) - {"request_id", "max_cost_usd", "runner"})
    if unknown:
        raise InvalidRequest([{"path": path, "problem": "is no member of a check"} for path in unknown])
    async with deps.database.transaction() as session:
        return answer(await checking.check(session, deps.jobs, actor, deps.blobs, name, revision, request), 202)


@router.get("/datasets/{b64}/versions/{revision}/tasks")
async def list_dataset_tasks(
    deps: Deps, actor: Reader, name: DatasetName, revision: str, page: PageQuery, split: str | None = None
) -> JSONResponse:
    """The tasks of a version, by name."""
    asked = page.of("dataset.tasks", actor, name=name, revision=revision, split=split)
    async with deps.database.session() as session:
        found = await datasets.tasks_page(session, actor, name, revision, asked, split=split)
    return page_answer(found, observed_at=wire_time(deps.clock.now()))
