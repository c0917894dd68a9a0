"""What a file is, by its content and never by its name: what a Trial wrote is untrusted."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 8 << 10
"""How much of a file decides what it is."""

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_JSON_STARTS: Final = (b"{", b"[")


def media_type(head: bytes) -> str:
    """Returns the media type of a file that begins with `head` (at most 8 KiB of it)."""
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if not is_text(head):
        return "application/octet-stream"
    return "application/json" if head.lstrip()[:1] in _JSON_STARTS else "text/plain"


def is_text(head: bytes) -> bool:
    """Says whether the beginning of a file is UTF-8 without NUL; a character cut at the end does not count."""
    if b"\x00" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(head) >= HEAD_BYTES - 3 and error.start >= len(head) - 3
    return True
