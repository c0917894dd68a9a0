"""Downloads are what was announced, or nothing is kept."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.cli import examples
from tests.cli.standin import Answer, StandIn, running

from tollbar.client import ApiError, Client, DownloadDamaged, UnexpectedAnswer

ARTIFACT: Any = examples.artifact()
ROUTE = f"GET /v1/trials/{examples.TRIAL_ID}/artifacts/{ARTIFACT['artifact_id']}/content"


def test_a_download_is_saved_whole_with_plain_rights(server: StandIn, client: Client, tmp_path: Path) -> None:
    server.on(ROUTE, Answer(200, examples.LOG))
    client.save_artifact(examples.TRIAL_ID, ARTIFACT, tmp_path / "log.txt")
    assert (tmp_path / "log.txt").read_bytes() == examples.LOG
    assert (tmp_path / "log.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("served", "problem"),
    [(b"agent log", "ended after 9 of 15"), (b"agent log lines\n", "larger"), (b"AGENT log line\n", "SHA-256")],
)
def test_bytes_that_were_not_announced_are_not_kept(
    server: StandIn, client: Client, tmp_path: Path, served: bytes, problem: str
) -> None:
    server.on(ROUTE, Answer(200, served))
    (tmp_path / "log.txt").write_text("older")
    with pytest.raises(DownloadDamaged, match=problem):
        client.save_artifact(examples.TRIAL_ID, ARTIFACT, tmp_path / "log.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]
    assert (tmp_path / "log.txt").read_text() == "older"


def test_a_refused_download_is_an_api_error(server: StandIn, client: Client) -> None:
    server.on(ROUTE, Answer(404, {"code": "ARTIFACT_NOT_FOUND", "message": "It is gone."}))
    with pytest.raises(ApiError, match="gone"):
        client.copy_artifact(examples.TRIAL_ID, ARTIFACT, io.BytesIO())


def test_one_redirect_is_followed_and_no_credential_goes_there(server: StandIn, client: Client) -> None:
    with running() as store:
        store.needs_key = False
        store.on("GET /bucket/object", Answer(200, examples.LOG))
        server.on(ROUTE, Answer(302, b"", {"Location": f"{store.url}/bucket/object?signature=x"}))
        target = io.BytesIO()
        client.copy_artifact(examples.TRIAL_ID, ARTIFACT, target)
        assert target.getvalue() == examples.LOG
        sent = store.asked[0].headers
        assert not {"authorization", "x-workspace-id", "x-project-id"} & set(sent)
        assert store.asked[0].query == {"signature": "x"}


@pytest.mark.parametrize("target", ["http://10.1.2.3/x", "file:///etc/passwd", "//host/x", "", "/v1/me"])
def test_a_redirect_elsewhere_is_not_followed(server: StandIn, client: Client, target: str) -> None:
    server.on(ROUTE, Answer(302, b"", {"Location": target}))
    with pytest.raises(UnexpectedAnswer, match="not https"):
        client.copy_artifact(examples.TRIAL_ID, ARTIFACT, io.BytesIO())


def test_a_second_redirect_is_not_followed(server: StandIn, client: Client) -> None:
    with running() as store:
        store.needs_key = False
        store.on("GET /one", Answer(302, b"", {"Location": f"{store.url}/two"}))
        server.on(ROUTE, Answer(302, b"", {"Location": f"{store.url}/one"}))
        with pytest.raises(UnexpectedAnswer, match="HTTP 302"):
            client.copy_artifact(examples.TRIAL_ID, ARTIFACT, io.BytesIO())
        assert len(store.asked) == 1
