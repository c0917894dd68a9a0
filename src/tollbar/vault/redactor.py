"""Takes secrets out of text by their value, in every form in which they usually travel.

One redactor for each process stands before every sink: logs, errors, artifacts, results, webhooks. It knows a value as
it is, as base64 (wherever the value starts in what was encoded), URL-encoded and escaped for JSON. It cannot know a
value that a program turned into something else.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

from ahocorasick_rs import BytesAhoCorasick, MatchKind

MIN_LENGTH: Final = 8
"""Shorter values stand in innocent text, too: nobody could tell what was taken out. They are refused as secrets."""

_Pattern = tuple[bytes, bytes]


class Redactor:
    """A set of secrets that changes while it is used; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, str] = {}
        self._index = _Index({})

    def add(self, name: str, value: str) -> None:
        """From now on puts `[redacted:NAME]` where the value stands. Raises `ValueError` below 8 characters."""
        if len(value) < MIN_LENGTH:
            msg = f"a secret has at least {MIN_LENGTH} characters"
            raise ValueError(msg)
        with self._lock:
            if self._secrets.get(value) != name:
                self._secrets[value] = name
                self._index = _Index(self._secrets)

    def forget(self, value: str) -> None:
        """Takes a value out of the set: of a key that is worth nothing any more."""
        with self._lock:
            if self._secrets.pop(value, None) is not None:
                self._index = _Index(self._secrets)

    def data(self, data: bytes, *, same_length: bool = False) -> bytes:
        """Returns bytes without secrets; `same_length` cuts or fills each mark to the length of what it stands for."""
        return self._index.cut(data, last=True, same_length=same_length)[0]

    def found_in(self, parts: Iterable[bytes]) -> bool:
        """Says whether bytes that come in parts have a secret in them, also across parts."""
        index = self._index
        held = b""
        for part in parts:
            held += part
            if index.finds(held):
                return True
            held = index.tail(held)
        return False

    def text(self, text: str) -> str:
        """Returns text without secrets."""
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """Returns a JSON-like value with every string in it, keys included, without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.data(value)
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value)
            return {self.value(key): self.value(item) for key, item in entries.items()}
        if isinstance(value, list | tuple):
            items = cast("list[Any] | tuple[Any, ...]", value)
            return [self.value(item) for item in items]
        return value

    def stream(self, *, same_length: bool = False) -> RedactingStream:
        """Returns a filter for bytes that come in parts; a secret that lies across parts is found, too."""
        return RedactingStream(lambda held, last: self._index.cut(held, last=last, same_length=same_length))


class RedactingStream:
    """Give it the parts in order with `feed`, and what it held back with `close`."""

    def __init__(self, cut: Callable[[bytes, bool], tuple[bytes, bytes]]) -> None:
        self._cut = cut
        self._held = b""

    def feed(self, part: bytes) -> bytes:
        """Returns what can be given on: all but a tail in which a secret may have begun."""
        done, self._held = self._cut(self._held + part, False)
        return done

    def close(self) -> bytes:
        """Returns the rest."""
        done, self._held = self._cut(self._held, True)
        return done


class _Index:
    """The forms of all secrets at one moment; never changed, so that readers need no lock."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        marks = {form: f"[redacted:{name}]".encode() for value, name in secrets.items() for form in set(_forms(value))}
        self._marks = list(marks.values())
        self._longest = max(map(len, marks), default=0)
        self._search = BytesAhoCorasick(list(marks), matchkind=MatchKind.LeftmostLongest) if marks else None

    def finds(self, data: bytes) -> bool:
        return self._search is not None and bool(self._search.find_matches_as_indexes(data))

    def tail(self, data: bytes) -> bytes:
        """Returns the end of bytes in which a secret may have begun."""
        return data[max(0, len(data) - self._longest + 1) :]

    def cut(self, data: bytes, *, last: bool, same_length: bool = False) -> tuple[bytes, bytes]:
        """Returns what is final, replaced, and the tail in which a secret may have begun."""
        if self._search is None:
            return data, b""
        # A match that starts before this point can grow no longer: the longest form fits behind it.
        final = len(data) if last else max(0, len(data) - self._longest + 1)
        parts: list[bytes] = []
        done = 0
        for index, start, end in self._search.find_matches_as_indexes(data):
            if start >= final:
                break
            mark = self._marks[index]
            parts += [data[done:start], mark[: end - start].ljust(end - start, b"*") if same_length else mark]
            done = end
        final = max(final, done)
        return b"".join([*parts, data[done:final]]), data[final:]


def _forms(value: str) -> Iterator[bytes]:
    raw = value.encode("utf-8", "surrogatepass")
    yield raw
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield encoded.encode()
        yield _lower_escapes(encoded).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            yield _middle(encode(b"\0" * offset + raw), offset, len(raw))


def _lower_escapes(encoded: str) -> str:
    """Returns a URL-encoded text with its escapes in lower case, as some programs write them."""
    first, *rest = encoded.split("%")
    return first + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _middle(encoded: bytes, offset: int, length: int) -> bytes:
    """Returns the characters of base64 that depend on the value alone, which starts `offset` bytes into a triple."""
    first = (0, 2, 3)[offset]
    whole, rest = divmod(offset + length, 3)
    return encoded[first : 4 * whole + rest]
