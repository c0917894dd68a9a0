"""What the HTTP interface itself refuses."""

from __future__ import annotations

from collections.abc import Sequence

from tollbar.kit.errors import MethodNotAllowed, TollbarError


class RateLimited(TollbarError):
    """Too many requests within a minute; `retry_after` is the whole number of seconds until one is let in again."""

    code = "RATE_LIMITED"
    status = 429

    def __init__(self, per_minute: int, retry_after_s: int) -> None:
        super().__init__(f"More than {per_minute} requests in a minute.", retry_after=retry_after_s)


class HostNotAllowed(TollbarError):
    """The request's `Host` is none of this server's names: a page elsewhere may have rebound its own name to us."""

    code = "INVALID_REQUEST"
    status = 421

    def __init__(self) -> None:
        super().__init__(
            "This server does not answer to that Host.", hint="An operator adds names with TOLLBAR_ALLOWED_HOSTS."
        )


class WrongMethod(MethodNotAllowed):
    """The route exists, the method does not; `allow` is the answer's `Allow` header."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allow = ", ".join(allowed)
        super().__init__(method, self.allow)


class CheckpointNotFound(TollbarError):
    """Training is not offered, so there are no checkpoints."""

    code = "CHECKPOINT_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such checkpoint.")


class ServingProfileNotFound(TollbarError):
    """Serving models is not offered, so there are no serving profiles."""

    code = "SERVING_PROFILE_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such serving profile.")


class AdapterNotFound(TollbarError):
    """Training is not offered, so there are no trained adapters."""

    code = "ADAPTER_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such adapter.")


class EndpointNotFound(TollbarError):
    """Serving models is not offered, so there are no endpoints."""

    code = "ENDPOINT_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such endpoint.")


class TrialTrainingNotFound(TollbarError):
    """A Trial has no training data: training is not offered."""

    code = "TRIAL_TRAINING_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("The Trial has no training data.")


class TrialCheckpointsNotFound(TollbarError):
    """A Trial has no checkpoints: training is not offered."""

    code = "TRIAL_CHECKPOINTS_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("The Trial has no checkpoints.")
