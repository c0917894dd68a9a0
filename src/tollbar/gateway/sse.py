"""A reader of server-sent events that keeps every byte, because answers pass to the client unchanged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Event:
    """One event: `raw` with its closing empty line, its `name` ("" if none), and its data lines joined by LF."""

    raw: bytes
    name: str
    data: bytes


class Reader:
    """Turns chunks of a stream, split anywhere, into events.

    The `raw` of all events and of `rest` is the stream, byte for byte. An event above `max_event_bytes` sets
    `overflowed`; nothing is read after it.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._buffer = bytearray()
        self._line_start = 0
        self._search_from = 0
        self._lines: list[bytes] = []
        self._first = True
        self.overflowed = False

    @property
    def rest(self) -> bytes:
        """Returns the bytes that belong to no complete event yet."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[Event]:
        """Returns the events that this chunk completes."""
        if self.overflowed:
            return []
        self._buffer += chunk
        events: list[Event] = []
        while (match := _LINE_END.search(self._buffer, self._search_from)) is not None:
            line = bytes(self._buffer[self._line_start : match.start()])
            self._line_start = self._search_from = match.end()
            if line:
                self._lines.append(line)
            elif (event := self._take()) is not None:
                events.append(event)
        # a CR at the very end may be half of a CRLF: look at it again
        self._search_from = max(self._line_start, len(self._buffer) - 1)
        self.overflowed = len(self._buffer) > self._max
        return events

    def finish(self) -> list[Event]:
        """Returns the last event of a stream that ended without the empty line; only if it has data."""
        if self.overflowed or not self._buffer:
            return []
        tail = bytes(self._buffer[self._line_start :]).rstrip(b"\r")
        if tail:
            self._lines.append(tail)
        self._line_start = len(self._buffer)
        event = self._take()
        return [event] if event is not None else []

    def _take(self) -> Event | None:
        """Cuts the event off the buffer. Empty lines before an event stay in front of it."""
        lines, self._lines = self._lines, []
        if not lines:
            return None
        raw = bytes(self._buffer[: self._line_start])
        del self._buffer[: self._line_start]
        self._line_start = self._search_from = 0
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        data: list[bytes] = []
        name = b""
        for line in lines:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
        return Event(raw, name.decode("utf-8", "replace"), b"\n".join(data))
