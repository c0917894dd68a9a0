"""Bodies over their bound, on real sockets: refused early, without being kept, and so that every client sees it."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import closing

import pytest
from tests.http.conftest import AUTOMATION, READ_ONLY, b64, code_of, dataset_tar
from tests.http.served import served

from tollbar.http.bodies import MAX_BODY_BYTES

TEN_MB = 10_000_000


def _post(port, path, key, body, chunked=False):
    """Posts like a client that sends everything before it reads, and returns status and code."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        parts = (body[at : at + 65536] for at in range(0, len(body), 65536))
        connection.request("POST", path, parts if chunked else body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["code"]


@pytest.mark.requirement("G-HTTP-16.3")
async def test_a_client_that_sends_before_it_reads_sees_why_it_was_refused(world):
    async with served(world.app) as port:
        for key, body, chunked, expected in (
            (world.secrets[AUTOMATION], b" " * TEN_MB, False, (413, "REQUEST_TOO_LARGE")),
            (world.secrets[AUTOMATION], b" " * TEN_MB, True, (413, "REQUEST_TOO_LARGE")),
            (world.secrets[AUTOMATION], b" " * MAX_BODY_BYTES, False, (400, "INVALID_REQUEST")),
            (None, b" " * MAX_BODY_BYTES, False, (401, "UNAUTHENTICATED")),
            (world.secrets[READ_ONLY], b" " * MAX_BODY_BYTES, False, (403, "ACCESS_DENIED")),
        ):
            assert await asyncio.to_thread(_post, port, "/v1/job", key, body, chunked) == expected


async def test_a_body_of_ten_megabytes_is_refused_before_it_was_sent(world):
    async with served(world.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST /v1/job HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {TEN_MB}\r\n"
            f"Authorization: Bearer {world.secrets[AUTOMATION]}\r\n\r\n".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 413 ")
        body = await asyncio.wait_for(reader.readuntil(b"}"), 5)
        assert json.loads(body)["code"] == "REQUEST_TOO_LARGE"
        writer.close()


async def test_a_body_without_a_length_is_cut_off_at_its_bound(world):
    taken = 0

    async def endless():
        nonlocal taken
        while True:
            taken += 65536
            yield b" " * 65536

    async with world.client() as client:
        answer = await client.post("/v1/job", content=_first(endless(), 40 << 20))
    assert (answer.status_code, code_of(answer)) == (413, "REQUEST_TOO_LARGE")
    assert answer.json()["max_bytes"] == MAX_BODY_BYTES
    assert taken < 24 << 20


async def _first(parts, size):
    async for part in parts:
        yield part
        size -= len(part)
        if size <= 0:
            return


async def test_an_upload_has_its_own_bound_and_may_be_larger_than_other_bodies(world, tmp_path):
    archive = dataset_tar("one", **{"instruction.md": b"x" * (5 << 20)})
    async with served(world.app) as port:
        path = f"/v1/datasets/{b64('team/large')}/versions?version=1"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

        def send():
            with closing(connection):
                connection.request("POST", path, archive, {"Authorization": f"Bearer {world.secrets[AUTOMATION]}"})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        status, body = await asyncio.to_thread(send)
    assert (status, body["name"], body["task_count"]) == (201, "team/large", 1)
    small = world.changed(max_upload_bytes=4096)
    for facts in ({"content": archive}, {"content": _first(_chunks(archive), len(archive))}):
        async with small.client() as client:
            answer = await client.post(f"/v1/datasets/{b64('team/small')}/versions?version=1", **facts)
        assert (answer.status_code, code_of(answer), answer.json()["max_bytes"]) == (413, "REQUEST_TOO_LARGE", 4096)
    assert list((tmp_path / "uploads").iterdir()) == []


async def _chunks(data):
    for at in range(0, len(data), 65536):
        yield data[at : at + 65536]
