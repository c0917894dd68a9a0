"""Which form a sandbox has: one command in its own world, or a world that outlives its commands.

Both isolate alike; a one-shot sandbox costs less. The choice is made before the start, from what the task and its
agent need and what the Job asks for, and stands on the Trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tollbar.agents.adapter import AgentPlan
from tollbar.jobs import networks
from tollbar.sandboxes.interface import Capabilities, Form


class AskedForm(StrEnum):
    """What a Job says of the form of its sandboxes (`execution.sandbox_form`)."""

    AUTO = "auto"
    ONE_SHOT = "one_shot"
    HELD = "held"


def held_for(needs: Mapping[str, Any], plan: AgentPlan | None = None, *, gateway: bool = False) -> str | None:
    """Returns what of a task (and of its agent's plan) only a held sandbox can do, or None.

    A shared verifier is none of it: agent and verifier are one command each, with every process dead between them.
    """
    if needs["steps"]:
        return "[[steps]]"
    if needs["healthcheck"]:
        return "healthcheck"
    # Versions that were published before these needs were noted lack them; the Trial asks the task itself.
    if needs.get("collect_hooks"):
        return "verifier.collect"
    if needs.get("keep_agent_processes"):
        return "metadata.tollbar.keep_agent_processes"
    if networks.in_agents_sandbox(needs):
        return "network_mode allowlist"
    if gateway:
        return "an agent that calls models"
    if plan is not None and (plan.setup or plan.drive or plan.commands > 1):
        return "its agent"
    return None


def agent_form(
    asked: str, can: Capabilities, needs: Mapping[str, Any], plan: AgentPlan, *, gateway: bool = False
) -> Form:
    """Returns the form of an agent's sandbox, which a shared verifier and every step of a task use, too."""
    return _form(asked, can, held=held_for(needs, plan, gateway=gateway) is not None)


def verifier_form(asked: str, can: Capabilities, *, healthcheck: bool, network: bool = False) -> Form:
    """Returns the form of a separate verifier's sandbox, whose test script is one command."""
    return _form(asked, can, held=healthcheck or network)


def _form(asked: str, can: Capabilities, *, held: bool) -> Form:
    return Form.HELD if held or asked == AskedForm.HELD or Form.ONE_SHOT not in can.forms else Form.ONE_SHOT
