"""The four wire dialects: which paths are served, and what a refusal looks like in each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qs

from tollbar.gateway.errors import Code, Refused
from tollbar.kit.money import PUSD_PER_USD, format_usd


class Dialect(StrEnum):
    """How a client speaks to a model; the gateway never translates one into another."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GEMINI = "gemini"


class Operation(StrEnum):
    """What a route does: only `GENERATE` costs money."""

    GENERATE = "generate"
    COUNT = "count"
    MODELS = "models"
    PING = "ping"


@dataclass(frozen=True)
class Route:
    """A served route. `model` and `streamed` are set where the path says them (Gemini), else the body does.

    `metered` is false for a stream that is one growing JSON array: it is refused under a cap.
    """

    dialect: Dialect
    operation: Operation
    model: str | None = None
    streamed: bool | None = None
    metered: bool = True


@dataclass(frozen=True)
class Answer:
    """A whole answer of the gateway itself: status, headers, body bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_FIXED: Final = {
    ("POST", "/v1/chat/completions"): (Dialect.CHAT, Operation.GENERATE),
    ("POST", "/v1/responses"): (Dialect.RESPONSES, Operation.GENERATE),
    ("POST", "/v1/messages"): (Dialect.MESSAGES, Operation.GENERATE),
    ("POST", "/v1/messages/count_tokens"): (Dialect.MESSAGES, Operation.COUNT),
    ("GET", "/v1beta/models"): (Dialect.GEMINI, Operation.MODELS),
}
_GEMINI: Final = re.compile(r"/v1beta/models/([^/:?#]+):(generateContent|streamGenerateContent|countTokens)\Z")


def route(method: str, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> Route | None:
    """Returns the route of a request, None for a path that is not served (404 `ROUTE_NOT_ALLOWED`).

    `headers` have lower-case names; a model list is in Anthropic's shape where `anthropic-version` is sent, and a
    request to upgrade the connection has no route.
    """
    given = headers or {}
    if "upgrade" in given:
        return None
    if (method, path) == ("HEAD", "/"):
        return Route(Dialect.MESSAGES, Operation.PING)
    if (method, path) == ("GET", "/v1/models"):
        return Route(Dialect.MESSAGES if "anthropic-version" in given else Dialect.CHAT, Operation.MODELS)
    if (fixed := _FIXED.get((method, path))) is not None:
        return Route(*fixed)
    if method != "POST" or (match := _GEMINI.match(path)) is None:
        return None
    model, verb = match.groups()
    if verb == "countTokens":
        return Route(Dialect.GEMINI, Operation.COUNT, model)
    streamed = verb == "streamGenerateContent"
    metered = not streamed or parse_qs(query).get("alt") == ["sse"]
    return Route(Dialect.GEMINI, Operation.GENERATE, model, streamed, metered)


@dataclass(frozen=True)
class _Shape:
    """A code's status and type: for `messages`, for the two OpenAI dialects, for `gemini`; and whether to try again."""

    messages: tuple[int, str]
    openai: tuple[int, str]
    gemini: tuple[int, str]
    retry: bool | None = False


def _same(status: int, messages: str, openai: str, gemini: str, retry: bool | None = False) -> _Shape:
    return _Shape((status, messages), (status, openai), (status, gemini), retry)


_INVALID: Final = _same(400, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT")
_MONEY: Final = _Shape((402, "billing_error"), (400, "invalid_request_error"), (400, "FAILED_PRECONDITION"))
_AGAIN: Final = _same(503, "overloaded_error", "server_error", "UNAVAILABLE", retry=True)
_SHAPES: Final[Mapping[Code, _Shape]] = {
    Code.BUDGET_EXCEEDED: _MONEY,
    Code.BUDGET_UNMETERED: _MONEY,
    Code.REQUEST_UNBOUNDED: _INVALID,
    Code.EGRESS_REFUSED: _INVALID,
    Code.MODEL_NOT_ALLOWED: _INVALID,
    Code.INVALID_REQUEST: _INVALID,
    Code.KEY_INVALID: _same(401, "authentication_error", "authentication_error", "UNAUTHENTICATED"),
    Code.ROUTE_NOT_ALLOWED: _same(404, "not_found_error", "invalid_request_error", "NOT_FOUND"),
    Code.REQUEST_TOO_LARGE: _same(413, "request_too_large", "invalid_request_error", "INVALID_ARGUMENT"),
    Code.UNSUPPORTED_MEDIA_TYPE: _same(415, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    Code.BUDGET_BUSY: _AGAIN,
    Code.UPSTREAM_UNREACHABLE: _same(502, "api_error", "server_error", "UNAVAILABLE", retry=None),
    Code.LEDGER_UNAVAILABLE: _AGAIN,
    Code.SCRIPT_NO_MATCH: _INVALID,
    Code.SCRIPT_EXHAUSTED: _INVALID,
    Code.SCRIPT_TOOL_MISSING: _INVALID,
}


def refusal(dialect: Dialect, code: Code, message: str) -> Answer:
    """Returns a refusal in the dialect's shape; the text starts with the code, because most clients show only it."""
    shape = _SHAPES[code]
    text = f"{code}: {message}"
    if dialect is Dialect.MESSAGES:
        status, kind = shape.messages
        document: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": text}}
    elif dialect is Dialect.GEMINI:
        status, kind = shape.gemini
        document = {"error": {"code": status, "message": text, "status": kind}}
    else:
        status, kind = shape.openai
        document = {"error": {"message": text, "type": kind, "param": None, "code": str(code)}}
    headers = {"content-type": "application/json", "x-tollbar-code": str(code)}
    if shape.retry is not None:
        headers["x-should-retry"] = "true" if shape.retry else "false"
    if code is Code.BUDGET_BUSY:
        headers["retry-after"] = "1"
    return Answer(status, headers, json.dumps(document).encode())


def budget_exceeded(least_pusd: int, left_pusd: int, cap_pusd: int, spent_pusd: int, reserved_pusd: int) -> Refused:
    """Returns the refusal of a reached cap with the numbers that explain it, all in pUSD."""
    return Refused(
        Code.BUDGET_EXCEEDED,
        f"this call needs at least {_rounded(least_pusd, ROUND_CEILING)} USD and {_rounded(left_pusd, ROUND_FLOOR)}"
        f" USD of {_exact(cap_pusd)} USD is left (spent {_exact(spent_pusd)}, reserved {_exact(reserved_pusd)})",
    )


def _exact(pusd: int, places: int = 2) -> str:
    whole, _, part = format_usd(pusd).partition(".")
    return f"{whole}.{part.ljust(places, '0')}"


def _rounded(pusd: int, rounding: str) -> str:
    """Returns USD with four places; an amount below a cent is exact, so that it never shows as nothing."""
    if pusd < PUSD_PER_USD // 100:
        return _exact(pusd, 4)
    return str((Decimal(pusd) / PUSD_PER_USD).quantize(Decimal("0.0001"), rounding=rounding))


def model_list(dialect: Dialect, models: Sequence[str]) -> Answer:
    """Returns the models that a key allows in the dialect's list shape, without asking a provider."""
    if dialect is Dialect.GEMINI:
        document: dict[str, Any] = {"models": [{"name": f"models/{model}", "displayName": model} for model in models]}
    elif dialect is Dialect.MESSAGES:
        rows = [
            {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
            for model in models
        ]
        ends = {"first_id": models[0], "last_id": models[-1]} if models else {"first_id": None, "last_id": None}
        document = {"data": rows, "has_more": False} | ends
    else:
        rows = [{"id": model, "object": "model", "created": 0, "owned_by": "tollbar"} for model in models]
        document = {"object": "list", "data": rows}
    return Answer(200, {"content-type": "application/json"}, json.dumps(document).encode())
