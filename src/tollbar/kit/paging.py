"""Pages: `{items, next_cursor}`. A cursor is opaque and belongs to one list, filter set and project."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tollbar.kit.errors import InvalidCursor, InvalidLimit
from tollbar.kit.jsonio import canonical_sha256
from tollbar.kit.text import is_storable

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list; `next_cursor` is None on the last one."""

    items: list[T]
    next_cursor: str | None


@dataclass(frozen=True)
class PageRequest:
    """What a caller asked for: `limit` rows after `after` (the position that the last page ended with)."""

    limit: int
    after: list[Any] | None
    scope: str

    def start(self, *types: type[str | int]) -> tuple[Any, ...] | None:
        """Returns the position after which the page starts, None at the beginning; the query says its types.

        Raises `InvalidCursor` for a position of another form: a cursor can be made up by its sender.
        """
        if self.after is None:
            return None
        if len(self.after) != len(types) or not all(map(_is, self.after, types)):
            raise InvalidCursor
        return tuple(self.after)

    def page(self, rows: Sequence[T], position: Callable[[T], list[Any]]) -> Page[T]:
        """Cuts `rows` (at most `limit + 1` of them, in order) to a page; `position(row)` is what `after` becomes.

        Positions are lists of JSON scalars. The caller's query reads one row more than the limit, which is how
        the end is known without counting.
        """
        if len(rows) <= self.limit:
            return Page(list(rows), None)
        kept = list(rows[: self.limit])
        return Page(kept, self.cursor(position(kept[-1])))

    def cursor(self, position: list[Any]) -> str:
        """Returns the cursor of a page that starts after `position`, for lists that go on growing at their end."""
        return _encode(self.scope, position)


def page_request(
    limit: object, cursor: str | None, *, scope: Mapping[str, Any], default: int = 25, maximum: int = 100
) -> PageRequest:
    """Reads `limit` and `cursor` as a caller sent them (text or int, or None).

    `scope` names the list: its route, filters and project. Raises `InvalidLimit`, `InvalidCursor`.
    """
    name = canonical_sha256(dict(scope))[:16]
    return PageRequest(_limit(limit, default, maximum), None if cursor is None else _decode(name, cursor), name)


def _limit(value: object, default: int, maximum: int) -> int:
    if value is None:
        return default
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= maximum:
        raise InvalidLimit(maximum)
    return int(text)


def _encode(scope: str, position: Any) -> str:
    text = json.dumps({"s": scope, "k": position}, separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _decode(scope: str, cursor: str) -> list[Any]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        value = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidCursor from None
    if not isinstance(value, dict) or value.get("s") != scope or not isinstance(value.get("k"), list):
        raise InvalidCursor
    return value["k"]


def _is(value: Any, kind: type[str | int]) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, str) and is_storable(value)
