"""Files: layers below, what tenants plant above, what is put in from outside, and that everything goes at the end."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.folders import remove_tree
from tollbar.sandboxes.interface import ArtifactPath, Purpose, SandboxName, SealLimits

ROOT = os.geteuid() == 0
TENANT = 64000 if ROOT else os.geteuid()


@pytest.fixture
def tests_folder(tmp_path):
    """A folder that the server would put in."""
    folder = tmp_path / "tests"
    (folder / "deep").mkdir(parents=True)
    (folder / "test.sh").write_text("#!/bin/sh\necho graded\n")
    (folder / "test.sh").chmod(0o755)
    (folder / "deep/data.txt").write_text("data\n")
    (folder / "deep/link").symlink_to("data.txt")
    return folder


async def test_directories_of_the_spec_are_there_and_writable(new_box):
    box = await new_box(directories=["/logs/agent", "/logs/verifier", "/tmp/deep/er"], workdir="/work/here")
    result = await box.sh("touch /logs/agent/a /logs/verifier/b /tmp/deep/er/c && pwd && stat -c %a /tmp /logs")
    assert result.stdout_tail == b"/work/here\n1777\n755\n", "making a folder changes none of the base"


async def test_layers_cover_each_other_from_the_bottom_up_and_inputs_cover_layers(provider, new_box, host):
    def layer(**files):
        def fill(folder):
            for name, text in files.items():
                (folder / name).write_text(text)

        return fill

    mark = host.marker()
    low = await provider.layer(f"low-{mark}", layer(a="low", b="low", c="low"))
    high = await provider.layer(f"high-{mark}", layer(b="high", c="high"))
    name = SandboxName(f"trial_{mark}", 0, Purpose.VERIFY)
    scratch = await provider.scratch_layer(name, layer(c="scratch"))
    box = await new_box(name=name, layers=[low, high], inputs=[scratch, low, scratch])
    assert (await box.sh("cat /a /b /c")).stdout_tail == b"lowlowscratch"
    assert (await box.sh("echo changed > /a; rm /b; cat /a")).stdout_tail == b"changed\n"
    assert (low / "a").read_text() == "low"
    assert stat.S_ISCHR((box.upper / "b").lstat().st_mode), "a deletion is a whiteout"
    await box.sandbox.destroy()
    assert not scratch.exists()
    assert low.exists()


async def test_forty_layers_fit_and_too_many_are_refused_before_anything_starts(provider, new_box, make_spec, host):
    def layer(number):
        return lambda folder: (folder / f"file{number}").write_text("x")

    mark = host.marker()
    layers = [await provider.layer(f"{mark}-{number}", layer(number)) for number in range(40)]
    box = await new_box(layers=layers)
    assert (await box.sh("ls / | grep -c file")).stdout_tail == b"40\n"
    many = [layers[0].with_name(f"{number:024d}") for number in range(80)]
    with pytest.raises(EnvironmentStartFailed, match="layers do not fit"):
        await provider.create(make_spec(layers=many))


async def test_a_layer_that_is_gone_is_said(provider, make_spec, open_folder):
    with pytest.raises(EnvironmentStartFailed, match="the-layer is gone"):
        await provider.create(make_spec(layers=[open_folder / "the-layer"]))


async def test_content_that_the_server_fills_in_belongs_to_the_tenant(provider, new_box, host):
    def fill(folder):
        (folder / "d").mkdir(mode=0o700)
        (folder / "d/f").write_text("x")
        (folder / "l").symlink_to("/d/f")

    layer = await provider.layer(host.marker(), fill)
    assert {path.lstat().st_uid for path in (layer, layer / "d", layer / "d/f", layer / "l")} == {TENANT}
    box = await new_box(layers=[layer])
    assert (await box.sh("echo more >> /d/f; cat /l")).stdout_tail == b"xmore\n"


async def test_what_is_put_in_replaces_everything_that_was_there(box, tests_folder):
    await box.sh("mkdir -p /tests/deep && echo planted > /tests/conftest.py && echo planted > /tests/deep/data.txt")
    await box.sandbox.kill()
    await box.sandbox.put(tests_folder, "/tests")
    result = await box.sh("cd /tests && find . | sort && cat deep/data.txt && ./test.sh && cat deep/link && touch new")
    assert result.stdout_tail == b".\n./deep\n./deep/data.txt\n./deep/link\n./test.sh\ndata\ngraded\ndata\n"
    assert (box.upper / "tests/test.sh").stat().st_uid == TENANT


async def test_nothing_of_lower_layers_shows_through_what_is_put_in(provider, new_box, tests_folder, host):
    def fill(folder):
        (folder / "tests").mkdir()
        (folder / "tests/from-image").write_text("x")

    layer = await provider.layer(host.marker(), fill)
    box = await new_box(layers=[layer])
    assert (await box.sh("ls /tests")).stdout_tail == b"from-image\n"
    await box.sandbox.kill()
    await box.sandbox.put(tests_folder, "/tests")
    assert (await box.sh("ls /tests")).stdout_tail == b"deep\ntest.sh\n"


PLANTED = {
    "a link to a folder of the host": "ln -s {outside} /tests",
    "a link to a folder inside": "mkdir /mine && ln -s /mine /tests",
    "a link to itself": "ln -s /tests /tests",
    "a file": "echo x > /tests",
    "a pipe": "mkfifo /tests",
    "a folder that nobody may enter": "mkdir -p /tests/deep && chmod 000 /tests/deep /tests",
    "a folder with a link in place of a file": "mkdir /tests && ln -s {outside}/victim /tests/test.sh",
    "a folder with a link in place of a folder": "mkdir /tests && ln -s {outside} /tests/deep",
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
async def test_putting_in_never_follows_what_the_tenant_planted(box, tests_folder, open_folder, planted):
    open_folder.chmod(0o777)
    (open_folder / "victim").write_text("untouched")
    before = sorted(path.name for path in open_folder.iterdir())
    await box.sh(planted.format(outside=open_folder))
    await box.sandbox.kill()
    await box.sandbox.put(tests_folder, "/tests")
    assert (await box.sh("/tests/test.sh")).stdout_tail == b"graded\n"
    assert sorted(path.name for path in open_folder.iterdir()) == before
    assert (open_folder / "victim").read_text() == "untouched"


@pytest.mark.parametrize("planted", ["ln -s {outside} /logs", "echo x > /logs", "rm -rf /logs", "chmod 000 /logs"])
async def test_a_link_above_the_place_is_replaced_too(new_box, tests_folder, open_folder, planted):
    open_folder.chmod(0o777)
    box = await new_box(directories=["/logs/verifier"])
    await box.sh("echo 1 > /logs/verifier/reward.txt; rm -rf /logs/verifier; " + planted.format(outside=open_folder))
    await box.sandbox.kill()
    await box.sandbox.put(tests_folder, "/logs/verifier")
    assert (await box.sh("ls /logs/verifier")).stdout_tail == b"deep\ntest.sh\n"
    assert list(open_folder.iterdir()) == []


async def test_a_folder_that_the_tenant_removed_does_not_come_back_from_below(provider, new_box, tests_folder, host):
    def fill(folder):
        (folder / "data").mkdir()
        (folder / "data/old").write_text("x")

    layer = await provider.layer(host.marker(), fill)
    box = await new_box(layers=[layer])
    await box.sh("rm -rf /data")
    await box.sandbox.kill()
    await box.sandbox.put(tests_folder, "/data/tests")
    assert (await box.sh("ls /data")).stdout_tail == b"tests\n"


@pytest.mark.parametrize("dest", ["relative", "/", "/a/../b", "", "/usr/local/tests", "/proc/x", "/dev/x"])
async def test_a_place_that_cannot_be_written_is_refused(box, tests_folder, dest):
    with pytest.raises(ValueError, match=r"not an absolute path|read-only"):
        await box.sandbox.put(tests_folder, dest)


@pytest.mark.requirement("G-SBX-14.overlay")
async def test_destroying_removes_odd_names_closed_folders_and_deep_trees(box, shared_folder):
    result = await box.python(r"""
        import os
        os.mkdir("/odd")
        os.chdir("/odd")
        for name in (b"new\nline", b"\xff\xfe", b"n" * 255, b" ", b"-rf", b"*", b".gone-", b"\x1b[31m"):
            open(name, "w").close()
        for name in ("closed", "write-only", "sticky"):
            os.makedirs(f"{name}/deep/er")
            open(f"{name}/deep/file", "w").close()
        os.mkfifo("pipe")
        os.symlink("/etc/passwd", "link")
        os.link("link", "hard")
        for number in range(3000):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        os.chmod("/odd/closed/deep/file", 0)
        os.chmod("/odd/closed/deep", 0)
        os.chmod("/odd/closed", 0)
        os.chmod("/odd/write-only", 0o200)
        os.chmod("/odd/sticky", 0o1000)
        print("made")
    """)
    assert result == "made\n"
    folder = box.upper.parent
    await box.sandbox.destroy()
    assert not folder.exists()
    assert [path for path in (shared_folder / "sandboxes/s").iterdir() if folder.name in path.name] == []


def test_removing_a_tree_does_not_follow_links(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("untouched")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "link").symlink_to(victim)
    (tree / "deep/link").symlink_to(victim / "file")
    remove_tree(tree)
    remove_tree(tmp_path / "missing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["victim"]
    assert (victim / "file").read_text() == "untouched"


async def test_files_are_not_touched_while_a_command_runs(box, tests_folder, host):
    import asyncio

    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    await host.sleeping(mark)
    with pytest.raises(RuntimeError):
        await box.sandbox.put(tests_folder, "/tests")
    await box.sandbox.kill()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_new_sandbox_of_a_name_replaces_the_older_one(provider, make_spec, new_box):
    first = await new_box()
    await first.sh("echo old > /old")
    spec = make_spec()
    again = type(spec)(**{**vars(spec), "name": SandboxName(_trial(first), 0, Purpose.AGENT)})
    second = await provider.create(again)
    assert (await second.exec(["ls", "/old"], timeout_s=10)).exit_code == 2
    await second.destroy()
    await first.sandbox.destroy()


def _trial(box) -> str:
    return box.sandbox.handle.name.removesuffix("-0-agent")


async def test_a_name_that_another_process_holds_is_refused(provider, make_spec, shared_folder):
    from tollbar.sandboxes.claims import claim

    spec = make_spec()
    held = claim(shared_folder / "sandboxes/s", str(spec.name), TENANT)
    try:
        with pytest.raises(EnvironmentStartFailed, match="Another process"):
            await provider.create(spec)
    finally:
        held.remove()
    await (await provider.create(spec)).destroy()


async def test_layers_of_a_sandbox_that_was_never_created_go_after_a_while(provider, make_spec, clock_now):
    from datetime import timedelta

    name = make_spec().name
    layer = await provider.scratch_layer(name, lambda folder: (folder / "x").write_text("x"))
    assert await provider.reap([], now=clock_now) == []
    assert layer.exists()
    later = clock_now + timedelta(seconds=700)
    assert await provider.reap([str(name)], now=later) == []
    assert await provider.reap([], now=later) == [str(name)]
    assert not layer.exists()


async def test_a_filling_that_fails_leaves_no_sandbox_behind(provider, make_spec, shared_folder):
    def fail(folder: Path):
        (folder / "half").write_text("x")
        msg = "no bytes"
        raise OSError(msg)

    spec = make_spec()
    with pytest.raises(OSError, match="no bytes"):
        await provider.scratch_layer(spec.name, fail)
    await (await provider.create(spec)).destroy()
    assert not (shared_folder / "sandboxes/s" / str(spec.name)).exists()


async def test_sealing_reads_what_the_overlay_would_show(provider, new_box, host):
    def fill(folder):
        (folder / "app").mkdir()
        for name in ("kept", "changed", "removed"):
            (folder / "app" / name).write_text(f"{name} below")

    stored = {}

    def store(descriptor, size):
        data = os.read(descriptor, size)
        digest = hashlib.sha256(data).hexdigest()
        stored[digest] = data
        return digest

    layer = await provider.layer(host.marker(), fill)
    box = await new_box(layers=[layer])
    await box.sh("echo new > changed; rm removed; mkdir logs; echo log > logs/agent.txt; ln -s /etc/passwd out")
    await box.sandbox.kill()
    seal = await box.sandbox.seal([ArtifactPath("/app"), ArtifactPath("/none")], SealLimits(), store)
    whole, missing = seal.entries
    kept = {Path(member.path).name: stored[member.sha256] for member in whole.members if member.sha256}
    assert kept == {"kept": b"kept below", "changed": b"new\n", "agent.txt": b"log\n"}
    assert missing.status == "missing"
    assert [refusal.reason for refusal in seal.refusals] == ["LINK_ABSOLUTE"]
    [relative] = (await box.sandbox.seal([ArtifactPath("logs")], SealLimits(), store)).entries
    assert relative.source == "/app/logs"
    assert relative.status == "ok"
    assert await box.sandbox.read_file("/app/changed", 3) == b"new"
    assert await box.sandbox.read_file("kept", 100) == b"kept below"
    assert await box.sandbox.read_file("/app/out", 100) is None
    assert await box.sandbox.read_file("/app/removed", 100) is None


@pytest.mark.requirement("G-SBX-14.build_failed")
async def test_a_step_of_a_build_becomes_a_layer_in_which_deletions_stay_deleted(provider, new_box, host):
    low = await provider.layer(host.marker(), lambda folder: (folder / "removed").write_text("x"))
    ground = await provider._prepared()

    async def make(folder):
        result = await provider.run_step(
            folder,
            layers=[low],
            argv=["sh", "-c", "rm /removed; pwd > /where; echo $NAME > /name"],
            env={"NAME": "built"},
            workdir="/work",
            timeout_s=20,
        )
        assert result.exit_code == 0

    layer = await ground.layers.ensure_with(f"step-{host.marker()}", make)
    box = await new_box(layers=[low, layer])
    assert (await box.sh("cat /where /name; ls /removed")).stdout_tail == b"/work\nbuilt\n"


async def test_a_step_that_fails_moves_nothing(provider, open_folder):
    (open_folder / "target").mkdir()
    result = await provider.run_step(
        open_folder / "target",
        layers=[],
        argv=["sh", "-c", "echo half > /half; echo why >&2; exit 3"],
        env={},
        workdir="/",
        timeout_s=20,
    )
    assert (result.exit_code, result.stderr_tail) == (3, b"why\n")
    assert list((open_folder / "target").iterdir()) == []
