"""Following a Job: polls as the server asks, outlives its restarts, and gives up after a bound."""

from __future__ import annotations

import pytest
from tests.cli import examples
from tests.cli.standin import Answer, StandIn

from tollbar.client import ApiError, Client, ClientError, Patience, ServerUnreachable

ROUTE = f"GET /v1/job/{examples.JOB_ID}"


def test_it_asks_when_the_server_says_so_until_the_job_is_final(
    server: StandIn, client: Client, pauses: list[float]
) -> None:
    server.on(ROUTE, examples.job(poll_after_s=5), examples.job(poll_after_s=None), examples.completed())
    seen = [job["status"] for job in client.follow_job(examples.JOB_ID)]
    assert seen == ["running", "running", "completed"]
    assert pauses == [5, 2.0]


def test_a_restart_is_outlived_with_growing_pauses(server: StandIn, client: Client, pauses: list[float]) -> None:
    away = Answer(503, {"code": "SERVICE_UNAVAILABLE", "message": "Starting."})
    server.on(ROUTE, Answer(cut=True), away, Answer(502, b"bad gateway"), Answer(500, b""), examples.completed())
    troubles: list[tuple[str, float]] = []

    def remember(error: ClientError, pause_s: float) -> None:
        troubles.append((error.code, pause_s))

    assert [job["final"] for job in client.follow_job(examples.JOB_ID, on_trouble=remember)] == [True]
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert [code for code, _ in troubles] == ["SERVER_UNREACHABLE", "SERVICE_UNAVAILABLE", "HTTP_ERROR", "HTTP_ERROR"]


def test_retry_after_is_followed_up_to_half_a_minute(server: StandIn, client: Client, pauses: list[float]) -> None:
    busy = {"code": "RATE_LIMITED", "message": "Too many."}
    far = "Wed, 01 Jan 2098 00:00:00 GMT"
    server.on(
        ROUTE,
        Answer(429, busy, {"Retry-After": "7"}),
        Answer(429, busy, {"Retry-After": "900"}),
        Answer(429, busy, {"Retry-After": far}),
        Answer(429, busy, {"Retry-After": "soon"}),
        examples.completed(),
    )
    list(client.follow_job(examples.JOB_ID))
    assert pauses == [7, 30, 30, 4.0]


def test_it_gives_up_after_so_many_failures_in_a_row(server: StandIn, client: Client, pauses: list[float]) -> None:
    server.on(ROUTE, Answer(cut=True))
    with pytest.raises(ServerUnreachable):
        list(client.follow_job(examples.JOB_ID, patience=Patience(tries=3, longest_pause_s=0.7)))
    assert pauses == [0.5, 0.7, 0.7]


def test_a_success_in_between_begins_the_count_anew(server: StandIn, client: Client) -> None:
    lost = Answer(cut=True)
    server.on(ROUTE, lost, lost, examples.job(), lost, lost, examples.completed())
    assert len(list(client.follow_job(examples.JOB_ID, patience=Patience(tries=2)))) == 2


def test_a_refusal_is_raised_at_once(server: StandIn, client: Client, pauses: list[float]) -> None:
    server.on(ROUTE, Answer(404, {"code": "JOB_NOT_FOUND", "message": "There is no such Job."}))
    with pytest.raises(ApiError, match="no such Job"):
        list(client.follow_job(examples.JOB_ID))
    assert pauses == []


def part(*numbers: int, cursor: str, has_more: bool = False, eof: bool = False) -> dict[str, object]:
    """Returns a part of a log as the server sends it."""
    items = [{"id": str(number), "content": f"line {number}"} for number in numbers]
    return {"items": items, "next_cursor": cursor, "has_more": has_more, "eof": eof}


def test_a_log_is_followed_by_its_cursors_through_an_outage_and_each_line_comes_once(
    server: StandIn, client: Client, pauses: list[float]
) -> None:
    away = Answer(503, {"code": "SERVICE_UNAVAILABLE", "message": "Starting."})
    route = f"{ROUTE}/logs"
    server.on(
        route,
        part(1, 2, cursor="a", has_more=True),
        part(3, cursor="b"),
        away,
        Answer(cut=True),
        part(cursor="b"),
        part(4, cursor="c", has_more=True, eof=False),
        part(5, cursor="d", eof=True),
    )
    pages = client.follow_log(lambda at: client.job_logs(examples.JOB_ID, cursor=at, limit=1000))
    assert [item["id"] for page in pages for item in page["items"]] == ["1", "2", "3", "4", "5"]
    assert [one.query.get("cursor") for one in server.to(route)] == [None, "a", "b", "b", "b", "b", "c"]
    assert pauses == [1.0, 0.5, 1.0, 1.0]
