"""A folder becomes the same tar everywhere, and a folder that may not be sent says why."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from pathlib import Path

import pytest

from tollbar.client import FolderRefused, PackLimits, pack_folder


def packed(folder: Path, **options: object) -> bytes:
    target = io.BytesIO()
    result = pack_folder(folder, target, **options)  # type: ignore[arg-type]
    assert result.size == len(target.getvalue())
    return target.getvalue()


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: member for member in tar}


def content(data: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    (root / "one" / "tests").mkdir(parents=True)
    (root / "one" / "task.toml").write_text('schema_version = "1.4"\n')
    (root / "one" / "tests" / "test.sh").write_text("#!/bin/sh\n")
    (root / "one" / "tests" / "test.sh").chmod(0o750)
    return root


def test_the_same_folder_is_the_same_bytes_whatever_its_times_order_and_rights(folder: Path, tmp_path: Path) -> None:
    first = packed(folder)
    other = tmp_path / "other"
    (other / "one" / "tests").mkdir(parents=True)
    (other / "one" / "tests" / "test.sh").write_text("#!/bin/sh\n")
    (other / "one" / "tests" / "test.sh").chmod(0o700)
    (other / "one" / "task.toml").write_text('schema_version = "1.4"\n')
    (other / "one" / "task.toml").chmod(0o600)
    os.utime(other / "one" / "task.toml", (1, 1))
    assert packed(other) == first
    (other / "one" / "task.toml").write_text("changed")
    assert packed(other) != first


def test_everything_is_packed_but_git(folder: Path) -> None:
    for path in (
        ".gitignore",
        "one/__pycache__/a.pyc",
        "one/.harborignore",
        "one/ä ö.txt",
        ".git/config",
        "one/.git/x",
    ):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("x")
    found = members(packed(folder))
    assert sorted(found) == [
        ".gitignore", "one", "one/.harborignore", "one/__pycache__", "one/__pycache__/a.pyc", "one/task.toml",
        "one/tests", "one/tests/test.sh", "one/ä ö.txt",
    ]  # fmt: skip
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in found.values()} == {(0, 0, 0, "", "")}
    assert (found["one/tests/test.sh"].mode, found["one/task.toml"].mode) == (0o755, 0o644)


def test_long_names_survive(folder: Path) -> None:
    deep = folder / ("a" * 120) / ("b" * 120)
    deep.mkdir(parents=True)
    (deep / ("c" * 120)).write_text("deep")
    name = f"{'a' * 120}/{'b' * 120}/{'c' * 120}"
    assert content(packed(folder), name) == b"deep"


def test_a_link_to_a_file_inside_is_its_content_and_one_to_a_folder_is_left_out(folder: Path) -> None:
    (folder / "shared.txt").write_text("shared")
    (folder / "one" / "copy.txt").symlink_to("../shared.txt")
    (folder / "one" / "again.txt").symlink_to("copy.txt")
    (folder / "two").symlink_to("one")
    target = io.BytesIO()
    result = pack_folder(folder, target)
    assert content(target.getvalue(), "one/again.txt") == b"shared"
    assert members(target.getvalue())["one/copy.txt"].isreg()
    assert result.left_out == ("two",)
    assert "two" not in members(target.getvalue())


def test_links_that_lead_out_or_nowhere_are_refused_together(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "set-2").mkdir()
    (tmp_path / "set-2" / "x").write_text("x")
    (folder / "out").symlink_to("../secret.txt")
    (folder / "absolute").symlink_to(tmp_path / "secret.txt")
    (folder / "sibling").symlink_to("../set-2/x")
    (folder / "lost").symlink_to("nothing")
    (folder / "loop").symlink_to("loop")
    with pytest.raises(FolderRefused) as refused:
        packed(folder)
    problems = dict(line.split(": ", 1) for line in refused.value.problems)
    assert set(problems) == {"out", "absolute", "sibling", "lost", "loop"}
    assert problems["out"] == problems["absolute"] == problems["sibling"] == "is a link that leads out of the folder"


def test_what_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    place = Path.cwd()
    os.chdir(folder)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            with pytest.raises(FolderRefused) as refused:
                packed(folder)
    finally:
        os.chdir(place)
    assert sorted(refused.value.problems) == [
        "fifo: is neither a file, a folder nor a link", "socket: is neither a file, a folder nor a link",
    ]  # fmt: skip


def test_a_name_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / os.fsdecode(b"bad\xff")).write_text("x")
    with pytest.raises(FolderRefused) as refused:
        packed(folder)
    assert "not UTF-8" in refused.value.problems[0]
    assert refused.value.problems[0].isascii()


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (PackLimits(max_entries=3), "more than 3 files"),
        (PackLimits(max_file_bytes=1 << 20), "larger than 1 MiB"),
        (PackLimits(max_total_bytes=2 << 20), "more than 2 MiB"),
    ],
)
def test_a_folder_that_is_too_large_is_refused_before_it_is_read(
    folder: Path, limits: PackLimits, problem: str
) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(3 << 20)
    with pytest.raises(FolderRefused) as refused:
        packed(folder, limits=limits)
    assert problem in refused.value.problems[0]


def test_a_file_can_be_replaced_in_the_tar_alone(folder: Path) -> None:
    data = packed(folder, replace={"one/task.toml": b"other"})
    assert content(data, "one/task.toml") == b"other"
    assert (folder / "one" / "task.toml").read_text() == 'schema_version = "1.4"\n'
