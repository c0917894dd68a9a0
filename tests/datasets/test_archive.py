"""Uploaded archives: what is read, what is refused, and the bounds."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from tollbar.datasets.archive import ArchiveLimits, read_upload
from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.problems import Problem
from tollbar.kit.errors import RequestTooLarge


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry, b""


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_plain_or_gzipped_tar_is_read(tar, golden, mode):
    problems: list[Problem] = []
    path = tar({f"./{name}": data for name, data in golden.items()}, mode=mode)
    assert read_upload(path, problems).files == golden
    assert problems == []


def test_names_in_any_language_and_of_any_length_are_read(tar):
    files = {"é/" + "long" * 40 + ".txt": b"x"}
    assert read_upload(tar(files), []).files == files


@pytest.mark.parametrize(
    ("member", "word"),
    [
        (_member("../x"), "'..'"),
        (_member("a/../../x"), "'..'"),
        (_member("/etc/x"), "absolute"),
        (_member("fifo", tarfile.FIFOTYPE), "neither"),
        (_member("dev", tarfile.CHRTYPE), "neither"),
        (_member("block", tarfile.BLKTYPE), "neither"),
        (_member("out", tarfile.SYMTYPE, "../outside"), "leaves"),
        (_member("abs", tarfile.SYMTYPE, "/etc/passwd"), "leaves"),
        (_member("me", tarfile.SYMTYPE, "me"), "back to itself"),
        (_member("hard", tarfile.LNKTYPE, "nothing"), "hard link"),
        (_member("hard", tarfile.LNKTYPE, "/etc/passwd"), "hard link"),
        (_member("task.toml"), "twice"),
        (_member("task.toml/x"), "not a folder"),
        (_member("tests", tarfile.REGTYPE), "twice"),
        (_member("a\\b"), "backslashes"),
        (_member("a\nb"), "control"),
        (_member("a\udcffb"), "UTF-8"),
        (_member("x" * 300), "too long"),
    ],
)
def test_a_member_that_could_do_harm_is_refused_and_the_rest_is_read(tar, golden, member, word):
    problems: list[Problem] = []
    tree = read_upload(tar(golden, member), problems)
    assert tree.files == golden
    assert len(problems) == 1
    assert word in problems[0].message


def test_nothing_can_be_put_below_a_link(tar, golden):
    problems: list[Problem] = []
    link, below = _member("sub", tarfile.SYMTYPE, "tests"), _member("sub/x")
    tree = read_upload(tar(golden, link, below), problems)
    assert [problem.file for problem in problems] == ["sub/x"]
    assert tree.links == {"sub": "tests"}


def test_a_hard_link_is_a_file_with_the_same_bytes(tar, golden):
    tree = read_upload(tar(golden, _member("tests/again.sh", tarfile.LNKTYPE, "./tests/test.sh")), [])
    assert tree.files["tests/again.sh"] == golden["tests/test.sh"]


def test_the_number_and_size_of_members_are_bounded(tar):
    files = {f"{n}": b"12345678" for n in range(8)}
    with pytest.raises(UnsupportedTaskFormat, match="more than 7 entries"):
        read_upload(tar(files), [], ArchiveLimits(max_entries=7))
    with pytest.raises(RequestTooLarge):
        read_upload(tar(files), [], ArchiveLimits(max_total_bytes=63))
    problems: list[Problem] = []
    read_upload(tar(files), problems, ArchiveLimits(max_file_bytes=7))
    assert [problem.file for problem in problems] == [f"{n}" for n in range(8)]


def test_a_few_bytes_that_stand_for_many_are_refused(tmp_path):
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(RequestTooLarge):
        read_upload(bomb, [], ArchiveLimits(max_total_bytes=1 << 20, max_entries=10))


def test_a_header_that_claims_to_be_huge_is_refused(tmp_path):
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 100 << 20
    (tmp_path / "bad").write_bytes(entry.tobuf(tarfile.USTAR_FORMAT) + bytes(2 << 20))
    with pytest.raises(UnsupportedTaskFormat, match="header of more than"):
        read_upload(tmp_path / "bad", [])


def _golden_tar(golden) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in golden.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("cut", [100, 520, 1024, 1500])
def test_a_damaged_archive_is_refused_and_never_read_in_part(tmp_path, golden, cut):
    whole = _golden_tar(golden)
    for data in (whole[:cut], whole[:1024] + b"\xff" * 512 + whole[1536:], gzip.compress(whole)[: -cut // 10]):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(UnsupportedTaskFormat):
            read_upload(tmp_path / "bad", [])


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 zip", b"\x1f\x8b\x08 broken", b"x" * 4096])
def test_what_is_no_tar_is_refused(tmp_path, data):
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(UnsupportedTaskFormat) as refused:
        read_upload(tmp_path / "bad", [])
    assert refused.value.problems[0].file == "upload"
