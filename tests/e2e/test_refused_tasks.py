"""Tasks that this machine cannot honour: refused by key before anything starts or costs, and never a zero."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import Running
from tests.e2e.tasks import Ended, run_folder, toml, write_task

SERVICES: Final = "services:\n  db:\n    image: postgres:18\n"
LACKING: Final[dict[str, tuple[dict[str, str], str, str]]] = {
    "gpu": ({"task.toml": toml(environment="gpus = 1")}, "gpu", "environment.gpus"),
    "tpu": ({"task.toml": toml(environment='tpu = {type = "v6e", topology = "2x2"}')}, "gpu", "environment.tpu"),
    "windows": (
        {"task.toml": toml(environment='os = "windows"'), "tests/test.bat": "", "solution/solve.bat": ""},
        "os",
        "environment.os",
    ),
    "public": ({"task.toml": toml().replace('"no-network"', '"public"')}, "network", "network_mode public"),
    "allowlist": (
        {"task.toml": toml().replace("[agent]", '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.0.0.0/8"]')},
        "network",
        "allowed_hosts 10.0.0.0/8",
    ),
    "compose": ({"environment/docker-compose.yaml": SERVICES}, "key", "docker-compose.yaml"),
    "user": ({"task.toml": toml().replace("[agent]", '[agent]\nuser = "bob"')}, "key", "user"),
    "mcp": (
        {"task.toml": toml(more='[[environment.mcp_servers]]\nname = "s"\nurl = "http://x"')},
        "key",
        "mcp_servers",
    ),
    "skills": ({"task.toml": toml(environment='skills_dir = "/skills"')}, "key", "skills_dir"),
    "judge": ({"task.toml": toml(more='[metadata.tollbar]\nverifier_model = "openai:x"')}, "key", "verifier_model"),
    "variable": ({"task.toml": toml(more='[environment.env]\nA = "${NOBODY_GAVE_IT}"')}, "variable", "NOBODY_GAVE_IT"),
    "instruction": ({"environment/Dockerfile": "FROM x\nWORKDIR /app\nUSER nobody\n"}, "key", "line 3: USER"),
}  # fmt: skip
"""What a task asks, the detail of its refusal, and the key that the message names."""

FAILING: Final = {"environment/Dockerfile": "FROM x\nWORKDIR /app\nRUN echo why it failed >&2; exit 3\n"}


@pytest.fixture(scope="module")
def ended(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One Job on the priced runner: a task for each capability that is missing, one that cannot be built, one good."""
    root = tmp_path_factory.mktemp("refused")
    for name, (files, _, _) in LACKING.items():
        write_task(root, name, files)
    write_task(root, "unbuildable", FAILING)
    write_task(root, "unsolved", {})
    (root / "unsolved/solution/solve.sh").rename(root / "unsolved/solution/other.sh")
    write_task(root, "fine", {})
    return run_folder(server, root, "--runner", "envhub/metered@main")


@pytest.mark.requirement("G-SBX-14.refusals", "G-EVAL-17.capability")
@pytest.mark.parametrize("name", LACKING)
def test_what_cannot_be_enforced_is_refused_by_key_and_nothing_starts_or_costs(ended: Ended, name: str) -> None:
    trial, (_, detail, key) = ended.trials[name], LACKING[name]
    assert (trial["status"], trial["reward"], trial["reason"]) == ("failed", None, "ENVIRONMENT_REFUSED")
    assert trial["reason_detail"] == detail
    assert key in trial["message"]
    assert {amount for name, amount in trial["cost"].items() if name.endswith("_usd")} <= {"0", None}
    assert (trial["sandbox_forms"], trial["agent_outcome"], trial["sealed_sha256"]) == ({}, None, None)
    assert trial["artifacts"]["items"] == []


@pytest.mark.requirement("G-EVAL-18.8")
@pytest.mark.parametrize(
    ("name", "reason", "detail", "said"),
    [
        ("unbuildable", "ENVIRONMENT_BUILD_FAILED", "build", "why it failed"),
        ("unsolved", "AGENT_SETUP_FAILED", "install", "solution/solve.sh"),
    ],
)
def test_a_fault_that_is_not_the_agents_is_a_reason_and_never_a_zero(
    ended: Ended, name: str, reason: str, detail: str, said: str
) -> None:
    trial = ended.trials[name]
    assert (trial["status"], trial["reward"], trial["pass"]) == ("failed", None, None)
    assert (trial["reason"], trial["reason_detail"]) == (reason, detail)
    assert said in trial["message"]


@pytest.mark.requirement("G-EVAL-18.8", "G-EVAL-18.9", "G-SBX-14.accounting_verifier")
def test_faults_lower_the_coverage_and_not_the_score(ended: Ended) -> None:
    assert (ended.job["status"], ended.job["score"], ended.job["pass"]) == ("completed", 1.0, 1.0)
    assert (ended.job["n_scored"], ended.job["n_total"]) == (1, len(LACKING) + 3)
    fine = ended.trials["fine"]
    assert Decimal(ended.job["budget"]["spent_usd"]) == sum(
        Decimal(trial["cost"]["total_usd"]) for trial in ended.trials.values()
    )
    parts = {name: Decimal(amount or 0) for name, amount in fine["cost"].items() if name.endswith("_usd")}
    assert parts["sandbox_usd"] > 0
    assert parts["verifier_usd"] > 0
    assert parts["sandbox_usd"] + parts["verifier_usd"] == parts["total_usd"]
    assert ended.job["budget"]["reserved_usd"] == "0"


@pytest.mark.requirement("G-EVAL-17.all_refused")
def test_a_submission_of_which_nothing_could_run_is_refused_and_writes_nothing(server: Running, tmp_path: Path) -> None:
    for name in ("gpu", "user"):
        write_task(tmp_path, name, LACKING[name][0])
    server.cli("datasets", "push", str(tmp_path), "--name", "bad/none", "--version", "1")
    with server.http() as http:
        before = http.get("/v1/job?limit=100").json()["items"]
        answer = http.post("/v1/job", json={"dataset": "bad/none@1", "max_cost_usd": 1})
        body = answer.json()
        assert (answer.status_code, body["code"]) == (422, "UNSUPPORTED_CAPABILITY")
        assert {(item["task"], item["detail"]) for item in body["refused"]} == {
            ("bad/gpu", "gpu"),
            ("bad/user", "key"),
        }
        assert http.get("/v1/job?limit=100").json()["items"] == before


@pytest.mark.requirement("G-SBX-14.substitution_refused")
def test_a_substitution_that_the_job_does_not_allow_is_refused_with_image_and_line(server: Running) -> None:
    body: dict[str, Any] = {"dataset": "demo/mini@1", "runner": "envhub/metered@main", "max_cost_usd": 1}
    with server.http() as http:
        job = http.post("/v1/job", json={**body, "allow_base_substitution": False}).json()
        ended = server.finished(job["job_id"])
        assert (ended["status"], ended["error"]["code"], ended["score"]) == ("failed", "NO_TRIAL_SCORED", None)
        assert (ended["budget"]["spent_usd"], ended["n_scored"]) == ("0", 0)
        for item in http.get(f"/v1/job/{job['job_id']}/result").json()["trials"]["items"]:
            trial = http.get(f"/v1/trials/{item['trial_id']}/result").json()
            assert (trial["reason"], trial["reason_detail"]) == ("ENVIRONMENT_REFUSED", "substitution")
            assert "line 1: FROM debian" in trial["message"]
            assert trial["substitutions"] == []
