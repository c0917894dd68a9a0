"""The Docker engine as this backend uses it: its interface for containers, its own program for builds and copies."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Final

import aiodocker
import aiohttp

from tollbar.sandboxes.errors import BackendUnusable, SandboxLost
from tollbar.sandboxes.interface import Problem

_PASSED_ON: Final = ("PATH", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
"""All that the program gets of the server's environment: nothing of it can end in an image."""
_TAIL_BYTES: Final = 16 << 10
_NO_CONNECTION: Final = 900
"""The client's status for an engine that it cannot reach."""
_LINK: Final = 1 << 27
_FOLDER: Final = 1 << 31
"""Bits of a mode as the engine writes it."""
GONE: Final = frozenset({404, 409})
"""Statuses with which the engine answers for what is not there, or not in the state that was needed."""


@dataclass(frozen=True)
class Said:
    """How the program ended, with the end of what it printed."""

    exit_code: int
    text: str


@dataclass(frozen=True)
class Stat:
    """What lies at a path of a container, links not followed."""

    is_link: bool
    is_folder: bool


class Engine:
    """An engine by its address: `host` (a `DOCKER_HOST`), else what the environment and Docker's own settings say."""

    def __init__(self, host: str | None = None) -> None:
        self._host = host
        self._client: aiodocker.Docker | None = None

    @property
    def client(self) -> aiodocker.Docker:
        """Returns the client; raises `BackendUnusable` when no address is known."""
        if self._client is None:
            try:
                self._client = aiodocker.Docker(self._host)
            except (AssertionError, ValueError, aiodocker.DockerError) as error:
                msg = "no Docker engine is configured"
                raise BackendUnusable(msg) from error
        return self._client

    async def close(self) -> None:
        """Closes its connections."""
        if self._client is not None:
            await self._client.close()

    async def problem(self, runtime: str | None = None) -> Problem | None:
        """Returns what is in the way of using it (with that runtime), or None."""
        if self.program is None:
            return Problem("DOCKER_PROGRAM", "There is no docker program.", "Install Docker's command line.")
        try:
            async with asyncio.timeout(10):
                await self.client.version()
                runtimes = [] if runtime is None else [*(await self.client.system.info())["Runtimes"]]
        except (BackendUnusable, aiodocker.DockerError, aiohttp.ClientError, OSError, TimeoutError) as error:
            fix = "Start it, or name another one in DOCKER_HOST; this user must be allowed to use it."
            return Problem("DOCKER_ENGINE", f"The Docker engine does not answer: {error or type(error).__name__}", fix)
        if runtime is not None and runtime not in runtimes:
            fix = f"Add {runtime} to the engine's runtimes, or take TOLLBAR_DOCKER_RUNTIME away."
            return Problem("DOCKER_RUNTIME", f"The Docker engine has no runtime {runtime}: {', '.join(runtimes)}.", fix)
        return None

    async def has_compose(self) -> bool:
        """Says whether the program has Compose, version 2 or later; an older one of that name is none."""
        try:
            said = await self.run("compose", "version", "--short", timeout_s=10)
        except TimeoutError:
            return False
        return said.exit_code == 0 and said.text.strip().lstrip("v")[:1] in set("23456789")

    @property
    def program(self) -> str | None:
        """Returns the path of the program `docker`."""
        return shutil.which("docker")

    async def run(self, *words: str, timeout_s: float) -> Said:
        """Runs the program to its end. Raises `TimeoutError`, and has ended it with all that it started."""
        process = await asyncio.create_subprocess_exec(
            "docker",
            *words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            start_new_session=True,
        )
        assert process.stdout is not None
        tail = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                while part := await process.stdout.read(_TAIL_BYTES):
                    tail += part
                    del tail[:-_TAIL_BYTES]
                return Said(await process.wait(), tail.decode(errors="replace"))
        finally:
            await _end(process)

    @asynccontextmanager
    async def copying_out(self, container: str, path: str) -> AsyncGenerator[IO[bytes]]:
        """Yields the archive of a path, to be read in a thread as far as it is wanted."""
        readable, writable = os.pipe()
        with os.fdopen(readable, "rb") as archive:
            try:
                process = await asyncio.create_subprocess_exec(
                    "docker",
                    "cp",
                    f"{container}:{path}",
                    "-",
                    stdin=subprocess.DEVNULL,
                    stdout=writable,
                    stderr=subprocess.DEVNULL,
                    env=self._environment(),
                    start_new_session=True,
                )
            finally:
                os.close(writable)
            try:
                yield archive
            finally:
                await _end(process)

    def kill_now(self, containers: Sequence[str]) -> None:
        """Tells the engine to end containers and does not wait; any thread may call it, without an event loop."""
        if containers:
            words, own = ("docker", "kill", *containers), self._environment()
            threading.Thread(target=_run_quietly, args=(words, own), name="docker-kill").start()

    async def stat(self, container: str, path: str) -> Stat | None:
        """Returns what lies at a path, or None."""
        await self.client.version()
        url = f"{self.client.docker_host}/{self.client.api_version}/containers/{container}/archive"
        async with self.client.session.head(url, params={"path": path}) as answer:
            if answer.status == 404:
                return None
            answer.raise_for_status()
            mode: int = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))["mode"]
        return Stat(bool(mode & _LINK), bool(mode & _FOLDER))

    def _environment(self) -> Mapping[str, str]:
        own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return own if self._host is None else {**own, "DOCKER_HOST": self._host}


def _run_quietly(words: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment)


def is_away(error: Exception) -> bool:
    """Says whether a call failed because the engine does not answer, not because of what it answered."""
    return isinstance(error, aiohttp.ClientError | ConnectionError) or getattr(error, "status", None) == _NO_CONNECTION


@contextmanager
def reached() -> Generator[None]:
    """Raises `SandboxLost` for a call in it that the engine does not answer: what it held may be gone."""
    try:
        yield
    except (aiodocker.DockerError, aiohttp.ClientError, ConnectionError) as error:
        if not is_away(error):
            raise
        raise SandboxLost("engine", "The Docker engine does not answer.") from error


def is_configured(host: str | None) -> bool:
    """Says whether somebody named an engine, so that one that does not answer is a fault."""
    return host is not None or any(name in os.environ for name in ("DOCKER_HOST", "DOCKER_CONTEXT"))


async def unless_gone(work: Any) -> bool:
    """Awaits a call on a container; False when it is gone already, or not running any more."""
    try:
        await work
    except aiodocker.DockerError as error:
        if error.status not in GONE:
            raise
        return False
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
