"""Refusals outside of any tool: JSON-RPC error objects with the HTTP status, a code, and no word of the caller's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.access.errors import Unauthenticated
from tollbar.kit.errors import TollbarError

_INVALID_REQUEST: Final = -32600
_KEPT_HEADERS: Final = frozenset({b"allow", b"retry-after"})
_JSON: Final = b"application/json"

_CODES: Final[Mapping[int, tuple[str, str]]] = {
    400: ("INVALID_REQUEST", "The request cannot be read."),
    403: ("INVALID_REQUEST", "This server does not answer to pages of that Origin."),
    404: ("NOT_FOUND", "There is no such method."),
    405: ("METHOD_NOT_ALLOWED", "This endpoint takes POST."),
    406: ("INVALID_REQUEST", "The answer is JSON: Accept must allow application/json."),
    413: ("REQUEST_TOO_LARGE", "The body is larger than 4 MiB."),
    415: ("UNSUPPORTED_MEDIA_TYPE", "The body must be JSON (Content-Type: application/json)."),
    421: ("INVALID_REQUEST", "This server does not answer to that Host."),
    500: ("INTERNAL_ERROR", "Something went wrong inside the server."),
}
"""Per status the code, and the words where the SDK has none or ones that name what the caller sent."""

_SDK_WORDS: Final = {"Invalid Content-Type header": "Content-Type must be application/json."}
_ONE_MESSAGE: Final = "The body must be one JSON-RPC request or notification."


def error_shape(error: TollbarError, headers: Mapping[str, str]) -> ASGIApp:
    """Returns the answer for an error outside of any tool: a 401 as over HTTP, all else as a JSON-RPC error object.

    The outer app's error mapper calls it for this endpoint's path.
    """
    body = error.body()
    if isinstance(error, Unauthenticated) and error.presented:
        body["error"] = "invalid_token"
    if error.status != 401:
        body = _object(error.message, {"code": error.code, "status": error.status, **error.facts})
    return JSONResponse(body, error.status, headers={"Cache-Control": "no-store", **headers})


async def refuse(send: Send, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Answers with a JSON-RPC error object of that HTTP status."""
    await _answer(send, status, _object(message, {"code": _CODES[status][0], "status": status}), headers or [])


class JsonRefusals:
    """Rewrites refusals of the SDK: plain text and nothing become JSON, and what quotes the caller is said anew."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: dict[str, Any] = {}

        async def rewrite(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _CODES:
                held.update(message, text=b"")
                return
            if message["type"] == "http.response.body" and held:
                held["text"] += message.get("body", b"")
                if not message.get("more_body"):
                    kept = [header for header in held["headers"] if header[0] in _KEPT_HEADERS]
                    await _answer(send, int(held["status"]), _rewritten(held), kept)
                return
            await send(message)

        await self._app(scope, receive, rewrite)


def _rewritten(held: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON-RPC error object for what the SDK answered."""
    status, text = int(held["status"]), held["text"].decode("utf-8", errors="replace")
    code, words = _CODES[status]
    facts = {"code": code, "status": status}
    if not dict(held["headers"]).get(b"content-type", b"").startswith(_JSON):
        return _object(_SDK_WORDS.get(text, words), facts)
    body = json.loads(text)
    error = body["error"]
    if error["message"].startswith("Validation error"):
        error["message"] = _ONE_MESSAGE
    if not isinstance(error.get("data"), dict):
        error["data"] = facts
    return body


def _object(message: str, data: Mapping[str, Any]) -> dict[str, Any]:
    error = {"code": _INVALID_REQUEST, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": None, "error": error}


async def _answer(send: Send, status: int, body: Mapping[str, Any], extra: list[tuple[bytes, bytes]]) -> None:
    data = json.dumps(body, separators=(",", ":")).encode()
    headers = [
        (b"content-type", _JSON),
        (b"content-length", str(len(data)).encode()),
        (b"cache-control", b"no-store"),
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
