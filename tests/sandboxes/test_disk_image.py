"""Disk limits that the kernel holds: bytes and inodes end at the limit, and nothing of the image is left."""

import os

import pytest

from tollbar.sandboxes.interface import ArtifactPath, Form, Limits, SealLimits

LIMITS = Limits(memory_mb=256, pids=64, disk_mb=16)
FILL = """
import os
count = 0
try:
    while True:
        with open(f"/app/{count}", "wb") as file:
            file.write(b"x" * 100_000)
        count += 1
except OSError as error:
    print(error.errno, count)
"""
NAMES = """
import os
count = 0
try:
    while count < 20_000:
        os.mkdir(f"/app/{count}")
        count += 1
except OSError as error:
    print(error.errno, count)
"""


@pytest.fixture
async def bounded(provider, new_box):
    """Makes sandboxes whose disk the kernel bounds; skips where that cannot be."""
    await provider.preflight()
    if provider.capabilities().limits["disk"] != "kernel":
        pytest.skip("loop devices cannot be mounted here")

    async def make(**options):
        return await new_box(disk_level="kernel", **{"limits": LIMITS, **options})

    return make


@pytest.mark.requirement("G-SBX-14.disk")
async def test_writing_ends_at_the_limit_with_the_error_of_a_full_disk(bounded):
    box = await bounded()
    number, count = map(int, (await box.python(FILL)).split())
    assert number == 28
    assert 12 < count * 0.1 < 16
    image = box.upper.parents[1] / "disk.img"
    assert image.stat().st_blocks * 512 <= 16 << 20
    assert box.sandbox.handle.data["levels"]["disk"] == "kernel"
    assert (await box.sh("rm /app/0 && echo more > /app/more && echo written")).stdout_tail == b"written\n"


async def test_names_end_at_the_limit_too(bounded):
    number, count = map(int, (await (await bounded()).python(NAMES)).split())
    assert number == 28
    assert count < 16 * 64, "one inode per 16 KiB"


async def test_files_are_put_in_read_and_sealed_as_without_an_image(bounded, tmp_path):
    box = await bounded(directories=["/logs/agent"])
    (tmp_path / "test.sh").write_text("#!/bin/sh\necho graded\n")
    (tmp_path / "test.sh").chmod(0o755)
    await box.sh("mkdir -p /tests/old; echo log > /logs/agent/log.txt; id -u > /who")
    await box.sandbox.kill()
    await box.sandbox.put(tmp_path, "/tests")
    assert (await box.sh("ls /tests; /tests/test.sh")).stdout_tail == b"test.sh\ngraded\n"
    await box.sandbox.kill()
    assert await box.sandbox.read_file("/who", 10) == b"0\n"
    seal = await box.sandbox.seal([ArtifactPath("/logs")], SealLimits(), lambda descriptor, size: "0" * 64)
    assert [entry.status for entry in seal.entries] == ["ok"]


async def test_nothing_of_an_image_is_left_when_its_sandbox_goes(bounded, shared_folder, host):
    box = await bounded()
    await box.sh("echo x > /file")
    await box.sandbox.destroy()
    before = host.traces(shared_folder)
    for _ in range(3):
        again = await bounded()
        await again.python("import os\nos.makedirs('/' + '/'.join('d' * 50 for _ in range(60)))")
        await again.sandbox.destroy()
        assert not again.upper.parents[1].exists()
    after = host.traces(shared_folder)
    assert {**after, "threads": 0} == {**before, "threads": 0}


@pytest.mark.forms(Form.HELD)
async def test_an_image_that_a_dead_process_left_mounted_is_reaped(bounded, provider, shared_folder, clock_now):
    box = await bounded()
    await box.sh("echo x > /file")
    await box.sandbox.kill()
    name = str(box.sandbox.spec.name)
    registry = await provider._registered()
    registry._claims.pop(name).let_go()
    provider._living.pop(name)
    assert box.upper.parent.is_mount()
    assert await provider.reap([], now=clock_now) == [name]
    assert not box.upper.parents[1].exists()


@pytest.mark.forms(Form.ONE_SHOT)
async def test_a_machine_without_loop_devices_says_so_before_anything_starts(watched_provider, make_spec):
    with pytest.raises(ValueError, match="disk level kernel"):
        await watched_provider.create(make_spec(disk_level="kernel"))
    assert (await watched_provider.create(make_spec())).handle.data["levels"]["disk"] == "watched"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_machine_that_can_mount_says_so(shared_folder):
    from tollbar.sandboxes.disk_image import find_images

    found = find_images(shared_folder / "d")
    assert found is None or found.mkfs.startswith("/")
