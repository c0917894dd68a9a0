"""Tasks unpacked on this machine, once per content: files, input layers, and built images."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tollbar.artifacts.blobs import BlobStore
from tollbar.datasets import packing, taskneeds
from tollbar.datasets import service as datasets
from tollbar.datasets.taskfile import Task
from tollbar.kit.cleanup import to_the_end
from tollbar.sandboxes.interface import ImageRef, ImageSpec, SandboxProvider

_HALF: Final = ".half-"


@dataclass(frozen=True)
class LocalTask:
    """A task whose files lie in `folder`; `key` is the SHA-256 of its content."""

    key: str
    task: Task
    folder: Path
    needs: Mapping[str, Any]


@dataclass
class TaskCache:
    """Loads a task's files once, and builds each of its images once; everything is keyed by content."""

    root: Path
    blobs: BlobStore
    provider: SandboxProvider
    _tasks: dict[str, LocalTask] = field(default_factory=dict[str, LocalTask])
    _images: dict[str, ImageRef] = field(default_factory=dict[str, ImageRef])
    _locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def load(self, files_sha256: str, name: str) -> LocalTask:
        """Returns the task of that content, unpacked below the cache folder."""
        async with self._locks[files_sha256]:
            found = self._tasks.get(files_sha256)
            if found is None or not touched(self.root, found.folder):
                task, files = await datasets.load(self.blobs, files_sha256, name)
                folder = self.root / files_sha256
                while True:
                    # A thread goes on when its waiter is cancelled: the lock is held until it is through.
                    await to_the_end(asyncio.to_thread(_unpack, files, folder))
                    if touched(self.root, folder):
                        break
                found = self._tasks[files_sha256] = LocalTask(files_sha256, task, folder, taskneeds.needs(task))
            return found

    async def image(self, local: LocalTask, spec: ImageSpec, purpose: str) -> ImageRef:
        """Returns the built image of a task's environment or verifier."""
        key = f"{local.key}/{purpose}/{spec.allow_base_substitution}"
        async with self._locks[key]:
            found = self._images.get(key)
            if found is None:
                found = self._images[key] = await self.provider.build(spec)
            return found

    async def input_layer(self, local: LocalTask, source: str, target: str, *, over: bool = False) -> Path:
        """Returns a layer that holds the task's folder `source` at the absolute path `target`.

        Nothing of lower layers shows through it, unless it is meant to lie `over` them.
        """

        def fill(layer: Path) -> None:
            place = layer / target.lstrip("/")
            shutil.copytree(local.folder / source, place, symlinks=True)
            if not over:
                # What an agent left at that path is no part of the input.
                os.setxattr(place, "user.overlay.opaque", b"y")

        return await self.provider.layer(f"input:{local.key}:{source}:{target}{':over' if over else ''}", fill)


@contextmanager
def _turn(root: Path) -> Generator[None]:
    """Holds the cache's lock: nobody removes a folder while somebody notes that it is used."""
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def touched(root: Path, folder: Path) -> bool:
    """Notes that a task is used now; False when its folder is gone. A few calls of the system, so it may block."""
    try:
        with _turn(root):
            os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def prune(root: Path, before: float) -> int:
    """Removes tasks that nobody has used since that moment (seconds of the epoch), and returns how many; blocks."""
    if not root.is_dir():
        return 0
    removed = 0
    for folder in [path for path in root.iterdir() if path.is_dir()]:
        with _turn(root):
            if not folder.exists() or folder.stat().st_mtime >= before:
                continue
            gone = Path(tempfile.mkdtemp(prefix=_HALF, dir=root))
            folder.rename(gone / "old")
        shutil.rmtree(gone, ignore_errors=True)
        removed += not folder.name.startswith(_HALF)
    return removed


def _unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Makes the folder whole or not at all: several workers of one machine may share the cache."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=_HALF, dir=folder.parent))
    try:
        packing.write_files(files, half / "files")
        try:
            (half / "files").rename(folder)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise  # else another worker was first, with the same content
    finally:
        shutil.rmtree(half, ignore_errors=True)
