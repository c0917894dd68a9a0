"""Secrets that the server mints: a fixed prefix per kind, so that scanners know them, and 256 random bits."""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum
from typing import Final

_SHOWN_DIGITS: Final = 6


class TokenKind(StrEnum):
    """What a token opens; the value is its prefix."""

    PROJECT_KEY = "tbp_"
    SIGN_IN_LINK = "tbl_"
    SESSION = "tbs_"


def mint(kind: TokenKind) -> str:
    """Returns a new secret of that kind, made of letters, digits and `_` alone."""
    return f"{kind.value}{secrets.token_hex(32)}"


def sha256(secret: str) -> str:
    """Returns the hash (64 hex digits) under which a secret is stored and looked up; 256 random bits need no salt."""
    return hashlib.sha256(secret.encode("utf-8", errors="surrogatepass")).hexdigest()


def shown(secret: str) -> str:
    """Returns the beginning of a secret that may be shown for ever: its prefix and 24 of its 256 bits."""
    return secret[: secret.index("_") + 1 + _SHOWN_DIGITS]
