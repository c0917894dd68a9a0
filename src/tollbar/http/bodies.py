"""Bodies: bounded while they stream, strict JSON, uploads straight into a file."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from email.message import Message as MimeHeaders
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tollbar.http.paths import API, below, header, is_upload
from tollbar.kit.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from tollbar.kit.jsonio import read_json
from tollbar.kit.text import unstorable

MAX_BODY_BYTES: Final = 4 << 20
_WRITE_BYTES: Final = 1 << 20


class BodyLimit:
    """Refuses a body beyond its bound: at once when its length is declared, else when the bytes have come."""

    def __init__(self, app: ASGIApp, *, max_upload_bytes: int, besides: Collection[str]) -> None:
        self._app = app
        self._max_upload_bytes = max_upload_bytes
        self._besides = besides
        """Paths whose own app bounds its bodies."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._besides or not below(scope["path"], API):
            await self._app(scope, receive, send)
            return
        max_bytes = self._max_upload_bytes if is_upload(scope) else MAX_BODY_BYTES
        declared = header(scope, b"content-length") or ""
        if declared.isdecimal() and int(declared[:18]) > max_bytes:
            raise RequestTooLarge(max_bytes)
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > max_bytes:
                raise RequestTooLarge(max_bytes)
            return message

        await self._app(scope, counting, send)


async def json_object(request: Request) -> dict[str, Any]:
    """Returns the body as a JSON object whose texts can be stored.

    Raises `UnsupportedMediaType` (415), `MalformedJson` (400), `InvalidRequest` (422).
    """
    if not _is_json(request.headers.get("content-type")):
        raise UnsupportedMediaType("JSON (Content-Type: application/json)")
    value = read_json(await request.body())
    if not isinstance(value, dict):
        raise InvalidRequest([{"path": "", "problem": "must be an object"}])
    path = unstorable(value)
    if path is not None:
        raise InvalidRequest([{"path": path, "problem": "holds a character that no text can have"}])
    return value


def _is_json(content_type: str | None) -> bool:
    if content_type is None:
        return True
    headers = MimeHeaders()
    headers["content-type"] = content_type
    subtype = headers.get_content_subtype()
    return headers.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


@asynccontextmanager
async def saved_upload(request: Request, folder: Path) -> AsyncGenerator[Path]:
    """Writes the body into a file of `folder` as it comes and yields its path; the file is gone afterwards."""
    file = await asyncio.to_thread(_open, folder)
    try:
        with file:
            waiting = bytearray()
            async for chunk in request.stream():
                waiting += chunk
                if len(waiting) >= _WRITE_BYTES:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(file.write, bytes(waiting))
        yield Path(file.name)
    finally:
        await asyncio.to_thread(Path(file.name).unlink, missing_ok=True)


def _open(folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tempfile.NamedTemporaryFile(dir=folder, prefix="upload-", delete=False)
