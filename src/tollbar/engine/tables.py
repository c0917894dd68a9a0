"""Workers and their beats; all times are the database's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from sqlalchemy import CheckConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class WorkerState(StrEnum):
    """The life of one worker process."""

    LIVE = "live"
    LEAVING = "leaving"
    """Takes no more work and ends what it has."""
    LEFT = "left"
    """Ended by itself; what it did not finish is handed on."""
    DEAD = "dead"
    """Gave no sign for too long; what it held is taken over."""
    GONE = "gone"
    """Nothing of it is left."""


MOVES: Final[Mapping[WorkerState, frozenset[WorkerState]]] = MappingProxyType(
    {
        WorkerState.LIVE: frozenset({WorkerState.LEAVING, WorkerState.DEAD}),
        WorkerState.LEAVING: frozenset({WorkerState.LEFT, WorkerState.DEAD}),
        WorkerState.LEFT: frozenset({WorkerState.GONE}),
        WorkerState.DEAD: frozenset({WorkerState.GONE}),
        WorkerState.GONE: frozenset(),
    }
)


def origins(target: WorkerState) -> list[str]:
    """Returns the states from which a worker may come into that one."""
    return sorted(state.value for state, targets in MOVES.items() if target in targets)


class WorkerRow(Base):
    """One worker process, from its start to its end."""

    __tablename__ = "worker"
    __table_args__ = (CheckConstraint("state IN ('live', 'leaving', 'left', 'dead', 'gone')", name="state"),)

    executor_id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    engine_version: Mapped[str]
    backends: Mapped[list[str]]
    slots: Mapped[int]
    software: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    """What its machine has of the software of agents, as `NAME@VERSION`; said anew with each beat."""
    state: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))
    beat_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))
