"""Real sandboxes for tests: below a folder that the tenants' uid can pass, removed afterwards."""

import asyncio
import contextlib
import hashlib
import os
import sys
import tempfile
import textwrap
import threading
import uuid
from functools import partial
from pathlib import Path

import pytest

from tollbar.kit.clock import SystemClock
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.cgroups import Cgroups
from tollbar.sandboxes.folders import remove_tree
from tollbar.sandboxes.identity import Identity, first_closed
from tollbar.sandboxes.interface import Form, ImageRef, Limits, Network, Purpose, SandboxName, SandboxSpec


def pytest_configure(config):
    config.addinivalue_line("markers", "forms(*forms): the forms of a sandbox for which a test runs; without it all")


def pytest_generate_tests(metafunc):
    """Runs every test that makes a sandbox for each form, because both must hold the same."""
    if "sandbox_form" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("forms")
        metafunc.parametrize("sandbox_form", list(Form) if marker is None else marker.args, ids=str, indirect=True)


@pytest.fixture
def sandbox_form(request):
    """The form of the sandboxes of a test."""
    return request.param


def make_open_folder() -> Path:
    """Returns a fresh folder that every user may pass (a pytest folder of root is closed to all others)."""
    folder = Path(tempfile.mkdtemp(prefix="tollbar-test-", dir="/var/tmp"))
    folder.chmod(0o711)
    return folder


@pytest.fixture
def open_folder():
    folder = make_open_folder()
    yield folder
    remove_tree(folder)


@pytest.fixture(scope="session")
def shared_folder():
    """A data directory that all tests of a run share, so that the base is made once."""
    folder = make_open_folder()
    yield folder
    remove_tree(folder)


@pytest.fixture(scope="session")
def ready(shared_folder):
    """Skips where bubblewrap cannot run, but never in CI."""
    problems = asyncio.run(BwrapProvider(shared_folder / "sandboxes", host="here").preflight())
    if problems:
        text = f"no sandboxes here: {problems}"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)


@pytest.fixture
async def provider(ready, shared_folder):
    provider = BwrapProvider(shared_folder / "sandboxes", host="here")
    yield provider
    await provider.kill_all()


@pytest.fixture
async def watched_provider(ready, shared_folder):
    """A provider on a machine whose control groups cannot be used, nor loop devices."""
    provider = BwrapProvider(shared_folder / "sandboxes", host="here", cgroups=Cgroups(), disk_images=False)
    yield provider
    await provider.kill_all()


def spec_of(
    form,
    name=None,
    *,
    limits=None,
    env=None,
    inputs=(),
    directories=(),
    workdir="/app",
    layers=(),
    purpose=Purpose.AGENT,
    disk_level="watched",
    network=Network.NONE,
):
    return SandboxSpec(
        name=name or SandboxName(f"trial_{uuid.uuid4().hex[:12]}", 0, purpose),
        owner="worker-1",
        form=form,
        image=ImageRef("", tuple(layers), workdir, {}),
        workdir=workdir,
        env=env or {},
        limits=limits or Limits(memory_mb=256, pids=64, disk_mb=256),
        inputs=tuple(inputs),
        directories=tuple(directories),
        disk_level=disk_level,
        network=network,
    )


class Box:
    """A sandbox with the calls that tests make all the time."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.form = sandbox.spec.form
        self.upper = Path(sandbox.handle.data["upper"])

    async def sh(self, script, **options):
        """Runs a shell script; a new command each time, in the same world where the form has one."""
        await self._make_ready()
        return await self.sandbox.exec(["sh", "-c", script], **{"timeout_s": 20, **options})

    async def python(self, code, *, argv=(), **options):
        """Runs Python code inside and returns its standard output; fails when it fails."""
        await self._make_ready()
        argv = ["python3", "-c", textwrap.dedent(code), *argv]
        result = await self.sandbox.exec(argv, **{"timeout_s": 20, **options})
        assert result.exit_code == 0, result.stderr_tail.decode()
        return result.stdout_tail.decode()

    async def _make_ready(self):
        if self.form is Form.ONE_SHOT:
            await self.sandbox.kill()


@pytest.fixture
async def new_box(provider, sandbox_form):
    """Makes sandboxes of the test's form that go with it; `new_box(provider=...)` takes another provider."""
    made = []

    async def make(*, provider=provider, **options):
        sandbox = await provider.create(spec_of(sandbox_form, **options))
        made.append(sandbox)
        return Box(sandbox)

    yield make
    for sandbox in made:
        await sandbox.destroy()


@pytest.fixture
async def box(new_box):
    return await new_box()


@pytest.fixture
def make_spec(sandbox_form):
    """Returns the function that describes sandboxes of the test's form."""
    return partial(spec_of, sandbox_form)


@pytest.fixture
def clock_now():
    """The wall clock of the machine, because reaping compares it with the times of files."""
    return SystemClock().now()


@pytest.fixture
def host():
    """What a test asks the machine outside the sandboxes."""
    return Host()


class Host:
    """The machine outside the sandboxes; a marker is a number of seconds that no other sleep has."""

    def marker(self) -> str:
        return f"9{uuid.uuid4().int % 10**9}"

    def living(self, mark: str) -> list[int]:
        """Returns the pids on this machine whose command line holds `mark`."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    async def until(self, holds, within_s: float = 5.0):
        """Returns what `holds()` answers as soon as it is true; fails when it stays false."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not (found := holds()):
            assert loop.time() < deadline, f"still {found!r} after {within_s} s"
            await asyncio.sleep(0.02)
        return found

    async def gone(self, mark: str, within_s: float = 5.0) -> None:
        """Returns when no process with `mark` lives; fails when one stays."""
        await self.until(lambda: not self.living(mark), within_s)

    async def came(self, mark: str, count: int = 1) -> list[int]:
        """Returns the processes with `mark` as soon as there are `count`."""
        return await self.until(lambda: found if len(found := self.living(mark)) >= count else None)

    async def sleeping(self, mark: str, count: int = 1) -> list[int]:
        """Returns the processes that are `sleep MARK` itself, as soon as there are `count`."""

        def sleeps():
            found = [pid for pid in self.living(mark) if self.name(pid) == "sleep"]
            return found if len(found) >= count else None

        return await self.until(sleeps)

    def name(self, pid: int | str) -> str:
        """Returns the name of a process's program; empty when it is gone."""
        try:
            return Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return ""

    def state(self, pid: int) -> str:
        """Returns the state of a process as one letter; empty when it is gone."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def uids(self, pid: int) -> set[str]:
        """Returns the user ids of a process, as text."""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return set(next(line for line in lines if line.startswith("Uid:")).split()[1:])

    def children(self, pid: int) -> list[int]:
        """Returns the children of a process."""
        return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def parent(self, pid: int) -> int:
        """Returns the pid of a process's parent."""
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def members(self, folder: str) -> set[int]:
        """Returns the pids in a control group and below it."""
        files = [Path(path, "cgroup.procs") for path, _, _ in os.walk(folder)]
        return {int(pid) for file in files for pid in file.read_text().split()}

    def started(self, folder: Path) -> list[int]:
        """Returns what the starting helpers of this machine started for the sandbox of a folder."""
        return [pid for pid in self.living(f"{folder}/") if self.name(self.parent(pid)) == "tollbar-start"]

    def descriptors(self) -> set[str]:
        """Returns the numbers of the descriptors that this process has open."""
        return {entry.name for entry in Path("/proc/self/fd").iterdir()}

    def cgroups(self, part: str) -> list[str]:
        """Returns the control groups whose name holds a text."""
        return [path for path, _, _ in os.walk("/sys/fs/cgroup") if part in path]

    def traces(self, root: Path) -> dict[str, object]:
        """Returns what sandboxes could leave: processes, mounts, groups, folders, descriptors, threads."""
        return {
            "processes": self.living(f"{root}/"),
            "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
            "cgroups": self.cgroups(f"tollbar-{hashlib.sha256(bytes(root / 'sandboxes')).hexdigest()[:8]}-"),
            "folders": sorted(folder.name for folder in (root / "sandboxes" / "s").iterdir()),
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "threads": threading.active_count(),
        }

    def holders(self, secret: str) -> dict[str, str]:
        """Returns which programs on this machine hold a text, and where: command line or environment."""
        seen = {}
        for entry in Path("/proc").iterdir():
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    if entry.name.isdigit() and secret.encode() in (entry / part).read_bytes():
                        seen[self.name(entry.name)] = part
        return seen

    def python_for(self, uid: int) -> str | None:
        """Returns an interpreter that another user can start, or None."""
        other = Identity(uid, uid, drop=True)
        for path in (sys.executable, "/usr/bin/python3"):
            real = Path(path).resolve()
            if real.is_file() and not first_closed(Path(path).parent, other) and not first_closed(real, other):
                return path
        return None
