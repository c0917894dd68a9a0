"""What one run of the agent and its grading are about: a whole task, or one step of it."""

from __future__ import annotations

from dataclasses import dataclass

from tollbar.datasets.taskfile import Task
from tollbar.datasets.taskmodel import Step, VerifierMode


@dataclass(frozen=True)
class Part:
    """A whole task (`step` None), or its step of that number, counted from 1."""

    task: Task
    step: Step | None = None
    number: int = 1

    @property
    def prefix(self) -> str:
        """Returns what the names of its artifacts begin with: nothing, or `steps/<name>/`."""
        return "" if self.step is None else f"{self.step.folder}/"

    @property
    def mode(self) -> VerifierMode:
        return self.task.verifier_mode(self.step)

    @property
    def is_separate(self) -> bool:
        return self.mode is VerifierMode.SEPARATE


def parts_of(task: Task) -> tuple[Part, ...]:
    """Returns the steps of a task in their order, or the one part of a task without steps."""
    return tuple(Part(task, step, number) for number, step in enumerate(task.steps, start=1)) or (Part(task),)
