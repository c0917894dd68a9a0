"""How an answer looks: JSON that no cache keeps and no browser sniffs, and one shape for every error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from tollbar.access.errors import Unauthenticated
from tollbar.http.errors import WrongMethod
from tollbar.kit.errors import TollbarError
from tollbar.kit.paging import Page

SAFE_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

ErrorShape = Callable[[TollbarError, Mapping[str, str]], ASGIApp]
"""Returns the answer for an error, with headers that it must carry."""


def answer(body: Mapping[str, Any], status: int = 200) -> JSONResponse:
    """Returns a JSON answer."""
    return JSONResponse(body, status, headers=SAFE_HEADERS)


def page_answer(page: Page[dict[str, Any]], **more: Any) -> JSONResponse:
    """Returns a page as `{items, next_cursor}`, with further members behind them."""
    return answer({"items": page.items, "next_cursor": page.next_cursor, **more})


def error_answer(error: TollbarError, headers: Mapping[str, str]) -> ASGIApp:
    """Returns an error in the evaluation dialect: the error object at the top level."""
    return JSONResponse(error.body(), error.status, headers={**SAFE_HEADERS, **headers})


def error_headers(error: TollbarError) -> dict[str, str]:
    """Returns the headers that say to a client what it can do about the error."""
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer error="invalid_token"' if error.presented else "Bearer"
    if isinstance(error, WrongMethod):
        headers["Allow"] = error.allow
    if "retry_after" in error.facts:
        headers["Retry-After"] = str(error.facts["retry_after"])
    return headers
