"""The command line that starts a sandbox.

Nothing of the tenant is in it but the command: the environment goes through descriptor 3, because the host's program
would run with it and every local user could read it.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.base import DEFAULT_HOME, DEFAULT_PATH
from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed
from tollbar.sandboxes.interface import Limits
from tollbar.sandboxes.process import Chain
from tollbar.sandboxes.start_helper import ARGUMENTS, FILTER, INFO, PROCESS_1_FILTER

ENTER: Final = (
    'echo >&3; while IFS= read -r l <&3; do e="$e$l\n"; done; eval "$e"; '
    '[ "$tollbar_go" ] || exit 69; unset tollbar_go; '
    'cd -- "$1" || exit; shift; unset OLDPWD; echo >&3; exec 3<&-; exec "$@"'
)
"""Runs inside, with the shell alone: says that it is up, takes the environment, says that it starts, and becomes the
command.

An end of the channel before the last line (the supervisor died) starts nothing.
"""

HOLD: Final = (
    "command -v sleep >/dev/null || exit 69; "
    'echo >&3; IFS= read -r go <&3; [ "$go" ] || exit 69; '
    "sleep 2147483647 & echo >&3; exec 3<&- >/dev/null 2>&1; "
    "wait $!; while sleep 2147483647 & wait $!; [ $? -ne 127 ]; do :; done"
)
"""Runs as process 1 of a held sandbox: waits for ever and takes orphans' zombies; no signal from inside ends it."""

ISOLATION: Final = (
    "--unshare-user",
    "--disable-userns",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    "sandbox",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
)
CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What uid 0 inside keeps (over files of the one mapped uid only); the other backends keep the same."""

HOLDER: Final = ("--as-pid-1", "--cap-add", "CAP_WAKE_ALARM")
"""What process 1 of a held sandbox has besides: a right without any use, which keeps tenants from tracing it.

Process 1 outlives commands that are ended for time, so a tenant must not be able to put its own code into it.
"""

START_ENV: Final = {"PATH": DEFAULT_PATH, "HOME": DEFAULT_HOME}
"""The environment of the tenant's own shell before it takes the command's."""

_MEMORY: Final = ("/proc/1/mem", "/proc/1/task/1/mem")
SHM_BYTES: Final = 64 << 20
_MIB: Final = 1 << 20
_MOUNT_OPTIONS_MAX: Final = 4095
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Programs:
    """Absolute paths of the host's programs."""

    bwrap: str


@dataclass(frozen=True)
class Root:
    """The root file system of a sandbox: lower layers bottom first, the upper layer, and read-only binds."""

    lowers: tuple[Path, ...]
    upper: Path
    work: Path
    binds: tuple[tuple[Path, str], ...]

    def arguments(self) -> list[str]:
        """Returns bwrap's mount arguments. Raises `EnvironmentStartFailed` when there are too many layers."""
        size = sum(len(f":/oldroot{path}") for path in self.lowers) + len(f"{self.upper}{self.work}") + 64
        if size > _MOUNT_OPTIONS_MAX:
            msg = f"{len(self.lowers)} layers do not fit into one mount; fewer build steps are needed"
            raise EnvironmentStartFailed("start", msg)
        mounts: list[str] = []
        for lower in self.lowers:
            mounts += ["--overlay-src", str(lower)]
        return [*mounts, "--overlay", str(self.upper), str(self.work), "/", *_fixed_mounts(self.binds)]


def read_only_root(lower: Path, binds: Sequence[tuple[Path, str]]) -> list[str]:
    """Returns mount arguments without an overlay: only to tell which of the two a machine refuses."""
    return ["--ro-bind", str(lower), "/", *_fixed_mounts(binds)]


def _fixed_mounts(binds: Sequence[tuple[Path, str]]) -> list[str]:
    """Returns the binds and the kernel's folders; `/dev` has a bounded memory file system and no other space.

    The memory of process 1 is no file that anybody could open.
    """
    mounts = [part for source, inside in binds for part in ("--ro-bind", str(source), inside)]
    return [
        *mounts,
        *("--proc", "/proc", "--dev", "/dev"),
        *(part for file in _MEMORY for part in ("--ro-bind", "/dev/null", file)),
        *("--size", str(SHM_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108 - inside
    ]


@dataclass(frozen=True)
class Ceilings:
    """What each process may open (`nofile`) and how long a file may get, in bytes; core files are never written."""

    nofile: int
    file_bytes: int


def ceilings(limits: Limits) -> Ceilings:
    """Returns the resource limits of every process of a tenant; none is above this process's own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    nofile = limits.nofile if hard == resource.RLIM_INFINITY else min(hard, limits.nofile)
    return Ceilings(nofile, limits.disk_mb * _MIB)


def chain(
    bwrap: str,
    name: str,
    mounts: Sequence[str],
    limits: Limits,
    groups: Sequence[str],
    command: Sequence[str],
    *,
    hold: bool = False,
) -> Chain:
    """Returns how a sandbox is started that runs the tenant's `command`; with `hold` as its process 1.

    `name` stands in the list of processes as the program's name. What isolates stands on the command line, so that
    no sandbox can lack it; the mounts are handed in, because they name the host's folders.
    """
    most = ceilings(limits)
    capabilities = [part for name in CAPABILITIES for part in ("--cap-add", f"CAP_{name}")]
    words = [
        *(name, *ISOLATION, "--uid", "0", "--gid", "0", "--cap-drop", "ALL", *capabilities),
        *(HOLDER if hold else ()),
        *(part for name, value in START_ENV.items() for part in ("--setenv", name, value)),
        *(("--seccomp", str(FILTER)) if PROCESS_1_FILTER else ()),
        *("--chdir", "/", "--info-fd", str(INFO), "--args", str(ARGUMENTS), "--", *command),
    ]
    arguments = os.fsencode("".join(f"{part}\0" for part in mounts))
    return Chain(bwrap, words, arguments, groups, most.nofile, most.file_bytes)


def enter(cwd: str, argv: Sequence[str]) -> list[str]:
    """Returns the tenant's part of the chain: its own shell, which becomes the command."""
    return ["sh", "-c", ENTER, "sh", cwd, *argv]


def hold() -> list[str]:
    """Returns the tenant's part of the chain of a holder."""
    return ["sh", "-c", HOLD]


def environment_text(env: Mapping[str, str]) -> bytes:
    """Returns the environment as shell text for descriptor 3.

    Raises `EnvironmentRefused` (`variable`) for a name that is no shell name or a value with a NUL.
    """
    lines: list[str] = []
    for name, value in env.items():
        if _NAME.match(name) is None:
            msg = f"The environment variable {name!r} cannot be set: a name has letters, digits and underscores."
            raise EnvironmentRefused("variable", msg)
        if "\0" in value:
            msg = f"The value of the environment variable {name} holds a NUL character."
            raise EnvironmentRefused("variable", msg)
        lines.append(f"export {name}={shlex.quote(value)}\n")
    return ("".join(lines) + "tollbar_go=1\n").encode("utf-8", "surrogateescape")
