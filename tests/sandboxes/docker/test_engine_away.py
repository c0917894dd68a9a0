"""An engine that goes away in the middle, as it does when it is restarted: what it held is lost, and says so."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from tests.sandboxes.docker.looking import IMAGE, containers

from tollbar.sandboxes.docker.engine import Engine
from tollbar.sandboxes.docker.provider import DockerProvider
from tollbar.sandboxes.errors import EnvironmentFailure, SandboxLost
from tollbar.sandboxes.interface import (
    ArtifactPath,
    Form,
    ImageSpec,
    Limits,
    Purpose,
    SandboxName,
    SandboxSpec,
    SealLimits,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


class Line:
    """A socket that leads to the engine until it is cut."""

    def __init__(self, path):
        self.path = path
        self._server = None
        self._ends = set()

    async def open(self):
        self._server = await asyncio.start_unix_server(self._join, str(self.path))

    async def cut(self):
        self._server.close()
        self.path.unlink()
        for writer in self._ends:
            writer.transport.abort()

    async def _join(self, reader, writer):
        far_reader, far_writer = await asyncio.open_unix_connection(os.environ["DOCKER_HOST"].removeprefix("unix://"))
        self._ends |= {writer, far_writer}
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))


async def _pass(reader, writer):
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


@pytest.fixture
async def line(tmp_path):
    made = Line(tmp_path / "line.sock")
    await made.open()
    yield made
    if made.path.exists():
        await made.cut()


@pytest.fixture
async def provider(tmp_path, line):
    made = DockerProvider(tmp_path / "data", host="here", engine=Engine(f"unix://{line.path}"))
    yield made
    await made.close()


async def started(provider, trial="trial_1"):
    image = await provider.build(ImageSpec(None, docker_image=IMAGE))
    return await provider.create(
        SandboxSpec(
            name=SandboxName(trial, 1, Purpose.AGENT), owner="me", form=Form.HELD, image=image, workdir="/app",
            env={}, limits=Limits(memory_mb=64, pids=64),
        )
    )  # fmt: skip


async def test_what_ran_is_lost_not_failed_and_is_removed_when_the_engine_is_back(provider, line):
    sandbox = await started(provider)
    await sandbox.exec(["true"], timeout_s=20)
    running = asyncio.create_task(sandbox.exec(["sleep", "60"], timeout_s=60))
    await asyncio.wait({running}, timeout=0.5)
    assert not running.done()
    await line.cut()
    with pytest.raises(SandboxLost) as raised:
        await running
    assert raised.value.detail == "engine"
    for work in (sandbox.kill, sandbox.destroy, lambda: started(provider, "trial_2")):
        with pytest.raises(Exception) as other:
            await work()
        assert "engine" in str(other.value).lower()
    await line.open()
    assert "trial_1-1-agent" in await provider.reap((), now=NOW)
    assert containers(provider._root) == []
    assert (await (await started(provider, "trial_3")).exec(["true"], timeout_s=20)).exit_code == 0
    await provider._living["trial_3-1-agent"].destroy()


async def test_a_seal_of_an_engine_that_is_away_is_no_empty_seal(provider, line, blobs):
    sandbox = await started(provider)
    await sandbox.exec(["sh", "-c", "echo x > /app/x"], timeout_s=20)
    await sandbox.kill()
    await line.cut()
    with pytest.raises(EnvironmentFailure):
        await sandbox.seal([ArtifactPath("/app/x")], SealLimits(), blobs.put)
    with pytest.raises(EnvironmentFailure):
        await sandbox.read_file("/app/x", 10)
    await line.open()
    await sandbox.destroy()
    assert containers(provider._root) == []
