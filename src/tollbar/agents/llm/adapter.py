"""The agent `llm`: which parameters it takes, and its loop, whose libraries are loaded where it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from tollbar.agents import coding
from tollbar.agents.adapter import (
    AgentOutput,
    AgentPlan,
    AgentReport,
    AgentSession,
    AgentTask,
    DriveResult,
    ModelUse,
)
from tollbar.agents.coding import Check, is_count, is_model
from tollbar.agents.errors import AgentSetupFailed
from tollbar.agents.modelnames import dialect_of

MAX_TURNS: Final = 1000
MAX_PROMPT_BYTES: Final = 65_536
_OUTPUT_TOKENS: Final = 16_384
_TURNS: Final = 50
_TIMEOUT_S: Final = 120.0

_PROMPT: Final = """You solve one task, alone, in a Linux sandbox. Nobody answers questions: decide yourself.
Work with the tools. The working directory is {workdir}. There is no network.
Check what you made before you stop. When the task is done, answer with a short sentence and call no tool."""


@dataclass(frozen=True)
class Settings:
    """How one run of the loop is bounded, read from its parameters."""

    model: str
    max_turns: int
    max_tokens: int
    """Output limit of every call: none is ever sent without one."""
    timeout_s: float
    """The longest that one command of the shell may take."""
    temperature: float | None
    prompt: str


@dataclass(frozen=True)
class Llm:
    """Asks `MODEL` turn by turn what to do next, and does it in the sandbox, until it says that it is done."""

    name: str = "llm"
    parameters: frozenset[str] = frozenset({"MODEL", "MAX_TURNS", "MAX_TOKENS", "TIMEOUT", "TEMPERATURE", "PROMPT"})
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        return coding.problem(self.name, _CHECKS, params)

    def models(self, params: Mapping[str, Any]) -> tuple[ModelUse, ...]:
        return (ModelUse(params["MODEL"], dialect_of(params["MODEL"])),)

    def software(self, params: Mapping[str, Any]) -> str | None:
        del params
        return None

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        if not task.instruction:
            raise AgentSetupFailed("install", "The task has no instruction for a model to read.")
        settings, instruction = _settings(task, params), task.instruction

        async def drive(session: AgentSession) -> DriveResult:
            # Loading the clients of the models takes a second of CPU: not on the loop that serves everybody.
            loop = await asyncio.to_thread(import_module, "tollbar.agents.llm.loop")
            return await loop.run(session, settings, instruction)

        return AgentPlan(argv=None, drive=drive, log="llm.txt")

    def report(self, left: AgentOutput) -> AgentReport:
        del left
        return AgentReport()


def _number(least: float, most: float) -> Check:
    """Returns the check of a number, which may be written as text."""

    def check(value: object) -> str | None:
        fits = isinstance(value, int | float | str) and not isinstance(value, bool)
        try:
            fits = fits and least <= float(str(value)) <= most
        except ValueError:
            fits = False
        return None if fits else f"a number from {least:g} to {most:g}"

    return check


def _is_prompt(value: object) -> str | None:
    fits = isinstance(value, str) and 1 <= len(value.encode("utf-8", "surrogatepass")) <= MAX_PROMPT_BYTES
    return None if fits else f"text of 1 to {MAX_PROMPT_BYTES} bytes"


_CHECKS: Final[Mapping[str, Check]] = {
    "MODEL": is_model,
    "MAX_TURNS": is_count(1, MAX_TURNS),
    "MAX_TOKENS": is_count(1, 1_000_000),
    "TIMEOUT": _number(1, 3600),
    "TEMPERATURE": _number(0, 2),
    "PROMPT": _is_prompt,
}


def _settings(task: AgentTask, params: Mapping[str, Any]) -> Settings:
    return Settings(
        model=params["MODEL"],
        max_turns=int(params.get("MAX_TURNS") or _TURNS),
        max_tokens=int(params.get("MAX_TOKENS") or _OUTPUT_TOKENS),
        timeout_s=float(params.get("TIMEOUT") or _TIMEOUT_S),
        temperature=None if params.get("TEMPERATURE") is None else float(params["TEMPERATURE"]),
        prompt=params.get("PROMPT") or _PROMPT.format(workdir=task.workdir),
    )
