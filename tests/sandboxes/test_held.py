"""The held form: a world that outlives its commands, is entered with a tenant's rights only, and ends with `kill`."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.cgroup_leaf import Leaf
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.interface import ArtifactPath, Form, SealLimits

pytestmark = pytest.mark.forms(Form.HELD)

SPROUT = "setsid sleep {mark} & nohup sleep {mark} > /dev/null 2>&1 & (setsid sleep {mark} > /dev/null 2>&1 &)"
TRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, 1, 0, 0), ctypes.get_errno())
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/maps"):
    try:
        open(path, "rb").read(1)
        print("read")
    except PermissionError:
        print("refused")
"""


@pytest.fixture
async def kernel(provider):
    """Skips where control groups cannot be used."""
    await provider.preflight()
    if provider.capabilities().limits["pids"] != "kernel":
        pytest.skip("control groups cannot be used here")


async def test_commands_follow_each_other_in_one_world_and_find_what_the_last_one_left(box):
    first = await box.sandbox.exec(
        ["sh", "-c", "echo 1 > /n; echo x > /dev/shm/y; readlink /proc/self/ns/*"], timeout_s=9
    )
    second = await box.sandbox.exec(["sh", "-c", "cat /n /dev/shm/y; readlink /proc/self/ns/*"], timeout_s=9)
    assert second.stdout_tail == b"1\nx\n" + first.stdout_tail


async def test_a_background_process_lives_until_the_kill_and_the_files_longer(box, host):
    mark = host.marker()
    await box.sandbox.exec(["sh", "-c", SPROUT.format(mark=mark) + "; echo here > /file"], timeout_s=9)
    await host.sleeping(mark, 3)
    assert (await box.sandbox.exec(["cat", "/file"], timeout_s=9)).stdout_tail == b"here\n"
    assert len(host.living(mark)) == 3
    await box.sandbox.kill()
    assert host.living(mark) == []
    assert (await box.sandbox.exec(["cat", "/file"], timeout_s=9)).stdout_tail == b"here\n"


async def test_a_command_ends_although_its_background_process_holds_the_output_open(box, host, tmp_path):
    mark = host.marker()
    script = f"(echo started; sleep 0.4; echo late; echo alive > /alive; sleep {mark}) & sleep 0.1; echo ended"
    result = await box.sandbox.exec(["sh", "-c", script], timeout_s=9, output=tmp_path / "log")
    assert (result.exit_code, result.stdout_tail) == (0, b"started\nended\n")
    assert result.wall_s < 0.4
    await host.until((box.upper / "alive").exists)
    assert (tmp_path / "log").read_text() == "started\nended\n", "what comes later is nobody's"


async def test_a_flood_in_the_background_does_not_keep_a_command_from_ending(box):
    result = await box.sandbox.exec(["sh", "-c", "yes & sleep 0.2; exit 3"], timeout_s=9)
    assert result.exit_code == 3
    assert result.wall_s < 5


async def test_a_time_out_ends_what_the_command_started_and_nothing_else(kernel, box, host):
    server, late = host.marker(), host.marker()
    await box.sandbox.exec(["sh", "-c", f"setsid sleep {server} &"], timeout_s=9)
    result = await box.sandbox.exec(["sh", "-c", SPROUT.format(mark=late) + f"; sleep {late}"], timeout_s=0.4)
    assert result.timed_out
    assert result.exit_code is None
    assert result.wall_s < 2.4
    assert host.living(late) == []
    assert len(host.living(server)) == 1
    assert (await box.sandbox.exec(["echo", "next"], timeout_s=9)).stdout_tail == b"next\n"


async def test_without_control_groups_a_time_out_ends_every_tenant_and_the_next_command_works(
    watched_provider, new_box, host
):
    box = await new_box(provider=watched_provider)
    server, late = host.marker(), host.marker()
    await box.sandbox.exec(["sh", "-c", f"setsid sleep {server} &"], timeout_s=9)
    first = await box.sandbox.exec(["readlink", "/proc/self/ns/pid"], timeout_s=9)
    result = await box.sandbox.exec(["sh", "-c", SPROUT.format(mark=late) + f"; sleep {late}"], timeout_s=0.4)
    assert result.timed_out
    assert host.living(late) == host.living(server) == []
    again = await box.sandbox.exec(["readlink", "/proc/self/ns/pid"], timeout_s=9)
    assert again.stdout_tail == first.stdout_tail, "in the same world"


async def test_a_fork_bomb_that_runs_out_of_time_is_gone_and_the_next_command_works(kernel, box, host):
    mark = host.marker()
    bomb = f"import os\nwhile True:\n try:\n  os.fork()\n  os.setsid()\n except OSError:\n  pass\n#{mark}"
    result = await box.sandbox.exec(["python3", "-c", bomb], timeout_s=1)
    assert result.timed_out
    assert host.living(mark) == []
    assert (await box.sh("sh -c 'echo next'")).stdout_tail == b"next\n", "forks succeed again"


@pytest.mark.requirement("G-SBX-14.cgroup_leaf")
async def test_every_process_of_every_command_is_below_the_leaf_run_and_process_1_is_not(kernel, box, host):
    mark = host.marker()
    [leaf] = [Leaf(path) for path in map(Path, host.cgroups(box.sandbox.handle.name)) if path.name == "run"]
    await box.sandbox.exec(["sh", "-c", f"setsid sleep {mark} &"], timeout_s=9)
    running = asyncio.create_task(box.sandbox.exec(["sh", "-c", f"sleep {mark}"], timeout_s=9))
    await host.sleeping(mark, 2)
    assert set(host.living(mark)) == set(leaf.pids())
    for folder in box.sandbox.handle.data["cgroups"]:
        assert set(leaf.pids()) <= host.members(folder), "all limits hold for them"
    await box.sandbox.kill()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.requirement("G-SBX-14.cgroup_leaf")
async def test_a_command_that_cannot_join_its_group_never_runs(kernel, box, host, monkeypatch):
    def refuse(leaf, pid):
        raise OSError(16, "Device or resource busy")

    mark = host.marker()
    monkeypatch.setattr(Leaf, "add", refuse)
    with pytest.raises(EnvironmentStartFailed, match="control group"):
        await box.sandbox.exec(["sh", "-c", f"echo ran > /ran; sleep {mark}"], timeout_s=9)
    assert host.living(mark) == []
    assert not (box.upper / "ran").exists()


@pytest.mark.requirement("G-SBX-14.early")
async def test_there_is_no_sandbox_to_enter_before_its_own_shell_was_up(provider, make_spec, host):
    def fill(folder):
        shell = folder / "opt/tollbar/bin/sh"
        shell.parent.mkdir(parents=True)
        shell.write_text("#!/usr/bin/python3\nimport sys\nsys.exit('no shell today')\n")
        shell.chmod(0o755)

    layer = await provider.layer(host.marker(), fill)
    with pytest.raises(EnvironmentStartFailed, match="no shell today") as failed:
        await provider.create(make_spec(layers=[layer]))
    assert failed.value.detail == "start"


async def test_both_forms_give_a_command_the_same_rights_limits_and_mounts(provider, new_box):
    show = (
        "grep -E '^Cap|Priv|Seccomp|^Sig[^QI]|^Uid|^Gid|Groups' /proc/self/status; ulimit -a; umask; env | sort; id; "
        "cut -d' ' -f2-4 /proc/self/mounts | grep -v overlay; ls -l /proc/self/fd | wc -l; cat /proc/self/uid_map; "
        "cat /proc/sys/user/max_user_namespaces; hostname; ls -la / | wc -l"
    )
    held = await new_box(env={"NAME": "value"})
    spec = held.sandbox.spec
    one_shot = await provider.create(replace(spec, form=Form.ONE_SHOT, name=replace(spec.name, try_no=1)))
    try:
        expected = await one_shot.exec(["sh", "-c", show], timeout_s=9)
    finally:
        await one_shot.destroy()
    assert b"CapEff" in expected.stdout_tail
    assert (await held.sh(show)).stdout_tail.decode() == expected.stdout_tail.decode()


async def test_process_1_can_be_neither_traced_nor_read_nor_ended(box, host):
    out = await box.python(TRACE)
    assert out.splitlines() == ["-1 1", "refused", "refused", "refused"]
    script = "kill -9 1; kill -STOP 1; kill -TERM 1; (kill -9 -1) & wait; exit 4"
    assert (await box.sandbox.exec(["sh", "-c", script], timeout_s=9)).exit_code in {4, 137}
    assert (await box.sandbox.exec(["echo", "next"], timeout_s=9)).stdout_tail == b"next\n"


async def test_processes_that_lose_their_parent_do_not_pile_up(box):
    script = "i=0; while [ $i -lt 150 ]; do (true &); i=$((i+1)); done; sleep 0.2; ls /proc | grep -c '^[0-9]'"
    assert int((await box.sh(script)).stdout_tail) <= 6


async def test_commands_at_once_do_not_mix(box):
    scripts = [f"sleep 0.05; echo {number}; exit {number}" for number in range(6)]
    results = await asyncio.gather(*(box.sandbox.exec(["sh", "-c", script], timeout_s=9) for script in scripts))
    assert [(int(result.stdout_tail), result.exit_code) for result in results] == [(n, n) for n in range(6)]


async def test_a_world_that_somebody_ends_between_commands_is_lost_until_the_kill(box, host):
    await box.sh("echo kept > /file")
    [outer] = host.started(box.upper.parent)
    os.kill(outer, signal.SIGKILL)
    await host.until(lambda: host.name(outer) == "" or "Z" in host.state(outer))
    with pytest.raises(SandboxLost) as lost:
        await box.sandbox.exec(["true"], timeout_s=9)
    assert lost.value.detail == "engine"
    await box.sandbox.kill()
    assert (await box.sandbox.exec(["cat", "/file"], timeout_s=9)).stdout_tail == b"kept\n"


async def test_files_are_touched_as_soon_as_no_tenant_lives_and_not_before(box, host, tmp_path):
    mark = host.marker()
    (tmp_path / "new").write_text("new")
    assert await box.sandbox.read_file("/app/none", 10) is None, "nothing ran yet"
    await box.sandbox.put(tmp_path, "/before")
    await box.sandbox.exec(
        ["sh", "-c", "cat /before/new > /app/copy; mkdir /after; echo old > /after/old"], timeout_s=9
    )
    assert await box.sandbox.read_file("/app/copy", 10) == b"new"
    await box.sandbox.put(tmp_path, "/after")
    assert (await box.sh("ls /after")).stdout_tail == b"new\n", "a running world would still show the old folder"
    await box.sandbox.exec(["sh", "-c", f"setsid sleep {mark} &"], timeout_s=9)
    for touch in (
        box.sandbox.put(tmp_path, "/after"),
        box.sandbox.read_file("/app/copy", 10),
        box.sandbox.seal([ArtifactPath("/app")], SealLimits(), lambda descriptor, size: "0" * 64),
    ):
        with pytest.raises(RuntimeError, match="no process lives"):
            await touch
    await box.sandbox.kill()
    assert await box.sandbox.read_file("/app/copy", 10) == b"new"


async def test_thirty_commands_leave_nothing_behind(box, shared_folder, host):
    await box.sh("true")
    before = host.traces(shared_folder)
    for number in range(30):
        assert (await box.sandbox.exec(["sh", "-c", f"exit {number}"], timeout_s=9)).exit_code == number
    await host.until(lambda: host.traces(shared_folder)["threads"] <= before["threads"])
    after = host.traces(shared_folder)
    assert {**after, "threads": 0} == {**before, "threads": 0}


async def test_a_helper_that_dies_is_replaced_and_running_commands_do_not_notice(provider, box, host):
    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sh", "-c", f"sleep 0.5; echo lived # {mark}"], timeout_s=9))
    await host.came(mark)
    helper = provider._entrance._process.pid
    assert host.name(helper) == "tollbar-entry"
    assert host.uids(helper) == {str(box.upper.stat().st_uid)}
    os.kill(helper, signal.SIGKILL)
    results = await asyncio.gather(*(box.sandbox.exec(["echo", "next"], timeout_s=9) for _ in range(3)))
    assert {result.stdout_tail for result in results} == {b"next\n"}
    assert (await running).stdout_tail == b"lived\n"
    assert provider._entrance._process.pid != helper


async def test_a_long_argument_list_reaches_the_command_whole(box):
    long = ["x" * 100_000, *map(str, range(2000))]
    code = "import sys; print(len(sys.argv), sum(map(len, sys.argv[1:])))"
    result = await box.sandbox.exec(["python3", "-c", code, *long], timeout_s=9)
    assert result.stdout_tail.decode().split() == [str(len(long) + 1), str(sum(map(len, long)))]


def test_a_provider_that_was_never_used_has_no_helper(shared_folder):
    assert BwrapProvider(shared_folder / "sandboxes", host="here")._entrance is None


async def test_the_helper_of_one_server_is_no_stranger_to_another(box, shared_folder):
    await box.sh("true")
    assert await BwrapProvider(shared_folder / "sandboxes", host="here").preflight() == []
