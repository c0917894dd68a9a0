"""The agent that is one command line, run by the sandbox's shell in the working directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents.adapter import AgentPlan, AgentTask, WithoutModel
from tollbar.agents.errors import AgentSetupFailed

MAX_COMMAND_BYTES: Final = 65_536
MAX_INSTRUCTION_BYTES: Final = 120_000
"""One variable of a process holds at most 128 KiB."""


@dataclass(frozen=True)
class Command(WithoutModel):
    """Runs the parameter `COMMAND`; the task's instruction is the variable `TOLLBAR_INSTRUCTION`."""

    name: str = "command"
    parameters: frozenset[str] = frozenset({"COMMAND"})
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        command = params.get("COMMAND")
        if command is None:
            return "the agent command needs a command"
        return None if is_command(command) else f"the command must be {COMMAND_RULE}"

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        return AgentPlan(argv=("/bin/sh", "-c", params["COMMAND"]), env=instruction_env(task), log="command.txt")


COMMAND_RULE: Final = f"text of 1 to {MAX_COMMAND_BYTES} bytes without NUL"


def is_command(value: object) -> bool:
    """Says whether a shell can be given this text."""
    if not isinstance(value, str) or "\0" in value:
        return False
    return 1 <= len(value.encode("utf-8", "surrogatepass")) <= MAX_COMMAND_BYTES


def instruction_env(task: AgentTask) -> dict[str, str]:
    """Returns the instruction as a variable; raises `AgentSetupFailed` for one that no process could be given."""
    text = task.instruction or ""
    if len(text.encode()) > MAX_INSTRUCTION_BYTES or "\0" in text:
        raise AgentSetupFailed("install", f"The instruction is longer than {MAX_INSTRUCTION_BYTES} bytes.")
    return {"TOLLBAR_INSTRUCTION": text}
