"""Kept sandboxes: their files stay for a while, somebody can enter them, and then they go."""

import subprocess
import sys
from datetime import timedelta

import pytest

from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import Form, Purpose, SandboxName

WORKER = """
import asyncio, sys
from datetime import datetime, timedelta, UTC
from pathlib import Path
from tollbar.kit.clock import SystemClock
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.interface import *

async def main():
    provider = BwrapProvider(Path(sys.argv[1]), host="here")
    name = SandboxName(sys.argv[2], 0, Purpose.AGENT)
    layer = await provider.layer("kept-" + sys.argv[2], lambda folder: (folder / "low").write_text("low"))
    limits = Limits(memory_mb=256, pids=64, disk_mb=64)
    spec = SandboxSpec(name, "other-worker", Form(sys.argv[3]), ImageRef("", (layer,), "/app", {}), "/app",
                       {"KEY": "s3cret"}, limits)
    sandbox = await provider.create(spec)
    await sandbox.exec(["sh", "-c", "echo left > /app/file; rm -f /nothing"], timeout_s=20)
    await provider.keep(name, SystemClock().now() + timedelta(hours=1))
    print("kept", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
async def other_provider(ready, shared_folder):
    """Another worker's view of the same folders."""
    provider = BwrapProvider(shared_folder / "sandboxes", host="here")
    yield provider
    await provider.kill_all()


async def test_a_kept_sandbox_loses_its_processes_and_keeps_its_files_until_its_time(
    provider, box, host, clock_now, sandbox_form
):
    name, mark = box.sandbox.spec.name, host.marker()
    await box.sandbox.exec(["sh", "-c", f"echo left > /file; setsid sleep {mark} & true"], timeout_s=9)
    await provider.keep(name, clock_now + timedelta(hours=1))
    assert host.living(mark) == []
    assert await provider.reap([], now=clock_now) == []
    [view] = [
        view for view in await provider.list_sandboxes(now=clock_now + timedelta(seconds=90)) if view.name == str(name)
    ]
    assert (view.owner, view.form, view.living) == ("worker-1", sandbox_form, True)
    assert view.kept_until == clock_now + timedelta(hours=1)
    assert 89 < view.age_s < 120
    entered = await provider.attach(name)
    assert (await entered.exec(["cat", "/file"], timeout_s=9)).stdout_tail == b"left\n"
    assert (await entered.exec(["pwd"], timeout_s=9)).stdout_tail == b"/app\n", "as often as one likes"
    over = clock_now + timedelta(hours=2)
    assert await provider.reap([str(name)], now=over) == [], "somebody still names it"
    assert await provider.reap([], now=over) == [str(name)]
    assert not box.upper.parent.exists()
    assert host.cgroups(str(name)) == []
    assert str(name) not in [view.name for view in await provider.list_sandboxes(now=over)]


def start_worker(*words):
    return subprocess.Popen([sys.executable, "-c", WORKER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_a_kept_sandbox_of_a_dead_worker_is_entered_by_another_one_and_goes_in_time(
    provider, other_provider, shared_folder, host, clock_now, sandbox_form
):
    trial = f"trial_{host.marker()}"
    name = SandboxName(trial, 0, Purpose.AGENT)
    folder = shared_folder / "sandboxes" / "s" / str(name)
    with start_worker(shared_folder / "sandboxes", trial, sandbox_form) as worker:
        try:
            assert worker.stdout.readline() == b"kept\n"
            with pytest.raises(SandboxLost):
                await provider.attach(name)
            assert await provider.reap([], now=clock_now + timedelta(hours=2)) == [], "a living worker holds it"
        finally:
            worker.kill()
    assert "s3cret" not in (folder / "kept").read_text(), "an environment may hold secrets"
    assert await provider.reap([], now=clock_now) == []
    [view] = [view for view in await provider.list_sandboxes(now=clock_now) if view.name == str(name)]
    assert (view.owner, view.form, view.living) == ("other-worker", sandbox_form, False)
    entered = await provider.attach(name)
    assert (await entered.exec(["cat", "/app/file", "/low"], timeout_s=9)).stdout_tail == b"left\nlow"
    assert await other_provider.reap([], now=clock_now + timedelta(hours=2)) == [], "now this one holds it"
    assert await provider.reap([], now=clock_now + timedelta(hours=2)) == [str(name)]
    assert not folder.exists()


@pytest.mark.forms(Form.HELD)
async def test_a_living_sandbox_is_found_and_an_unknown_one_is_not(provider, box, make_spec, clock_now):
    assert await provider.attach(box.sandbox.spec.name) is box.sandbox
    unknown = make_spec().name
    with pytest.raises(SandboxLost):
        await provider.attach(unknown)
    with pytest.raises(SandboxLost):
        await provider.keep(unknown, clock_now)


@pytest.mark.forms(Form.ONE_SHOT)
async def test_the_list_has_the_oldest_first(provider, new_box, clock_now):
    boxes = [await new_box() for _ in range(3)]
    names = [str(box.sandbox.spec.name) for box in boxes]
    listed = [
        view for view in await provider.list_sandboxes(now=clock_now + timedelta(seconds=1)) if view.name in names
    ]
    assert [view.name for view in listed] == names
    assert {view.kept_until for view in listed} == {None}
