"""Patterns of build contexts: wildcards of `COPY` (Go's `filepath.Match`) and the lines of `.dockerignore`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WILD: Final = re.compile(r"(?:\\.|[^*?\[\\])*[*?\[]", re.DOTALL)
_NEVER: Final = "(?!)"
_ANY: Final = r"[\s\S]"


class PatternFault(ValueError):
    """A pattern is malformed."""


def has_wildcards(text: str) -> bool:
    """Says whether a source of `COPY` is a pattern: an unescaped `*`, `?` or `[`."""
    return _WILD.match(text) is not None


def unescaped(text: str) -> str:
    """Returns a source without wildcards as the name that it means."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def go_match(pattern: str) -> re.Pattern[str]:
    """Returns what `filepath.Match` accepts, to be used with `fullmatch`. Raises `PatternFault`."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        position += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            text, position = _char_class(pattern, position)
            out.append(text)
        else:
            literal, position = _literal(pattern, position - 1)
            out.append(re.escape(literal))
    return re.compile("".join(out), re.DOTALL)


def _char_class(pattern: str, position: int) -> tuple[str, int]:
    """Returns the class that begins after its bracket as a regular expression, and where it ends."""
    negated = pattern[position : position + 1] == "^"
    position += negated
    ranges: list[str] = []
    count = 0
    while not (count and pattern[position : position + 1] == "]"):
        low, position = _class_char(pattern, position)
        high = low
        if pattern[position : position + 1] == "-":
            high, position = _class_char(pattern, position + 1)
        if low <= high:
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
        count += 1
    if not ranges:
        return (_ANY if negated else _NEVER), position + 1
    return f"[{'^' if negated else ''}{''.join(ranges)}]", position + 1


def _class_char(pattern: str, position: int) -> tuple[str, int]:
    if pattern[position : position + 1] in {"", "-", "]"}:
        raise PatternFault(pattern)
    return _literal(pattern, position)


def _literal(pattern: str, position: int) -> tuple[str, int]:
    """Returns the character at `position`, or the one that is escaped there, and where it ends."""
    if pattern[position] != "\\":
        return pattern[position], position + 1
    if position + 1 >= len(pattern):
        raise PatternFault(pattern)
    return pattern[position + 1], position + 2


@dataclass(frozen=True)
class _Rule:
    keeps: bool
    pattern: re.Pattern[str]


class Ignore:
    """The rules of one `.dockerignore`; the last one that matches a path or a folder above it decides."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = tuple(rules)

    @property
    def has_exceptions(self) -> bool:
        """Says whether something in an ignored folder may be kept after all."""
        return any(rule.keeps for rule in self._rules)

    def ignores(self, path: Sequence[str]) -> bool:
        """Says whether a path of the context (its components) is left out."""
        names = ["/".join(path[:depth]) for depth in range(1, len(path) + 1)]
        ignored = False
        for rule in self._rules:
            if rule.keeps == ignored and any(rule.pattern.fullmatch(name) for name in names):
                ignored = not rule.keeps
        return ignored


def read_ignore(text: str) -> Ignore:
    """Returns the rules of a `.dockerignore`. Raises `PatternFault` for a malformed line."""
    rules: list[_Rule] = []
    for line in text.removeprefix("\ufeff").split("\n"):
        pattern = line.strip()
        if line.startswith("#") or not pattern:
            continue
        keeps = pattern.startswith("!")
        pattern = pattern.removeprefix("!").strip() if keeps else pattern
        if not pattern:
            raise PatternFault(line)
        cleaned = posixpath.normpath(pattern).lstrip("/")
        if cleaned not in {"", "."}:
            go_match(cleaned)
            rules.append(_Rule(keeps, _ignore_pattern(cleaned)))
    return Ignore(rules)


def _ignore_pattern(pattern: str) -> re.Pattern[str]:
    """Returns what a line matches: as in `go_match`, and `**` is any number of folders."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if pattern.startswith("**", position):
            position += 3 if pattern.startswith("**/", position) else 2
            last = position >= len(pattern)
            bare = position == 2 and not last and not _WILD.match(pattern[2:])
            out.append(".*" if last or bare else "(?:.*/)?")
            continue
        if char == "[":
            text, position = _char_class(pattern, position + 1)
            out.append(text)
            continue
        if char in "*?":
            out.append("[^/]*" if char == "*" else "[^/]")
            position += 1
            continue
        literal, position = _literal(pattern, position)
        out.append(re.escape(literal))
    return re.compile("".join(out), re.DOTALL)
