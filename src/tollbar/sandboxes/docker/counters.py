"""What the kernel counted of a container on this machine: CPU time, and processes that it ended for memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Counters:
    """Nanoseconds of CPU and kills for memory; None where nobody counts, or the engine is on another machine."""

    cpu_ns: int | None = None
    ooms: int | None = None


def count(pid: int) -> Counters:
    """Returns the counters of the control group of a container's first process."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return Counters()
    groups = {name: path for line in lines for _, names, path in [line.split(":", 2)] for name in names.split(",")}
    if "memory" in groups:
        cpu = _number(_ROOT / "cpuacct" / groups.get("cpuacct", "").strip("/") / "cpuacct.usage")
        return Counters(cpu, _field(_ROOT / "memory" / groups["memory"].strip("/") / "memory.oom_control", "oom_kill"))
    if "" in groups:
        folder = _ROOT / groups[""].strip("/")
        used_us = _field(folder / "cpu.stat", "usage_usec")
        return Counters(None if used_us is None else used_us * 1000, _field(folder / "memory.events", "oom_kill"))
    return Counters()


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    try:
        fields = dict(line.split(" ", 1) for line in path.read_text().splitlines())
        return int(fields[name])
    except (OSError, ValueError, KeyError):
        return None
