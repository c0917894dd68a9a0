"""The one error base. A leaf lives in the package that raises it and takes facts, not sentences.

An error is part of the wire contract: `code` never changes once published, `status` is its HTTP status, and
`facts` are the extra members of the error object (`job_id`, `fields`, `missing_capability`, ...).
"""

from __future__ import annotations

from typing import Any, ClassVar


class TollbarError(Exception):
    """A refusal or failure that a caller can act on; every interface maps it to its own shape.

    Subclasses set `code` (`UPPER_SNAKE`) and `status`, and build `message` from facts in their `__init__`.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def body(self) -> dict[str, Any]:
        """Returns the error object of the evaluation dialect: `code`, `message`, optional `hint`, and the facts."""
        head: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint is not None:
            head["hint"] = self.hint
        return head | self.facts


class InternalError(TollbarError):
    """A fault of tollbar itself; `error_id` is the same id as in the log."""

    code = "INTERNAL_ERROR"
    status = 500

    def __init__(self, error_id: str) -> None:
        super().__init__("Something went wrong inside the server.", error_id=error_id)


class InvalidRequest(TollbarError):
    """The request's shape is wrong; `fields` lists each `{path, problem}`. Never repeats the caller's values."""

    code = "INVALID_REQUEST"
    status = 422

    def __init__(self, fields: list[dict[str, str]]) -> None:
        noun = "field is" if len(fields) == 1 else "fields are"
        super().__init__(f"{len(fields)} {noun} not valid.", fields=fields)


class MalformedJson(TollbarError):
    """The body is not JSON as RFC 8259 has it (NaN, Infinity and duplicate keys included)."""

    code = "INVALID_REQUEST"
    status = 400

    def __init__(self, problem: str) -> None:
        super().__init__(f"The body is not valid JSON: {problem}.")


class NotFound(TollbarError):
    """No such route or tool."""

    code = "NOT_FOUND"
    status = 404

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"There is no {what}.", hint=hint)


class MethodNotAllowed(TollbarError):
    """The route exists, the method does not."""

    code = "METHOD_NOT_ALLOWED"
    status = 405

    def __init__(self, method: str, allow: str) -> None:
        super().__init__(f"{method} is not allowed here.", hint=f"Allowed: {allow}.")


class RequestTooLarge(TollbarError):
    """The body is larger than the route takes."""

    code = "REQUEST_TOO_LARGE"
    status = 413

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The body is larger than {max_bytes} bytes.", max_bytes=max_bytes)


class UnsupportedMediaType(TollbarError):
    """The body's media type is not one that the route reads."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415

    def __init__(self, expected: str) -> None:
        super().__init__(f"The body must be {expected}.")


class InvalidLimit(TollbarError):
    """A page's `limit` is out of range; nothing is clamped silently."""

    code = "INVALID_LIMIT"
    status = 422

    def __init__(self, maximum: int) -> None:
        super().__init__(f"limit must be between 1 and {maximum}.")


class InvalidCursor(TollbarError):
    """A page's `cursor` is damaged, or belongs to another list, filter or project."""

    code = "INVALID_CURSOR"
    status = 422

    def __init__(self) -> None:
        super().__init__("The cursor does not belong to this list.", hint="Ask again without a cursor.")


class InvalidAmount(TollbarError):
    """An amount of money has a wrong form or is out of range."""

    code = "INVALID_AMOUNT"
    status = 422

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}.", fields=[{"path": field, "problem": problem}])


class ServiceUnavailable(TollbarError):
    """The server cannot answer now (database away, shutting down); try again."""

    code = "SERVICE_UNAVAILABLE"
    status = 503

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not available now.", hint="Try again in a few seconds.")
