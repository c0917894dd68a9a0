"""What a long-running server leaves behind: nothing. And what it needs of the network: nothing."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.e2e.conftest import Running
from tests.e2e.keys import new_key
from tests.e2e.tasks import run_folder, write_task
from tollbar.db.datadir import read_server_facts
from tollbar.db.session import open_database
from tollbar.sandboxes.places import PUBLIC_ROOT
from tollbar.settings import Settings


def submit(server: Running, **body: Any) -> dict[str, Any]:
    with server.http() as http:
        answer = http.post("/v1/job", json={"max_cost_usd": 1, **body})
        assert answer.status_code == 202, answer.text
        return server.finished(answer.json()["job_id"])


def sandbox_root(server: Running) -> Path:
    """Returns the folder of the server's sandboxes: its own, or the stand-in that names it."""
    own = server.data_dir / "sandboxes"
    for named in PUBLIC_ROOT.glob("*/for"):
        if named.read_text() == str(own.absolute()):
            return named.parent
    return own


def traces(server: Running) -> dict[str, Any]:
    """Returns what sandboxes could leave of themselves, in the server's process and on the machine."""
    assert server.process is not None
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    tag = f"tollbar-{hashlib.sha256(bytes(server.data_dir / 'sandboxes')).hexdigest()[:8]}-"
    names = sorted(Path(f"/proc/{child}/comm").read_text().strip() for child in children)
    return {
        "children": names,
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "mounts": len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines()),
        "cgroups": [path for path, _, _ in os.walk("/sys/fs/cgroup") if tag in path],
        "folders": [path.name for path in (sandbox_root(server) / "s").iterdir()],
        "logs": [path.name for path in server.data_dir.rglob("*") if path.name.startswith("trial_")],
        "sockets": sorted(path.name for path in server.data_dir.rglob("*") if path.is_socket()),
    }


@pytest.mark.requirement("G-SBX-14.hundred")
@pytest.mark.timeout(300)
def test_a_hundred_sandboxes_one_after_another_leave_nothing(fresh: Running, tmp_path: Path) -> None:
    """Shared and separate verifiers, with processes that outlive their scripts: 100 Trials, 150 sandboxes."""
    separate = 'schema_version = "1.4"\n[task]\nname = "bad/{name}"\n[verifier]\nenvironment_mode = "separate"\n'
    stays = {"solution/solve.sh": "#!/bin/sh\nsetsid sleep 600 &\nmkfifo /app/pipe\n"}
    write_task(tmp_path, "shared", stays)
    write_task(tmp_path, "separate", {**stays, "task.toml": separate})
    fresh.environment["TOLLBAR_SLOTS"] = "1"
    fresh.start()
    job = run_folder(fresh, tmp_path).job
    assert job["n_scored"] == 2
    before = traces(fresh)
    for key in ("cgroups", "folders", "logs"):
        assert before[key] == [], key
    with fresh.http() as http:
        again = {"dataset_ref": job["dataset_ref"], "attempts": 50, "max_cost_usd": 1}
        job_id = http.post("/v1/job", json=again).json()["job_id"]
    assert fresh.finished(job_id)["n_scored"] == 100
    after = traces(fresh)
    # Connections of the pools come and go; a leak of one descriptor a Trial would be a hundred.
    assert after.pop("descriptors") <= before.pop("descriptors") + 10
    assert after == before


HOOK = """
import json, os, socket, sys

def looked(event, arguments):
    if event == "socket.connect":
        family, address = arguments[0].family, arguments[1]
        place = "unix" if family == socket.AF_UNIX else str(address[0])
    elif event == "socket.getaddrinfo":
        place = str(arguments[0])
    else:
        return
    note(event, place)

def note(event, place):
    with open(os.environ["NOTED"], "a") as file:
        file.write(json.dumps([event, place]) + "\\n")

sys.addaudithook(looked)
note("loaded", sys.argv[0] if hasattr(sys, "argv") else "")
"""
"""Notes every connection and every question for a name of a Python process and of its Python children."""


@pytest.mark.requirement("G-EVAL-18.43")
def test_import_start_and_a_job_ask_nothing_of_the_network(fresh: Running, tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text(HOOK)
    noted = tmp_path / "noted"
    fresh.environment |= {"PYTHONPATH": str(tmp_path / "hook"), "NOTED": str(noted)}
    fresh.start()
    assert submit(fresh, dataset="tests/hello-world@1")["score"] == 1.0
    assert fresh.stop() == 0
    events = [json.loads(line) for line in noted.read_text().splitlines()]
    assert events[0][0] == "loaded"
    here = {"unix", "127.0.0.1", "::1", "localhost"}
    assert [event for event in events if event[0] != "loaded" and event[1] not in here] == []


@pytest.mark.requirement("TM-LIMIT-requests", "TM-LIMIT-retry_after")
async def test_one_key_makes_two_hundred_requests_a_minute_and_another_one_its_own(fresh: Running) -> None:
    assert Settings.model_fields["requests_per_minute"].default == 200
    fresh.environment["TOLLBAR_REQUESTS_PER_MINUTE"] = "200"
    fresh.start()
    other = await new_key(fresh)
    with fresh.http() as http:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: http.get("/v1/me"), range(200)))
        over = http.get("/v1/me")
    assert {answer.status_code for answer in answers} == {200}
    assert (over.status_code, over.json()["code"]) == (429, "RATE_LIMITED")
    assert 1 <= int(over.headers["retry-after"]) <= 60
    with fresh.http(other) as http:
        assert http.get("/v1/me").status_code == 200


@pytest.mark.requirement("G-ENG-16.3")
async def test_everything_that_jobs_leave_in_the_engines_tables_is_portable_json(server: Running) -> None:
    submit(server, dataset="demo/mini@1", attempts=2)
    facts = read_server_facts(server.data_dir)
    assert facts is not None
    database = open_database(facts["database_url"])
    columns = "SELECT table_name FROM information_schema.columns WHERE table_schema = 'dbos' AND column_name = :name"
    async with database.session() as session:
        tables = list(await session.scalars(text(columns), {"name": "serialization"}))
        assert {"workflow_status", "operation_outputs"} <= set(tables)
        for table in tables:
            found = set(await session.scalars(text(f"SELECT DISTINCT serialization FROM dbos.{table}")))
            assert found <= {"portable_json", None}, table
        assert await session.scalar(text("SELECT count(*) FROM dbos.workflow_status")) > 12
    await database.close()
