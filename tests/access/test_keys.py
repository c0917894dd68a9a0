"""Keys: made once, stored as a hash, valid until they expire or are revoked."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta

import pytest
from sqlalchemy import text

from tollbar.access import service as access
from tollbar.access.errors import ProjectAccessDenied, Unauthenticated, WorkspaceAccessDenied
from tollbar.access.principal import PROJECT_AUTOMATION, READ_ONLY, AccessDenied, Capability
from tollbar.kit.errors import InvalidRequest, NotFound


@pytest.fixture
async def system(database, clock):
    """The server's own principal in the first project."""
    async with database.transaction() as session:
        return await access.ensure_first_project(session, clock)


async def new_key(database, actor, clock, preset="Project automation", **facts):
    async with database.transaction() as session:
        return await access.create_key(session, actor, preset=preset, name="ci", clock=clock, **facts)


async def authenticated(database, secret, clock, workspace=None, project=None):
    async with database.transaction() as session:
        return await access.authenticate(session, secret, workspace=workspace, project=project, clock=clock)


async def only_row(database):
    async with database.session() as session:
        return (await session.execute(text("SELECT * FROM api_key"))).mappings().one()


async def test_a_new_key_opens_its_project_with_the_rights_of_its_preset(database, clock, system):
    for preset, rights in (("Project automation", PROJECT_AUTOMATION), ("Read only", READ_ONLY)):
        key = await new_key(database, system, clock, preset)
        principal = await authenticated(database, key.secret, clock)
        assert principal.capabilities == rights
        assert (principal.kind, principal.key_id) == ("project", key.key_id)
        assert (principal.workspace_id, principal.project_id) == (system.workspace_id, system.project_id)


async def test_a_secret_has_its_prefix_and_256_random_bits_and_only_its_hash_is_stored(database, clock, system):
    key = await new_key(database, system, clock)
    assert re.fullmatch(r"tbp_[0-9a-f]{64}", key.secret)
    row = await only_row(database)
    assert row["secret_sha256"] == hashlib.sha256(key.secret.encode()).hexdigest()
    assert key.secret not in repr(dict(row))
    assert row["shown"] == key.secret[:10]


@pytest.mark.parametrize("wrong", ["tbp_" + "0" * 64, "", "tbp_", "\ud800", "x" * 512])
async def test_a_secret_that_nobody_was_given_is_refused(database, clock, wrong):
    with pytest.raises(Unauthenticated) as refusal:
        await authenticated(database, wrong, clock)
    assert refusal.value.presented


async def test_a_key_that_was_revoked_is_refused_and_keeps_its_first_moment(database, clock, system):
    key = await new_key(database, system, clock)
    for _ in range(2):
        async with database.transaction() as session:
            await access.revoke_key(session, system, key.key_id, clock)
        clock.advance(3600)
    with pytest.raises(Unauthenticated):
        await authenticated(database, key.secret, clock)
    async with database.session() as session:
        (shown,) = await access.list_keys(session, system)
    assert shown["revoked_at"] == "2026-11-30T12:00:00.000Z"


async def test_a_key_ends_at_the_very_moment_of_its_expiry(database, clock, system):
    key = await new_key(database, system, clock, expires_at=clock.now() + timedelta(seconds=60))
    clock.advance(59.999)
    await authenticated(database, key.secret, clock)
    clock.advance(0.001)
    with pytest.raises(Unauthenticated):
        await authenticated(database, key.secret, clock)


async def test_headers_that_name_another_workspace_or_project_are_refused(database, clock, system):
    key = await new_key(database, system, clock)
    own = {"workspace": system.workspace_id, "project": system.project_id}
    assert (await authenticated(database, key.secret, clock, **own)).key_id == key.key_id
    with pytest.raises(WorkspaceAccessDenied):
        await authenticated(database, key.secret, clock, workspace="ws_other", project=system.project_id)
    with pytest.raises(ProjectAccessDenied):
        await authenticated(database, key.secret, clock, workspace=system.workspace_id, project="prj_other")


async def test_the_last_use_is_written_at_most_once_a_minute(database, clock, system):
    key = await new_key(database, system, clock)
    assert (await only_row(database))["last_used_at"] is None
    first = clock.now()
    for advance_s, expected in ((0, first), (59, first), (1, first + timedelta(seconds=60))):
        clock.advance(advance_s)
        await authenticated(database, key.secret, clock)
        assert (await only_row(database))["last_used_at"] == expected


async def test_the_list_shows_every_key_of_the_project_newest_first_and_no_secret(database, clock, system):
    first = await new_key(database, system, clock)
    second = await new_key(database, system, clock, "Read only")
    async with database.session() as session:
        listed = await access.list_keys(session, system)
    assert [item["key_id"] for item in listed] == [second.key_id, first.key_id]
    assert listed[0]["preset"] == "Read only"
    assert first.secret not in repr(listed)
    assert second.secret not in repr(listed)


async def test_keys_of_another_project_are_neither_listed_nor_revoked(database, clock, system):
    key = await new_key(database, system, clock)
    stranger = access.system_principal(system.workspace_id, "prj_other")
    async with database.transaction() as session:
        assert await access.list_keys(session, stranger) == []
        with pytest.raises(NotFound):
            await access.revoke_key(session, stranger, key.key_id, clock)
    await authenticated(database, key.secret, clock)


async def test_no_key_makes_lists_or_ends_keys_or_signs_a_browser_in(database, clock, system):
    key = await new_key(database, system, clock)
    principal = await authenticated(database, key.secret, clock)
    async with database.transaction() as session:
        for attempt in (
            access.create_key(session, principal, preset="Read only", name="more", clock=clock),
            access.list_keys(session, principal),
            access.revoke_key(session, principal, key.key_id, clock),
            access.create_sign_in_link(session, principal, clock),
        ):
            with pytest.raises(AccessDenied) as refusal:
                await attempt
            assert refusal.value.facts == {"missing_capability": "keys.manage"}


async def test_a_key_needs_a_known_preset_and_a_printable_name(database, clock, system):
    async with database.transaction() as session:
        with pytest.raises(InvalidRequest) as refusal:
            await access.create_key(session, system, preset="Root", name="a\nb", clock=clock)
    assert [field["path"] for field in refusal.value.facts["fields"]] == ["preset", "name"]


async def test_a_right_that_this_version_does_not_know_grants_nothing(database, clock, system):
    key = await new_key(database, system, clock, "Read only")
    async with database.transaction() as session:
        await session.execute(text("UPDATE api_key SET capabilities = '{jobs.read,future.power}'"))
    assert (await authenticated(database, key.secret, clock)).capabilities == {Capability.JOBS_READ}


async def test_who_am_i_is_the_object_of_the_contract(database, clock, system):
    key = await new_key(database, system, clock)
    principal = await authenticated(database, key.secret, clock)
    async with database.session() as session:
        answer = await access.who_am_i(session, principal)
    assert answer == {
        "auth_method": "api_key",
        "key": {"key_id": key.key_id, "kind": "project", "preset": "Project automation", "expires_at": None},
        "workspace": {"workspace_id": system.workspace_id, "name": "Main"},
        "project": {"project_id": system.project_id, "workspace_id": system.workspace_id, "name": "Default"},
        "capabilities": [
            "artifacts.download",
            "billing.read",
            "datasets.read",
            "datasets.write",
            "jobs.read",
            "jobs.run",
            "jobs.stop",
            "profiles.read",
            "profiles.write",
            "project.read",
            "runners.read",
        ],
    }
