"""What a caller of the client can meet.

    ClientError
      ApiError             the server refused or failed, and said why
      ServerUnreachable    no answer came
      UnexpectedAnswer     the answer is not what the contract says
      UnusableSetting      an address, key or id cannot be used; nothing was sent
      FolderRefused        a folder cannot be packed for an upload
      DownloadDamaged      what came is not what the server announced

They are no leaves of the server's error tree: that tree is the wire contract, and these never go over the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """A failure with a stable `code`; `hint` says what to do."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def error_object(self) -> dict[str, Any]:
        """Returns the failure in the shape of the server's error object."""
        head = {"code": self.code, "message": self.message}
        return head if self.hint is None else {**head, "hint": self.hint}


class ApiError(ClientError):
    """The server's error object with its HTTP `status`; `retry_after_s` is what a 429 or 503 asked for, in seconds."""

    def __init__(self, status: int, body: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        hint = body.get("hint")
        super().__init__(
            str(body.get("code", "HTTP_ERROR")),
            str(body.get("message", f"The server answered HTTP {status}.")),
            hint if isinstance(hint, str) else None,
        )
        self.status = status
        self.body = dict(body)
        self.retry_after_s = retry_after_s

    def error_object(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, **self.body}


class ServerUnreachable(ClientError):
    """No answer came: not running, no route, or cut off while answering."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__("SERVER_UNREACHABLE", f"{url} does not answer: {problem}.", "Start a server with: tollbar up")
        self.url = url


class UnexpectedAnswer(ClientError):
    """The address answers, but not as a tollbar server does."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__("UNEXPECTED_ANSWER", f"{url} {problem}.", "Check that the URL is that of a tollbar server.")


class UnusableSetting(ClientError):
    """An address, key or id cannot be used; nothing was sent. The value of a key is never repeated."""

    def __init__(self, setting: str, problem: str, hint: str | None = None) -> None:
        super().__init__("UNUSABLE_SETTING", f"{setting} {problem}.", hint)


class FolderRefused(ClientError):
    """A folder cannot be uploaded; `problems` are one line each, as `path: what is wrong`."""

    def __init__(self, folder: str, problems: Sequence[str]) -> None:
        super().__init__("FOLDER_REFUSED", f"{folder} cannot be packed.")
        self.problems = tuple(problems)

    def error_object(self) -> dict[str, Any]:
        return {**super().error_object(), "problems": list(self.problems)}


class DownloadDamaged(ClientError):
    """The bytes that came are not those that the server announced; nothing of them is kept."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__("DOWNLOAD_DAMAGED", f"{name} {problem}.", "Ask again; nothing was kept.")
