"""Reads a `registry.json`: which folders of an upload are the tasks of one dataset version."""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Any, Final

from tollbar.datasets.names import short_name
from tollbar.datasets.problems import Document, KeyPath, Problem, shown
from tollbar.datasets.reader import Table, nonempty
from tollbar.kit.jsonio import loads_strict

REGISTRY_JSON: Final = "registry.json"
SHAPE: Final = (
    "a list of {name, version, description, tasks: [{name, git_url?, git_commit_id?, path}], "
    "metrics?: [{type, kwargs}]}"
)
_METRICS: Final = frozenset({"sum", "min", "max", "mean", "uv-script"})


@dataclass(frozen=True)
class RegisteredTask:
    """A task of a registry entry: its name there and its folder in the upload."""

    name: str
    folder: str


@dataclass(frozen=True)
class RegistryEntry:
    """One dataset version of a registry."""

    name: str
    version: str
    description: str
    tasks: tuple[RegisteredTask, ...]


def read_registry(
    file: str, data: bytes, name: str, version: str | None, problems: list[Problem]
) -> RegistryEntry | None:
    """Returns the entry of a registry that is the dataset `name` (its short name will do), or None.

    Every entry is checked, not only the one that is wanted.
    """
    values = _list(file, data, problems)
    if values is None:
        return None
    document = Document(file, problems)
    entries = [entry for index, value in enumerate(values) if (entry := _entry(document, (index,), value))]
    fitting = [
        entry
        for entry in entries
        if entry.name in {name, short_name(name)} and (version is None or entry.version == version)
    ]
    if len(fitting) != 1 and len(entries) == len(values):
        wanted = name if version is None else f"{name}@{version}"
        count = "no" if not fitting else "more than one"
        document.add((), f"has {count} entry {wanted}")
    return fitting[0] if len(fitting) == 1 else None


def _list(file: str, data: bytes, problems: list[Problem]) -> list[Any] | None:
    try:
        values = loads_strict(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        message = f"is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        problems.append(Problem(file, message, line=error.lineno))
        return None
    except (ValueError, RecursionError):
        problems.append(Problem(file, "is not valid JSON"))
        return None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        kind = "an object" if isinstance(values, dict) else shown(values)
        problems.append(
            Problem(file, f"has another shape than a registry: expected {SHAPE}", found=kind, allowed=SHAPE)
        )
        return None
    return values


def _entry(document: Document, path: KeyPath, value: dict[str, Any]) -> RegistryEntry | None:
    table = Table(document, path, value)
    name = table.text("name", required=True, check=nonempty)
    version = table.text("version", required=True, check=nonempty)
    description = table.text("description") or ""
    tasks = [_task(entry) for entry in table.tables("tasks")]
    for metric in table.tables("metrics"):
        metric.text("type", required=True, check=_metric_problem)
        metric.table("kwargs")
        metric.close()
    table.close()
    if name is None or version is None:
        return None
    return RegistryEntry(name, version, description, tuple(task for task in tasks if task is not None))


def _task(table: Table) -> RegisteredTask | None:
    name = table.text("name", required=True, check=nonempty)
    remote = table.text("git_url")
    table.text("git_commit_id")
    path = table.text("path", required=True)
    table.close()
    if remote is not None:
        table.problem("git_url", "an upload holds its tasks itself: clone the repository and give its path")
        return None
    if name is None or path is None:
        return None
    folder = posixpath.normpath(path)
    if path.startswith("/") or folder.startswith(".."):
        table.problem("path", "must stay inside the upload")
        return None
    return RegisteredTask(name, "" if folder == "." else folder)


def _metric_problem(text: str) -> str | None:
    return None if text in _METRICS else f"must be one of {', '.join(sorted(_METRICS))}"
