"""The exit codes against every status and error code of the server's contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cli import examples
from tests.cli.conftest import Ended
from tests.cli.standin import Answer, StandIn

from tollbar.cli.exits import MEANINGS, Exit, of_job, of_status

CODES = {
    400: ["INVALID_REQUEST", "PROJECT_REQUIRED"],
    401: ["UNAUTHENTICATED"],
    402: ["INSUFFICIENT_BALANCE"],
    403: ["ACCESS_DENIED", "WORKSPACE_ACCESS_DENIED", "PROJECT_ACCESS_DENIED", "HUMAN_SESSION_REQUIRED"],
    404: ["NOT_FOUND", "JOB_NOT_FOUND", "TRIAL_NOT_FOUND", "DATASET_NOT_FOUND", "RUNNER_NOT_FOUND"],
    405: ["METHOD_NOT_ALLOWED"],
    409: ["JOB_REQUEST_CONFLICT", "DATASET_MANIFEST_CONFLICT", "ARTIFACT_NOT_READY"],
    410: ["LOG_CURSOR_EXPIRED"],
    412: ["PRECONDITION_FAILED"],
    413: ["REQUEST_TOO_LARGE"],
    415: ["UNSUPPORTED_MEDIA_TYPE"],
    422: ["INVALID_REQUEST", "INVALID_JOB", "INVALID_AMOUNT", "UNSUPPORTED_TASK_FORMAT", "INVALID_CURSOR"],
    429: ["RATE_LIMITED", "DOWNLOAD_ALLOWANCE_EXCEEDED"],
    500: ["INTERNAL_ERROR"],
    503: ["SERVICE_UNAVAILABLE", "STORE_UNAVAILABLE"],
}
EXITS = {
    400: 2, 401: 4, 402: 7, 403: 5, 404: 3, 405: 1, 409: 1, 410: 1, 412: 1, 413: 2, 415: 2, 422: 2, 429: 1, 500: 1,
    503: 1,
}  # fmt: skip


@pytest.mark.parametrize("status", EXITS)
def test_each_status_has_its_exit_code(status: int) -> None:
    assert of_status(status) == EXITS[status]
    assert str(status) in MEANINGS[Exit(EXITS[status])].http or status in {405, 500, 503}


@pytest.mark.parametrize(("status", "code"), [(status, code) for status, codes in CODES.items() for code in codes])
def test_each_error_of_the_server_is_told_with_its_code(
    tollbar: Callable[..., Ended], signed_in: StandIn, status: int, code: str
) -> None:
    body = {"code": code, "message": "It did not work.", "error_id": "err_1"}
    signed_in.on("GET /v1/me", Answer(status, body))
    ended = tollbar("whoami", "--json")
    assert (ended.code, ended.json) == (EXITS[status], body)
    assert ended.err.startswith(f"error: It did not work ({code})\n")
    assert "err_1" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (examples.job(), 0),
        (examples.completed(), 0),
        (examples.failed(), 1),
        (examples.stopped(), 1),
        (examples.capped(), 7),
        ({**examples.capped(), "error": {"code": "BUDGET_UNMETERED", "message": "No price."}}, 7),
    ],
)
def test_a_job_ends_a_command_by_how_it_ended(job: dict[str, object], code: int) -> None:
    assert of_job(job) == code


def test_a_server_that_does_not_answer_exits_1(
    tollbar: Callable[..., Ended], signed_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBAR_URL", "http://127.0.0.1:1")
    ended = tollbar("jobs", "list", "--json")
    assert (ended.code, ended.json["code"]) == (1, "SERVER_UNREACHABLE")
    assert "tollbar up" in ended.err


def test_a_fault_of_the_command_line_is_told_without_a_traceback(
    tollbar: Callable[..., Ended], signed_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in.on("GET /v1/me", {"unexpected": 1})
    ended = tollbar("whoami")
    assert ended.code == 1
    assert "INTERNAL_ERROR" in ended.err
    assert "TOLLBAR_DEBUG=1" in ended.err
    assert "Traceback" not in ended.err
    monkeypatch.setenv("TOLLBAR_DEBUG", "1")
    with pytest.raises(KeyError):
        tollbar("whoami")


def test_the_table_can_be_read(tollbar: Callable[..., Ended]) -> None:
    ended = tollbar("help", "exit-codes")
    assert [line.split("\t")[0] for line in ended.out.splitlines()] == [str(int(code)) for code in Exit]
    assert {item["code"] for item in tollbar("help", "exit-codes", "--json").json["items"]} == set(map(int, Exit))
