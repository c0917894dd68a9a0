"""What the routes use, handed in by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends
from starlette.requests import Request

from tollbar.artifacts.blobs import BlobStore
from tollbar.db.session import Database
from tollbar.gateway.prices import PriceBook
from tollbar.http.answers import ErrorShape
from tollbar.http.limiting import Limiter
from tollbar.http.metrics import Metrics
from tollbar.jobs.service import JobsContext
from tollbar.kit.clock import Clock

MAX_UPLOAD_BYTES: Final = 256 << 20


def _no_shapes() -> dict[str, ErrorShape]:
    return {}


@dataclass(frozen=True)
class HttpDeps:
    """Everything that HTTP needs; nothing is read from settings or the environment."""

    database: Database
    jobs: JobsContext
    blobs: BlobStore
    clock: Clock
    limiter: Limiter
    allowed_hosts: tuple[str, ...]
    """Host patterns, exact or `name:*` (`hosts.allowed_hosts` makes them)."""
    upload_dir: Path
    """Where uploads wait while they are read; made when it is missing."""
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    metrics: Metrics = field(default_factory=Metrics)
    """What this process has counted, and who may read it."""
    prices: PriceBook = field(default_factory=PriceBook)
    """Read when somebody asks for a price."""
    shapes: Mapping[str, ErrorShape] = field(default_factory=_no_shapes)
    """Per exact path the error shape of another interface in the same app (MCP), which also bounds its own bodies."""


def _deps(request: Request) -> Any:
    return request.app.state.http


Deps = Annotated[HttpDeps, Depends(_deps)]
