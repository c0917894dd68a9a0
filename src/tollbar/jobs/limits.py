"""What a phase gets of what its task asks for, in size and time, and what one try can cost at most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from tollbar.sandboxes.interface import Limits

MAX_PHASE_S: Final = 3600.0
"""Longest agent phase, whatever a task or a Job asks for."""
OVERHEAD_S: Final = 5.0
"""What a sandbox lives longer than its command: start, sealing, removal."""


def limits_of(asked: Mapping[str, Any], runner: Mapping[str, Any]) -> Limits:
    """Returns a task's limits up to the runner revision's maxima, and its defaults where the task is silent.

    `asked` has `cpus`, `memory_mb` and `storage_mb`, each a number or None.
    """
    default, maximum = runner["limits"], runner["maxima"]

    def pick(own: float | None, name: str) -> Any:
        return min(default[name] if own is None else own, maximum[name])

    return Limits(
        cpus=float(pick(asked["cpus"], "cpus")),
        memory_mb=int(pick(asked["memory_mb"], "memory_mb")),
        disk_mb=int(pick(asked["storage_mb"], "disk_mb")),
        pids=int(default["pids"]),
        nofile=int(default["nofile"]),
    )


def agent_timeout_s(task_s: float | None, job_s: float | None, maximum_s: float = MAX_PHASE_S) -> float:
    """Returns the agent's time limit: the task's (else the longest allowed), bounded by the Job's."""
    return min(maximum_s if task_s is None else task_s, maximum_s, math.inf if job_s is None else job_s)


def rate_of(limits: Limits, prices: Mapping[str, int]) -> int:
    """Returns pUSD a second: vCPUs and GiB of the limits at the runner revision's prices (pUSD each), rounded up."""
    vcpus, gib = Fraction(str(limits.cpus)), Fraction(limits.memory_mb, 1024)
    return math.ceil(vcpus * prices["vcpu_second_pusd"] + gib * prices["gib_second_pusd"])


def worst_case_pusd(needs: Mapping[str, Any], runner: Mapping[str, Any], job_s: float | None) -> int:
    """Returns what the sandboxes of one try of a task cost when agent and verifier use all of their time.

    A task with steps has as many runs of the agent and of the verifier, one after the other.
    """
    runs = (
        (needs["environment"], [agent_timeout_s(own, job_s) for own in needs["agent_timeout_s"]]),
        (needs["verifier_environment"], needs["verifier_timeout_s"]),
    )
    return sum(
        rate_of(limits_of(asked, runner), runner["prices"]) * math.ceil(limit_s + OVERHEAD_S)
        for asked, limits_s in runs
        for limit_s in limits_s
    )
