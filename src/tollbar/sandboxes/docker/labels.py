"""How containers are named and labelled, so that each finds its own again and none reaps another's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tollbar.sandboxes.interface import SandboxSpec

_PREFIX: Final = "tollbar"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,120}\Z")
INSTALLATION: Final = f"{_PREFIX}.installation"
HOST: Final = f"{_PREFIX}.host"
OWNER: Final = f"{_PREFIX}.owner"
NAME: Final = f"{_PREFIX}.name"


@dataclass(frozen=True)
class Mark:
    """What all containers of one installation on one machine share."""

    installation: str
    """Id of the data directory: two servers on one engine never reap each other's containers."""
    host: str

    def of(self, spec: SandboxSpec) -> dict[str, str]:
        """Returns the labels of a sandbox's container."""
        return {
            INSTALLATION: self.installation,
            HOST: self.host,
            OWNER: spec.owner,
            NAME: name_of(spec),
            f"{_PREFIX}.trial": spec.name.trial_id,
            f"{_PREFIX}.try_no": str(spec.name.try_no),
            f"{_PREFIX}.purpose": spec.name.purpose.value,
        }

    def is_mine(self, labels: Mapping[str, str]) -> bool:
        """Says whether a container is this installation's, and of this machine."""
        return labels.get(INSTALLATION) == self.installation and labels.get(HOST) == self.host

    def container(self, name: str) -> str:
        """Returns the container's name on the engine."""
        return f"{_PREFIX}-{self.installation}-{name}"


def name_of(spec: SandboxSpec) -> str:
    """Returns the sandbox's name; raises `ValueError` for one that no container can have."""
    name = str(spec.name)
    if _NAME.match(name) is None:
        msg = f"{name!r} is no name of a sandbox"
        raise ValueError(msg)
    return name
