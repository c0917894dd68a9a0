"""Which paths belong to programs (keys, limits, cross-origin reads) and which to people in a browser."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Scope

API: Final = ("/v1", "/api")
CROSS_ORIGIN: Final = (*API, "/.well-known", "/token", "/register", "/revoke")
PROBES: Final = frozenset({"/healthz", "/readyz"})
PREFIXES: Final = ("/v1", "/api/v1")
"""Where the evaluation dialect is mounted; the first is the one that OpenAPI shows."""
_UPLOAD: Final = re.compile(r"(?:/api)?/v1/datasets/[^/]+/versions\Z")


def below(path: str, roots: tuple[str, ...]) -> bool:
    """Says whether a path is one of `roots` or lies below one."""
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def is_upload(scope: Scope) -> bool:
    """Says whether a request brings a file, whose size has its own bound."""
    return scope["method"] == "POST" and _UPLOAD.match(scope["path"]) is not None


def header(scope: Scope, name: bytes) -> str | None:
    """Returns the first value of a header (its name in lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None
