"""Small task folders in memory, and the example tasks that lie beside the repository."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.problems import Problem
from tollbar.datasets.taskfile import Task, load_task

GOLDEN: Mapping[str, bytes] = {
    "environment/Dockerfile": b"FROM scratch\nWORKDIR /app\n",
    "instruction.md": b"Write hello.\n",
    "solution/solve.sh": b"#!/bin/sh\necho hello > /app/hello.txt\n",
    "task.toml": b'schema_version = "1.4"\n',
    "tests/test.sh": (
        b"#!/bin/sh\ngrep -qx hello /app/hello.txt && echo 1 > /logs/verifier/reward.txt"
        b" || echo 0 > /logs/verifier/reward.txt\n"
    ),
}


class MemoryBlobs:
    """A blob store in memory."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def put_bytes(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.data[name] = data
        return name

    async def get(self, sha256: str) -> bytes:
        return self.data[sha256]


@pytest.fixture
def blobs() -> MemoryBlobs:
    """A fresh blob store; `data` holds what was stored."""
    return MemoryBlobs()


@pytest.fixture
def golden() -> dict[str, bytes]:
    """The task of the golden digest vector; every file of it is needed or usual."""
    return dict(GOLDEN)


@pytest.fixture
def examples() -> Path:
    """The example tasks; a test that needs them fails when they are missing."""
    folder = Path(__file__).parents[2].parent / "shared" / "examples" / "tasks"
    assert folder.is_dir(), f"the example tasks are missing: {folder}"
    return folder


@pytest.fixture
def read() -> Callable[..., Task]:
    """Reads a task from the text of its `task.toml` and changes to the golden files (None removes one)."""

    def read_it(toml: str = "", files: Mapping[str, bytes | None] | None = None) -> Task:
        whole: dict[str, bytes | None] = {**GOLDEN, "task.toml": toml.encode(), **(files or {})}
        return load_task({path: data for path, data in whole.items() if data is not None}, "t", namespace="n")

    return read_it


@pytest.fixture
def problems_of(read: Callable[..., Task]) -> Callable[..., list[Problem]]:
    """Returns the problems of a task that is refused."""

    def problems(toml: str = "", files: Mapping[str, bytes | None] | None = None) -> list[Problem]:
        with pytest.raises(UnsupportedTaskFormat) as refused:
            read(toml, files)
        return list(refused.value.problems)

    return problems


@pytest.fixture
def tar(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tar of files, and of further members as they are, and returns its path."""

    def write(
        files: Mapping[str, bytes], *members: tuple[tarfile.TarInfo, bytes], mode: str = "w", name: str = "upload.tar"
    ) -> Path:
        path = tmp_path / name
        with tarfile.open(path, mode) as out:
            for file, data in files.items():
                entry = tarfile.TarInfo(file)
                entry.size = len(data)
                out.addfile(entry, io.BytesIO(data))
            for entry, data in members:
                entry.size = len(data)
                out.addfile(entry, io.BytesIO(data))
        return path

    return write
