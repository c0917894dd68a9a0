"""Where a server is: what counts as its address, and which addresses may be sent a key."""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from tollbar.client.errors import UnusableSetting

_PATHS: Final = frozenset({"", "/v1", "/api", "/api/v1"})
_KEY: Final = re.compile(r"[A-Za-z0-9._~-]{1,512}\Z")
_ID: Final = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")


@dataclass(frozen=True)
class Address:
    """The base of all routes (`https://host[:port]` or with `/api`), and whether it is this machine."""

    base: str
    loopback: bool

    @property
    def origin(self) -> str:
        """Scheme, host and port alone."""
        return self.base.removesuffix("/api")


def read_address(url: str) -> Address:
    """Reads a server's URL; raises `UnusableSetting` for what is none, and for plain http beyond this machine.

    The path may be empty, `/v1`, `/api` or `/api/v1`; a final `/v1` is part of every route and is dropped.
    """
    parts = _split(url)
    if parts.username is not None or parts.password is not None:
        raise UnusableSetting("The server's URL", "must not hold a user or password")
    shown = f"The URL {url}"
    host, path = parts.hostname, parts.path.rstrip("/")
    if parts.scheme not in {"http", "https"} or not host:
        raise UnusableSetting(shown, "is not an http or https address")
    if parts.query or parts.fragment or path not in _PATHS:
        raise UnusableSetting(shown, "has a path that no server has", "Leave out what follows host and port.")
    loopback = is_loopback(host)
    if parts.scheme == "http" and not loopback:
        raise UnusableSetting(shown, "would send the key in plain text", "Use https; plain http is for this machine.")
    return Address(f"{parts.scheme}://{parts.netloc.lower()}{path.removesuffix('/v1')}", loopback)


def may_follow(url: str) -> bool:
    """Says whether a download may be fetched there: https, or plain http on this machine."""
    try:
        parts = _split(url)
    except UnusableSetting:
        return False
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )


def is_loopback(host: str) -> bool:
    """Says whether a host name or address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_key(key: str) -> str:
    """Returns the key; raises `UnusableSetting` when it cannot be one."""
    if not _KEY.match(key):
        raise UnusableSetting("The key", "holds characters that no key has")
    return key


def check_id(name: str, value: str) -> str:
    """Returns the id of a workspace or project; raises `UnusableSetting` when it cannot be one."""
    if not _ID.match(value):
        raise UnusableSetting(f"The {name}", "is not an id", f"Find it with: tollbar whoami --json ({name}_id).")
    return value


def coded(name: str) -> str:
    """Returns a name as it stands in a path: base64url without padding."""
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).rstrip(b"=").decode()


def segment(text: str) -> str:
    """Returns text as one segment of a path that never moves within it; empty text as `-`, which is nothing's id."""
    return (
        text.replace(".", "%2E")
        if not text.strip(".") and text
        else quote(text, safe="", errors="surrogateescape") or "-"
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UnusableSetting("The server's URL", "is not an address") from None
    return parts
