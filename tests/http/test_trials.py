"""Trials and artifacts over HTTP: listed, read whole as downloads, read in windows."""

from __future__ import annotations

import hashlib

import pytest
from tests.http.conftest import code_of
from tests.http.served import served

LARGE = bytes(range(256)) * (3 << 12)


@pytest.fixture
async def trial(world):
    """An ended Trial's id."""
    job = await world.submit()
    return await world.trial(job["job_id"])


async def artifact_id(client, trial, name):
    """Returns the id of the Trial's artifact of that name."""
    listed = (await client.get(f"/v1/trials/{trial}/artifacts")).json()["items"]
    return next(item["artifact_id"] for item in listed if item["name"] == name)


async def test_trials_are_listed_and_shown_with_what_clients_need(world, trial):
    async with world.client() as client:
        (item,) = (await client.get("/v1/trials")).json()["items"]
        assert {"trial_id", "type", "job_id", "name", "status", "created_at"} <= set(item)
        assert (await client.get("/v1/trials", params={"job_id": item["job_id"]})).json()["items"] == [item]
        assert (await client.get("/v1/trials", params={"status": "failed"})).json()["items"] == []
        one = (await client.get(f"/v1/trials/{trial}")).json()
        assert one == (await client.get(f"/v1/trials/{trial}/detail")).json()
        assert (one["trial_id"], one["status"], one["reward"]) == (trial, "succeeded", 1.0)
        result = (await client.get(f"/v1/trials/{trial}/result")).json()
    assert {"reward", "status", "structured_result", "artifacts", "untrusted"} <= set(result)


async def test_artifacts_are_listed_by_name_with_what_a_download_needs(world, trial):
    for name, data in (("b/log.txt", b"log"), ("a.bin", b"\x00\x01"), ("report.json", None)):
        await world.artifact(trial, name, data)
    async with world.client() as client:
        first = (await client.get(f"/v1/trials/{trial}/artifacts", params={"limit": "2"})).json()
        rest = (
            await client.get(f"/v1/trials/{trial}/artifacts", params={"limit": "2", "cursor": first["next_cursor"]})
        ).json()
        missing = rest["items"][0]["artifact_id"]
        answer = await client.get(f"/v1/trials/{trial}/artifacts/{missing}/content")
    assert [item["name"] for item in (*first["items"], *rest["items"])] == ["a.bin", "b/log.txt", "report.json"]
    assert first["items"][0]["sha256"] == hashlib.sha256(b"\x00\x01").hexdigest()
    assert (first["items"][0]["size"], first["items"][0]["upload_state"]) == (2, "uploaded")
    assert (rest["items"][0]["upload_state"], rest["items"][0]["size"]) == ("failed", None)
    assert (answer.status_code, code_of(answer)) == (404, "ARTIFACT_NOT_FOUND")


async def test_the_first_page_of_a_result_is_continued_by_the_list(world, trial):
    for number in range(27):
        await world.artifact(trial, f"{number:02}.txt", b"x")
    async with world.client() as client:
        first = (await client.get(f"/v1/trials/{trial}/result")).json()["artifacts"]
        cursor = {"cursor": first["next_cursor"]}
        rest = (await client.get(f"/v1/trials/{trial}/artifacts", params=cursor)).json()
    assert [item["name"] for item in rest["items"]] == ["25.txt", "26.txt"]


async def test_content_is_the_very_bytes_as_a_download_that_no_browser_opens(world, trial):
    for name, data, saved_as in (
        ('deep/ä "x".html', b"<script>", "%C3%A4%20%22x%22.html"),
        ("empty", b"", "empty"),
        ("large", LARGE, "large"),
    ):
        await world.artifact(trial, name, data)
        async with world.client() as client:
            path = f"/v1/trials/{trial}/artifacts/{await artifact_id(client, trial, name)}/content"
            answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.content == data
        assert answer.headers["content-length"] == str(len(data))
        assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{saved_as}"
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "sandbox"


async def test_content_streams_through_a_real_server(world, trial):
    await world.artifact(trial, "large", LARGE)
    async with world.client() as client:
        path = f"/v1/trials/{trial}/artifacts/{await artifact_id(client, trial, 'large')}/content"
    async with served(world.app) as port, world.socket_client(port) as client:
        answer = await client.get(path)
    assert hashlib.sha256(answer.content).digest() == hashlib.sha256(LARGE).digest()


async def test_content_whose_bytes_are_gone_is_a_503_and_not_half_an_answer(world, trial, tmp_path):
    await world.artifact(trial, "gone", b"gone")
    for path in (tmp_path / "blobs").rglob("*"):
        if path.is_file() and path.read_bytes() == b"gone":
            path.unlink()
    async with world.client() as client:
        path = f"/v1/trials/{trial}/artifacts/{await artifact_id(client, trial, 'gone')}/content"
        answer = await client.get(path)
    assert (answer.status_code, code_of(answer)) == (503, "STORE_UNAVAILABLE")


async def test_windows_rebuild_a_text_and_refuse_wrong_bounds(world, trial):
    text = "héllo, wörld \U0001f600" * 10
    await world.artifact(trial, "t.txt", text.encode())
    async with world.client() as client:
        path = f"/v1/trials/{trial}/artifacts/{await artifact_id(client, trial, 't.txt')}/window"
        whole, offset = "", 0
        while offset is not None:
            part = (await client.get(path, params={"offset": str(offset), "max_bytes": "7"})).json()
            whole, offset = whole + part["text"], part["next_offset"]
        assert whole == text
        for query in (
            {"offset": "-1"},
            {"offset": "x"},
            {"offset": ""},
            {"offset": "1.5"},
            {"max_bytes": "0"},
            {"max_bytes": "32769"},
            {"max_bytes": "9" * 30},
        ):
            answer = await client.get(path, params=query)
            assert (answer.status_code, code_of(answer)) == (422, "INVALID_REQUEST")
            assert answer.json()["fields"][0]["path"] == next(iter(query))


async def test_an_artifact_of_another_trial_is_a_404(world, trial):
    job = await world.submit()
    other = await world.trial(job["job_id"])
    await world.artifact(other, "a.txt", b"x")
    async with world.client() as client:
        foreign = await artifact_id(client, other, "a.txt")
        for part in ("content", "window"):
            answer = await client.get(f"/v1/trials/{trial}/artifacts/{foreign}/{part}")
            assert (answer.status_code, code_of(answer)) == (404, "ARTIFACT_NOT_FOUND")
