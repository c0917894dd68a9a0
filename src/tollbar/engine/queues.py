"""Queues: one for control work, one for Trials per sandbox backend, one for branches that were taken over.

A worker listens to the Trial queues of the backends that it can run, so work is never claimed by a machine that
cannot do it. Hot queues carry a limit per worker and nothing else: any further limit makes claims exclude each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONTROL: Final = "control"
BRANCHES: Final = "branches"
"""Where work without a queue of its own goes when its worker died."""
_TRIALS: Final = "trials."


@dataclass(frozen=True)
class Limits:
    """How one worker draws from a queue."""

    worker_concurrency: int
    polling_interval_s: float


def trials(backend: str) -> str:
    """Returns the queue of Trials that need that sandbox backend."""
    return f"{_TRIALS}{backend}"


def ahead(slots: int) -> int:
    """Returns how many Trials a worker of that many slots may hold: claims run ahead, so no slot waits for a poll."""
    return 2 * slots + 16


def limits(queue: str, slots: int) -> Limits:
    """Returns the limits of a queue for workers of that many slots."""
    if queue.startswith(_TRIALS):
        return Limits(ahead(slots), 0.5)
    if queue == BRANCHES:
        # Their parents wait for them, so they must never wait for each other.
        return Limits(200, 0.25)
    return Limits(64, 0.25)
