"""The one error mapper: whatever a request raises is answered as an error object with a code."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, NoReturn

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.http.answers import ErrorShape, error_answer, error_headers
from tollbar.http.bodies import MAX_BODY_BYTES
from tollbar.http.errors import WrongMethod
from tollbar.kit.errors import (
    InternalError,
    InvalidRequest,
    NotFound,
    RequestTooLarge,
    ServiceUnavailable,
    TollbarError,
)

_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
_log = structlog.get_logger("tollbar.http")


class Refusals:
    """Answers every exception of a request; `shapes` names the paths whose interface has its own error shape."""

    def __init__(self, app: ASGIApp, shapes: Mapping[str, ErrorShape]) -> None:
        self._app = app
        self._shapes = shapes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            return
        except Exception as raised:
            error = _as_error(scope, raised)
            if started:
                # Half an answer is out: only a broken connection tells the client that it is not whole.
                raise
            shape = self._shapes.get(scope["path"], error_answer)
            await shape(error, error_headers(error))(scope, receive, send)


def _as_error(scope: Scope, raised: Exception) -> TollbarError:
    if isinstance(raised, TollbarError):
        return raised
    if isinstance(raised, OperationalError | InterfaceError | NoFreeConnection):
        _log.warning("the database did not answer", method=scope["method"], path=scope["path"], exc_info=raised)
        return ServiceUnavailable("The database")
    error_id = uuid.uuid4().hex
    _log.error("request failed", error_id=error_id, method=scope["method"], path=scope["path"], exc_info=raised)
    return InternalError(error_id)


async def translate_http_error(request: Request, raised: Exception) -> NoReturn:
    """Raises the error of ours that a refusal of the framework means, so that `Refusals` answers it."""
    assert isinstance(raised, HTTPException)
    if raised.status_code == 404:
        hint = "Leave the trailing slash out." if request.url.path.endswith("/") else None
        raise NotFound("such route", hint=hint)
    if raised.status_code == 405:
        raise WrongMethod(request.method, _allowed(request))
    if raised.status_code == 413:
        raise RequestTooLarge(MAX_BODY_BYTES)
    if raised.status_code < 500:
        raise InvalidRequest([{"path": "", "problem": "cannot be read"}])
    raise raised


async def translate_validation_error(request: Request, raised: Exception) -> NoReturn:
    """Raises `InvalidRequest` for what the framework found; its own text would repeat the caller's values."""
    del request
    assert isinstance(raised, RequestValidationError)
    paths = sorted({".".join(str(part) for part in found["loc"][1:]) for found in raised.errors()})
    raise InvalidRequest([{"path": path, "problem": "is missing or not valid"} for path in paths])


def _allowed(request: Request) -> list[str]:
    """Returns the methods of all routes at the request's path: each is a route of its own."""
    app = request.app
    assert isinstance(app, FastAPI)
    return [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in app.routes)
    ]
