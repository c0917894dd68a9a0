"""Reading across origins: allowed to every page for the paths of programs, never with the browser's own sign-in."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.http.paths import CROSS_ORIGIN, below, header

_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_EXPOSED: Final = "WWW-Authenticate, Retry-After, MCP-Protocol-Version, X-Request-Id"
_MAX_AGE_S: Final = 600


class CrossOrigin:
    """Answers preflights without a key and marks answers as readable; a key is always a header, never a cookie."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not below(scope["path"], CROSS_ORIGIN) or header(scope, b"origin") is None:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None:
            await _preflight(scope)(scope, receive, send)
        else:
            await self._app(scope, receive, _marking(send))


def _preflight(scope: Scope) -> Response:
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Max-Age": str(_MAX_AGE_S),
        "Vary": "Access-Control-Request-Headers",
    }
    # Mirrored, because `*` does not cover Authorization.
    asked = header(scope, b"access-control-request-headers")
    if asked is not None:
        headers["Access-Control-Allow-Headers"] = asked
    return Response(status_code=200, headers=headers)


def _marking(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = "*"
            headers["Access-Control-Expose-Headers"] = _EXPOSED
        await send(message)

    return marked
