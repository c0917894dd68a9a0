"""The right that a route needs, as a dependency: `actor: Annotated[Principal, needs(Capability.JOBS_RUN)]`."""

# Annotations here stay objects: the framework cannot resolve texts on the call of an instance.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.requests import Request

from tollbar.access.caller import caller_of
from tollbar.access.principal import Capability, Principal


@dataclass(frozen=True)
class Needs:
    """Returns who calls, or raises `Unauthenticated` and its kin, or `AccessDenied` for the first right missing."""

    capabilities: tuple[Capability, ...]

    async def __call__(self, request: Request) -> Principal:
        principal = caller_of(request.scope).required()
        principal.require(*self.capabilities)
        return principal


def needs(*capabilities: Capability) -> Any:
    """Returns the dependency on a caller with all of `capabilities`; with none, on any key."""
    return Depends(Needs(capabilities))


def needed_by(route: APIRoute) -> Sequence[Capability] | None:
    """Returns the rights that a route needs; None when it needs no key at all."""
    for dependency in route.dependant.dependencies:
        if isinstance(dependency.call, Needs):
            return dependency.call.capabilities
    return None
