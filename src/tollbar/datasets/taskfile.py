"""A task: its `task.toml`, its files and its instruction, and what follows from them for whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tollbar.datasets.artifactlist import ArtifactEntry, with_published
from tollbar.datasets.digests import count, digest_of
from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.instruction import Instruction
from tollbar.datasets.names import NAME_RULE, is_name
from tollbar.datasets.network import NetworkPolicy
from tollbar.datasets.problems import Problem
from tollbar.datasets.taskcheck import check_files, instructions
from tollbar.datasets.taskconfig import read_task_toml
from tollbar.datasets.taskmodel import (
    CollectHook,
    EnvironmentConfig,
    Step,
    TaskConfig,
    VerifierMode,
)
from tollbar.datasets.tree import Tree

TASK_TOML: Final = "task.toml"
COMPOSE: Final = "docker-compose.yaml"


@dataclass(frozen=True)
class ImagePlan:
    """Where the image of a sandbox comes from."""

    context: str | None
    """Folder of the task that is the build context (`environment`, `tests`, `steps/<name>/tests`), or None."""
    docker_image: str | None
    """A named image in place of a build, or None."""
    compose: bool
    """The context holds a compose file."""
    services: str | None = None
    """Folder of that compose file, or None."""
    has_tests: bool = False
    """The image already contains `/tests`: the task's tests are not uploaded."""


@dataclass(frozen=True)
class NetworkPlan:
    """The policy that a sandbox starts with and the one of a phase in it; a mode None was not written."""

    baseline: NetworkPolicy
    phase: NetworkPolicy

    @property
    def changes(self) -> bool:
        """Says whether the backend must change the policy after the start."""
        return self.phase != self.baseline


@dataclass(frozen=True)
class Task:
    """One task as it runs. Methods take the step of a multi-step task, or None."""

    name: str
    digest: str
    config: TaskConfig
    paths: frozenset[str]
    """Every file that belongs to the task; their bytes are `task_files` of its stored tar."""
    instruction: Instruction | None
    """None for a multi-step task."""
    step_instructions: Mapping[str, Instruction]

    @property
    def task_id(self) -> str:
        return self.name.partition("/")[2]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.config.steps

    def instruction_of(self, step: Step | None = None) -> Instruction:
        """Returns what the agent is told."""
        found = self.instruction if step is None else self.step_instructions[step.name]
        assert found is not None
        return found

    # Time limits, in seconds.

    def agent_timeout_s(self, step: Step | None = None) -> float | None:
        """Returns the agent's limit; None: the runner's maximum. A step without one inherits the task's."""
        own = step.agent.timeout_s if step is not None else None
        return self.config.agent.timeout_s if own is None else own

    def verifier_timeout_s(self, step: Step | None = None) -> float:
        """Returns the test script's limit. A step without one gets 600, not the task's."""
        return (step or self.config).verifier.timeout_s

    # Where things run.

    def verifier_mode(self, step: Step | None = None) -> VerifierMode:
        return self.config.verifier_mode(step)

    def environment_image(self) -> ImagePlan:
        """Returns the image of the agent's sandbox (and of a shared verifier)."""
        image = self.config.environment.docker_image
        return ImagePlan(None if image else "environment", image, *self._compose("environment"))

    def verifier_environment(self, step: Step | None = None) -> EnvironmentConfig:
        """Returns the settings of the verifier's sandbox; in shared mode those of the agent's."""
        if self.verifier_mode(step) is VerifierMode.SHARED:
            return self.config.environment
        own = step.verifier.environment if step is not None else None
        return own or self.config.verifier.environment or self.config.environment

    def verifier_image(self, step: Step | None = None) -> ImagePlan:
        """Returns the image of the verifier's sandbox: the step's, else the task's, else the environment's."""
        if self.verifier_mode(step) is VerifierMode.SEPARATE:
            for verifier, folder in self._verifier_folders(step):
                if verifier is not None and verifier.docker_image:
                    return ImagePlan(None, verifier.docker_image, *self._compose(folder), has_tests=True)
                if f"{folder}/Dockerfile" in self.paths or f"{folder}/{COMPOSE}" in self.paths:
                    return ImagePlan(folder, None, *self._compose(folder), has_tests=True)
        return self.environment_image()

    def _compose(self, folder: str) -> tuple[bool, str | None]:
        found = f"{folder}/{COMPOSE}" in self.paths
        return found, folder if found else None

    def _verifier_folders(self, step: Step | None) -> list[tuple[EnvironmentConfig | None, str]]:
        own = [] if step is None else [(step.verifier.environment, f"{step.folder}/tests")]
        return [*own, (self.config.verifier.environment, "tests")]

    def tests_folders(self, step: Step | None = None) -> tuple[str, ...]:
        """Returns the folders that make up `/tests`, in the order in which they are laid over each other."""
        folders = ("tests",) if step is None else ("tests", f"{step.folder}/tests")
        return tuple(folder for folder in folders if any(path.startswith(folder + "/") for path in self.paths))

    @property
    def test_script(self) -> str:
        """Returns the name of the script in `/tests`."""
        return f"test{self.config.environment.os.script_suffix}"

    def solution_folder(self, step: Step | None = None) -> str | None:
        """Returns the folder whose `solve.sh` the oracle runs, or None when there is no solution."""
        script = f"solve{self.config.environment.os.script_suffix}"
        own = [f"{step.folder}/solution"] if step is not None else []
        return next((folder for folder in [*own, "solution"] if f"{folder}/{script}" in self.paths), None)

    def has_solution(self, step: Step | None = None) -> bool:
        return self.solution_folder(step) is not None

    # Environment variables; values may be references (see `variables.resolve`).

    def environment_env(self) -> dict[str, str]:
        return dict(self.config.environment.env)

    def verifier_env(self, step: Step | None = None) -> dict[str, str]:
        """Returns the verifier's own variables: the task's, then the step's; a Job's come over them."""
        own = step.verifier.env if step is not None else {}
        return {**self.config.verifier.env, **own}

    def solution_env(self) -> dict[str, str]:
        return dict(self.config.solution_env)

    # Users, network, hooks, artifacts.

    def agent_user(self, step: Step | None = None) -> str | int | None:
        own = step.agent.user if step is not None else None
        return self.config.agent.user if own is None else own

    def verifier_user(self, step: Step | None = None) -> str | int | None:
        own = step.verifier.user if step is not None else None
        return self.config.verifier.user if own is None else own

    def agent_network(self, step: Step | None = None) -> NetworkPlan:
        own = step.agent.network if step is not None else None
        baseline = self.config.environment.network
        return NetworkPlan(baseline, own or self.config.agent.network or baseline)

    def verifier_network(self, step: Step | None = None) -> NetworkPlan:
        own = step.verifier.network if step is not None else None
        baseline = self.verifier_environment(step).network
        return NetworkPlan(baseline, own or self.config.verifier.network or baseline)

    def collect_hooks(self, step: Step | None = None) -> tuple[CollectHook, ...]:
        own = step.verifier.collect if step is not None else ()
        return (*self.config.verifier.collect, *own)

    def artifacts(self, step: Step | None = None) -> tuple[ArtifactEntry, ...]:
        """Returns what is sealed: the publish folder unless declared, the task's entries, then the step's."""
        own = step.artifacts if step is not None else ()
        return with_published((*self.config.artifacts, *own))


def load_task(files: Mapping[str, bytes], folder: str, *, namespace: str = "local") -> Task:
    """Returns the task whose folder holds `files`; raises `UnsupportedTaskFormat` with all of its problems.

    A task without `[task]` is named `<namespace>/<folder>`.
    """
    problems: list[Problem] = []
    found = read_task(Tree(files), folder, f"{namespace}/{folder.rpartition('/')[2]}", problems)
    if found is None or problems:
        raise UnsupportedTaskFormat(problems)
    return found[0]


def read_task(
    tree: Tree, folder: str, default_name: str, problems: list[Problem]
) -> tuple[Task, dict[str, bytes]] | None:
    """Reads one task folder (`tree` holds paths relative to it; `folder` names it in problems).

    Returns the task and the files that belong to it; None when its `task.toml` cannot be read at all.
    """
    counted = count(tree, folder, problems)
    config = _config(tree, folder, counted.files, problems)
    if config is None:
        return None
    task = _task(config, default_name, counted.files, folder, problems)
    if not is_name(task.name):
        message = "is not named: add [task] with a name, or rename the folder"
        problems.append(Problem(_within(folder, TASK_TOML), message, key="task.name", allowed=NAME_RULE))
    check_files(task.config, counted, folder, problems, verifier_has_tests=_carries_tests(task))
    return task, counted.files


def stored_task(files: Mapping[str, bytes], name: str) -> Task:
    """Returns the task of files that were stored: ignore rules were applied before, checks were passed."""
    problems: list[Problem] = []
    config = read_task_toml(TASK_TOML, files[TASK_TOML], problems)
    if config is None or problems:
        raise UnsupportedTaskFormat(problems)
    return _task(config, name, files, "", problems)


def _config(tree: Tree, folder: str, counted: Mapping[str, bytes], problems: list[Problem]) -> TaskConfig | None:
    data = counted.get(TASK_TOML, tree.files.get(TASK_TOML))
    return None if data is None else read_task_toml(_within(folder, TASK_TOML), data, problems)


def _task(
    config: TaskConfig, default_name: str, files: Mapping[str, bytes], folder: str, problems: list[Problem]
) -> Task:
    root, steps = instructions(config, files, folder, problems)
    name = config.package.name if config.package is not None else default_name
    return Task(name, digest_of(files), config, frozenset(files), root, steps)


def _carries_tests(task: Task) -> frozenset[str]:
    """Returns the names of steps (`""`: the task itself) whose verifier image already contains the tests."""
    parts: list[Step | None] = list(task.steps) or [None]
    return frozenset((step.name if step else "") for step in parts if task.verifier_image(step).has_tests)


def _within(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path
