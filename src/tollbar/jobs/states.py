"""States of Jobs and Trials with their allowed moves, written once, as data.

Every move is a compare-and-set in `store.py`; a terminal state never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """Wire words of a Job."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TrialState(StrEnum):
    """Wire words of a Trial, and `admitted` (handed to the engine; interfaces show it as pending)."""

    PENDING = "pending"
    ADMITTED = "admitted"
    STARTING = "starting"
    RUNNING = "running"
    VERIFYING = "verifying"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


JOB_MOVES: Final[Mapping[JobState, frozenset[JobState]]] = {
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.STOPPING, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.STOPPING, JobState.COMPLETED, JobState.FAILED}),
    JobState.STOPPING: frozenset({JobState.CANCELLED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

_END: Final = frozenset({TrialState.SUCCEEDED, TrialState.FAILED})

TRIAL_MOVES: Final[Mapping[TrialState, frozenset[TrialState]]] = {
    TrialState.PENDING: frozenset({TrialState.ADMITTED, TrialState.CANCELLED}),
    TrialState.ADMITTED: frozenset({TrialState.STARTING, TrialState.CANCELLED, TrialState.PENDING, TrialState.FAILED}),
    TrialState.STARTING: frozenset(
        {TrialState.RUNNING, TrialState.VERIFYING, TrialState.STOPPING, TrialState.PENDING, TrialState.FAILED}
    ),
    TrialState.RUNNING: frozenset({TrialState.VERIFYING, TrialState.STOPPING, TrialState.PENDING, TrialState.FAILED}),
    TrialState.VERIFYING: frozenset({TrialState.STOPPING, TrialState.PENDING} | _END),
    TrialState.STOPPING: frozenset({TrialState.CANCELLED}),
    TrialState.SUCCEEDED: frozenset(),
    TrialState.FAILED: frozenset(),
    TrialState.CANCELLED: frozenset(),
}

JOB_TERMINAL: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
TRIAL_TERMINAL: Final = _END | {TrialState.CANCELLED}
TRIAL_WORKING: Final = frozenset({TrialState.STARTING, TrialState.RUNNING, TrialState.VERIFYING})
"""States in which a try may spend and write."""
TRIAL_ACTIVE: Final = TRIAL_WORKING | {TrialState.STOPPING}
"""States in which a sandbox may live."""


def job_phase(state: JobState, *, expanded: bool, any_verifying: bool) -> str:
    """Returns the wire's `phase`: `queued`, `preparing`, `running`, `scoring`, `stopping` or `done`."""
    if state in JOB_TERMINAL:
        return "done"
    if state is JobState.PENDING:
        return "queued"
    if state is JobState.STOPPING:
        return "stopping"
    if not expanded:
        return "preparing"
    return "scoring" if any_verifying else "running"


class Reason(StrEnum):
    """Why a Trial has no reward; stable words of the wire."""

    ENVIRONMENT_REFUSED = "ENVIRONMENT_REFUSED"
    ENVIRONMENT_BUILD_FAILED = "ENVIRONMENT_BUILD_FAILED"
    ENVIRONMENT_START_FAILED = "ENVIRONMENT_START_FAILED"
    AGENT_SETUP_FAILED = "AGENT_SETUP_FAILED"
    SANDBOX_OOM = "SANDBOX_OOM"
    SANDBOX_LOST = "SANDBOX_LOST"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    VERIFIER_FAILED = "VERIFIER_FAILED"
    VERIFIER_TIMEOUT = "VERIFIER_TIMEOUT"
    VERIFIER_INPUT_MISSING = "VERIFIER_INPUT_MISSING"
    REWARD_MISSING = "REWARD_MISSING"
    REWARD_INVALID = "REWARD_INVALID"
    REWARD_TOO_LARGE = "REWARD_TOO_LARGE"
    CANCELLED = "CANCELLED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    BUDGET_UNMETERED = "BUDGET_UNMETERED"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class AgentOutcome(StrEnum):
    """How the agent of a graded Trial ended."""

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    NONZERO_EXIT = "nonzero_exit"
    CONTEXT_OVERFLOW = "context_overflow"
    REFUSED = "refused"


class JobErrorCode(StrEnum):
    """`error.code` of a Job that failed, or that the system cancelled."""

    PREPARATION_FAILED = "PREPARATION_FAILED"
    NO_TRIAL_SCORED = "NO_TRIAL_SCORED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    BUDGET_UNMETERED = "BUDGET_UNMETERED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
