"""What a test sees of this machine beside a server: processes by a mark in their command line."""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path
from typing import Final

HIDING: Final = """trap '' TERM HUP INT
setsid sleep {mark} &
nohup sleep {mark} > /dev/null 2>&1 &
(setsid sh -c 'trap "" TERM HUP; sleep {mark} & sleep {mark}' > /dev/null 2>&1 < /dev/null &)
python3 -c 'import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "{mark}"])'
"""
"""Leaves processes in every way that hides them from who started them; `{mark}` is a number of seconds."""


def new_mark() -> str:
    """Returns a number of seconds that no other sleep on this machine has."""
    return str(9 * 10**8 + uuid.uuid4().int % 10**8)


def living(mark: str) -> list[str]:
    """Returns the command lines on this machine that hold the mark."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append((entry / "cmdline").read_text(errors="replace"))
    return found


def gone_within(mark: str, seconds: float) -> bool:
    """Says whether no process with the mark lives at some moment before the time is over."""
    deadline = time.monotonic() + seconds
    while living(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
