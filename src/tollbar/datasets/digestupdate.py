"""Rewrites the digests of a `dataset.toml` to what its folders have, line by line, and says what changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tollbar.datasets.content import file_digest
from tollbar.datasets.datasetfile import DATASET_TOML, DatasetFile, read_dataset_toml
from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.names import namespace_of
from tollbar.datasets.problems import KeyPath, Problem, key_text
from tollbar.datasets.taskfile import TASK_TOML, read_task
from tollbar.datasets.tree import Tree

_DIGEST: Final = re.compile(r"""(digest\s*=\s*)(["'])[^"'\n]*\2""")


@dataclass(frozen=True)
class Change:
    """One digest that was rewritten."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class DigestUpdate:
    """The new text of the file, equal to the old one but for the digests, and what changed in it."""

    text: str
    changes: tuple[Change, ...]


def update_digests(tree: Tree) -> DigestUpdate:
    """Returns `dataset.toml` of a dataset folder with the digests that its tasks and files have now.

    Only listed entries are touched. Raises `UnsupportedTaskFormat` when the file or a task cannot be read.
    """
    problems: list[Problem] = []
    data = tree.files.get(DATASET_TOML)
    if data is None:
        raise UnsupportedTaskFormat([Problem(DATASET_TOML, "is missing")])
    listed = read_dataset_toml(DATASET_TOML, data, problems)
    if listed is None:
        raise UnsupportedTaskFormat(problems)
    now = _digests(tree, listed, problems)
    faults = [problem for problem in problems if not (problem.key or "").endswith("].digest")]
    if faults:
        raise UnsupportedTaskFormat(faults)
    lines = data.decode("utf-8").split("\n")
    changes: list[Change] = []
    for path, name, old in _entries(listed):
        new = now.get(name)
        if new is None or new == old:
            continue
        if not _rewrite(lines, listed.document.lines.get(path), new):
            message = f"write the entry of {name} as a table [[{path[0]}]] with a line for its digest"
            raise UnsupportedTaskFormat([Problem(DATASET_TOML, message, key_text(path), allowed=new)])
        changes.append(Change(name, old, new))
    return DigestUpdate("\n".join(lines), tuple(changes))


def _digests(tree: Tree, listed: DatasetFile, problems: list[Problem]) -> dict[str, str]:
    """Returns the digests by name of the task or file."""
    package = listed.package
    namespace = namespace_of(package.name) if package is not None else ""
    now: dict[str, str] = {}
    for folder, part in tree.split(tree.folders_with(TASK_TOML)).items():
        found = read_task(part, folder, f"{namespace}/{folder.rpartition('/')[2]}", problems)
        if found is not None:
            now[found[0].name] = found[0].digest
    return now | {item.path: file_digest(tree.files[item.path]) for item in listed.files if item.path in tree.files}


def _entries(listed: DatasetFile) -> Iterator[tuple[KeyPath, str, str]]:
    for task in listed.tasks:
        yield ("tasks", task.index, "digest"), task.name, task.digest
    for file in listed.files:
        if file.digest:
            yield ("files", file.index, "digest"), file.path, file.digest


def _rewrite(lines: list[str], number: int | None, new: str) -> bool:
    if number is None:
        return False
    lines[number - 1], count = _DIGEST.subn(rf'\g<1>"{new}"', lines[number - 1], count=1)
    return count == 1
