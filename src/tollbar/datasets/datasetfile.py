"""Reads `dataset.toml` (schema 1.0) with what `[metadata.tollbar]` adds: splits, configs, weights, threshold."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tollbar.datasets.names import DIGEST_RULE, is_digest
from tollbar.datasets.ownkeys import own_table, read_threshold, read_weights
from tollbar.datasets.problems import Document, KeyPath, Problem, shown
from tollbar.datasets.reader import Table
from tollbar.datasets.taskconfig import name_problem, read_package, read_schema_version
from tollbar.datasets.taskmodel import PackageInfo
from tollbar.datasets.tomltext import read_toml

DATASET_TOML: Final = "dataset.toml"
_OWN: Final[KeyPath] = ("metadata", "tollbar")


@dataclass(frozen=True)
class ListedTask:
    """An entry of `[[tasks]]`, with its place in the list."""

    index: int
    name: str
    digest: str


@dataclass(frozen=True)
class ListedFile:
    """An entry of `[[files]]`; `digest` `""` is computed at publication."""

    index: int
    path: str
    digest: str


@dataclass(frozen=True)
class DatasetFile:
    """What a `dataset.toml` says; `document` takes further problems of it."""

    document: Document
    package: PackageInfo | None
    tasks: tuple[ListedTask, ...]
    files: tuple[ListedFile, ...]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Split -> names or patterns as they are written."""
    configs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    default_config: str | None = None
    threshold: str = "1"
    weights: Mapping[str, str] = field(default_factory=dict[str, str])
    default_profile: str | None = None

    def split_of(self, names: Sequence[str]) -> dict[str, str]:
        """Returns task name -> split; records patterns that match nothing and tasks in two splits."""
        found: dict[str, str] = {}
        for split, patterns in self.splits.items():
            for index, pattern in enumerate(patterns):
                matched = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
                path = (*_OWN, "splits", split, index)
                if not matched:
                    self.document.add(path, "matches no task of the dataset", found=shown(pattern))
                for name in matched:
                    if found.setdefault(name, split) != split:
                        self.document.add(path, f"puts {name} into a second split, beside {found[name]}")
        return found

    def checked_configs(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns config -> sorted task names; records names that are no task of the dataset."""
        known = frozenset(names)
        configs: dict[str, tuple[str, ...]] = {}
        for config, members in self.configs.items():
            for index, name in enumerate(members):
                if name not in known:
                    self.document.add((*_OWN, "configs", config, index), "is no task of the dataset", found=shown(name))
            configs[config] = tuple(sorted(known.intersection(members)))
        if self.default_config is not None and self.default_config not in configs:
            self.document.add((*_OWN, "default_config"), "is not one of the configs", found=shown(self.default_config))
        return configs


def read_dataset_toml(file: str, data: bytes, problems: list[Problem]) -> DatasetFile | None:
    """Returns what a `dataset.toml` says; None when it is no TOML. Faults are added to `problems`."""
    opened = read_toml(file, data, problems)
    if opened is None:
        return None
    document, values = opened
    root = Table(document, (), values)
    read_schema_version(root, ("1.0",))
    package = read_package(root.table("dataset", required=True))
    tasks, files = _tasks(root), _files(root)
    metadata = root.table("metadata")
    own = own_table(document, metadata.raw()) if metadata is not None else None
    root.close()
    if own is None:
        return DatasetFile(document, package, tasks, files)
    listed = DatasetFile(
        document,
        package,
        tasks,
        files,
        splits=_groups(own.table("splits")),
        configs=_groups(own.table("configs")),
        default_config=own.text("default_config"),
        threshold=read_threshold(own) or "1",
        weights=read_weights(own),
        default_profile=own.text("default_profile", check=_profile_problem),
    )
    own.close()
    return listed


def _tasks(root: Table) -> tuple[ListedTask, ...]:
    listed: list[ListedTask] = []
    for index, table in enumerate(root.tables("tasks")):
        name = table.text("name", required=True, check=name_problem)
        digest = table.text("digest", required=True, check=_digest_problem)
        table.close()
        if name is None:
            continue
        if any(name == other.name for other in listed):
            table.problem("name", "is listed twice")
            continue
        listed.append(ListedTask(index, name, digest or ""))
    return tuple(listed)


def _files(root: Table) -> tuple[ListedFile, ...]:
    listed: list[ListedFile] = []
    for index, table in enumerate(root.tables("files")):
        path = table.text("path", required=True, check=_file_problem)
        digest = table.text("digest", check=lambda text: _digest_problem(text) if text else None)
        table.close()
        if path is None:
            continue
        if any(path == other.path for other in listed):
            table.problem("path", "is listed twice")
            continue
        listed.append(ListedFile(index, path, digest or ""))
    return tuple(listed)


def _groups(table: Table | None) -> dict[str, tuple[str, ...]]:
    """Reads a table of lists of task names; its keys are free."""
    if table is None:
        return {}
    groups: dict[str, tuple[str, ...]] = {}
    for name in table.names():
        members = table.texts(name) or ()
        if not 1 <= len(name) <= 128 or not name.isprintable():
            table.problem(name, "must be named by 1 to 128 printable characters")
        else:
            groups[name] = members
    return groups


def _digest_problem(text: str) -> str | None:
    return None if is_digest(text) else f"must be {DIGEST_RULE}"


def _file_problem(text: str) -> str | None:
    bad = not text or "/" in text or "\\" in text or "\0" in text or text in {".", "..", DATASET_TOML, "task.toml"}
    return "must be one file name of the dataset folder, without slashes" if bad else None


def _profile_problem(text: str) -> str | None:
    return name_problem(text.rpartition("@")[0] or text)
