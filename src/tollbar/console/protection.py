"""What protects pages and forms: headers on every answer, forms from our own pages alone, small bodies."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Under `no-referrer` browsers send `Origin: null` with our own forms: none could be told from a foreign one.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STRICT_TRANSPORT: Final = "max-age=31536000"
_MAX_FORM_BYTES: Final = 4096


def protected(answer: Response, *, secure: bool) -> Response:
    """Adds the headers; `secure` says that the public origin is https."""
    answer.headers.update(HEADERS)
    if secure:
        answer.headers["Strict-Transport-Security"] = _STRICT_TRANSPORT
    return answer


def own_origin(request: Request) -> bool:
    """Says whether a form came from a page of this server: every browser sends `Origin` with a POST."""
    scheme, _, host = request.headers.get("origin", "").partition("://")
    return scheme in {"http", "https"} and host == request.headers.get("host")


def form_token(cookie: str) -> str:
    """Returns what a form of that session must bring: nobody can make it who does not know the cookie."""
    return hashlib.sha256(f"form:{cookie}".encode("utf-8", errors="surrogatepass")).hexdigest()


def is_own_form(request: Request, cookie: str | None, form: dict[str, str]) -> bool:
    """Says whether a form was made by a page of this session, and sent from it."""
    if cookie is None or not own_origin(request):
        return False
    given = form.get("token", "").encode("utf-8", errors="replace")
    return hmac.compare_digest(form_token(cookie).encode(), given)


async def small_form(request: Request) -> dict[str, str]:
    """Returns the fields of a URL-encoded form of at most 4 KiB; anything larger is an empty form."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_FORM_BYTES:
            return {}
    return dict(parse_qsl(data.decode("utf-8", errors="replace")))
