"""Downloads that are what the server announced, or nothing."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tollbar.client.address import segment
from tollbar.client.errors import DownloadDamaged
from tollbar.client.schemas import Artifact
from tollbar.client.transport import Transport


def artifact_path(trial_id: str, artifact_id: str) -> str:
    """Returns the route of an artifact's bytes."""
    return f"trials/{segment(trial_id)}/artifacts/{segment(artifact_id)}/content"


def copy_artifact(transport: Transport, trial_id: str, artifact: Artifact, target: IO[bytes]) -> None:
    """Writes an artifact's bytes to `target`; raises `DownloadDamaged` when size or SHA-256 differ.

    Bytes are written as they come, so whoever hands in a file keeps it only when this returns.
    """
    with transport.content(artifact_path(trial_id, artifact["artifact_id"])) as chunks:
        _copy(chunks, artifact, target)


def save_artifact(transport: Transport, trial_id: str, artifact: Artifact, path: Path) -> None:
    """Saves an artifact under `path`, whose folder exists; what stood there is replaced at once, or stays whole."""
    descriptor, fresh = tempfile.mkstemp(prefix=".tollbar-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            copy_artifact(transport, trial_id, artifact, file)
            os.fchmod(file.fileno(), 0o644)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def _copy(chunks: Iterator[bytes], artifact: Artifact, target: IO[bytes]) -> None:
    size, announced = 0, artifact["size"]
    digest = hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        if announced is not None and size > announced:
            raise DownloadDamaged(artifact["name"], f"is larger than the {announced} bytes announced")
        digest.update(chunk)
        target.write(chunk)
    if announced is not None and size != announced:
        raise DownloadDamaged(artifact["name"], f"ended after {size} of {announced} bytes")
    if artifact["sha256"] is not None and digest.hexdigest() != artifact["sha256"]:
        raise DownloadDamaged(artifact["name"], "has another SHA-256 than announced")
