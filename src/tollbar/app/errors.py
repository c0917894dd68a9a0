"""What can be wrong with a backup."""

from __future__ import annotations

from pathlib import Path

from tollbar.kit.errors import TollbarError


class BackupFileExists(TollbarError):
    """A backup never overwrites a file."""

    code = "BACKUP_FILE_EXISTS"
    status = 409

    def __init__(self, file: Path) -> None:
        super().__init__(f"{file} is there already.", hint="Choose another name; put the date into it.")


class BackupDamaged(TollbarError):
    """The file is no whole backup: cut off, changed, or something else."""

    code = "BACKUP_DAMAGED"
    status = 422

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file} is not a whole backup: {problem}.", hint="Nothing was restored; use another backup.")
