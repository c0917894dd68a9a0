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


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_other_methods_are_405_and_say_post(http, era, method):
    answer = await http.request(method, "/v1/mcp", headers={**headers_of(era), "Accept": "text/event-stream"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert refusal(answer)["data"]["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("start", ["", " \r\n\t", "\ufeff", "\ufeff  "])
async def test_a_batch_is_refused_whatever_stands_before_it(http, era, start):
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


@pytest.mark.parametrize("path", ["/v1/mcp/", "/api/v1/mcp", "/v1/mcp/x"])
async def test_there_is_one_address_and_no_redirect(http, path):
    answer = await http.post(path, json=rpc("tools/list"))
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert "location" not in answer.headers
    assert ("hint" in answer.json()) == path.endswith("/")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("accept", [None, "", "*/*", "application/json", "application/json, text/event-stream"])
async def test_clients_that_take_json_or_anything_get_json(http, era, accept):
    body, headers = request_of(era, "tools/list")
    del http.headers["accept"]
    if accept is not None:
        headers["Accept"] = accept
    answer = await http.post("/v1/mcp", json=body, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["result"]["tools"]) == 7


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_takes_no_json_is_told_so_in_json(http, era):
    body, headers = request_of(era, "tools/list")
    answer = await http.post("/v1/mcp", json=body, headers={**headers, "Accept": "text/html"})
    assert answer.status_code == 406
    assert "application/json" in refusal(answer)["message"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://127.0.0.1.elsewhere.example"])
async def test_a_page_of_another_site_is_403(http, era, origin):
    body, headers = request_of(era, "tools/list")
    answer = await http.post("/v1/mcp", json=body, headers={**headers, "Origin": origin})
    assert answer.status_code == 403
    assert "Origin" in refusal(answer)["message"]


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8787", "https://claude.ai", "http://localhost:5173"])
async def test_pages_of_known_clients_may_ask(http, origin):
    body, headers = modern("tools/list")
    assert (await http.post("/v1/mcp", json=body, headers={**headers, "Origin": origin})).status_code == 200


@pytest.mark.parametrize("host", ["elsewhere.example", "127.0.0.1.elsewhere.example:8787", "127.0.0.1:x"])
async def test_another_host_is_421(http, host):
    answer = await http.post("/v1/mcp", json=rpc("tools/list"), headers={"Host": host})
    assert answer.status_code == 421
    assert refusal(answer)["data"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("blank", [True, False])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_beyond_four_mebibytes_is_413(http, era, blank, declared):
    piece = (b" " if blank else b"x") * MIB

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield piece

    content = piece * 5 if declared else pieces()
    answer = await http.post("/v1/mcp", content=content, headers=headers_of(era))
    assert answer.status_code == 413
    assert refusal(answer)["data"]["code"] == "REQUEST_TOO_LARGE"


async def test_blank_bytes_without_end_are_not_kept(http):
    """Of an endless body no more is read than a body may have."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            assert taken < 10
            yield b" " * MIB

    answer = await http.post("/v1/mcp", content=endless(), headers=headers_of("legacy"))
    assert answer.status_code == 413


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "body",
    ["", "   ", MARK, f'"{MARK}"', "12", "null", "{}", f'{{"a": "{MARK}"}}', f'{{"a": "{MARK}', '{"a":' * 100_000,
     f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": ["{MARK}"]}}',
     f'{{"jsonrpc": "2.0", "id": {{"{MARK}": 1}}, "method": "tools/list"}}',
     '{"jsonrpc": "2.0", "id": NaN, "method": "tools/list"}'],
)  # fmt: skip
async def test_a_body_that_is_no_message_is_400_and_none_of_it_comes_back(http, era, body):
    answer = await http.post("/v1/mcp", content=body.encode(), headers=headers_of(era))
    assert answer.status_code == 400
    assert refusal(answer)["code"] in {-32700, -32600, -32602}
    assert MARK not in answer.text
    assert "pydantic" not in answer.text
    assert answer.json()["id"] is None


@pytest.mark.parametrize("era", ERAS)
async def test_another_media_type_is_refused(http, era):
    body, headers = request_of(era, "tools/list")
    answer = await http.post("/v1/mcp", content=json.dumps(body), headers={**headers, "Content-Type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in refusal(answer)["message"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("arguments", [MARK, [MARK], 5])
async def test_arguments_that_are_no_object_are_a_protocol_fault(http, era, arguments):
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
