"""One log line a request, and an id that stands on it, on every other line of the request, and on the answer.

Never the query, a header or a body: they hold secrets.
"""

from __future__ import annotations

import re
from typing import Final

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from tollbar.access.caller import caller_of
from tollbar.http.metrics import Metrics
from tollbar.http.paths import header
from tollbar.kit.clock import Clock
from tollbar.kit.ids import new_id

REQUEST_ID: Final = "X-Request-Id"
_FOREIGN_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")

_log = structlog.get_logger("tollbar.requests")


class AccessLog:
    """Logs method, path, status, seconds, the request's and the key's id under `tollbar.requests`, and counts them."""

    def __init__(self, app: ASGIApp, clock: Clock, metrics: Metrics) -> None:
        self._app = app
        self._clock = clock
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A submission has a member `request_id`; this one is the transport's.
        with bound_contextvars(http_request_id=(request_id := _id_of(scope))):
            await self._logged(scope, receive, send, request_id)

    async def _logged(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        began = self._clock.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            seconds = self._clock.monotonic() - began
            self._metrics.note(scope, status, seconds)
            principal = caller_of(scope).principal
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status,
                seconds=round(seconds, 4),
                key_id=None if principal is None else principal.key_id,
            )


def _id_of(scope: Scope) -> str:
    """Returns the id that a proxy in front gave the request, where it has a plain form, else a new one."""
    given = header(scope, b"x-request-id")
    return given if given is not None and _FOREIGN_ID.match(given) else new_id("req")
