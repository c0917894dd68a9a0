"""Restoring: sealed members come back at their paths, and a layer of them shows what was sealed."""

import json
import os
from dataclasses import replace

import pytest
from tests.sandboxes.seal_world import OPAQUE, World, new_folder, statuses, tree, write_all

from tollbar.sandboxes.interface import ArtifactPath
from tollbar.sandboxes.seal import read_manifest, restore


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_sealed_members_come_back_at_their_original_paths(world):
    world.put("app/run", "#!", mode=0o700)
    world.put("logs/artifacts/sub/x", "1", mode=0o600)
    world.link("logs/artifacts/l", "sub/x")
    (world.upper / "logs/artifacts/empty").mkdir(mode=0o700)
    (world.upper / "bare").mkdir()
    seal = world.seal(ArtifactPath("/logs/artifacts", "published"), ArtifactPath("/app/run", "tool"), "/bare", "/none")
    folder = world.restored(seal)
    assert tree(folder) == {
        "app": (0o755, None),
        "app/run": (0o755, b"#!"),
        "bare": (0o755, None),
        "logs": (0o755, None),
        "logs/artifacts": (0o755, None),
        "logs/artifacts/empty": (0o755, None),
        "logs/artifacts/l": "-> sub/x",
        "logs/artifacts/sub": (0o755, None),
        "logs/artifacts/sub/x": (0o644, b"1"),
    }
    assert {path.lstat().st_mtime for path in folder.rglob("*")} == {315_619_200}


def test_a_restored_layer_shows_the_same_as_what_was_sealed(world):
    world.put("app/old", layer=world.image)
    world.put("app/kept", "image", layer=world.image)
    world.put("conf", "original", layer=world.image)
    world.put("data/x", layer=world.image)
    world.put("big", "small once", layer=world.image)
    world.whiteout("app/old")
    world.put("app/new", "agent")
    world.whiteout("conf")
    world.whiteout("data")
    world.put("big", "0123456789")
    world.limits = replace(world.limits, max_file_bytes=9)
    paths = ["/app", "/conf", "/data", "/big"]
    seal = world.seal(*paths)
    assert statuses(seal) == ["ok", "missing", "missing", "refused"]

    other = World(new_folder(world.folder / "verifier"))
    other.blobs = world.blobs
    other.upper, other.lowers = other.upper, [world.image, world.restored(seal)]
    again = other.seal(*paths)
    assert other.content(again) == {"app/kept": b"image", "app/new": b"agent"}
    assert statuses(again) == ["ok", "missing", "empty", "missing"]
    assert other.read("/app/old") is None
    assert other.read("/conf") is None


def test_nothing_is_hidden_that_the_image_does_not_have(world):
    seal = world.seal("/app/none", "/none")
    assert tree(world.restored(seal)) == {}


def test_what_a_sealed_folder_lacks_needs_no_trace_of_its_own(world):
    world.put("app/gone/x", layer=world.image)
    world.put("app/file", layer=world.image)
    world.put("app/kept")
    world.whiteout("app/gone")
    world.whiteout("app/file")
    folder = world.restored(world.seal("/app", "/app/gone", "/app/file"))
    assert list(tree(folder)) == ["app", "app/kept"]
    assert os.getxattr(folder / "app", OPAQUE) == b"y"


def test_the_same_file_may_be_sealed_at_two_places(world):
    world.put("app/sub/x", "1")
    folder = world.restored(world.seal(ArtifactPath("/app", "one"), ArtifactPath("/app/sub", "two")))
    assert [name for name in tree(folder) if "x" in name] == ["app/sub/x"]


def forged(**changes):
    entry = {
        "source": "/app",
        "destination": "app",
        "exclude": [],
        "service": "main",
        "status": "ok",
        "kind": "directory",
        "members": [],
    } | changes
    return read_manifest(json.dumps({"version": 1, "entries": [entry], "refusals": []}).encode())


def file(path):
    return {"kind": "file", "path": path, "size": 1, "mode": 420, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "/../x"},
        {"source": "x"},
        {"members": [file("../x")]},
        {"members": [file("app/../../x")]},
        {"members": [file("app/../x")]},
        {"members": [file("/x")]},
        {"members": [file("other/x")]},
        {"members": [file("app")]},
        {"members": [file("app/x"), file("app/x/y")]},
        {"members": [{"kind": "link", "path": "app/l", "target": "/etc"}]},
        {"members": [{"kind": "link", "path": "app/l", "target": "../x"}]},
        {
            "members": [
                {"kind": "link", "path": "app/l", "target": "."},
                {"kind": "link", "path": "app/m", "target": "l/.."},
            ]
        },
        {"members": [{"kind": "link", "path": "app/l", "target": "sub"}, file("app/l/x")]},
        {"members": [file("app/x"), {"kind": "link", "path": "app/x", "target": "y"}]},
        {"kind": "file", "members": [file("app/x")]},
        {"kind": None, "members": [file("app/x")]},
    ],
)
def test_a_forged_manifest_is_refused_and_writes_nothing_outside(tmp_path, changes):
    folder = new_folder(new_folder(tmp_path / "outer") / "layer")
    with pytest.raises(ValueError, match=r".+"):
        restore(forged(**changes), lambda sha256, fd: write_all(fd, b"x"), folder)
    assert list((tmp_path / "outer").iterdir()) == [folder]


def test_a_blob_that_cannot_be_had_ends_the_restoring(world):
    world.put("a")
    manifest = read_manifest(world.seal("/a").manifest)

    def lost(sha256, descriptor):
        raise LookupError(sha256)

    with pytest.raises(LookupError):
        restore(manifest, lost, new_folder(world.folder / "restored"))
