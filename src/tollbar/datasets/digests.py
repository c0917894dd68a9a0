"""Digests: which files belong to a task, the hash over them, the hash of a dataset, and our manifest.

What is hashed is what is stored and run: a file that the ignore rules drop never reaches a sandbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pathspec import GitIgnoreSpec, PathSpec

from tollbar.datasets.problems import Problem
from tollbar.datasets.tree import LinkFault, Tree
from tollbar.kit.jsonio import canonical_sha256

ROOT_FILES: Final = ("task.toml", "instruction.md", "README.md", "trajectory.json")
FOLDERS: Final = ("environment", "tests", "solution", "steps")
DEFAULT_IGNORES: Final = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
_HARBORIGNORE: Final = ".harborignore"
_GITIGNORE: Final = ".gitignore"
_SCOPED: Final = frozenset({"tests", "solution"})


@dataclass(frozen=True)
class Counted:
    """The files of a task, and the paths that ignore rules dropped."""

    files: dict[str, bytes]
    dropped: frozenset[str]


def task_digest(files: Mapping[str, bytes]) -> str:
    """Returns the digest (`sha256:` and hex) of a task folder given as path -> bytes."""
    return digest_of(count(Tree(files), "", []).files)


def digest_of(counted: Mapping[str, bytes]) -> str:
    """Returns the digest of files that are already known to belong to the task."""
    whole = hashlib.sha256()
    for path in sorted(counted):
        whole.update(f"{path}\0{hashlib.sha256(counted[path]).hexdigest()}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def count(tree: Tree, folder: str, problems: list[Problem]) -> Counted:
    """Returns the files that belong to the task whose folder `tree` is; `folder` only names it in problems."""
    candidates, targets = _candidates(tree, folder, problems)
    rules = _Rules(tree, folder, problems)
    ignored = rules.root_ignores()
    files: dict[str, bytes] = {}
    dropped: set[str] = set()
    for path, data in candidates.items():
        if rules.drops(path) or rules.drops(targets.get(path, path)) or ignored.match_file(path):
            dropped.add(path)
        else:
            files[path] = data
    return Counted(files, frozenset(dropped))


def _is_candidate(path: str) -> bool:
    return path in ROOT_FILES or ("/" in path and path.partition("/")[0] in FOLDERS)


def _candidates(tree: Tree, folder: str, problems: list[Problem]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Returns regular files and links to files with their bytes, and where the links lead."""
    files = {path: data for path, data in tree.files.items() if _is_candidate(path)}
    targets: dict[str, str] = {}
    for path in filter(_is_candidate, tree.links):
        try:
            real = tree.real_path(path)
        except LinkFault as fault:
            problems.append(Problem(_within(folder, path), str(fault)))
            continue
        if real in tree.files:
            files[path], targets[path] = tree.files[real], real
        elif not tree.is_folder(real):
            problems.append(Problem(_within(folder, path), "is a link to nothing", found=tree.links[path]))
    return files, targets


class _Rules:
    """The ignore rules of one task folder."""

    def __init__(self, tree: Tree, folder: str, problems: list[Problem]) -> None:
        self._tree = tree
        self._folder = folder
        self._problems = problems
        self._specs: dict[str, GitIgnoreSpec] = {}
        for path in tree.files:
            parent, _, name = path.rpartition("/")
            if name == _HARBORIGNORE and _in_scope(parent.split("/")):
                self._specs[parent] = GitIgnoreSpec.from_lines(self._lines(path))

    def root_ignores(self) -> PathSpec[Any]:
        lines = self._lines(_GITIGNORE) if _GITIGNORE in self._tree.files else list(DEFAULT_IGNORES)
        return PathSpec.from_lines("gitignore", lines)

    def drops(self, path: str) -> bool:
        """Says whether nested ignore files drop a path; a dropped folder cannot be entered again."""
        parts = path.split("/")
        if parts[-1] == _HARBORIGNORE:
            return True
        if not self._specs:
            return False
        for end in range(1, len(parts) + 1):
            if not _in_scope(parts[:end]) or (end == len(parts) and not _in_scope(parts[: end - 1])):
                continue
            if self._matches(parts[:end], is_folder=end < len(parts)):
                return True
        return False

    def _matches(self, parts: Sequence[str], *, is_folder: bool) -> bool:
        excluded = False
        for start in range(1, len(parts)):
            spec = self._specs.get("/".join(parts[:start]))
            if spec is None:
                continue
            verdict = spec.check_file("/".join(parts[start:]) + ("/" if is_folder else "")).include
            excluded = excluded if verdict is None else verdict
        return excluded

    def _lines(self, path: str) -> list[str]:
        """Returns the lines of an ignore file that are patterns; the others are problems."""
        name = _within(self._folder, path)
        try:
            lines = self._tree.files[path].decode("utf-8").splitlines()
        except UnicodeDecodeError:
            self._problems.append(Problem(name, "is not UTF-8"))
            return []
        kept: list[str] = []
        for number, line in enumerate(lines, start=1):
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError:
                self._problems.append(Problem(name, "is not a pattern", line=number, found=line[:80]))
            else:
                kept.append(line)
        return kept


def _in_scope(parts: Sequence[str]) -> bool:
    """Says whether a folder lies in `tests/`, `solution/` or those of a step."""
    return (bool(parts) and parts[0] in _SCOPED) or (len(parts) > 2 and parts[0] == "steps" and parts[2] in _SCOPED)


def _within(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path


def dataset_digest(task_digests: Iterable[str], files: Mapping[str, str] | None = None) -> str:
    """Returns the dataset's digest as 64 hex digits from its tasks' digests and its files' (path -> digest)."""
    text = ",".join(sorted(digest.removeprefix("sha256:") for digest in task_digests))
    if files:
        pairs = sorted(f"{path}:{digest.removeprefix('sha256:')}" for path, digest in files.items())
        text += ";" + ",".join(pairs)
    return hashlib.sha256(text.encode()).hexdigest()


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    """Returns the hash that pins everything of a dataset version that can change a result."""
    return canonical_sha256(dict(manifest))
