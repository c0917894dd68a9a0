"""What the gateway refuses, and what an operator's price table or a script can have wrong."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from tollbar.kit.errors import TollbarError


class Code(StrEnum):
    """The codes of the model gateway; status and shape depend on the dialect (`dialects.refusal`)."""

    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    BUDGET_UNMETERED = "BUDGET_UNMETERED"
    REQUEST_UNBOUNDED = "REQUEST_UNBOUNDED"
    EGRESS_REFUSED = "EGRESS_REFUSED"
    MODEL_NOT_ALLOWED = "MODEL_NOT_ALLOWED"
    INVALID_REQUEST = "INVALID_REQUEST"
    KEY_INVALID = "KEY_INVALID"
    ROUTE_NOT_ALLOWED = "ROUTE_NOT_ALLOWED"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    BUDGET_BUSY = "BUDGET_BUSY"
    UPSTREAM_UNREACHABLE = "UPSTREAM_UNREACHABLE"
    LEDGER_UNAVAILABLE = "LEDGER_UNAVAILABLE"
    SCRIPT_NO_MATCH = "SCRIPT_NO_MATCH"
    SCRIPT_EXHAUSTED = "SCRIPT_EXHAUSTED"
    SCRIPT_TOOL_MISSING = "SCRIPT_TOOL_MISSING"


class Refused(Exception):
    """The gateway answers this model call itself; `message` is one sentence without the code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Unmetered(Exception):
    """An answer's usage cannot be read or priced: the call costs its worst case. Never zero."""


class InvalidPrice(TollbarError):
    """A row of an operator's price table cannot be used."""

    code = "INVALID_PRICE"
    status = 422

    def __init__(self, model: str, field: str, problem: str) -> None:
        super().__init__(
            f"The price of {model} cannot be used: {field} {problem}.", fields=[{"path": field, "problem": problem}]
        )


class InvalidScript(TollbarError):
    """A script of the scripted provider cannot be used; the message names the table and the key."""

    code = "INVALID_SCRIPT"
    status = 422

    def __init__(self, path: str, problem: str, *, name: str | None = None) -> None:
        which = "The script" if name is None else f"The script {name}"
        super().__init__(f"{which} cannot be used: {path} {problem}.", fields=[{"path": path, "problem": problem}])
        self.path = path
        self.problem = problem


class PriceNotFound(TollbarError):
    """The model is unknown, or lacks the price of its input or its output: under a cap it is not called."""

    code = "PRICE_NOT_FOUND"
    status = 404

    def __init__(self, model: str) -> None:
        super().__init__(
            f"There is no price for the model {model}.", hint="Write provider:model, such as openai:gpt-5-mini."
        )


class InvalidModelName(TollbarError):
    """A model's name is not `provider:model`."""

    code = "INVALID_MODEL_NAME"
    status = 422

    def __init__(self, given: object) -> None:
        shown = given if isinstance(given, str) and given.isprintable() and len(given) <= 128 else "the given value"
        super().__init__(
            f"{shown} is not the name of a model.", hint="Write provider:model, such as openai:gpt-5-mini."
        )


class UnsupportedProvider(TollbarError):
    """The provider is known and does not work yet."""

    code = "UNSUPPORTED_PROVIDER"
    status = 422

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(
            f"The provider {provider} is not supported: {reason}.",
            hint="Use another provider of the same model, or an OpenAI-compatible endpoint in models.toml.",
        )


class ProviderNotFound(TollbarError):
    """No provider of that name is configured here."""

    code = "PROVIDER_NOT_FOUND"
    status = 422

    def __init__(self, provider: str, variable: str | None) -> None:
        how = f"Start the server with {variable}, or add it to models.toml" if variable else "Add it to models.toml"
        super().__init__(f"There is no provider {provider} here.", hint=f"{how} in the data directory.")


class InvalidModelsFile(TollbarError):
    """The operator's file of providers and prices cannot be used."""

    code = "INVALID_MODELS_FILE"
    status = 422

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"models.toml cannot be used: {path} {problem}.", fields=[{"path": path, "problem": problem}])


class ScriptNotFound(TollbarError):
    """No script of that name is here."""

    code = "SCRIPT_NOT_FOUND"
    status = 422

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"There is no script {name} (known: {', '.join(known)}).",
            hint="Put it into the folder scripts of the data directory, as NAME.toml.",
        )
