"""Which paths are served, and how a refusal looks to each client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tollbar.gateway.dialects import Dialect, Operation, Route, budget_exceeded, model_list, refusal, route
from tollbar.gateway.errors import Code

GENERATE = Operation.GENERATE


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("POST", "/v1/chat/completions", "", Route(Dialect.CHAT, GENERATE)),
        ("POST", "/v1/responses", "", Route(Dialect.RESPONSES, GENERATE)),
        ("POST", "/v1/messages", "beta=true", Route(Dialect.MESSAGES, GENERATE)),
        ("POST", "/v1/messages/count_tokens", "", Route(Dialect.MESSAGES, Operation.COUNT)),
        (
            "POST",
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "",
            Route(Dialect.GEMINI, GENERATE, "gemini-2.5-pro", False),
        ),
        ("POST", "/v1beta/models/g:streamGenerateContent", "alt=sse&key=k", Route(Dialect.GEMINI, GENERATE, "g", True)),
        (
            "POST",
            "/v1beta/models/g:streamGenerateContent",
            "",
            Route(Dialect.GEMINI, GENERATE, "g", True, metered=False),
        ),
        ("POST", "/v1beta/models/g:countTokens", "", Route(Dialect.GEMINI, Operation.COUNT, "g")),
        ("HEAD", "/", "", Route(Dialect.MESSAGES, Operation.PING)),
        ("GET", "/v1/models", "", Route(Dialect.CHAT, Operation.MODELS)),
        ("GET", "/v1beta/models", "", Route(Dialect.GEMINI, Operation.MODELS)),
    ],
)
def test_each_served_path_has_its_route(method: str, path: str, query: str, expected: Route) -> None:
    assert route(method, path, query) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/batches"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/files"),
        ("GET", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/compact"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1beta/models/g:batchGenerateContent"),
        ("POST", "/v1beta/models/a/b:generateContent"),
        ("POST", "/v1beta/cachedContents"),
        ("GET", "/"),
        ("POST", "/v1//messages"),
    ],
)
def test_every_other_path_has_none(method: str, path: str) -> None:
    assert route(method, path) is None


def test_a_connection_is_not_upgraded() -> None:
    assert route("GET", "/v1/models", headers={"upgrade": "websocket"}) is None


def test_a_model_list_is_in_the_shape_that_the_client_knows() -> None:
    assert route("GET", "/v1/models", headers={"anthropic-version": "2023-06-01"}) == Route(
        Dialect.MESSAGES, Operation.MODELS
    )
    chat = json.loads(model_list(Dialect.CHAT, ["a", "b"]).body)
    assert chat["object"] == "list"
    assert [row["id"] for row in chat["data"]] == ["a", "b"]
    claude = json.loads(model_list(Dialect.MESSAGES, ["a", "b"]).body)
    assert (claude["first_id"], claude["last_id"], claude["has_more"]) == ("a", "b", False)
    assert json.loads(model_list(Dialect.MESSAGES, []).body)["first_id"] is None
    assert json.loads(model_list(Dialect.GEMINI, ["g"]).body)["models"][0]["name"] == "models/g"


INVALID = (400, "invalid_request_error", 400, "invalid_request_error", 400, "INVALID_ARGUMENT", "false")
MONEY = (402, "billing_error", 400, "invalid_request_error", 400, "FAILED_PRECONDITION", "false")
TABLE: dict[str, tuple[Any, ...]] = {
    "BUDGET_EXCEEDED": MONEY,
    "BUDGET_UNMETERED": MONEY,
    "REQUEST_UNBOUNDED": INVALID,
    "EGRESS_REFUSED": INVALID,
    "MODEL_NOT_ALLOWED": INVALID,
    "INVALID_REQUEST": INVALID,
    "KEY_INVALID": (401, "authentication_error", 401, "authentication_error", 401, "UNAUTHENTICATED", "false"),
    "ROUTE_NOT_ALLOWED": (404, "not_found_error", 404, "invalid_request_error", 404, "NOT_FOUND", "false"),
    "REQUEST_TOO_LARGE": (413, "request_too_large", 413, "invalid_request_error", 413, "INVALID_ARGUMENT", "false"),
    "BUDGET_BUSY": (503, "overloaded_error", 503, "server_error", 503, "UNAVAILABLE", "true"),
    "UPSTREAM_UNREACHABLE": (502, "api_error", 502, "server_error", 502, "UNAVAILABLE", None),
    "LEDGER_UNAVAILABLE": (503, "overloaded_error", 503, "server_error", 503, "UNAVAILABLE", "true"),
}


@pytest.mark.parametrize("code", TABLE)
def test_each_refusal_has_its_status_shape_and_retry_header(code: str) -> None:
    messages_status, messages_type, openai_status, openai_type, gemini_status, gemini_type, retry = TABLE[code]
    claude = refusal(Dialect.MESSAGES, Code(code), "why")
    assert claude.status == messages_status
    assert json.loads(claude.body) == {
        "type": "error",
        "error": {"type": messages_type, "message": f"{code}: why"},
    }
    for dialect in (Dialect.CHAT, Dialect.RESPONSES):
        openai = refusal(dialect, Code(code), "why")
        assert openai.status == openai_status
        assert json.loads(openai.body) == {
            "error": {"message": f"{code}: why", "type": openai_type, "param": None, "code": code}
        }
    gemini = refusal(Dialect.GEMINI, Code(code), "why")
    assert gemini.status == gemini_status
    assert json.loads(gemini.body) == {
        "error": {"code": gemini_status, "message": f"{code}: why", "status": gemini_type}
    }
    for answer in (claude, gemini):
        assert answer.headers.get("x-should-retry") == retry
        assert answer.headers["x-tollbar-code"] == code
    assert claude.headers.get("retry-after") == ("1" if code == "BUDGET_BUSY" else None)


def test_every_code_has_a_shape_in_every_dialect_and_none_is_429() -> None:
    assert {refusal(dialect, code, "x").status for dialect in Dialect for code in Code} == {
        400,
        401,
        402,
        404,
        413,
        415,
        502,
        503,
    }


def test_the_refusal_at_the_cap_names_the_numbers() -> None:
    refused = budget_exceeded(920_538_750_000, 500_000_000_000, 5 * 10**12, 4_500_000_000_000, 0)
    assert str(refused) == (
        "BUDGET_EXCEEDED: this call needs at least 0.9206 USD and 0.5000 USD of 5.00 USD is left"
        " (spent 4.50, reserved 0.00)"
    )


def test_an_amount_below_a_cent_does_not_show_as_nothing() -> None:
    assert "at least 0.000001 USD and 0.0000005 USD of 0.000001 USD" in str(
        budget_exceeded(1_000_000, 500_000, 1_000_000, 500_000, 0)
    )
