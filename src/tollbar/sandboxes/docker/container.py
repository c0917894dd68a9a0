"""One sandbox that is a container: it ends as a whole, and starts again on the same files for its next command."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

import aiodocker

from tollbar.kit.text import is_portable_path
from tollbar.sandboxes.capture import TAIL_BYTES, BoundedFile, Tail
from tollbar.sandboxes.docker.counters import Counters, count
from tollbar.sandboxes.docker.engine import GONE, Engine, is_away, reached, unless_gone
from tollbar.sandboxes.docker.project import Project
from tollbar.sandboxes.docker.tar_seal import TarSealing, ended, outward, read_member
from tollbar.sandboxes.docker.uploads import Upload
from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.interface import (
    GATEWAY_PORT,
    ArtifactPath,
    ExecResult,
    Form,
    SandboxHandle,
    SandboxSpec,
    Seal,
    SealLimits,
    Serve,
    StoreFile,
)
from tollbar.sandboxes.listening import Served, listen_beside, network_of, require_network
from tollbar.sandboxes.overlay_walk import Kind, components_of
from tollbar.sandboxes.seal_entries import Declared, declared
from tollbar.sandboxes.seal_manifest import ManifestEntry, Reason, Status, make_seal

_STDERR: Final = 2
_START_TIMEOUT_S: Final = 60.0
_CLEAR_TIMEOUT_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.05
_LOOKS: Final = 10
_KILLED: Final = 137
"""What a command's exit code is that SIGKILL ended."""


@dataclass(frozen=True)
class Place:
    """Where a sandbox stands: its engine, its container, and what its backend does to remove it."""

    engine: Engine
    container: str
    """The engine's id of the container."""
    handle: SandboxHandle
    remove: Callable[[], Awaitable[None]]
    project: Project | None = None
    """The services beside it."""


class DockerSandbox:
    """Implements `interface.Sandbox`; made by `DockerProvider.create`."""

    def __init__(self, spec: SandboxSpec, place: Place, whiteouts: Sequence[str] = ()) -> None:
        self._spec = spec
        self._place = place
        self._whiteouts = tuple(whiteouts)
        self._container = place.engine.client.containers.container(place.container)
        self._pid: int | None = None
        """Of the container's first process on this machine, while it runs."""
        self._running = 0
        self._taken = False
        self._killed = False
        self._destroyed = False
        self._starting = asyncio.Lock()
        self._served = Served()

    @property
    def handle(self) -> SandboxHandle:
        return self._place.handle

    @property
    def spec(self) -> SandboxSpec:
        """Returns the description from which it was made."""
        return self._spec

    @property
    def container(self) -> str:
        """Returns the engine's id of the container."""
        return self._place.container

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        output: Path | None = None,
        max_output_bytes: int = 10 << 20,
    ) -> ExecResult:
        """Runs a command to its end or its time-out; a time-out ends the container, since nothing less ends it all.

        Raises `RuntimeError` for a second command of a one-shot sandbox, `EnvironmentRefused` for a variable that
        cannot be set, `EnvironmentStartFailed` when the container does not come up or the command cannot be started,
        and `SandboxLost` when `kill` or somebody outside ended it, or the engine is away.
        """
        self._admit()
        _check_environment({**self._spec.env, **(env or {})})
        with reached():
            return await self._exec(argv, cwd, env or {}, timeout_s, _Recorder(output, max_output_bytes))

    async def _exec(
        self, argv: Sequence[str], cwd: str | None, env: Mapping[str, str], timeout_s: float, recorder: _Recorder
    ) -> ExecResult:
        await self._up()
        self._taken, self._running = True, self._running + 1
        before, started = self._count(), time.monotonic()
        try:
            command = await self._container.exec(
                list(argv), environment=dict(env), workdir=self._absolute(cwd), stdin=False
            )
            timed_out = await self._followed(command, recorder, timeout_s)
            wall_s = time.monotonic() - started
            if self._killed:
                raise _ended_by_server()
            exit_code = None if timed_out else (await _seen(command))["ExitCode"]
        except aiodocker.DockerError as error:
            if self._killed:
                raise _ended_by_server() from None
            if is_away(error):
                raise
            raise EnvironmentStartFailed("start", f"The command could not be started: {error.message}") from error
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            self._running -= 1
            await asyncio.to_thread(recorder.close)
        return await self._result(recorder, before, exit_code, timed_out=timed_out, wall_s=wall_s)

    async def expose_gateway(self, serve: Serve, port: int = GATEWAY_PORT) -> str:
        """Opens a port of the container's loopback, served by this process until the next `kill`.

        Returns its base URL inside. Raises `EnvironmentStartFailed`; the engine must run on this machine, and this
        process must be allowed to join the networks of its containers.
        """
        require_network(self._spec)
        await self._up()
        with ExitStack() as opened:
            try:
                process = await self._process(opened)
                network = network_of(self._pid or 0)
                opened.callback(os.close, network)
                listening = await listen_beside(network, port)
            except (OSError, aiodocker.DockerError) as error:
                why = error.strerror if isinstance(error, OSError) else error.message
                msg = f"The port {port} inside could not be opened: {why}."
                raise EnvironmentStartFailed("start", msg) from error
            return self._served.add(port, listening, serve, process)

    async def _process(self, opened: ExitStack) -> int:
        """Returns a pidfd of the container's first process. Raises `OSError` when it is none of this machine's.

        An engine elsewhere names processes that are others here, and a dead one's number is given away again.
        """
        pid = self._pid or 0
        process = os.pidfd_open(pid)
        opened.callback(os.close, process)
        identity: str = (await self._container.show())["Id"]
        if identity not in await asyncio.to_thread(Path(f"/proc/{pid}/cgroup").read_text):
            raise OSError(0, "the engine runs its containers elsewhere")
        return process

    async def kill(self) -> None:
        """Ends every process; the files stay, and the next command can be run. Services beside it stand still."""
        self._killed, self._pid = True, None
        self._taken = False
        await self._served.close()
        with reached():
            await unless_gone(self._container.kill(signal="SIGKILL"))
            await unless_gone(self._container.wait())
            if self._place.project is not None:
                await self._place.project.freeze()

    def give_up(self) -> list[str]:
        """Notes that the server ends it, whoever then does, and returns its containers; any thread may call it."""
        self._killed, self._pid = True, None
        project = self._place.project
        return [self._place.container, *(project.containers if project else [])]

    async def put(self, source: Path, dest: str) -> None:
        """Replaces `dest` by a copy of the host folder `source`. Raises `RuntimeError` while a process lives."""
        await self._unpack(lambda upload: upload.replacement(source, _place(dest)))

    async def add(self, source: Path, dest: str) -> None:
        """Lays a copy of the host folder `source` over the folder `dest`. Raises `RuntimeError` as `put` does."""
        await self._unpack(lambda upload: upload.over(source, _place(dest)))

    async def _unpack(self, fill: Callable[[Upload], None]) -> None:
        await self._require_still()

        def make() -> Upload:
            upload = Upload()
            fill(upload)
            return upload

        await self.upload(await asyncio.to_thread(make))

    async def upload(self, upload: Upload) -> None:
        """Unpacks an archive at the container's root."""
        archive = await asyncio.to_thread(upload.done)
        try:
            with reached():
                await self._container.put_archive("/", archive)
        finally:
            archive.close()

    async def seal(self, paths: Sequence[ArtifactPath], limits: SealLimits, store: StoreFile) -> Seal:
        """Seals the declared paths; a relative one counts from the working directory."""
        await self._require_still()
        with reached():
            return await self._all_sealed(paths, TarSealing(limits, store))

    async def _all_sealed(self, paths: Sequence[ArtifactPath], sealing: TarSealing) -> Seal:
        entries: list[ManifestEntry] = []
        taken: list[tuple[Declared, ManifestEntry]] = []
        for entry in [declared(replace(path, source=self._absolute(path.source))) for path in paths]:
            cover = next((sealed for other, sealed in taken if other.covers(entry)), None)
            if entry.destination and not is_portable_path(entry.destination):
                entries.append(sealing.refused(entry, Reason.BAD_NAME))
            elif cover is not None:
                entries.append(await self._covered(sealing, entry, cover))
            elif any(other.overlaps(entry) for other, _ in taken):
                entries.append(ended(entry, Status.SKIPPED))
            else:
                entries.append(await self._sealed(sealing, entry))
                taken.append((entry, entries[-1]))
        return make_seal(entries, sealing.refusals)

    async def read_file(self, path: str, max_bytes: int) -> bytes | None:
        """Returns at most `max_bytes` of a regular file, never through a link, or None when there is none."""
        await self._require_still()
        parts = components_of(self._absolute(path))
        with reached():
            found = await self._walk(parts)
        if found is not None or not parts:
            return None
        return await self._read("/" + "/".join(parts), lambda archive: read_member(archive, max_bytes))

    async def destroy(self) -> None:
        """Ends every process and removes the container; safe to repeat."""
        if not self._destroyed:
            self._destroyed, self._killed = True, True
            await self._served.close()
            await self._place.remove()

    def _admit(self) -> None:
        if self._destroyed:
            msg = "the sandbox is destroyed"
            raise RuntimeError(msg)
        if self._spec.form is Form.ONE_SHOT and self._taken:
            msg = "a one-shot sandbox takes one command; kill it before the next"
            raise RuntimeError(msg)

    async def _up(self) -> None:
        """Starts the container unless it runs."""
        async with self._starting:
            if self._pid is not None:
                return
            if self._place.project is not None:
                await self._place.project.up()
            try:
                async with asyncio.timeout(_START_TIMEOUT_S):
                    await self._container.start()
                    state = (await self._container.show())["State"]
            except TimeoutError:
                msg = f"The container was not up within {_START_TIMEOUT_S:g} s."
                raise EnvironmentStartFailed("timeout", msg) from None
            except aiodocker.DockerError as error:
                if is_away(error):
                    raise
                raise EnvironmentStartFailed("start", f"The container did not start: {error.message}") from error
            if not state["Running"]:
                raise EnvironmentStartFailed("start", f"The container ended at once: exit code {state['ExitCode']}.")
            self._pid, self._killed = state["Pid"], False
            if self._whiteouts:
                await self._clear()

    async def _clear(self) -> None:
        """Removes what an input hides of the image; nothing of a tenant has run in this container yet."""
        command = await self._container.exec(["rm", "-rf", "--", *self._whiteouts], user="0")
        recorder = _Recorder(None, 0)
        if await self._followed(command, recorder, _CLEAR_TIMEOUT_S) or (await command.inspect())["ExitCode"]:
            said = recorder.stderr.value().decode(errors="replace").strip()
            raise EnvironmentStartFailed("start", f"What an input hides of the image could not be removed: {said}")
        self._whiteouts = ()

    async def _followed(self, command: Any, recorder: _Recorder, timeout_s: float) -> bool:
        """Reads a command's output to its end; says whether its time was over, and has then ended everything."""
        try:
            async with asyncio.timeout(timeout_s), command.start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    await recorder.take(message.stream, message.data)
                # A command may close its output long before it ends, and a stream can break off.
                while (await _seen(command))["Running"]:  # noqa: ASYNC110 - the engine tells nobody
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            await self._container.kill(signal="SIGKILL")
            await self._container.wait()
            self._pid = None
            return True
        return False

    async def _result(
        self, recorder: _Recorder, before: Counters, exit_code: int | None, *, timed_out: bool, wall_s: float
    ) -> ExecResult:
        after, oom = self._count(), False
        if before.ooms is not None and after.ooms is not None:
            oom = after.ooms > before.ooms
        if not timed_out:
            state = await self._state_after(exit_code, oom=oom)
            if not state["Running"]:
                self._pid, exit_code, oom = None, None, oom or state["OOMKilled"]
                if not oom:
                    raise SandboxLost("engine", "The container was ended from outside.")
        spent = None if after.cpu_ns is None or before.cpu_ns is None else after.cpu_ns - before.cpu_ns
        return ExecResult(
            exit_code=exit_code,
            stdout_tail=recorder.stdout.value(),
            stderr_tail=recorder.stderr.value(),
            truncated=recorder.truncated,
            timed_out=timed_out,
            oom_killed=oom,
            wall_s=wall_s,
            cpu_ns=spent,
        )

    async def _state_after(self, exit_code: int | None, *, oom: bool) -> dict[str, Any]:
        """Returns the container's state after a command; one whose command was killed may be about to end itself."""
        state: dict[str, Any] = (await self._container.show())["State"]
        for _ in range(_LOOKS if exit_code in {None, _KILLED} and not oom else 0):
            if not state["Running"]:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
            state = (await self._container.show())["State"]
        return state

    async def _sealed(self, sealing: TarSealing, entry: Declared) -> ManifestEntry:
        found = await self._walk(entry.source)
        if isinstance(found, Reason):
            return replace(sealing.refused(entry, found), kind=await self._in_image(entry))
        if found is Status.MISSING:
            return replace(ended(entry, Status.MISSING), kind=await self._in_image(entry))
        return await self._read(entry.path, lambda archive: sealing.entry(entry, archive))

    async def _covered(self, sealing: TarSealing, entry: Declared, cover: ManifestEntry) -> ManifestEntry:
        """Returns an entry that an earlier one took to the same place; its members stand there."""
        place = entry.destination
        if place == cover.destination:
            return ended(entry, cover.status, cover.kind)
        kind = next((member.kind for member in cover.members if member.path == place), None)
        if kind is None:
            missing = await self._walk(entry.source) is Status.MISSING
            status = Status.MISSING if missing else Status.REFUSED
            return replace(ended(entry, status), kind=await self._in_image(entry))
        if kind != Kind.FOLDER:
            return ended(entry, Status.OK, Kind(kind))
        if any(refusal.name.startswith(f"{place}/") for refusal in sealing.refusals):
            return ended(entry, Status.REFUSED, Kind.FOLDER)
        full = any(member.path.startswith(f"{place}/") for member in cover.members)
        return ended(entry, Status.OK if full else Status.EMPTY, Kind.FOLDER)

    async def _walk(self, parts: Sequence[str]) -> Reason | Status | None:
        """Returns why a path cannot be read: a link on the way (or at its end), or nothing there; None: it can."""
        for depth in range(1, len(parts) + 1):
            stat = await self._place.engine.stat(self._place.container, "/" + "/".join(parts[:depth]))
            if stat is None:
                return Status.MISSING
            if stat.is_link:
                return await self._read("/" + "/".join(parts[:depth]), outward)
            if depth < len(parts) and not stat.is_folder:
                return Status.MISSING
        return None

    async def _in_image(self, entry: Declared) -> Kind | None:
        """Returns what the image has at an entry's path: a verifier of that image must not see it again."""
        containers = self._place.engine.client.containers
        fresh = await containers.create({"Image": self._spec.image.digest, "Cmd": ["true"]})
        try:
            stat = await self._place.engine.stat(fresh.id, entry.path)
        finally:
            await unless_gone(fresh.delete(force=True, v=True))
        if stat is None or stat.is_link:
            return None
        return Kind.FOLDER if stat.is_folder else Kind.FILE

    async def _read(self, path: str, read: Callable[[Any], Any]) -> Any:
        async with self._place.engine.copying_out(self._place.container, path) as archive:
            return await asyncio.to_thread(read, archive)

    async def _require_still(self) -> None:
        if self._destroyed or self._running or self._pid is not None:
            msg = "files of a sandbox are touched only while no process lives in it"
            raise RuntimeError(msg)

    def _absolute(self, path: str | None) -> str:
        return str(PurePosixPath("/", self._spec.workdir, path or ""))

    def _count(self) -> Counters:
        """Returns the counters now: files of the kernel's memory, never of a disk."""
        return Counters() if self._pid is None else count(self._pid)


class _Recorder:
    """What a command printed: two tails, and one bounded file."""

    def __init__(self, output: Path | None, max_bytes: int) -> None:
        self.stdout = Tail()
        self.stderr = Tail()
        self._file = None if output is None else BoundedFile(output, max_bytes)

    @property
    def truncated(self) -> bool:
        if self._file is None:
            return any(tail.total > TAIL_BYTES for tail in (self.stdout, self.stderr))
        return self._file.dropped > 0

    async def take(self, stream: int, data: bytes) -> None:
        (self.stderr if stream == _STDERR else self.stdout).feed(data)
        if self._file is not None:
            await asyncio.to_thread(self._file.write, data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def _seen(command: Any) -> dict[str, Any]:
    """Returns what the engine says of a command; of a container that is gone it says nothing more."""
    try:
        return await command.inspect()
    except aiodocker.DockerError as error:
        if error.status not in GONE:
            raise
        return {"Running": False, "ExitCode": None}


def _place(dest: str) -> str:
    return "/".join(components_of(dest))


def _check_environment(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise EnvironmentRefused("variable", f"The variable {name!r} cannot be set in a sandbox.")


def _ended_by_server() -> SandboxLost:
    return SandboxLost("worker", "The sandbox was ended by the server while its command ran.")
