"""What clients of this dialect may ask for and no key can have: empty lists and plain refusals."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter
from starlette.responses import JSONResponse

from tollbar.access.errors import HumanSessionRequired
from tollbar.access.principal import Capability, Principal
from tollbar.http.answers import answer
from tollbar.http.authorise import needs
from tollbar.http.errors import (
    AdapterNotFound,
    CheckpointNotFound,
    EndpointNotFound,
    ServingProfileNotFound,
    TrialCheckpointsNotFound,
    TrialTrainingNotFound,
)
from tollbar.jobs.errors import UnsupportedCapability

router = APIRouter(include_in_schema=False)

Reader = Annotated[Principal, needs(Capability.JOBS_READ)]
Writer = Annotated[Principal, needs(Capability.JOBS_RUN)]
_PROJECT: Final = "/workspaces/{workspace_id}/projects/{project_id}"
_WRITES: Final = ["POST", "PUT", "PATCH", "DELETE"]


@router.get("/job/checkpoints")
@router.get("/job/training-models")
@router.get("/serving/profiles")
@router.get("/adapters")
@router.get("/endpoints")
async def list_nothing(actor: Reader) -> JSONResponse:
    """Training and serving are not offered: an empty list."""
    del actor
    return answer({"items": [], "next_cursor": None})


@router.get("/job/checkpoints/download")
@router.delete("/job/checkpoints/{checkpoint_id}")
@router.get("/job/{job_id}/checkpoint/download")
async def no_checkpoint(actor: Reader) -> JSONResponse:
    """There are no checkpoints."""
    del actor
    raise CheckpointNotFound


@router.get("/serving/profiles/{name:path}")
async def no_serving_profile(actor: Reader) -> JSONResponse:
    """There are no serving profiles."""
    del actor
    raise ServingProfileNotFound


@router.get("/adapters/{name:path}")
async def no_adapter(actor: Reader) -> JSONResponse:
    """There are no adapters."""
    del actor
    raise AdapterNotFound


@router.get("/endpoints/{name:path}")
async def no_endpoint(actor: Reader) -> JSONResponse:
    """There are no endpoints."""
    del actor
    raise EndpointNotFound


@router.api_route("/serving/profiles", methods=_WRITES)
@router.api_route("/serving/profiles/{name:path}", methods=_WRITES)
@router.api_route("/adapters", methods=_WRITES)
@router.api_route("/adapters/{name:path}", methods=_WRITES)
@router.api_route("/endpoints", methods=_WRITES)
@router.api_route("/endpoints/{name:path}", methods=_WRITES)
async def write_nothing(actor: Writer) -> JSONResponse:
    """Training and serving are not offered: nothing can be written."""
    del actor
    raise UnsupportedCapability("Training and serving models are not offered here.")


@router.get("/trials/{trial_id}/training")
@router.get("/trials/{trial_id}/metrics")
async def no_training(actor: Reader) -> JSONResponse:
    """A Trial has no training data."""
    del actor
    raise TrialTrainingNotFound


@router.get("/trials/{trial_id}/checkpoints")
async def no_trial_checkpoints(actor: Reader) -> JSONResponse:
    """A Trial has no checkpoints."""
    del actor
    raise TrialCheckpointsNotFound


@router.patch(_PROJECT)
@router.put(f"{_PROJECT}/limits")
@router.patch(f"{_PROJECT}/limits")
@router.post(f"{_PROJECT}/archive")
@router.put(f"{_PROJECT}/members/{{user}}")
@router.delete(f"{_PROJECT}/members/{{user}}")
async def only_for_people(actor: Annotated[Principal, needs()]) -> JSONResponse:
    """Changing a project and its members is for signed-in people: every key is refused."""
    del actor
    raise HumanSessionRequired
