"""One log line a request. Never the query, a header or a body: they hold secrets."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.access.caller import caller_of
from tollbar.http.metrics import Metrics
from tollbar.kit.clock import Clock

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
        began = self._clock.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
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
