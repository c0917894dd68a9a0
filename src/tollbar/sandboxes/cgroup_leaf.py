"""Leaves: groups below a sandbox's own group that say which processes belong together; the limits stand above them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAUSE_S: Final = 0.002
_PATIENCE_S: Final = 2.0


@dataclass(frozen=True)
class Leaf:
    """One leaf. Only the hierarchy of `folder` knows it; in the `others` a process joins the sandbox's group itself."""

    folder: Path
    others: tuple[Path, ...] = ()

    @property
    def join(self) -> list[str]:
        """Returns the folders that a process joins, the leaf last."""
        return [*map(str, self.others), str(self.folder)]

    def add(self, pid: int) -> None:
        """Puts a process with everything that it will start into the leaf. Raises `OSError`."""
        for folder in (*self.others, self.folder):
            write_group_file(folder / "cgroup.procs", str(pid))

    def create(self) -> None:
        """Makes the leaf; the groups above it exist."""
        self.folder.mkdir(exist_ok=True)

    def sweep(self) -> None:
        """Removes the leaves directly below this one that no process is in; nobody may be about to join one."""
        for leaf in self.folder.iterdir():
            if leaf.is_dir():
                with contextlib.suppress(OSError):
                    leaf.rmdir()

    def pids(self) -> list[int]:
        """Returns the processes in the leaf and below it."""
        return [pid for path, _, _ in os.walk(self.folder) for pid in pids_in(Path(path))]

    async def end(self, patience_s: float = _PATIENCE_S) -> bool:
        """Kills every process in the leaf, whatever they do against it; False when one lives after `patience_s`.

        Meanwhile no fork succeeds in it, so that a process that multiplies is not run after.
        """
        self._let_fork("0")
        deadline = asyncio.get_running_loop().time() + patience_s
        try:
            while True:
                kill_members(self.folder)
                if not self.pids():
                    return True
                if asyncio.get_running_loop().time() > deadline:
                    return False
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._let_fork("max")

    def _let_fork(self, most: str) -> None:
        with contextlib.suppress(OSError):
            write_group_file(self.folder / "pids.max", most)


def pids_in(folder: Path) -> list[int]:
    """Returns the processes that are in a group itself; none for a group that does not exist."""
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def kill_members(folder: Path) -> None:
    """Sends SIGKILL to every process in a group and below it: by the kernel's own file where it has one."""
    with contextlib.suppress(OSError):
        write_group_file(folder / "cgroup.kill", "1")
        return
    for path, _, _ in os.walk(folder):
        for pid in pids_in(Path(path)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def write_group_file(file: Path, text: str) -> None:
    """Writes to a file of the kernel, which must exist. Raises `OSError`."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
