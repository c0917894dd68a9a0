"""Jobs whose sandboxes are containers: from the command line to the reward, on the image that each task names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Running
from tests.e2e.docker import FROM, left, need_engine
from tests.e2e.tasks import folder, run_folder, toml, write_task

SHELL = "#!/bin/sh\n"
IN_DOCKER = ("--runner", "envhub/docker")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    need_engine()
    running = Running(tmp_path_factory.mktemp("up") / "data").start()
    yield running
    assert running.stop() == 0, running.log()
    assert left(running.data_dir) == []


def test_a_task_runs_on_the_image_that_it_names_and_is_graded_in_a_container_of_its_own(
    server: Running, tmp_path: Path
) -> None:
    """The verifier finds the sealed file, and nothing else that the agent left or started."""
    agent = f"{SHELL}hostname > /app/out.txt\nbusybox | head -1 >> /app/out.txt\necho x > /root/left\nsleep 9 &\n"
    verifier = (
        f"{SHELL}test -e /root/left && exit 1\npgrep sleep.9 && exit 1\n"
        "grep -q BusyBox /app/out.txt && echo 1 > /logs/verifier/reward.txt\n"
    )
    sealed = toml(top='artifacts = ["/app/out.txt"]', verifier='environment_mode = "separate"')
    root = folder(
        tmp_path,
        environment__Dockerfile=f'{FROM}RUN echo built > /app/built.txt\nUSER root\nSHELL ["/bin/sh", "-c"]\n',
        tests__Dockerfile=f"{FROM}COPY . /tests\n",
        solution__solve_dot_sh=agent,
        tests__test_dot_sh=verifier,
        task_dot_toml=sealed,
    )
    ended = run_folder(server, root, *IN_DOCKER)
    trial = ended.trials["task"]
    assert (ended.job["status"], trial["status"], trial["reward"]) == ("completed", "succeeded", 1.0), trial
    assert ended.content("task", "app/out.txt").startswith(b"sandbox\nBusyBox")
    assert trial["substitutions"] == []
    assert trial["sandbox_forms"] == {"agent": "held", "verifier": "held"}
    assert trial["verifier"]["sealed_sha256"] == trial["sealed_sha256"] is not None
    assert left(server.data_dir) == []


def test_a_shared_verifier_and_a_task_with_an_image_by_name_run_in_docker(server: Running, tmp_path: Path) -> None:
    named = toml(environment='docker_image = "tollbar/busybox:test"\nworkdir = "/work"')
    shown = f"{SHELL}grep -q mine /work/mine && echo 0.5 > /logs/verifier/reward.txt\n"
    write_task(
        tmp_path,
        "named",
        {"task.toml": named, "solution/solve.sh": f"{SHELL}echo mine > mine\n", "tests/test.sh": shown},
    )
    (tmp_path / "named" / "environment" / "Dockerfile").unlink()
    ended = run_folder(server, tmp_path, *IN_DOCKER)
    assert (ended.trials["named"]["status"], ended.trials["named"]["reward"]) == ("succeeded", 0.5), ended.trials


def test_what_only_docker_builds_is_refused_in_bwrap_and_taken_in_docker(server: Running, tmp_path: Path) -> None:
    """Each backend judges by what it can do itself."""
    text = f'{FROM}RUN true\nSHELL ["/bin/sh", "-ec"]\nUSER agent\nUSER root\n'
    root = folder(tmp_path, environment__Dockerfile=text)
    bwrap = run_folder(server, root).trials["task"]
    assert (bwrap["status"], bwrap["reason"]) == ("failed", "ENVIRONMENT_REFUSED"), bwrap
    assert run_folder(server, root, *IN_DOCKER).trials["task"]["status"] == "succeeded"


def test_docker_has_held_sandboxes_only_and_keeps_none(server: Running, tmp_path: Path) -> None:
    root = folder(tmp_path, environment__Dockerfile=FROM)
    for words, said in ((["--set", "sandbox_form=one_shot"], "held"), (["--keep-failed", "1h"], "keep_failed_sec")):
        done = server.cli("jobs", "submit", str(root), "--no-cap", *IN_DOCKER, *words, "--json", check=False)
        assert done.returncode != 0
        assert "UNSUPPORTED_CAPABILITY" in done.stdout + done.stderr, done.stdout + done.stderr
        assert said in done.stdout + done.stderr


def test_a_job_on_docker_waits_and_says_so_where_no_worker_has_an_engine(fresh: Running, tmp_path: Path) -> None:
    fresh.environment["TOLLBAR_DOCKER_HOST"] = "off"
    fresh.start()
    done = fresh.cli("jobs", "submit", "tests/hello-world@1", "--profile", "tollbar/oracle", "--no-cap", *IN_DOCKER,
                     "--json")  # fmt: skip
    job_id = json.loads(done.stdout.splitlines()[-1])["job_id"]
    with fresh.http() as http:
        job = http.get(f"/v1/job/{job_id}").json()
        assert [(each["code"], each["reason"]) for each in job["warnings"]] == [("NO_LIVING_WORKER", "docker")]
        assert http.post(f"/v1/job/{job_id}/stop").status_code in {200, 202}
    assert fresh.finished(job_id)["status"] == "cancelled"


def test_a_check_of_a_dataset_runs_on_the_runner_that_it_names(server: Running, tmp_path: Path) -> None:
    """Its one task is none for bwrap, so a check that ran there would be refused."""
    verifier = f"{SHELL}[ -e x ] && r=1\necho ${{r:-0}} > /logs/verifier/reward.txt\n"
    solution, dockerfile = f"{SHELL}touch x\n", f"{FROM}VOLUME /data\n"
    changes = {"solution/solve.sh": solution, "environment/Dockerfile": dockerfile, "tests/test.sh": verifier}
    write_task(tmp_path / "set", "task", changes)
    server.cli("datasets", "push", str(tmp_path / "set"), "--name", "bad/only-docker", "--version", "1")
    done = server.cli("datasets", "check", "bad/only-docker@1", *IN_DOCKER, "--json", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert (outcome["oracle_score"], outcome["nop_score"], outcome["problems"]) == (1.0, 0.0, [])


COMPOSE = """
services:
  main: {depends_on: {db: {condition: service_healthy}}}
  db:
    image: tollbar/busybox:test
    command: ["sh", "-c", "mkdir -p /srv; echo 42 > /srv/answer; exec httpd -f -p 8000 -h /srv"]
    healthcheck: {test: ["CMD", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8000/answer"], interval: 200ms}
"""


def test_a_task_with_services_runs_in_docker_and_is_refused_by_name_in_bwrap(server: Running, tmp_path: Path) -> None:
    changes = {
        "environment/Dockerfile": FROM,
        "environment/docker-compose.yaml": COMPOSE,
        "solution/solve.sh": f"{SHELL}wget -q -O /app/answer http://db:8000/answer\n",
        "tests/test.sh": f"{SHELL}wget -q -O /tmp/now http://db:8000/answer && cmp /tmp/now /app/answer"
        " && echo 1 > /logs/verifier/reward.txt\n",
    }
    write_task(tmp_path / "set", "with-db", changes)
    ended = run_folder(server, tmp_path / "set", *IN_DOCKER)
    trial = ended.trials["with-db"]
    assert (trial["status"], trial["reward"]) == ("succeeded", 1.0), trial["message"]
    assert left(server.data_dir) == []
    done = server.cli("jobs", "submit", str(tmp_path / "set"), "--no-cap", "--json", check=False)
    assert done.returncode != 0
    assert "UNSUPPORTED_CAPABILITY" in done.stdout + done.stderr
    assert "docker-compose.yaml" in done.stdout + done.stderr


def test_a_compose_file_that_asks_for_the_machine_ends_its_trial_before_anything_starts(
    server: Running, tmp_path: Path
) -> None:
    compose = COMPOSE + "    volumes: ['/var/run/docker.sock:/var/run/docker.sock']\n"
    write_task(tmp_path / "set", "greedy", {"environment/Dockerfile": FROM, "environment/docker-compose.yaml": compose})
    trial = run_folder(server, tmp_path / "set", *IN_DOCKER).trials["greedy"]
    assert (trial["status"], trial["reason"], trial["reason_detail"]) == ("failed", "ENVIRONMENT_REFUSED", "key")
    assert "services.db.volumes[0]" in trial["message"]
