"""The rate limit: requests a minute for one key, on HTTP and MCP together, and for an address without a key."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from starlette.types import ASGIApp, Receive, Scope, Send

from tollbar.access.caller import caller_of
from tollbar.access.principal import Principal
from tollbar.http.errors import RateLimited
from tollbar.http.paths import API, below

_MINUTE_S: Final = 60


@dataclass(frozen=True)
class RateState:
    """Requests of one minute; `resets_at` (seconds since 1970) is when the first of them counts no more."""

    limit: int
    used: int
    resets_at: float | None


@dataclass(frozen=True)
class Limiter:
    """Moving windows of one minute."""

    windows: MovingWindowRateLimiter
    per_key: RateLimitItem
    per_address: RateLimitItem

    async def admit(self, principal: Principal | None, address: str, now: Callable[[], datetime]) -> None:
        """Counts one request of a key, or of an address where there is no principal; raises `RateLimited`."""
        limit, name = (
            (self.per_address, ("address", address))
            if principal is None
            else (self.per_key, (principal.kind, principal.key_id))
        )
        if not await self.windows.hit(limit, *name):
            reset_at = (await self.windows.get_window_stats(limit, *name)).reset_time
            wait_s = math.ceil(reset_at - now().timestamp())
            raise RateLimited(limit.amount, max(1, min(_MINUTE_S, wait_s)))

    async def state(self, principal: Principal) -> RateState:
        """Returns how much of a key's present minute is used, without counting a request."""
        window = await self.windows.get_window_stats(self.per_key, principal.kind, principal.key_id)
        used = self.per_key.amount - window.remaining
        return RateState(self.per_key.amount, used, window.reset_time if used else None)


def memory_limiter(*, per_key: int = 200, per_address: int = 60) -> Limiter:
    """Returns a limiter whose windows live in this process."""
    return Limiter(
        MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerMinute(per_key), RateLimitItemPerMinute(per_address)
    )


class RateLimit:
    """Counts every request to `/v1` and `/api`; stands behind the authentication, whose outcome it reads."""

    def __init__(self, app: ASGIApp, limiter: Limiter, now: Callable[[], datetime]) -> None:
        self._app = app
        self._limiter = limiter
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and below(scope["path"], API):
            address = scope["client"][0] if scope.get("client") else "unknown"
            await self._limiter.admit(caller_of(scope).principal, address, self._now)
        await self._app(scope, receive, send)
