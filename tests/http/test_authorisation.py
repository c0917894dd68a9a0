"""Who is let in, where, and with which rights: keys, scope headers, and every preset on every route."""

from __future__ import annotations

import pytest
from tests.http.conftest import AUTOMATION, READ_ONLY, STRANGER, code_of

from tollbar.access import service as access
from tollbar.access.principal import PRESETS

WRITES = {"jobs.run", "jobs.stop", "datasets.write", "profiles.write"}
"""What the preset Read only lacks of the rights that keys can have (contract, section 3)."""


async def test_a_request_without_a_key_is_a_401_that_says_how(world):
    async with world.client(None) as client:
        answer = await client.get("/v1/me")
    assert (answer.status_code, code_of(answer)) == (401, "UNAUTHENTICATED")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value", ["Bearer wrong", "Bearer tbp_0", "bearer  x y", "Bearer \u00e9", "Bearer " + "a" * 600, "BEARER 'or'1"]
)
async def test_a_key_that_nobody_was_given_is_a_401_that_says_so(world, value):
    async with world.client(None) as client:
        answer = await client.get("/v1/me", headers={"Authorization": value.encode("latin-1")})
    assert (answer.status_code, code_of(answer)) == (401, "UNAUTHENTICATED")
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert value.partition(" ")[2].strip() not in answer.text


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz"])
async def test_other_credentials_are_no_key(world, value):
    async with world.client(None, Authorization=value) as client:
        answer = await client.get("/v1/me")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_the_scheme_is_read_in_any_case_and_blanks_around_the_key_are_cut(world):
    for value in (f"bearer {world.secrets[AUTOMATION]}", f"BEARER   {world.secrets[AUTOMATION]}  "):
        async with world.client(None, Authorization=value) as client:
            assert (await client.get("/v1/me")).status_code == 200


async def test_a_revoked_key_is_a_401_from_the_next_request_on(world):
    async with world.client() as client:
        assert (await client.get("/v1/me")).status_code == 200
        async with world.deps.database.transaction() as session:
            await access.revoke_key(session, world.actor, world.key_ids[AUTOMATION], world.deps.clock)
        answer = await client.get("/v1/me")
    assert (answer.status_code, code_of(answer)) == (401, "UNAUTHENTICATED")


async def test_scope_headers_may_name_the_own_workspace_and_project_and_no_other(world):
    own = {"X-Workspace-ID": world.actor.workspace_id, "X-Project-ID": world.actor.project_id}
    for headers, expected in (
        ({}, 200),
        (own, 200),
        ({"X-Workspace-ID": own["X-Workspace-ID"]}, 200),
        ({"X-Project-ID": own["X-Project-ID"]}, 200),
        ({**own, "X-Workspace-ID": "ws_other"}, "WORKSPACE_ACCESS_DENIED"),
        ({**own, "X-Project-ID": "prj_other"}, "PROJECT_ACCESS_DENIED"),
        ({"X-Workspace-ID": "ws_other", "X-Project-ID": "prj_other"}, "WORKSPACE_ACCESS_DENIED"),
        ({**own, "X-Project-ID": ""}, "PROJECT_ACCESS_DENIED"),
    ):
        for path in ("/v1/me", "/api/v1/job"):
            async with world.client(**headers) as client:
                answer = await client.get(path)
            if expected == 200:
                assert answer.status_code == 200
            else:
                assert (answer.status_code, code_of(answer)) == (403, expected)


async def test_who_am_i_and_what_i_reach(world):
    async with world.client(READ_ONLY) as client:
        me = (await client.get("/v1/me")).json()
        workspaces = (await client.get("/v1/workspaces")).json()
        projects = (await client.get(f"/v1/workspaces/{world.actor.workspace_id}/projects")).json()
        foreign = await client.get("/v1/workspaces/ws_other/projects")
    assert me["auth_method"] == "api_key"
    assert me["key"]["preset"] == READ_ONLY
    assert me["workspace"] in workspaces["items"]
    assert projects == {"items": [me["project"]]}
    assert me["project"]["workspace_id"] == me["workspace"]["workspace_id"]
    assert me["capabilities"] == sorted(PRESETS[READ_ONLY])
    assert (foreign.status_code, code_of(foreign)) == (403, "WORKSPACE_ACCESS_DENIED")


def _operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


async def test_every_preset_may_do_on_every_route_what_its_rights_say_and_nothing_else(world):
    async with world.client() as client:
        document = (await client.get("/v1/openapi.json")).json()
    judged = 0
    for preset in PRESETS:
        async with world.client(preset) as client:
            for method, path, operation in _operations(document):
                if operation["security"] == []:
                    continue
                answer = await client.request(method, path.replace("{", "").replace("}", ""))
                missing = [name for name in operation["x-capabilities"] if preset == READ_ONLY and name in WRITES]
                if missing:
                    assert (answer.status_code, code_of(answer)) == (403, "ACCESS_DENIED"), (method, path)
                    assert answer.json()["missing_capability"] == missing[0]
                elif answer.status_code == 403:
                    assert "/projects" in path  # no key reaches the workspace of that name
                else:
                    assert answer.status_code in {200, 400, 404, 422}, (method, path, answer.text)
                judged += 1
    assert judged > 50


async def test_without_a_key_every_route_of_the_document_but_the_document_is_a_401(world):
    async with world.client(None) as client:
        document = (await client.get("/v1/openapi.json")).json()
        open_routes = [path for _, path, operation in _operations(document) if operation["security"] == []]
        assert open_routes == ["/v1/openapi.json"]
        for method, path, operation in _operations(document):
            if operation["security"]:
                for prefix in ("", "/api"):
                    answer = await client.request(method, prefix + path.replace("{", "").replace("}", ""))
                    assert (answer.status_code, code_of(answer)) == (401, "UNAUTHENTICATED"), (method, path)


async def test_objects_of_another_project_are_404s_of_their_kind(world):
    job = await world.submit()
    trial = await world.trial(job["job_id"])
    await world.artifact(trial, "a.txt", b"secret")
    async with world.client() as client:
        listed = (await client.get(f"/v1/trials/{trial}/artifacts")).json()["items"]
    file = f"/v1/trials/{trial}/artifacts/{listed[0]['artifact_id']}"
    async with world.client(STRANGER) as client:
        for method, path, code in (
            ("GET", f"/v1/job/{job['job_id']}", "JOB_NOT_FOUND"),
            ("GET", f"/v1/job/{job['job_id']}/result", "JOB_NOT_FOUND"),
            ("GET", f"/v1/job/{job['job_id']}/logs", "JOB_NOT_FOUND"),
            ("GET", f"/v1/job/{job['job_id']}/events", "JOB_NOT_FOUND"),
            ("GET", f"/v1/trials/{trial}/logs", "TRIAL_NOT_FOUND"),
            ("POST", f"/v1/job/{job['job_id']}/stop", "JOB_NOT_FOUND"),
            ("POST", f"/v1/job/{job['job_id']}/pause", "JOB_NOT_FOUND"),
            ("GET", f"/v1/trials/{trial}", "TRIAL_NOT_FOUND"),
            ("GET", f"/v1/trials/{trial}/result", "TRIAL_NOT_FOUND"),
            ("GET", f"/v1/trials/{trial}/artifacts", "TRIAL_NOT_FOUND"),
            ("GET", f"{file}/content", "TRIAL_NOT_FOUND"),
            ("GET", f"{file}/window", "TRIAL_NOT_FOUND"),
            ("GET", "/v1/datasets/dGVhbS9oZWxsbw", "DATASET_NOT_FOUND"),
            ("GET", "/v1/profiles/dG9sbGJhci9vcmFjbGU/detail", "PROFILE_NOT_FOUND"),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, code_of(answer)) == (404, code), path
        for path in ("/v1/job", "/v1/trials", "/v1/datasets", "/v1/profiles", f"/v1/trials?job_id={job['job_id']}"):
            assert (await client.get(path)).json()["items"] == []
