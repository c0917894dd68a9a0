"""From seals to artifact rows: what a Trial left, by name and kind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tollbar.artifacts.schemas import ArtifactKind, NewArtifact
from tollbar.jobs.parts import Part
from tollbar.jobs.sinks import Sink
from tollbar.sandboxes.interface import ArtifactPath, Seal, SealedEntry

AGENT_LOGS: Final = ArtifactPath("/logs/agent", "agent")
VERIFIER_LOGS: Final = ArtifactPath("/logs/verifier", "verifier")


def agent_paths(part: Part) -> list[ArtifactPath]:
    """Returns what is sealed after the agent: its logs, then the declared entries (`/logs/artifacts` is implicit)."""
    declared = part.task.artifacts(part.step)
    return [AGENT_LOGS, *(ArtifactPath(entry.source, entry.destination, tuple(entry.exclude)) for entry in declared)]


def archived(items: Iterable[NewArtifact], part: Part) -> list[NewArtifact]:
    """Returns artifacts under the names that they have on the Trial: those of a step lie below `steps/<name>/`."""
    return [replace(item, name=part.prefix + item.name) for item in items]


def agent_artifacts(seal: Seal) -> list[NewArtifact]:
    """Returns the rows of a seal: files with their hashes, and declared files that the agent did not write."""
    items: list[NewArtifact] = []
    for entry in seal.entries:
        if entry.source == AGENT_LOGS.source:
            items += _files(entry, ArtifactKind.LOG)
        elif entry.status == "missing" and entry.source != "/logs/artifacts":
            items.append(NewArtifact.missing(entry.destination, ArtifactKind.OUTPUT))
        else:
            items += _files(entry, ArtifactKind.OUTPUT)
    return items


def verifier_artifacts(seal: Seal) -> list[NewArtifact]:
    """Returns the rows of what the verifier wrote."""
    return [item for entry in seal.entries for item in _files(entry, ArtifactKind.VERIFIER)]


def _files(entry: SealedEntry, kind: ArtifactKind) -> Iterable[NewArtifact]:
    return [
        NewArtifact.file(member.path, kind, size=member.size, sha256=member.sha256)
        for member in entry.members
        if member.kind == "file" and member.sha256 is not None
    ]


async def take_log(sink: Sink, name: str, path: Path) -> NewArtifact | None:
    """Stores a log that was written outside the sandbox; its file is gone afterwards, whatever happens."""

    def store() -> NewArtifact | None:
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                return NewArtifact.file(name, ArtifactKind.LOG, size=size, sha256=sink.put_fd(file.fileno(), size))
        except FileNotFoundError:
            return None
        finally:
            path.unlink(missing_ok=True)

    return await asyncio.to_thread(store)


async def with_log(sink: Sink, items: Sequence[NewArtifact], name: str, path: Path) -> list[NewArtifact]:
    """Returns the artifacts with a log that was written outside the sandbox, in place of what has its name."""
    log = await take_log(sink, name, path)
    return list(items) if log is None else [log, *(item for item in items if item.name != name)]


async def with_bytes(sink: Sink, items: Sequence[NewArtifact], name: str, data: bytes) -> list[NewArtifact]:
    """Returns the artifacts with one that this process wrote, in place of what has its name."""
    sha256 = await sink.put_bytes(data)
    made = NewArtifact.file(name, ArtifactKind.LOG, size=len(data), sha256=sha256)
    return [made, *(item for item in items if item.name != name)]


async def read_log(path: Path, max_bytes: int) -> bytes:
    """Returns the beginning of a log that was written outside the sandbox; empty when there is none."""

    def read() -> bytes:
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                return file.read(max_bytes)
        except FileNotFoundError:
            return b""

    return await asyncio.to_thread(read)


async def drop_logs(folder: Path, trial_id: str) -> None:
    """Removes the log files that lost tries of a Trial left on this machine."""

    def drop() -> None:
        for path in folder.glob(f"{trial_id}-*"):
            path.unlink(missing_ok=True)

    await asyncio.to_thread(drop)
