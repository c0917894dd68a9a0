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


class SoftwareUnknown(TollbarError):
    """No software of that name can be installed, or the version is no version."""

    code = "AGENT_SOFTWARE_UNKNOWN"
    status = 404

    def __init__(self, wanted: str, known: list[str]) -> None:
        super().__init__(
            f"No software {wanted} can be installed.", hint=f"NAME or NAME@VERSION, of: {', '.join(known)}", known=known
        )


class InstallToolMissing(TollbarError):
    """The machine lacks the program that would install the software."""

    code = "INSTALL_TOOL_MISSING"
    status = 409

    def __init__(self, name: str, tool: str, fix: str) -> None:
        super().__init__(f"{name} is installed by {tool}, which this machine lacks.", hint=fix, tool=tool)


class InstallFailed(TollbarError):
    """The package manager could not install the software; nothing of it is left."""

    code = "AGENT_INSTALL_FAILED"
    status = 409

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} could not be installed: {problem}")


class AgentNotInstalled(TollbarError):
    """No living worker has the software of the Job's agent."""

    code = "AGENT_NOT_INSTALLED"
    status = 409

    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"The agent needs {wanted}, and no worker has it.",
            hint=f"On each worker's machine, with its data directory: tollbar agents install {wanted}",
            software=wanted,
        )


class AgentSetupFailed(Exception):
    """This task cannot be run by this agent; becomes the Trial's reason `AGENT_SETUP_FAILED`."""

    reason = "AGENT_SETUP_FAILED"

    def __init__(self, detail: str, message: str) -> None:
        super().__init__(message)
        self.detail = detail
        self.message = message
