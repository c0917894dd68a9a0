"""Reads a `task.toml`, schema 1.0 to 1.4, completely: every unknown key and every wrong value is a problem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tollbar.datasets.artifactlist import MAIN, read_artifacts, service_problem
from tollbar.datasets.environmentfile import read_environment, read_healthcheck
from tollbar.datasets.names import NAME_RULE, is_name, step_key, step_name_problem
from tollbar.datasets.network import read_override
from tollbar.datasets.ownkeys import OWN_PATH, read_own_keys
from tollbar.datasets.problems import Document, Problem
from tollbar.datasets.reader import Table, nonempty, or_default
from tollbar.datasets.taskmodel import (
    DEFAULT_VERIFIER_TIMEOUT_S,
    SCHEMAS,
    AgentConfig,
    Author,
    CollectHook,
    PackageInfo,
    RewardStrategy,
    Step,
    TaskConfig,
    VerifierConfig,
    VerifierMode,
)
from tollbar.datasets.tomltext import read_toml

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})\Z")
_STEP_ONLY: Final = "it belongs into an entry of [[steps]]"
_ROOT_REMARKS: Final = {"min_reward": _STEP_ONLY, "healthcheck": "it belongs into [environment] or [[steps]]"}


def read_task_toml(file: str, data: bytes, problems: list[Problem]) -> TaskConfig | None:
    """Returns what a `task.toml` says; None when it is no TOML. Faults are added to `problems`."""
    opened = read_toml(file, data, problems)
    if opened is None:
        return None
    document, values = opened
    root = Table(document, (), values)
    metadata = root.table("metadata")
    free = metadata.raw() if metadata is not None else {}
    steps = _steps(root)
    config = TaskConfig(
        schema_version=read_schema_version(root, SCHEMAS, legacy="version"),
        source=root.text("source"),
        artifacts=read_artifacts(root),
        reward_strategy=_strategy(root, has_steps=bool(steps) or root.raw_value("steps") not in (None, [])),
        metadata=free,
        own=read_own_keys(document, free),
        package=read_package(root.table("task")),
        agent=_agent(root.table("agent")),
        verifier=_verifier(root.table("verifier")),
        environment=read_environment(root.table("environment") or Table(document, ("environment",), {})),
        solution_env=_solution(root.table("solution")),
        steps=steps,
    )
    root.close(_ROOT_REMARKS)
    _check_kept_processes(document, config)
    return config


def read_schema_version(root: Table, known: Sequence[str], *, legacy: str | None = None) -> str:
    """Reads `schema_version`, or its legacy name; a newer one than the newest of `known` is a problem."""
    newest = known[-1]

    def check(text: str) -> str | None:
        if text in known:
            return None
        match = _VERSION.match(text)
        newer = match is not None and (int(match[1]), int(match[2])) > tuple(int(part) for part in newest.split("."))
        return f'must be at most "{newest}", the newest that can be read' if newer else f'must be "1.0" to "{newest}"'

    written = root.text("schema_version", check=check)
    old = root.text(legacy, check=check) if legacy is not None else None
    if legacy is not None and written is not None and old is not None and written != old:
        root.problem(legacy, "says another version than schema_version; drop it", allowed=written)
    return or_default(written, or_default(old, newest))


def _strategy(root: Table, *, has_steps: bool) -> RewardStrategy | None:
    written = root.word("multi_step_reward_strategy", RewardStrategy)
    if written is not None and not has_steps:
        root.problem("multi_step_reward_strategy", "is only allowed with [[steps]]")
        return None
    return or_default(written, RewardStrategy.MEAN) if has_steps else None


def read_authors(table: Table) -> tuple[Author, ...]:
    """Reads `authors`: tables of `name` and `email`."""
    authors: list[Author] = []
    for entry in table.tables("authors"):
        name, email = entry.text("name", required=True), entry.text("email")
        entry.close()
        if name is not None:
            authors.append(Author(name, email))
    return tuple(authors)


def name_problem(text: str) -> str | None:
    """Returns the rule that the name of a task or dataset breaks, or None."""
    return None if is_name(text) else f"must be {NAME_RULE}"


def read_package(table: Table | None) -> PackageInfo | None:
    """Reads `[task]` or `[dataset]`; None when it is absent or its name is refused."""
    if table is None:
        return None
    name = table.text("name", required=True, check=name_problem)
    package = PackageInfo(
        name=name or "",
        version=table.text("version", check=nonempty),
        description=or_default(table.text("description"), ""),
        authors=read_authors(table),
        keywords=table.texts("keywords") or (),
    )
    table.close()
    return None if name is None else package


def _agent(table: Table | None) -> AgentConfig:
    if table is None:
        return AgentConfig()
    agent = AgentConfig(
        timeout_s=table.number("timeout_sec", above=0),
        user=table.text_or_id("user"),
        network=read_override(table),
    )
    table.close()
    return agent


def _verifier(table: Table | None) -> VerifierConfig:
    if table is None:
        return VerifierConfig()
    environment = table.table("environment")
    verifier = VerifierConfig(
        timeout_s=or_default(table.number("timeout_sec", above=0), DEFAULT_VERIFIER_TIMEOUT_S),
        env=table.text_map("env"),
        user=table.text_or_id("user"),
        mode=table.word("environment_mode", VerifierMode),
        environment=None if environment is None else read_environment(environment),
        network=read_override(table),
        collect=tuple(hook for entry in table.tables("collect") if (hook := _collect(entry)) is not None),
    )
    if verifier.mode is VerifierMode.SHARED and environment is not None:
        table.problem("environment_mode", 'cannot be "shared" beside a table environment', allowed='"separate"')
    table.close()
    return verifier


def _collect(table: Table) -> CollectHook | None:
    command = table.text("command", required=True, check=nonempty)
    hook = CollectHook(
        command=command or "",
        service=or_default(table.text("service", check=service_problem), MAIN),
        timeout_s=or_default(table.number("timeout_sec", above=0), 60.0),
        user=table.text_or_id("user"),
    )
    table.close()
    return None if command is None else hook


def _solution(table: Table | None) -> dict[str, str]:
    if table is None:
        return {}
    env = table.text_map("env")
    table.close()
    return env


def _steps(root: Table) -> tuple[Step, ...]:
    steps: list[Step] = []
    first: dict[str, str] = {}
    for table in root.tables("steps"):
        step = _step(table)
        if step is None:
            continue
        key = step_key(step.name)
        if key in first:
            table.problem("name", f'is the same folder name as that of the step "{first[key]}"', allowed="unique names")
            continue
        first[key] = step.name
        steps.append(step)
    return tuple(steps)


def _step(table: Table) -> Step | None:
    name = table.text("name", required=True, check=step_name_problem)
    step = Step(
        name=name or "",
        agent=_agent(table.table("agent")),
        verifier=_verifier(table.table("verifier")),
        min_reward=_min_reward(table),
        healthcheck=read_healthcheck(table),
        artifacts=read_artifacts(table),
    )
    table.close()
    return None if name is None else step


def _min_reward(table: Table) -> float | dict[str, float] | None:
    value: Any = table.raw_value("min_reward")
    if not isinstance(value, dict):
        return table.number("min_reward")
    entries = Table(table.document, (*table.path, "min_reward"), value)
    limits = {name: entries.number(name) for name in entries.names()}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _check_kept_processes(document: Document, config: TaskConfig) -> None:
    """Living agent processes make sense only beside a verifier in the same sandbox."""
    if not config.own.keep_agent_processes:
        return
    parts = config.steps or (None,)
    if any(config.verifier_mode(step) is VerifierMode.SEPARATE for step in parts):
        document.add((*OWN_PATH, "keep_agent_processes"), "is only allowed where every verifier is shared")
