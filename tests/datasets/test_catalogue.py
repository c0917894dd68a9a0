"""Publishing and showing: versions are immutable, namespaces have one owner, private versions stay private."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tollbar.access.principal import Principal, system_principal
from tollbar.datasets import service
from tollbar.datasets.errors import (
    DatasetManifestConflict,
    DatasetNotFound,
    DatasetRevisionNotFound,
    DatasetSelectionNotFound,
    NamespaceTaken,
    UnsupportedTaskFormat,
)
from tollbar.kit.errors import InvalidRequest
from tollbar.kit.paging import page_request

ANA = system_principal("ws_a", "prj_a")
OTHER_PROJECT = system_principal("ws_a", "prj_b")
STRANGER = system_principal("ws_x", "prj_x")


@pytest.fixture
def publish(database, blobs, clock, golden, tar):
    """Publishes the golden task (with changes) as `team/set` in one transaction."""
    numbers = itertools.count()

    async def publish_it(
        version="1", *, actor: Principal = ANA, name="team/set", visibility=None, toml=None, mode="w", **changes: bytes
    ):
        files = {f"hello/{path}": data for path, data in golden.items()}
        files |= {key.replace("__", "/"): data for key, data in changes.items()}
        if toml is not None:
            files["dataset.toml"] = toml.encode()
        archive = tar(files, mode=mode, name=f"{next(numbers)}.tar")
        async with database.transaction() as session:
            return await service.publish(
                session,
                actor,
                archive=archive,
                name=name,
                version=version,
                visibility=visibility,
                blobs=blobs,
                clock=clock,
            )

    return publish_it


def page(limit=25, cursor=None):
    return page_request(limit, cursor, scope={})


async def test_a_new_version_is_201_and_the_same_content_again_is_200(publish):
    first, created = await publish()
    again, created_again = await publish(mode="w:gz")
    assert (created, created_again, again) == (True, False, first)


async def test_the_version_object_has_every_field_of_the_contract(publish):
    shown, _ = await publish()
    revision = shown["revision"]
    assert shown == {
        "name": "team/set",
        "type": "environment",
        "version": "1",
        "revision": revision,
        "revision_ref": None,
        "manifest_sha256": revision,
        "digest": "sha256:27da63a19200ccce2ee5f09b1bebd1558f9fecfd0af5ffb87d9b37b8504436c9",
        "task_count": 1,
        "splits": {},
        "configs": [],
        "threshold": 1.0,
        "check": None,
        "published_at": "2026-11-30T12:00:00.000Z",
    }
    assert len(revision) == 64


async def test_other_content_under_a_label_is_a_conflict_and_changes_nothing(publish, database, blobs):
    first, _ = await publish()
    stored = dict(blobs.data)
    with pytest.raises(DatasetManifestConflict) as refused:
        await publish(**{"hello__README.md": b"edited"})
    assert (refused.value.status, refused.value.code) == (409, "DATASET_MANIFEST_CONFLICT")
    assert blobs.data == stored
    async with database.session() as session:
        assert await service.version(session, ANA, "team/set", "1") == first


async def test_a_broken_upload_stores_nothing(publish, database, blobs):
    with pytest.raises(UnsupportedTaskFormat):
        await publish(**{"hello__task.toml": b"unknown = 1"})
    assert blobs.data == {}
    async with database.session() as session:
        with pytest.raises(DatasetNotFound):
            await service.get(session, ANA, "team/set")


async def test_two_at_once_give_one_version(publish):
    results = await asyncio.gather(*(publish() for _ in range(6)))
    assert sorted(created for _, created in results) == [False] * 5 + [True]
    assert len({shown["revision"] for shown, _ in results}) == 1


async def test_two_contents_at_once_leave_one_winner(publish):
    results = await asyncio.gather(publish(), publish(**{"hello__README.md": b"other"}), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["DatasetManifestConflict", "tuple"]


async def test_a_namespace_belongs_to_the_workspace_that_came_first(publish):
    await publish()
    await publish(name="team/more", actor=OTHER_PROJECT)
    with pytest.raises(NamespaceTaken) as refused:
        await publish(name="team/third", actor=STRANGER)
    assert (refused.value.status, refused.value.code) == (403, "WORKSPACE_ACCESS_DENIED")
    await publish(name="free/third", actor=STRANGER)


async def test_a_private_version_of_another_project_is_a_404(publish, database):
    await publish("1")
    async with database.session() as session:
        for actor in (OTHER_PROJECT, STRANGER):
            assert (await service.list_page(session, actor, page())).items == []
            with pytest.raises(DatasetNotFound):
                await service.get(session, actor, "team/set")
            with pytest.raises(DatasetNotFound):
                await service.version(session, actor, "team/set", "1")
            with pytest.raises(DatasetNotFound):
                await service.tasks_page(session, actor, "team/set", "1", page())


async def test_a_dataset_with_a_public_and_a_private_version_is_mixed_and_others_see_the_public_one(publish, database):
    await publish("1", visibility="public")
    await publish("2", **{"hello__README.md": b"2"})
    async with database.session() as session:
        mine = await service.get(session, ANA, "team/set")
        others = await service.get(session, STRANGER, "team/set")
        assert (mine["visibility"], mine["versions"], mine["default_version"]) == ("mixed", ["2", "1"], "2")
        assert (others["visibility"], others["versions"], others["version_count"]) == ("public", ["1"], 1)
        with pytest.raises(DatasetRevisionNotFound):
            await service.version(session, STRANGER, "team/set", "2")


async def test_the_visibility_of_a_version_does_not_change(publish):
    await publish(visibility="private")
    await publish(visibility="private")
    with pytest.raises(DatasetManifestConflict):
        await publish(visibility="public")


async def test_a_label_of_another_projects_private_version_is_taken(publish):
    await publish()
    with pytest.raises(DatasetManifestConflict):
        await publish(actor=OTHER_PROJECT)


@pytest.mark.parametrize(
    ("change", "path"),
    [({"name": "set"}, "name"), ({"version": "a@b"}, "version"), ({"visibility": "secret"}, "visibility")],
)
async def test_a_wrong_name_version_or_visibility_is_an_invalid_request(publish, change, path):
    with pytest.raises(InvalidRequest) as refused:
        await publish(**change)
    assert [field["path"] for field in refused.value.facts["fields"]] == [path]


SPLITS = (
    '[dataset]\nname = "team/set"\ndescription = "D"\nauthors = [{name = "Ana Ruiz"}]\n%s[metadata.tollbar.splits]\n'
)
GOLDEN = "sha256:e54921c9564da785d92fa1991aaf14cecc0fbc3808012ef265792f0fa30ee2cb"
LISTED = f'[[tasks]]\nname = "team/hello"\ndigest = "{GOLDEN}"\n'


async def test_the_list_item_has_every_field_of_the_contract(publish, database):
    await publish(toml=SPLITS % LISTED + 'test = ["team/hello"]\ndev = []\n')
    async with database.session() as session:
        items = (await service.list_page(session, ANA, page())).items
        detail = await service.get(session, ANA, "team/set")
    item = {
        "name": "team/set",
        "type": "environment",
        "visibility": "private",
        "splits": ["dev", "test"],
        "authors": ["Ana Ruiz"],
        "versions": ["1"],
        "version_count": 1,
        "default_version": "1",
        "catalog_updated_at": "2026-11-30T12:00:00.000Z",
    }
    assert items == [item]
    assert detail == item | {"description": "D", "configs": []}


async def test_a_task_object_has_every_field_of_the_contract(publish, database):
    version, _ = await publish(toml=SPLITS % LISTED + 'test = ["team/*"]\ndev = []\n')
    async with database.session() as session:
        for ref in ("1", version["revision"]):
            found = await service.tasks_page(session, ANA, "team/set", ref, page(), split="test")
            assert found.items == [
                {
                    "name": "team/hello",
                    "task_id": "hello",
                    "version": "1",
                    "revision": version["revision"],
                    "digest": GOLDEN,
                    "split": "test",
                    "task_ref": {
                        "kind": "task",
                        "dataset": "team/set",
                        "version": "1",
                        "task_id": "hello",
                        "digest": GOLDEN,
                    },
                }
            ]
        assert (await service.tasks_page(session, ANA, "team/set", "1", page(), split="dev")).items == []
        with pytest.raises(DatasetSelectionNotFound):
            await service.tasks_page(session, ANA, "team/set", "1", page(), split="train")


async def test_tasks_come_by_name_in_byte_order_and_page_by_page(publish, database, golden):
    more = {f"{name}/{path}": data for name in ("Zed", "b-x", "b.x", "b1", "a") for path, data in golden.items()}
    await publish(**{path.replace("/", "__"): data for path, data in more.items()})
    seen: list[str] = []
    cursor = None
    async with database.session() as session:
        while True:
            found = await service.tasks_page(session, ANA, "team/set", "1", page(2, cursor))
            seen += [item["task_id"] for item in found.items]
            cursor = found.next_cursor
            if cursor is None:
                break
    assert seen == ["Zed", "a", "b-x", "b.x", "b1", "hello"]


async def test_lists_are_newest_first_filtered_and_paged(publish, database):
    for name in ("team/one", "team/two", "team/T_wo3"):
        await publish(name=name)
    await publish("2", name="team/one", **{"hello__README.md": b"2"})
    async with database.session() as session:
        first = await service.list_page(session, ANA, page(2))
        assert [item["name"] for item in first.items] == ["team/one", "team/T_wo3"]
        rest = await service.list_page(session, ANA, page(2, first.next_cursor))
        assert ([item["name"] for item in rest.items], rest.next_cursor) == (["team/two"], None)
        assert [item["name"] for item in (await service.list_page(session, ANA, page(), q="t_W")).items] == [
            "team/T_wo3"
        ]
        assert (await service.list_page(session, ANA, page(), dataset_type="trajectory")).items == []
        with pytest.raises(InvalidRequest):
            await service.list_page(session, ANA, page(), dataset_type="model")
        versions = await service.versions_page(session, ANA, "team/one", page(1))
        assert [item["version"] for item in versions.items] == ["2"]
        older = await service.versions_page(session, ANA, "team/one", page(1, versions.next_cursor))
        assert ([item["version"] for item in older.items], older.next_cursor) == (["1"], None)
        exact = await service.versions_page(session, ANA, "team/one", page(), label="1")
        assert [item["version"] for item in exact.items] == ["1"]
        assert (await service.versions_page(session, ANA, "team/one", page(), label="9")).items == []
        with pytest.raises(DatasetNotFound):
            await service.versions_page(session, ANA, "team/none", page(), label="1")


async def test_a_published_task_comes_back_with_its_files(publish, database, blobs, golden):
    await publish(**{"hello__LICENSE": b"not stored", "hello__tests__x.pyc": b"not stored"})
    async with database.session() as session:
        chosen = (await service.select(session, ANA, {"dataset": "team/set@1"})).tasks[0]
    task, files = await service.load(blobs, chosen.files_sha256, chosen.name)
    assert files == golden
    assert (task.name, task.digest) == ("team/hello", chosen.digest)
    assert await service.task_files(blobs, chosen.files_sha256) == golden


async def test_a_folder_is_published_by_the_same_rules(database, blobs, clock, golden, tmp_path):
    for path, data in golden.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    for created in (True, False):
        async with database.transaction() as session:
            shown, new = await service.publish_folder(
                session,
                ANA,
                folder=tmp_path,
                name="team/hello",
                version="1",
                visibility="public",
                blobs=blobs,
                clock=clock,
            )
        assert (shown["task_count"], new) == (1, created)
