"""The folder that PostgreSQL keeps its files in: made whole or not at all, and used by one server at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tollbar.db.binaries import Binaries, candidates, choose, major_of
from tollbar.db.errors import EmbeddedDatabaseFailed, EmbeddedDatabaseRefused
from tollbar.db.launch import RunAs, give, output_of, run_as

_INITDB: Final = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions")
_FRESH: Final = "pg.new-"
_END_S: Final = 30.0
UPGRADED: Final = "pg.upgraded"
"""Files of an upgrade that are whole and wait for their place."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class DataFolder:
    """`pg` in a data directory, with the programs that read it and the user that owns it."""

    path: Path
    binaries: Binaries
    how: RunAs

    @classmethod
    async def open(cls, data_dir: Path, how: RunAs) -> DataFolder:
        """Returns the folder ready to be served: made when it is missing, its owner right, no server on it.

        The caller holds `data_dir`. Raises `EmbeddedDatabaseRefused`, `EmbeddedDatabaseFailed`.
        """
        path = data_dir / "pg"
        if not path.exists() and (data_dir / UPGRADED).exists():
            (data_dir / UPGRADED).rename(path)
        known = await _programs(how)
        binaries = choose(known, path)
        if binaries.major < max(known):
            fix = "stop the server, then: tollbar storage upgrade"
            _log.warning("the database is of an older PostgreSQL", has=binaries.major, newest=max(known), fix=fix)
        if (path / "PG_VERSION").exists():
            give(path, how.owner)
            await _check_reach(how, path)
        else:
            await _make(binaries, how, path)
        folder = cls(path, binaries, how)
        await folder._end_leftover()
        return folder

    async def _end_leftover(self) -> None:
        """Waits for the server of an owner that was killed; it is ending already, or is told to."""
        pid = self._leftover()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _END_S
        while self._leftover() is not None:
            if loop.time() > deadline:
                raise EmbeddedDatabaseFailed(f"process {pid}, a PostgreSQL on {self.path}, does not end")
            await asyncio.sleep(0.02)

    def _leftover(self) -> int | None:
        """Returns the pid of a server on this folder; removes a pid file whose number is another program's now.

        That happens where numbers are small: in a container that was killed and started again.
        """
        pid_file = self.path / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        command = _command_of(pid)
        if not command:
            return None  # PostgreSQL itself clears the file of a process that is gone
        if Path(command[0]).name != "postgres":
            pid_file.unlink(missing_ok=True)
            return None
        return pid if str(self.path) in command else None


async def newest_major(pg_uid: int | None) -> int:
    """Returns the newest version of PostgreSQL that runs here. Raises `EmbeddedDatabaseRefused`."""
    return max(await _programs(run_as(pg_uid)))


async def _programs(how: RunAs) -> dict[int, Path]:
    """Asks each program for its version, in the way PostgreSQL will run: so it is also the proof that it can."""
    known: dict[int, Path] = {}
    answers: list[str] = []
    for postgres in candidates():
        status, answer = await output_of(how, postgres, "--version")
        major = major_of(answer) if status == 0 else None
        if major is not None:
            known[major] = postgres
        answers.append(answer)
    if not known:
        raise EmbeddedDatabaseRefused(f"its programs cannot be started here ({answers[0] or 'no output'})")
    return known


async def _make(binaries: Binaries, how: RunAs, path: Path) -> None:
    """Makes the folder beside its place and moves it there when it is whole, so that half of one is never served."""
    for half in path.parent.glob(f"{_FRESH}*"):
        shutil.rmtree(half, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=path.parent))
    try:
        await _fill(binaries, how, fresh)
        await asyncio.to_thread(fresh.rename, path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


async def _fill(binaries: Binaries, how: RunAs, fresh: Path) -> None:
    give(fresh, how.owner)
    await _check_reach(how, fresh)
    status, output = await output_of(how, binaries.initdb, "-D", str(fresh), *_INITDB)
    if status != 0:
        raise EmbeddedDatabaseFailed(f"initdb ended with status {status}: {output[-2000:]}")


async def _check_reach(how: RunAs, folder: Path) -> None:
    """Root's database has not root's rights: a folder above may be closed to it that is open to this process."""
    status, _ = await output_of(how, Path("test"), "-w", str(folder))
    if status != 0:
        who = f"it runs as uid {how.owner[0]} without further rights"
        raise EmbeddedDatabaseRefused(f"{who} and cannot reach {folder}")


def _command_of(pid: int) -> list[str]:
    """Returns the words of a process's command line; none when there is no such process."""
    if Path("/proc/self").exists():
        try:
            data = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return data.decode(errors="surrogateescape").rstrip("\0").split("\0") if data else []
    answer = subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True, check=False)
    return answer.stdout.split()
