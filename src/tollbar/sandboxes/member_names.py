"""Names of sealed members: relative POSIX paths that every client can write to its own disk."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_MAX_BYTES: Final = 4095


def is_member_name(name: str) -> bool:
    """Says whether `name` may stand in a listing: no backslash, control character, empty, `.` or `..` part, drive."""
    return (
        is_plain_text(name)
        and _DRIVE.match(name) is None
        and len(name.encode()) <= _MAX_BYTES
        and all(part not in {"", ".", ".."} for part in name.split("/"))
    )


def is_plain_text(text: str) -> bool:
    """Says whether `text` is UTF-8 without backslashes and control characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in text and not any(unicodedata.category(char) == "Cc" for char in text)


def shown(name: str) -> str:
    """Returns a refused name as it is listed: control characters and bytes that are no UTF-8 as escapes."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(f"\\x{ord(char):02x}" if unicodedata.category(char) == "Cc" else char for char in text)
