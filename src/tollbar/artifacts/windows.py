"""Bounded windows on text: cut between characters, never inside one, and every byte that is no UTF-8 counted."""

from __future__ import annotations

from codecs import utf_8_decode
from dataclasses import dataclass
from typing import Final

MARGIN: Final = 3
"""Bytes that a window needs on either side to see where its first and last character begin and end."""

_REPLACEMENT: Final = "\ufffd"


@dataclass(frozen=True)
class TextWindow:
    """The part of a file from `offset` to `end` (bytes); `replaced_bytes` of it were no UTF-8."""

    offset: int
    end: int
    text: str
    replaced_bytes: int


def cut(data: bytes, start: int, offset: int, max_bytes: int) -> TextWindow:
    """Returns the window of at most `max_bytes` at `offset` of a file, of which `data` lies at `start`.

    `data` reaches `MARGIN` bytes further than the window on both sides, or to the file's ends. An offset inside a
    character moves back to its beginning. A character that does not fit is left to the next window, unless it is
    the first one: then the window is that character, at most 3 bytes over `max_bytes`.
    """
    first = _boundary(data, offset - start)
    wanted = min(first + max_bytes, len(data))
    last = _boundary(data, wanted)
    if last <= first < len(data):
        last = min(first + _width(data, first), len(data))
    text, replaced = _decode(memoryview(data)[first:last])
    return TextWindow(start + first, start + last, text, replaced)


def _boundary(data: bytes, position: int) -> int:
    """Returns where the character begins that has bytes on both sides of `position`; else `position` itself."""
    for begin in range(position - 1, max(position - 4, -1), -1):
        if begin + _width(data, begin) > position:
            return begin
    return position


def _width(data: bytes, begin: int) -> int:
    """Returns the number of bytes of the character at `begin`; 1 when none begins there."""
    lead = data[begin]
    width = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
    try:
        data[begin : begin + width].decode("utf-8")
    except UnicodeDecodeError:
        return 1
    return width


def _decode(data: memoryview) -> tuple[str, int]:
    """Returns text with U+FFFD in the place of bytes that are no UTF-8, and the number of those bytes."""
    out: list[str] = []
    replaced = position = 0
    while True:
        try:
            out.append(utf_8_decode(data[position:], "strict", True)[0])
        except UnicodeDecodeError as error:
            out.append(utf_8_decode(data[position : position + error.start])[0])
            out.append(_REPLACEMENT)
            replaced += error.end - error.start
            position += error.end
        else:
            return "".join(out), replaced
