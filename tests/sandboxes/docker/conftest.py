"""A Docker engine for tests: the one that DOCKER_HOST names, which must have the image `tollbar/busybox:test`."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest
from tests.sandboxes.docker.looking import IMAGE, docker

from tollbar.sandboxes.docker.engine import Engine
from tollbar.sandboxes.docker.provider import DockerProvider
from tollbar.sandboxes.interface import Form, ImageSpec, Limits, Purpose, SandboxName, SandboxSpec


@pytest.fixture(scope="session", autouse=True)
def engine_answers() -> None:
    if "DOCKER_HOST" not in os.environ or shutil.which("docker") is None:
        pytest.skip("no Docker engine for tests: eval $(.ci/engine up DIR)")
    docker("image", "inspect", IMAGE)


@pytest.fixture
async def provider(tmp_path):
    made = DockerProvider(tmp_path / "data", host="here", engine=Engine(os.environ["DOCKER_HOST"]))
    yield made
    await made.kill_all()
    for sandbox in list(made._living.values()):
        await sandbox.destroy()
    await made.close()


@pytest.fixture
def create(provider):
    """Makes a sandbox of the small image; words of the description may be given."""
    numbers = iter(range(1000))

    async def made(**words):
        image = await provider.build(ImageSpec(None, docker_image=IMAGE))
        facts = {
            "name": SandboxName(f"trial_{next(numbers)}", 1, Purpose.AGENT),
            "owner": "owner-1",
            "form": Form.HELD,
            "image": image,
            "workdir": "/app",
            "env": dict(image.env),
            "limits": Limits(memory_mb=64, pids=64),
        }
        return await provider.create(SandboxSpec(**{**facts, **words}))

    return made


@pytest.fixture
def sh():
    """Runs a shell text in a sandbox."""

    async def run(sandbox, text, timeout_s=20.0, **words):
        return await sandbox.exec(["sh", "-c", text], timeout_s=timeout_s, **words)

    return run


class Blobs:
    """A store of sealed files in memory."""

    def __init__(self):
        self.content = {}

    def put(self, descriptor, size):
        data = os.pread(descriptor, size + 1, 0)
        if len(data) != size:
            msg = "the file changed"
            raise ValueError(msg)
        sha256 = hashlib.sha256(data).hexdigest()
        self.content[sha256] = data
        return sha256


@pytest.fixture
def blobs():
    return Blobs()
