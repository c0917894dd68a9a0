"""Artifacts of a Trial: recorded once, listed by name, read by those whose project it is."""

import hashlib

import pytest
from sqlalchemy import text

from tollbar.access.principal import system_principal
from tollbar.artifacts import service
from tollbar.artifacts.blobs import local_blobs
from tollbar.artifacts.errors import ArtifactNotFound, ArtifactNotReady
from tollbar.artifacts.schemas import ArtifactKind, NewArtifact
from tollbar.kit.errors import InvalidCursor, InvalidRequest
from tollbar.kit.paging import page_request

TRIAL = "trial_01KDC4P3A1B2C3D4E5F6G7H8J9"
OWNER = system_principal("ws_1", "prj_1")
OTHER = system_principal("ws_1", "prj_2")


@pytest.fixture
def blobs(tmp_path):
    return local_blobs(tmp_path / "blobs")


@pytest.fixture
def store(database, blobs, clock):
    return Store(database, blobs, clock)


class Store:
    """The service with a database of its own; each call is one transaction."""

    def __init__(self, database, blobs, clock):
        self.database, self.blobs, self.clock = database, blobs, clock

    async def file(self, name, data, kind=ArtifactKind.OUTPUT):
        return NewArtifact.file(name, kind, size=len(data), sha256=await self.blobs.put_bytes(data))

    async def record(self, *items, try_no=1, trial_id=TRIAL, **options):
        async with self.database.transaction() as session:
            await service.record(
                session,
                self.blobs,
                self.clock,
                items,
                trial_id=trial_id,
                project_id=OWNER.project_id,
                try_no=try_no,
                **options,
            )

    async def page(self, actor=OWNER, limit=100, cursor=None, trial_id=TRIAL):
        async with self.database.session() as session:
            asked = page_request(limit, cursor, scope=service.page_scope(actor, trial_id))
            return await service.list_page(session, actor, trial_id, asked)

    async def named(self, name):
        return next(item for item in (await self.page()).items if item["name"] == name)

    async def get(self, artifact_id, actor=OWNER, trial_id=TRIAL):
        async with self.database.session() as session:
            return await service.get(session, actor, trial_id, artifact_id)

    async def window(self, artifact_id, actor=OWNER, **bounds):
        async with self.database.session() as session:
            return await service.window(session, actor, self.blobs, TRIAL, artifact_id, **bounds)

    async def change(self, artifact_id, **values):
        async with self.database.transaction() as session:
            for column, value in values.items():
                await session.execute(
                    text(f"UPDATE artifact SET {column} = :value WHERE id = :id"), {"value": value, "id": artifact_id}
                )


async def test_a_listed_artifact_has_every_fact_of_the_contract(store):
    await store.record(await store.file("agent/log.txt", b"it went like so", ArtifactKind.LOG))
    [item] = (await store.page()).items
    assert item.pop("artifact_id").startswith("art_")
    assert item == {
        "name": "agent/log.txt",
        "kind": "log",
        "media_type": "text/plain",
        "size": 15,
        "sha256": hashlib.sha256(b"it went like so").hexdigest(),
        "state": "available",
        "upload_state": "uploaded",
        "created_at": "2026-11-30T12:00:00.000Z",
    }


async def test_a_declared_file_that_was_not_written_is_listed_as_missing(store):
    await store.record(NewArtifact.missing("report.json", ArtifactKind.OUTPUT))
    [item] = (await store.page()).items
    assert (item["state"], item["upload_state"]) == ("missing", "failed")
    assert (item["size"], item["sha256"], item["media_type"]) == (None, None, None)
    with pytest.raises(ArtifactNotFound):
        await store.get(item["artifact_id"])


async def test_the_type_is_told_by_content_whatever_the_name_says(store):
    await store.record(
        await store.file("picture.txt", b"\x89PNG\r\n\x1a\n\0\0"),
        await store.file("text.png", b"only words"),
        await store.file("data.bin", b'{"a": 1}'),
        await store.file("empty.bin", b""),
    )
    types = {item["name"]: item["media_type"] for item in (await store.page()).items}
    assert types == {
        "picture.txt": "image/png",
        "text.png": "text/plain",
        "data.bin": "application/json",
        "empty.bin": "text/plain",
    }


async def test_pages_go_by_name_and_cover_everything_once(store):
    names = [f"out/{number:03}.txt" for number in range(7)]
    await store.record(*[await store.file(name, name.encode()) for name in reversed(names)])
    seen, cursor = [], None
    while True:
        page = await store.page(limit=3, cursor=cursor)
        seen += [item["name"] for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == names


async def test_the_first_page_of_a_result_is_continued_by_the_list(store):
    names = [f"{number:03}" for number in range(30)]
    await store.record(*[NewArtifact.missing(name, ArtifactKind.OUTPUT) for name in names])
    async with store.database.session() as session:
        first = await service.first_page(session, OWNER, TRIAL)
    rest = await store.page(cursor=first.next_cursor)
    assert [item["name"] for item in first.items + rest.items] == names


async def test_a_cursor_of_another_trial_is_refused(store):
    await store.record(*[NewArtifact.missing(str(number), ArtifactKind.OUTPUT) for number in range(3)])
    cursor = (await store.page(limit=1)).next_cursor
    with pytest.raises(InvalidCursor):
        await store.page(limit=1, cursor=cursor, trial_id="trial_01KDC4P3F9G8H7J6K5M4N3P2Q1")


async def test_another_project_sees_nothing(store):
    await store.record(await store.file("mine", b"x"))
    artifact_id = (await store.named("mine"))["artifact_id"]
    assert (await store.page(actor=OTHER)).items == []
    with pytest.raises(ArtifactNotFound):
        await store.get(artifact_id, actor=OTHER)
    with pytest.raises(ArtifactNotFound):
        await store.window(artifact_id, actor=OTHER)


@pytest.mark.parametrize("artifact_id", ["", "art_", "x", "art_01KDC4Q7R0A1B2C3D4E5F6G7H8", "' OR 1=1", "art_\0"])
async def test_an_id_that_nothing_has_is_not_found(store, artifact_id):
    with pytest.raises(ArtifactNotFound):
        await store.get(artifact_id)


async def test_an_artifact_belongs_to_one_trial(store):
    await store.record(await store.file("mine", b"x"))
    artifact_id = (await store.named("mine"))["artifact_id"]
    with pytest.raises(ArtifactNotFound):
        await store.get(artifact_id, trial_id="trial_01KDC4P3F9G8H7J6K5M4N3P2Q1")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"upload_state": "pending"}, ArtifactNotReady),
        ({"upload_state": "failed"}, ArtifactNotFound),
        ({"state": "expired", "upload_state": "deleted"}, ArtifactNotFound),
        ({"state": "missing", "upload_state": "failed"}, ArtifactNotFound),
    ],
)
async def test_what_has_no_content_says_why(store, values, error):
    await store.record(await store.file("mine", b"x"))
    artifact_id = (await store.named("mine"))["artifact_id"]
    await store.change(artifact_id, **values)
    with pytest.raises(error):
        await store.get(artifact_id)
    with pytest.raises(error):
        await store.window(artifact_id)


async def test_of_two_items_with_one_name_the_first_counts(store):
    await store.record(await store.file("a", b"first"), await store.file("a", b"second"))
    assert (await store.named("a"))["size"] == 5


async def test_what_the_verifier_wrote_takes_the_place_of_an_artifact_of_that_name(store):
    await store.record(await store.file("verifier/x", b"by the agent"))
    await store.record(await store.file("verifier/x", b"by the verifier", ArtifactKind.VERIFIER))
    item = await store.named("verifier/x")
    assert (item["kind"], item["size"]) == ("verifier", 15)


async def test_a_verifier_that_runs_in_a_later_try_keeps_what_the_sealed_try_left(store):
    await store.record(await store.file("app/answer", b"42"), try_no=1, replaces_older=True)
    await store.record(await store.file("verifier/log", b"ok", ArtifactKind.VERIFIER), try_no=2)
    assert [item["name"] for item in (await store.page()).items] == ["app/answer", "verifier/log"]


async def test_a_new_seal_drops_what_older_tries_left(store):
    await store.record(await store.file("app/old", b"1"), await store.file("app/both", b"1"), try_no=1)
    await store.record(await store.file("app/both", b"22"), try_no=2, replaces_older=True)
    assert [(item["name"], item["size"]) for item in (await store.page()).items] == [("app/both", 2)]


async def test_an_older_try_cannot_overwrite_a_later_one(store):
    await store.record(await store.file("a", b"later"), try_no=2)
    await store.record(await store.file("a", b"zombie"), try_no=1)
    assert (await store.named("a"))["size"] == 5


async def test_a_name_that_no_listing_may_hold_is_a_fault_of_the_caller(store):
    with pytest.raises(ValueError, match="cannot be the name"):
        await store.record(NewArtifact.missing("../x", ArtifactKind.OUTPUT))
    assert (await store.page()).items == []


async def test_a_window_has_every_fact_of_the_contract(store):
    data = ("line 😀\n" * 5000).encode()
    await store.record(await store.file("long.txt", data))
    listed = await store.named("long.txt")
    first = await store.window(listed["artifact_id"])
    assert {key: first[key] for key in ("artifact_id", "name", "media_type", "size", "sha256")} == {
        key: listed[key] for key in ("artifact_id", "name", "media_type", "size", "sha256")
    }
    assert (first["offset"], first["eof"], first["replaced_bytes"]) == (0, False, 0)
    assert 16_384 - 3 <= first["bytes"] <= 16_384
    assert first["next_offset"] == first["bytes"]


@pytest.mark.parametrize("max_bytes", [1, 3, 4, 17])
async def test_windows_from_every_byte_of_a_file_with_wide_characters_rebuild_it(store, max_bytes):
    text_of_file = "😀a☃😀é"
    data = text_of_file.encode()
    await store.record(await store.file("wide.txt", data))
    artifact_id = (await store.named("wide.txt"))["artifact_id"]
    for offset in range(len(data) + 1):
        found = [await store.window(artifact_id, offset=offset, max_bytes=max_bytes)]
        while not found[-1]["eof"]:
            found.append(await store.window(artifact_id, offset=found[-1]["next_offset"], max_bytes=max_bytes))
        assert found[-1]["next_offset"] is None
        assert data[: found[0]["offset"]] + "".join(part["text"] for part in found).encode() == data


async def test_text_that_goes_bad_after_its_beginning_is_shown_with_replacements(store):
    await store.record(await store.file("log", b"x" * 8192 + b"\xff\xfe tail"))
    found = await store.window((await store.named("log"))["artifact_id"], offset=8190)
    assert (found["text"], found["replaced_bytes"], found["bytes"]) == ("xx\ufffd\ufffd tail", 2, 9)


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0", b"\0\1\2", b"\xff\xff"])
async def test_a_file_that_is_no_text_has_metadata_alone(store, data):
    await store.record(await store.file("binary", data))
    found = await store.window((await store.named("binary"))["artifact_id"])
    assert (found["text"], found["bytes"], found["next_offset"], found["eof"]) == (None, 0, None, True)
    assert found["size"] == len(data)


@pytest.mark.parametrize(
    ("bounds", "path"),
    [
        ({"offset": -1}, "offset"),
        ({"offset": 6}, "offset"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 32_769}, "max_bytes"),
    ],
)
async def test_bounds_out_of_range_name_the_field(store, bounds, path):
    await store.record(await store.file("a", b"12345"))
    artifact_id = (await store.named("a"))["artifact_id"]
    with pytest.raises(InvalidRequest) as refused:
        await store.window(artifact_id, **bounds)
    assert [field["path"] for field in refused.value.facts["fields"]] == [path]


async def test_an_empty_file_and_the_end_of_a_file_are_empty_windows(store):
    await store.record(await store.file("empty", b""), await store.file("full", b"12345"))
    for name, offset in (("empty", 0), ("full", 5)):
        found = await store.window((await store.named(name))["artifact_id"], offset=offset)
        assert (found["text"], found["eof"], found["next_offset"]) == ("", True, None)


async def test_an_artifact_whose_bytes_were_lost_is_not_found(store, tmp_path):
    await store.record(await store.file("a", b"12345"))
    item = await store.named("a")
    (tmp_path / "blobs" / "sha256" / item["sha256"][:2] / item["sha256"][2:]).unlink()
    with pytest.raises(ArtifactNotFound):
        await store.window(item["artifact_id"])
