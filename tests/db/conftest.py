"""Data directories that other users may reach, and processes that own a server."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root can become another user")


@pytest.fixture
def place():
    """A folder that every user may pass (a pytest folder of root is closed to all others)."""
    folder = Path(tempfile.mkdtemp(prefix="tollbar-test-place-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@dataclass
class Owner:
    """A process that owns a server, or was refused one: `said` is what it printed."""

    process: asyncio.subprocess.Process
    said: dict

    async def ended(self):
        """Returns when the process has ended."""
        self.process.stdin.close()
        return await asyncio.wait_for(self.process.wait(), 10)

    async def kill(self):
        """Kills the process as the kernel does when memory is short."""
        self.process.kill()
        await self.process.wait()


@pytest.fixture
async def new_owner():
    """Starts owners that end with the test; `before` are words before the interpreter."""
    owners = []

    async def start(data_dir, *options, before=(), env=None):
        process = await asyncio.create_subprocess_exec(
            *before,
            *(sys.executable, "-m", "tests.db.owner", str(data_dir), *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **(env or {})},
        )
        owner = Owner(process, {})
        owners.append(owner)
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        owner.said = json.loads(line)
        return owner

    yield start
    for owner in owners:
        await owner.ended()
        shutil.rmtree(owner.said.get("socket_dir", "/nowhere"), ignore_errors=True)  # a killed owner leaves it


def alive(pid):
    """Says whether a process is there and is not merely waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ask(url, statement):
    """Returns the first value of a statement's first row, or None."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def mode(path):
    """Returns the permission bits of a file as octal text."""
    return oct(Path(path).stat().st_mode & 0o7777)


def users_and_groups():
    """Returns the system's users and groups as they are written."""
    return [Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()]


def facts_of(path):
    """Returns what must not change about a folder: mode, owner, group."""
    facts = Path(path).stat()
    return facts.st_mode, facts.st_uid, facts.st_gid


def contents(folder):
    """Returns the names in a folder, or None when it is not there."""
    folder = Path(folder)
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else None


def uids_of(pid):
    """Returns the user ids of a process, as text."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return set(next(line for line in lines if line.startswith("Uid:")).split()[1:])


def environment_of(pid):
    """Returns the environment of a process as it was started."""
    return Path(f"/proc/{pid}/environ").read_bytes()
