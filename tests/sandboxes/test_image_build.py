"""Images of task environments: what every honoured instruction leaves, and what a layer's key depends on."""

import asyncio
import os
from dataclasses import replace

import pytest
from tests.sandboxes.image_builder import Builder

from tollbar.sandboxes.base import DEFAULT_PATH
from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.interface import ImageSpec


@pytest.fixture
def make(tmp_path):
    return Builder(tmp_path)


@pytest.fixture
def files(make):
    make.put({"a.txt": "A", "b.txt": "B", "sub/c.txt": "C", "sub/deep/d.txt": "D", "with space": "S", "run.sh": "#!"})
    (make.context / "run.sh").chmod(0o755)
    (make.context / "empty").mkdir()
    return make


# FROM


async def test_a_substituted_base_is_recorded(make):
    image = await make.image("WORKDIR /app")
    assert image.substitutions == ({"kind": "base", "declared": "some/image:1", "used": "host@sha256:base"},)


@pytest.mark.requirement("G-SBX-14.substitution_refused")
async def test_a_substitution_that_the_job_does_not_allow_names_from_its_line_and_the_image(make):
    make.put({}, "# words\nFROM python:3.12-slim\nWORKDIR /app\n")
    with pytest.raises(EnvironmentRefused) as refused:
        await make.image(allow_base_substitution=False)
    assert refused.value.detail == "substitution"
    assert "Dockerfile line 2: FROM python:3.12-slim" in refused.value.message
    assert make.layer_count() == 0


@pytest.mark.parametrize("declared", ["host", "host@sha256:base"])
async def test_the_base_itself_is_no_substitution(make, declared):
    make.put({}, f"FROM {declared}\n")
    image = await make.image(allow_base_substitution=False)
    assert image.substitutions == ()


async def test_a_named_image_is_replaced_by_the_bare_base_only_when_that_is_allowed(make):
    image = await make.image(context=None, docker_image="python:3.12")
    assert (image.layers, image.workdir, dict(image.env)) == ((), "/", {})
    assert image.substitutions == ({"kind": "base", "declared": "python:3.12", "used": "host@sha256:base"},)
    with pytest.raises(EnvironmentRefused) as refused:
        await make.image(context=None, docker_image="python:3.12", allow_base_substitution=False)
    assert refused.value.detail == "substitution"
    assert "environment.docker_image = 'python:3.12'" in refused.value.message


async def test_an_environment_needs_a_folder_with_a_dockerfile_or_an_image(make):
    assert "environment.docker_image" in await make.refused(context=None)
    assert "has no Dockerfile" in await make.refused()
    assert "has no folder none" in await make.refused(context=make.context / "none")
    (make.context / "Dockerfile").symlink_to("/etc/hostname")
    assert "has no Dockerfile" in await make.refused()


async def test_a_compose_file_is_refused_by_its_name(make):
    make.put({"docker-compose.yaml": "services: {}\n"}, "FROM x\n")
    assert "docker-compose.yaml" in await make.refused()


# RUN


async def test_run_is_refused_by_name_and_line_before_anything_is_built(make):
    make.put({"a": "1"})
    message = await make.refused("COPY a /a", "RUN make", "RUN make install")
    assert message.startswith("Dockerfile line 3: RUN is not executed")


async def test_a_builder_that_executes_run_gets_the_image_so_far_and_adds_its_layer(make, tmp_path):
    requests = []

    class Runner:
        network = "none"

        async def __call__(self, request):
            requests.append(request)
            return tmp_path / "made"

    make.put({"a": "1"})
    image = await make.image("ARG V=1", "ENV A=x", "WORKDIR /app", "COPY a .", "RUN make $V", run=Runner())
    [request] = requests
    assert request.layers == image.layers[:-1]
    assert image.layers[-1] == tmp_path / "made"
    assert (request.step.command, dict(request.env), request.workdir) == ("make $V", {"V": "1", "A": "x"}, "/app")


# WORKDIR, ENV, ARG


async def test_workdir_makes_a_directory_and_moves_on_from_the_last_one(make):
    image = await make.image("WORKDIR /app/src", "WORKDIR ../lib", "WORKDIR deep")
    assert image.workdir == "/app/lib/deep"
    assert make.read(image) == dict.fromkeys(["app", "app/src", "app/lib", "app/lib/deep"], "/")
    assert make.mode(image, "app/lib/deep") == 0o755


async def test_workdir_of_an_existing_directory_makes_no_layer(make):
    image = await make.image("WORKDIR /etc", "WORKDIR /usr/local/bin", "WORKDIR /")
    assert (image.workdir, image.layers) == ("/", ())


async def test_a_directory_above_keeps_the_permissions_that_the_base_gave_it(make):
    image = await make.image("WORKDIR /tmp/work", "WORKDIR /root/work")
    assert make.mode(image, "tmp") == 0o1777
    assert make.mode(image, "root") == 0o700


async def test_links_of_the_image_are_followed_and_never_replaced(make):
    image = await make.image("WORKDIR /var/run/app")
    assert image.workdir == "/var/run/app"
    assert make.read(image) == {"run": "/", "run/app": "/"}


async def test_variables_are_replaced_as_docker_does(make):
    image = await make.image(
        "ARG NAME=app",
        "ENV A=1",
        "ENV A=2 B=$A C=\"$A $NAME\" D='$A' E=\\$A F=5$",
        "ENV PATH=/opt/bin:$PATH",
        "ENV OLD form of $A",
        "ENV NONE=$UNDECLARED.",
        "WORKDIR /${NAME}/$A",
    )
    assert dict(image.env) == {
        "A": "2",
        "B": "1",
        "C": "1 app",
        "D": "$A",
        "E": "$A",
        "F": "5$",
        "PATH": f"/opt/bin:{DEFAULT_PATH}",
        "OLD": "form of 2",
        "NONE": ".",
    }
    assert image.workdir == "/app/2"


async def test_an_argument_takes_the_tasks_value_then_its_default_then_that_of_before_from(make):
    make.put({}, "ARG A=outer\nARG B=outer\nARG C=$A.\nFROM x\nARG A\nARG B=inner\nARG C\nARG D=d\nENV R=$A,$B,$C,$D\n")
    assert dict((await make.image()).env) == {"R": "outer,inner,outer.,d"}
    given = await make.image(build_args={"A": "a", "D": "given", "Z": "unused"})
    assert dict(given.env) == {"R": "a,inner,a.,given"}


async def test_an_argument_of_before_from_is_unknown_until_it_is_declared(make):
    make.put({}, "ARG A=outer\nFROM x\nENV R=[$A]\n")
    assert dict((await make.image()).env) == {"R": "[]"}


async def test_env_wins_over_an_argument_of_that_name(make):
    assert dict((await make.image("ENV A=env", "ARG A=arg", "ENV R=$A")).env) == {"A": "env", "R": "env"}


async def test_an_argument_without_value_is_refused_where_it_is_used(make):
    assert (await make.image("ARG A", "WORKDIR /app")).workdir == "/app"
    with pytest.raises(EnvironmentRefused, match="Dockerfile line 3: ENV uses the argument A, which has no default"):
        await make.image("ARG A", "ENV B=$A")
    with pytest.raises(EnvironmentRefused, match="Dockerfile line 3: COPY uses the argument A"):
        await make.image("ARG A", "COPY $A /x")


@pytest.mark.requirement("G-SBX-14.build_inert")
async def test_inert_instructions_are_recorded_on_the_image_and_change_nothing(make):
    plain = await make.image("WORKDIR /app")
    more = await make.image("WORKDIR /app", "# words", "LABEL a=b", "CMD x")
    assert more.passed_over == ("line 4: LABEL", "line 5: CMD")
    assert (more.digest, more.layers) == (plain.digest, plain.layers)


# Layers and keys


async def test_the_same_context_is_built_once(files):
    first = await files.image("WORKDIR /w", "COPY a.txt .")
    again = await files.image("WORKDIR /w", "COPY a.txt .")
    assert (again.digest, again.layers) == (first.digest, first.layers)
    assert files.layer_count() == 2


@pytest.mark.requirement("G-SBX-14.build_once")
async def test_two_builds_at_once_make_each_layer_once(files):
    files.put({}, "FROM x\nWORKDIR /w\nCOPY sub .\n")
    images = await asyncio.gather(*(files.image() for _ in range(8)))
    assert len({image.digest for image in images}) == 1
    assert files.layer_count() == 2


CHANGES = {
    "a file's content": lambda make: make.put({"sub/c.txt": "changed"}),
    "a file's execute bit": lambda make: (make.context / "sub/c.txt").chmod(0o755),
    "a new file": lambda make: make.put({"sub/new": ""}),
    "a removed file": lambda make: (make.context / "sub/c.txt").unlink(),
    "a renamed file": lambda make: (make.context / "sub/c.txt").rename(make.context / "sub/z.txt"),
}


@pytest.mark.requirement("G-SBX-14.build_key")
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_a_source_changes_the_key(files, change):
    before = await files.image("COPY sub /x")
    CHANGES[change](files)
    after = await files.image("COPY sub /x")
    assert before.digest != after.digest
    assert before.layers != after.layers


@pytest.mark.requirement("G-SBX-14.build_key")
async def test_what_is_not_copied_does_not_change_the_key(files):
    before = await files.image("COPY sub /x")
    files.put({"a.txt": "changed", "unrelated": "x"})
    os.utime(files.context / "sub/c.txt", (1, 1))
    (files.context / "sub/c.txt").chmod(0o600)
    after = await files.image("COPY sub /x")
    assert (before.digest, before.layers) == (after.digest, after.layers)


@pytest.mark.requirement("G-SBX-14.build_key")
@pytest.mark.parametrize("earlier", ["ENV A=1", "ARG A=1", "WORKDIR /elsewhere", "COPY a.txt /y"])
async def test_an_earlier_line_changes_the_key_of_a_copy(files, earlier):
    plain = await files.image("COPY sub /x")
    after = await files.image(earlier, "COPY sub /x")
    assert plain.layers[-1] != after.layers[-1]


async def test_env_and_directory_are_part_of_the_images_digest(files):
    digests = [
        (await files.image(*lines)).digest for lines in (["ENV A=1"], ["ENV A=2"], ["WORKDIR /etc"], ["WORKDIR /"])
    ]
    assert len(set(digests)) == len(digests)


async def test_another_base_is_another_image(files):
    first = await files.image("COPY a.txt /x")
    files.base = replace(files.base, digest="sha256:other")
    second = await files.image("COPY a.txt /x")
    assert first.digest != second.digest
    assert first.layers != second.layers


async def test_more_layers_than_fit_into_one_mount_are_refused(make):
    make.put({}, "FROM x\n" + "".join(f"WORKDIR /d{number}\n" for number in range(49)))
    with pytest.raises(EnvironmentRefused, match="Dockerfile line 50: WORKDIR would make more than 48 layers"):
        await make.image()


# In a real sandbox


async def test_a_built_image_is_what_a_sandbox_sees(provider, new_box, tmp_path):
    context = tmp_path / "context"
    (context / "data/deep").mkdir(parents=True)
    (context / "data/deep/f.txt").write_text("content\n")
    (context / "tool.sh").write_text("#!/bin/sh\necho tool says $GREETING in $PWD\n")
    (context / "tool.sh").chmod(0o755)
    (context / "Dockerfile").write_text(
        'FROM python:3.12-slim\nARG WHO=world\nENV GREETING="hello $WHO"\nWORKDIR /app\n'
        "COPY data ./data\nCOPY tool.sh /opt/\nLABEL x=y\n"
    )
    image = await provider.build(ImageSpec(context))
    box = await new_box(layers=image.layers, env=dict(image.env), workdir=image.workdir)
    result = await box.sh(
        "/opt/tool.sh; cat data/deep/f.txt; echo more >> data/deep/f.txt; stat -c %a:%u data /opt/tool.sh"
    )
    assert result.exit_code == 0, result.stderr_tail
    assert result.stdout_tail.decode().splitlines() == [
        "tool says hello world in /app",
        "content",
        "755:0",
        "755:0",
    ]
    assert (await provider.build(ImageSpec(context))).layers == image.layers
    assert (image.layers[-2] / "app/data/deep/f.txt").read_text() == "content\n"
