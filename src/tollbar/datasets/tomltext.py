"""TOML text to tables, with the line of every key that can be found, for messages."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from tollbar.datasets.problems import Document, KeyPath, Problem

MAX_BYTES: Final = 1 << 20
_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY: Final = re.compile(rf"\s*({_DOTTED})\s*=")
_PARTS: Final = re.compile(_PART)
_AT: Final = re.compile(r"\(at line (\d+), column (\d+)\)")


def read_toml(file: str, data: bytes, problems: list[Problem]) -> tuple[Document, dict[str, Any]] | None:
    """Returns the document and its root table, or None after recording why the text cannot be read."""
    if len(data) > MAX_BYTES:
        problems.append(Problem(file, f"is larger than {MAX_BYTES} bytes", found=f"{len(data)} bytes"))
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        problems.append(Problem(file, "is not UTF-8", line=data.count(b"\n", 0, error.start) + 1))
        return None
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(_syntax(file, text, str(error)))
        return None
    except ValueError:
        problems.append(Problem(file, "holds a number that is too long"))
        return None
    except RecursionError:
        problems.append(Problem(file, "is nested too deeply"))
        return None
    return Document(file, problems, key_lines(text)), root


def _syntax(file: str, text: str, reason: str) -> Problem:
    place = _AT.search(reason)
    if place is not None:
        line, column = int(place[1]), int(place[2])
    else:
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    what = reason.partition(" (at ")[0]
    return Problem(file, f"is not valid TOML at line {line}, column {column}: {what}", line=line)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Returns the line of each table header and key, as far as a scan line by line can tell (valid TOML)."""
    lines: dict[KeyPath, int] = {}
    lasts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    quote = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if quote:
            quote = "" if line.count(quote) % 2 else quote
            continue
        header = _HEADER.match(line)
        if header is not None:
            table = _header_path(_parts(header[2]), lasts, many=header[1] == "[[")
            lines.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key is not None:
            path = table
            for part in _parts(key[1]):
                path = (*path, part)
                lines.setdefault(path, number)
        quote = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
    return lines


def _header_path(parts: list[str], lasts: dict[KeyPath, int], *, many: bool) -> KeyPath:
    path: KeyPath = ()
    for part in parts[:-1]:
        path = (*path, part)
        if path in lasts:
            path = (*path, lasts[path])
    path = (*path, parts[-1])
    if many:
        lasts[path] = lasts.get(path, -1) + 1
        return (*path, lasts[path])
    return path


def _parts(dotted: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in _PARTS.findall(dotted)]
