"""The HTTP app on a real database: seeded like a fresh server, with a key of each preset and a stranger's key."""

from __future__ import annotations

import base64
import io
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from fastapi import FastAPI
from tests.support import ManualClock

from tollbar.access import service as access
from tollbar.access import store as access_store
from tollbar.access.principal import PRESETS, Principal, system_principal
from tollbar.access.tables import ProjectRow, WorkspaceRow
from tollbar.agents import service as profiles
from tollbar.artifacts import service as artifacts
from tollbar.artifacts.blobs import local_blobs
from tollbar.artifacts.schemas import ArtifactKind, NewArtifact
from tollbar.db.session import Database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.http.app import build_http
from tollbar.http.deps import HttpDeps
from tollbar.http.hosts import allowed_hosts
from tollbar.http.limiting import memory_limiter
from tollbar.jobs import store as jobs_store
from tollbar.jobs.service import JobsContext
from tollbar.kit.ids import new_id
from tollbar.sandboxes import service as runners

ORIGIN = "http://127.0.0.1:8787"
AUTOMATION = "Project automation"
READ_ONLY = "Read only"
STRANGER = "stranger"
DATASET = "team/hello"

TASK = {
    "task.toml": b'schema_version = "1.4"\n',
    "instruction.md": b"Write hello.\n",
    "environment/Dockerfile": b"FROM scratch\nWORKDIR /app\n",
    "tests/test.sh": b"#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": b"#!/bin/sh\ntrue\n",
}


def tar_of(files: dict[str, bytes]) -> bytes:
    """Returns a tar of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def dataset_tar(*tasks: str, **changes: bytes) -> bytes:
    """Returns the tar of a dataset folder with those tasks."""
    return tar_of({f"{task}/{path}": changes.get(path, data) for task in tasks for path, data in TASK.items()})


def b64(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


@dataclass(frozen=True)
class World:
    """A server without a socket."""

    deps: HttpDeps
    app: FastAPI
    actor: Principal
    secrets: dict[str, str]
    key_ids: dict[str, str]

    def changed(self, **facts: Any) -> World:
        """Returns the same server with other dependencies."""
        deps = replace(self.deps, **facts)
        return replace(self, deps=deps, app=build_http(deps))

    @asynccontextmanager
    async def client(self, key: str | None = AUTOMATION, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        """Yields a client with the key of that name."""
        own = {} if key is None else {"Authorization": f"Bearer {self.secrets[key]}"}
        transport = httpx2.ASGITransport(self.app)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers={**own, **headers}) as client:
            yield client

    @asynccontextmanager
    async def socket_client(self, port: int) -> AsyncIterator[httpx2.AsyncClient]:
        """Yields a client of a served app with the Project automation key."""
        headers = {"Authorization": f"Bearer {self.secrets[AUTOMATION]}"}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as client:
            yield client

    async def publish(self, name: str = DATASET, version: str = "1", tasks: tuple[str, ...] = ("one", "two")) -> Any:
        async with self.client() as client:
            answer = await client.post(
                f"/v1/datasets/{b64(name)}/versions", params={"version": version}, content=dataset_tar(*tasks)
            )
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def submit(self, **members: Any) -> Any:
        """Publishes the dataset if need be and submits a Job on it."""
        async with self.client() as client:
            if (await client.get(f"/v1/datasets/{b64(DATASET)}")).status_code == 404:
                await self.publish()
            answer = await client.post("/v1/job", json={"dataset": f"{DATASET}@1", **members})
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def trial(self, job_id: str, *, attempt: int = 1) -> str:
        """Writes an ended Trial of a Job, as a worker does, and returns its id."""
        now = self.deps.clock.now()
        row = {
            "id": new_id("trial"), "job_id": job_id, "project_id": self.actor.project_id, "seq": attempt,
            "task_seq": 0, "task_name": "team/one", "task_id": "one", "task_digest": "sha256:" + "0" * 64,
            "attempt": attempt, "state": "succeeded", "reward": 1.0, "passed": True, "agent_outcome": "completed",
            "created_at": now, "started_at": now, "finished_at": now,
        }  # fmt: skip
        async with self.deps.database.transaction() as session:
            await jobs_store.add_trials(session, [row])
        return row["id"]

    async def artifact(self, trial_id: str, name: str, data: bytes | None) -> None:
        """Records a file of a Trial; without data, one that the Trial did not write."""
        if data is None:
            item = NewArtifact.missing(name, ArtifactKind.OUTPUT)
        else:
            sha256 = await self.deps.blobs.put_bytes(data)
            item = NewArtifact.file(name, ArtifactKind.OUTPUT, size=len(data), sha256=sha256)
        async with self.deps.database.transaction() as session:
            await artifacts.record(
                session,
                self.deps.blobs,
                self.deps.clock,
                [item],
                trial_id=trial_id,
                project_id=self.actor.project_id,
                try_no=1,
            )


async def _stranger(database: Database, clock: ManualClock) -> access.NewKey:
    """Makes another workspace with a project, and a key for it."""
    now = clock.now()
    workspace = WorkspaceRow(id=new_id("ws"), name="Elsewhere", created_at=now)
    project = ProjectRow(id=new_id("prj"), workspace_id=workspace.id, name="Other", created_at=now)
    async with database.transaction() as session:
        await access_store.add(session, workspace, project)
        return await access.create_key(
            session, system_principal(workspace.id, project.id), preset=AUTOMATION, name="theirs", clock=clock
        )


@pytest.fixture
async def world(database: Database, clock: ManualClock, tmp_path: Path) -> AsyncIterator[World]:
    """A fresh server; its limits are out of the way unless a test sets them."""
    engine = DbosEngine(database.url, uuid.uuid4().hex)
    async with database.transaction() as session:
        actor = await access.ensure_first_project(session, clock)
        await profiles.seed(session, actor, clock)
        await runners.seed(session, clock, backend="bwrap", base=f"host@sha256:{'0' * 64}")
        keys = {
            preset: await access.create_key(session, actor, preset=preset, name=preset, clock=clock)
            for preset in PRESETS
        }
    keys[STRANGER] = await _stranger(database, clock)
    deps = HttpDeps(
        database=database,
        jobs=JobsContext(engine=engine, clock=clock, origin=ORIGIN),
        blobs=local_blobs(tmp_path / "blobs"),
        clock=clock,
        limiter=memory_limiter(per_key=100_000, per_address=100_000),
        allowed_hosts=tuple(allowed_hosts(ORIGIN, loopback=True)),
        upload_dir=tmp_path / "uploads",
    )
    yield World(
        deps,
        build_http(deps),
        actor,
        {name: key.secret for name, key in keys.items()},
        {name: key.key_id for name, key in keys.items()},
    )
    await engine.stop()


@pytest.fixture
def log_lines() -> Iterator[list[dict[str, Any]]]:
    """What was logged, as dictionaries."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        yield lines


Ask = Callable[..., Any]


@pytest.fixture
def ask(world: World) -> Ask:
    """Sends one request with the Project automation key and returns the answer."""

    async def send(method: str, path: str, key: str | None = AUTOMATION, **facts: Any) -> httpx2.Response:
        async with world.client(key) as client:
            return await client.request(method, path, **facts)

    return send


def code_of(answer: httpx2.Response) -> str:
    """Returns the code of an error answer, whose form is checked on the way."""
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert body["code"].isascii()
    assert body["code"].upper() == body["code"]
    assert body["message"]
    return body["code"]
