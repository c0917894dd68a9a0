"""Datasets, runners and profiles over HTTP."""

from __future__ import annotations

import gzip

from tests.http.conftest import DATASET, b64, code_of, dataset_tar, tar_of

PATH = f"/v1/datasets/{b64(DATASET)}"


async def test_a_published_version_shows_in_the_list_the_dataset_its_versions_and_its_tasks(world):
    published = await world.publish()
    async with world.client() as client:
        listed = (await client.get("/v1/datasets", params={"q": "HELL", "type": "environment"})).json()
        dataset = (await client.get(PATH)).json()
        versions = (await client.get(f"{PATH}/versions", params={"version": "1"})).json()
        by_label = (await client.get(f"{PATH}/versions/1")).json()
        by_revision = (await client.get(f"{PATH}/versions/{published['revision']}")).json()
        tasks = (await client.get(f"{PATH}/versions/1/tasks")).json()
    assert listed["observed_at"] == "2026-11-30T12:00:00.000Z"
    (item,) = listed["items"]
    assert {"name", "type", "versions", "visibility", "splits", "authors", "version_count"} <= set(item)
    assert dataset["name"] == DATASET
    (version,) = versions["items"]
    assert (version["name"], version["version"], len(version["manifest_sha256"])) == (DATASET, "1", 64)
    assert version == by_label == by_revision == published
    assert [task["task_id"] for task in tasks["items"]] == ["one", "two"]
    assert set(tasks["items"][0]["task_ref"]) == {"kind", "dataset", "version", "task_id", "digest"}


async def test_a_task_ref_and_a_dataset_ref_can_be_submitted_as_they_are(world):
    version = await world.publish()
    async with world.client() as client:
        task = (await client.get(f"{PATH}/versions/1/tasks")).json()["items"][0]
        job = (await client.post("/v1/job", json={"task_ref": task["task_ref"]})).json()
        ref = {"kind": "dataset", **{name: version[name] for name in ("name", "version", "manifest_sha256")}}
        whole = (await client.post("/v1/job", json={"dataset_ref": ref})).json()
    assert (job["total_tasks"], whole["total_tasks"]) == (1, 2)


async def test_the_same_content_again_is_a_200_and_other_content_a_409(world, ask):
    first = await world.publish()
    url = f"{PATH}/versions?version=1"
    for archive in (dataset_tar("one", "two"), gzip.compress(dataset_tar("one", "two"))):
        again = await ask("POST", url, content=archive)
        assert (again.status_code, again.json()) == (200, first)
    other = await ask("POST", url, content=dataset_tar("one"))
    assert (other.status_code, code_of(other)) == (409, "DATASET_MANIFEST_CONFLICT")


async def test_an_upload_that_is_no_dataset_is_a_422_and_leaves_nothing(world, ask, tmp_path):
    url = f"{PATH}/versions?version=1"
    for body in (b"", b"no tar", tar_of({}), tar_of({"one/task.toml": b"nonsense = ["}), gzip.compress(b"x")[:-4]):
        answer = await ask("POST", url, content=body)
        assert (answer.status_code, code_of(answer)) == (422, "UNSUPPORTED_TASK_FORMAT")
    assert (await ask("GET", "/v1/datasets")).json()["items"] == []
    assert list((tmp_path / "uploads").iterdir()) == []


async def test_a_name_label_or_visibility_that_cannot_be_is_a_422_that_names_it(ask):
    for name, query, path in (
        ("noslash", "version=1", "name"),
        (DATASET, "version=a/b", "version"),
        (DATASET, "version=1&visibility=secret", "visibility"),
    ):
        answer = await ask("POST", f"/v1/datasets/{b64(name)}/versions?{query}", content=dataset_tar("one"))
        assert (answer.status_code, code_of(answer)) == (422, "INVALID_REQUEST")
        assert [field["path"] for field in answer.json()["fields"]] == [path]


async def test_what_the_catalogue_does_not_have_is_a_404_of_its_kind(world, ask):
    await world.publish()
    for path, code in (
        (f"/v1/datasets/{b64('no/such')}", "DATASET_NOT_FOUND"),
        (f"/v1/datasets/{b64('no/such')}/versions", "DATASET_NOT_FOUND"),
        (f"/v1/datasets/{b64('no/such')}/versions/1/tasks", "DATASET_NOT_FOUND"),
        (f"{PATH}/versions/9", "DATASET_REVISION_NOT_FOUND"),
        (f"{PATH}/versions/9/tasks", "DATASET_REVISION_NOT_FOUND"),
        (f"{PATH}/versions/1/tasks?split=dev", "DATASET_SELECTION_NOT_FOUND"),
        (f"/v1/profiles/{b64('no/such')}/versions", "PROFILE_NOT_FOUND"),
        (f"/v1/profiles/{b64('no/such')}/detail", "PROFILE_NOT_FOUND"),
        (f"/v1/profiles/{b64('tollbar/oracle')}/detail?version=9", "PROFILE_NOT_FOUND"),
    ):
        answer = await ask("GET", path)
        assert (answer.status_code, code_of(answer)) == (404, code), path


async def test_the_seeded_runners_are_listed_with_backend_and_prices(ask):
    listed = (await ask("GET", "/v1/runners")).json()["items"]
    assert [item["name"] for item in listed] == ["envhub/base", "envhub/docker", "envhub/metered"]
    shown = {
        "name",
        "revision",
        "source_ref",
        "visibility",
        "created_at",
        "backend",
        "capabilities",
        "prices",
        "limits",
    }
    assert set(listed[0]) >= shown


async def test_the_seeded_profiles_are_listed_with_versions_and_the_spec_that_was_stored(ask):
    listed = (await ask("GET", "/v1/profiles")).json()["items"]
    assert {item["name"] for item in listed} >= {"tollbar/oracle", "tollbar/nop"}
    assert {"name", "version_count", "default_version", "updated_at"} <= set(listed[0])
    path = f"/v1/profiles/{b64('tollbar/oracle')}"
    for archived in ("true", "false", "1", "0"):
        versions = (await ask("GET", f"{path}/versions?include_archived={archived}&limit=100")).json()["items"]
        assert [(item["version"], item["is_default"]) for item in versions] == [("1", True)]
    wrong = await ask("GET", f"{path}/versions?include_archived=perhaps")
    assert (wrong.status_code, code_of(wrong)) == (422, "INVALID_REQUEST")
    for query in ("", "?version=1"):
        detail = (await ask("GET", f"{path}/detail{query}")).json()
        assert detail["spec"]["name"] == "tollbar/oracle"
        assert len(detail["sha256"]) == 64
