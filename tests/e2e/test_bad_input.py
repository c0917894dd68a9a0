"""Bad input through the interfaces: each a clear error with its code, and nothing lost or written."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.e2e.tasks import TASK_TOML, folder


def submit(server: Running, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    with server.http() as http:
        answer = http.post("/v1/job", json=body)
        return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"dataset": "no/such@1"}, 404, "DATASET_NOT_FOUND"),
        ({"dataset": "demo/mini@99"}, 404, "DATASET_REVISION_NOT_FOUND"),
        ({"dataset": {"name": "demo/mini", "version": "1", "task_id": "none"}}, 404, "TASK_MEMBER_NOT_FOUND"),
        ({"task_ref": {"kind": "task"}}, 422, "INVALID_DATASET_SELECTOR"),
        ({"attempts": 0}, 422, "INVALID_ATTEMPTS"),
        ({"attempts": 101}, 422, "INVALID_ATTEMPTS"),
        ({"attempts": "3"}, 422, "INVALID_ATTEMPTS"),
        ({"max_cost_usd": 0}, 422, "INVALID_AMOUNT"),
        ({"max_cost_usd": 1e9}, 422, "INVALID_AMOUNT"),
        ({"profile_name": "no/such"}, 404, "PROFILE_NOT_FOUND"),
        ({"runner": "no/such@main"}, 404, "RUNNER_NOT_FOUND"),
        ({"runner": "a b"}, 422, "INVALID_RUNNER"),
        ({"params": {"MODEL": "x"}}, 422, "INVALID_JOB"),
        ({"tag": ""}, 422, "INVALID_TAG"),
        ({"request_id": ""}, 422, "INVALID_REQUEST_ID"),
        ({"priority": 101}, 422, "INVALID_PRIORITY"),
        ({"queue_id": "fast"}, 404, "QUEUE_NOT_FOUND"),
        ({"job_id": "mine"}, 422, "INVALID_JOB_ID"),
        ({"type": "train"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"type": "dance"}, 422, "INVALID_JOB_TYPE"),
        ({"attempt": 3}, 422, "INVALID_REQUEST"),
    ],
)
def test_a_submission_that_is_refused_names_its_code_and_writes_nothing(
    server: Running, change: dict[str, Any], status: int, code: str
) -> None:
    body = {"dataset": "demo/mini@1", "request_id": "refused", "max_cost_usd": 1, **change}
    with server.http() as http:
        before = http.get("/v1/job").json()["items"]
        found, error = submit(server, body)
        assert (found, error["code"]) == (status, code)
        assert error["message"]
        assert http.get("/v1/job").json()["items"] == before


@pytest.mark.requirement("G-HTTP-16.12")
@pytest.mark.parametrize("kind", ["train", "inference", "sandbox"])
def test_jobs_and_trials_of_kinds_that_are_not_offered_are_an_empty_page(server: Running, kind: str) -> None:
    with server.http() as http:
        for path in ("/v1/job", "/v1/trials", "/api/v1/job", "/api/v1/trials"):
            answer = http.get(path, params={"type": kind})
            assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})


def test_a_wrong_manifest_hash_is_a_conflict(server: Running) -> None:
    ref = {"kind": "dataset", "name": "demo/mini", "version": "1", "manifest_sha256": "0" * 64}
    status, error = submit(server, {"dataset_ref": ref, "max_cost_usd": 1})
    assert (status, error["code"]) == (409, "DATASET_MANIFEST_CONFLICT")


def test_a_reused_request_id_gives_the_first_job_or_a_conflict_that_names_what_differs(server: Running) -> None:
    body = {"dataset": "tests/hello-world@1", "request_id": "again", "max_cost_usd": 5}
    status, first = submit(server, body)
    assert status == 202
    same = {"dataset": {"name": "tests/hello-world", "version": "1"}, "request_id": "again", "max_cost_usd": "5.00"}
    status, second = submit(server, same)
    assert (status, second["job_id"]) == (200, first["job_id"])
    status, error = submit(server, {**body, "attempts": 2, "max_cost_usd": 6})
    assert (status, error["code"], error["job_id"]) == (409, "JOB_REQUEST_CONFLICT", first["job_id"])
    assert error["differs"] == ["attempts", "max_cost_usd"]
    server.finished(first["job_id"])


@pytest.mark.parametrize("body", [b'{"dataset": NaN}', b'{"a": 1, "a": 2}', b"{", b"\xff", b""])
def test_a_body_that_is_not_json_is_refused(server: Running, body: bytes) -> None:
    with server.http() as http:
        answer = http.post("/v1/job", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")


def test_a_body_of_ten_megabytes_is_refused(server: Running) -> None:
    with server.http() as http:
        answer = http.post("/v1/job", content=b'{"tag": "' + b"x" * (10 << 20) + b'"}')
        assert (answer.status_code, answer.json()["code"]) == (413, "REQUEST_TOO_LARGE")


def test_an_archive_that_leaves_its_folder_is_refused_whole(server: Running) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("task/task.toml", "../../etc/evil"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))
    with server.http() as http:
        name = "ZXZpbC9zZXQ"  # evil/set
        answer = http.post(f"/v1/datasets/{name}/versions", params={"version": "1"}, content=data.getvalue())
        assert (answer.status_code, answer.json()["code"]) == (422, "UNSUPPORTED_TASK_FORMAT")
        assert "evil" in json.dumps(answer.json()["problems"])
        assert http.get(f"/v1/datasets/{name}").status_code == 404


@pytest.mark.requirement("G-EVAL-17.broken_folder", "G-EVAL-18.37")
def test_a_broken_task_beside_a_good_one_refuses_the_upload_and_names_the_folder(
    server: Running, tmp_path: Path
) -> None:
    folder(tmp_path)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "task.toml").write_text("schema_version = \n")
    done = server.cli("datasets", "push", str(tmp_path), "--name", "bad/broken", "--json", check=False)
    error = json.loads(done.stdout)
    assert (done.returncode, error["code"]) == (2, "UNSUPPORTED_TASK_FORMAT")
    assert any(problem["file"].startswith("broken/task.toml") for problem in error["problems"])


def test_an_unknown_key_is_refused_with_the_nearest_known_one(server: Running, tmp_path: Path) -> None:
    folder(tmp_path, task_dot_toml=TASK_TOML.replace("{name}", "task") + "[agent]\ntimeout_secs = 5\n")
    done = server.cli("datasets", "push", str(tmp_path), "--name", "bad/key", "--json", check=False)
    assert done.returncode == 2
    assert "agent.timeout_secs" in done.stdout
    assert "timeout_sec" in done.stdout


@pytest.fixture
def graded(server: Running, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a changed task with the oracle and returns its one Trial's result."""

    def run(**changes: str) -> dict[str, Any]:
        words = ["jobs", "submit", str(folder(tmp_path, **changes)), "--max-cost", "1", "--watch", "--json"]
        done = server.cli(*words, check=False)
        job = json.loads(done.stdout.splitlines()[-1])
        with server.http() as http:
            items = http.get(f"/v1/job/{job['job_id']}/result").json()["trials"]["items"]
            return http.get(f"/v1/trials/{items[0]['trial_id']}/result").json()

    return run


@pytest.mark.parametrize(
    ("script", "reason", "detail"),
    [
        ("printf '{\"reward\": true}' > /logs/verifier/reward.json", "REWARD_INVALID", "not_a_number"),
        ("echo nan > /logs/verifier/reward.txt", "REWARD_INVALID", "not_finite"),
        ("printf '1\\n0\\n' > /logs/verifier/reward.txt", "REWARD_INVALID", "not_a_number"),
        ("true", "REWARD_MISSING", "absent"),
        ("exit 75", "VERIFIER_FAILED", "unavailable"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", "REWARD_MISSING", "absent"),
    ],
)
def test_an_invalid_reward_is_a_reason_and_never_a_zero(
    graded: Callable[..., dict[str, Any]], script: str, reason: str, detail: str
) -> None:
    trial = graded(tests__test_dot_sh=f"#!/bin/sh\n{script}\n")
    assert (trial["status"], trial["reward"], trial["reason"], trial["reason_detail"]) == (
        "failed",
        None,
        reason,
        detail,
    )


def test_a_failing_test_script_after_a_valid_reward_keeps_it_and_is_flagged(
    graded: Callable[..., dict[str, Any]],
) -> None:
    trial = graded(tests__test_dot_sh="#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nexit 7\n")
    assert (trial["reward"], trial["verifier"]["exit_code"]) == (1.0, 7)
    assert trial["flags"] == ["verifier_exit_nonzero"]


def test_a_planted_reward_and_a_background_process_do_not_reach_the_verifier(
    graded: Callable[..., dict[str, Any]],
) -> None:
    plant = (
        "#!/bin/sh\nmkdir -p /logs/verifier\necho 1 > /logs/verifier/reward.txt\n"
        "setsid nohup sh -c 'while true; do echo 1 > /logs/verifier/reward.txt; done' >/dev/null 2>&1 &\n"
    )
    trial = graded(solution__solve_dot_sh=plant, tests__test_dot_sh="#!/bin/sh\nls /logs/verifier\n")
    assert (trial["reason"], trial["reason_detail"], trial["verifier"]["mode"]) == (
        "REWARD_MISSING",
        "absent",
        "shared",
    )


def test_a_dockerfile_instruction_that_is_not_honoured_is_refused_by_name_and_line(
    graded: Callable[..., dict[str, Any]],
) -> None:
    trial = graded(environment__Dockerfile="FROM debian:bookworm-slim\nUSER nobody\n")
    assert (trial["reason"], trial["reason_detail"]) == ("ENVIRONMENT_REFUSED", "key")
    assert "USER" in trial["message"]
    assert "2" in trial["message"]
    assert trial["cost"]["total_usd"] == "0"
