"""Reads one table of a configuration file key by key; whatever was not asked for is an unknown key.

Nothing here raises: a fault is recorded and the reading goes on, so that one answer lists them all.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from tollbar.datasets.problems import Document, KeyPath, shown

E = TypeVar("E", bound=StrEnum)
D = TypeVar("D")
Check = Callable[[str], str | None]
"""Returns the rule that a text breaks, or None."""

_MISSING: Final = object()
_MISPLACED_ARTIFACTS: Final = (
    "artifacts = [...] belongs to the table above it: move it above the first table header, or write [[artifacts]]"
)


def or_default(value: D | None, default: D) -> D:
    """Returns `value`, or `default` when the key was absent or refused."""
    return default if value is None else value


def nonempty(text: str) -> str | None:
    """Refuses empty text."""
    return None if text.strip() else "must not be empty"


class Table:
    """A table that is being read; `path` is where it stands in its document."""

    def __init__(self, document: Document, path: KeyPath, values: Mapping[str, Any]) -> None:
        self.document = document
        self.path = path
        self._values = values
        self._asked: set[str] = set()

    def has(self, key: str) -> bool:
        """Says whether the key is written, and makes it a known one."""
        self._asked.add(key)
        return key in self._values

    def problem(self, key: str | None, message: str, *, allowed: str | None = None, secret: bool = False) -> None:
        """Records a problem of a key (None: of the table), with what was found there unless it may be a secret."""
        path = self.path if key is None else (*self.path, key)
        value = self._values.get(key, _MISSING) if key is not None else _MISSING
        found = None if value is _MISSING or secret else shown(value)
        self.document.add(path, message, found=found, allowed=allowed)

    def text(self, key: str, *, required: bool = False, check: Check | None = None) -> str | None:
        """Returns text, or None when it is absent or refused."""
        value = self._take(key, required=required)
        if value is _MISSING:
            return None
        if not isinstance(value, str):
            self.problem(key, "must be text in quotes", allowed="text")
            return None
        broken = check(value) if check is not None else None
        if broken is not None:
            self.problem(key, broken, allowed=broken.removeprefix("must be "))
            return None
        return value

    def number(self, key: str, *, above: float | None = None, at_least: float | None = None) -> float | None:
        """Returns a finite number (a whole one is taken as well), or None."""
        value = self._take(key)
        if value is _MISSING:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(key, "must be a number", allowed="a number")
            return None
        if not self._in_range(key, float(value), above, at_least):
            return None
        return float(value)

    def whole(self, key: str, *, above: int | None = None, at_least: int | None = None) -> int | None:
        """Returns a whole number, or None."""
        value = self._take(key)
        if value is _MISSING:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, "must be a whole number", allowed="a whole number")
            return None
        return value if self._in_range(key, value, above, at_least) else None

    def _in_range(self, key: str, value: float, above: float | None, at_least: float | None) -> bool:
        rule: str | None = None
        if not math.isfinite(value) or abs(value) >= 2**53:
            rule = "a finite number below 2**53"
        elif above is not None and value <= above:
            rule = f"above {above:g}"
        elif at_least is not None and value < at_least:
            rule = f"at least {at_least:g}"
        if rule is not None:
            self.problem(key, f"must be {rule}", allowed=rule)
        return rule is None

    def flag(self, key: str) -> bool | None:
        """Returns true or false, or None."""
        value = self._take(key)
        if value is _MISSING:
            return None
        if not isinstance(value, bool):
            self.problem(key, "must be true or false", allowed="true or false")
            return None
        return value

    def word(self, key: str, words: type[E], *, any_case: bool = False) -> E | None:
        """Returns one of the words, or None."""
        value = self._take(key)
        if value is _MISSING:
            return None
        given = value.lower() if any_case and isinstance(value, str) else value
        for word in words:
            if given == word.value and isinstance(value, str):
                return word
        allowed = ", ".join(f'"{word.value}"' for word in words)
        self.problem(key, f"must be one of {allowed}", allowed=allowed)
        return None

    def text_or_id(self, key: str) -> str | int | None:
        """Returns a user name (text) or a user id (a whole number from 0), or None."""
        value = self._take(key)
        if value is _MISSING:
            return None
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32:
            return value
        self.problem(key, "must be a user name or a user id", allowed="text, or a whole number from 0")
        return None

    def texts(self, key: str, *, check: Check | None = None) -> tuple[str, ...] | None:
        """Returns a list of texts without the members that were refused, or None."""
        values = self.items(key)
        if values is None:
            return None
        kept: list[str] = []
        for index, value in enumerate(values):
            broken = "must be text in quotes" if not isinstance(value, str) else check(value) if check else None
            if broken is None:
                kept.append(value)
            else:
                self.document.add((*self.path, key, index), broken, found=shown(value))
        return tuple(kept)

    def text_map(self, key: str) -> dict[str, str]:
        """Returns a table of texts: environment variables or headers."""
        table = self.table(key)
        if table is None:
            return {}
        pairs: dict[str, str] = {}
        for name in table.names():
            value = table.text(name)
            if not name or "=" in name or "\0" in name:
                table.problem(name, "is not a name that a variable can have", secret=True)
            elif value is not None and "\0" in value:
                table.problem(name, "must not contain NUL", secret=True)
            elif value is not None:
                pairs[name] = value
        return pairs

    def items(self, key: str) -> list[Any] | None:
        """Returns a list as it is written, or None."""
        value = self._take(key)
        if value is _MISSING:
            return None
        if not isinstance(value, list):
            self.problem(key, "must be a list", allowed="a list")
            return None
        return value

    def table(self, key: str, *, required: bool = False) -> Table | None:
        """Returns the table below `key`, or None."""
        value = self._take(key, required=required)
        if value is _MISSING:
            return None
        if not isinstance(value, dict):
            self.problem(key, "must be a table", allowed="a table")
            return None
        return Table(self.document, (*self.path, key), value)

    def tables(self, key: str) -> list[Table]:
        """Returns the tables of a list of tables."""
        found: list[Table] = []
        for index, value in enumerate(self.items(key) or []):
            path = (*self.path, key, index)
            if isinstance(value, dict):
                found.append(Table(self.document, path, value))
            else:
                self.document.add(path, "must be a table", found=shown(value), allowed="a table")
        return found

    def names(self) -> list[str]:
        """Returns the names of all keys in the order of the file."""
        return list(self._values)

    def raw_value(self, key: str) -> Any:
        """Returns what stands at a key (None: nothing), whatever its type, and makes it a known one."""
        self._asked.add(key)
        return self._values.get(key)

    def raw(self) -> dict[str, Any]:
        """Returns the table as it is written, for tables whose content is free."""
        self._asked.update(self._values)
        return dict(self._values)

    def close(self, remarks: Mapping[str, str] | None = None) -> None:
        """Reports every key that was not asked for, with the nearest known one; `remarks` explains some."""
        for key in self._values:
            if key in self._asked:
                continue
            near = difflib.get_close_matches(key, sorted(self._asked), n=1, cutoff=0.6)
            remark = (remarks or {}).get(key)
            if remark is None and key == "artifacts":
                remark = _MISPLACED_ARTIFACTS
            message = "is not a known key" + (f"; did you mean {near[0]}?" if near else "")
            self.problem(key, message + (f"; {remark}" if remark else ""), allowed=near[0] if near else None)

    def _take(self, key: str, *, required: bool = False) -> Any:
        self._asked.add(key)
        if key in self._values:
            return self._values[key]
        if required:
            self.document.add((*self.path, key), "is missing", allowed="a value")
        return _MISSING
