"""Prefixed ids that sort by time: `job_01K...`, made of `[A-Za-z0-9_]` alone."""

from __future__ import annotations

import re
from typing import Final

from ulid import ULID

_ID: Final = re.compile(r"[a-z]+_[0-9A-HJKMNP-TV-Z]{26}\Z")


def new_id(prefix: str) -> str:
    """Returns a fresh id `<prefix>_<26 characters of Crockford base32>`; later ids sort after earlier ones."""
    return f"{prefix}_{ULID()}"


def is_id(text: str, prefix: str) -> bool:
    """Says whether `text` could be an id of that kind, so that a lookup of anything else is a plain 404."""
    return text.startswith(f"{prefix}_") and _ID.match(text) is not None
