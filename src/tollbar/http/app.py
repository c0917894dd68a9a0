"""The ASGI app of the HTTP interface; MCP and console add their routes to it and stand behind the same checks."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse

import tollbar
from tollbar.http import (
    absent,
    billing,
    datasets,
    health,
    jobs,
    me,
    openapi,
    profiles,
    projects,
    runners,
    scraping,
    trials,
)
from tollbar.http.access_log import AccessLog
from tollbar.http.answers import answer
from tollbar.http.authentication import Authentication
from tollbar.http.bodies import BodyLimit
from tollbar.http.cors import CrossOrigin
from tollbar.http.deps import HttpDeps
from tollbar.http.draining import Draining
from tollbar.http.hosts import HostCheck
from tollbar.http.limiting import RateLimit
from tollbar.http.parameters import storable_parameters
from tollbar.http.paths import PREFIXES
from tollbar.http.refusals import Refusals, translate_http_error, translate_validation_error

ROUTERS: Final = (
    me.router,
    projects.router,
    absent.router,  # fixed paths such as /job/checkpoints stand before /job/{job_id}
    jobs.router,
    trials.router,
    datasets.router,
    runners.router,
    profiles.router,
    billing.router,
)


def build_http(deps: HttpDeps) -> FastAPI:
    """Returns the app. Its wrappers stand around every route that is added to it later."""
    app = FastAPI(
        title="tollbar",
        version=tollbar.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=_wrappers(deps),
    )
    app.add_exception_handler(HTTPException, translate_http_error)
    app.add_exception_handler(RequestValidationError, translate_validation_error)
    app.state.http = deps
    app.include_router(health.router)
    app.include_router(scraping.router)
    own = _own_routes(app)
    for index, prefix in enumerate(PREFIXES):
        for router in (own, *ROUTERS):
            app.include_router(
                router,
                prefix=prefix,
                dependencies=[Depends(storable_parameters)],
                responses=openapi.ERROR_RESPONSES,
                include_in_schema=index == 0,
            )
    return app


def _wrappers(deps: HttpDeps) -> list[Middleware]:
    """Returns what stands around the routes, outermost first; `Refusals` answers what those inside it raise."""
    return [
        Middleware(AccessLog, clock=deps.clock, metrics=deps.metrics),
        Middleware(Draining),
        Middleware(CrossOrigin),
        Middleware(Refusals, shapes=deps.shapes),
        Middleware(HostCheck, patterns=deps.allowed_hosts),
        Middleware(Authentication, database=deps.database, clock=deps.clock),
        Middleware(RateLimit, limiter=deps.limiter, now=deps.clock.now),
        Middleware(BodyLimit, max_upload_bytes=deps.max_upload_bytes, besides=deps.shapes.keys()),
    ]


def _own_routes(app: FastAPI) -> APIRouter:
    router = APIRouter(tags=["about"])
    made: dict[str, Any] = {}

    @router.get("/openapi.json")
    async def get_openapi_document() -> JSONResponse:
        """This document."""
        if not made:
            made.update(openapi.document(app.routes, PREFIXES[0]))
            for found in (router, *ROUTERS):
                openapi.describe_needs(found.routes, PREFIXES[0], made)
        return answer(made)

    return router
