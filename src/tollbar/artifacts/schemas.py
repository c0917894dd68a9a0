"""Artifacts as plain values, and their wire objects (contract, section 10)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tollbar.artifacts.tables import ArtifactRow
from tollbar.kit.clock import wire_time


class ArtifactKind(StrEnum):
    """What an artifact is for."""

    OUTPUT = "output"
    LOG = "log"
    VERIFIER = "verifier"


class ArtifactState(StrEnum):
    """Whether an artifact has content."""

    AVAILABLE = "available"
    MISSING = "missing"
    EXPIRED = "expired"


class UploadState(StrEnum):
    """How far the storing of its content came."""

    PENDING = "pending"
    UPLOADED = "uploaded"
    FAILED = "failed"
    DELETED = "deleted"


@dataclass(frozen=True)
class NewArtifact:
    """An artifact to record; without a hash it is one that the Trial did not write."""

    name: str
    kind: ArtifactKind
    size: int | None
    sha256: str | None

    @classmethod
    def file(cls, name: str, kind: ArtifactKind, *, size: int, sha256: str) -> NewArtifact:
        """Returns a file whose bytes are among the blobs."""
        return cls(name, kind, size, sha256)

    @classmethod
    def missing(cls, name: str, kind: ArtifactKind) -> NewArtifact:
        """Returns a declared file that the Trial did not write."""
        return cls(name, kind, None, None)


def artifact_object(row: ArtifactRow) -> dict[str, Any]:
    """Returns an artifact as a list shows it."""
    return {
        "artifact_id": row.id,
        "name": row.name,
        "kind": row.kind,
        "media_type": row.media_type,
        "size": row.size,
        "sha256": row.sha256,
        "state": row.state,
        "upload_state": row.upload_state,
        "created_at": wire_time(row.created_at),
    }
