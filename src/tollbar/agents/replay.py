"""The agent that repeats what was written down: a list of shell commands, one process each, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from tollbar.agents.adapter import AgentPlan, AgentTask, WithoutModel
from tollbar.agents.command import COMMAND_RULE, instruction_env, is_command

MAX_TURNS: Final = 1000
MAX_TURNS_BYTES: Final = 1 << 20

# Each turn is a shell of its own, as an agent's tool calls are; what one does to its variables the next does not see.
_SCRIPT: Final = """
for turn do
  printf '$ %s\\n' "$turn"
  /bin/sh -c "$turn"
  status=$?
  if [ "$status" -ne 0 ]; then printf '[exit %s]\\n' "$status"; fi
done
exit 0
"""


@dataclass(frozen=True)
class Replay(WithoutModel):
    """Runs the shell commands of the parameter `TURNS` in their order; one that fails stops none after it."""

    name: str = "replay"
    parameters: frozenset[str] = frozenset({"TURNS"})
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        turns = params.get("TURNS")
        if not isinstance(turns, list) or not 1 <= len(cast("list[object]", turns)) <= MAX_TURNS:
            return f"the agent replay needs TURNS, a list of 1 to {MAX_TURNS} shell commands"
        commands = cast("Sequence[object]", turns)
        wrong = next((number for number, turn in enumerate(commands, 1) if not is_command(turn)), None)
        if wrong is not None:
            return f"turn {wrong} of TURNS must be {COMMAND_RULE}"
        total = sum(len(str(turn).encode()) for turn in commands)
        return None if total <= MAX_TURNS_BYTES else f"TURNS hold more than {MAX_TURNS_BYTES} bytes together"

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        argv = ("/bin/sh", "-c", _SCRIPT, "replay", *params["TURNS"])
        return AgentPlan(argv=argv, env=instruction_env(task), log="replay.txt")
