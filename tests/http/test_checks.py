"""What stands before every route: the Host check, origins, and the rate limit."""

from __future__ import annotations

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.http.conftest import AUTOMATION, READ_ONLY, code_of

from tollbar.access.caller import caller_of
from tollbar.http.hosts import allowed_hosts, host_matches
from tollbar.http.limiting import memory_limiter

ELSEWHERE = {"Origin": "https://elsewhere.example"}


@pytest.mark.parametrize(
    ("origin", "loopback", "host", "expected"),
    [
        ("https://tollbar.example", False, "tollbar.example", True),
        ("https://tollbar.example", False, "TOLLBAR.example:443", True),
        ("https://tollbar.example:8443", False, "tollbar.example:8443", True),
        ("https://tollbar.example:8443", False, "tollbar.example", True),
        ("https://tollbar.example", False, "tollbar.example.evil.example", False),
        ("https://tollbar.example", False, "tollbar.example:443.evil.example", False),
        ("https://tollbar.example", False, "tollbar.example:", False),
        ("https://tollbar.example", False, "localhost:8787", False),
        ("https://tollbar.example", False, "", False),
        ("http://127.0.0.1:8787", True, "localhost:9", True),
        ("http://127.0.0.1:8787", True, "[::1]:8787", True),
        ("http://127.0.0.1:8787", True, "127.0.0.1", True),
        ("http://127.0.0.1:8787", True, "127.0.0.1.nip.io:8787", False),
        ("http://[::1]:8787", False, "[::1]:8787", True),
        ("http://[::1]", False, "[::1]:1", True),
    ],
)
def test_a_server_answers_to_its_public_name_and_on_loopback_to_loopback_names(origin, loopback, host, expected):
    assert host_matches(host, allowed_hosts(origin, loopback=loopback)) is expected


def test_an_operator_can_add_names():
    patterns = allowed_hosts("https://tollbar.example", loopback=False, more=("inner:*",))
    assert host_matches("inner:80", patterns)
    assert not host_matches("inner", patterns)


async def test_a_rebound_name_is_turned_away_on_every_path(world):
    for path in ("/v1/me", "/api/v1/job", "/v1/mcp", "/", "/jobs"):
        async with world.client(Host="evil.example") as client:
            answer = await client.get(path)
        assert (answer.status_code, code_of(answer)) == (421, "INVALID_REQUEST")


async def test_a_preflight_is_answered_without_a_key_and_is_not_counted(world):
    tight = world.changed(limiter=memory_limiter(per_address=1))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, mcp-x"}
    async with tight.client(None, **ELSEWHERE, **asked) as client:
        for path in ("/v1/job", "/api/v1/job", "/v1/mcp", "/token", "/.well-known/x"):
            answer = await client.options(path)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "*"
            assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
            assert answer.headers["access-control-allow-headers"] == "authorization, mcp-x"
            assert answer.headers["access-control-max-age"] == "600"
            assert "access-control-allow-credentials" not in answer.headers


async def test_answers_and_refusals_can_be_read_across_origins(world):
    tight = world.changed(limiter=memory_limiter(per_address=3))
    statuses = []
    async with tight.client(None, **ELSEWHERE) as client:
        for method, path in (
            ("GET", "/v1/me"),
            ("DELETE", "/v1/job"),
            ("GET", "/v1/no"),
            ("GET", "/v1/openapi.json"),
        ):
            answer = await client.request(method, path)
            statuses.append(answer.status_code)
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "Retry-After" in answer.headers["access-control-expose-headers"]
    assert statuses == [401, 405, 404, 429]


async def test_pages_for_people_are_never_readable_across_origins(world):
    async with world.client(**ELSEWHERE) as client:
        for path in ("/", "/jobs", "/sign-in", "/healthz", "/v1x"):
            assert "access-control-allow-origin" not in (await client.get(path)).headers
            asked = {"Access-Control-Request-Method": "POST"}
            assert (await client.options(path, headers=asked)).status_code in {404, 405}


async def test_a_request_without_an_origin_gets_no_cross_origin_headers(world):
    async with world.client() as client:
        assert "access-control-allow-origin" not in (await client.get("/v1/me")).headers


@pytest.mark.requirement("G-HTTP-16.3", "TM-LIMIT-retry_after")
async def test_each_key_has_its_own_minute_and_the_next_request_is_a_429(world):
    tight = world.changed(limiter=memory_limiter(per_key=3))
    async with tight.client() as client:
        for path in ("/v1/me", "/api/v1/job", "/v1/nothing"):
            assert (await client.get(path)).status_code in {200, 404}
        answer = await client.get("/v1/me")
    assert (answer.status_code, code_of(answer)) == (429, "RATE_LIMITED")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.json()["retry_after"] == int(answer.headers["retry-after"])
    async with tight.client(READ_ONLY) as client:
        assert (await client.get("/v1/me")).status_code == 200


async def test_without_a_key_the_address_is_counted_whatever_was_presented(world):
    tight = world.changed(limiter=memory_limiter(per_address=2))
    statuses = []
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer other"}):
        async with tight.client(None, **headers) as client:
            statuses.append((await client.get("/v1/me")).status_code)
    assert statuses == [401, 401, 429]
    async with tight.client() as client:
        assert (await client.get("/v1/me")).status_code == 200


async def test_probes_and_pages_are_not_counted(world):
    tight = world.changed(limiter=memory_limiter(per_address=1))
    async with tight.client(None) as client:
        for _ in range(3):
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/")).status_code == 404


async def test_another_interface_in_the_app_reads_the_caller_and_keeps_its_own_error_shape(world):
    async def endpoint(request):
        principal = caller_of(request.scope).principal
        return JSONResponse({"key_id": principal and principal.key_id, "refusal": _refusal(request.scope)})

    def shape(error, headers):
        return JSONResponse({"error": {"data": error.body()}}, error.status, headers=dict(headers))

    joined = world.changed(limiter=memory_limiter(per_key=1, per_address=2), shapes={"/v1/mcp": shape})
    joined.app.router.routes.append(Route("/v1/mcp", endpoint, methods=["POST"]))
    async with joined.client(AUTOMATION) as client:
        assert (await client.post("/v1/mcp")).json() == {"key_id": world.key_ids[AUTOMATION], "refusal": None}
        over = await client.post("/v1/mcp")
        assert (over.status_code, over.json()["error"]["data"]["code"]) == (429, "RATE_LIMITED")
        assert over.headers["retry-after"]
        assert code_of(await client.get("/v1/me")) == "RATE_LIMITED"
    async with joined.client(None, Authorization="Bearer nobody") as client:
        assert (await client.post("/v1/mcp")).json() == {"key_id": None, "refusal": "UNAUTHENTICATED"}
        wrong = await client.get("/api/v1/mcp")
        assert (wrong.status_code, code_of(wrong)) == (404, "NOT_FOUND")


def _refusal(scope):
    refusal = caller_of(scope).refusal
    return None if refusal is None else refusal.code
