"""How a refused name is listed: as text, whatever bytes it was made of."""

from __future__ import annotations

import unicodedata


def shown(name: str) -> str:
    """Returns a refused name as it is listed: control characters and bytes that are no UTF-8 as escapes."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(f"\\x{ord(char):02x}" if unicodedata.category(char) == "Cc" else char for char in text)
