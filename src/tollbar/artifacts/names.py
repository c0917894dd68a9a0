"""Names of artifacts: relative POSIX paths that every client can write to its own disk.

A client checks all names before it writes anything, so one bad name in a listing would spoil a whole download.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_DRIVE: Final = re.compile(r"[A-Za-z]:")


def is_artifact_name(name: str) -> bool:
    """Says whether `name` may be listed: no backslash, control character, empty, `.` or `..` part, or drive."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    if "\\" in name or _DRIVE.match(name) or any(unicodedata.category(char) == "Cc" for char in name):
        return False
    return all(part not in {"", ".", ".."} for part in name.split("/"))
