"""The same Dockerfile built by bwrap on the machine's base and by Docker on a real image: what it adds is the same."""

from __future__ import annotations

import pytest
from tests.sandboxes.conftest import make_open_folder
from tests.sandboxes.docker.looking import IMAGE

from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.folders import remove_tree
from tollbar.sandboxes.interface import Form, ImageSpec, Limits, Purpose, SandboxName, SandboxSpec

DOCKERFILE = f"""# a comment
FROM {IMAGE} AS base
LABEL a=b
ARG WHO=world
ARG PLACE=/data
ENV ONE=1 TWO="two words" THREE=it\\ is
ENV OLD the old form
ENV ONE=2 USES=$ONE-${{TWO}}
WORKDIR /app
WORKDIR sub
WORKDIR $PLACE/deep
COPY a.txt relative.txt
COPY a.txt b.txt two/
WORKDIR /app
COPY ["with space.txt", "/app/json form.txt"]
COPY tree /app/tree
COPY tree/*.sh /app/wild/
COPY --chmod=751 a.txt /app/mode.txt
COPY ${{WHO}}.txt /app/named.txt
COPY . /context/
RUN echo "$WHO $ONE" > run.txt \\
    # a comment inside
    && mkdir -m 700 made && ln -s run.txt link && chmod 640 run.txt
RUN ["sh", "-c", "printf '%s' \\"$TWO\\" > exec.txt; echo x > removed"]
RUN rm removed && rm -r tree/gone && cp run.txt tree/inner/copy.txt
EXPOSE 80
CMD ["true"]
"""
LOOK = """for path in $(find /app /data /context | sed 's/ /#/g' | LC_ALL=C sort); do
  path=$(echo "$path" | sed 's/#/ /g')
  stat -c '%n %a %F %u:%g' "$path"
  if [ -L "$path" ]; then readlink "$path"; elif [ -f "$path" ]; then md5sum < "$path"; fi
done
pwd; for name in ONE TWO THREE OLD USES WHO; do eval echo "$name=[\\$$name]"; done"""


@pytest.fixture
async def bwrap():
    folder = make_open_folder()
    made = BwrapProvider(folder / "sandboxes", host="here")
    if problems := await made.preflight():
        pytest.skip(f"no bwrap sandboxes here: {problems}")
    yield made
    await made.kill_all()
    remove_tree(folder)


@pytest.fixture
def context(tmp_path):
    folder = tmp_path / "context"
    for name, text in {
        "Dockerfile": DOCKERFILE, ".dockerignore": "*.log\n!keep.log\nsecret\n", "a.txt": "a", "b.txt": "bb",
        "with space.txt": "space", "world.txt": "world", "left.log": "out", "keep.log": "in", "secret/x": "out",
        "tree/one.sh": "#!/bin/sh\n", "tree/two.sh": "two", "tree/inner/deep.txt": "deep", "tree/gone/x": "x",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if text.startswith("#!") else 0o644)
    return folder


async def look(provider, context):
    """Returns what stands in a sandbox of the folder's image, line by line."""
    image = await provider.build(ImageSpec(context))
    sandbox = await provider.create(
        SandboxSpec(
            name=SandboxName("trial_1", 1, Purpose.AGENT), owner="me", form=Form.HELD, image=image,
            workdir=image.workdir, env=dict(image.env), limits=Limits(memory_mb=256, pids=64),
        )
    )  # fmt: skip
    result = await sandbox.exec(["sh", "-c", LOOK], timeout_s=60)
    await sandbox.kill()
    await sandbox.destroy()
    assert result.exit_code == 0, result.stderr_tail
    return result.stdout_tail.decode().splitlines()


@pytest.mark.requirement("G-SBX-14.build_equal")
async def test_files_modes_variables_and_directory_are_those_that_docker_makes(provider, bwrap, context):
    docker, own = await look(provider, context), await look(bwrap, context)
    assert "USES=[1-two words]" in docker
    assert "WHO=[]" in docker
    assert any(line.startswith("/context/keep.log ") for line in docker)
    assert own == docker
