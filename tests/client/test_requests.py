"""What goes over the wire, and what comes back as which error."""

from __future__ import annotations

import socket

import pytest
from tests.cli import examples
from tests.cli.standin import KEY, Answer, StandIn

from tollbar.client import ApiError, Client, ServerUnreachable, UnexpectedAnswer, UnusableSetting, every


@pytest.mark.parametrize("path", ["", "/", "/v1", "/api", "/api/v1", "/api/v1/"])
def test_every_base_url_of_the_contract_leads_to_the_routes(server: StandIn, path: str) -> None:
    mount = "/api/v1" if "api" in path else "/v1"
    server.on(f"GET {mount}/me", examples.me())
    with Client(server.url + path, KEY) as client:
        assert client.me() == examples.me()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://10.0.0.5:8080", "in plain text"),
        ("http://example.com", "in plain text"),
        ("http://localhost.example.com", "in plain text"),
        ("http://127.0.0.1.example.com", "in plain text"),
        ("ftp://127.0.0.1", "not an http"),
        ("127.0.0.1:8787", "not an http"),
        ("https://", "not an http"),
        ("https://host:port", "not an address"),
        ("https://host/other", "a path that no server has"),
        ("https://host/?a=b", "a path that no server has"),
        ("https://ana:secret@host", "user or password"),
    ],
)
def test_an_address_that_may_not_get_a_key_is_refused_before_anything_is_sent(url: str, problem: str) -> None:
    with pytest.raises(UnusableSetting, match=problem) as refused:
        Client(url, KEY)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.9.9.9:1", "http://[::1]:1", "https://host.example"])
def test_plain_http_is_allowed_to_this_machine_and_https_to_any(url: str) -> None:
    Client(url, KEY).close()


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_one_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(UnusableSetting) as refused:
        Client("http://127.0.0.1:1", key)
    assert not key or key not in str(refused.value)


def test_requests_carry_key_and_scope_and_no_proxy_sees_loopback(
    server: StandIn, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.on("GET /v1/me", examples.me())
    with Client(server.url, KEY, "ws_1", "prj_1") as behind_proxy:
        behind_proxy.me()
    headers = server.asked[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (headers["x-workspace-id"], headers["x-project-id"]) == ("ws_1", "prj_1")
    assert headers["content-type"] == "application/json"
    assert headers["accept-encoding"] == "identity"


def test_names_are_base64url_and_ids_never_move_within_the_path(server: StandIn, client: Client) -> None:
    server.on("GET /v1/datasets/dGVzdHMvaGVsbG8td29ybGQ", examples.dataset())
    assert client.dataset("tests/hello-world")["name"] == "team/checkout"
    for hostile in ("..", "../me", ".", "", "a?b=c", "a#b"):
        with pytest.raises(ApiError) as refused:
            client.job(hostile)
        assert refused.value.status == 404
    assert {one.path.startswith("/v1/job/") for one in server.asked[1:]} == {True}
    assert all(not one.query for one in server.asked)


def test_an_error_object_becomes_an_api_error_with_all_its_members(server: StandIn, client: Client) -> None:
    body = {"code": "ACCESS_DENIED", "message": "No.", "missing_capability": "jobs.run", "hint": "Use another key."}
    server.on("POST /v1/job", Answer(403, body))
    with pytest.raises(ApiError) as refused:
        client.submit_job({"dataset": "a/b@1"})
    assert (refused.value.code, refused.value.status, refused.value.hint) == ("ACCESS_DENIED", 403, "Use another key.")
    assert refused.value.body == body


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b'{"detail": "no"}', b'{"code": 7}', b"\xff", b""])
def test_a_failure_without_an_error_object_is_an_http_error(server: StandIn, client: Client, body: bytes) -> None:
    server.on("GET /v1/me", Answer(502, body))
    with pytest.raises(ApiError) as failed:
        client.me()
    assert (failed.value.code, failed.value.status) == ("HTTP_ERROR", 502)


@pytest.mark.parametrize("body", [b"hello", b"[1]", b'{"a": NaN}', b'{"a": 1, "a": 2}', b""])
def test_an_answer_that_is_no_json_object_is_unexpected(server: StandIn, client: Client, body: bytes) -> None:
    server.on("GET /v1/me", Answer(200, body))
    with pytest.raises(UnexpectedAnswer):
        client.me()


def test_a_redirect_of_an_api_route_is_not_followed(server: StandIn, client: Client) -> None:
    server.on("GET /v1/me", Answer(307, b"", {"Location": server.url + "/v1/other"}))
    with pytest.raises(UnexpectedAnswer, match="redirect"):
        client.me()
    assert len(server.asked) == 1


def test_an_answer_larger_than_the_bound_is_not_read(server: StandIn, client: Client) -> None:
    server.on("GET /v1/me", Answer(200, b'"' + b"a" * (16 << 20) + b'"'))
    with pytest.raises(UnexpectedAnswer, match="more than"):
        client.me()


def test_a_server_that_is_not_there_or_hangs_up_is_unreachable(server: StandIn, client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", KEY) as nobody, pytest.raises(ServerUnreachable, match="refused"):
        nobody.me()
    server.on("POST /v1/job", Answer(cut=True))
    with pytest.raises(ServerUnreachable):
        client.submit_job({})
    assert len(server.to("POST /v1/job")) == 1, "a submission is never repeated by the client"


def test_a_server_that_does_not_answer_in_time_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, KEY, timeout_s=0.1) as client, pytest.raises(ServerUnreachable, match="in time"):
            client.me()


def test_all_pages_of_a_list_are_read_once_each(server: StandIn, client: Client) -> None:
    server.on("GET /v1/job", examples.page({"n": 1}, next_cursor="c1"), examples.page({"n": 2}, next_cursor="c2"), {
        "items": [{"n": 3}], "next_cursor": None,
    })  # fmt: skip
    found = list(every(lambda cursor: client.jobs(limit=1, cursor=cursor)))
    assert found == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [one.query.get("cursor") for one in server.asked] == [None, "c1", "c2"]


def test_a_cursor_that_does_not_move_ends_a_list(server: StandIn, client: Client) -> None:
    server.on("GET /v1/job", examples.page({"n": 1}, next_cursor="same"))
    assert len(list(every(lambda cursor: client.jobs(cursor=cursor)))) == 2


def test_a_submission_says_whether_it_is_new(server: StandIn, client: Client) -> None:
    server.on("POST /v1/job", Answer(202, examples.job()), Answer(200, examples.job()))
    assert client.submit_job({"request_id": "r"})[1] is True
    assert client.submit_job({"request_id": "r"})[1] is False
    assert server.asked[0].json == {"request_id": "r"}
