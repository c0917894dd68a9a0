"""What a task asks of whoever runs it, as plain JSON that stands in the catalogue.

A submission checks it against a runner without reading any file of the task.
"""

from __future__ import annotations

from typing import Any

from tollbar.datasets.taskfile import NetworkPlan, Task
from tollbar.datasets.taskmodel import EnvironmentConfig, Step, VerifierMode
from tollbar.datasets.variables import needed


def needs(task: Task) -> dict[str, Any]:
    """Returns resources, limits, users, networks and variables of all sandboxes of a task."""
    config = task.config
    parts: list[Step | None] = list(task.steps) or [None]
    separate = [step for step in parts if task.verifier_mode(step) is VerifierMode.SEPARATE]
    environments = [config.environment, *(task.verifier_environment(step) for step in separate)]
    images = [task.environment_image(), *(task.verifier_image(step) for step in separate)]
    users = {str(user) for step in parts for user in (task.agent_user(step), task.verifier_user(step)) if user}
    hosts = [entry.service for step in parts for entry in (*task.artifacts(step), *task.collect_hooks(step))]
    return {
        "os": config.environment.os.value,
        "compose": any(image.compose for image in images) or any(host != "main" for host in hosts),
        "docker_images": sorted({image.docker_image for image in images if image.docker_image}),
        "users": sorted(users - {"root", "0"}),
        "gpus": max(environment.gpus or 0 for environment in environments),
        "tpu": any(environment.tpu is not None for environment in environments),
        "environment": _resources(config.environment),
        "verifier_environment": _resources(task.verifier_environment(parts[0])),
        "networks": [_network("agent", step, task.agent_network(step)) for step in parts]
        + [_network("verifier", step, task.verifier_network(step)) for step in parts],
        "variables": list(_variables(task, parts)),
        "solution_variables": list(needed(config.solution_env)),
        "healthcheck": any(environment.healthcheck is not None for environment in environments)
        or any(step.healthcheck for step in task.steps),
        "collect_hooks": any(task.collect_hooks(step) for step in parts),
        "keep_agent_processes": config.own.keep_agent_processes,
        "mcp_servers": len(config.environment.mcp_servers),
        "skills": config.environment.skills_dir is not None,
        "steps": len(task.steps),
        "verifier_mode": "separate" if len(separate) == len(parts) else "shared",
        "verifier_model": config.own.verifier_model,
        "agent_timeout_s": [task.agent_timeout_s(step) for step in parts],
        "verifier_timeout_s": [task.verifier_timeout_s(step) for step in parts],
        "has_solution": all(task.has_solution(step) for step in parts),
    }


def _resources(environment: EnvironmentConfig) -> dict[str, Any]:
    return {
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb,
        "storage_mb": environment.storage_mb,
        "build_timeout_s": environment.build_timeout_s,
    }


def _network(phase: str, step: Step | None, plan: NetworkPlan) -> dict[str, Any]:
    return {
        "phase": phase,
        "step": step.name if step is not None else None,
        "mode": plan.phase.mode.value if plan.phase.mode is not None else None,
        "baseline": plan.baseline.mode.value if plan.baseline.mode is not None else None,
        "changes": plan.changes,
    }


def _variables(task: Task, parts: list[Step | None]) -> tuple[str, ...]:
    tables = [task.environment_env()]
    for step in parts:
        tables.append(dict(task.verifier_environment(step).env))
        tables.append(task.verifier_env(step))
    return needed(*tables)
