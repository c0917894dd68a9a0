"""Untrusted text: made safe for a terminal, checked for what a database takes, and names that any disk takes."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_MAX_PATH_BYTES: Final = 4095
_KEEP: Final = frozenset("\n\t")
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """Returns `text` with control characters (ESC, C0, C1) and bidirectional overrides written as escapes."""
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char in _KEEP or not (char in _BIDI or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}):
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def is_plain_text(text: str) -> bool:
    """Says whether `text` is UTF-8 without backslashes and control characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in text and not any(unicodedata.category(char) == "Cc" for char in text)


def is_portable_path(name: str) -> bool:
    """Says whether `name` is a relative POSIX path that every client can write to its own disk.

    No backslash, control character, empty, `.` or `..` part, no drive-like start, at most 4,095 bytes. A client
    checks all names before it writes anything, so one bad name in a listing would spoil a whole download.
    """
    return (
        is_plain_text(name)
        and _DRIVE.match(name) is None
        and len(name.encode()) <= _MAX_PATH_BYTES
        and all(part not in {"", ".", ".."} for part in name.split("/"))
    )


def is_storable(text: str) -> bool:
    """Says whether a text can be stored: no NUL, no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def unstorable(value: Any, path: str = "") -> str | None:
    """Returns the path of the first text in a JSON value that cannot be stored, or None."""
    if isinstance(value, str):
        return None if is_storable(value) else path
    if isinstance(value, dict):
        for name, member in value.items():
            below = f"{path}.{name}" if path else str(name)
            if not is_storable(str(name)):
                return path
            found = unstorable(member, below)
            if found is not None:
                return found
    if isinstance(value, list):
        for index, item in enumerate(value):
            found = unstorable(item, f"{path}[{index}]")
            if found is not None:
                return found
    return None
