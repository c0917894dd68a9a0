"""What can be wrong with a question about an artifact."""

from __future__ import annotations

from tollbar.kit.errors import InvalidRequest, TollbarError


class ArtifactNotFound(TollbarError):
    """No such artifact of this Trial, or its content does not exist (never written, expired, deleted)."""

    code = "ARTIFACT_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such artifact, or it has no content.")


class ArtifactNotReady(TollbarError):
    """The artifact's content is still being stored."""

    code = "ARTIFACT_NOT_READY"
    status = 409

    def __init__(self) -> None:
        super().__init__("The artifact is not stored yet.", hint="Try again in a few seconds.")


class BlobMissing(TollbarError):
    """Bytes that our rows or a manifest name are not in the store, or do not have their hash."""

    code = "STORE_UNAVAILABLE"
    status = 503

    def __init__(self, sha256: str) -> None:
        super().__init__(f"The stored bytes {sha256[:12]} are missing or damaged.")


def invalid_window(path: str, problem: str) -> InvalidRequest:
    """Returns the refusal of a window whose bounds are not valid."""
    return InvalidRequest([{"path": path, "problem": problem}])
