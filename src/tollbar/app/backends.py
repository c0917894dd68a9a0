"""The sandbox backends of this machine: which there are, and which of them work."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import structlog

from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.docker.engine import Engine, is_configured
from tollbar.sandboxes.docker.provider import DockerProvider
from tollbar.sandboxes.interface import Capabilities, SandboxProvider
from tollbar.settings import DOCKER_OFF, Settings

_DOCKER: Final = "docker"

_log = structlog.get_logger()


class Backend(SandboxProvider, Protocol):
    """A backend of this process."""

    def kill_now(self) -> None:
        """Ends every sandbox of this process at once; any thread may call it."""
        ...


@dataclass(frozen=True)
class Backends:
    """The backends that work here, by their names; the first one is the best."""

    usable: Mapping[str, Backend]
    fallback: Backend
    """What stands for a backend where none works: no Trial is claimed then."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.usable)

    @property
    def capabilities(self) -> dict[str, Capabilities]:
        """Returns what each of them can enforce."""
        return {name: backend.capabilities() for name, backend in self.usable.items()}

    @property
    def first(self) -> Backend:
        return next(iter(self.usable.values()), self.fallback)

    def kill_now(self) -> None:
        """Ends every sandbox of this process at once; any thread may call it."""
        for backend in self.usable.values():
            backend.kill_now()

    async def reap(self, now: datetime) -> None:
        """Removes what dead processes left; one backend that fails keeps none of the others from it."""
        for name, backend in self.usable.items():
            try:
                await backend.reap((), now=now)
            except Exception:  # noqa: BLE001 - an engine may be away for a moment: the next round meets it again
                _log.exception("what dead processes left could not be removed", backend=name)


async def find_backends(stack: AsyncExitStack, settings: Settings, data_dir: Path) -> Backends:
    """Returns the backends that work here, and says in the log what is in the way of the others."""
    bwrap = bwrap_of(settings, data_dir)
    usable: dict[str, Backend] = {}
    for problem in await bwrap.preflight():
        _log.error("no bwrap sandbox can run here", code=problem.code, problem=problem.message, fix=problem.fix)
        break
    else:
        usable[bwrap.name] = bwrap
    docker = docker_of(settings, data_dir)
    if docker is not None:
        stack.push_async_callback(docker.close)
        problems = await docker.preflight()
        tell = _log.error if is_configured(settings.docker_host) else _log.info
        for problem in problems:
            tell("no Docker sandbox can run here", code=problem.code, problem=problem.message, fix=problem.fix)
        if not problems:
            usable[docker.name] = docker
    _log.info("sandbox backends", backends=list(usable))
    return Backends(usable, bwrap)


async def best_backend(settings: Settings, data_dir: Path) -> str:
    """Returns the backend of the default runner of a new installation: bwrap, unless only Docker works here."""
    bwrap, docker = bwrap_of(settings, data_dir), docker_of(settings, data_dir)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bwrap.kill_all)
        if docker is None or not await bwrap.preflight():
            return bwrap.name
        stack.push_async_callback(docker.close)
        return bwrap.name if await docker.preflight() else docker.name


def bwrap_of(settings: Settings, data_dir: Path) -> BwrapProvider:
    """Returns the bwrap backend of a data directory; nothing is started yet."""
    return BwrapProvider(data_dir / "sandboxes", sandbox_uid=settings.sandbox_uid, host=socket.gethostname())


def docker_of(settings: Settings, data_dir: Path) -> DockerProvider | None:
    """Returns the Docker backend of a data directory, which may not work; None where it is switched off."""
    if settings.docker_host == DOCKER_OFF:
        return None
    return DockerProvider(
        data_dir / _DOCKER,
        host=socket.gethostname(),
        engine=Engine(settings.docker_host),
        runtime=settings.docker_runtime,
    )
