"""A stand-in engine and a stand-in sandbox backend: everything real but the processes, and every fault on order."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import Database
from tollbar.engine.errors import WorkExists
from tollbar.engine.port import EngineState, Work
from tollbar.sandboxes.interface import (
    GATEWAY_PORT,
    ArtifactPath,
    Capabilities,
    ExecResult,
    Form,
    ImageRef,
    ImageSpec,
    Network,
    Refusal,
    SandboxHandle,
    SandboxName,
    SandboxSpec,
    Seal,
    SealedFile,
    SealLimits,
    Serve,
    StoreFile,
)
from tollbar.sandboxes.overlay_walk import Kind
from tollbar.sandboxes.seal_manifest import ManifestEntry, Status, make_seal

WORK: ContextVar[str] = ContextVar("work", default="")
"""The id of the work that runs here."""

CAPABILITIES = Capabilities(
    compose=False,
    dockerfile="subset",
    image=False,
    users=False,
    networks=frozenset({Network.NONE}),
    limits={"memory": "kernel"},
    gpu=False,
    healthcheck=True,
    kernel_isolation="shared",
    seal=True,
    regrade=True,
)


def ended(exit_code: int | None = 0, **facts: Any) -> ExecResult:
    """Returns how a command ended."""
    whole = {
        "stdout_tail": b"", "stderr_tail": b"", "truncated": False, "timed_out": False, "oom_killed": False,
        "wall_s": 0.5, "cpu_ns": None, **facts,
    }  # fmt: skip
    return ExecResult(exit_code=exit_code, **whole)


def timed_out() -> ExecResult:
    return ended(None, timed_out=True, wall_s=30.04)


def out_of_memory() -> ExecResult:
    return ended(None, oom_killed=True)


@dataclass
class Call:
    """One command in a stand-in sandbox; behaviours read it and change `files`."""

    sandbox: FolderSandbox
    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float

    def write(self, path: str, data: str | bytes) -> None:
        """Writes a file at an absolute path of the sandbox."""
        place = self.sandbox.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data if isinstance(data, bytes) else data.encode())

    def read(self, path: str) -> str | None:
        place = self.sandbox.place(path)
        return place.read_text() if place.is_file() and not place.is_symlink() else None


Behaviour = Callable[[Call], ExecResult | Awaitable[ExecResult]]


def solves(call: Call) -> ExecResult:
    """The agent that does its work."""
    call.write("/app/out.txt", "done")
    return ended()


def judges(call: Call) -> ExecResult:
    """The verifier that sees whether the work was done."""
    call.write("/logs/verifier/reward.txt", "1" if call.read("/app/out.txt") == "done" else "0")
    return ended()


class FolderSandbox:
    """A sandbox on a folder of the host, without processes: `alive` names those that would live in it."""

    def __init__(self, provider: FolderProvider, spec: SandboxSpec, root: Path) -> None:
        self.provider = provider
        self.spec = spec
        self.root = root
        self.alive: set[str] = set()
        self.destroyed = False
        self.used = False
        self.served: list[asyncio.Task[None]] = []

    @property
    def purpose(self) -> str:
        return self.spec.name.purpose.value

    @property
    def handle(self) -> SandboxHandle:
        return SandboxHandle("bwrap", "here", self.spec.owner, str(self.spec.name), {})

    def place(self, path: str) -> Path:
        """Returns where an absolute path of the sandbox lies on the host."""
        return self.root / path.lstrip("/")

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float,
        output: Path | None = None,
        max_output_bytes: int = 10 << 20,
    ) -> ExecResult:
        assert not self.destroyed
        if self.spec.form is Form.ONE_SHOT:
            assert not self.used, "a one-shot sandbox takes one exec between two kills"
        self.used = True
        call = Call(self, tuple(argv), {**self.spec.env, **(env or {})}, timeout_s)
        self.provider.calls.append(call)
        self.alive.add("main")
        if output is not None:
            _write(output, f"log of {self.purpose} {self.spec.name.try_no}\n".encode())
        await self.provider.touch(f"exec:{self.purpose}")
        try:
            result = self.provider.behaviour(call)(call)
            return await result if not isinstance(result, ExecResult) else result
        finally:
            self.alive.discard("main")

    async def expose_gateway(self, serve: Serve, port: int = GATEWAY_PORT) -> str:
        """Opens a port of this machine's loopback in place of the sandbox's own."""
        assert self.spec.form is Form.HELD
        assert self.spec.network is not Network.NONE
        listening = socket.create_server(("127.0.0.1", 0))

        async def attend() -> None:
            await serve(listening)

        self.served.append(asyncio.create_task(attend()))
        self.served[-1].add_done_callback(lambda _: listening.close())
        await self.provider.touch(f"expose:{self.purpose}:{port}")
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    async def kill(self) -> None:
        for task in self.served:
            task.cancel()
        await asyncio.gather(*self.served, return_exceptions=True)
        self.served.clear()
        await self.provider.touch(f"kill:{self.purpose}")
        self.alive.clear()
        self.used = False

    async def put(self, source: Path, dest: str) -> None:
        assert not self.alive
        await self.provider.touch(f"put:{self.purpose}")
        place = self.place(dest)
        if place.is_symlink() or place.is_file():
            place.unlink()
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)

    async def add(self, source: Path, dest: str) -> None:
        assert not self.alive
        await self.provider.touch(f"add:{self.purpose}")
        shutil.copytree(source, self.place(dest), dirs_exist_ok=True)

    async def seal(self, paths: Sequence[ArtifactPath], limits: SealLimits, store: StoreFile) -> Seal:
        assert not self.alive, "nothing lives while a sandbox is sealed"
        await self.provider.touch(f"seal:{self.purpose}")
        refusals: list[Refusal] = []
        entries = [self._entry(path, refusals, store) for path in paths]
        return make_seal(entries, refusals)

    def _entry(self, path: ArtifactPath, refusals: list[Refusal], store: StoreFile) -> ManifestEntry:
        source = str(Path(self.spec.workdir) / path.source)
        destination = path.destination or source.lstrip("/")
        place = self.place(source)
        if place.is_file() and not place.is_symlink():
            return ManifestEntry(source, destination, Status.OK, Kind.FILE, (_member(place, destination, store),))
        if not place.is_dir():
            return ManifestEntry(source, destination, Status.MISSING, None)
        members: list[SealedFile] = []
        for found in sorted(place.rglob("*")):
            name = f"{destination}/{found.relative_to(place)}"
            if found.is_symlink():
                refusals.append(Refusal(name, "LINK_ABSOLUTE"))
            elif found.is_file():
                members.append(_member(found, name, store))
        status = Status.OK if members else Status.EMPTY
        return ManifestEntry(source, destination, status, Kind.FOLDER, tuple(members))

    async def read_file(self, path: str, max_bytes: int) -> bytes | None:
        assert not self.alive, "nothing lives while a file is read"
        await self.provider.touch(f"read:{self.purpose}")
        place = self.place(path)
        if place.is_symlink() or not place.is_file():
            return None
        with place.open("rb") as file:
            return file.read(max_bytes)

    async def destroy(self) -> None:
        self.alive.clear()
        if not self.destroyed:
            self.destroyed = True
            assert not self.served, "what was served ends with the kill"
            shutil.rmtree(self.root, ignore_errors=True)
            await self.provider.touch(f"destroy:{self.purpose}")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _member(place: Path, name: str, store: StoreFile) -> SealedFile:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        return SealedFile(name, "file", size, 0o644, sha256=store(descriptor, size))
    finally:
        os.close(descriptor)


@dataclass
class FolderProvider:
    """A backend whose sandboxes are folders. `faults["create:agent"]`: what the next ones raise (None: nothing)."""

    root: Path
    agent: list[Behaviour] = field(default_factory=lambda: [solves])
    """What agents do, the last one again and again; `verifier` and `other` (hooks, set-up, checks) in the same way."""
    verifier: list[Behaviour] = field(default_factory=lambda: [judges])
    other: list[Behaviour] = field(default_factory=lambda: [lambda _: ended()])
    faults: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    made: list[FolderSandbox] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    built: list[ImageSpec] = field(default_factory=list)
    can: Capabilities = CAPABILITIES
    wire: Callable[[str], Awaitable[None]] | None = None
    """Told of every use of the backend before it happens."""
    name: str = "bwrap"

    async def touch(self, where: str) -> None:
        """Raises what was ordered for this place."""
        if self.wire is not None:
            await self.wire(where)
        waiting = self.faults.get(where)
        error = waiting.pop(0) if waiting else None
        if error is not None:
            raise error

    def behaviour(self, call: Call) -> Behaviour:
        known = {"/tests/test.sh": "verifier", "/solution/solve.sh": "agent"}
        kind = known.get(call.argv[0], "other")
        waiting: list[Behaviour] = getattr(self, kind)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    def living(self) -> list[str]:
        """Returns the names of sandboxes that were not destroyed."""
        return [str(sandbox.spec.name) for sandbox in self.made if not sandbox.destroyed]

    def runs_of(self, what: str) -> int:
        """Returns how often an agent (`/solution/solve.sh`) or a verifier (`/tests/test.sh`) was started."""
        return sum(call.argv[0] == what for call in self.calls)

    async def preflight(self) -> list[Any]:
        return []

    def capabilities(self) -> Capabilities:
        return self.can

    async def base_digest(self) -> str:
        return "host@sha256:" + "0" * 64

    async def build(self, spec: ImageSpec) -> ImageRef:
        await self.touch("build")
        self.built.append(spec)
        key = hashlib.sha256(str(spec.context).encode()).hexdigest()
        return ImageRef(key, (), "/app", {"PATH": "/bin"}, ({"kind": "base", "declared": "scratch", "used": "host"},))

    async def layer(self, key: str, fill: Callable[[Path], None]) -> Path:
        await self.touch("layer")
        folder = self.root / "layers" / hashlib.sha256(key.encode()).hexdigest()
        if not folder.exists():
            folder.mkdir(parents=True)
            fill(folder)
        return folder

    async def scratch_layer(self, name: SandboxName, fill: Callable[[Path], None]) -> Path:
        await self.touch("scratch")
        folder = self.root / "scratch" / f"{name}-{len(self.made)}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fill(folder)
        return folder

    async def create(self, spec: SandboxSpec) -> FolderSandbox:
        purpose = spec.name.purpose.value
        await self.touch(f"create:{purpose}")
        root = self.root / "sandboxes" / f"{spec.name}-{len(self.made)}"
        root.mkdir(parents=True)
        for layer in spec.inputs:
            shutil.copytree(layer, root, dirs_exist_ok=True, ignore=_whiteouts)
        for folder in spec.directories:
            (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        sandbox = FolderSandbox(self, spec, root)
        self.made.append(sandbox)
        return sandbox

    async def reap(self, live: Collection[str], *, now: datetime) -> list[str]:
        return []

    async def kill_all(self) -> None:
        for sandbox in self.made:
            sandbox.alive.clear()


def _whiteouts(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_char_device()]


class TableEngine:
    """An engine on a table of the test's database: it enqueues in the caller's transaction and runs when told to."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.flows: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.steps: list[str] = []
        self.after_step: Callable[[str], Awaitable[None]] | None = None
        """Called between two steps, where a flow can be cut."""
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def prepare(self) -> TableEngine:
        async with self.database.transaction() as session:
            await session.execute(
                text(
                    "CREATE TABLE work (id text PRIMARY KEY, flow text, queue text, args jsonb, priority int,"
                    " state text DEFAULT 'ENQUEUED')"
                )
            )
        return self

    def flow(self, name: str) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            self.flows[name] = function
            return function

        return register

    async def step(
        self, name: str, function: Callable[..., Awaitable[Any]], *args: Any, preemptible: bool = False, **_: Any
    ) -> Any:
        result = json.loads(json.dumps(await function(*args)))
        self.steps.append(name)
        if self.after_step is not None:
            await self.after_step(name)
        return result

    async def enqueue(self, session: AsyncSession, *work: Work) -> None:
        for item in work:
            values = {"i": item.id, "f": item.flow, "q": item.queue, "a": json.dumps(item.args), "p": item.priority}
            try:
                async with session.begin_nested():
                    await session.execute(
                        text("INSERT INTO work (id, flow, queue, args, priority) VALUES (:i, :f, :q, :a, :p)"), values
                    )
            except IntegrityError:
                raise WorkExists(item.id) from None

    async def cancel(self, ids: Sequence[str]) -> None:
        await self._mark("CANCELLED", ids)
        for work_id in ids:
            if work_id in self._running:
                self._running[work_id].cancel()

    async def state(self, ids: Sequence[str]) -> dict[str, EngineState]:
        async with self.database.session() as session:
            rows = await session.execute(text("SELECT id, state FROM work WHERE id = ANY(:ids)"), {"ids": list(ids)})
            return {row.id: EngineState(row.state) for row in rows}

    async def forget(self) -> None:
        """Empties the engine, as a schema that was dropped and made anew."""
        async with self.database.transaction() as session:
            await session.execute(text("DELETE FROM work"))

    async def waiting(self) -> list[Any]:
        """Returns what is enqueued, in its order."""
        async with self.database.session() as session:
            rows = await session.execute(text("SELECT * FROM work WHERE state = 'ENQUEUED' ORDER BY priority, id"))
            return list(rows.all())

    async def run(self, *ids: str) -> None:
        """Runs these pieces of work at once (all that wait, when none is named), each to its end."""
        chosen = [item for item in await self.waiting() if not ids or item.id in ids]
        tasks = [asyncio.create_task(self._drive(item)) for item in chosen]
        await asyncio.gather(*tasks)

    async def drain(self, pump: Callable[[], Awaitable[int]]) -> None:
        """Runs and pumps until nothing waits any more."""
        while await self.waiting() or await pump():
            await self.run()

    def start(self, work_id: str) -> asyncio.Task[None]:
        """Begins one piece of work and returns its task."""
        return asyncio.create_task(self.run(work_id))

    def cut(self, work_id: str) -> None:
        """Cancels what runs here, as a process that is told to stop does."""
        self._running[work_id].cancel()

    async def _drive(self, item: Any) -> None:
        await self._mark("PENDING", [item.id])
        WORK.set(item.id)
        body = asyncio.create_task(self.flows[item.flow](*item.args))
        self._running[item.id] = body
        done, _ = await asyncio.wait({body})
        del self._running[item.id]
        (ended_body,) = done
        state = "CANCELLED" if ended_body.cancelled() else "ERROR" if ended_body.exception() else "SUCCESS"
        await self._mark(state, [item.id])

    async def _mark(self, state: str, ids: Sequence[str]) -> None:
        async with self.database.transaction() as session:
            await session.execute(
                text("UPDATE work SET state = :s WHERE id = ANY(:ids) AND state IN ('ENQUEUED', 'PENDING')"),
                {"s": state, "ids": list(ids)},
            )
