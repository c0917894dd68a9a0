"""Which failures are tried again, how often and after how long (evaluation guide, section 8), as data."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.jobs.states import Reason

TRIES: Final[Mapping[Reason, int]] = {
    Reason.ENVIRONMENT_BUILD_FAILED: 3,
    Reason.ENVIRONMENT_START_FAILED: 3,
    Reason.AGENT_SETUP_FAILED: 3,
    Reason.SANDBOX_OOM: 3,
    Reason.SANDBOX_LOST: 3,
    Reason.MODEL_UNAVAILABLE: 3,
    Reason.INTERNAL_ERROR: 2,
}
"""How many tries a Trial has that meets this; a reason that is not listed ends it at once."""

LOSS_BOUND: Final = TRIES[Reason.SANDBOX_LOST]
"""The third loss ends a Trial: what kills its worker every time would otherwise go round for ever."""

VERIFIER_RUNS: Final = 3
"""How often a verifier runs on one seal when the fault is not its verdict."""

_VERIFIER_DETAILS: Final = frozenset({"start", "upload", "download", "unavailable"})
_FIRST_PAUSE_S: Final = 2.0
_MOST_PAUSE_S: Final = 60.0
_JITTER: Final = 0.2


@dataclass(frozen=True)
class Failure:
    """Why a try came to nothing; the last one's words become the Trial's."""

    reason: Reason
    detail: str | None = None
    message: str | None = None
    for_good: bool = False
    """No other try, whatever the reason's number of tries: the agent had its run, and may have caused it."""

    def facts(self) -> dict[str, Any]:
        """Returns it as a step's result."""
        return {"reason": self.reason.value, "detail": self.detail, "message": self.message}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Failure:
        """Returns the failure that a step returned."""
        return cls(Reason(facts["reason"]), facts["detail"], facts["message"])

    def is_final(self, losses: int) -> bool:
        """Says whether a Trial ends with this, after so many earlier losses."""
        return self.for_good or losses + 1 >= TRIES.get(self.reason, 1)


def repeats_verifier(reason: str, detail: str | None) -> bool:
    """Says whether the verifier alone runs again: the agent never runs twice for a fault of the verifier."""
    return reason == Reason.SANDBOX_OOM or (reason == Reason.VERIFIER_FAILED and detail in _VERIFIER_DETAILS)


def pause_s(failures: int, key: str) -> float:
    """Returns how long to wait after so many failures (1 and up): 2, 8, 32 s and so on, at most 60 s, 20 % either way.

    `key` decides the jitter, so that Trials that failed together do not come back together.
    """
    share = zlib.crc32(f"{key}:{failures}".encode()) / 0xFFFFFFFF
    wanted = _FIRST_PAUSE_S * 4.0 ** (failures - 1) * (1 + _JITTER * (2 * share - 1))
    return min(_MOST_PAUSE_S, wanted)
