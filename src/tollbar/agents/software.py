"""Software of agents on this machine: what was installed, in which versions, and the layer that a sandbox gets of it.

A version is one folder below `<data>/agents/<name>`, complete once it is there; nothing changes in it afterwards. The
sandbox sees it at `/opt/tollbar/agents/<name>`, whichever version it is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tollbar.kit.clock import wire_time
from tollbar.sandboxes.interface import SandboxProvider

INSIDE: Final = "/opt/tollbar/agents"
"""Where a sandbox sees its agent's software."""
FOLDER: Final = "agents"
"""Where it lies in a data directory."""
RECORD: Final = "tollbar.json"


@dataclass(frozen=True)
class Installed:
    """One installed version; `folder` is its place on this machine."""

    name: str
    version: str
    source: str
    """Where it came from: `npm:PACKAGE@VERSION` or `pypi:PACKAGE==VERSION`."""
    platform: str
    """`linux-x86_64`, and the like: what its programs run on."""
    python: str | None
    """For software in Python: the version that it was installed for, as `3.11`."""
    lock_sha256: str
    """Hash of the package manager's own record of every package with its checksum (`lock_file`)."""
    lock_file: str
    bytes: int
    installed_at: str
    folder: Path

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.version}"

    def wire(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def inside(name: str, path: str) -> str:
    """Returns the absolute path at which a sandbox finds a file of an agent's software."""
    return f"{INSIDE}/{name}/{path}"


def installed(root: Path) -> list[Installed]:
    """Returns every installed version below `<data>/agents`, by name, the newest installation of each first; blocks."""
    found = [one for folder in root.glob("*/*/") if (one := read(folder)) is not None]
    newest_first = sorted(found, key=lambda one: one.installed_at, reverse=True)
    return sorted(newest_first, key=lambda one: one.name)


def find(root: Path, wanted: str) -> Installed | None:
    """Returns what `NAME` (its newest installation) or `NAME@VERSION` means on this machine, or None; blocks."""
    name, _, version = wanted.partition("@")
    fitting = [one for one in installed(root) if one.name == name and version in {"", one.version}]
    return fitting[0] if fitting else None


def offered(root: Path) -> list[str]:
    """Returns what a worker with this folder can run, as `NAME@VERSION`; blocks."""
    return [one.reference for one in installed(root)]


def fits(wanted: str, offers: Collection[str]) -> bool:
    """Says whether one of `NAME@VERSION` is what `NAME` or `NAME@VERSION` asks for."""
    return any(offer == wanted or offer.partition("@")[0] == wanted for offer in offers)


def read(folder: Path) -> Installed | None:
    """Returns the record of one version's folder; None for a folder that is none, or whose record cannot be read."""
    try:
        return Installed(**json.loads((folder / RECORD).read_bytes()), folder=folder)
    except (OSError, ValueError, TypeError):
        return None


def write(folder: Path, facts: Mapping[str, Any], at: datetime) -> None:
    """Writes the record of a version whose files are complete."""
    record = {**facts, "installed_at": wire_time(at)}
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")


async def layer(provider: SandboxProvider, software: Installed) -> Path:
    """Returns a read-only layer that holds the software where sandboxes look for it; made once per machine."""

    def fill(folder: Path) -> None:
        shutil.copytree(software.folder, folder / INSIDE.lstrip("/") / software.name, symlinks=True)

    key = f"agent:{software.reference}:{software.lock_sha256}:{software.installed_at}"
    return await provider.layer(key, fill)
