"""Finds out who sent a request to `/v1` or `/api` and keeps the outcome in its scope, for HTTP and MCP alike."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tollbar.access import service as access
from tollbar.access.caller import SCOPE_KEY, Caller
from tollbar.access.errors import Unauthenticated
from tollbar.db.session import Database
from tollbar.http.paths import API, below, header
from tollbar.kit.clock import Clock
from tollbar.kit.errors import TollbarError

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{1,512}\Z")


class Authentication:
    """Puts a `Caller` into the scope. Refuses nothing: each interface answers a refusal in its own way."""

    def __init__(self, app: ASGIApp, database: Database, clock: Clock) -> None:
        self._app = app
        self._database = database
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and below(scope["path"], API):
            scope[SCOPE_KEY] = await self._caller(scope)
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        token = bearer_token(header(scope, b"authorization"))
        if token is None:
            return Caller(None, Unauthenticated(presented=False))
        if not _TOKEN.match(token):
            return Caller(None, Unauthenticated(presented=True))
        try:
            async with self._database.transaction() as session:
                principal = await access.authenticate(
                    session,
                    token,
                    workspace=header(scope, b"x-workspace-id"),
                    project=header(scope, b"x-project-id"),
                    clock=self._clock,
                )
        except TollbarError as refusal:
            return Caller(None, refusal)
        return Caller(principal, None)


def bearer_token(value: str | None) -> str | None:
    """Returns the token of an Authorization header; None when there is none of the kind Bearer."""
    scheme, _, token = (value or "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
