"""The check of a dataset: which tasks the oracle cannot pass, which are free, which are not the same twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.e2e.tasks import toml, write_task

SHELL = "#!/bin/sh\n"
REWARD = "/logs/verifier/reward.txt"
SEES = f"{SHELL}test -f /app/out.txt && echo 1 > {REWARD} || echo 0 > {REWARD}\n"


@pytest.fixture(scope="module")
def checked(server: Running, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of a dataset with one task for each verdict, as the command prints it."""
    root = tmp_path_factory.mktemp("tasks")
    declared = {"tests/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY . /tests/\n"}
    separate = toml(verifier='environment_mode = "separate"\n[verifier.environment]\nnetwork_mode = "no-network"')
    solves = {"solution/solve.sh": f"{SHELL}echo x > out.txt\n"}
    write_task(root, "good", {**solves, "tests/test.sh": SEES})
    write_task(root, "free", {"tests/test.sh": f"{SHELL}echo 1 > {REWARD}\n"})
    write_task(root, "broken", {"tests/test.sh": f"{SHELL}curl -fsS http://example.com/x\necho 0 > {REWARD}\n"})
    write_task(root, "silent", {"tests/test.sh": f"{SHELL}exit 0\n"})
    write_task(
        root,
        "lucky",
        {
            "solution/solve.sh": f"{SHELL}date +%N > out.txt\n",
            "tests/test.sh": f"{SHELL}echo 0.$(cat /app/out.txt 2>/dev/null || echo 0) > {REWARD}\n",
        },
    )
    write_task(root, "blind", {"task.toml": separate, **declared, **solves, "tests/test.sh": SEES})
    write_task(root, "cut", {**solves, "tests/test.sh": SEES, "instruction.md": "# canary 1\nWrite out.txt.\n"})
    server.cli("datasets", "push", str(root), "--name", "team/mixed", "--version", "1")
    done = server.cli("datasets", "check", "team/mixed@1", "--max-cost", "1", "--json", check=False)
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


@pytest.mark.requirement("G-EVAL-18.3")
def test_every_task_has_its_verdict(checked: dict[str, Any]) -> None:
    problems = {item["task"]: item["verdict"] for item in checked["problems"]}

    assert problems == {
        "bad/blind": "oracle_fails",
        "bad/broken": "oracle_fails",
        "bad/free": "nop_not_zero",
        "bad/lucky": "flaky",
        "bad/silent": "unscored",
    }
    assert checked["flaky_tasks"] == ["bad/lucky"]
    assert "REWARD_MISSING" in next(item["message"] for item in checked["problems"] if item["task"] == "bad/silent")


@pytest.mark.requirement("G-EVAL-18.3")
def test_what_can_be_seen_without_a_run_is_said(checked: dict[str, Any]) -> None:
    found = {(item["task"], item["code"]) for item in checked["lint"]}

    assert found == {
        ("bad/blind", "nothing_declared"),
        ("bad/broken", "verifier_fetches"),
        ("bad/cut", "instruction_cut"),
    }


def test_the_outcome_stands_on_the_version_and_counts_what_has_a_reward(
    server: Running, checked: dict[str, Any]
) -> None:
    name = "dGVhbS9taXhlZA"
    with server.http() as http:
        version = http.get(f"/v1/datasets/{name}/versions/1").json()
        [listed] = http.get(f"/v1/datasets/{name}/versions").json()["items"]

    assert version["check"] == {key: value for key, value in checked.items() if key != "lint"}
    assert listed["check"] == version["check"]
    # Six tasks have a nop reward: one is free, five give nothing.
    assert version["check"]["nop_score"] == pytest.approx(1 / 6)


def test_a_good_dataset_has_no_problem_and_the_caps_add_up_to_what_was_given(server: Running) -> None:
    done = server.cli("datasets", "check", "demo/mini@1", "--max-cost", "0.04", "--json")
    outcome = json.loads(done.stdout)
    with server.http() as http:
        oracle, nop = (http.get(f"/v1/job/{outcome[f'{agent}_job_id']}").json() for agent in ("oracle", "nop"))

    assert (outcome["oracle_score"], outcome["nop_score"], outcome["problems"]) == (1.0, 0.0, [])
    assert (oracle["attempts"], nop["attempts"]) == (3, 1)
    assert (oracle["budget"]["max_cost_usd"], nop["budget"]["max_cost_usd"]) == ("0.03", "0.01")


def test_the_same_check_asked_for_again_is_the_same_check(server: Running) -> None:
    body = {"request_id": "check-twice"}
    with server.http() as http:
        first, second = (
            http.post("/v1/datasets/dGVzdHMvaGVsbG8td29ybGQ/versions/1/check", json=body).json() for _ in range(2)
        )

    assert [first[agent]["job_id"] for agent in ("oracle", "nop")] == [
        second[agent]["job_id"] for agent in ("oracle", "nop")
    ]


@pytest.mark.parametrize(
    ("body", "code"), [({"attempts": 3}, "INVALID_REQUEST"), ({"max_cost_usd": 0}, "INVALID_AMOUNT")]
)
def test_a_check_takes_its_two_members_only(server: Running, body: dict[str, Any], code: str) -> None:
    with server.http() as http:
        answer = http.post("/v1/datasets/dGVzdHMvaGVsbG8td29ybGQ/versions/1/check", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, code)
