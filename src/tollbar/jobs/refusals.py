"""What a backend cannot give a task is refused before a sandbox is made or money is reserved: one pure function.

It reads the task's needs as they stand in the catalogue, so a submission asks it without opening any task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.datasets.taskfile import Task
from tollbar.jobs import networks
from tollbar.jobs.forms import AskedForm, held_for
from tollbar.jobs.parts import parts_of
from tollbar.kit.addresses import is_address
from tollbar.sandboxes.interface import Capabilities, Form, Network


@dataclass(frozen=True)
class Refused:
    """Why a task cannot run here: the detail of `ENVIRONMENT_REFUSED`, and a message that names the key."""

    detail: str
    message: str


_NETWORKS: Final = {"allowlist": Network.ALLOWLIST, "public": Network.PUBLIC}
_ROOT: Final = frozenset({None, "root", "0", 0})


def check(
    needs: Mapping[str, Any],
    can: Capabilities,
    params: Mapping[str, Any],
    *,
    oracle: bool,
    form: str = AskedForm.AUTO,
) -> Refused | None:
    """Returns the first thing that the task asks and cannot have, or None.

    `params` are the Job's parameters: the only place where variables of a task may come from. `oracle`: the task's
    solution runs, so its variables count, too. `form` is what the Job asks of its sandboxes (`forms.AskedForm`).
    """
    return next(_problems(needs, can, params, oracle=oracle, form=form), None)


def _problems(
    needs: Mapping[str, Any], can: Capabilities, params: Mapping[str, Any], *, oracle: bool, form: str
) -> Iterator[Refused]:
    if needs["os"] != "linux":
        yield Refused("os", f"environment.os: no backend here runs {needs['os']}.")
    if needs["compose"] and not can.compose:
        yield Refused("key", "docker-compose.yaml: this backend runs no services; the docker backend does.")
    if needs["users"] and not can.users:
        yield Refused("key", f"user: this backend runs one user only, not {', '.join(needs['users'])}; docker does.")
    if needs["gpus"] and not can.gpu:
        yield Refused("gpu", "environment.gpus: this backend gives no GPU.")
    if needs["tpu"]:
        yield Refused("gpu", "environment.tpu: no backend here gives a TPU.")
    for network in needs["networks"]:
        yield from _network(network, can)
    missing = [*needs["variables"], *(needs["solution_variables"] if oracle else [])]
    for name in missing:
        if name.upper() not in params:
            yield Refused("variable", f"${{{name}}}: the task needs this variable; give it as a parameter of the Job.")
    if form == AskedForm.ONE_SHOT and Form.ONE_SHOT not in can.forms:
        yield Refused("key", "execution.sandbox_form one_shot: this backend has held sandboxes only.")
    held = held_for(needs) or ("network_mode allowlist" if networks.listed(needs, networks.VERIFIER) else None)
    if form == AskedForm.ONE_SHOT and held is not None:
        yield Refused("key", f"execution.sandbox_form one_shot: {held} of this task needs a held sandbox.")
    if needs["healthcheck"] and not can.healthcheck:
        yield Refused("key", "healthcheck: this backend runs none.")
    yield from _not_yet(needs)


def check_task(task: Task, can: Capabilities) -> Refused | None:
    """Returns the first thing that the task itself asks beyond its catalogued needs and cannot have, or None."""
    hooks = [hook for step in task.steps or (None,) for hook in task.collect_hooks(step)]
    hosts = [entry.service for step in task.steps or (None,) for entry in task.artifacts(step)]
    if any(host != "main" for host in [*hosts, *(hook.service for hook in hooks)]):
        return Refused("key", "artifacts.service: only main's files are collected in this version.")
    if not can.users and any(hook.user not in _ROOT for hook in hooks):
        return Refused("key", "verifier.collect.user: this backend runs one user only.")
    phases = [(part, phase) for part in parts_of(task) for phase in (networks.AGENT, networks.VERIFIER)]
    hosts = [host for part, phase in phases for host in networks.policy(part, phase).allowed_hosts]
    address = next((host for host in hosts if is_address(host.partition("/")[0])), None)
    if address is not None:
        return Refused("network", f"allowed_hosts {address}: the way out knows hosts by their names only.")
    return None


def _network(network: Mapping[str, Any], can: Capabilities) -> Iterator[Refused]:
    wanted = _NETWORKS.get(network["mode"] or "")
    if wanted is not None and wanted not in can.networks:
        yield Refused("network", f"{network['phase']}: network_mode {network['mode']} is not granted by this runner.")
    elif network["changes"] and _NETWORKS.get(network["baseline"] or "", Network.NONE) not in can.networks:
        mode = network["baseline"]
        yield Refused("network", f"{network['phase']}: network_mode {mode} of its environment is not granted here.")


def _not_yet(needs: Mapping[str, Any]) -> Iterator[Refused]:
    """What the format has and this version does not run."""
    if needs.get("keep_agent_processes"):
        yield Refused("key", "metadata.tollbar.keep_agent_processes: not offered in this version.")
    if needs["mcp_servers"]:
        yield Refused("key", "environment.mcp_servers: not offered in this version.")
    if needs["skills"]:
        yield Refused("key", "environment.skills_dir: not offered in this version.")
    if needs["verifier_model"]:
        yield Refused("key", "metadata.tollbar.verifier_model: model judges are not in this version.")


def substitutions(needs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what is silently public elsewhere and closed here: a task that writes no network mode gets none."""
    if any(network["mode"] is None for network in needs["networks"]):
        return [{"kind": "network", "declared": "public", "used": "none"}]
    return []
