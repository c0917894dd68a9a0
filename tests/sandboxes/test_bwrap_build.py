"""`RUN` in real build sandboxes: cached, without network, and a failure says what the command said."""

import asyncio

import pytest

from tollbar.sandboxes.errors import EnvironmentBuildFailed
from tollbar.sandboxes.interface import ImageSpec


@pytest.fixture
def built(provider, tmp_path):
    """Builds the Dockerfile with the given lines after `FROM`."""

    async def build(*lines, timeout_s=60.0):
        (tmp_path / "Dockerfile").write_text("FROM debian:12\n" + "\n".join(lines) + "\n")
        return await provider.build(ImageSpec(context=tmp_path, timeout_s=timeout_s))

    return build


async def test_a_command_of_a_build_sees_variables_directory_and_earlier_steps(built, new_box, tmp_path, host):
    mark = host.marker()
    (tmp_path / "data.txt").write_text(mark)
    image = await built(
        "ENV NAME=built",
        "ARG WHO=argument",
        "WORKDIR /app",
        "COPY data.txt .",
        'RUN cat data.txt > seen && echo "$NAME $WHO $PWD" >> seen && rm data.txt',
        f'RUN ["sh", "-c", "echo json {mark} > /json"]',
    )
    box = await new_box(layers=image.layers)
    result = await box.sh("cat /app/seen /json; ls /app")
    assert result.stdout_tail.decode() == f"{mark}built argument /app\njson {mark}\nseen\n"


@pytest.mark.requirement("G-SBX-14.build_once")
async def test_a_step_runs_once_however_often_and_at_once_it_is_asked_for(built, open_folder, host):
    step = f"RUN sleep 0.2; head -c 16 /dev/urandom > /random # {host.marker()}"
    first, second = await asyncio.gather(built(step), built(step))
    third = await built(step)
    assert first.layers == second.layers == third.layers
    assert len(first.layers) == 1


@pytest.mark.requirement("G-SBX-14.build_failed")
async def test_a_failing_step_leaves_no_layer_and_says_what_was_printed(built, shared_folder, host):
    before = sorted((shared_folder / "sandboxes/l").glob("*.size"))
    with pytest.raises(EnvironmentBuildFailed, match="line 2: RUN failed with exit code 3") as failed:
        await built(f"RUN echo half > /half; echo why it failed >&2; exit 3 # {host.marker()}")
    assert "why it failed" in failed.value.message
    assert failed.value.detail == "build"
    assert sorted((shared_folder / "sandboxes/l").glob("*.size")) == before


async def test_a_package_manager_that_cannot_work_here_gets_a_hint(built, host):
    with pytest.raises(EnvironmentBuildFailed, match="only an image base or the docker backend"):
        await built(f"RUN apt-get install -y {host.marker()}")


async def test_a_step_that_takes_too_long_is_ended(built, host):
    mark = host.marker()
    with pytest.raises(EnvironmentBuildFailed, match="longer than") as failed:
        await built(f"RUN sleep {mark}", timeout_s=0.5)
    assert failed.value.detail == "timeout"
    assert host.living(mark) == []


async def test_a_build_has_no_network(built, host):
    code = "import socket; socket.create_connection((chr(49) + '92.0.2.1', 80), timeout=3)"
    with pytest.raises(EnvironmentBuildFailed, match="Network is unreachable"):
        await built(f'RUN python3 -c "{code}" # {host.marker()}')


async def test_a_step_that_nests_deeply_makes_a_layer_all_the_same(built, new_box, host):
    nest = "import os\nfor _ in range(1500):\n os.mkdir('d' * 100)\n os.chdir('d' * 100)"
    image = await built(f'RUN ["python3", "-c", "{nest.encode("unicode_escape").decode()}", "{host.marker()}"]')
    box = await new_box(layers=image.layers)
    assert (await box.sh("ls / | grep -c ddd")).stdout_tail == b"1\n"
