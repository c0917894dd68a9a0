"""Artifact entries: what is taken out of a sandbox when a Trial is sealed, and where it goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from tollbar.datasets.names import is_service
from tollbar.datasets.problems import Document, KeyPath, shown
from tollbar.datasets.reader import Table

PUBLISHED: Final = "/logs/artifacts"
"""The publish folder: taken without being declared."""
MAIN: Final = "main"


@dataclass(frozen=True)
class ArtifactEntry:
    """One declared path; a relative `source` starts at the working directory."""

    source: str
    destination: str | None = None
    """Relative place among the artifacts; None mirrors the absolute source."""
    exclude: tuple[str, ...] = ()
    service: str = MAIN


def with_published(entries: Iterable[ArtifactEntry]) -> tuple[ArtifactEntry, ...]:
    """Returns the entries with the publish folder first, unless one of them names it."""
    listed = tuple(entries)
    if any(entry.service == MAIN and entry.source.rstrip("/") == PUBLISHED for entry in listed):
        return listed
    return (ArtifactEntry(PUBLISHED), *listed)


def read_artifacts(table: Table) -> tuple[ArtifactEntry, ...]:
    """Reads the key `artifacts`: a list of texts or tables, also written as `[[artifacts]]`."""
    entries: list[ArtifactEntry] = []
    for index, value in enumerate(table.items("artifacts") or []):
        entry = _read_entry(table.document, (*table.path, "artifacts", index), value)
        if entry is not None:
            entries.append(entry)
    return tuple(entries)


def _read_entry(document: Document, path: KeyPath, value: Any) -> ArtifactEntry | None:
    if isinstance(value, str):
        broken = _source_problem(value)
        if broken is not None:
            document.add(path, broken, found=shown(value))
            return None
        return ArtifactEntry(value)
    if not isinstance(value, dict):
        document.add(path, "must be text or a table", found=shown(value), allowed="text or a table")
        return None
    table = Table(document, path, value)
    source = table.text("source", required=True, check=_source_problem)
    destination = table.text("destination", check=_destination_problem)
    exclude = table.texts("exclude")
    service = table.text("service", check=service_problem)
    table.close()
    if source is not None and service not in {None, MAIN} and not source.startswith("/"):
        table.problem("source", "must be absolute when service is not main")
    return None if source is None else ArtifactEntry(source, destination or None, exclude or (), service or MAIN)


def _source_problem(source: str) -> str | None:
    if not source.strip() or "\0" in source:
        return "must be a path"
    return "must not contain '..'" if ".." in PurePosixPath(source).parts else None


def _destination_problem(destination: str) -> str | None:
    if not destination:
        return None
    path = PurePosixPath(destination)
    if "\\" in destination or "\0" in destination or path.is_absolute() or ".." in path.parts or not path.parts:
        return "must be a relative path with forward slashes and without '..'"
    return "must not be manifest.json, which the record of the seal takes" if str(path) == "manifest.json" else None


def service_problem(service: str) -> str | None:
    """Returns the rule that a compose service's name breaks, or None."""
    return None if is_service(service) else "must be letters, digits, '_', '.' or '-', starting with a letter or digit"
