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


class StoreUnavailable(TollbarError):
    """Stored bytes cannot be had now."""

    code = "STORE_UNAVAILABLE"
    status = 503


class BlobMissing(StoreUnavailable):
    """Bytes that our rows or a manifest name are not in the store, or do not have their hash."""

    def __init__(self, sha256: str) -> None:
        super().__init__(f"The stored bytes {sha256[:12]} are missing or damaged.")


class StoreUnreachable(StoreUnavailable):
    """The storage of artifacts does not answer, or refuses; what it said is shortened to its first line."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The storage of artifacts cannot be used: {problem}",
            hint="Check TOLLBAR_ARTIFACTS_URL, the address and the credentials of the storage.",
        )


class InvalidStoreUrl(TollbarError):
    """The setting does not name a storage that artifacts can be kept in."""

    code = "INVALID_ARTIFACTS_URL"
    status = 409

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"TOLLBAR_ARTIFACTS_URL does not name a storage: {problem}",
            hint="Use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://ACCOUNT/CONTAINER/PREFIX or file:///FOLDER.",
        )


class ForeignStore(TollbarError):
    """This process keeps artifacts elsewhere than the installation whose database it joins."""

    code = "FOREIGN_ARTIFACTS"
    status = 409

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"The storage of artifacts of this process is not that of its database: {sha256[:12]}, which the database"
            " names, is not in it.",
            hint="Give every server and worker the same TOLLBAR_ARTIFACTS_URL; a folder must be shared between them.",
        )


def invalid_window(path: str, problem: str) -> InvalidRequest:
    """Returns the refusal of a window whose bounds are not valid."""
    return InvalidRequest([{"path": path, "problem": problem}])
