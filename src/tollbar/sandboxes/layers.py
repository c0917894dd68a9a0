"""The layer cache: read-only folders, each made once per key, whoever asks and however many ask at once."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from tollbar.sandboxes.folders import disk_bytes, hand_over, remove_graves, remove_tree
from tollbar.sandboxes.identity import Identity

_POLL_S = 0.05
_YOUNG_S = 3600.0
_LEFT = ("*.new-*", "*.gone-*")


class LayerStore:
    """Layers below one folder: `NAME` is a complete layer, `NAME.size` says when it was used last and its size.

    Names are short, because all lower layers of an overlay must fit into one page of mount options.
    """

    def __init__(self, root: Path, identity: Identity) -> None:
        self._root = root
        self._identity = identity
        self._making: dict[str, asyncio.Lock] = {}

    async def ensure(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Returns the layer of that key; a missing one is made by `fill(folder)` in a thread.

        One maker per key in this process and in all others of this cache: the rest wait and find it. A `fill` that
        raises leaves nothing. The content is handed to the tenants' uid.
        """

        async def make(folder: Path) -> None:
            await asyncio.to_thread(fill, folder)

        return await self.ensure_with(key, make)

    async def ensure_with(self, key: str, make: Callable[[Path], Awaitable[None]], *, by_tenant: bool = False) -> Path:
        """Returns the layer of that key; a missing one is made by awaiting `make(folder)`.

        `folder` exists and is empty; `make` may replace it by renaming another folder onto it. `by_tenant` says that
        a tenant wrote the content: it is the tenants' already, and not walked by paths.
        """
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        if self._touch(name):
            return self._root / name
        async with self._making.setdefault(name, asyncio.Lock()), self._locked(name):
            if await asyncio.to_thread(self._find, name):
                return self._root / name
            staging = self._root / f"{name}.new-{secrets.token_hex(4)}"
            try:
                await asyncio.to_thread(_empty_folder, staging)
                await make(staging)
                await asyncio.to_thread(self._commit, staging, name, by_tenant=by_tenant)
            except BaseException:
                await asyncio.to_thread(remove_tree, staging)
                raise
        return self._root / name

    async def prune(self, max_bytes: int, used: Collection[Path], now_s: float) -> list[str]:
        """Removes layers, longest unused first, until they fit into `max_bytes`; returns their names.

        Never one of `used` (layers of living sandboxes of any process), nor one that was asked for within the hour
        before `now_s` (seconds since 1970): its sandbox may not exist yet.
        """
        kept = {path.name for path in used}
        gone: list[str] = []
        total = 0
        for last_used, size, name in await asyncio.to_thread(self._sizes):
            total += size
            if total > max_bytes and name not in kept and last_used < now_s - _YOUNG_S:
                async with self._locked(name, wait=False) as mine:
                    if mine:
                        await asyncio.to_thread(self._remove, name)
                        gone.append(name)
        for name in {entry.name.partition(".")[0] for pattern in _LEFT for entry in self._root.glob(pattern)}:
            async with self._locked(name, wait=False) as mine:
                if mine:
                    await asyncio.to_thread(self._clean, name)
        return gone

    def _touch(self, name: str) -> bool:
        try:
            os.utime(self._root / f"{name}.size")
        except FileNotFoundError:
            return False
        return True

    def _find(self, name: str) -> bool:
        """Says whether the layer is complete; called under its lock, so half-made ones are garbage."""
        self._clean(name)
        folder = self._root / name
        if not folder.is_dir():
            return False
        if not self._touch(name):
            self._note(name, disk_bytes(folder))
        return True

    def _clean(self, name: str) -> None:
        """Finishes what a dead process left half made or half removed; called under the layer's lock."""
        for left in self._root.glob(f"{name}.new-*"):
            remove_tree(left)
        remove_graves(self._root, name)

    def _commit(self, staging: Path, name: str, *, by_tenant: bool) -> None:
        size = disk_bytes(staging) if by_tenant else hand_over(staging, self._identity)
        staging.rename(self._root / name)
        self._note(name, size)

    def _note(self, name: str, size: int) -> None:
        (self._root / f"{name}.size").write_text(str(size))

    def _sizes(self) -> list[tuple[float, int, str]]:
        """Returns (last use, bytes, name) of every layer, the last used first."""
        found: list[tuple[float, int, str]] = []
        for note in self._root.glob("*.size"):
            text = note.read_text()
            found.append((note.stat().st_mtime, int(text) if text.isdigit() else 0, note.stem))
        return sorted(found, reverse=True)

    def _remove(self, name: str) -> None:
        (self._root / f"{name}.size").unlink(missing_ok=True)
        remove_tree(self._root / name)

    @asynccontextmanager
    async def _locked(self, name: str, *, wait: bool = True) -> AsyncGenerator[bool]:
        """Holds the layer's lock file; waits by asking again, because a thread must not wait for a build.

        Without `wait` it yields False at once when another one holds it.
        """
        descriptor = os.open(self._root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            mine = _lock(descriptor)
            while wait and not mine:
                await asyncio.sleep(_POLL_S)
                mine = _lock(descriptor)
            yield mine
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _empty_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)
