"""How commands end: by themselves, by time, by kill, with their worker; and that nothing of them is left."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tollbar.sandboxes.cgroups import detect
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.group_names import maker_of_groups
from tollbar.sandboxes.identity import identify
from tollbar.sandboxes.interface import Form, Limits
from tollbar.sandboxes.process import Chain, start_tree
from tollbar.sandboxes.starter import Starter

HIDING = """
trap '' TERM HUP INT
setsid sleep {mark} &
nohup sleep {mark} > /dev/null 2>&1 &
(setsid sh -c 'trap "" TERM HUP INT; sleep {mark} & sleep {mark}' > /dev/null 2>&1 < /dev/null &)
python3 -c 'import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "{mark}"])'
echo written > /left
"""


async def test_a_command_ends_with_its_own_code_and_output(box):
    result = await box.sandbox.exec(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_s=10)
    assert (result.exit_code, result.stdout_tail, result.stderr_tail) == (7, b"out\n", b"err\n")
    assert not result.timed_out
    assert not result.oom_killed
    assert not result.truncated
    assert 0 < result.wall_s < 10


@pytest.mark.parametrize(("argv", "code"), [(["/nowhere"], 127), (["/etc"], 126), (["sh", "-c", "kill -9 $$"], 137)])
async def test_a_command_that_cannot_run_or_dies_has_the_code_that_a_shell_gives(box, argv, code):
    assert (await box.sandbox.exec(argv, timeout_s=10)).exit_code == code


async def test_arguments_reach_the_command_unchanged(box):
    odd = ["", " ", "a b", "$HOME", "'", '"', "\\", "*", "{info}", "--", "-x", "é\n"]
    result = await box.sandbox.exec(["python3", "-c", "import sys; print(sys.argv[1:])", *odd], timeout_s=10)
    assert result.stdout_tail.decode() == f"{odd}\n"


async def test_a_command_starts_in_the_working_directory_or_in_the_one_asked_for(box):
    assert (await box.sh("pwd")).stdout_tail == b"/app\n"
    assert (await box.sh("pwd", cwd="/usr/lib")).stdout_tail == b"/usr/lib\n"
    assert (await box.sh("mkdir deep; cd deep; pwd")).stdout_tail == b"/app/deep\n"
    assert (await box.sh("pwd", cwd="deep")).stdout_tail == b"/app/deep\n"


async def test_a_missing_working_directory_is_said_and_not_taken_for_the_commands_failure(box):
    with pytest.raises(EnvironmentStartFailed, match="/nowhere") as failed:
        await box.sandbox.exec(["true"], cwd="/nowhere", timeout_s=10)
    assert (failed.value.reason, failed.value.detail) == ("ENVIRONMENT_START_FAILED", "start")


@pytest.mark.requirement("G-SBX-14.tree_kill")
@pytest.mark.forms(Form.ONE_SHOT)
async def test_the_end_of_the_command_ends_every_process_that_hides(box, host):
    mark = host.marker()
    result = await box.sandbox.exec(["sh", "-c", HIDING.format(mark=mark) + "sleep 0.3; exit 7"], timeout_s=20)
    assert result.exit_code == 7
    assert host.living(mark) == [], "dead when exec returns, not later"
    assert (box.upper / "left").read_text() == "written\n"


@pytest.mark.requirement("G-SBX-14.tree_kill", "G-SBX-14.exec_timeout")
async def test_a_time_out_returns_in_time_and_leaves_no_process(box, host):
    mark = host.marker()
    started = time.monotonic()
    result = await box.sandbox.exec(["sh", "-c", HIDING.format(mark=mark) + f"sleep {mark}"], timeout_s=1)
    assert time.monotonic() - started < 3
    assert result.timed_out
    assert result.exit_code is None
    assert host.living(mark) == []
    assert (box.upper / "left").read_text() == "written\n", "files stay"


@pytest.mark.requirement("G-SBX-14.processes")
async def test_a_fork_bomb_is_gone_with_its_sandbox(new_box, make_spec, host):
    """Within 1 s, and on a busy machine within some kills of a sandbox that does nothing."""
    box = await new_box(limits=Limits(memory_mb=256, pids=64, disk_mb=64))
    mark = host.marker()
    bomb = f"import os\nwhile True:\n try:\n  os.fork()\n except OSError:\n  pass\n#{mark}"
    running = asyncio.create_task(box.sandbox.exec(["python3", "-c", bomb], timeout_s=20))
    await host.came(mark, 30)
    bombed_s = await seconds(box.sandbox.kill())
    assert host.living(mark) == []
    with pytest.raises(SandboxLost):
        await running
    calm = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    await host.sleeping(mark)
    calm_s = await seconds(box.sandbox.kill())
    await asyncio.gather(calm, return_exceptions=True)
    assert bombed_s < max(1, 10 * calm_s)


async def seconds(work):
    """Returns how long something took."""
    started = time.monotonic()
    await work
    return time.monotonic() - started


async def test_kill_while_a_command_runs_makes_exec_say_that_the_sandbox_was_lost(box, host):
    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    await host.sleeping(mark)
    await box.sandbox.kill()
    with pytest.raises(SandboxLost) as lost:
        await running
    assert (lost.value.reason, lost.value.detail) == ("SANDBOX_LOST", "worker")
    assert host.living(mark) == []


@pytest.mark.forms(Form.ONE_SHOT)
async def test_a_second_command_needs_a_kill_between_and_then_sees_the_files_of_the_first(box):
    await box.sandbox.exec(["sh", "-c", "echo one > /app/file"], timeout_s=10)
    with pytest.raises(RuntimeError):
        await box.sandbox.exec(["true"], timeout_s=10)
    await box.sandbox.kill()
    result = await box.sandbox.exec(["cat", "/app/file"], timeout_s=10)
    assert result.stdout_tail == b"one\n"


async def test_a_destroyed_sandbox_takes_no_command_and_destroying_again_is_harmless(box):
    await box.sandbox.destroy()
    await box.sandbox.destroy()
    with pytest.raises(RuntimeError):
        await box.sandbox.exec(["true"], timeout_s=10)
    assert not box.upper.parent.exists()


@pytest.mark.requirement("G-SBX-14.tree_kill")
async def test_a_cancelled_exec_leaves_no_process_when_it_raises(box, host):
    mark = host.marker()
    running = asyncio.create_task(
        box.sandbox.exec(["sh", "-c", HIDING.format(mark=mark) + f"sleep {mark}"], timeout_s=20)
    )
    await host.sleeping(mark, 4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert host.living(mark) == []


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
async def test_a_cancellation_during_the_start_leaves_no_process(box, host, turns):
    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert host.living(mark) == []


async def test_kill_all_ends_every_sandbox_of_the_process(provider, new_box, host):
    boxes = [await new_box() for _ in range(3)]
    mark = host.marker()
    running = [asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20)) for box in boxes]
    await host.sleeping(mark, 3)
    await provider.kill_all()
    assert host.living(mark) == []
    assert {type(end) for end in await asyncio.gather(*running, return_exceptions=True)} == {SandboxLost}


async def test_a_watchdog_ends_every_sandbox_while_the_event_loop_stands_still(provider, new_box, host):
    boxes = [await new_box() for _ in range(2)]
    mark = host.marker()
    running = [asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20)) for box in boxes]
    await host.sleeping(mark, 2)
    watchdog = threading.Thread(target=provider.kill_now)
    watchdog.start()
    watchdog.join()
    deadline = time.monotonic() + 2
    while [pid for pid in host.living(mark) if host.name(pid) == "sleep"]:
        assert time.monotonic() < deadline
    assert {type(end) for end in await asyncio.gather(*running, return_exceptions=True)} == {SandboxLost}


@pytest.mark.parametrize("turns", [1, 3, 6])
async def test_a_watchdog_that_comes_during_the_start_lets_no_command_begin(provider, box, host, turns):
    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.to_thread(provider.kill_now)
    with pytest.raises(SandboxLost):
        await running
    assert host.living(mark) == []


async def test_a_sandbox_that_somebody_else_ends_is_lost_and_not_a_failure_of_its_command(box, host):
    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    await host.sleeping(mark)
    [outer] = host.started(box.upper.parent)
    os.kill(outer, signal.SIGKILL)
    with pytest.raises(SandboxLost) as lost:
        await running
    assert lost.value.detail == "engine"
    assert host.living(mark) == []


WORKER = """
import asyncio, sys
from pathlib import Path
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.interface import *

async def main():
    provider = BwrapProvider(Path(sys.argv[1]), host="here")
    name = SandboxName(sys.argv[3], 0, Purpose.AGENT)
    image = ImageRef("", (), "/", {})
    making = provider.create(SandboxSpec(name, "w", Form(sys.argv[4]), image, "/", {}, Limits()))
    print("creating", flush=True)
    sandbox = await making
    print("created", flush=True)
    mark = sys.argv[2]
    await sandbox.exec(["sh", "-c", f"setsid sleep {mark} & nohup sleep {mark} & sleep {mark}"], timeout_s=60)

asyncio.run(main())
"""


def start_worker(root, mark, trial, form):
    return subprocess.Popen([sys.executable, "-c", WORKER, root, mark, trial, form], stdout=subprocess.PIPE)


@pytest.mark.requirement("G-SBX-14.worker_killed")
async def test_a_killed_worker_leaves_no_process_and_another_one_removes_the_folder(
    provider, shared_folder, host, clock_now, sandbox_form
):
    mark, trial = host.marker(), f"trial_{host.marker()}"
    folder = str(shared_folder / "sandboxes" / "s" / f"{trial}-0-agent")
    with start_worker(shared_folder / "sandboxes", mark, trial, sandbox_form) as worker:
        try:
            await host.sleeping(mark, 3)
            helpers = {pid: host.name(pid) for pid in host.children(worker.pid)}
            entry = ["tollbar-entry"] if sandbox_form is Form.HELD else []
            assert sorted(helpers.values()) == [*entry, "tollbar-start"]
            assert await provider.reap([], now=clock_now) == [], "a living worker holds it"
        finally:
            worker.kill()
    await host.gone(mark)
    await host.gone(folder)
    await host.until(lambda: not [pid for pid, name in helpers.items() if host.name(pid) == name])
    assert await provider.reap([f"{trial}-0-agent"], now=clock_now) == [], "a live name is left alone"
    assert await provider.reap([], now=clock_now) == [f"{trial}-0-agent"]
    assert not (shared_folder / "sandboxes" / "s" / f"{trial}-0-agent").exists()
    assert host.cgroups(trial) == []


@pytest.mark.requirement("G-SBX-14.worker_killed")
@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.002, 0.003, 0.005, 0.008])
async def test_a_worker_killed_while_a_command_starts_leaves_no_process(
    provider, shared_folder, host, clock_now, sandbox_form, delay_s
):
    mark, trial = host.marker(), f"trial_{host.marker()}"
    with start_worker(shared_folder / "sandboxes", mark, trial, sandbox_form) as worker:
        await asyncio.to_thread(worker.stdout.readline)
        await asyncio.to_thread(worker.stdout.readline)
        await asyncio.sleep(delay_s)
        worker.kill()
    await host.gone(mark)
    await host.gone(str(shared_folder / "sandboxes" / "s" / f"{trial}-0-agent"))
    assert await provider.reap([], now=clock_now) == [f"{trial}-0-agent"]


async def test_empty_groups_of_dead_servers_go_even_when_their_data_directory_is_gone(provider, clock_now, host):
    groups = detect()
    if not groups.parents:
        pytest.skip("control groups cannot be used here")
    ended = await asyncio.create_subprocess_exec("true")
    dead = maker_of_groups(ended.pid) if host.name(ended.pid) else f"{ended.pid}.1"
    await ended.wait()
    marks = [host.marker() for _ in range(3)]
    makers = [dead, maker_of_groups(os.getppid()), dead]
    made = [
        groups.make(f"tollbar-feedbeef-{maker}-trial_{mark}-0-agent", Limits())
        for maker, mark in zip(makers, marks, strict=True)
    ]
    sleeping = await asyncio.create_subprocess_exec("sleep", marks[2])
    made[2].leaf().add(sleeping.pid)
    try:
        await provider.reap([], now=clock_now)
        assert [bool(host.cgroups(mark)) for mark in marks] == [False, True, True], "alive, or in use: left alone"
    finally:
        sleeping.kill()
        await sleeping.wait()
        for group in made:
            group.remove()


@pytest.mark.forms(Form.HELD)
@pytest.mark.parametrize("delay_s", [0.01, 0.02, 0.03, 0.04])
async def test_a_worker_killed_while_a_held_sandbox_starts_leaves_no_process(
    provider, shared_folder, host, clock_now, sandbox_form, delay_s
):
    trial = f"trial_{host.marker()}"
    folder = shared_folder / "sandboxes" / "s" / f"{trial}-0-agent"
    with start_worker(shared_folder / "sandboxes", host.marker(), trial, sandbox_form) as worker:
        await asyncio.to_thread(worker.stdout.readline)
        await host.until(folder.exists)
        await asyncio.sleep(delay_s)
        worker.kill()
    await host.gone(str(folder))
    await host.gone(trial)
    assert await provider.reap([], now=clock_now) == [f"{trial}-0-agent"]


def drive(coroutine):
    """Takes the first step of a coroutine without an event loop."""
    with contextlib.closing(coroutine):
        coroutine.send(None)


@pytest.mark.requirement("G-SBX-14.thread")
async def test_a_sandbox_is_started_by_the_event_loops_thread_only(host):
    mark = host.marker()
    with pytest.raises(RuntimeError):
        chain = Chain("/bin/sleep", ["sleep", mark], b"", (), 64, 1 << 20)
        await asyncio.to_thread(drive, start_tree(Starter(identify(64000)), chain, identify(64000)))
    assert host.living(mark) == []


@pytest.mark.requirement("G-SBX-14.thread")
async def test_a_sandbox_lives_on_when_an_unrelated_thread_ends(box, host):
    mark = host.marker()
    threads = [threading.Thread(target=time.sleep, args=(0.05,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    running = asyncio.create_task(box.sandbox.exec(["sh", "-c", f"sleep 0.3; echo lived # {mark}"], timeout_s=20))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert (await running).stdout_tail == b"lived\n"


async def test_thirty_sandboxes_leave_nothing_behind(provider, make_spec, shared_folder, host):
    warm = await provider.create(make_spec())
    await warm.exec(["true"], timeout_s=10)
    await warm.destroy()
    before = host.traces(shared_folder)
    for _ in range(30):
        sandbox = await provider.create(make_spec(directories=["/logs/agent"]))
        result = await sandbox.exec(["sh", "-c", "setsid sleep 60 & echo x > /file"], timeout_s=10)
        assert result.exit_code == 0
        await sandbox.destroy()
    await host.until(lambda: threading.active_count() <= before["threads"] + 8)
    after = host.traces(shared_folder)
    assert {key: value for key, value in after.items() if key != "threads"} == {
        key: value for key, value in before.items() if key != "threads"
    }


async def test_many_sandboxes_at_once_do_not_mix(new_box):
    boxes = [await new_box() for _ in range(12)]
    results = await asyncio.gather(
        *(
            box.sandbox.exec(["sh", "-c", f"echo {number} > /n; cat /n"], timeout_s=20)
            for number, box in enumerate(boxes)
        )
    )
    assert [int(result.stdout_tail) for result in results] == list(range(12))
    assert [int((box.upper / "n").read_text()) for box in boxes] == list(range(12))


def test_the_programs_of_the_chain_are_named_by_absolute_paths():
    from tollbar.sandboxes.preflight import HostView, find_tools

    assert all(Path(path).is_absolute() for path in find_tools(HostView()).values())


@pytest.mark.parametrize("turns", range(12))
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(provider, make_spec, host, turns):
    """Each turn of the loop is a moment between two things that a start does."""
    sandbox = await provider.create(make_spec())
    folder = sandbox.setting.root.upper.parent
    await sandbox.exec(["true"], timeout_s=20)
    await sandbox.kill()
    before = len(host.descriptors())
    running = asyncio.create_task(sandbox.exec(["sleep", "60"], timeout_s=20))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await sandbox.kill()
    await host.gone(f"{folder}/")
    await host.until(lambda: len(host.descriptors()) <= before)
    await sandbox.destroy()


@pytest.mark.forms(Form.ONE_SHOT)
async def test_a_starting_helper_that_dies_takes_its_sandboxes_along_and_the_next_start_has_a_new_one(
    provider, make_spec, host
):
    mark = host.marker()
    first, second = await provider.create(make_spec()), await provider.create(make_spec())
    running = asyncio.create_task(first.exec(["sleep", mark], timeout_s=20))
    await host.sleeping(mark)
    [outer] = host.started(first.setting.root.upper.parent)
    os.kill(host.parent(outer), signal.SIGKILL)
    with pytest.raises(SandboxLost):
        await running
    assert host.living(mark) == []
    assert (await second.exec(["echo", "next"], timeout_s=9)).stdout_tail == b"next\n"
    for sandbox in (first, second):
        await sandbox.destroy()
