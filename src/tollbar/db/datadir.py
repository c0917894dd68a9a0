"""Who owns a data directory: a lock that dies with its holder, and facts about the server that local commands read."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollbar.db.errors import DataDirectoryHeld

LOCK_FILE: Final = "server.lock"
FACTS_FILE: Final = "server.json"
_TRY_S: Final = 0.3


@dataclass(frozen=True)
class HeldDirectory:
    """A data directory that this process owns until `release()` or its end, however it ends."""

    path: Path
    descriptor: int
    left: Mapping[str, Any]
    """What the former holder had written about itself; it is gone, but not necessarily what it made."""

    def note(self, **facts: Any) -> None:
        """Writes beside the pid what the next holder may have to clear away."""
        data = json.dumps({"pid": os.getpid(), **facts}).encode()
        os.pwrite(self.descriptor, data, 0)
        os.ftruncate(self.descriptor, len(data))

    def release(self) -> None:
        """Gives the directory free and takes the published facts away."""
        remove_server_facts(self.path)
        self.note()
        os.close(self.descriptor)


def hold_directory(data_dir: Path) -> HeldDirectory:
    """Takes the data directory, which must exist, for this process. Raises `DataDirectoryHeld`.

    Readers of the facts hold the lock for moments, so a refusal counts after 0.3 s only; blocks that long at most.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(data_dir / LOCK_FILE, flags, 0o600)
    if not _locked(descriptor):
        pid = _read(descriptor).get("pid")
        os.close(descriptor)
        facts = _facts(data_dir) or {}
        raise DataDirectoryHeld(data_dir, pid, facts.get("url") if facts.get("pid") == pid else None)
    held = HeldDirectory(data_dir, descriptor, _read(descriptor))
    remove_server_facts(data_dir)
    held.note()
    return held


def _locked(descriptor: int) -> bool:
    deadline = time.monotonic() + _TRY_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _read(descriptor: int) -> dict[str, Any]:
    try:
        value = json.loads(os.pread(descriptor, 65536, 0))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def write_server_facts(data_dir: Path, facts: Mapping[str, Any]) -> None:
    """Publishes small facts of the server (`url`, `database_url`) for commands of the directory's owner.

    Readable by the owner alone; a reader sees the old facts or the new ones, never a part. `pid` is added.
    """
    fresh = data_dir / f".{FACTS_FILE}.new"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), **facts}, file)
    fresh.rename(data_dir / FACTS_FILE)


def read_server_facts(data_dir: Path) -> dict[str, Any] | None:
    """Returns what the running server has published, or None when no process holds the directory any more."""
    try:
        descriptor = os.open(data_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _facts(data_dir)
    else:
        return None
    finally:
        os.close(descriptor)


def remove_server_facts(data_dir: Path) -> None:
    """Takes the published facts away; nothing to take is fine."""
    (data_dir / FACTS_FILE).unlink(missing_ok=True)


def _facts(data_dir: Path) -> dict[str, Any] | None:
    try:
        value = json.loads((data_dir / FACTS_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
