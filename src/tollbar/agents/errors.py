"""What can be wrong with a profile or an agent."""

from __future__ import annotations

from tollbar.kit.errors import TollbarError


class ProfileNotFound(TollbarError):
    """No profile, or no such version of it, in this project."""

    code = "PROFILE_NOT_FOUND"
    status = 404

    def __init__(self, name: str, version: str | None = None) -> None:
        what = name if version is None else f"{name}@{version}"
        super().__init__(f"There is no profile {what} in this project.", hint="List them with: tollbar profiles list")


class ProfileDefaultRequired(TollbarError):
    """A profile was named without a version and has no default one."""

    code = "PROFILE_DEFAULT_REQUIRED"
    status = 409

    def __init__(self, name: str) -> None:
        super().__init__(f"The profile {name} has no default version.", hint="Name a version, or set a default.")


class ProfileArchived(TollbarError):
    """The version is archived: it can be read, not run."""

    code = "PROFILE_ARCHIVED"
    status = 409

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f"The profile {name}@{version} is archived.")


class InvalidProfile(TollbarError):
    """The profile cannot be run: no agent, an unknown agent, or a parameter that its agent does not know."""

    code = "INVALID_PROFILE"
    status = 422

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"The profile {name} cannot be run: {problem}.")


class AgentSetupFailed(Exception):
    """This task cannot be run by this agent; becomes the Trial's reason `AGENT_SETUP_FAILED`."""

    reason = "AGENT_SETUP_FAILED"

    def __init__(self, detail: str, message: str) -> None:
        super().__init__(message)
        self.detail = detail
        self.message = message
