"""Declared entries of a seal: what became of each, and the manifest that says so."""

import hashlib
import json
import os
from dataclasses import replace

import pytest
from tests.sandboxes.seal_world import World, new_folder, refusals, statuses

from tollbar.sandboxes.interface import ArtifactPath
from tollbar.sandboxes.seal import read_manifest


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_an_entry_says_what_became_of_it(world):
    world.put("app/file")
    world.put("app/full/x")
    (world.upper / "app/empty").mkdir()
    os.mkfifo(world.upper / "app/fifo")
    world.link("app/link", "file")
    world.put("app/partly/good")
    world.link("app/partly/bad", "/etc/passwd")
    paths = ["file", "full", "empty", "none", "none/deeper", "file/below", "fifo", "link", "link/below", "partly"]
    seal = world.seal(*(f"/app/{name}" for name in paths))
    assert dict(zip(paths, statuses(seal), strict=True)) == {
        "file": "ok",
        "full": "ok",
        "empty": "empty",
        "none": "missing",
        "none/deeper": "missing",
        "file/below": "missing",
        "fifo": "refused",
        "link": "refused",
        "link/below": "refused",
        "partly": "refused",
    }
    assert refusals(seal) == [
        ("app/fifo", "NOT_A_FILE"),
        ("app/link", "LINK_ESCAPES"),
        ("app/partly/bad", "LINK_ABSOLUTE"),
    ]


def test_a_link_on_the_way_is_not_followed(world):
    world.put("real/file", "x")
    world.link("way", "real")
    world.link("out-of-here", str(world.folder))
    seal = world.seal("/way/file", "/out-of-here/secret")
    assert refusals(seal) == [("out-of-here/secret", "LINK_ABSOLUTE"), ("way/file", "LINK_ESCAPES")]
    assert world.blobs == {}
    assert world.read("/way/file") is None
    assert world.read("/out-of-here/secret") is None


def test_the_source_is_mirrored_unless_a_destination_is_given(world):
    world.put("app/a/x", "1")
    world.put("app/b", "2")
    seal = world.seal("/app//a/", ArtifactPath("/app/b", "./result/b.txt"))
    assert [(entry.source, entry.destination) for entry in seal.entries] == [
        ("/app/a", "app/a"),
        ("/app/b", "result/b.txt"),
    ]
    assert world.content(seal) == {"app/a/x": b"1", "result/b.txt": b"2"}


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (ArtifactPath("/app"), ArtifactPath("/app"), "ok"),
        (ArtifactPath("/app"), ArtifactPath("/app/sub"), "ok"),
        (ArtifactPath("/app"), ArtifactPath("/app/sub/x"), "ok"),
        (ArtifactPath("/app"), ArtifactPath("/app/none"), "missing"),
        (ArtifactPath("/app", "place"), ArtifactPath("/app/sub", "place/sub"), "ok"),
        (ArtifactPath("/app", "place"), ArtifactPath("/app/sub"), "ok"),
        (ArtifactPath("/app", exclude=("x",)), ArtifactPath("/app"), "skipped"),
        (ArtifactPath("/app", exclude=("x",)), ArtifactPath("/app/sub"), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/app", exclude=("x",)), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/other", "app"), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/other", "app/sub"), "skipped"),
        (ArtifactPath("/app/sub"), ArtifactPath("/app"), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/app2"), "missing"),
        (ArtifactPath("/none"), ArtifactPath("/other", "none"), "skipped"),
    ],
)
def test_of_two_entries_whose_places_overlap_the_first_is_taken(world, first, second, status):
    world.put("app/sub/x", "1")
    world.put("other/x", "2")
    seal = world.seal(first, second)
    assert seal.entries[1].status == status
    paths = [member.path for entry in seal.entries for member in entry.members]
    assert len(paths) == len(set(paths))


def test_an_entry_in_an_earlier_folder_says_whether_it_was_sealed_there(world):
    world.limits = replace(world.limits, max_members=8)
    for name in ("a", "b/x", "c/pipe-beside", "f/"):
        world.put(f"out/{name}") if not name.endswith("/") else (world.upper / "out" / name).mkdir()
    os.mkfifo(world.upper / "out/c/pipe")
    world.link("out/d", "a")
    world.put("out/z")
    names = ["", "/a", "/b", "/c", "/c/pipe", "/d", "/f", "/none", "/z"]
    seal = world.seal(*(f"/out{name}" for name in names))
    assert dict(zip(names, statuses(seal), strict=True)) == {
        "": "refused",
        "/a": "ok",
        "/b": "ok",
        "/c": "refused",
        "/c/pipe": "refused",
        "/d": "ok",
        "/f": "empty",
        "/none": "missing",
        "/z": "ok",
    }
    world.restored(seal)
    world.limits = replace(world.limits, max_members=5)
    assert dict(zip(names, statuses(world.seal(*(f"/out{name}" for name in names))), strict=True))["/z"] == "refused"


def test_excluded_members_are_left_out_as_tar_does(world):
    for name in ("a.pyc", "b.py", "node_modules/x", "sub/node_modules/y", "sub/c.pyc", "sub/top", "top", "x/y/z"):
        world.put(f"out/{name}")
    os.mkfifo(world.upper / "out/sub/pipe.pyc")
    seal = world.seal(ArtifactPath("/out", exclude=("*.pyc", "node_modules/", "./top", "x/y")))
    assert list(world.content(seal)) == ["out/b.py", "out/sub", "out/x", "out/sub/top"]
    assert refusals(seal) == []


def test_an_entry_whose_place_is_no_name_is_refused(world):
    world.put("app/a\nb", "x")
    seal = world.seal("/app/a\nb", ArtifactPath("/app/a\nb", "fine"))
    assert statuses(seal) == ["refused", "ok"]
    assert refusals(seal) == [("app/a\\x0ab", "BAD_NAME")]


@pytest.mark.parametrize("source", ["relative", "", "/a/../b", "/a\0b"])
def test_a_source_that_is_not_absolute_is_a_fault_of_the_caller(world, source):
    with pytest.raises(ValueError, match="is not an absolute path"):
        world.seal(source)
    with pytest.raises(ValueError, match="is not an absolute path"):
        world.read(source)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


EXPECTED = {
    "version": 1,
    "entries": [
        {
            "source": "/app/run",
            "destination": "app/run",
            "exclude": [],
            "service": "main",
            "status": "ok",
            "kind": "file",
            "members": [{"kind": "file", "path": "app/run", "size": 5, "mode": 493, "sha256": sha256(b"hello")}],
        },
        {
            "source": "/out",
            "destination": "made",
            "exclude": ["z"],
            "service": "main",
            "status": "refused",
            "kind": "directory",
            "members": [
                {"kind": "link", "path": "made/l", "target": "sub"},
                {"kind": "directory", "path": "made/sub"},
                {"kind": "file", "path": "made/sub/é", "size": 1, "mode": 420, "sha256": sha256(b"x")},
            ],
        },
        {
            "source": "/none",
            "destination": "none",
            "exclude": [],
            "service": "main",
            "status": "missing",
            "kind": None,
            "members": [],
        },
    ],
    "refusals": [{"name": "made/p", "reason": "NOT_A_FILE"}],
}


def test_the_manifest_is_canonical_json_of_this_form(world):
    world.put("app/run", "hello", mode=0o700)
    world.put("out/sub/é", "x")
    world.link("out/l", "sub")
    os.mkfifo(world.upper / "out/p")
    seal = world.seal("/app/run", ArtifactPath("/out", "made", exclude=("z",)), "/none")
    assert json.loads(seal.manifest) == EXPECTED
    text = json.dumps(EXPECTED, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert seal.manifest == text.encode()
    assert seal.sha256 == sha256(seal.manifest)


@pytest.mark.requirement("G-SBX-14.seal_same")
def test_equal_trees_have_equal_manifests_whatever_their_layers_times_and_order(world, tmp_path):
    names = ["b", "a/x", "a/Y", "c/é", "c/z"]
    for name in names:
        world.put(f"out/{name}", name)
    world.link("out/l", "a")
    other = World(new_folder(tmp_path / "other"))
    for name in reversed(names):
        layer = other.image if name < "b" else None
        os.utime(other.put(f"out/{name}", name, layer=layer), (1, 1))
    other.put("out/gone", layer=other.image)
    other.whiteout("out/gone")
    other.link("out/l", "a")
    assert world.seal("/out").manifest == other.seal("/out").manifest
    other.put("out/b", "changed")
    assert world.seal("/out").sha256 != other.seal("/out").sha256


def test_a_manifest_that_is_read_says_what_was_sealed(world):
    world.put("out/a", "1", mode=0o755)
    world.link("out/l", "a")
    (world.upper / "out/d").mkdir()
    seal = world.seal(ArtifactPath("/out", "made", exclude=("z",)), "/none")
    found = read_manifest(seal.manifest)
    assert found.sha256 == seal.sha256
    assert found.refusals == seal.refusals
    for read, sealed in zip(found.entries, seal.entries, strict=True):
        assert (read.source, read.destination, read.status) == (sealed.source, sealed.destination, sealed.status)
        assert set(read.members) == set(sealed.members)
    assert found.entries[0].exclude == ("z",)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":2}', b'{"version":1,"entries":[{}],"refusals":[]}'])
def test_bytes_that_are_no_manifest_are_refused(data):
    with pytest.raises(ValueError, match=r".*"):
        read_manifest(data)
