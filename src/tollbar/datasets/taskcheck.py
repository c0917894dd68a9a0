"""Checks that a task folder holds the files that its `task.toml` needs, and reads its instructions."""

from __future__ import annotations

from collections.abc import Mapping

from tollbar.datasets.digests import Counted
from tollbar.datasets.instruction import Instruction, read_instruction
from tollbar.datasets.problems import Problem
from tollbar.datasets.taskmodel import TaskConfig

INSTRUCTION = "instruction.md"
_IMAGE_FILES = ("environment/Dockerfile", "environment/docker-compose.yaml")


def instructions(
    config: TaskConfig, files: Mapping[str, bytes], folder: str, problems: list[Problem]
) -> tuple[Instruction | None, dict[str, Instruction]]:
    """Returns the task's instruction (None with steps) and those of its steps by name, as far as they exist."""
    if not config.steps:
        return _read(INSTRUCTION, files, folder, problems), {}
    found = {step.name: _read(f"{step.folder}/{INSTRUCTION}", files, folder, problems) for step in config.steps}
    return None, {name: text for name, text in found.items() if text is not None}


def _read(path: str, files: Mapping[str, bytes], folder: str, problems: list[Problem]) -> Instruction | None:
    if path not in files:
        return None
    try:
        return read_instruction(files[path].decode("utf-8"))
    except UnicodeDecodeError:
        problems.append(Problem(_within(folder, path), "is not UTF-8"))
        return None


def check_files(
    config: TaskConfig,
    counted: Counted,
    folder: str,
    problems: list[Problem],
    *,
    verifier_has_tests: frozenset[str],
) -> None:
    """Records every needed file that is missing or dropped by an ignore rule.

    `verifier_has_tests` names the steps (`""`: the task itself) whose verifier image brings its own test script.
    """

    def need(*choices: str) -> None:
        if any(path in counted.files for path in choices):
            return
        dropped = next((path for path in choices if path in counted.dropped), None)
        message = "is needed and is missing" if dropped is None else "is needed and is left out by an ignore file"
        other = f" ({' or '.join(choices[1:])} would do)" if dropped is None and choices[1:] else ""
        problems.append(Problem(_within(folder, dropped or choices[0]), message + other))

    need("task.toml")
    if config.environment.docker_image is None:
        need(*_IMAGE_FILES)
    script = f"test{config.environment.os.script_suffix}"
    if not config.steps:
        need(INSTRUCTION)
        if "" not in verifier_has_tests:
            need(f"tests/{script}")
    for step in config.steps:
        need(f"{step.folder}/{INSTRUCTION}")
        if step.name not in verifier_has_tests:
            need(f"{step.folder}/tests/{script}", f"tests/{script}")


def _within(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path
