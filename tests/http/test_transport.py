"""The rules that hold for every route: errors, methods, bodies, hosts, origins."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from tests.http.conftest import AUTOMATION, b64, code_of

from tollbar.artifacts.blobs import local_blobs
from tollbar.kit.ids import is_id

JSON = {"Content-Type": "application/json"}


@pytest.mark.requirement("G-HTTP-16.3")
async def test_an_unknown_route_is_a_404_with_a_code(ask):
    for path in ["/v1/nothing", "/api/v1/nothing", "/v1", "/", "/v1/job/a/b/c", "/v2/me"]:
        answer = await ask("GET", path)
        assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")


@pytest.mark.requirement("G-HTTP-16.3")
async def test_a_trailing_slash_is_a_404_and_never_a_redirect(ask):
    for path in ["/v1/me/", "/v1/job/", "/api/v1/datasets/"]:
        answer = await ask("GET", path)
        assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")
        assert "slash" in answer.json()["hint"]


@pytest.mark.requirement("G-HTTP-16.3")
async def test_a_wrong_method_is_a_405_that_lists_all_methods_of_the_path(ask):
    for method, path, allow in [
        ("DELETE", "/v1/job", "GET, POST"),
        ("PUT", "/api/v1/job", "GET, POST"),
        ("POST", "/v1/me", "GET"),
        ("GET", "/v1/job/job_x/stop", "POST"),
        ("HEAD", "/v1/me", "GET"),
        ("OPTIONS", "/v1/me", "GET"),
        ("BREW", "/v1/datasets/eA/versions", "GET, POST"),
        ("POST", "/healthz", "GET"),
    ]:
        answer = await ask(method, path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == allow
        if method != "HEAD":
            assert code_of(answer) == "METHOD_NOT_ALLOWED"


@pytest.mark.requirement("G-HTTP-16.3")
async def test_a_body_that_is_not_strict_json_is_a_400(ask):
    for body in [
        b"",
        b"{",
        b'{"attempts": NaN}',
        b'{"attempts": -Infinity}',
        b'{"attempts": 1e999}',
        b'{"attempts": 1, "attempts": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b"\xff\xfe{}",
        b'{"tag": "a\x00b"}',
        b"[" * 100_000,
        b'{"attempts": ' + b"9" * 5000 + b"}",
    ]:
        answer = await ask("POST", "/v1/job", content=body, headers=JSON)
        assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST")


@pytest.mark.requirement("G-HTTP-16.3")
async def test_a_body_that_is_no_object_is_a_422(ask):
    for body in [b"[]", b'"job"', b"null", b"7"]:
        answer = await ask("POST", "/v1/job", content=body, headers=JSON)
        assert (answer.status_code, code_of(answer)) == (422, "INVALID_REQUEST")
        assert answer.json()["fields"] == [{"path": "", "problem": "must be an object"}]


async def test_text_that_cannot_be_stored_is_a_422_that_names_its_place(ask):
    for body, path in [
        (r'{"params": {"A": ["x", "\u0000"]}}', "params.A[1]"),
        (r'{"tag": "\ud800"}', "tag"),
        (r'{"params": {"\u0000": 1}}', "params"),
    ]:
        answer = await ask("POST", "/v1/job", content=body, headers=JSON)
        assert (answer.status_code, code_of(answer)) == (422, "INVALID_REQUEST")
        assert [field["path"] for field in answer.json()["fields"]] == [path]


async def test_a_smiley_is_text(ask):
    answer = await ask("POST", "/v1/job", content=json.dumps({"tag": "\U0001f600"}), headers=JSON)
    assert code_of(answer) == "INVALID_DATASET_SELECTOR"


async def test_the_body_of_a_submission_must_say_that_it_is_json(ask):
    for content_type, status in [
        ("application/json; charset=utf-8", 422),
        ("application/merge-patch+json", 422),
        (None, 422),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("nonsense", 415),
    ]:
        headers = {} if content_type is None else {"Content-Type": content_type}
        answer = await ask("POST", "/v1/job", content=b"{}", headers=headers)
        assert answer.status_code == status
        assert code_of(answer) == ("UNSUPPORTED_MEDIA_TYPE" if status == 415 else "INVALID_DATASET_SELECTOR")


@pytest.mark.requirement("G-HTTP-16.3")
async def test_a_get_with_a_json_content_type_and_a_post_without_a_body_work(ask, world):
    assert (await ask("GET", "/v1/me", headers=JSON)).status_code == 200
    job = await world.submit()
    answer = await ask("POST", f"/v1/job/{job['job_id']}/stop", headers=JSON)
    assert (answer.status_code, answer.json()["job_id"]) == (200, job["job_id"])


async def test_unknown_query_parameters_are_ignored_and_unknown_body_members_are_refused(ask, world):
    await world.publish()
    assert (await ask("GET", "/v1/job", params={"colour": "red", "limit": "5"})).status_code == 200
    answer = await ask("POST", "/v1/job", json={"dataset": "team/hello@1", "colour": "red"})
    assert (answer.status_code, code_of(answer)) == (422, "INVALID_REQUEST")
    assert [field["path"] for field in answer.json()["fields"]] == ["colour"]


@pytest.mark.requirement("G-HTTP-16.3")
async def test_no_answer_is_compressed_or_kept_by_a_cache(ask):
    for accepted in ["gzip", "br, gzip, deflate", "identity"]:
        answer = await ask("GET", "/v1/openapi.json", headers={"Accept-Encoding": accepted})
        assert len(answer.content) > 5000
        assert "content-encoding" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_name_that_does_not_decode_is_a_404_of_its_kind(ask):
    for segment in ["%%%", "a", "dGVhbS9oZWxsbw==", "_w", "AA", "dGVhbS9oZWxsbx", "%00"]:
        answer = await ask("GET", f"/v1/datasets/{segment}")
        assert answer.status_code == 404
        assert code_of(answer) in {"DATASET_NOT_FOUND", "NOT_FOUND"}
        answer = await ask("GET", f"/v1/profiles/{segment}/detail")
        assert code_of(answer) in {"PROFILE_NOT_FOUND", "NOT_FOUND"}


async def test_a_nul_in_a_query_is_a_422(ask):
    answer = await ask("GET", "/v1/datasets?q=a%00b")
    assert (answer.status_code, code_of(answer)) == (422, "INVALID_REQUEST")
    assert answer.json()["fields"] == [{"path": "q", "problem": "holds a NUL character"}]


async def test_a_hostile_id_is_a_404(ask):
    for path in ["/v1/job/%00", "/v1/job/..%2Fx", "/v1/job/job_" + "A" * 5000, "/v1/job/%F0%9F%98%80", "/v1/job/%ff"]:
        answer = await ask("GET", path)
        assert answer.status_code == 404
        assert code_of(answer) in {"JOB_NOT_FOUND", "NOT_FOUND"}


async def test_a_limit_out_of_range_is_a_422(ask):
    for limit in ["0", "101", "-1", "x", "1.5", "", "1e2", "٣", "9" * 40]:
        for path in ("/v1/job", "/v1/trials", "/v1/datasets", "/v1/runners", "/v1/profiles"):
            answer = await ask("GET", path, params={"limit": limit})
            assert (answer.status_code, code_of(answer)) == (422, "INVALID_LIMIT")


async def test_a_damaged_cursor_is_a_422(ask):
    for cursor in ["", "x", "e30", "eyJzIjoiMCIsImsiOlsxXX0", "\u00e9", "a" * 5000]:
        for path in ("/v1/job", "/v1/trials", "/v1/datasets", "/v1/runners", "/v1/profiles"):
            answer = await ask("GET", path, params={"cursor": cursor})
            assert (answer.status_code, code_of(answer)) == (422, "INVALID_CURSOR")


async def test_a_cursor_belongs_to_its_list_its_filters_and_its_project(ask, world):
    for version in ("1", "2", "3"):
        await world.publish(version=version)
    path = f"/v1/datasets/{b64('team/hello')}/versions"
    first = (await ask("GET", path, params={"limit": "2"})).json()
    rest = (await ask("GET", path, params={"limit": "2", "cursor": first["next_cursor"]})).json()
    assert [item["version"] for item in (*first["items"], *rest["items"])] == ["3", "2", "1"]
    assert rest["next_cursor"] is None
    for other in (f"{path}?version=1", f"{path}/1/tasks", "/v1/job"):
        answer = await ask("GET", f"{other}{'&' if '?' in other else '?'}cursor={first['next_cursor']}")
        assert code_of(answer) == "INVALID_CURSOR"
    answer = await ask("GET", path, "stranger", params={"cursor": first["next_cursor"]})
    assert code_of(answer) == "INVALID_CURSOR"


@pytest.mark.requirement("G-HTTP-16.3")
async def test_an_unexpected_failure_is_a_500_whose_id_the_log_has_and_tells_nothing(world, log_lines):
    @world.app.get("/v1/planted")
    async def planted() -> None:
        raise KeyError("hunter2")

    async with world.client() as client:
        answer = await client.get("/v1/planted", headers={"Origin": "https://elsewhere.example"})
    assert (answer.status_code, code_of(answer)) == (500, "INTERNAL_ERROR")
    assert "hunter2" not in answer.text
    assert answer.headers["access-control-allow-origin"] == "*"
    (line,) = [line for line in log_lines if line["event"] == "request failed"]
    assert line["error_id"] == answer.json()["error_id"]
    assert isinstance(line["exc_info"], KeyError)


async def test_a_database_that_is_away_is_a_503(world, ask):
    away = world.changed(database=type(world.deps.database)(*_away()))
    for path in ("/readyz", "/v1/me"):
        async with away.client() as client:
            answer = await client.get(path)
        assert (answer.status_code, code_of(answer)) == (503, "SERVICE_UNAVAILABLE")
    async with away.client(None) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}


def _away():
    from tollbar.db.session import open_database

    away = open_database("postgresql://nobody@127.0.0.1:1/nothing")
    return away.url, away.engine, away.sessions


async def test_probes_need_no_key_and_no_known_host(world):
    async with world.client(None, Host="10.0.0.7:9") as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        facts = {"database": True, "migrated": True, "artifacts": True, "workers": 0}
        assert (await client.get("/readyz")).json() == {"status": "ready", **facts}


async def test_a_server_whose_database_is_behind_or_whose_files_cannot_be_stored_is_not_ready(world, tmp_path):
    file = tmp_path / "file"
    file.mkdir()
    blobs = local_blobs(file / "blobs")
    (file / "blobs").rmdir()
    (file / "blobs").write_text("no folder")
    async with world.changed(blobs=blobs).client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["migrated"], answer.json()["artifacts"]) == (503, True, False)
    async with world.deps.database.transaction() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    async with world.client(None) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["database"], answer.json()["migrated"]) == (503, True, False)


async def test_the_access_log_says_who_and_what_and_never_the_query_or_the_key(world, log_lines):
    async with world.client() as client:
        await client.get("/v1/job", params={"tag": "hunter2"})
    (line,) = [line for line in log_lines if line["event"] == "request"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/job", 200)
    assert line["key_id"] == world.key_ids[AUTOMATION]
    assert "hunter2" not in repr(line)
    assert world.secrets[AUTOMATION] not in repr(line)


async def test_every_answer_bears_the_id_that_stands_on_the_log_lines_of_its_request(world, log_lines):
    async with world.client() as client:
        fine, refused = await client.get("/v1/me"), await client.get("/v1/job/none")
    ids = [answer.headers["X-Request-Id"] for answer in (fine, refused)]
    assert len(set(ids)) == 2
    assert all(is_id(one, "req") for one in ids)
    assert [line["http_request_id"] for line in log_lines if line["event"] == "request"] == ids


@pytest.mark.parametrize(("given", "is_kept"), [("edge-7.A_b", True), ("two words", False), ("x" * 65, False)])
async def test_the_id_that_a_proxy_gave_is_kept_where_it_is_a_plain_word(world, log_lines, given, is_kept):
    async with world.client() as client:
        answer = await client.get("/v1/me", headers={"X-Request-Id": given})
    assert (answer.headers["X-Request-Id"] == given) is is_kept
    (line,) = [line for line in log_lines if line["event"] == "request"]
    assert line["http_request_id"] == answer.headers["X-Request-Id"]
