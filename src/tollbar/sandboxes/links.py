"""Where symbolic links lead, decided from their text alone: nothing is ever followed on a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

MAX_LINKS: Final = 40
"""As many links as Linux follows in one path."""

LinkAt = Callable[[tuple[str, ...]], str | None]
"""Returns the target of the link at a path (its components), or None when there is no link."""


class LinkFault(ValueError):
    """A path leaves its folder, or its links lead in circles."""


def resolve(folder: Sequence[str], target: str, link_at: LinkAt, *, rooted: bool = False) -> tuple[str, ...]:
    """Returns where `target` leads when it is read in `folder`; `()` is the outermost folder.

    With `rooted` the outermost folder is a root: absolute paths start there and nothing lies above it. Without, such
    paths raise `LinkFault`, as do more than 40 links.
    """
    done = list(folder)
    pending = [target]
    followed = 0
    while pending:
        part = pending.pop()
        if "/" in part:
            if part.startswith("/"):
                _leave(rooted=rooted)
                done.clear()
            pending.extend(reversed(part.split("/")))
        elif part == "..":
            if not done:
                _leave(rooted=rooted)
            done = done[:-1]
        elif part not in {"", "."}:
            next_target = link_at((*done, part))
            if next_target is None:
                done.append(part)
                continue
            followed += 1
            if followed > MAX_LINKS:
                msg = "leads back to itself"
                raise LinkFault(msg)
            pending.append(next_target)
    return tuple(done)


def _leave(*, rooted: bool) -> None:
    if not rooted:
        msg = "leaves the folder"
        raise LinkFault(msg)
