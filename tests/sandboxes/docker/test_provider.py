"""The Docker backend: images, inputs, names and labels, and what is removed when."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from datetime import UTC, datetime, timedelta

import pytest
from tests.sandboxes.docker.looking import IMAGE, containers, docker, gone, inspect

from tollbar.sandboxes.docker.engine import Engine
from tollbar.sandboxes.docker.provider import DockerProvider
from tollbar.sandboxes.errors import EnvironmentBuildFailed, SandboxLost
from tollbar.sandboxes.interface import ArtifactPath, ImageSpec, Purpose, SandboxName, SealLimits
from tollbar.sandboxes.seal import read_manifest, restore

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def context(folder, *lines, **files):
    folder.mkdir()
    (folder / "Dockerfile").write_text("\n".join([f"FROM {IMAGE}", *lines]) + "\n")
    for name, text in files.items():
        (folder / name).write_text(text)
    return ImageSpec(folder)


async def test_an_engine_that_answers_has_no_problem_and_another_one_says_what_to_do(provider, tmp_path):
    away = DockerProvider(tmp_path / "other", host="here", engine=Engine(f"unix://{tmp_path}/none.sock"))
    [problem] = await away.preflight()
    await away.close()

    assert await provider.preflight() == []
    assert problem.code == "DOCKER_ENGINE"
    assert "DOCKER_HOST" in problem.fix


async def test_a_runtime_that_the_engine_lacks_is_named_before_anything_runs(provider, tmp_path):
    lacking = DockerProvider(
        tmp_path / "other", host="here", engine=Engine(os.environ["DOCKER_HOST"]), runtime="no-such-runtime"
    )
    [problem] = await lacking.preflight()
    await lacking.close()
    assert (problem.code, "no-such-runtime" in problem.message) == ("DOCKER_RUNTIME", True)


async def test_a_folder_that_is_laid_over_another_keeps_what_has_another_name(provider, create, sh, tmp_path):
    (tmp_path / "over").mkdir()
    (tmp_path / "over" / "new.txt").write_text("new")
    (tmp_path / "over" / "link").write_text("mine")
    sandbox = await create()
    await sh(sandbox, "mkdir -p /tests; echo old > /tests/old.txt; ln -s /etc/passwd /tests/link")
    await sandbox.kill()
    await sandbox.add(tmp_path / "over", "/tests")
    result = await sh(sandbox, "cat /tests/old.txt /tests/new.txt /tests/link; head -c 4 /etc/passwd")
    assert result.stdout_tail == b"old\nnewmineroot"


async def test_a_dockerfile_is_built_once_per_content_whoever_asks(provider, create, sh, tmp_path):
    spec = context(tmp_path / "one", "WORKDIR /work", "ENV A=1", "COPY data /work/", "RUN date +%N > stamp", data="x")
    same = context(tmp_path / "two", "WORKDIR /work", "ENV A=1", "COPY data /work/", "RUN date +%N > stamp", data="x")
    other = context(tmp_path / "three", "WORKDIR /work", "COPY data /work/", data="y")

    images = await asyncio.gather(*(provider.build(each) for each in (spec, same, spec, other)))

    assert images[0] == images[1] == images[2] != images[3]
    assert (images[0].workdir, images[0].env["A"]) == ("/work", "1")
    result = await sh(await create(image=images[0], workdir="/work", env=dict(images[0].env)), "cat data; echo $A")
    assert result.stdout_tail == b"x1\n"


async def test_a_build_that_fails_says_what_the_engine_said(provider, tmp_path):
    with pytest.raises(EnvironmentBuildFailed, match="no-such-word") as caught:
        await provider.build(context(tmp_path / "one", "RUN no-such-word"))
    assert caught.value.detail == "build"


async def test_a_build_that_takes_too_long_is_ended(provider, tmp_path):
    spec = context(tmp_path / "one", "RUN sleep 987656")
    with pytest.raises(EnvironmentBuildFailed) as caught:
        await provider.build(ImageSpec(spec.context, timeout_s=2.0))
    assert caught.value.detail == "timeout"


async def test_an_image_that_nobody_has_fails_as_a_pull(provider):
    with pytest.raises(EnvironmentBuildFailed) as caught:
        await provider.build(ImageSpec(None, docker_image="tollbar/no-such-image:none", timeout_s=30.0))
    assert caught.value.detail == "pull"


async def test_inputs_lie_above_the_image_and_hide_what_they_replace(provider, create, sh, tmp_path):
    image = await provider.build(
        context(tmp_path / "one", "RUN mkdir -p /app/out && echo old > /app/out/old && echo old > /app/gone")
    )

    def fill(folder):
        (folder / "app" / "out").mkdir(parents=True)
        (folder / "app" / "out" / "new").write_text("new")
        os.setxattr(folder / "app" / "out", "user.overlay.opaque", b"y")
        os.mknod(folder / "app" / "gone", stat.S_IFCHR | 0o600, os.makedev(0, 0))

    layer = await provider.layer("key", fill)
    sandbox = await create(image=image, inputs=(layer,))

    assert (await sh(sandbox, "ls /app /app/out")).stdout_tail == b"/app:\nout\n\n/app/out:\nnew\n"


async def test_what_was_sealed_in_one_sandbox_stands_in_the_next_one(provider, create, sh, blobs):
    first = await create()
    await sh(first, "mkdir -p out/deep; echo work > out/deep/file; chmod 755 out/deep/file; ln -s deep/file out/link")
    await first.kill()
    seal = await first.seal([ArtifactPath("/app/out")], SealLimits(), blobs.put)

    name = SandboxName("trial_next", 1, Purpose.VERIFY)
    copy = await provider.scratch_layer(
        name,
        lambda folder: restore(
            read_manifest(seal.manifest),
            lambda sha256, descriptor: os.write(descriptor, blobs.content[sha256]) and None,
            folder,
        ),
    )
    second = await create(name=name, inputs=(copy,))

    result = await sh(second, "cat /app/out/link; test -x /app/out/deep/file && echo program")
    assert result.stdout_tail == b"work\nprogram\n"
    await second.destroy()
    assert not copy.exists()


async def test_a_new_try_removes_what_the_older_one_left(provider, create, sh, tmp_path):
    name = SandboxName("trial_same", 1, Purpose.AGENT)
    first = await create(name=name)
    await sh(first, "echo old > file; sleep 987657 > /dev/null 2>&1 &")
    second = await create(name=name)

    assert (await sh(second, "test -e file")).exit_code == 1
    assert await gone("sleep 987657")
    assert len(containers(tmp_path / "data")) == 1


async def test_a_container_is_labelled_by_what_it_is_for(create):
    labels = inspect((await create(name=SandboxName("trial_labelled", 3, Purpose.VERIFY))).container)["Config"][
        "Labels"
    ]

    assert labels["tollbar.trial"] == "trial_labelled"
    assert (labels["tollbar.try_no"], labels["tollbar.purpose"], labels["tollbar.owner"]) == ("3", "verify", "owner-1")


async def test_destroying_leaves_nothing_and_may_be_repeated(create, sh, tmp_path):
    sandbox = await create()
    await sh(sandbox, "true")
    await sandbox.destroy()
    await sandbox.destroy()

    assert containers(tmp_path / "data") == []
    assert list((tmp_path / "data" / "sandboxes").iterdir()) == []


async def test_a_kept_sandbox_can_be_entered_until_its_time_is_over(provider, create, sh, tmp_path):
    name = SandboxName("trial_kept", 1, Purpose.AGENT)
    sandbox = await create(name=name)
    await sh(sandbox, "echo evidence > file")
    await provider.keep(name, NOW + timedelta(hours=1))

    assert await provider.reap((), now=NOW) == []
    entered = await provider.attach(name)
    assert (await sh(entered, "cat file")).stdout_tail == b"evidence\n"
    assert await provider.reap((), now=NOW + timedelta(hours=2)) == [str(name)]
    assert containers(tmp_path / "data") == []
    with pytest.raises(SandboxLost):
        await provider.attach(name)


_CHILD = """
import asyncio, os, sys
from pathlib import Path
from tollbar.sandboxes.docker.engine import Engine
from tollbar.sandboxes.docker.provider import DockerProvider
from tollbar.sandboxes.interface import Form, ImageSpec, Limits, Purpose, SandboxName, SandboxSpec

async def main(root, image_name):
    provider = DockerProvider(Path(root), host="here", engine=Engine())
    image = await provider.build(ImageSpec(None, docker_image=image_name))
    sandboxes = []
    for number in range(3):
        name = SandboxName(f"trial_lost_{number}", 1, Purpose.AGENT)
        spec = SandboxSpec(name, "lost", Form.HELD, image, "/app", dict(image.env), Limits(memory_mb=64, pids=64))
        sandboxes.append(await provider.create(spec))
    runs = [asyncio.create_task(s.exec(["sh", "-c", "sleep 987658"], timeout_s=600)) for s in sandboxes]
    await asyncio.sleep(1)
    print("up", flush=True)
    await asyncio.gather(*runs)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.requirement("G-EVAL-18.32")
async def test_what_a_killed_process_left_is_reaped_and_what_lives_and_what_is_anothers_is_not(
    provider, create, sh, tmp_path
):
    mine = await create()
    await sh(mine, "echo mine > file")
    stranger = DockerProvider(tmp_path / "stranger", host="here", engine=Engine(os.environ["DOCKER_HOST"]))
    words = (sys.executable, "-c", _CHILD, str(tmp_path / "data"), IMAGE)
    child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"up\n"
    assert await provider.reap((), now=NOW) == []
    child.kill()
    await child.wait()

    assert await stranger.reap((), now=NOW) == []
    reaped = await provider.reap((), now=NOW)
    await stranger.close()

    assert reaped == [f"trial_lost_{number}-1-agent" for number in range(3)]
    assert await gone("sleep 987658")
    assert len(containers(tmp_path / "data")) == 1
    assert (await sh(mine, "cat file")).stdout_tail == b"mine\n"


async def test_a_watchdog_ends_everything_without_the_event_loop(provider, create, sh):
    sandbox = await create()
    task = asyncio.create_task(sh(sandbox, "echo ready > up; sleep 987659"))
    while (await sh(sandbox, "test -f up")).exit_code != 0:
        pass

    await asyncio.to_thread(provider.kill_now)

    with pytest.raises(SandboxLost, match="by the server"):
        await task
    assert await gone("sleep 987659")


async def test_a_container_that_somebody_else_ends_is_lost_and_no_result(create, sh):
    for _ in range(3):
        sandbox = await create()
        task = asyncio.create_task(sh(sandbox, "echo ready > up; sleep 987660"))
        while (await sh(sandbox, "test -f up")).exit_code != 0:
            pass
        await asyncio.to_thread(docker, "kill", sandbox.container)
        with pytest.raises(SandboxLost, match="from outside"):
            await task


async def test_no_image_of_a_task_is_lost_with_its_sandboxes(provider, create, tmp_path):
    image = await provider.build(context(tmp_path / "one", "RUN true"))
    await (await create(image=image)).destroy()

    assert image.digest in docker("images", "--no-trunc", "--quiet")
