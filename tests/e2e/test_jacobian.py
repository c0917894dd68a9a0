"""The six example tasks that lie beside the repository: as changed copies (see their README), and as they are."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import Running
from tests.e2e.tasks import Ended, results, run_folder

EXAMPLES: Final = Path(__file__).parents[2].parent / "shared" / "examples" / "tasks" / "jacobian"
BOUND: Final = {"correctness": 1.0, "input_binding": 1.0}
ORACLE: Final = {
    "calendar-good-days-audit": BOUND,
    "distinct-sum-pairing-optimum": {"correctness": 1.0},
    "erdos-gallai-realization-audit": {"correctness": 1.0},
    "finite-magma-countermodel": BOUND,
    "finite-partition": {"correctness": 1.0},
    "hadamard-order12-construction": {**BOUND, "protocol_compliance": 1.0},
}
"""The dimensions that the oracle reaches; the agent that does nothing reaches `input_binding` alone."""

INSTALL: Final = re.compile(r"^RUN python -m pip install --no-cache-dir (.+)$", re.MULTILINE)
FROM_PACKAGES: Final = "COPY verifier-packages /opt/verifier-packages\nENV PYTHONPATH=/opt/verifier-packages"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the verifiers import, installed once for the machine's Python and kept between test runs."""
    pins = {INSTALL.search((EXAMPLES / name / "tests/Dockerfile").read_text())[1] for name in ORACLE}  # type: ignore[index]  # fails when there is none
    (line,) = pins
    code = "import sys, sysconfig; print(*sys.version_info[:2], sep='.'); print(sysconfig.get_platform())"
    version, platform = subprocess.check_output(["/usr/bin/python3", "-c", code], text=True).split()
    key = hashlib.sha256(f"{line} {version} {platform}".encode()).hexdigest()[:12]
    folder = tmp_path_factory.getbasetemp().parent / f"tollbar-verifier-packages-{key}"
    if not folder.exists():
        fresh = tmp_path_factory.mktemp("packages") / "fresh"
        words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                *words,
                "--python-version",
                version,
                "--target",
                fresh,
                *line.split(),
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"the verifiers' packages could not be installed: {done.stderr}"
        for cache in list(fresh.rglob("__pycache__")):
            shutil.rmtree(cache)
        fresh.rename(folder)
    return folder


@pytest.fixture(scope="module")
def copies(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six tasks with the verifiers' packages beside their tests, in place of a download during the build."""
    root = tmp_path_factory.mktemp("jacobian")
    for name in ORACLE:
        shutil.copytree(EXAMPLES / name, root / name)
        dockerfile = root / name / "tests/Dockerfile"
        dockerfile.write_text(INSTALL.sub(FROM_PACKAGES, dockerfile.read_text()))
        shutil.copytree(packages, root / name / "tests/verifier-packages")
    return root


@pytest.fixture(scope="module")
def solved(server: Running, copies: Path) -> Ended:
    return run_folder(server, copies)


@pytest.fixture(scope="module")
def untouched(server: Running, copies: Path) -> Ended:
    return run_folder(server, copies, "--profile", "tollbar/nop")


@pytest.mark.parametrize("name", ORACLE)
def test_the_oracle_reaches_every_dimension_and_the_agent_that_does_nothing_none_of_its_own(
    solved: Ended, untouched: Ended, name: str
) -> None:
    full, none = solved.trials[name], untouched.trials[name]
    assert (full["reward"], full["structured_result"]["dimensions"]) == (1.0, ORACLE[name])
    assert (none["status"], none["reward"]) == ("succeeded", 0.0)
    expected = {dimension: float(dimension == "input_binding") for dimension in ORACLE[name]}
    assert none["structured_result"]["dimensions"] == expected
    missing = [item["name"] for item in none["artifacts"]["items"] if item["state"] == "missing"]
    assert missing == ["app/submission.json"], "graded 0, not unscored, and the lack is listed"
    assert full["verifier"]["mode"] == "separate"


def test_the_set_has_the_published_score_and_interval(solved: Ended, untouched: Ended) -> None:
    for ended, score, interval in ((solved, 1.0, [0.609666, 1.0]), (untouched, 0.0, [0.0, 0.390334])):
        assert (ended.job["score"], ended.job["pass"]) == (score, score)
        assert (ended.job["n_scored"], ended.job["n_total"]) == (6, 6)
        assert ended.job["intervals"]["score"] == interval


def test_a_verifier_that_lacks_its_packages_writes_no_reward_and_is_no_zero(
    server: Running, copies: Path, tmp_path: Path
) -> None:
    shutil.copytree(copies / "finite-partition", tmp_path / "finite-partition")
    dockerfile = tmp_path / "finite-partition/tests/Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(FROM_PACKAGES, ""))
    shutil.rmtree(tmp_path / "finite-partition/tests/verifier-packages")
    trial = run_folder(server, tmp_path).trials["finite-partition"]
    assert (trial["reward"], trial["reason"], trial["reason_detail"]) == (None, "REWARD_MISSING", "absent")
    assert trial["verifier"]["exit_code"] == 1


@pytest.mark.requirement("G-SBX-14.substitution_refused")
def test_as_they_are_and_without_leave_to_substitute_their_images_they_are_refused(server: Running) -> None:
    server.cli("datasets", "push", str(EXAMPLES), "--name", "examples/jacobian", "--version", "1")
    body: dict[str, Any] = {"dataset": "examples/jacobian@1", "runner": "envhub/metered@main", "max_cost_usd": 1}
    with server.http() as http:
        job = http.post("/v1/job", json={**body, "allow_base_substitution": False}).json()
        assert server.finished(job["job_id"])["budget"]["spent_usd"] == "0"
        for item in http.get(f"/v1/job/{job['job_id']}/result").json()["trials"]["items"]:
            trial = http.get(f"/v1/trials/{item['trial_id']}/result").json()
            assert (trial["reason"], trial["reason_detail"]) == ("ENVIRONMENT_REFUSED", "substitution")
            assert "Dockerfile line 1: FROM python:3.12-slim@sha256:" in trial["message"]
            assert (trial["sandbox_forms"], trial["agent_outcome"]) == ({}, None)


@pytest.mark.requirement("G-SBX-14.substitution_recorded")
def test_every_substitution_of_a_base_stands_on_the_trial(solved: Ended) -> None:
    for name, trial in solved.trials.items():
        folders = (EXAMPLES / name / "environment", EXAMPLES / name / "tests")
        declared = {(folder / "Dockerfile").read_text().split()[1] for folder in folders}
        bases = [item for item in trial["substitutions"] if item["kind"] == "base"]
        assert {item["declared"] for item in bases} == declared
        assert all(item["used"].startswith("host@sha256:") for item in bases)


def test_a_held_sandbox_gives_every_task_the_rewards_of_a_one_shot_one(server: Running, copies: Path) -> None:
    server.cli("datasets", "push", str(copies), "--name", "examples/held", "--version", "1")
    body = {"dataset": "examples/held@1", "max_cost_usd": 1, "execution": {"sandbox_form": "held"}}
    for profile, reward in (("tollbar/oracle", 1.0), ("tollbar/nop", 0.0)):
        with server.http() as http:
            job = http.post("/v1/job", json={**body, "profile_name": profile}).json()
        assert server.finished(job["job_id"])["n_scored"] == 6
        trials = results(server, job["job_id"])
        assert {trial["reward"] for trial in trials} == {reward}
        assert {tuple(trial["sandbox_forms"].values()) for trial in trials} == {("held", "held")}
