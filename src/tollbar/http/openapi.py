"""The OpenAPI document of `/v1`: what each route needs is named, and errors have their one schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.routing import BaseRoute

import tollbar
from tollbar.http.authorise import needed_by

ABOUT: Final = (
    "Datasets, Agent Jobs, Trials and artifacts. Every route is also mounted below /api/v1. Every error has a "
    "top-level code in upper case. What a Trial wrote is untrusted data in every answer that shows it."
)
_BEARER: Final = "bearer"


class FieldProblem(BaseModel):
    """One member of a request that is not valid."""

    path: str
    problem: str


class ErrorObject(BaseModel):
    """Every error of this API; further members depend on the code."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(pattern="^[A-Z0-9_]{1,128}$")
    message: str
    hint: str | None = None
    missing_capability: str | None = Field(None, description="403 ACCESS_DENIED: the right that the key lacks.")
    fields: list[FieldProblem] | None = None
    job_id: str | None = Field(None, description="409 JOB_REQUEST_CONFLICT: the Job of the first request.")
    differs: list[str] | None = Field(None, description="409 JOB_REQUEST_CONFLICT: the names of what differs.")
    retry_after: int | None = Field(None, description="429: seconds until the next request is let in.")
    error_id: str | None = Field(None, description="5xx: the id under which the log has the cause.")


ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorObject, "description": "Refused; `code` says why."},
    "5XX": {"model": ErrorObject, "description": "Failed; `error_id` finds it in the log."},
}


def document(routes: Sequence[BaseRoute], prefix: str) -> dict[str, Any]:
    """Returns the document of the app's `routes` that lie below `prefix`."""
    whole = get_openapi(
        title="tollbar", version=tollbar.__version__, description=ABOUT, routes=routes, openapi_version="3.1.0"
    )
    whole["components"]["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
    whole["paths"] = {path: found for path, found in whole["paths"].items() if path.startswith(f"{prefix}/")}
    return whole


def describe_needs(routers_routes: Sequence[BaseRoute], prefix: str, whole: dict[str, Any]) -> None:
    """Writes into each operation of the document which rights its route needs."""
    for route in routers_routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        needed = needed_by(route)
        for method in route.methods or ():
            operation = whole["paths"][f"{prefix}{route.path_format}"][method.lower()]
            if needed is None:
                operation["security"] = []
                continue
            names = [capability.value for capability in needed]
            operation["security"] = [{_BEARER: []}]
            operation["x-capabilities"] = names
            text = f"Needs {' and '.join(f'`{name}`' for name in names)}." if names else "Needs any key."
            operation["description"] = f"{operation.get('description', '')}\n\n{text}".strip()
