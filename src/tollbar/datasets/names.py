"""The forms of names: datasets and tasks (`namespace/name`), version labels, step folders, services."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_NAME: Final = 256
NAME_RULE: Final = (
    "namespace/name, each part letters, digits, '.', '_' or '-', starting with a letter or digit, without '..', "
    f"at most {MAX_NAME} characters"
)
LABEL_RULE: Final = (
    "1 to 128 letters, digits, '.', '_', '+' or '-', starting with a letter or digit, without '..', "
    "and not 64 hex digits"
)
DIGEST_RULE: Final = "sha256: and 64 lower-case hex digits"

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*\Z")
_LABEL: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._+-]{0,127}\Z")
_HEX: Final = re.compile(r"[0-9a-f]{64}\Z")
_SERVICE: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*\Z")
_NOT_PORTABLE: Final = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[1-9\u00b9\u00b2\u00b3])\Z", re.IGNORECASE)


def is_name(text: str) -> bool:
    """Says whether `text` is a name of a dataset or task."""
    return len(text) <= MAX_NAME and ".." not in text and _NAME.match(text) is not None


def namespace_of(name: str) -> str:
    """Returns the part before the slash; it belongs to one workspace."""
    return name.partition("/")[0]


def short_name(name: str) -> str:
    """Returns the part after the slash, which is a task's `task_id`."""
    return name.partition("/")[2]


def is_label(text: str) -> bool:
    """Says whether `text` can label a version: it never looks like a revision and fits into a path segment."""
    return ".." not in text and _LABEL.match(text) is not None and not is_hex(text)


def is_hex(text: str) -> bool:
    """Says whether `text` is a SHA-256 in hex."""
    return _HEX.match(text) is not None


def is_digest(text: str) -> bool:
    """Says whether `text` is a task digest."""
    return text.startswith("sha256:") and is_hex(text[7:])


def is_service(text: str) -> bool:
    """Says whether `text` can name a compose service."""
    return _SERVICE.match(text) is not None


def step_name_problem(name: str) -> str | None:
    """Returns what keeps `name` from being one folder name on every system, or None."""
    if not name.strip() or name in {".", ".."} or name.endswith((".", " ")):
        return "must not be empty, '.' or '..', nor end with a dot or space"
    if _NOT_PORTABLE.search(name):
        return 'must not contain <>:"/\\|?* or control characters'
    if _DEVICE.match(name.partition(".")[0].rstrip(" ")):
        return "must not be the name of a Windows device"
    if len(name.encode("utf-8", errors="surrogatepass")) > 255:
        return "must be at most 255 bytes of UTF-8"
    return None


def step_key(name: str) -> str:
    """Returns the form in which step names must be unique, so that no file system merges two."""
    return unicodedata.normalize("NFC", name).casefold()
