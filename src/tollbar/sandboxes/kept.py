"""Sandboxes that are kept for somebody to look at: a note in the folder says until when, and how to enter it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tollbar.sandboxes.interface import Form, ImageRef, Limits, Network, Purpose, SandboxName, SandboxSpec

_NOTE: Final = "kept"


@dataclass(frozen=True)
class Kept:
    """What the note of a kept sandbox says; `spec` has the form in which it ran."""

    until: datetime
    spec: SandboxSpec

    def write(self, folder: Path) -> None:
        """Puts the note into the sandbox's folder; an older one is replaced."""
        staging = folder / f"{_NOTE}.new"
        staging.write_text(json.dumps({"until": self.until.isoformat(), "spec": _facts(self.spec)}))
        staging.chmod(0o600)
        staging.rename(folder / _NOTE)


def read_kept(folder: Path) -> Kept | None:
    """Returns the note of a sandbox's folder, or None when it is not kept (or its note cannot be read)."""
    try:
        facts = json.loads((folder / _NOTE).read_text())
        return Kept(datetime.fromisoformat(facts["until"]), _spec(facts["spec"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _facts(spec: SandboxSpec) -> dict[str, Any]:
    return {
        "name": [spec.name.trial_id, spec.name.try_no, spec.name.purpose.value],
        "owner": spec.owner,
        "form": spec.form.value,
        "layers": [str(layer) for layer in spec.image.layers],
        "inputs": [str(layer) for layer in spec.inputs],
        "digest": spec.image.digest,
        "workdir": spec.workdir,
        "limits": asdict(spec.limits),
        "network": spec.network.value,
        "disk_level": spec.disk_level,
    }


def _spec(facts: Mapping[str, Any]) -> SandboxSpec:
    """Returns the description again, without the environment: it may hold secrets, so it is not written down."""
    trial_id, try_no, purpose = facts["name"]
    layers = tuple(map(Path, facts["layers"]))
    return SandboxSpec(
        name=SandboxName(trial_id, try_no, Purpose(purpose)),
        owner=facts["owner"],
        form=Form(facts["form"]),
        image=ImageRef(facts["digest"], layers, facts["workdir"], {}),
        workdir=facts["workdir"],
        env={},
        limits=Limits(**facts["limits"]),
        network=Network(facts["network"]),
        inputs=tuple(map(Path, facts["inputs"])),
        disk_level=facts["disk_level"],
    )
