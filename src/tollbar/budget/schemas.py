"""What the ledger says and takes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Final

from tollbar.kit.clock import wire_time
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
        return _LEVELS.index(self)

    @classmethod
    def of_rank(cls, rank: int) -> Level:
        return _LEVELS[rank]


_LEVELS: Final = tuple(Level)
WARN_PERCENT: Final = 80
"""Once so much of a cap is spent, its budget carries a warning."""


class Purpose(StrEnum):
    """Whose spending it is; the verifier's stands in a column of its own."""

    AGENT = "agent"
    VERIFIER = "verifier"


@dataclass(frozen=True)
class Chain:
    """The budgets that a call is charged to: those named, and the day of the project where the project limits it.

    The day is looked up at each reservation, so that a Trial which goes on after midnight is charged to the new day.
    """

    project_id: str
    budgets: tuple[str, ...]
    """Ids of a Job's (or run's) budget and of what nests in it, outermost first."""
    simulated: bool = False

    def as_simulated(self) -> Chain:
        """Returns the same budgets beside the day of what scripted providers spend."""
        return replace(self, simulated=True)

    def day_id(self, day: date) -> str:
        """Returns the id of the project's budget for a UTC day."""
        return day_budget_id(self.project_id, day, simulated=self.simulated)


def day_budget_id(project_id: str, day: date, *, simulated: bool = False) -> str:
    """Returns the id of a project's budget for a UTC day; what a scripted provider spends never uses a real one up."""
    return f"bud_{project_id}_{day:%Y%m%d}_{'simulated' if simulated else 'real'}"


def day_subject(project_id: str, day: date, *, simulated: bool = False) -> str:
    return f"{Level.PROJECT_DAY.value}:{project_id}:{day.isoformat()}:{'simulated' if simulated else 'real'}"


def trial_subject(trial_id: str, try_no: int) -> str:
    """Returns whose spending that of one try is."""
    return f"trial:{trial_id}:{try_no}"


def trial_budget_id(trial_id: str) -> str:
    """Returns the id of a Trial's own share of its Job, which all of its tries have together."""
    return f"bud_{trial_id}"


@dataclass(frozen=True)
class Lease:
    """A slice of sandbox time to reserve: `seconds` at `rate_pusd` (pUSD a second)."""

    id: str
    chain: Chain
    day: date
    """The UTC day on which it is asked for."""
    subject: str
    """`trial:<id>:<try_no>`."""
    sku: str
    """The runner, `namespace/name`."""
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
class Short:
    """A budget of the chain, the outermost first, in which there is too little left for a lease of `worst_pusd`."""

    budget_id: str
    level: Level
    worst_pusd: int


@dataclass(frozen=True)
class Wait(Short):
    """It does not fit now, but what is outstanding could still free enough: ask again soon."""


@dataclass(frozen=True)
class Reached(Short):
    """The cap is reached: even if everything outstanding came back, the lease would not fit."""


Decision = Reserved | Wait | Reached


@dataclass(frozen=True)
class CallCounts:
    """Model calls that ended and were sent, and parts of them that stand beside a score because they may change it."""

    calls: int = 0
    unpriced: int = 0
    worst_case: int = 0
    """Charged at their bound, because nobody knows what they cost."""
    clamped: int = 0
    truncated: int = 0
    simulated: int = 0
    price_snapshot: str | None = None


@dataclass(frozen=True)
class Spent:
    """What was spent, in pUSD, by whose spending it was, and what is still reserved."""

    model_pusd: int = 0
    sandbox_pusd: int = 0
    verifier_model_pusd: int = 0
    verifier_sandbox_pusd: int = 0
    reserved_pusd: int = 0
    overrun_pusd: int = 0
    """What of the rest was charged above a call's bound."""
    counts: CallCounts = field(default_factory=CallCounts)

    @property
    def total_pusd(self) -> int:
        return self.model_pusd + self.sandbox_pusd + self.verifier_pusd

    @property
    def verifier_pusd(self) -> int:
        return self.verifier_model_pusd + self.verifier_sandbox_pusd

    @property
    def simulated(self) -> bool:
        return self.counts.simulated > 0

    def wire(self) -> dict[str, object]:
        """Returns the `cost` member of a Job or a Trial: the total, its parts, and what one should know of it.

        With `unpriced_calls` above 0 the total is a lower bound; `final` is true when nothing is outstanding.
        """
        return {
            "total_usd": format_usd(self.total_pusd),
            "model_usd": format_usd(self.model_pusd),
            "sandbox_usd": format_usd(self.sandbox_pusd),
            "verifier_usd": format_usd(self.verifier_pusd),
            "verifier_model_usd": format_usd(self.verifier_model_pusd),
            "verifier_sandbox_usd": format_usd(self.verifier_sandbox_pusd),
            "reserved_usd": format_usd(self.reserved_pusd),
            "overrun_usd": format_usd(self.overrun_pusd),
            "price_snapshot": self.counts.price_snapshot,
            "unpriced_calls": self.counts.unpriced,
            "worst_case_calls": self.counts.worst_case,
            "clamped_calls": self.counts.clamped,
            "truncated_calls": self.counts.truncated,
            "simulated": self.simulated,
            "final": self.reserved_pusd == 0,
        }


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
    stopped_model: str | None
    """The model that it asked for; None: it was a sandbox's lease."""
    stopped_scope: str | None
    stopped_worst_pusd: int | None
    warned_at: datetime | None
    verifier_model_pusd: int = 0
    counts: CallCounts = field(default_factory=CallCounts)

    @property
    def spent_pusd(self) -> int:
        return self.settled_pusd + self.overrun_pusd

    @property
    def is_stopped(self) -> bool:
        """Says whether its cap, or a price that nobody knows, has ended what it paid for."""
        return self.state in {BudgetState.EXCEEDED, BudgetState.UNMETERED}

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
            "warning": warning_object(self.warned_at),
        }

    def _stopped_by(self) -> dict[str, str] | None:
        if self.stopped_by is None:
            return None
        kind, _, rest = (self.stopped_subject or "").partition(":")
        trial = {"trial_id": rest.partition(":")[0]} if kind == "trial" else {}
        model = {} if self.stopped_model is None else {"model": self.stopped_model}
        return {"call": self.stopped_by, **trial, **model, "worst_usd": format_usd(self.stopped_worst_pusd or 0)}

    def spent(self) -> Spent:
        """Returns what was spent, by whose spending it was."""
        return Spent(
            model_pusd=self.model_pusd,
            sandbox_pusd=self.spent_pusd - self.model_pusd - self.verifier_pusd,
            verifier_model_pusd=self.verifier_model_pusd,
            verifier_sandbox_pusd=self.verifier_pusd - self.verifier_model_pusd,
            reserved_pusd=self.reserved_pusd,
            overrun_pusd=self.overrun_pusd,
            counts=self.counts,
        )

    def cost_object(self) -> dict[str, object]:
        """Returns the `cost` member of a Job."""
        return self.spent().wire()


def warning_object(warned_at: datetime | None) -> dict[str, object] | None:
    """Returns the `warning` of a budget of which 80 % or more was spent, with the moment; else None."""
    return None if warned_at is None else {"percent": WARN_PERCENT, "at": wire_time(warned_at)}
