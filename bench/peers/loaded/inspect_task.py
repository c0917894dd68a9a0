"""The same task for Inspect AI, without a model that matters: a scripted solver, a scorer that runs the test.

Loaded by Inspect AI in its own virtual environment. Its local sandbox is a plain subprocess in a folder: nothing is
isolated, so its figures are of the runner alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox

_FOLDER = Path(os.environ["BENCH_TASK"])


def _script(name: str) -> str:
    """Returns a script of the task with its absolute folders taken as folders of the sandbox."""
    text = (_FOLDER / name).read_text()
    return "mkdir -p app logs/verifier\n" + text.replace("/app/", "app/").replace("/logs/", "logs/")


@solver
def solution(*, solves: bool) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        del generate
        if solves:
            done = await sandbox().exec(["sh", "-c", _script("solution/solve.sh")])
            if not done.success:
                raise RuntimeError(done.stderr)
        return state

    return solve


@scorer(metrics=[mean()])
def verifier() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        del state, target
        await sandbox().exec(["sh", "-c", _script("tests/test.sh")])
        return Score(value=float(await sandbox().read_file("logs/verifier/reward.txt")))

    return score


@task
def hello(k: int, agent: str) -> Task:
    samples = [Sample(id=number, input="Write one line into a file.") for number in range(1, k + 1)]
    return Task(
        dataset=MemoryDataset(samples),
        solver=solution(solves=agent == "oracle"),
        scorer=verifier(),
        sandbox="local",
    )
