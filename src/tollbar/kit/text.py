"""Untrusted text: made safe for a terminal, and cut into bounded windows that never split a character."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, Final

_KEEP: Final = frozenset("\n\t")
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """Returns `text` with control characters (ESC, C0, C1) and bidirectional overrides written as escapes."""
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char in _KEEP or not (char in _BIDI or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}):
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


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


@dataclass(frozen=True)
class Window:
    """A part of a text file: `text` covers `size` bytes from the asked offset; `replaced` bytes were no UTF-8."""

    text: str
    size: int
    replaced: int


def window(data: bytes, *, at_end: bool) -> Window:
    """Decodes bytes read from a file and leaves an unfinished last character to the next window.

    `at_end` says that no bytes follow. Bytes that are no UTF-8 become U+FFFD and are counted.
    """
    cut = len(data) if at_end else len(data) - _unfinished(data)
    cut = cut or len(data)
    part = data[:cut]
    try:
        return Window(part.decode("utf-8"), cut, 0)
    except UnicodeDecodeError:
        text = part.decode("utf-8", errors="replace")
        return Window(text, cut, cut - sum(len(char.encode()) for char in text if char != "\ufffd"))


def _unfinished(data: bytes) -> int:
    """Returns how many bytes at the end begin a character that is not complete (0 to 3)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if width > back else 0
    return 0
