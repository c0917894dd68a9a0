"""Artifacts on storage that several machines share: the same promises as in a folder, and clear errors."""

import hashlib
import os

import pytest
from tests.s3 import bucket

from tollbar.artifacts.errors import BlobMissing, InvalidStoreUrl, StoreUnreachable
from tollbar.artifacts.stores import open_blobs

MIB = 1 << 20


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A store on a bucket, below a prefix."""
    with bucket("artifacts") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made, open_blobs("s3://artifacts/some/prefix", tmp_path / "unused")


async def test_bytes_come_back_from_a_bucket_whole_in_parts_and_by_range(shared, tmp_path):
    made, blobs = shared
    await blobs.check()
    data = bytes(range(256)) * 100
    name = await blobs.put_bytes(data)
    assert name == hashlib.sha256(data).hexdigest()
    assert await blobs.put_bytes(data) == name
    assert await blobs.exists(name)
    assert await blobs.get(name) == data
    assert await blobs.read_range(name, 250, 12) == data[250:262]
    assert b"".join([part async for part in blobs.stream(name)]) == data
    with (tmp_path / "copy").open("wb") as file:
        blobs.copy_to(name, file.fileno())
    assert (tmp_path / "copy").read_bytes() == data
    assert made.objects[f"some/prefix/sha256/{name[:2]}/{name[2:]}"] == data


def test_a_large_file_passes_to_a_bucket_and_back_in_parts(shared, tmp_path):
    _, blobs = shared
    path, copy = tmp_path / "large", tmp_path / "copy"
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for number in range(24):
            part = bytes([number]) * MIB
            digest.update(part)
            file.write(part)
    with path.open("rb") as file:
        assert blobs.put_fd(file.fileno(), 24 * MIB) == digest.hexdigest()
    with copy.open("wb") as file:
        blobs.copy_to(digest.hexdigest(), file.fileno())
    assert copy.stat().st_size == 24 * MIB
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == digest.hexdigest()


def test_a_file_that_changes_while_it_is_stored_leaves_nothing_in_a_bucket(shared, tmp_path):
    made, blobs = shared
    path = tmp_path / "changing"
    path.write_bytes(bytes(9 * MIB))
    reads = []

    class Changing:
        """A descriptor whose file another process rewrites between the two readings."""

        def __index__(self):
            reads.append(None)
            if len(reads) == 10:
                path.write_bytes(b"x" * (9 * MIB))
            return descriptor

    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match="changed"):
            blobs.put_fd(Changing(), 9 * MIB)
    finally:
        os.close(descriptor)
    assert (made.objects, made.uploads) == ({}, {})


async def test_a_blob_that_a_bucket_does_not_have_is_missing(shared, tmp_path):
    _, blobs = shared
    absent = hashlib.sha256(b"absent").hexdigest()
    assert not await blobs.exists(absent)
    with pytest.raises(BlobMissing):
        await blobs.get(absent)
    with pytest.raises(BlobMissing):
        await blobs.read_range(absent, 0, 1)
    with pytest.raises(BlobMissing):
        _ = [part async for part in blobs.stream(absent)]
    with (tmp_path / "copy").open("wb") as file, pytest.raises(BlobMissing):
        blobs.copy_to(absent, file.fileno())


async def test_a_bucket_that_does_not_exist_is_named_before_anything_is_stored(shared, tmp_path):
    with pytest.raises(StoreUnreachable, match="NoSuchBucket") as refused:
        await open_blobs("s3://another-bucket/prefix", tmp_path).check()
    assert (refused.value.code, refused.value.status) == ("STORE_UNAVAILABLE", 503)
    assert "TOLLBAR_ARTIFACTS_URL" in (refused.value.hint or "")


async def test_a_storage_that_refuses_the_credentials_says_so(shared, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    with pytest.raises(StoreUnreachable, match="InvalidAccessKeyId"):
        await open_blobs("s3://artifacts/prefix", tmp_path).check()


async def test_a_storage_that_does_not_answer_is_an_error_of_every_call(monkeypatch, tmp_path):
    with bucket("artifacts") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
    blobs = open_blobs("s3://artifacts/prefix", tmp_path)
    with pytest.raises(StoreUnreachable):
        await blobs.put_bytes(b"lost")


@pytest.mark.parametrize(
    "url", ["ftp://host/folder", "relative/folder", "s3://", "file://host/folder", "memory:///", "https://host/bucket"]
)
def test_what_is_no_storage_is_refused(url, tmp_path):
    with pytest.raises(InvalidStoreUrl):
        open_blobs(url, tmp_path)


async def test_a_folder_that_machines_share_is_named_by_its_path(tmp_path):
    blobs = open_blobs(f"file://{tmp_path}/with%20blank", tmp_path / "unused")
    name = await blobs.put_bytes(b"shared")
    assert (tmp_path / "with blank" / "sha256" / name[:2] / name[2:]).read_bytes() == b"shared"
    assert not (tmp_path / "unused").exists()
