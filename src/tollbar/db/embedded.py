"""The default database: a PostgreSQL of our own that lives exactly as long as this process and opens no port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy.engine import URL

from tollbar.db.datadir import (
    HeldDirectory,
    hold_directory,
    read_server_facts,
    remove_server_facts,
    write_server_facts,
)
from tollbar.db.datafolder import DataFolder
from tollbar.db.errors import EmbeddedDatabaseFailed
from tollbar.db.launch import RunAs, ended, give, run_as

__all__ = [
    "EmbeddedServer",
    "HeldDirectory",
    "hold_directory",
    "read_server_facts",
    "remove_server_facts",
    "write_server_facts",
]

_PORT: Final = "5432"  # only a part of the socket's name
_SOCKET_MAX_BYTES: Final = 103  # Linux takes 107, macOS 103
_LOG: Final = "postgres.log"
_LAST_LOG: Final = "postgres.last.log"
_RECOVERY_S: Final = 600.0
_GOES_BY_ITSELF: Final = ('lock file "postmaster.pid" already exists', "pre-existing shared memory block")


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server; `url` is the form that SQLAlchemy and the engine read."""

    url: str
    pid: int
    socket_dir: Path
    _process: subprocess.Popen[bytes]
    _undo: AsyncExitStack

    @classmethod
    async def start(
        cls,
        data_dir: Path,
        *,
        pg_uid: int | None = None,
        durable: bool = True,
        unshare: str = "unshare",
        ready_s: float = 10.0,
        held: HeldDirectory | None = None,
    ) -> EmbeddedServer:
        """Starts the server on `data_dir/pg`, which is made when it is missing; call it on the main thread.

        `pg_uid` runs it as that uid where this process is root. `durable` false is for data that is thrown away.
        `unshare` is the program that makes user namespaces. `held` is the directory's lock when the caller has it
        already. Raises `DataDirectoryHeld`, `EmbeddedDatabaseRefused`, `EmbeddedDatabaseFailed`.
        """
        how = run_as(pg_uid, unshare=unshare)
        try:
            async with AsyncExitStack() as undo:
                if held is None:
                    held = hold_directory(_made(data_dir, passable=how.owner[0] != os.geteuid()))
                    undo.callback(held.release)
                _clear_socket_dir(held)
                folder = await DataFolder.open(held.path, how)
                socket_dir = _make_socket_dir(how)
                undo.callback(shutil.rmtree, socket_dir, ignore_errors=True)
                held.note(socket_dir=str(socket_dir))
                process = await _Launch(folder, socket_dir, held.path, durable, ready_s).until_ready()
                undo.push_async_callback(_stop, process)
                return cls(_url(socket_dir), process.pid, socket_dir, process, undo.pop_all())
        except OSError as error:
            raise EmbeddedDatabaseFailed(str(error)) from error

    @property
    def running(self) -> bool:
        """Says whether the server process is there; it never ends by itself, so False is a reason to stop."""
        return self._process.poll() is None

    async def stop(self) -> None:
        """Ends every connection, writes everything to disk, ends the server, and gives the directory free."""
        await self._undo.aclose()


def _made(data_dir: Path, *, passable: bool) -> Path:
    """Makes the data directory, private, or open for passing alone; one that exists keeps its mode."""
    folder = data_dir.resolve()
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        if passable:
            folder.chmod(0o711)
    return folder


def _url(socket_dir: Path) -> str:
    # The port stands here because the client would take another one from PGPORT.
    query = {"host": str(socket_dir), "port": _PORT}
    url = URL.create("postgresql+psycopg", username="postgres", password="", database="postgres", query=query)
    return url.render_as_string(hide_password=False)


def _make_socket_dir(how: RunAs) -> Path:
    """Makes a private folder with a path short enough for a socket; its mode is the database's permission."""
    session = Path(f"/run/user/{os.geteuid()}")
    usable = [session] if os.access(session, os.W_OK | os.X_OK) else []
    for parent in (*usable, Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - mkdtemp makes a private one
        if len(os.fsencode(parent / "tollbar-12345678" / f".s.PGSQL.{_PORT}")) <= _SOCKET_MAX_BYTES:
            folder = Path(tempfile.mkdtemp(prefix="tollbar-", dir=parent))
            give(folder, how.owner)
            return folder
    raise EmbeddedDatabaseFailed("no folder for its socket has a path that is short enough")


def _clear_socket_dir(held: HeldDirectory) -> None:
    """Removes the socket folder of a holder that was killed: only one of ours, and only what PostgreSQL puts there."""
    named = held.left.get("socket_dir")
    if not isinstance(named, str) or not Path(named).name.startswith("tollbar-"):
        return
    with contextlib.suppress(OSError):
        for name in (f".s.PGSQL.{_PORT}", f".s.PGSQL.{_PORT}.lock"):
            (Path(named) / name).unlink(missing_ok=True)
        Path(named).rmdir()


async def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks for a fast shutdown; a server that hangs gets SIGQUIT and recovers at its next start."""
    for number, patience_s in ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        if process.poll() is not None:
            return
        process.send_signal(number)
        if await ended(process, patience_s):
            return


def _settings(major: int, *, durable: bool) -> dict[str, str]:
    """Returns our settings: one machine, short transactions, nothing on the network, a log that stays small."""
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    ours = {
        "unix_socket_permissions": "0700",
        "max_connections": "100",
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": f"{max(64, min(256, memory_mb // 16))}MB",
        "effective_cache_size": f"{max(128, memory_mb // 4)}MB",
        "max_wal_size": "256MB",  # bounds both the disk and the recovery after a crash
        "random_page_cost": "1.1",
        "jit": "off",
        "max_parallel_workers_per_gather": "0",  # parallel queries need a large /dev/shm, which containers lack
        "log_checkpoints": "off",
        "log_error_verbosity": "terse",  # no values of rows in the log
        "log_min_error_statement": "panic",  # nor statements
    }
    if major >= 18:
        ours["io_method"] = "sync"  # saves three processes that would wait for large reads
    if not durable:
        ours |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
    return ours


@dataclass(frozen=True)
class _Launch:
    """One start of the server on a folder."""

    folder: DataFolder
    socket_dir: Path
    data_dir: Path
    durable: bool
    ready_s: float

    async def until_ready(self) -> subprocess.Popen[bytes]:
        """Starts the server and returns it when it takes connections; what it leaves at a failure is its log."""
        log = self.data_dir / _LOG
        with contextlib.suppress(FileNotFoundError):
            log.replace(self.data_dir / _LAST_LOG)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.ready_s
        while True:
            process = self._start(log)
            try:
                problem = await self._ready(process)
            except BaseException:
                await _stop(process)
                raise
            if problem is None:
                return process
            await _stop(process)
            end = log.read_bytes()[-2000:].decode(errors="replace").strip()
            # What a killed server leaves in memory goes within moments.
            if loop.time() > deadline or not any(sign in end for sign in _GOES_BY_ITSELF):
                raise EmbeddedDatabaseFailed(problem, log=log, log_end=end)
            await asyncio.sleep(0.1)

    def _start(self, log: Path) -> subprocess.Popen[bytes]:
        binaries = self.folder.binaries
        settings = _settings(binaries.major, durable=self.durable)
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        place = ("-D", str(self.folder.path), "-h", "", "-k", str(self.socket_dir), "-p", _PORT)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            return self.folder.how.start(binaries.postgres, *place, *words, output=output)

    async def _ready(self, process: subprocess.Popen[bytes]) -> str | None:
        """Returns None when the server answers, or what went wrong. A recovery may take longer than `ready_s`."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        patience_s = self.ready_s
        while process.poll() is None:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    host=str(self.socket_dir), port=_PORT, user="postgres", dbname="postgres", connect_timeout=5
                )
            except psycopg.OperationalError as error:
                if "the database system is" in str(error):  # starting up, in recovery
                    patience_s = max(patience_s, _RECOVERY_S)
            else:
                await connection.close()
                return None
            if loop.time() - started > patience_s:
                return f"it did not answer within {patience_s:.0f} s"
            await asyncio.sleep(0.01)
        return f"it ended with status {process.returncode}"
