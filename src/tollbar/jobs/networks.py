"""What the phases of a task may reach, as far as it decides how their sandboxes are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tollbar.datasets.network import NetworkMode, NetworkPolicy
from tollbar.jobs.parts import Part
from tollbar.sandboxes.interface import Network

AGENT: Final = "agent"
VERIFIER: Final = "verifier"


def listed(needs: Mapping[str, Any], phase: str) -> bool:
    """Says whether a phase, in any step, reaches hosts that the task lists."""
    return any(each["phase"] == phase and each["mode"] == NetworkMode.ALLOWLIST for each in needs["networks"])


def in_agents_sandbox(needs: Mapping[str, Any]) -> bool:
    """Says whether listed hosts are reached from the agent's sandbox, which a shared verifier uses, too."""
    return listed(needs, AGENT) or (listed(needs, VERIFIER) and needs["verifier_mode"] != "separate")


def of_agents_sandbox(needs: Mapping[str, Any], *, gateway: bool) -> Network:
    """Returns what an agent's sandbox is made for; `gateway`: its agent calls models there."""
    if in_agents_sandbox(needs):
        return Network.ALLOWLIST
    return Network.GATEWAY if gateway else Network.NONE


def of_verifiers_sandbox(part: Part) -> Network:
    """Returns what a separate verifier's sandbox is made for."""
    return Network.ALLOWLIST if policy(part, VERIFIER).mode is NetworkMode.ALLOWLIST else Network.NONE


def policy(part: Part, phase: str) -> NetworkPolicy:
    """Returns what a phase of a part may reach."""
    plan = part.task.agent_network(part.step) if phase == AGENT else part.task.verifier_network(part.step)
    return plan.phase
