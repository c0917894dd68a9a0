"""A worker that is killed while its sandboxes are containers, which do not end with it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.conftest import Running
from tests.e2e.docker import FROM, docker, left, need_engine, running
from tests.e2e.machine import gone_within, living, new_mark
from tests.e2e.tasks import toml, write_task
from tests.fleet.processes import Fleet, eventually
from tests.fleet.tasks import SHELL, check_whole, states, submit
from tollbar.db.session import open_database
from tollbar.kit.clock import SystemClock
from tollbar.sandboxes import service, store


async def add_metered(url: str) -> None:
    """Adds `envhub/docker-metered`, so that money of a lost try would show."""
    database = open_database(url, pool_size=1)
    prices = {"vcpu_second_pusd": service.METERED_VCPU_SECOND_PUSD, "gib_second_pusd": service.METERED_GIB_SECOND_PUSD}
    metered = replace(service.seeded("bwrap", "host")["docker"], **prices, declared_free=False)
    async with database.transaction() as session:
        await store.add(session, "envhub", "docker-metered", "main", metered, SystemClock().now())
    await database.close()


def push(server: Running, root: Path, solution: str) -> str:
    """Publishes one task whose image has a volume, with a verifier in a container of its own."""
    changes = {
        "environment/Dockerfile": f"{FROM}VOLUME /data\n",
        "tests/Dockerfile": f"{FROM}COPY . /tests\n",
        "tests/test.sh": f"{SHELL}grep -q done /app/done.txt && echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": f"{SHELL}{solution}\n",
        "task.toml": toml(top='artifacts = ["/app/done.txt"]', verifier='environment_mode = "separate"'),
    }
    write_task(root / "set", "slow", changes)
    server.cli("datasets", "push", str(root / "set"), "--name", "bad/containers", "--version", "1")
    return "bad/containers@1"


@pytest.mark.requirement("G-SBX-14.worker_killed_docker")
@pytest.mark.timeout(300)
def test_a_worker_that_is_killed_among_twenty_docker_trials_leaves_nothing_and_another_one_ends_them(
    fleet: Fleet, tmp_path: Path
) -> None:
    need_engine()
    mark, data_dir = new_mark(), fleet.root / "machine" / "data"
    volumes, networks = docker("volume", "ls", "--quiet"), docker("network", "ls", "--quiet")
    server = fleet.serve(TOLLBAR_DOCKER_HOST="off")
    asyncio.run(add_metered(fleet.url))
    # The mark outlives every time limit of this test, whoever does not end it.
    dataset = push(server, tmp_path, f"echo x > /data/x; setsid sleep {mark} & sleep 2; echo done > /app/done.txt")
    worker = ("worker", "--slots", "4")
    victim = fleet.process(*worker, folder=data_dir.parent).ready()
    job_id = submit(server, dataset, runner="envhub/docker-metered", attempts=20)
    eventually(lambda: states(fleet, job_id, victim.id).count("running") == 4, within_s=60)
    eventually(lambda: len(running(data_dir)) >= 4 and living(mark))
    other = fleet.process(*worker, folder=data_dir.parent).ready()
    victim.send(signal.SIGKILL)
    victim.ended()
    trials = check_whole(fleet, server, job_id, 20)
    assert sum(trial["try_no"] == 2 for trial in trials) >= 4
    assert {row[0] for row in fleet.rows("SELECT DISTINCT owner FROM trial WHERE try_no = 2")} == {other.id}
    eventually(lambda: left(data_dir) == [], within_s=90)
    assert gone_within(mark, 5)
    assert (docker("volume", "ls", "--quiet"), docker("network", "ls", "--quiet")) == (volumes, networks)
    assert fleet.rows("SELECT sum(reserved_pusd) FROM budget") == [(0,)]
