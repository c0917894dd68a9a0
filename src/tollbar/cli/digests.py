"""Brings the digests of a `dataset.toml` up to date with what the server computed; computes none itself."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollbar.cli.folders import DATASET_TOML

_KEY: Final = re.compile(r"(?:tasks|files)\[\d+\]\.digest\Z")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
_WRITTEN: Final = re.compile(r"""(\bdigest\s*=\s*)(["'])[^"'\n]*\2""")
_UNKNOWN: Final = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Rewritten:
    """The new text of the file, and one line for each digest that changed."""

    text: str
    changes: tuple[str, ...]


def rewritten(text: str, problems: Sequence[Mapping[str, Any]]) -> Rewritten | None:
    """Returns `dataset.toml` with the digests that the server's problems name; None when they name anything else.

    A digest that has no digest's form is first made one that nothing has, so that the next answer names the right one.
    """
    lines = text.split("\n")
    changes: list[str] = []
    for problem in problems:
        number = problem.get("line")
        if not _is_digest_problem(problem) or not isinstance(number, int) or not 1 <= number <= len(lines):
            return None
        old, right = str(problem.get("found")), problem.get("allowed")
        new = right if isinstance(right, str) and _DIGEST.match(right) else _UNKNOWN
        line = _replaced(lines[number - 1], old, new)
        if line is None:
            return None
        lines[number - 1] = line
        if new != _UNKNOWN:
            changes.append(f"line {number}: {old} -> {new}")
    return Rewritten("\n".join(lines), tuple(changes)) if problems else None


def write_listing(folder: Path, text: str) -> None:
    """Replaces the folder's `dataset.toml` at once, with the mode that it had."""
    path = (folder / DATASET_TOML).resolve()
    descriptor, fresh = tempfile.mkstemp(prefix=f".{DATASET_TOML}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(text)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def _is_digest_problem(problem: Mapping[str, Any]) -> bool:
    return problem.get("file") == DATASET_TOML and _KEY.match(str(problem.get("key"))) is not None


def _replaced(line: str, old: str, new: str) -> str | None:
    """Returns the line with one digest replaced: the one that was found, else the only one that it holds."""
    if _DIGEST.match(old) and line.count(old) == 1:
        return line.replace(old, new)
    changed, count = _WRITTEN.subn(rf'\g<1>"{new}"', line)
    return changed if count == 1 else None
