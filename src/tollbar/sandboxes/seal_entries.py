"""Declared artifact entries: where each comes from and goes to, and which of two that overlap is taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate

from tollbar.sandboxes.interface import ArtifactPath
from tollbar.sandboxes.overlay_walk import components_of


@dataclass(frozen=True)
class Declared:
    """An entry with its source as components; `destination` is a relative path, empty for the outermost folder."""

    source: tuple[str, ...]
    destination: str
    exclude: tuple[str, ...]

    @property
    def path(self) -> str:
        return "/" + "/".join(self.source)

    def place(self, below: Sequence[str]) -> str:
        """Returns the place of a member among the artifacts."""
        return "/".join([self.destination, *below] if self.destination else below)

    def covers(self, other: Declared) -> bool:
        """Says whether this entry already takes everything of `other` to the same place."""
        below = other.source[len(self.source) :]
        if other.source[: len(self.source)] != self.source or other.destination != self.place(below):
            return False
        return not self.exclude if below else self.exclude == other.exclude

    def overlaps(self, other: Declared) -> bool:
        """Says whether the places are equal or one lies in the other."""
        own, foreign = self.destination, other.destination
        return own == foreign or _is_below(own, foreign) or _is_below(foreign, own)


def declared(path: ArtifactPath) -> Declared:
    """Returns the entry of a declared path; without a destination the absolute source is mirrored.

    Raises `ValueError` for a source that is not absolute or holds `..`.
    """
    source = components_of(path.source)
    places = source if path.destination is None else tuple(path.destination.split("/"))
    destination = "/".join(part for part in places if part not in {"", "."})
    return Declared(source, destination, tuple(path.exclude))


def excluder(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that says whether a path relative to its folder is left out.

    Patterns are those of `tar --exclude`: `*` also matches `/`, and a pattern may match from the start of any
    component to the end of the path, which starts with `./`. What lies in a folder that is left out is not asked for.
    """
    compiled = [re.compile(translate(pattern.rstrip("/"))) for pattern in patterns]

    def left_out(path: str) -> bool:
        parts = [".", *path.split("/")]
        ends = ["/".join(parts[start:]) for start in range(len(parts))]
        return any(pattern.match(end) for pattern in compiled for end in ends)

    return left_out if compiled else lambda path: False  # noqa: ARG005 - nothing is left out


def _is_below(inner: str, outer: str) -> bool:
    return not outer or inner.startswith(f"{outer}/")
