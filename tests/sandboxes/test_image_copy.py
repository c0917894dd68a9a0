"""`COPY`: where everything lands, what is never copied, and that no link leads out of the context."""

import os

import pytest
from tests.sandboxes.image_builder import Builder

from tollbar.sandboxes.errors import EnvironmentBuildFailed, EnvironmentRefused


@pytest.fixture
def make(tmp_path):
    return Builder(tmp_path)


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


@pytest.mark.requirement("G-SBX-14.build_syntax")
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


@pytest.mark.requirement("G-SBX-14.build_syntax")
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
