"""Joins HTTP, MCP and console into one ASGI app under one authentication and one rate limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Scope

from tollbar.access.caller import caller_of
from tollbar.access.principal import Principal
from tollbar.artifacts.blobs import BlobStore
from tollbar.console.pages import Console, ConsoleDeps
from tollbar.db.session import Database
from tollbar.gateway.prices import PriceBook
from tollbar.http.app import build_http
from tollbar.http.deps import HttpDeps
from tollbar.http.hosts import allowed_hosts
from tollbar.http.limiting import memory_limiter
from tollbar.http.metrics import Metrics
from tollbar.jobs.service import JobsContext
from tollbar.kit.clock import Clock
from tollbar.mcp.endpoint import build_mcp, error_shape
from tollbar.mcp.tools import ToolDeps
from tollbar.settings import Settings

MCP_PATH: Final = "/v1/mcp"
_ORIGINS: Final = (
    "https://claude.ai",
    "https://claude.com",
    "https://chatgpt.com",
    "http://127.0.0.1:*",
    "http://localhost:*",
)
NO_OWN_PRICES: Final = PriceBook()
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def build_app(
    settings: Settings,
    database: Database,
    blobs: BlobStore,
    jobs: JobsContext,
    clock: Clock,
    origin: str,
    upload_dir: Path,
    prices: PriceBook = NO_OWN_PRICES,
) -> FastAPI:
    """Returns the whole app of a server with that public origin."""
    loopback = settings.host in _LOOPBACK
    hosts = allowed_hosts(origin, loopback=loopback, more=settings.allowed_hosts)
    deps = HttpDeps(
        database=database,
        jobs=jobs,
        blobs=blobs,
        clock=clock,
        limiter=memory_limiter(per_key=settings.requests_per_minute),
        allowed_hosts=tuple(hosts),
        upload_dir=upload_dir,
        prices=prices,
        shapes={MCP_PATH: error_shape},
        metrics=Metrics(None if settings.metrics_token is None else settings.metrics_token.get_secret_value()),
    )
    mcp = build_mcp(
        ToolDeps(database, jobs),
        _principal,
        allowed_hosts=hosts,
        allowed_origins=[origin, *_ORIGINS, *settings.allowed_origins],
    )
    console = Console(ConsoleDeps(database, jobs, clock, secure=urlsplit(origin).scheme == "https"))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with mcp.running():
            yield

    app = build_http(deps)
    app.router.routes += [Route(MCP_PATH, mcp.app), *console.routes()]
    app.router.lifespan_context = lifespan
    return app


def _principal(scope: Scope) -> Principal:
    return caller_of(scope).required()
