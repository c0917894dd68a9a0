"""Images of task environments: what every honoured instruction leaves, and what a layer's key depends on."""

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tollbar.sandboxes.base import DEFAULT_PATH, BaseInfo
from tollbar.sandboxes.errors import EnvironmentBuildFailed, EnvironmentRefused
from tollbar.sandboxes.identity import identify
from tollbar.sandboxes.image_build import build
from tollbar.sandboxes.interface import ImageSpec
from tollbar.sandboxes.layers import LayerStore


@pytest.fixture
def make(tmp_path):
    return Builder(tmp_path)


class Builder:
    """Builds a context on a small base with a read-only bind, and reads what came out."""

    def __init__(self, folder: Path):
        self.context = folder / "context"
        self.cache = folder / "layers"
        lower, bound = folder / "base", folder / "host-usr"
        for path in (self.context, self.cache, lower, bound / "local/bin", lower / "usr", lower / "etc", lower / "tmp"):
            path.mkdir(parents=True, exist_ok=True)
        (lower / "tmp").chmod(0o1777)
        (lower / "root").mkdir(mode=0o700)
        (lower / "bin").symlink_to("usr/bin")
        (lower / "var").mkdir()
        (lower / "run").mkdir()
        (lower / "var/run").symlink_to("/run")
        (lower / "etc/passwd").write_text("root:x:0:0\n")
        self.base = BaseInfo("host", "sha256:base", lower, ((bound, "/usr"),))
        self.store = LayerStore(self.cache, identify(0, effective_uid=os.geteuid()) if os.geteuid() else _root())
        self.options = {}

    def put(self, files: dict[str, str | bytes], dockerfile: str | None = None) -> None:
        for name, content in files.items():
            path = self.context / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        if dockerfile is not None:
            (self.context / "Dockerfile").write_text(dockerfile)

    async def image(self, *lines: str, run=None, **spec):
        if lines:
            (self.context / "Dockerfile").write_text("\n".join(("FROM some/image:1", *lines, "")))
        return await build(ImageSpec(**{"context": self.context, **spec}), base=self.base, layers=self.store, run=run)

    async def tree(self, *lines: str, **spec) -> dict[str, str]:
        """Builds and returns what the layers hold: path -> content, `/` for folders, `-> target` for links."""
        return self.read(await self.image(*lines, **spec))

    def read(self, image) -> dict[str, str]:
        found = {}
        for layer in image.layers:
            for path in sorted(layer.rglob("*")):
                name = str(path.relative_to(layer))
                if path.is_symlink():
                    found[name] = f"-> {path.readlink()}"
                else:
                    found[name] = "/" if path.is_dir() else path.read_text()
        return found

    def mode(self, image, name: str) -> int:
        return next(
            stat.S_IMODE((layer / name).lstat().st_mode) for layer in reversed(image.layers) if (layer / name).exists()
        )

    async def refused(self, *lines: str, **spec) -> str:
        with pytest.raises(EnvironmentRefused) as refused:
            await self.image(*lines, **spec)
        assert refused.value.detail == spec.get("detail", "key")
        assert self.layer_count() == 0
        return refused.value.message

    def layer_count(self) -> int:
        return len([path for path in self.cache.iterdir() if path.is_dir()])


def _root():
    """Root builds with its own uid here, so that the folders of a test can be removed by it."""
    return replace(identify(0, effective_uid=0), uid=0, gid=0, drop=False)


# FROM


async def test_a_substituted_base_is_recorded(make):
    image = await make.image("WORKDIR /app")
    assert image.substitutions == ({"kind": "base", "declared": "some/image:1", "used": "host@sha256:base"},)


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


async def test_inert_instructions_are_recorded_on_the_image_and_change_nothing(make):
    plain = await make.image("WORKDIR /app")
    more = await make.image("WORKDIR /app", "# words", "LABEL a=b", "CMD x")
    assert more.passed_over == ("line 4: LABEL", "line 5: CMD")
    assert (more.digest, more.layers) == (plain.digest, plain.layers)


# Places of COPY


@pytest.fixture
def files(make):
    make.put({"a.txt": "A", "b.txt": "B", "sub/c.txt": "C", "sub/deep/d.txt": "D", "with space": "S", "run.sh": "#!"})
    (make.context / "run.sh").chmod(0o755)
    (make.context / "empty").mkdir()
    return make


@pytest.mark.parametrize(
    ("line", "tree"),
    [
        ("COPY a.txt /x", {"x": "A"}),
        ("COPY a.txt /x/", {"x": "/", "x/a.txt": "A"}),
        ("COPY a.txt /etc", {"etc": "/", "etc/a.txt": "A"}),
        ("COPY a.txt /new/y", {"new": "/", "new/y": "A"}),
        ("COPY a.txt .", {"w": "/", "w/a.txt": "A"}),
        ("COPY a.txt x", {"w": "/", "w/x": "A"}),
        ("COPY /a.txt ./sub/", {"w": "/", "w/sub": "/", "w/sub/a.txt": "A"}),
        ("COPY a.txt b.txt /x/", {"x": "/", "x/a.txt": "A", "x/b.txt": "B"}),
        ("COPY a.txt b.txt .", {"w": "/", "w/a.txt": "A", "w/b.txt": "B"}),
        ("COPY sub /x", {"x": "/", "x/c.txt": "C", "x/deep": "/", "x/deep/d.txt": "D"}),
        ("COPY sub/ /x/", {"x": "/", "x/c.txt": "C", "x/deep": "/", "x/deep/d.txt": "D"}),
        ("COPY sub/deep a.txt /x/", {"x": "/", "x/d.txt": "D", "x/a.txt": "A"}),
        ("COPY empty /x", {"x": "/"}),
        ('COPY ["with space", "/x y/"]', {"x y": "/", "x y/with space": "S"}),
        ("COPY *.txt /x/", {"x": "/", "x/a.txt": "A", "x/b.txt": "B"}),
        ("COPY [ab].txt /x/", {"x": "/", "x/a.txt": "A", "x/b.txt": "B"}),
        ("COPY a?txt /x", {"x": "A"}),
        ("COPY s*/d*/* /x/", {"x": "/", "x/d.txt": "D"}),
        ("COPY sub/* /x/", {"x": "/", "x/c.txt": "C", "x/d.txt": "D"}),
        ("COPY a.txt none* /x/", {"x": "/", "x/a.txt": "A"}),
        ("COPY a.txt /var/run/", {"run": "/", "run/a.txt": "A"}),
    ],
)
async def test_a_copy_lands_where_docker_puts_it(files, line, tree):
    found = await files.tree("WORKDIR /w", line)
    found = found if "w" in tree else {name: content for name, content in found.items() if name != "w"}
    assert found == tree


async def test_a_name_with_a_wildcards_sign_is_copied_by_a_class(make):
    make.put({"a*b": "star", "axb": "x"})
    assert await make.tree("COPY a[*]b /y") == {"y": "star"}


async def test_the_whole_context_is_copied_with_its_dockerfile(files):
    found = await files.tree("COPY . /app")
    assert found["app/sub/deep/d.txt"] == "D"
    assert found["app/Dockerfile"].startswith("FROM")
    assert found["app/empty"] == "/"


async def test_modes_are_those_of_the_source_or_those_that_chmod_says(files):
    image = await files.image("COPY run.sh a.txt /x/", "COPY --chmod=0640 sub /y", "COPY --chmod=700 a.txt /z")
    assert files.mode(image, "x/run.sh") == 0o755
    assert files.mode(image, "x/a.txt") == 0o644
    assert files.mode(image, "y") == 0o755
    assert files.mode(image, "y/c.txt") == 0o640
    assert files.mode(image, "y/deep") == 0o640
    assert files.mode(image, "z") == 0o700


async def test_a_later_copy_lies_above_an_earlier_one(files):
    image = await files.image("COPY a.txt /x", "COPY b.txt /x", "COPY a.txt /d/f", "COPY b.txt /d")
    assert files.read(image)["x"] == "B"
    assert files.read(image)["d/b.txt"] == "B"
    assert len(image.layers) == 4


async def test_a_link_inside_the_context_is_followed_as_a_source_and_kept_in_a_folder(files):
    (files.context / "to-file").symlink_to("sub/c.txt")
    (files.context / "to-folder").symlink_to("sub")
    (files.context / "sub/up").symlink_to("../a.txt")
    assert await files.tree("COPY to-file /x") == {"x": "C"}
    assert await files.tree("COPY to-file /x/") == {"x": "/", "x/to-file": "C"}
    assert (await files.tree("COPY to-folder /x"))["x/c.txt"] == "C"
    assert (await files.tree("COPY to-folder/deep/d.txt /x")) == {"x": "D"}
    assert (await files.tree("COPY sub /x"))["x/up"] == "-> ../a.txt"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "sub/../../outside", "loop"])
async def test_a_link_that_leaves_the_context_is_refused_wherever_it_lies(files, target):
    (files.context.parent / "outside").write_text("secret of the host")
    (files.context / "loop").symlink_to(target)
    (files.context / "sub/inner").symlink_to(target if target.startswith("/") else f"../{target}")
    for line in ("COPY loop /x", "COPY sub /x", "COPY . /x", "COPY loop/x /x", "COPY lo* /x", "COPY sub/in* /x"):
        assert "a link that" in (message := await files.refused(line)) or "the link" in message
        assert message.startswith("Dockerfile line 2: COPY ")


async def test_special_files_are_refused_and_a_fifo_does_not_block(files):
    os.mkfifo(files.context / "sub/pipe")
    for line in ("COPY sub/pipe /x", "COPY sub /x"):
        assert "'sub/pipe', which is neither a file, a folder nor a link" in await files.refused(line)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("COPY none /x", "takes 'none', which is not in the context"),
        ("COPY none* /x", "takes nothing: no file matches"),
        ("COPY a.txt/x /x", "which is not in the context"),
        ("COPY ../a.txt /x", "takes '../a.txt', which leaves the context"),
        ("COPY sub/../a.txt /x", "which leaves the context"),
        ("COPY a.txt ../x", "goes to '../x'"),
        ("COPY a.txt /a/../../x", "goes to '/a/../../x'"),
        ("COPY *.txt /x", "of several sources needs a destination that ends with /"),
        ("COPY [ /x", "malformed pattern"),
        ("COPY a.txt $EMPTY", "goes to ''"),
        ("COPY a.txt /usr/local/bin/x", "/usr is read-only on the base host"),
        ("COPY a.txt /bin/x", "/usr is read-only on the base host"),
        ("COPY a.txt /proc/x", "/proc is read-only"),
        ("COPY a.txt /dev/", "/dev is read-only"),
        ("WORKDIR /usr/src/app", "/usr is read-only on the base host"),
    ],
)
async def test_what_cannot_be_copied_names_the_instruction_and_its_line(files, line, part):
    message = await files.refused(line)
    assert message.startswith(f"Dockerfile line 2: {line.split()[0]} ")
    assert part in message


async def test_a_tree_that_reaches_into_a_read_only_folder_is_refused(files):
    files.put({"root/usr/local/bin/tool": "x", "root/opt/tool": "y"})
    assert "/usr is read-only" in await files.refused("COPY root /")


@pytest.mark.parametrize("line", ["COPY a.txt /etc/passwd/x", "COPY sub /etc/passwd", "WORKDIR /etc/passwd"])
async def test_a_file_of_the_image_in_the_way_fails_the_build(files, line):
    with pytest.raises(
        EnvironmentBuildFailed, match=r"Dockerfile line 2: .* failed: /etc/passwd is no folder"
    ) as failed:
        await files.image(line)
    assert failed.value.detail == "build"
    assert files.layer_count() == 0


async def test_a_folder_of_the_image_is_not_replaced_by_a_file(files):
    files.put({"tree/etc": "a file"})
    with pytest.raises(EnvironmentBuildFailed, match="/etc is a folder in the image"):
        await files.image("COPY tree /")


async def test_dockerignore_is_honoured(files):
    files.put({".dockerignore": "*.txt\n!b.txt\nsub/deep\n**/secret\n", "secret": "x", "sub/secret": "y"})
    found = await files.tree("COPY . /x")
    kept = ["Dockerfile", ".dockerignore", "b.txt", "run.sh", "with space", "sub/c.txt"]
    assert {name for name in found if found[name] != "/"} == {f"x/{name}" for name in kept}
    assert "not in the context" in await _refusal(files, "COPY a.txt /y")
    assert "not in the context" in await _refusal(files, "COPY sub/deep/d.txt /y")
    assert "not in the context" in await _refusal(files, "COPY sub/deep /y")
    assert "no file matches" in await _refusal(files, "COPY a.* /y")


async def _refusal(builder, *lines):
    with pytest.raises(EnvironmentRefused) as refused:
        await builder.image(*lines)
    return refused.value.message


async def test_an_exception_of_dockerignore_brings_its_folders_along(files):
    files.put({".dockerignore": "sub\n!sub/deep/d.txt\n"})
    found = await files.tree("COPY sub /x", "COPY s*b /y")
    assert found == {
        name + end: kind for name in "xy" for end, kind in (("", "/"), ("/deep", "/"), ("/deep/d.txt", "D"))
    }


async def test_a_malformed_dockerignore_is_refused(files):
    files.put({".dockerignore": "a\n[\n"})
    assert ".dockerignore is malformed" in await files.refused("COPY a.txt /x")


# Layers and keys


async def test_the_same_context_is_built_once(files):
    first = await files.image("WORKDIR /w", "COPY a.txt .")
    again = await files.image("WORKDIR /w", "COPY a.txt .")
    assert (again.digest, again.layers) == (first.digest, first.layers)
    assert files.layer_count() == 2


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


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_a_source_changes_the_key(files, change):
    before = await files.image("COPY sub /x")
    CHANGES[change](files)
    after = await files.image("COPY sub /x")
    assert before.digest != after.digest
    assert before.layers != after.layers


async def test_what_is_not_copied_does_not_change_the_key(files):
    before = await files.image("COPY sub /x")
    files.put({"a.txt": "changed", "unrelated": "x"})
    os.utime(files.context / "sub/c.txt", (1, 1))
    (files.context / "sub/c.txt").chmod(0o600)
    after = await files.image("COPY sub /x")
    assert (before.digest, before.layers) == (after.digest, after.layers)


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
