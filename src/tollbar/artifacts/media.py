"""What a file is, by its content and never by its name: what a Trial wrote is untrusted."""

from __future__ import annotations

import codecs
import json
import re
from typing import Final

HEAD_BYTES: Final = 8 << 10
"""How much of a file decides what it is."""

BINARY: Final = "application/octet-stream"

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_LONG_JSON: Final = re.compile(rb'\s*(\{\s*"|\[\s*[\[{"])')


def media_type(head: bytes) -> str:
    """Returns the media type of a file from its first 8 KiB, which is all of it when `head` is shorter.

    Images are told by their signature alone; whether one is well formed is not looked at.
    """
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if not is_text(head):
        return BINARY
    return "application/json" if _is_json(head) else "text/plain"


def is_text(head: bytes) -> bool:
    """Says whether the first 8 KiB of a file are UTF-8 without NUL; a character cut at their end does not count."""
    if b"\x00" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def _is_json(head: bytes) -> bool:
    """Says whether a text is a JSON object or list: read when it is all there, guessed from its first signs if not."""
    if len(head) >= HEAD_BYTES:
        return _LONG_JSON.match(head) is not None
    if head.lstrip()[:1] not in {b"{", b"["}:
        return False
    try:
        json.loads(head)
    except (ValueError, RecursionError):
        return False
    return True
