"""Names of the control groups of sandboxes: they say which server's process made them, so that no dead one's stay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

GROUPS: Final = "tollbar-"
_START_TIME: Final = 19
"""Which field of a process's facts, after its name, says when it was started."""


def maker_of_groups(pid: int | None = None) -> str:
    """Returns what names a process for as long as the machine runs: its pid, and when it was started."""
    pid = os.getpid() if pid is None else pid
    return f"{pid}.{_started(pid)}"


def parts_of(group: str) -> tuple[str, str, str]:
    """Returns the data directory's tag, the maker and the sandbox of a group's name; empty where it lacks them."""
    tag, _, rest = group.removeprefix(GROUPS).partition("-")
    maker, _, name = rest.partition("-")
    return tag, maker, name


def lives(maker: str) -> bool:
    """Says whether a process that made groups lives; one that is not named as such does not."""
    pid, _, started = maker.partition(".")
    return pid.isdigit() and started.isdigit() and started == _started(int(pid))


def _started(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[_START_TIME]
