"""What a sandbox backend must offer. `jobs` knows only this file; backends live in files beside it."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

Serve = Callable[[socket.socket], Awaitable[None]]
"""Serves the connections of a listening socket until it is cancelled; whoever calls it closes the socket."""
GATEWAY_PORT: Final = 8787
PROXY_PORT: Final = 8788


class Purpose(StrEnum):
    """What a sandbox is for; part of its name."""

    AGENT = "agent"
    VERIFY = "verify"
    BUILD = "build"


class Form(StrEnum):
    """How a sandbox is held: one command in its own world, or a world that outlives its commands."""

    ONE_SHOT = "one_shot"
    HELD = "held"


class Network(StrEnum):
    """What a sandbox can reach."""

    NONE = "none"
    GATEWAY = "gateway"
    ALLOWLIST = "allowlist"
    PUBLIC = "public"


@dataclass(frozen=True)
class SandboxName:
    """Names a sandbox by what it is for, so that a new try finds and removes the older one's."""

    trial_id: str
    try_no: int
    purpose: Purpose

    def __str__(self) -> str:
        return f"{self.trial_id}-{self.try_no}-{self.purpose.value}".lower()


@dataclass(frozen=True)
class Limits:
    """Resource limits of one sandbox. CPUs may be fractions; sizes are in MiB."""

    cpus: float = 1.0
    memory_mb: int = 2048
    disk_mb: int = 10240
    pids: int = 512
    nofile: int = 4096


@dataclass(frozen=True)
class ImageRef:
    """A built root file system: read-only layers, bottom first, above the backend's base; plus its configuration."""

    digest: str
    layers: tuple[Path, ...]
    workdir: str
    env: Mapping[str, str]
    substitutions: tuple[Mapping[str, Any], ...] = ()
    """Each `{"kind": "base", "declared", "used"}` or `{"kind": "network", ...}`: never silent."""
    passed_over: tuple[str, ...] = ()
    """Instructions without effect here, as `line N: LABEL`."""
    services: Any = None
    """What stands beside the sandbox, in the words of the backend that has services; None: nothing."""
    neighbours: tuple[str, ...] = ()
    """Names of those services on the sandbox's own network: no proxy leads there."""


@dataclass(frozen=True)
class ImageSpec:
    """What to build: an environment folder with a Dockerfile, or a named image."""

    context: Path | None
    """Folder that holds `Dockerfile` and the files that it copies; None: `docker_image` is used."""
    docker_image: str | None = None
    services: Path | None = None
    """Folder of a compose file beside a named image; one in `context` is found there."""
    build_args: Mapping[str, str] = field(default_factory=dict[str, str])
    allow_base_substitution: bool = True
    timeout_s: float = 600.0


@dataclass(frozen=True)
class SandboxSpec:
    """One sandbox to create. `inputs` are read-only layers above the image (their content overlays `/`)."""

    name: SandboxName
    owner: str
    form: Form
    image: ImageRef
    workdir: str
    env: Mapping[str, str]
    """The whole environment of every command, less `PATH` and `HOME`, which the backend sets unless given."""
    limits: Limits
    network: Network = Network.NONE
    inputs: tuple[Path, ...] = ()
    directories: tuple[str, ...] = ()
    """Absolute directories to make before the first command, e.g. `/logs/agent`."""
    ceiling: Limits | None = None
    """The most that each service beside the sandbox may have; None: what the sandbox has."""
    disk_level: str = "watched"
    """How the disk limit must be held at least: `watched`, or `kernel` (dearer to start, and bounds inodes, too)."""


@dataclass(frozen=True)
class SandboxHandle:
    """What the backend needs to find the thing again; stored before anything starts.

    `data["levels"]` says for each limit of this sandbox who holds it: `kernel`, `watched` or `none`.
    """

    backend: str
    host: str
    owner: str
    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class SandboxView:
    """A sandbox that exists on this machine. `living` says that this process has it, else only its files are left.

    `age_s` counts seconds from its creation; `kept_until` is set while `reap` leaves it alone.
    """

    name: str
    owner: str
    form: Form
    living: bool
    age_s: float
    kept_until: datetime | None


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. Tails are the last 64 KiB of each stream; `truncated` says that bytes were dropped."""

    exit_code: int | None
    stdout_tail: bytes
    stderr_tail: bytes
    truncated: bool
    timed_out: bool
    oom_killed: bool
    wall_s: float
    cpu_ns: int | None


@dataclass(frozen=True)
class Problem:
    """Something that a preflight found; `fix` is what a person can do about it."""

    code: str
    message: str
    fix: str


@dataclass(frozen=True)
class Capabilities:
    """What a backend can enforce; a task that asks for more is refused before it starts."""

    compose: bool
    dockerfile: str
    image: bool
    users: bool
    networks: frozenset[Network]
    limits: Mapping[str, str]
    """Per resource `kernel`, `watched` or `none`."""
    gpu: bool
    healthcheck: bool
    kernel_isolation: str
    seal: bool
    regrade: bool
    forms: frozenset[Form] = frozenset(Form)
    """The forms in which it can hold a sandbox."""
    keeps: bool = True
    """Whether somebody can look into a sandbox that was kept."""


@dataclass(frozen=True)
class ArtifactPath:
    """A declared artifact: where it lies in the sandbox and where it goes in the seal."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class SealLimits:
    """Bounds of one seal; a member over them is refused and recorded, the rest is kept."""

    max_file_bytes: int = 100 << 20
    max_members: int = 10_000
    max_total_bytes: int = 1 << 30
    timeout_s: float = 120.0


@dataclass(frozen=True)
class SealedFile:
    """One member of a seal. `path` is relative; `sha256` is set for files, `target` for links."""

    path: str
    kind: str
    size: int
    mode: int
    sha256: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class SealedEntry:
    """What became of one declared path: `ok`, `empty`, `missing`, `refused` or `skipped`."""

    source: str
    destination: str
    status: str
    members: tuple[SealedFile, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A member that was not sealed, and why (`LINK_ESCAPES`, `NOT_A_FILE`, `TOO_LARGE`, ...)."""

    name: str
    reason: str


@dataclass(frozen=True)
class Seal:
    """The record of what a trial left; `manifest` is canonical JSON and `sha256` its hash."""

    entries: tuple[SealedEntry, ...]
    refusals: tuple[Refusal, ...]
    manifest: bytes
    sha256: str


StoreFile = Callable[[int, int], str]
"""Stores the bytes of an open file descriptor (descriptor, size) and returns their SHA-256; called in a thread."""


class Sandbox(Protocol):
    """One sandbox; its files stay until `destroy`.

    A one-shot sandbox takes one `exec` between two `kill`s. A held one takes any number; background processes live on
    after a command that ends by itself, and files are touched only after a `kill`, or before the first command.
    """

    @property
    def handle(self) -> SandboxHandle: ...

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
        """Runs one command to its end or its time-out (which ends the whole process tree).

        `env` adds to the environment of the spec. `output` is a host file that receives both streams merged,
        the first and last part kept when they exceed `max_output_bytes`.
        """
        ...

    async def expose_gateway(self, serve: Serve, port: int = GATEWAY_PORT) -> str:
        """Opens a port of the loopback inside, served by this process until the next `kill`; returns its base URL.

        Raises `EnvironmentRefused` where a sandbox of this form has none, `EnvironmentStartFailed`, `SandboxLost`.
        """
        ...

    async def kill(self) -> None:
        """Ends every process, no exception; files stay, and the sandbox can take its next command."""
        ...

    async def put(self, source: Path, dest: str) -> None:
        """Replaces `dest` (an absolute path) by a copy of the host folder `source`, while no process lives.

        Whatever the tenant left at `dest` or in the way of it (links, files, devices) is removed, never followed.
        """
        ...

    async def add(self, source: Path, dest: str) -> None:
        """Lays a copy of the host folder `source` over the folder `dest`, while no process lives.

        What has another name stays; what is in the way of a copied file or folder is removed, never followed.
        """
        ...

    async def seal(self, paths: Sequence[ArtifactPath], limits: SealLimits, store: StoreFile) -> Seal:
        """Seals declared paths while no process lives."""
        ...

    async def read_file(self, path: str, max_bytes: int) -> bytes | None:
        """Returns at most `max_bytes` of a regular file (never through a link), or None when there is none."""
        ...

    async def destroy(self) -> None:
        """Leaves nothing; safe to repeat."""
        ...


class Terminal(Protocol):
    """The terminal of a command that runs in a held sandbox; whoever has it must `close` it."""

    async def read(self) -> bytes:
        """Returns what was printed next, at most 64 KiB; empty when the command has ended and all was read."""
        ...

    async def write(self, data: bytes) -> None:
        """Types bytes; waits while the command does not read. What nobody reads any more is dropped."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command the size of the window, in characters. Raises `ValueError` for an impossible one."""
        ...

    async def ended(self) -> ExecResult:
        """Returns how the command ended (its output is empty), as soon as it has. Raises what `exec` raises."""
        ...

    async def close(self) -> None:
        """Ends the command with everything that it started; safe to repeat."""
        ...


class EnterableSandbox(Sandbox, Protocol):
    """A held sandbox that somebody can look into."""

    async def interactive(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        rows: int = 24,
        columns: int = 80,
    ) -> Terminal:
        """Starts one command on a terminal of its own, e.g. a shell, and returns that terminal.

        Raises what `exec` raises, and `ValueError` for an impossible size.
        """
        ...


class SandboxProvider(Protocol):
    """One backend."""

    @property
    def name(self) -> str: ...

    async def preflight(self) -> list[Problem]:
        """Returns what stands in the way; empty when sandboxes can run."""
        ...

    def capabilities(self) -> Capabilities: ...

    async def base_digest(self) -> str:
        """Returns the digest of the base on which images are built here, e.g. `host@sha256:...`."""
        ...

    async def build(self, spec: ImageSpec) -> ImageRef:
        """Builds or finds the image, one build per digest at a time.

        Raises `EnvironmentRefused` (names the instruction and line) or `EnvironmentBuildFailed`.
        """
        ...

    async def layer(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Returns a read-only layer folder; `fill(folder)` makes its content once per key (in a thread)."""
        ...

    async def scratch_layer(self, name: SandboxName, fill: Callable[[Path], None]) -> Path:
        """Returns a layer folder that belongs to one sandbox and goes with its `destroy`."""
        ...

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Makes the sandbox, replacing what an older try left under that name; raises `EnvironmentStartFailed`."""
        ...

    async def reap(self, live: Collection[str], *, now: datetime) -> list[str]:
        """Removes what no living process holds and `live` does not name; returns the names removed.

        A kept sandbox goes as soon as its time is over, whoever holds it.
        """
        ...

    async def keep(self, name: SandboxName, until: datetime) -> None:
        """Ends the processes of a sandbox of this process and keeps its files until that time; then `reap` takes it.

        Its owner must not destroy it. Raises `SandboxLost` when this process has no such sandbox.
        """
        ...

    async def let_go(self, name: SandboxName) -> None:
        """Lets go of a kept sandbox of this process, so that any process of this machine may `attach` it."""
        ...

    async def attach(self, name: SandboxName) -> Sandbox:
        """Returns a sandbox of this process, or a kept one on its files, in the form `held`; or `SandboxLost`.

        Of a backend that `keeps`, it is an `EnterableSandbox`.
        """
        ...

    async def list_sandboxes(self, *, now: datetime) -> list[SandboxView]:
        """Returns the sandboxes of this process and the kept ones on this machine, the oldest first."""
        ...

    async def kill_all(self) -> None:
        """Kills every sandbox of this process at once (the worker lost its beat)."""
        ...
