"""The ASGI side of `/v1/mcp`: POST only, no batches, a principal first, and JSON for every refusal."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.kit.errors import TollbarError
from tollbar.mcp.server import EvaluationServer, PrincipalOf
from tollbar.mcp.tools import ToolDeps

_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_INVALID_REQUEST: Final = -32600


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
    inner = _JsonRefusals(StreamableHTTPASGIApp(server.session_manager))
    return McpEndpoint(_Guard(_AcceptJson(inner), principal_of), server)


def rpc_error(status: int, code: str, message: str, rpc_code: int = _INVALID_REQUEST) -> bytes:
    """Returns the JSON-RPC error body of a transport-level refusal."""
    error = {"code": rpc_code, "message": message, "data": {"code": code, "status": status}}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


def error_shape(error: TollbarError, headers: Mapping[str, str]) -> ASGIApp:
    """Returns the answer for an error outside of any tool: a 401 as over HTTP, all else as a JSON-RPC error object.

    The outer app's error mapper calls it for this endpoint's path.
    """
    body: dict[str, Any] = error.body()
    if error.status != 401:
        data = {"code": error.code, "status": error.status, **error.facts}
        body = {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": _INVALID_REQUEST, "message": error.message, "data": data},
        }
    return JSONResponse(body, error.status, headers={"Cache-Control": "no-store", **headers})


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
            body = rpc_error(405, "METHOD_NOT_ALLOWED", "This endpoint takes POST.")
            await _answer(send, 405, body, [(b"allow", b"POST")])
            return
        replay = _Replay(receive)
        if await replay.first_byte() == b"[":
            body = rpc_error(400, "INVALID_REQUEST", "JSON-RPC batches are not accepted")
            await _answer(send, 400, body)
            return
        await self._app(scope, replay.receive, send)


class _Replay:
    """Reads the beginning of a body and gives it again to whoever reads next."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []

    async def first_byte(self) -> bytes:
        """Returns the first byte that is neither white space nor a byte-order mark; empty when there is none."""
        while True:
            message = await self._receive()
            self._kept.append(message)
            start = message.get("body", b"").lstrip(_BLANK)[:1]
            if start or message["type"] != "http.request" or not message.get("more_body"):
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


_CODES: Final = {
    400: "INVALID_REQUEST",
    403: "ORIGIN_DENIED",
    405: "METHOD_NOT_ALLOWED",
    406: "NOT_ACCEPTABLE",
    413: "REQUEST_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "HOST_DENIED",
}


class _JsonRefusals:
    """Rewrites the SDK's plain-text and empty refusals as JSON with the same status."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: dict[str, Any] = {}

        async def rewrite(message: Message) -> None:
            if message["type"] == "http.response.start":
                kind = dict(message["headers"]).get(b"content-type", b"")
                if message["status"] in _CODES and not kind.startswith(b"application/json"):
                    held.update(message, text=b"")
                    return
            if message["type"] == "http.response.body" and held:
                held["text"] += message.get("body", b"")
                if not message.get("more_body"):
                    await self._refuse(send, held)
                return
            await send(message)

        await self._app(scope, receive, rewrite)

    async def _refuse(self, send: Send, held: dict[str, Any]) -> None:
        status = held["status"]
        text = held["text"].decode("utf-8", errors="replace")[:200] or "The request was refused."
        extra = [(name, value) for name, value in held["headers"] if name in {b"allow", b"retry-after"}]
        await _answer(send, status, rpc_error(status, _CODES[status], text), extra)


async def _answer(send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *(extra or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
