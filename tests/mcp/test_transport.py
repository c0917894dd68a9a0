"""What HTTP says before any tool is asked: one POST with one message, and JSON for every refusal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from tests.mcp.conftest import ERAS, MODERN, json_text, modern, refusal, request_of, rpc
from tests.mcp.world import AUTOMATION, http_client

MIB = 1 << 20
MARK = "kumquat"


@pytest.fixture
async def http(app, world):
    async with http_client(app, world.secrets[AUTOMATION]) as client:
        yield client


def headers_of(era: str, method: str = "tools/list") -> dict[str, str]:
    return {"Content-Type": "application/json", **request_of(era, method)[1]}


@pytest.mark.requirement("G-MCP-20.15")
@pytest.mark.parametrize("era", ERAS)
async def test_other_methods_are_405_and_say_post(http, era):
    for method in ("GET", "DELETE", "PUT", "PATCH", "HEAD"):
        answer = await http.request(method, "/v1/mcp", headers={**headers_of(era), "Accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        if method != "HEAD":
            assert refusal(answer)["data"]["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.requirement("G-MCP-20.29")
@pytest.mark.parametrize("era", ERAS)
async def test_a_batch_is_refused_whatever_stands_before_it(http, era):
    for start in ("", " \r\n\t", "\ufeff", "\ufeff  "):
        batch = start + json.dumps([rpc("tools/list"), rpc("tools/list")])
        answer = await http.post("/v1/mcp", content=batch.encode(), headers=headers_of(era))
        assert answer.status_code == 400
        assert (refusal(answer)["code"], answer.json()["id"]) == (-32600, None)


async def test_a_batch_is_seen_when_it_comes_in_pieces(http):
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b" ", b"\n ", b"", b"[", b"]"):
            yield piece

    answer = await http.post("/v1/mcp", content=pieces(), headers=headers_of("auto"))
    assert (answer.status_code, refusal(answer)["code"]) == (400, -32600)


async def test_one_message_may_come_in_pieces(http):
    body, headers = modern("tools/list")
    text = json.dumps(body).encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"  "
        for at in range(0, len(text), 50):
            yield text[at : at + 50]

    answer = await http.post("/v1/mcp", content=pieces(), headers={**headers, "Content-Type": "application/json"})
    assert len(answer.json()["result"]["tools"]) == 7


async def test_there_is_one_address_and_no_redirect(http):
    for path in ("/v1/mcp/", "/api/v1/mcp", "/v1/mcp/x"):
        answer = await http.post(path, json=rpc("tools/list"))
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert "location" not in answer.headers
        assert ("hint" in answer.json()) == path.endswith("/")


@pytest.mark.requirement("G-MCP-20.17")
@pytest.mark.parametrize("era", ERAS)
async def test_clients_that_take_json_or_anything_get_json(http, era):
    body, headers = request_of(era, "tools/list")
    del http.headers["accept"]
    for accept in (None, "", "*/*", "application/json", "application/json, text/event-stream"):
        more = {} if accept is None else {"Accept": accept}
        answer = await http.post("/v1/mcp", json=body, headers={**headers, **more})
        assert answer.headers["content-type"] == "application/json", accept
        assert len(answer.json()["result"]["tools"]) == 7


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_takes_no_json_is_told_so_in_json(http, era):
    body, headers = request_of(era, "tools/list")
    answer = await http.post("/v1/mcp", json=body, headers={**headers, "Accept": "text/html"})
    assert answer.status_code == 406
    assert "application/json" in refusal(answer)["message"]


@pytest.mark.requirement("G-MCP-20.42")
@pytest.mark.parametrize("era", ERAS)
async def test_a_page_of_another_site_is_403(http, era):
    body, headers = request_of(era, "tools/list")
    for origin in ("https://elsewhere.example", "null", "http://127.0.0.1.elsewhere.example"):
        answer = await http.post("/v1/mcp", json=body, headers={**headers, "Origin": origin})
        assert answer.status_code == 403
        assert "Origin" in refusal(answer)["message"]


async def test_pages_of_known_clients_may_ask(http):
    body, headers = modern("tools/list")
    for origin in ("http://127.0.0.1:8787", "https://claude.ai", "http://localhost:5173"):
        assert (await http.post("/v1/mcp", json=body, headers={**headers, "Origin": origin})).status_code == 200


@pytest.mark.requirement("G-MCP-20.42")
async def test_another_host_is_421(http):
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example:8787", "127.0.0.1:x"):
        answer = await http.post("/v1/mcp", json=rpc("tools/list"), headers={"Host": host})
        assert answer.status_code == 421
        assert refusal(answer)["data"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("era", ERAS)
async def test_a_body_beyond_four_mebibytes_is_413(http, era):
    async def pieces(piece: bytes) -> AsyncIterator[bytes]:
        for _ in range(5):
            yield piece

    for byte in (b" ", b"x"):
        for content in (byte * 5 * MIB, pieces(byte * MIB)):
            answer = await http.post("/v1/mcp", content=content, headers=headers_of(era))
            assert answer.status_code == 413
            assert refusal(answer)["data"]["code"] == "REQUEST_TOO_LARGE"


async def test_blank_bytes_without_end_are_not_kept(http):
    """A body that never ends is refused; the server reads a bounded rest of it so that the client sees the answer."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            assert taken < 30
            yield b" " * MIB

    answer = await http.post("/v1/mcp", content=endless(), headers=headers_of("legacy"))
    assert answer.status_code == 413


NO_MESSAGES = (
    "", "   ", MARK, f'"{MARK}"', "12", "null", "{}", f'{{"a": "{MARK}"}}', f'{{"a": "{MARK}', '{"a":' * 100_000,
    f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": ["{MARK}"]}}',
    f'{{"jsonrpc": "1.0", "id": "{MARK}", "method": "tools/list"}}',
    f'{{"jsonrpc": "2.0", "id": 1, "method": {{"{MARK}": 1}}}}',
)  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
async def test_a_body_that_is_no_message_is_400_and_none_of_it_comes_back(http, era):
    for body in NO_MESSAGES:
        answer = await http.post("/v1/mcp", content=body.encode(), headers=headers_of(era))
        assert answer.status_code == 400, body[:80]
        assert refusal(answer)["code"] in {-32700, -32600, -32602}
        assert answer.json()["id"] is None
        assert MARK not in answer.text
        assert "pydantic" not in answer.text


@pytest.mark.parametrize("era", ERAS)
async def test_another_media_type_is_refused(http, era):
    body, headers = request_of(era, "tools/list")
    answer = await http.post("/v1/mcp", content=json.dumps(body), headers={**headers, "Content-Type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in refusal(answer)["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_that_are_no_object_are_a_protocol_fault(http, era):
    for arguments in (MARK, [MARK], 5):
        body, headers = request_of(era, "tools/call", {"name": "envloop_job_status", "arguments": arguments})
        answer = await http.post("/v1/mcp", json=body, headers=headers)
        assert (answer.json()["error"]["code"], answer.json()["id"]) == (-32602, 1)
        assert MARK not in answer.text


async def test_an_unknown_method_is_a_protocol_fault(http):
    for era, status in (("auto", 404), ("legacy", 200)):
        body, headers = request_of(era, "nothing/here")
        answer = await http.post("/v1/mcp", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == (status, -32601, 1)


async def test_headers_that_contradict_the_body_are_refused(http):
    body, headers = modern("tools/list")
    answer = await http.post("/v1/mcp", json=body, headers={**headers, "Mcp-Method": "tools/call"})
    assert (answer.status_code, refusal(answer)["code"]) == (400, -32020)


@pytest.mark.requirement("G-MCP-20.42")
async def test_a_protocol_version_that_nobody_knows_is_refused_with_those_that_are_known(http):
    body, headers = modern("tools/list")
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2031-01-01"
    answer = await http.post("/v1/mcp", json=body, headers={**headers, "MCP-Protocol-Version": "2031-01-01"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    assert MODERN in answer.json()["error"]["data"]["supported"]


async def test_no_session_is_ever_begun(http):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    answer = await http.post("/v1/mcp", json=rpc("initialize", hello))
    assert answer.json()["result"]["serverInfo"]["name"] == "tollbar"
    assert "mcp-session-id" not in answer.headers
    noted = await http.post("/v1/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (noted.status_code, noted.content) == (202, b"")
    called = rpc("tools/call", {"name": "envloop_datasets_list", "arguments": {}})
    assert (await http.post("/v1/mcp", json=called)).json()["result"]["structuredContent"]["items"]


async def test_a_preflight_is_answered_without_a_key(app):
    async with http_client(app) as http:
        asked = {"Origin": "https://claude.ai", "Access-Control-Request-Method": "POST"}
        answer = await http.options("/v1/mcp", headers={**asked, "Access-Control-Request-Headers": "authorization"})
        assert (answer.status_code, answer.headers["access-control-allow-headers"]) == (200, "authorization")
        refused = await http.post("/v1/mcp", **json_text(rpc("tools/list")))
    assert refused.status_code == 401
