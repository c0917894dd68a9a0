"""Limits that the kernel does not enforce here: sampled about once a second, so they can be overshot for that long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.folders import disk_bytes
from tollbar.sandboxes.interface import Limits

INTERVAL_S: Final = 1.0
_SHARE: Final = 10
_MIB: Final = 1 << 20
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Breach:
    """A limit that was passed: `memory`, `pids` or `disk`, and a sentence for the command's output."""

    resource: str
    message: str


async def watch(pid_namespace: int, upper: Path, limits: Limits, levels: Mapping[str, str]) -> Breach:
    """Returns as soon as a watched limit is passed; runs until then (cancel it when the command ends).

    It is to be started `INTERVAL_S` after the command, and looks at once.

    `pid_namespace` is the inode of the tenant's namespace. A walk of a large upper layer makes the interval longer,
    so that watching takes no more than a tenth of one core.
    """
    loop = asyncio.get_running_loop()
    interval_s = 0.0
    while True:
        await asyncio.sleep(interval_s)
        started = loop.time()
        breach = await asyncio.to_thread(_look, pid_namespace, upper, limits, levels)
        if breach is not None:
            return breach
        interval_s = max(INTERVAL_S, _SHARE * (loop.time() - started))


def _look(pid_namespace: int, upper: Path, limits: Limits, levels: Mapping[str, str]) -> Breach | None:
    if "watched" in (levels.get("memory"), levels.get("pids")):
        pids = list(processes(pid_namespace))
        if len(pids) > limits.pids:
            return Breach("pids", f"more than {limits.pids} processes")
        memory = limits.memory_mb * _MIB
        if sum(map(_resident, pids)) > memory and sum(map(_proportional, pids)) > memory:
            return Breach("memory", f"more than {limits.memory_mb} MiB of memory")
    if levels.get("disk") == "watched" and disk_bytes(upper) > limits.disk_mb * _MIB:
        return Breach("disk", f"more than {limits.disk_mb} MiB written")
    return None


def processes(pid_namespace: int) -> Iterator[int]:
    """Yields the host's pids of all processes of a PID namespace, except those that hide from this user."""
    link = f"pid:[{pid_namespace}]"
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    if str(Path(f"/proc/{entry.name}/ns/pid").readlink()) == link:
                        yield int(entry.name)
                except OSError:
                    continue


def _resident(pid: int) -> int:
    """Returns resident bytes, pages shared with others counted in full."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Returns resident bytes with each shared page divided by its users; dearer to read."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(pid)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
