"""What can be seen to be wrong with a task without running it; the oracle's run says the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollbar.datasets.network import NetworkMode
from tollbar.datasets.taskfile import Task
from tollbar.datasets.taskmodel import Step, VerifierMode

_FETCH: Final = re.compile(
    rb"\b(?:curl|wget|apt-get|apt|apk|dnf|yum|uvx|npx|git\s+clone|(?:pip3?|uv|npm|cargo|go|gem)\s+(?:pip\s+)?(?:install|add|get))\b"
)
_TRAVELS: Final = "/logs/artifacts"


class Finding(StrEnum):
    """What was seen."""

    NOTHING_DECLARED = "nothing_declared"
    VERIFIER_FETCHES = "verifier_fetches"
    INSTRUCTION_CUT = "instruction_cut"
    NO_SOLUTION = "no_solution"


@dataclass(frozen=True)
class Found:
    """One finding; `message` names the file or key."""

    code: Finding
    message: str


def lint(task: Task, files: Mapping[str, bytes]) -> list[Found]:
    """Returns what is suspicious about a task; none of it keeps the task from running."""
    return [found for step in (task.steps or (None,)) for found in _part(task, files, step)]


def _part(task: Task, files: Mapping[str, bytes], step: Step | None) -> Iterator[Found]:
    where = "" if step is None else f"step {step.name}: "
    declared = [entry for entry in task.artifacts(step) if entry.source.rstrip("/") != _TRAVELS]
    if task.verifier_mode(step) is VerifierMode.SEPARATE and not declared:
        yield Found(
            Finding.NOTHING_DECLARED,
            f"{where}the verifier is separate and no artifact is declared, so it sees only what lies in {_TRAVELS}.",
        )
    if task.verifier_network(step).phase.mode not in {NetworkMode.PUBLIC, NetworkMode.ALLOWLIST}:
        for folder in task.tests_folders(step):
            for path in sorted(path for path in files if path.startswith(f"{folder}/")):
                fetch = _FETCH.search(files[path]) if path.endswith(".sh") else None
                if fetch is not None:
                    word = fetch[0].decode(errors="replace")
                    text = (
                        f"{where}{path} runs {word}, and the verifier has no network: a failed fetch can look like a 0."
                    )
                    yield Found(Finding.VERIFIER_FETCHES, text)
    cut = task.instruction_of(step).canary_lines_removed
    if cut:
        yield Found(
            Finding.INSTRUCTION_CUT, f"{where}{cut} lines at the top of instruction.md are kept from the agent."
        )
    if not task.has_solution(step):
        yield Found(Finding.NO_SOLUTION, f"{where}there is no solution/solve.sh, so the oracle cannot try the task.")
