"""A secret can be written, used and removed; nothing that reads the database without the key learns a word of it."""

from __future__ import annotations

import asyncio
import base64
import os
import stat

import pytest
from sqlalchemy import text

from tollbar.access import service as access
from tollbar.vault.errors import InvalidSecret, VaultKeyMalformed, VaultKeyWrong
from tollbar.vault.keys import VaultKey, load_key
from tollbar.vault.redactor import Redactor
from tollbar.vault.service import Vault

VALUE = "canary-5f2c9d71-value"


@pytest.fixture
async def actor(database, clock):
    async with database.transaction() as session:
        return await access.ensure_first_project(session, clock)


@pytest.fixture
def vault() -> Vault:
    return Vault(VaultKey(os.urandom(32)), Redactor())


async def put(database, vault, actor, clock, name="API_KEY", value=VALUE, **more):
    async with database.transaction() as session:
        return await vault.put(session, actor, name, value, clock=clock, **more)


async def use(database, vault, actor, name="API_KEY", **more):
    async with database.session() as session:
        return await vault.use(session, actor.workspace_id, name, **more)


@pytest.mark.requirement("G-TEAM-S5", "G-TEAM-S8")
async def test_a_secret_comes_back_to_the_one_who_uses_it_and_to_nobody_who_lists_it(database, vault, actor, clock):
    view = await put(database, vault, actor, clock, hosts=["api.example.com"])
    async with database.session() as session:
        listed = await vault.list(session, actor)
    used = await use(database, vault, actor)

    assert used.value == VALUE
    assert used.hosts == ("api.example.com",)
    assert listed == [view]
    # Neither a part of it, nor how long it is, nor a hash.
    assert set(vars(view)) == {"name", "version", "hosts", "shared", "made_by", "created_at"}
    assert VALUE not in repr(view) + repr(listed) + repr(used) + repr(vault)


async def test_no_column_of_the_database_holds_a_value(database, vault, actor, clock):
    await put(database, vault, actor, clock)
    async with database.session() as session:
        rows = (await session.execute(text("SELECT to_jsonb(s)::text FROM vault_secret s"))).scalars().all()
        sealed = (await session.execute(text("SELECT sealed FROM vault_secret"))).scalars().all()

    assert not any(VALUE in row for row in rows)
    assert not any(VALUE.encode() in data for data in sealed)


async def test_a_new_version_leaves_the_old_one_to_those_who_began_with_it(database, vault, actor, clock):
    await put(database, vault, actor, clock)
    second = await put(database, vault, actor, clock, value="another-value-9")

    assert second.version == 2
    assert (await use(database, vault, actor)).value == "another-value-9"
    assert (await use(database, vault, actor, version=1)).value == VALUE


async def test_a_removed_secret_is_gone_in_every_version_and_its_name_goes_on_counting(database, vault, actor, clock):
    await put(database, vault, actor, clock)
    async with database.transaction() as session:
        assert await vault.revoke(session, actor, "API_KEY", clock=clock)
        assert not await vault.revoke(session, actor, "API_KEY", clock=clock)

    assert await use(database, vault, actor) is None
    assert await use(database, vault, actor, version=1) is None
    async with database.session() as session:
        assert (await session.execute(text("SELECT count(*) FROM vault_secret WHERE sealed IS NOT NULL"))).scalar() == 0
    assert (await put(database, vault, actor, clock)).version == 2


async def test_a_secret_belongs_to_its_workspace_and_to_its_owner(database, vault, actor, clock):
    await put(database, vault, actor, clock, owner="profile:prof_1:1")

    assert await use(database, vault, actor) is None
    assert (await use(database, vault, actor, owner="profile:prof_1:1")).value == VALUE
    async with database.session() as session:
        assert await vault.use(session, "ws_other", "API_KEY", owner="profile:prof_1:1") is None


async def test_writers_at_once_get_a_version_each(database, vault, actor, clock):
    views = await asyncio.gather(*(put(database, vault, actor, clock) for _ in range(8)))

    assert sorted(view.version for view in views) == list(range(1, 9))


async def test_another_key_opens_neither_the_vault_nor_a_secret(database, vault, actor, clock):
    await put(database, vault, actor, clock)
    stranger = Vault(VaultKey(os.urandom(32)), Redactor())

    async with database.session() as session:
        with pytest.raises(VaultKeyWrong):
            await stranger.open(session)
        with pytest.raises(VaultKeyWrong):
            await stranger.use(session, actor.workspace_id, "API_KEY")
    with pytest.raises(VaultKeyWrong):
        await put(database, stranger, actor, clock, name="SECOND")


async def test_a_vault_without_secrets_takes_any_key(database, vault):
    async with database.session() as session:
        await vault.open(session)


async def test_ciphertexts_cannot_trade_places(database, vault, actor, clock):
    await put(database, vault, actor, clock, name="MINE")
    await put(database, vault, actor, clock, name="THEIRS", value="their-value-000")
    async with database.transaction() as session:
        move = "UPDATE vault_secret SET sealed = (SELECT sealed FROM vault_secret WHERE name = 'THEIRS')"
        await session.execute(text(f"{move} WHERE name = 'MINE'"))

    async with database.session() as session:
        with pytest.raises(VaultKeyWrong):
            await vault.use(session, actor.workspace_id, "MINE")


async def test_an_opened_vault_redacts_what_others_wrote(database, vault, actor, clock):
    await put(database, vault, actor, clock)
    other = Vault(vault.key, Redactor())
    async with database.session() as session:
        await other.open(session)

    assert other.redactor.text(f"key={VALUE}") == "key=[redacted:API_KEY]"


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A" * 129, "A\n", "Ä"])
async def test_a_name_of_another_form_is_refused(database, vault, actor, clock, name):
    with pytest.raises(InvalidSecret, match="name"):
        await put(database, vault, actor, clock, name=name)


@pytest.mark.parametrize("value", ["", "1234567", "x" * 16_385, "nul\0inside", "lone\ud800surrogate"])
async def test_a_value_of_another_form_is_refused_without_a_word_of_it(database, vault, actor, clock, value):
    with pytest.raises(InvalidSecret) as caught:
        await put(database, vault, actor, clock, value=value)

    assert not value or value not in str(caught.value.body())
    assert await use(database, vault, actor) is None


def test_the_key_file_is_made_once_and_for_its_owner_alone(tmp_path):
    first = load_key(tmp_path, None)

    assert load_key(tmp_path, None) == first
    assert stat.S_IMODE((tmp_path / "vault.key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["vault.key"]
    assert base64.b64decode((tmp_path / "vault.key").read_text()) not in repr(first).encode()


def test_the_key_of_the_setting_wins(tmp_path):
    text_key = base64.b64encode(bytes(range(32))).decode()

    assert load_key(tmp_path, text_key) == VaultKey(bytes(range(32)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["", "short", base64.b64encode(b"x" * 31).decode(), "*" * 44])
def test_a_key_of_another_form_is_refused_and_the_file_is_left_alone(tmp_path, wrong):
    with pytest.raises(VaultKeyMalformed, match="TOLLBAR_VAULT_KEY"):
        load_key(tmp_path, wrong)
    (tmp_path / "vault.key").write_text(wrong)
    with pytest.raises(VaultKeyMalformed, match=r"vault\.key"):
        load_key(tmp_path, None)
    assert (tmp_path / "vault.key").read_text() == wrong
