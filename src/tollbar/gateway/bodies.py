"""A request's body: unpacked under a limit, then read as strict JSON."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any, Final

import brotli

from tollbar.gateway.errors import Code, Refused
from tollbar.kit.jsonio import loads_strict

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""Largest body, packed and unpacked."""


class _TooLarge(Exception):
    """The unpacked body is larger than the limit."""


def decode(raw: bytes, encoding: str | None, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Returns the body without its `Content-Encoding`, never more than `max_bytes` of it in memory.

    Raises `Refused`: `REQUEST_TOO_LARGE` above `max_bytes`, `UNSUPPORTED_MEDIA_TYPE` for an encoding that is not
    gzip, deflate, br or zstd (or more than one), `INVALID_REQUEST` for damaged or truncated data.
    """
    name = (encoding or "identity").strip().lower()
    unpack = _UNPACKERS.get(name)
    if unpack is None:
        raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, "the body's content encoding is not one of gzip, deflate, br, zstd")
    too_large = Refused(Code.REQUEST_TOO_LARGE, f"the body is larger than {max_bytes} bytes")
    if len(raw) > max_bytes:
        raise too_large
    try:
        return unpack(raw, max_bytes)
    except _TooLarge:
        raise too_large from None
    except (zlib.error, brotli.error, zstd.ZstdError, EOFError, ValueError):
        raise Refused(Code.INVALID_REQUEST, f"the body is not valid {name} data") from None


def _plain(raw: bytes, _max_bytes: int) -> bytes:
    return raw


def _zlib(raw: bytes, max_bytes: int, window_bits: int) -> bytes:
    """Unpacks one zlib or gzip stream after the other, as gzip files may hold several."""
    parts: list[bytes] = []
    space = max_bytes
    while raw:
        unpacker = zlib.decompressobj(window_bits)
        part = unpacker.decompress(raw, space + 1)
        space -= len(part)
        if space < 0:
            raise _TooLarge
        if not unpacker.eof:
            raise EOFError
        parts.append(part)
        raw = unpacker.unused_data
    return b"".join(parts)


def _gzip(raw: bytes, max_bytes: int) -> bytes:
    return _zlib(raw, max_bytes, zlib.MAX_WBITS | 16)


def _deflate(raw: bytes, max_bytes: int) -> bytes:
    """Unpacks zlib data; clients that mean bare deflate by this name are understood too."""
    try:
        return _zlib(raw, max_bytes, zlib.MAX_WBITS)
    except zlib.error:
        return _zlib(raw, max_bytes, -zlib.MAX_WBITS)


def _brotli(raw: bytes, max_bytes: int) -> bytes:
    unpacker = brotli.Decompressor()
    parts: list[bytes] = []
    space = max_bytes
    fresh = raw
    while not unpacker.is_finished():
        part: bytes = unpacker.process(fresh, output_buffer_limit=min(space + 1, 1 << 20))
        space -= len(part)
        if space < 0:
            raise _TooLarge
        if not part and unpacker.can_accept_more_data():
            raise EOFError
        parts.append(part)
        fresh = b""
    return b"".join(parts)


def _zstd(raw: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    space = max_bytes
    while raw:
        unpacker = zstd.ZstdDecompressor()
        part = unpacker.decompress(raw, space + 1)
        space -= len(part)
        if space < 0:
            raise _TooLarge
        if not unpacker.eof:
            raise EOFError
        parts.append(part)
        raw = unpacker.unused_data
    return b"".join(parts)


_UNPACKERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "identity": _plain,
    "": _plain,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def parse(data: bytes) -> dict[str, Any]:
    """Returns the body as a JSON object.

    Raises `Refused` (`INVALID_REQUEST`) for anything else: not UTF-8, a name twice in one object at any depth, NaN or
    an infinity. A provider that reads the other of two `max_tokens` would bill what nobody had bounded.
    """
    try:
        document: Any = loads_strict(data.decode("utf-8"))
    except RecursionError:
        raise Refused(Code.INVALID_REQUEST, "the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise Refused(Code.INVALID_REQUEST, "the body is not UTF-8") from None
    except ValueError as error:
        problem = "is not JSON" if type(error) is ValueError else f"is not valid JSON: {error}"
        raise Refused(Code.INVALID_REQUEST, f"the body {problem}") from None
    if not isinstance(document, dict):
        raise Refused(Code.INVALID_REQUEST, "the body is not a JSON object")
    return document
