"""The ASGI side of `/v1/mcp`: POST only, no batches, a principal first."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mcp.server.streamable_http_manager import DEFAULT_MAX_REQUEST_BODY_SIZE, StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.kit.errors import TollbarError
from tollbar.mcp.refusals import JsonRefusals, error_shape, refuse
from tollbar.mcp.server import EvaluationServer, PrincipalOf
from tollbar.mcp.tools import ToolDeps

__all__ = ["McpEndpoint", "build_mcp", "error_shape"]

MAX_BODY_BYTES: Final = DEFAULT_MAX_REQUEST_BODY_SIZE
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"


@dataclass(frozen=True)
class McpEndpoint:
    """An MCP endpoint: mount `app` at its one path and enter `running()` in the outer app's lifespan."""

    app: ASGIApp
    server: EvaluationServer

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Runs the SDK's session manager for the life of the app; works once per object."""
        async with self.server.session_manager.run():
            yield


def build_mcp(
    deps: ToolDeps, principal_of: PrincipalOf, *, allowed_hosts: list[str], allowed_origins: list[str]
) -> McpEndpoint:
    """Returns the endpoint of the evaluation tools."""
    server = EvaluationServer(deps, principal_of)
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins
    )
    # Made only for its session manager: a mounted app would redirect and bring its own error pages.
    server.streamable_http_app(
        streamable_http_path="/", json_response=True, stateless_http=True, transport_security=security
    )
    inner = JsonRefusals(StreamableHTTPASGIApp(server.session_manager))
    return McpEndpoint(_Guard(_AcceptJson(inner), principal_of), server)


class _Guard:
    """Lets through one POST with one message of a known caller."""

    def __init__(self, app: ASGIApp, principal_of: PrincipalOf) -> None:
        self._app = app
        self._principal_of = principal_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._principal_of(scope)
        except TollbarError as error:
            # Rights are judged inside a call, so that lists work; only an unknown caller is turned away here.
            if error.status == 401:
                raise
        if scope["method"] != "POST":
            await refuse(send, 405, "This endpoint takes POST.", [(b"allow", b"POST")])
            return
        replay = _Replay(receive)
        if await replay.first_byte() == b"[":
            await refuse(send, 400, "JSON-RPC batches are not accepted.")
            return
        await self._app(scope, replay.receive, send)


class _Replay:
    """Reads the beginning of a body and gives it again to whoever reads next."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []

    async def first_byte(self) -> bytes:
        """Returns the first byte that is neither white space nor a byte-order mark; empty when there is none.

        Blank bytes beyond the limit of a body are not waited for: the reader behind refuses them for their size.
        """
        blank = 0
        while True:
            message = await self._receive()
            self._kept.append(message)
            body = message.get("body", b"")
            start = body.lstrip(_BLANK)[:1]
            blank += len(body)
            ended = message["type"] != "http.request" or not message.get("more_body")
            if start or ended or blank > MAX_BODY_BYTES:
                return start

    async def receive(self) -> Message:
        return self._kept.pop(0) if self._kept else await self._receive()


class _AcceptJson:
    """Treats a missing or fully open Accept header as what this endpoint speaks."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = dict(scope["headers"]).get(b"accept", b"")
        if accept.strip() in {b"", b"*/*"}:
            kept = [(name, value) for name, value in scope["headers"] if name != b"accept"]
            scope = {**scope, "headers": [*kept, (b"accept", b"application/json, text/event-stream")]}
        await self._app(scope, receive, send)
