"""A dataset version as it is uploaded: its tasks, files, splits and configs, its digest and its manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tollbar.datasets.datasetfile import DATASET_TOML, DatasetFile, read_dataset_toml
from tollbar.datasets.digests import dataset_digest, manifest_sha256
from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.names import LABEL_RULE, is_label, namespace_of
from tollbar.datasets.problems import Document, Problem, shown
from tollbar.datasets.registryfile import REGISTRY_JSON, RegistryEntry, read_registry
from tollbar.datasets.taskfile import TASK_TOML, Task, read_task
from tollbar.datasets.taskmodel import PackageInfo
from tollbar.datasets.tree import Tree

ENVIRONMENT: Final = "environment"
"""The type of every dataset whose members are tasks."""


@dataclass(frozen=True)
class DatasetTask:
    """One task of a version, with the files that belong to it and its folder in the upload."""

    task: Task
    files: Mapping[str, bytes]
    folder: str
    split: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A dataset version without a fault."""

    name: str
    version: str
    tasks: tuple[DatasetTask, ...]
    """Sorted by name."""
    files: Mapping[str, bytes]
    splits: Mapping[str, int]
    configs: Mapping[str, tuple[str, ...]]
    default_config: str | None
    threshold: str
    weights: Mapping[str, str]
    default_profile: str | None
    description: str
    authors: tuple[str, ...]

    def digest(self) -> str:
        """Returns the digest over tasks and files: `sha256:` and hex."""
        return f"sha256:{dataset_digest((entry.task.digest for entry in self.tasks), self.file_digests())}"

    def file_digests(self) -> dict[str, str]:
        return {path: file_digest(data) for path, data in self.files.items()}

    def manifest(self) -> dict[str, Any]:
        """Returns everything that can change a result, as it is hashed."""
        return {
            "schema": "tollbar.dataset/v1",
            "name": self.name,
            "version": self.version,
            "type": ENVIRONMENT,
            "tasks": [
                {"name": entry.task.name, "digest": entry.task.digest, "split": entry.split} for entry in self.tasks
            ],
            "files": [{"path": path, "digest": digest} for path, digest in sorted(self.file_digests().items())],
            "configs": {name: sorted(members) for name, members in self.configs.items()},
            "default_config": self.default_config,
            "threshold": self.threshold,
            "weights": dict(self.weights),
            "default_profile": self.default_profile,
        }

    def manifest_sha256(self) -> str:
        return manifest_sha256(self.manifest())


def file_digest(data: bytes) -> str:
    """Returns the digest of one file: `sha256:` and hex."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def load_dataset(tree: Tree, *, name: str, version: str | None, problems: list[Problem]) -> Dataset:
    """Returns the dataset that a folder holds, as version `version` of `name` (None: as its `dataset.toml` says).

    The folder has a `dataset.toml`, or a `registry.json`, or just task folders, or is one task itself. Raises
    `UnsupportedTaskFormat` with every problem, those that `problems` already holds included.
    """
    root = _unwrapped(tree)
    listed = None
    if DATASET_TOML in root.files:
        listed = read_dataset_toml(DATASET_TOML, root.files[DATASET_TOML], problems)
    registered = None
    if REGISTRY_JSON in root.files and DATASET_TOML not in root.files and TASK_TOML not in root.files:
        registered = read_registry(REGISTRY_JSON, root.files[REGISTRY_JSON], name, version, problems)
        if registered is None:
            raise UnsupportedTaskFormat(problems)
    found = _Tasks(root, name, registered, problems)
    tasks = found.read()
    if listed is not None:
        _check_listing(listed, found, tasks)
    elif DATASET_TOML not in root.files:
        _check_names_differ(tasks, problems)
    unread = listed is None and DATASET_TOML in root.files
    label = "" if unread else _label(version, listed, registered, name, problems)
    dataset = _dataset(name, label, listed, registered, tasks, _files(listed, root))
    if problems:
        raise UnsupportedTaskFormat(problems)
    return dataset


def _unwrapped(tree: Tree) -> Tree:
    """Returns the dataset's own folder when the archive holds just that one folder."""
    tops = {path.partition("/")[0] for path in (*tree.files, *tree.links)}
    if len(tops) == 1:
        top = next(iter(tops))
        if f"{top}/{DATASET_TOML}" in tree.files or f"{top}/{REGISTRY_JSON}" in tree.files:
            return tree.below(top)
    return tree


class _Tasks:
    """The task folders of an upload. `unreadable` are the names that folders without a readable task may have."""

    def __init__(self, root: Tree, dataset: str, registered: RegistryEntry | None, problems: list[Problem]) -> None:
        self._root = root
        self._dataset = dataset
        self._registered = registered
        self.problems = problems
        self.unreadable: set[str] = set()

    def read(self) -> list[DatasetTask]:
        tasks: list[DatasetTask] = []
        names = self._folders()
        for folder, tree in self._root.split(names).items():
            found = read_task(tree, folder, names[folder], self.problems)
            if found is None:
                self.unreadable.add(names[folder])
            else:
                tasks.append(DatasetTask(found[0], found[1], folder))
        return sorted(tasks, key=lambda entry: (entry.task.name, entry.folder))

    def _folders(self) -> dict[str, str]:
        """Returns folder -> the name of its task when its `task.toml` gives none."""
        namespace = namespace_of(self._dataset)
        if self._registered is not None:
            return self._registered_folders(namespace, self._registered)
        folders = self._root.folders_with(TASK_TOML)
        if not folders:
            self.problems.append(Problem(TASK_TOML, "the upload holds no folder with a task.toml"))
        if folders == [""] and DATASET_TOML in self._root.files:
            self.problems.append(Problem(TASK_TOML, "stands beside dataset.toml: give each task a folder of its own"))
            return {}
        return {folder: f"{namespace}/{folder.rpartition('/')[2]}" if folder else self._dataset for folder in folders}

    def _registered_folders(self, namespace: str, registered: RegistryEntry) -> dict[str, str]:
        known = frozenset(self._root.folders_with(TASK_TOML))
        names: dict[str, str] = {}
        for task in registered.tasks:
            name = task.name if "/" in task.name else f"{namespace}/{task.name}"
            if task.folder not in known:
                message = f"the folder {task.folder!r} of the task {name} holds no task.toml"
                self.problems.append(Problem(REGISTRY_JSON, message))
            elif task.folder in names:
                self.problems.append(Problem(REGISTRY_JSON, f"names the folder {task.folder!r} twice"))
            else:
                names[task.folder] = name
        return names


def _check_names_differ(tasks: Sequence[DatasetTask], problems: list[Problem]) -> None:
    first: dict[str, DatasetTask] = {}
    for entry in tasks:
        other = first.setdefault(entry.task.name, entry)
        if other is not entry:
            message = f"has the name of the task in {other.folder or '.'} ({other.task.digest})"
            problems.append(
                Problem(_toml_of(entry), message, key="task.name", found=f"{entry.task.name} ({entry.task.digest})")
            )


def _check_listing(listed: DatasetFile, found: _Tasks, tasks: Sequence[DatasetTask]) -> None:
    """Compares `[[tasks]]` with the folders: each listed once, each with the digest that it has."""
    document = listed.document
    _check_names_differ(tasks, found.problems)
    by_name = {entry.task.name: entry for entry in reversed(tasks)}
    broken = {problem.file for problem in found.problems}
    for item in listed.tasks:
        entry = by_name.get(item.name)
        if entry is None:
            if not found.unreadable:
                path = ("tasks", item.index, "name")
                document.add(path, f"has no folder in the upload (digest {item.digest})", found=shown(item.name))
        elif item.digest and item.digest != entry.task.digest and not _is_broken(entry, broken):
            path = ("tasks", item.index, "digest")
            message = f"is not the digest of {item.name}, which is {entry.task.digest}"
            document.add(path, message, found=item.digest, allowed=entry.task.digest)
    names = {item.name for item in listed.tasks}
    for entry in tasks:
        if entry.task.name not in names and not _is_broken(entry, broken):
            message = f"the task {entry.task.name} ({entry.task.digest}) is not listed in {DATASET_TOML}"
            found.problems.append(Problem(_toml_of(entry), message))


def _is_broken(entry: DatasetTask, files: set[str]) -> bool:
    return any(file.startswith(entry.folder + "/") for file in files)


def _toml_of(entry: DatasetTask) -> str:
    return f"{entry.folder}/{TASK_TOML}" if entry.folder else TASK_TOML


def _label(
    version: str | None,
    listed: DatasetFile | None,
    registered: RegistryEntry | None,
    name: str,
    problems: list[Problem],
) -> str:
    """Returns the version's label, and checks that name and label of the file are those of the upload."""
    document = listed.document if listed is not None else Document(DATASET_TOML, problems)
    package = listed.package if listed is not None else None
    if package is not None and package.name != name:
        document.add(("dataset", "name"), "is not the name of the upload", found=shown(package.name), allowed=name)
    inside = package.version if package is not None else None
    if version is not None and inside is not None and inside != version:
        document.add(("dataset", "version"), "is not the version of the upload", found=shown(inside), allowed=version)
    label = version or inside or (registered.version if registered is not None else None)
    if label is None:
        document.add(("dataset", "version"), "is missing, and the upload names no version", allowed=LABEL_RULE)
    elif not is_label(label):
        document.add(("dataset", "version"), f"must be {LABEL_RULE}", found=shown(label), allowed=LABEL_RULE)
    return label or ""


def _files(listed: DatasetFile | None, root: Tree) -> dict[str, bytes]:
    """Returns the dataset's own files; they are stored and hashed, and the server never runs them."""
    files: dict[str, bytes] = {}
    for item in listed.files if listed is not None else ():
        assert listed is not None
        data = root.files.get(item.path)
        if data is None:
            listed.document.add(("files", item.index, "path"), "is not in the upload", found=shown(item.path))
            continue
        digest = file_digest(data)
        if item.digest and item.digest != digest:
            path = ("files", item.index, "digest")
            message = f"is not the digest of {item.path}, which is {digest}"
            listed.document.add(path, message, found=item.digest, allowed=digest)
        files[item.path] = data
    return files


def _single_package(tasks: Sequence[DatasetTask]) -> PackageInfo | None:
    """Returns what a folder that is one task says of itself: its description and authors are the dataset's, too."""
    return tasks[0].task.config.package if len(tasks) == 1 and not tasks[0].folder else None


def _dataset(
    name: str,
    label: str,
    listed: DatasetFile | None,
    registered: RegistryEntry | None,
    tasks: Sequence[DatasetTask],
    files: Mapping[str, bytes],
) -> Dataset:
    names = [entry.task.name for entry in tasks]
    splits = listed.split_of(names) if listed is not None else {}
    members = tuple(DatasetTask(entry.task, entry.files, entry.folder, splits.get(entry.task.name)) for entry in tasks)
    package = listed.package if listed is not None else _single_package(tasks)
    counts = [entry.split for entry in members]
    return Dataset(
        name=name,
        version=label,
        tasks=members,
        files=files,
        splits={split: counts.count(split) for split in (listed.splits if listed is not None else {})},
        configs=listed.checked_configs(names) if listed is not None else {},
        default_config=listed.default_config if listed is not None else None,
        threshold=listed.threshold if listed is not None else "1",
        weights=listed.weights if listed is not None else {},
        default_profile=listed.default_profile if listed is not None else None,
        description=package.description if package is not None else registered.description if registered else "",
        authors=tuple(author.name for author in package.authors) if package is not None else (),
    )
