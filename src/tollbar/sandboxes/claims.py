"""Folders of sandboxes, each held by a lock file while its supervisor lives; a free lock means that nobody does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.disk_image import release
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.folders import empty_folder
from tollbar.sandboxes.identity import Identity

_LOCK: Final = "lock"
_USES: Final = "uses"
_PASSABLE: Final = 0o711
_TRIES: Final = 30
_PAUSE_S: Final = 0.01


@dataclass(frozen=True)
class Claim:
    """A sandbox folder that this process holds; `lock` is the descriptor that holds it."""

    folder: Path
    lock: int

    def note_layers(self, names: list[str]) -> None:
        """Writes down which layers the sandbox stands on, for the pruning of any process."""
        (self.folder / _USES).write_text("\n".join(names))

    def tenant_folder(self, name: str, identity: Identity) -> Path:
        """Makes a folder that belongs to the tenants' uid."""
        return make_tenant_folder(self.folder / name, identity)

    def kill_leftovers(self, uid: int) -> None:
        """Ends what a dead supervisor left in the moment of a start: programs of `uid` that name this folder."""
        below = os.fsencode(self.folder) + b"/"
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if any(word.startswith(below) for word in words) and entry.stat().st_uid == uid:
                        os.kill(int(entry.name), signal.SIGKILL)

    def age_s(self, now_s: float) -> float:
        """Returns how long ago it was claimed, in seconds of the wall clock."""
        return now_s - os.fstat(self.lock).st_mtime

    def let_go(self) -> None:
        """Lets go of the lock; everything stays."""
        os.close(self.lock)

    def remove(self) -> None:
        """Removes the folder with everything in it, then lets go of the lock; blocks."""
        try:
            release(self.folder)
            empty_folder(self.folder, keep=_LOCK)
            (self.folder / _LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        finally:
            os.close(self.lock)


def make_tenant_folder(path: Path, identity: Identity) -> Path:
    """Makes a folder that belongs to the tenants' uid and returns it; one that is there stays as it is."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o755)
        if identity.drop:
            os.chown(path, identity.uid, identity.gid)
    return path


def claim(sandboxes: Path, name: str, uid: int) -> Claim:
    """Makes and holds the folder of a sandbox; what a dead process left under that name goes first. Blocks.

    `uid` is the tenants'. Raises `EnvironmentStartFailed` when another process holds it for longer than a reaper does.
    """
    folder = sandboxes / name
    for _ in range(_TRIES):
        existed = not _make(folder)
        found = take(folder)
        if found is not None:
            if existed:
                found.kill_leftovers(uid)
                release(folder)
            empty_folder(folder, keep=_LOCK)
            return found
        time.sleep(_PAUSE_S)
    raise EnvironmentStartFailed("start", f"Another process holds the sandbox {name}.")


def _make(folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    folder.chmod(_PASSABLE)
    return True


def take(folder: Path) -> Claim | None:
    """Takes hold of an existing folder, or returns None when a living process holds it or it is gone."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    if os.fstat(lock).st_nlink == 0:
        os.close(lock)
        return None
    return Claim(folder, lock)


def used_layers(sandboxes: Path) -> set[str]:
    """Returns the names of all layers that some sandbox stands on."""
    return {line for note in sandboxes.glob(f"*/{_USES}") for line in _lines(note)}


def _lines(note: Path) -> list[str]:
    try:
        return note.read_text().splitlines()
    except FileNotFoundError:
        return []
