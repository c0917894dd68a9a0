"""A dataset's folder as far as its upload needs it: what it is called, and which version it says it is.

Everything else about it is the server's to read and to judge.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollbar.cli.problems import Usage

DATASET_TOML: Final = "dataset.toml"
TASK_TOML: Final = "task.toml"
_MAX_BYTES: Final = 1 << 20
_VERSION: Final = re.compile(rb"""(?m)^([ \t]*(?:dataset[ \t]*\.[ \t]*)?version[ \t]*=[ \t]*(?:"[^"\n]*"|'[^'\n]*'))""")


@dataclass(frozen=True)
class Folder:
    """A folder that is to be uploaded; `name` is None when nothing in it says what it is called."""

    path: Path
    name: str | None
    listing: bytes | None
    """The bytes of its `dataset.toml`."""

    def fallback_name(self) -> str:
        """Returns a name made from that of the folder, for an upload that nobody named."""
        words = re.sub(r"[^A-Za-z0-9_-]+", "-", self.path.resolve().name).strip("-_")
        return f"local/{words or 'dataset'}"

    def without_version(self) -> dict[str, bytes]:
        """Returns what replaces `dataset.toml` in an upload whose version is named otherwise; lines stay in place."""
        if self.listing is None or _version(_tables(self.listing)) is None:
            return {}
        before = _tables(self.listing)
        for found in _VERSION.finditer(self.listing):
            changed = self.listing[: found.start()] + b"# " + self.listing[found.start() :]
            try:
                after = _tables(changed)
            except ValueError:
                continue
            before_less = {**before, "dataset": {k: v for k, v in before["dataset"].items() if k != "version"}}
            if after == before_less:
                return {DATASET_TOML: changed}
        raise Usage(
            f"{self.path / DATASET_TOML} names a version in a way that cannot be set aside",
            why=["a folder that is submitted gets a version of its own, made from its content"],
            fix='write it as a line of its own below [dataset]: version = "1"',
        )


def open_folder(path: Path) -> Folder:
    """Reads what an upload of a folder needs; raises `Usage` when it is none or its `dataset.toml` is no TOML."""
    if not path.is_dir():
        raise Usage(f"{path} is not a folder")
    listing = _read(path / DATASET_TOML)
    name = None
    try:
        if listing is not None:
            name = _text(_tables(listing).get("dataset"), "name")
        elif (task := _read(path / TASK_TOML)) is not None:
            name = _text(_tables(task).get("task"), "name")
    except ValueError as error:
        file = DATASET_TOML if listing is not None else TASK_TOML
        raise Usage(f"{path / file} is not valid TOML", why=[str(error)]) from None
    return Folder(path, name, listing)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Usage(f"{path} cannot be read", why=[str(error.strerror)]) from None
    if len(data) > _MAX_BYTES:
        raise Usage(f"{path} is larger than {_MAX_BYTES} bytes")
    return data


def _tables(data: bytes) -> dict[str, Any]:
    return tomllib.loads(data.decode("utf-8"))


def _version(tables: Mapping[str, Any]) -> str | None:
    return _text(tables.get("dataset"), "version")


def _text(table: object, key: str) -> str | None:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, str) and value else None
