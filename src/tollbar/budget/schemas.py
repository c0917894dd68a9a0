"""What the ledger says and takes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from tollbar.kit.money import format_usd


class BudgetState(StrEnum):
    """Whether money may still be reserved; only `open` rows take reservations."""

    OPEN = "open"
    EXCEEDED = "exceeded"
    UNMETERED = "unmetered"
    CLOSED = "closed"


BUDGET_MOVES: Final[Mapping[BudgetState, frozenset[BudgetState]]] = {
    BudgetState.OPEN: frozenset({BudgetState.EXCEEDED, BudgetState.UNMETERED, BudgetState.CLOSED}),
    BudgetState.EXCEEDED: frozenset({BudgetState.CLOSED}),
    BudgetState.UNMETERED: frozenset({BudgetState.CLOSED}),
    BudgetState.CLOSED: frozenset(),
}


class CallState(StrEnum):
    """The life of one reservation."""

    RESERVED = "reserved"
    SENT = "sent"
    SETTLED = "settled"
    RELEASED = "released"
    WRITTEN_OFF = "written_off"
    REFUSED = "refused"


CALL_MOVES: Final[Mapping[CallState, frozenset[CallState]]] = {
    CallState.RESERVED: frozenset({CallState.SENT, CallState.RELEASED}),
    CallState.SENT: frozenset({CallState.SETTLED, CallState.WRITTEN_OFF, CallState.RELEASED}),
    CallState.SETTLED: frozenset(),
    CallState.RELEASED: frozenset(),
    CallState.WRITTEN_OFF: frozenset(),
    CallState.REFUSED: frozenset(),
}


class Level(StrEnum):
    """Where a budget stands in a chain; chains are locked and reserved from the outermost in."""

    PROJECT_DAY = "project_day"
    JOB = "job"
    TRIAL = "trial"

    @property
    def rank(self) -> int:
        return {"project_day": 0, "job": 1, "trial": 2}[self.value]


class Purpose(StrEnum):
    """Whose spending it is; the verifier's stands in a column of its own."""

    AGENT = "agent"
    VERIFIER = "verifier"


@dataclass(frozen=True)
class Lease:
    """A slice of sandbox time to reserve: `seconds` at `rate_pusd` (pUSD a second)."""

    id: str
    chain: tuple[str, ...]
    """Budget ids, outermost first."""
    subject: str
    """`trial:<id>:<try_no>`."""
    purpose: Purpose
    worker_id: str
    rate_pusd: int
    seconds: int
    starts_in_s: float = 0.0
    """How far ahead of its time it is reserved: a renewal begins when the slice before it ends."""

    @property
    def worst_pusd(self) -> int:
        return self.rate_pusd * self.seconds


@dataclass(frozen=True)
class Reserved:
    """The lease holds; it is prepaid until `expires_at` (the database's clock)."""

    expires_at: datetime


@dataclass(frozen=True)
class Wait:
    """It does not fit now, but what is outstanding could still free enough: ask again soon."""


@dataclass(frozen=True)
class Reached:
    """The cap is reached: even if everything outstanding came back, the lease would not fit."""

    budget_id: str
    worst_pusd: int


Decision = Reserved | Wait | Reached


@dataclass(frozen=True)
class BudgetView:
    """One budget as users see it; amounts in pUSD."""

    budget_id: str
    cap_pusd: int | None
    settled_pusd: int
    reserved_pusd: int
    overrun_pusd: int
    model_pusd: int
    verifier_pusd: int
    state: BudgetState
    stopped_by: str | None
    """The call or lease that did not fit."""
    stopped_subject: str | None
    """Whose it was: `trial:<id>:<try_no>`."""
    stopped_scope: str | None
    stopped_worst_pusd: int | None

    @property
    def spent_pusd(self) -> int:
        return self.settled_pusd + self.overrun_pusd

    def budget_object(self) -> dict[str, object]:
        """Returns the `budget` member of a Job: cap, spent and reserved (never above the cap together), state."""
        left = None if self.cap_pusd is None else max(0, self.cap_pusd - self.spent_pusd - self.reserved_pusd)
        return {
            "max_cost_usd": None if self.cap_pusd is None else format_usd(self.cap_pusd),
            "spent_usd": format_usd(self.spent_pusd),
            "reserved_usd": format_usd(self.reserved_pusd),
            "remaining_usd": None if left is None else format_usd(left),
            "state": self.state.value,
            "stopped_by": self._stopped_by(),
        }

    def _stopped_by(self) -> dict[str, str] | None:
        if self.stopped_by is None:
            return None
        kind, _, rest = (self.stopped_subject or "").partition(":")
        trial = {"trial_id": rest.partition(":")[0]} if kind == "trial" else {}
        return {"call": self.stopped_by, **trial, "worst_usd": format_usd(self.stopped_worst_pusd or 0)}

    def cost_object(self) -> dict[str, object]:
        """Returns the `cost` member of a Job: total and its parts by whose spending it was."""
        sandbox = self.spent_pusd - self.model_pusd - self.verifier_pusd
        return {
            "total_usd": format_usd(self.spent_pusd),
            "model_usd": format_usd(self.model_pusd),
            "sandbox_usd": format_usd(sandbox),
            "verifier_usd": format_usd(self.verifier_pusd),
            "price_snapshot": None,
            "unpriced_calls": 0,
        }
