"""Kernel limits of a sandbox by control groups: version 1 or 2, whichever the supervisor may write to, or none."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tollbar.sandboxes.cgroup_leaf import Leaf, kill_members, pids_in, write_group_file
from tollbar.sandboxes.interface import Limits

_PERIOD_US: Final = 100_000
_V1: Final = ("memory", "pids", "cpu", "cpuacct")
_V2: Final = ("memory", "pids", "cpu")
_MIB: Final = 1 << 20
_SHORT: Final = 1 << 16


@dataclass(frozen=True)
class Group:
    """The group of one sandbox: a folder per controller (one folder for all in version 2)."""

    folders: Mapping[str, Path]
    version: int

    @property
    def join(self) -> list[str]:
        """Returns the folders that a process joins by writing its pid to `cgroup.procs`."""
        return list(dict.fromkeys(str(folder) for folder in self.folders.values()))

    def cpu_ns(self) -> int | None:
        """Returns the CPU time used so far in nanoseconds."""
        if self.version == 1:
            folder = self.folders.get("cpuacct")
            return None if folder is None else _integer(folder / "cpuacct.usage")
        usage_us = _field(self.folders["cpu"] / "cpu.stat", "usage_usec") if "cpu" in self.folders else None
        return None if usage_us is None else usage_us * 1000

    def oom_kills(self) -> int:
        """Returns how many processes were killed for memory so far."""
        folder = self.folders.get("memory")
        if folder is None:
            return 0
        return _field(folder / ("memory.oom_control" if self.version == 1 else "memory.events"), "oom_kill") or 0

    def memory_peak(self) -> int | None:
        """Returns the most memory that was in use, in bytes."""
        folder = self.folders.get("memory")
        if folder is None:
            return None
        return _integer(folder / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"))

    def leaf(self, *names: str) -> Leaf:
        """Returns a leaf of this group, whether it exists or not; only one controller knows it, the first one."""
        tracked = self.folders["pids"]
        others = tuple(folder for folder in dict.fromkeys(self.folders.values()) if folder != tracked)
        return Leaf(tracked.joinpath(*names), others)

    def kill(self) -> None:
        """Sends SIGKILL to every process in the group and below it."""
        for folder in set(self.folders.values()):
            kill_members(folder)

    def create(self) -> None:
        """Makes the folders; what a dead process left under the name goes first."""
        for folder in set(self.folders.values()):
            try:
                folder.mkdir()
            except FileExistsError:
                self.remove()
                folder.mkdir()

    def remove(self, *, patience_s: float = 1.0) -> bool:
        """Removes the group, killing what is still in it; False when something did not go within `patience_s`."""
        deadline = time.monotonic() + patience_s
        left = set(self.folders.values())
        while left:
            left = {folder for folder in left if not _remove_folder(folder)}
            if left:
                if time.monotonic() > deadline:
                    return False
                self.kill()
                time.sleep(0.005)
        return True

    def discard(self) -> bool:
        """Removes the group if no process is in it; says whether it is gone."""
        gone = [_remove_folder(folder) for folder in set(self.folders.values())]
        return all(gone)


@dataclass(frozen=True)
class Cgroups:
    """What this process may use: the folder below which groups are made, per controller; empty: nothing."""

    parents: Mapping[str, Path] = field(default_factory=dict[str, Path])
    version: int = 0

    def levels(self) -> dict[str, str]:
        """Returns for each resource whether the kernel enforces it, a sampler watches it, or nothing does."""
        return {
            "memory": "kernel" if "memory" in self.parents else "watched",
            "pids": "kernel" if "pids" in self.parents else "watched",
            "cpus": "kernel" if "cpu" in self.parents else "none",
            "disk": "watched",
        }

    def make(self, name: str, limits: Limits) -> Group | None:
        """Makes the group of one sandbox with its limits, or None when groups cannot be used. Raises `OSError`."""
        if not self.parents:
            return None
        group = self.group(name)
        try:
            group.create()
            for controller, file, text in _settings(self.version, limits):
                if controller in group.folders:
                    _set_limit(group.folders[controller] / file, text)
        except OSError:
            group.remove()
            raise
        return group

    def group(self, name: str) -> Group:
        """Returns the group of that name, whether it exists or not."""
        return Group({controller: parent / name for controller, parent in self.parents.items()}, self.version)

    def names(self, prefix: str) -> set[str]:
        """Returns the names of the groups below ours that begin with `prefix`."""
        return {
            folder.name
            for parent in set(self.parents.values())
            for folder in parent.glob(f"{prefix}*")
            if folder.is_dir()
        }


def _settings(version: int, limits: Limits) -> list[tuple[str, str, str]]:
    memory = limits.memory_mb * _MIB
    quota_us = max(1000, round(limits.cpus * _PERIOD_US))
    if version == 1:
        return [
            ("memory", "memory.limit_in_bytes", str(memory)),
            ("memory", "memory.memsw.limit_in_bytes", str(memory)),
            ("pids", "pids.max", str(limits.pids)),
            ("cpu", "cpu.cfs_quota_us", str(quota_us)),
        ]
    return [
        ("memory", "memory.max", str(memory)),
        ("memory", "memory.swap.max", "0"),
        ("pids", "pids.max", str(limits.pids)),
        ("cpu", "cpu.max", f"{quota_us} {_PERIOD_US}"),
    ]


def _set_limit(file: Path, text: str) -> None:
    """Writes a limit; those of swap do not exist on kernels without swap accounting."""
    optional = "memsw" in file.name or "swap" in file.name
    if not optional or file.exists():
        write_group_file(file, text)


def detect(
    *,
    mountinfo: str | None = None,
    membership: str | None = None,
    usable: Callable[[Path, int], bool] | None = None,
) -> Cgroups:
    """Returns what may be used here, by trying: the groups of this process, version 1 first where memory is there.

    `mountinfo` and `membership` are the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`; `usable` says
    whether groups can be made below a folder (version 2: with controllers), which is tried when it is not given.
    """
    mounts = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    own = Path("/proc/self/cgroup").read_text() if membership is None else membership
    check = usable or _usable
    first = {controller: folder for controller, folder in _find_v1(mounts, own).items() if controller in _V1}
    if "memory" in first:
        parents = {controller: folder for controller, folder in first.items() if check(folder, 1)}
        return Cgroups(parents, 1) if "memory" in parents and "pids" in parents else Cgroups()
    folder = _find_v2(mounts, own)
    if folder is not None and check(folder, 2):
        return Cgroups(dict.fromkeys(_V2, folder), 2)
    return Cgroups()


def _usable(folder: Path, version: int) -> bool:
    if version == 2 and not _delegate(folder):
        return False
    probe = folder / f"tollbar-probe-{os.getpid()}"
    try:
        probe.mkdir()
        complete = (probe / "cgroup.procs").exists() and (version == 1 or (probe / "memory.max").exists())
        probe.rmdir()
    except OSError:
        return False
    return complete


def _delegate(folder: Path) -> bool:
    """Makes controllers available below our own group: whoever is in it must sit in a leaf first (version 2).

    Only this process and its descendants are moved; strangers in the same group mean that it was not delegated.
    """
    try:
        wanted = set(_V2)
        if wanted <= set((folder / "cgroup.subtree_control").read_text().split()):
            return True
        if not wanted <= set((folder / "cgroup.controllers").read_text().split()):
            return False
        inside = pids_in(folder)
        if not all(_descends(pid) for pid in inside):
            return False
        worker = folder / "tollbar-worker"
        worker.mkdir(exist_ok=True)
        for pid in inside:
            write_group_file(worker / "cgroup.procs", str(pid))
        write_group_file(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in _V2))
    except OSError:
        return False
    return True


def _descends(pid: int) -> bool:
    """Says whether a process is this one or below it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        text = Path(f"/proc/{pid}/stat").read_text()
        pid = int(text.rpartition(")")[2].split()[1])
    return False


def _find_v1(mounts: str, own: str) -> dict[str, Path]:
    inside: dict[str, str] = {}
    for line in own.splitlines():
        number, names, path = line.split(":", 2)
        if number != "0":
            inside |= dict.fromkeys(names.split(","), path)
    found: dict[str, Path] = {}
    for root, point, kind, options in _mounts(mounts):
        if kind == "cgroup":
            for controller in options & inside.keys():
                found[controller] = _below(root, point, inside[controller])
    return found


def _find_v2(mounts: str, own: str) -> Path | None:
    inside = next((line[3:] for line in own.splitlines() if line.startswith("0::")), None)
    for root, point, kind, _ in _mounts(mounts):
        if kind == "cgroup2" and inside is not None:
            return _below(root, point, inside)
    return None


def _mounts(text: str) -> list[tuple[str, str, str, set[str]]]:
    """Returns (root, mount point, kind, options of the file system) of every mount."""
    found: list[tuple[str, str, str, set[str]]] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) >= 5 and len(tail) >= 3:
            found.append((fields[3], fields[4], tail[0], set(tail[2].split(","))))
    return found


def _below(root: str, point: str, inside: str) -> Path:
    """Returns the folder of a group; inside a container its path may start above what is mounted."""
    relative = os.path.relpath(inside, root)
    folder = Path(point) / relative
    return folder if not relative.startswith("..") and folder.is_dir() else Path(point)


def _remove_folder(folder: Path) -> bool:
    """Removes a group and the leaves below it; says whether it is gone."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        return True
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(path).rmdir()
    return not folder.exists()


def _text(file: Path) -> str:
    """Returns what a file of the kernel says, which is short; empty when it is not there."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _SHORT).decode()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _integer(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _field(file: Path, name: str) -> int | None:
    for line in _text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
