"""Why a caller is not let in."""

from __future__ import annotations

from tollbar.kit.errors import TollbarError


class Unauthenticated(TollbarError):
    """No key, or one that is unknown, expired or revoked; `presented` says whether there was one."""

    code = "UNAUTHENTICATED"
    status = 401

    def __init__(self, *, presented: bool) -> None:
        super().__init__(
            "The key is unknown, expired or revoked." if presented else "A key is needed.",
            hint="Send Authorization: Bearer KEY.",
        )
        self.presented = presented


class SignInLinkSpent(TollbarError):
    """The sign-in link was used before, or is older than its ten minutes, or never was one."""

    code = "UNAUTHENTICATED"
    status = 401

    def __init__(self) -> None:
        super().__init__("This sign-in link was used before or is too old.", hint="Ask the server for a new one.")


class ProjectRequired(TollbarError):
    """The key carries no project and the request names none."""

    code = "PROJECT_REQUIRED"
    status = 400

    def __init__(self) -> None:
        super().__init__("This key needs a project.", hint="Send X-Workspace-ID and X-Project-ID.")


class WorkspaceAccessDenied(TollbarError):
    """The request names a workspace that is not the caller's."""

    code = "WORKSPACE_ACCESS_DENIED"
    status = 403

    def __init__(self) -> None:
        super().__init__("This key does not belong to the workspace that the request names.")


class ProjectAccessDenied(TollbarError):
    """The request names a project that is not the caller's."""

    code = "PROJECT_ACCESS_DENIED"
    status = 403

    def __init__(self) -> None:
        super().__init__("This key does not belong to the project that the request names.")


class HumanSessionRequired(TollbarError):
    """No key may do this, whatever its rights; a person does it in the console."""

    code = "HUMAN_SESSION_REQUIRED"
    status = 403

    def __init__(self) -> None:
        super().__init__("Only a signed-in person may do this.", hint="Open the console and sign in.")
