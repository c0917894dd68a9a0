"""As whom PostgreSQL runs, so that it is never root, ends with the server, and needs no user of its own."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tollbar.db.errors import EmbeddedDatabaseRefused

_NOBODY: Final = 65534
_DIES_WITH_US: Final = ("--pdeathsig", "INT")


@dataclass(frozen=True)
class RunAs:
    """How PostgreSQL's programs are started: the words before them, and who must own their files."""

    words: tuple[str, ...]
    owner: tuple[int, int]

    def start(self, program: Path, *arguments: str, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Starts a program of PostgreSQL as a child that gets SIGINT when this process dies.

        Only on the main thread, because the kernel sends that signal when the starting *thread* ends. The child has
        its own session, so that Ctrl-C in a terminal reaches tollbar first.
        """
        if threading.current_thread() is not threading.main_thread():
            msg = "PostgreSQL must be started on the main thread"
            raise RuntimeError(msg)
        try:
            return subprocess.Popen(
                [*self.words, str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise EmbeddedDatabaseRefused(f"the program {error.filename} is missing") from error


def run_as(pg_uid: int | None, *, unshare: str = "unshare", setpriv: str = "setpriv") -> RunAs:
    """Returns how PostgreSQL is started here. Raises `EmbeddedDatabaseRefused`.

    PostgreSQL refuses root and a uid without a name, so both are mapped to `nobody` in a user namespace: files stay
    the caller's outside. Root with `pg_uid` gives its rights up for that uid instead.
    """
    uid, gid = os.geteuid(), os.getegid()
    if sys.platform != "linux":
        if uid == 0:
            raise EmbeddedDatabaseRefused("PostgreSQL does not run as root")
        return RunAs((), (uid, gid))
    if uid == 0 and pg_uid is not None:
        named = _entry(pg_uid)
        if pg_uid == 0 or named is None:
            raise EmbeddedDatabaseRefused(f"uid {pg_uid} is root or has no entry in passwd")
        drop = ("--reuid", str(pg_uid), "--regid", str(named.pw_gid), "--clear-groups", "--no-new-privs")
        return RunAs((setpriv, *drop, *_DIES_WITH_US), (pg_uid, named.pw_gid))
    if uid == 0 or _entry(uid) is None:
        mapped = (unshare, "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--")
        return RunAs((*mapped, setpriv, *_DIES_WITH_US), (uid, gid))
    return RunAs((setpriv, *_DIES_WITH_US), (uid, gid))


def _entry(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def give(folder: Path, owner: tuple[int, int]) -> None:
    """Gives a folder with everything in it to `owner` (uid, gid) where it is another's; follows no link.

    Only root can, and only root needs it: when `TOLLBAR_PG_UID` was set or taken away since the last start.
    """
    if os.geteuid() != 0 or folder.lstat().st_uid == owner[0]:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent) / name, *owner, follow_symlinks=False)
    os.chown(folder, *owner, follow_symlinks=False)


async def output_of(how: RunAs, program: Path, *arguments: str) -> tuple[int, str]:
    """Returns exit status and output of a short program that is started as PostgreSQL will be."""
    process = how.start(program, *arguments, output=subprocess.PIPE)
    try:
        output, _ = await asyncio.to_thread(process.communicate)
    except BaseException:
        process.kill()
        raise
    return process.returncode, output.decode(errors="replace").strip()


async def ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Says whether the process has ended, and waits for it at most `within_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while process.poll() is None:
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True
