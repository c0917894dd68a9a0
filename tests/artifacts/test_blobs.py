"""Bytes by their hash: stored once, never by half, and given back only when they are what their name says."""

import asyncio
import hashlib
import os

import pytest

from tollbar.artifacts.blobs import local_blobs
from tollbar.artifacts.errors import BlobMissing

BIG = 9 << 20


@pytest.fixture
def blobs(tmp_path):
    return local_blobs(tmp_path / "blobs")


@pytest.fixture
def open_file(tmp_path):
    """Opens a file with given content for reading; the descriptor is closed after the test."""
    opened = []

    def make(data: bytes) -> int:
        path = tmp_path / f"file-{len(opened)}"
        path.write_bytes(data)
        opened.append(os.open(path, os.O_RDONLY))
        return opened[-1]

    yield make
    for descriptor in opened:
        os.close(descriptor)


def stored(tmp_path):
    return sorted(
        str(path.relative_to(tmp_path / "blobs")) for path in (tmp_path / "blobs").rglob("*") if path.is_file()
    )


async def test_a_blob_lies_under_the_hash_of_its_bytes(blobs, tmp_path):
    sha256 = await blobs.put_bytes(b"hello")
    assert sha256 == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert stored(tmp_path) == [f"sha256/2c/{sha256[2:]}"]
    assert await blobs.get(sha256) == b"hello"
    assert await blobs.exists(sha256)


@pytest.mark.parametrize("size", [0, 1, 4 << 20, (4 << 20) + 1, BIG])
async def test_a_file_of_any_size_is_stored_whole(blobs, open_file, tmp_path, size):
    data = os.urandom(1000) * (size // 1000 + 1)
    data = data[:size]
    sha256 = await asyncio.to_thread(blobs.put_fd, open_file(data), size)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert await blobs.get(sha256) == data
    assert b"".join([part async for part in blobs.stream(sha256)]) == data
    copy = tmp_path / "copy"
    with copy.open("wb") as file:
        await asyncio.to_thread(blobs.copy_to, sha256, file.fileno())
    assert copy.read_bytes() == data


async def test_equal_bytes_are_stored_once(blobs, open_file, tmp_path):
    first = await blobs.put_bytes(b"same")
    second = await asyncio.to_thread(blobs.put_fd, open_file(b"same"), 4)
    assert first == second
    assert len(stored(tmp_path)) == 1


async def test_a_range_reads_only_its_part(blobs):
    sha256 = await blobs.put_bytes(b"0123456789")
    assert await blobs.read_range(sha256, 3, 4) == b"3456"
    assert await blobs.read_range(sha256, 8, 100) == b"89"
    assert await blobs.read_range(sha256, 5, 0) == b""


@pytest.mark.parametrize("size", [100, BIG])
async def test_a_file_that_ends_early_leaves_no_blob(blobs, open_file, tmp_path, size):
    with pytest.raises(ValueError, match="ended before"):
        await asyncio.to_thread(blobs.put_fd, open_file(b"x" * (size - 1)), size)
    assert stored(tmp_path) == []


async def test_a_file_that_changes_while_it_is_stored_leaves_no_blob(blobs, tmp_path):
    path = tmp_path / "changing"
    path.write_bytes(b"a" * BIG)
    reads = 0
    real = os.pread

    def pread(descriptor, length, offset):
        nonlocal reads
        reads += 1
        if reads == BIG // (1 << 20) + 1:
            with path.open("r+b") as file:
                file.seek(BIG - 1)
                file.write(b"b")
        return real(descriptor, length, offset)

    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", pread)
        with pytest.raises(ValueError, match="changed"):
            await asyncio.to_thread(blobs.put_fd, file.fileno(), BIG)
    assert stored(tmp_path) == []


async def test_what_is_not_there_is_missing_whatever_the_question(blobs, tmp_path):
    name = "0" * 64
    with pytest.raises(BlobMissing):
        await blobs.get(name)
    with pytest.raises(BlobMissing):
        await blobs.read_range(name, 0, 1)
    with pytest.raises(BlobMissing):
        [part async for part in blobs.stream(name)]
    with (tmp_path / "copy").open("wb") as file, pytest.raises(BlobMissing):
        await asyncio.to_thread(blobs.copy_to, name, file.fileno())
    assert not await blobs.exists(name)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
async def test_a_name_that_is_no_hash_never_reaches_the_disk(blobs, name):
    with pytest.raises(BlobMissing):
        await blobs.get(name)


async def test_damaged_bytes_are_not_given_back_as_if_they_were_whole(blobs, tmp_path):
    sha256 = await blobs.put_bytes(b"precious")
    (tmp_path / "blobs" / "sha256" / sha256[:2] / sha256[2:]).write_bytes(b"tampered")
    with pytest.raises(BlobMissing) as missing:
        await blobs.get(sha256)
    assert missing.value.message.startswith("The stored bytes")
    with (tmp_path / "copy").open("wb") as file, pytest.raises(BlobMissing):
        await asyncio.to_thread(blobs.copy_to, sha256, file.fileno())


async def test_a_blob_that_a_crash_cut_short_is_written_anew(blobs, tmp_path):
    sha256 = await blobs.put_bytes(b"precious")
    (tmp_path / "blobs" / "sha256" / sha256[:2] / sha256[2:]).write_bytes(b"")
    assert await blobs.put_bytes(b"precious") == sha256
    assert await blobs.get(sha256) == b"precious"
