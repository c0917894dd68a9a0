"""Errors of sandboxes: outcomes of a trial (with the wire's `reason`), and refusals of a runner reference."""

from __future__ import annotations

from typing import ClassVar

from tollbar.kit.errors import TollbarError


class EnvironmentFailure(Exception):
    """An outcome of a trial, never an HTTP error: `reason` is the wire's, `detail` a lower-case word within it."""

    reason: ClassVar[str] = "ENVIRONMENT_START_FAILED"

    def __init__(self, detail: str, message: str) -> None:
        super().__init__(message)
        self.detail = detail
        self.message = message


class EnvironmentRefused(EnvironmentFailure):
    """The backend cannot honour what the task asks; nothing was started.

    `detail` is `key`, `substitution`, `network`, `gpu`, `os` or `variable`; the message names the key or line.
    """

    reason = "ENVIRONMENT_REFUSED"


class EnvironmentBuildFailed(EnvironmentFailure):
    """A build step of the environment failed (`build`, `timeout`); the message ends with the last output."""

    reason = "ENVIRONMENT_BUILD_FAILED"


class EnvironmentStartFailed(EnvironmentFailure):
    """The sandbox did not come up (`start`, `timeout`); the message says what the host's programs printed."""

    reason = "ENVIRONMENT_START_FAILED"


class SandboxLost(EnvironmentFailure):
    """The sandbox ended without its command's doing (`worker`, `engine`), or could not be read (`seal`)."""

    reason = "SANDBOX_LOST"


class BackendUnusable(RuntimeError):
    """The machine cannot run sandboxes of this backend; the preflight says why and how to mend it."""


class InvalidRunner(TollbarError):
    """A runner reference has a form that no runner can have. Never repeats the text that was sent."""

    code = "INVALID_RUNNER"
    status = 422

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The runner reference {problem}.", hint="Write namespace/name@revision, for example envhub/base@main."
        )


class RunnerNotFound(TollbarError):
    """No runner revision has that name and revision or label."""

    code = "RUNNER_NOT_FOUND"
    status = 404

    def __init__(self, reference: str) -> None:
        super().__init__(f"There is no runner {reference}.", hint="GET /v1/runners lists them.")
