"""The Host check: a name that a foreign page rebound to this server's address is turned away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from tollbar.http.errors import HostNotAllowed
from tollbar.http.paths import PROBES, header

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_ANY_PORT: Final = ":*"


def allowed_hosts(origin: str, *, loopback: bool, more: Iterable[str] = ()) -> list[str]:
    """Returns the Host patterns that a server of that public origin answers to.

    A pattern is an exact Host value or `name:*`, which stands for any port and not for the bare name.
    """
    name = urlsplit(origin).netloc.rpartition("@")[2]
    bare = name.rsplit(":", 1)[0] if name.rpartition("]")[2].count(":") else name
    found = [name, bare, f"{bare}{_ANY_PORT}"]
    if loopback:
        found += [value for host in _LOOPBACK for value in (host, f"{host}{_ANY_PORT}")]
    return list(dict.fromkeys([*found, *more]))


def host_matches(host: str, patterns: Sequence[str]) -> bool:
    """Says whether a Host value is one of the patterns; letter case does not matter."""
    host = host.lower()
    for pattern in map(str.lower, patterns):
        if host == pattern:
            return True
        if pattern.endswith(_ANY_PORT):
            start = pattern[:-1]
            if host.startswith(start) and host[len(start) :].isdecimal():
                return True
    return False


class HostCheck:
    """Lets through requests for this server's own names; probes come by address and are let through."""

    def __init__(self, app: ASGIApp, patterns: Sequence[str]) -> None:
        self._app = app
        self._patterns = patterns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["path"] not in PROBES
            and not host_matches(header(scope, b"host") or "", self._patterns)
        ):
            raise HostNotAllowed
        await self._app(scope, receive, send)
