"""Where output goes: data to stdout in one of three forms, everything else to stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TextIO, TypeVar

from tollbar.cli.text import age, cell
from tollbar.kit.text import printable

T = TypeVar("T")

# What JSON may hold unescaped but a terminal must not see, and halves of characters that no encoding can write.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Form(StrEnum):
    """How data is written."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    WHOLE = "whole"
    """Never cut: ids, and scores with what they need beside them."""
    TIME = "time"
    """A wire time: relative in a table, absolute otherwise."""


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a list: its title and how its value is read from an item."""

    title: str
    value: Callable[[T], object]
    kind: Kind = Kind.TEXT


Rows = Sequence[tuple[str, object]]


@dataclass(frozen=True)
class Moment:
    """A wire time in a record."""

    at: str | None


@dataclass
class Output:
    """Writes data and notes; `quiet` drops notes and progress, never data or errors."""

    form: Form
    stdout: TextIO
    stderr: TextIO
    quiet: bool = False
    animated: bool = False
    """Whether progress may be rewritten in place."""
    _drawn: bool = field(default=False, init=False)

    @property
    def is_json(self) -> bool:
        return self.form is Form.JSON

    def document(self, value: object) -> None:
        """Writes the one JSON document of a command."""
        write_json(self.stdout, value, indent=2 if self.stdout.isatty() else None)

    def json_line(self, value: object) -> None:
        """Writes one line of a stream of JSON objects, and sends it off."""
        write_json(self.stdout, value)
        self.stdout.flush()

    def listing(self, page: Mapping[str, Any], columns: Sequence[Column[T]]) -> None:
        """Writes a page of a list."""
        if self.is_json:
            self.document(page)
            return
        self.rows(page["items"], columns)
        if page["next_cursor"] is not None:
            self.note(f"there are more: --all, or --cursor {page['next_cursor']}")

    def rows(self, items: Iterable[T], columns: Sequence[Column[T]]) -> None:
        """Writes items as a table, or one line each with tabs between the columns."""
        shown = [[self._shown(column, item) for column in columns] for item in items]
        if self.form is Form.TABLE:
            from tollbar.cli.drawing import draw_table  # brings the drawing library, which only a table needs

            titles = [(column.title, column.kind is Kind.WHOLE) for column in columns]
            if left_out := draw_table(self.stdout, titles, shown):
                self.note(f"columns that do not fit: {left_out} (--output plain shows all)")
            return
        for row in shown:
            self.stdout.write("\t".join(row) + "\n")

    def lines(self, items: Iterable[T], columns: Sequence[Column[T]]) -> None:
        """Writes items of a stream as they come, one line each; with tabs, or two spaces for people."""
        between = "  " if self.form is Form.TABLE else "\t"
        for item in items:
            self.stdout.write(between.join(self._shown(column, item) for column in columns) + "\n")
        self.stdout.flush()

    def record(self, value: Mapping[str, Any], rows: Rows) -> None:
        """Writes one object: as JSON exactly `value`, for people the given rows."""
        if self.is_json:
            self.document(value)
            return
        width = max(len(name) for name, _ in rows) if self.form is Form.TABLE else 0
        between = "  " if self.form is Form.TABLE else "\t"
        for name, content in rows:
            text = self._time(content.at) if isinstance(content, Moment) else cell(content)
            self.stdout.write(f"{name:<{width}}{between}{text}\n")

    def separate(self) -> None:
        """Puts an empty line between two parts of the data."""
        self.stdout.write("\n")

    def note(self, text: str) -> None:
        """Says something to the person at the terminal."""
        if not self.quiet:
            self.settle()
            self.stderr.write(printable(text) + "\n")
            self.stderr.flush()

    def progress(self, text: str) -> None:
        """Shows a step of something that goes on: a line each, on a terminal one line that changes."""
        if not self.animated:
            self.note(text)
        elif not self.quiet:
            self.stderr.write("\r\x1b[K" + cell(text))
            self.stderr.flush()
            self._drawn = True

    def settle(self) -> None:
        """Ends a line that was rewritten in place."""
        if self._drawn:
            self.stderr.write("\n")
            self._drawn = False

    def _shown(self, column: Column[T], item: T) -> str:
        value = column.value(item)
        return self._time(value) if column.kind is Kind.TIME else cell(value)

    def _time(self, value: object) -> str:
        if self.form is not Form.TABLE or not isinstance(value, str):
            return cell(value)
        from tollbar.kit.clock import SystemClock  # brings asyncio, which only a table needs

        return age(value, SystemClock().now())


def write_json(stream: TextIO, value: object, *, indent: int | None = None) -> None:
    """Writes JSON and a line end; a stream that is not UTF-8 gets ASCII alone, which is the same JSON."""
    utf_8 = stream.encoding.lower().replace("-", "") == "utf8"
    stream.write(json_text(value, indent=indent, ascii_only=not utf_8) + "\n")


def json_text(value: object, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """Returns JSON in which every character that a terminal would obey is escaped."""
    separators = (",", ": ") if indent is not None else (",", ":")
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
