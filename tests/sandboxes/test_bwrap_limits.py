"""Limits: by the kernel where control groups can be used, else watched; and how groups of both versions are made."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tollbar.sandboxes.cgroups import Cgroups, Group, detect
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.interface import Limits

ALLOCATE = "import time; held = [b'x' * (1 << 20) for _ in range({mib})]; time.sleep({pause})"


@pytest.fixture
async def kernel(provider):
    """Skips where the kernel cannot be asked to hold limits."""
    await provider.preflight()
    if provider.capabilities().limits["memory"] != "kernel":
        pytest.skip("control groups cannot be used here")


@pytest.mark.requirement("G-SBX-14.memory")
async def test_an_allocation_above_the_limit_is_killed_and_counted(kernel, new_box):
    box = await new_box(limits=Limits(memory_mb=64, pids=64, disk_mb=64))
    result = await box.sandbox.exec(["python3", "-c", ALLOCATE.format(mib=400, pause=0)], timeout_s=20)
    assert result.oom_killed
    assert result.exit_code == 137
    again = await box.sh("echo usable")
    assert again.stdout_tail == b"usable\n"
    assert not again.oom_killed, "the count is of this command only"


async def test_every_process_of_a_command_is_in_its_group(kernel, box, host):
    mark = host.marker()
    script = f"setsid sleep {mark} & (setsid sleep {mark} &) ; sleep {mark}"
    running = asyncio.create_task(box.sandbox.exec(["sh", "-c", script], timeout_s=20))
    await host.sleeping(mark, 3)
    pids = set(host.living(mark))
    for folder in box.sandbox.handle.data["cgroups"]:
        assert pids <= host.members(folder)
    await box.sandbox.kill()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_process_that_dies_by_itself_is_not_taken_for_one_killed_for_memory(box):
    result = await box.sh("kill -9 $$")
    assert result.exit_code == 137
    assert not result.oom_killed


@pytest.mark.requirement("G-SBX-14.processes")
async def test_more_processes_than_the_limit_cannot_be_forked(kernel, new_box):
    box = await new_box(limits=Limits(memory_mb=256, pids=32, disk_mb=64))
    out = await box.python("""
        import os, time
        count = 0
        try:
            while count < 200:
                if os.fork() == 0:
                    time.sleep(30)
                    os._exit(0)
                count += 1
        except OSError as error:
            print(error.errno)
        print(count)
    """)
    refused, count = map(int, out.split())
    assert refused == 11
    assert 20 <= count < 32, "bwrap's own processes count too"


@pytest.mark.requirement("G-SBX-14.cpu")
async def test_half_a_cpu_takes_about_two_seconds_for_one_cpu_second(kernel, new_box):
    """The upper bound counts in what a whole CPU takes beside it, because a busy machine gives nobody its share."""
    half, whole = [await new_box(limits=Limits(cpus=cpus, memory_mb=256, pids=64, disk_mb=64)) for cpus in (0.5, 1.0)]
    burn = "import time\nwhile time.process_time() < 1: pass"
    halved, full = await asyncio.gather(
        *(box.sandbox.exec(["python3", "-c", burn], timeout_s=60) for box in (half, whole))
    )
    assert halved.wall_s >= 1.7
    assert halved.wall_s <= 4 * max(1.0, full.wall_s)
    assert halved.cpu_ns is not None
    assert 0.9e9 < halved.cpu_ns < 1.5e9


async def test_cpu_time_is_that_of_the_command_with_its_children(kernel, box):
    burn = "import os, time\nif os.fork() == 0:\n while time.process_time() < 0.3: pass\nelse: os.wait()"
    first = await box.sandbox.exec(["python3", "-c", burn], timeout_s=20)
    assert first.cpu_ns is not None
    assert first.cpu_ns > 0.3e9
    second = await box.sh("true")
    assert second.cpu_ns is not None
    assert second.cpu_ns < 0.1e9


async def test_one_file_cannot_grow_above_the_disk_limit(new_box):
    box = await new_box(limits=Limits(memory_mb=256, pids=64, disk_mb=4))
    result = await box.sh("head -c 20000000 /dev/zero > /big; stat -c %s /big")
    assert int(result.stdout_tail) <= 4 << 20
    assert (box.upper / "big").stat().st_size <= 4 << 20


async def test_writing_many_files_above_the_disk_limit_ends_the_command_with_a_word(new_box, tmp_path):
    box = await new_box(limits=Limits(memory_mb=256, pids=64, disk_mb=8))
    script = "i=0; while [ $i -lt 20 ]; do head -c 1000000 /dev/zero > /f$i; i=$((i+1)); done; sleep 30"
    started = time.monotonic()
    result = await box.sh(script, output=tmp_path / "log")
    assert time.monotonic() - started < 10
    assert result.exit_code == 137
    assert not result.timed_out
    assert not result.oom_killed
    assert b"more than 8 MiB written" in result.stderr_tail
    assert "more than 8 MiB written" in (tmp_path / "log").read_text()
    assert (box.upper / "f3").exists(), "what is there can be sealed and graded"


@pytest.mark.requirement("G-SBX-14.memory_whole")
async def test_without_control_groups_memory_is_watched(watched_provider, new_box, host):
    box = await new_box(provider=watched_provider, limits=Limits(memory_mb=48, pids=64, disk_mb=64))
    mark = host.marker()
    result = await box.sandbox.exec(["python3", "-c", ALLOCATE.format(mib=100, pause=30) + f"#{mark}"], timeout_s=20)
    assert result.oom_killed
    assert result.exit_code is None, "the sandbox as a whole was ended"
    assert b"more than 48 MiB of memory" in result.stderr_tail
    assert host.living(mark) == []
    assert result.cpu_ns is None


async def test_without_control_groups_processes_are_watched(watched_provider, new_box, host):
    box = await new_box(provider=watched_provider, limits=Limits(memory_mb=256, pids=16, disk_mb=64))
    mark = host.marker()
    script = f"i=0; while [ $i -lt 40 ]; do sleep {mark} & i=$((i+1)); done; wait"
    result = await box.sandbox.exec(["sh", "-c", script], timeout_s=20)
    assert result.exit_code == 137
    assert b"more than 16 processes" in result.stderr_tail
    assert host.living(mark) == []


async def test_without_control_groups_everything_else_works_and_the_level_is_reported(watched_provider, new_box):
    await watched_provider.preflight()
    assert watched_provider.capabilities().limits == {
        "memory": "watched",
        "pids": "watched",
        "cpus": "none",
        "disk": "watched",
    }
    box = await new_box(provider=watched_provider)
    assert (await box.sh("echo fine")).stdout_tail == b"fine\n"
    [advice] = await watched_provider.advice()
    assert advice.code == "CGROUP"
    assert "Delegate=yes" in advice.fix


async def test_limits_that_the_machine_refuses_are_said_before_anything_runs(provider, make_spec, tmp_path):
    class Refusing(Cgroups):
        def make(self, name, limits):
            raise OSError(22, "Invalid argument")

    provider._cgroups = Refusing({"memory": tmp_path}, 1)
    with pytest.raises(EnvironmentStartFailed, match="Invalid argument"):
        await provider.create(make_spec())


def v1_tree(root: Path) -> tuple[str, str]:
    mounts, own = [], []
    for number, names in enumerate(("memory", "pids", "cpu,cpuacct"), start=1):
        (root / names / "own").mkdir(parents=True)
        mounts.append(f"3{number} 1 0:{number} / {root}/{names} rw - cgroup cgroup rw,{names}")
        own.append(f"{number}:{names}:/own")
    return "\n".join(mounts), "\n".join([*own, "0::/"])


def test_version_1_groups_are_made_below_the_own_ones(tmp_path):
    mounts, own = v1_tree(tmp_path)
    found = detect(mountinfo=mounts, membership=own, usable=lambda folder, version: True)
    assert found.version == 1
    assert found.parents == {
        "memory": tmp_path / "memory/own",
        "pids": tmp_path / "pids/own",
        "cpu": tmp_path / "cpu,cpuacct/own",
        "cpuacct": tmp_path / "cpu,cpuacct/own",
    }
    assert found.levels() == {"memory": "kernel", "pids": "kernel", "cpus": "kernel", "disk": "watched"}


def test_version_1_groups_get_their_limits_and_are_joined_once_per_folder(tmp_path):
    mounts, own = v1_tree(tmp_path)
    found = detect(mountinfo=mounts, membership=own, usable=lambda folder, version: True)
    for path, names in {
        "memory": ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
        "pids": ["pids.max"],
        "cpu,cpuacct": ["cpu.cfs_quota_us"],
    }.items():
        (tmp_path / path / "own/box").mkdir()
        for name in names:
            (tmp_path / path / "own/box" / name).write_text("")
    group = found.group("box")
    group_made = _make_in_place(found, Limits(cpus=1.5, memory_mb=64, pids=10))
    assert group_made.join == group.join
    assert len(group.join) == 3
    assert (tmp_path / "memory/own/box/memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (tmp_path / "memory/own/box/memory.memsw.limit_in_bytes").read_text() == str(64 << 20)
    assert (tmp_path / "pids/own/box/pids.max").read_text() == "10"
    assert (tmp_path / "cpu,cpuacct/own/box/cpu.cfs_quota_us").read_text() == "150000"


def _make_in_place(found: Cgroups, limits: Limits):
    """Makes the group `box` over folders that hold the kernel's files already, which a plain folder lacks."""

    class InPlace(type(found.group("box"))):
        def create(self):
            pass

    class Prepared(Cgroups):
        def group(self, name):
            made = super().group(name)
            return InPlace(made.folders, made.version)

    return Prepared(found.parents, found.version).make("box", limits)


def test_version_2_groups_get_their_limits_and_are_read(tmp_path):
    (tmp_path / "own/box").mkdir(parents=True)
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max"):
        (tmp_path / "own/box" / name).write_text("")
    found = detect(
        mountinfo=f"31 1 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw",
        membership="0::/own",
        usable=lambda folder, version: version == 2,
    )
    assert found.version == 2
    group = _make_in_place(found, Limits(cpus=0.5, memory_mb=64, pids=10))
    read = {
        name: (tmp_path / "own/box" / name).read_text()
        for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")
    }
    assert read == {"memory.max": str(64 << 20), "memory.swap.max": "0", "pids.max": "10", "cpu.max": "50000 100000"}
    assert group.join == [str(tmp_path / "own/box")]
    (tmp_path / "own/box/cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\n")
    (tmp_path / "own/box/memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    (tmp_path / "own/box/memory.peak").write_text("4096\n")
    assert (group.cpu_ns(), group.oom_kills(), group.memory_peak()) == (1_500_000, 3, 4096)


@pytest.fixture
def unified():
    """A folder of the real version 2 hierarchy; skips where there is none that can be written."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    folder = None if root is None else root / f"tollbar-test-{os.getpid()}"
    try:
        assert folder is not None
        folder.mkdir()
    except (AssertionError, OSError):
        pytest.skip("no version 2 hierarchy can be written here")
    yield folder
    Group({"pids": folder}, 2).remove()


async def test_a_leaf_of_version_2_is_ended_by_the_kernels_own_file(unified, host):
    group = Group({"memory": unified, "pids": unified, "cpu": unified}, 2)
    leaf, other = group.leaf("run"), group.leaf("holder")
    assert leaf.join == [str(unified / "run")]
    mark = host.marker()
    sleeping = []
    for folder in (leaf, leaf, other):
        folder.create()
        process = await asyncio.create_subprocess_exec("sleep", mark)
        folder.add(process.pid)
        sleeping.append(process)
    assert await leaf.end()
    assert [await process.wait() for process in sleeping[:2]] == [-9, -9]
    assert host.living(mark) == [sleeping[2].pid]
    assert group.remove()
    await sleeping[2].wait()
    assert not unified.exists()


def test_without_write_access_there_are_no_groups(tmp_path):
    mounts, own = v1_tree(tmp_path)
    found = detect(mountinfo=mounts, membership=own, usable=lambda folder, version: False)
    assert found == Cgroups()
    assert found.make("box", Limits()) is None
    assert detect(mountinfo="", membership="") == Cgroups()
