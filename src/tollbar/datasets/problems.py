"""What is wrong with an upload: every problem with its file, key and line, never only the first one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tollbar.kit.text import printable

KeyPath = tuple[str | int, ...]
_MAX_FOUND: Final = 80
_SHOWN_TYPES: Final = {dict: "a table", list: "a list", str: "text"}


@dataclass(frozen=True)
class Problem:
    """One fault of an upload; `allowed` is the rule or the value that would have been right."""

    file: str
    message: str
    key: str | None = None
    line: int | None = None
    found: str | None = None
    allowed: str | None = None

    def wire(self) -> dict[str, Any]:
        """Returns the problem as it goes out; `line`, `found` and `allowed` only when known."""
        body: dict[str, Any] = {"file": printable(self.file), "key": self.key, "message": self.message}
        extra = {"line": self.line, "found": self.found, "allowed": self.allowed}
        return body | {name: value for name, value in extra.items() if value is not None}

    def text(self) -> str:
        """Returns the problem as one line for people."""
        place = printable(self.file) + (f", line {self.line}" if self.line is not None else "")
        return f"{place}: {self.key + ': ' if self.key else ''}{self.message}"


@dataclass(frozen=True)
class Document:
    """A configuration file that is being read: where its keys stand and the list that takes its problems."""

    file: str
    problems: list[Problem]
    lines: Mapping[KeyPath, int] = field(default_factory=dict[KeyPath, int])

    def add(self, path: KeyPath, message: str, *, found: str | None = None, allowed: str | None = None) -> None:
        """Records a problem of the key at `path`, with its line or that of the nearest table around it."""
        self.problems.append(
            Problem(self.file, message, key_text(path) or None, self._line(path), found=found, allowed=allowed)
        )

    def _line(self, path: KeyPath) -> int | None:
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def key_text(path: KeyPath) -> str:
    """Returns a key path as people write it: `steps[1].agent.timeout_sec`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if part.replace("-", "_").isidentifier() else shown(part))
    return printable(text)


def shown(value: object) -> str:
    """Returns a found value as bounded, printable text; tables and lists are only named."""
    if isinstance(value, dict | list):
        return _SHOWN_TYPES[type(value)]
    if isinstance(value, str | bool | int | float):
        text = printable(json.dumps(value, ensure_ascii=False))
    else:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_FOUND else text[: _MAX_FOUND - 3] + "..."
