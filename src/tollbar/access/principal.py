"""The principal: who is calling, in which project, with which capabilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollbar.kit.errors import TollbarError


class Capability(StrEnum):
    """One right; every route and tool names what it needs."""

    DATASETS_READ = "datasets.read"
    DATASETS_WRITE = "datasets.write"
    JOBS_READ = "jobs.read"
    JOBS_RUN = "jobs.run"
    JOBS_STOP = "jobs.stop"
    ARTIFACTS_DOWNLOAD = "artifacts.download"
    PROFILES_READ = "profiles.read"
    PROFILES_WRITE = "profiles.write"
    RUNNERS_READ = "runners.read"
    RUNNERS_WRITE = "runners.write"
    BILLING_READ = "billing.read"
    PROJECT_READ = "project.read"
    KEYS_MANAGE = "keys.manage"
    PROJECT_ADMIN = "project.admin"


READ_ONLY: Final = frozenset(
    {
        Capability.DATASETS_READ,
        Capability.JOBS_READ,
        Capability.ARTIFACTS_DOWNLOAD,
        Capability.PROFILES_READ,
        Capability.RUNNERS_READ,
        Capability.BILLING_READ,
        Capability.PROJECT_READ,
    }
)
PROJECT_AUTOMATION: Final = READ_ONLY | {
    Capability.JOBS_RUN,
    Capability.JOBS_STOP,
    Capability.PROFILES_WRITE,
    Capability.DATASETS_WRITE,
}
PRESETS: Final = {"Read only": READ_ONLY, "Project automation": PROJECT_AUTOMATION}


class AccessDenied(TollbarError):
    """The key may not do this; `missing_capability` names the first right that it lacks."""

    code = "ACCESS_DENIED"
    status = 403

    def __init__(self, missing: Capability) -> None:
        super().__init__(
            f"This key lacks the capability {missing.value}.",
            hint="Use a key with the Project automation preset."
            if missing in PROJECT_AUTOMATION
            else "Only a signed-in person may do this.",
            missing_capability=missing.value,
        )


@dataclass(frozen=True)
class Principal:
    """Who acts; every query is scoped by it."""

    kind: str
    """`project` (a project key), `session` (a signed-in browser) or `system` (the server itself)."""
    key_id: str
    workspace_id: str
    project_id: str
    capabilities: frozenset[Capability]

    def require(self, *needed: Capability) -> None:
        """Raises `AccessDenied` for the first capability of `needed` that is missing."""
        for capability in needed:
            if capability not in self.capabilities:
                raise AccessDenied(capability)


def system_principal(workspace_id: str, project_id: str) -> Principal:
    """Returns the server's own principal in a project, for seeding and local administration."""
    return Principal("system", "system", workspace_id, project_id, frozenset(Capability))


def known(names: Iterable[str]) -> frozenset[Capability]:
    """Returns the rights among `names`; a name that this version does not have grants nothing."""
    wanted = set(names)
    return frozenset(capability for capability in Capability if capability.value in wanted)


def in_order(capabilities: Iterable[Capability]) -> list[str]:
    """Returns capability names sorted, as they go on the wire."""
    return sorted(capability.value for capability in capabilities)
