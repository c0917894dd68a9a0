"""Signing a browser in: one link, one use, ten minutes; a session that ends when idle, old, or signed out."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from sqlalchemy import text

from tollbar.access import service as access
from tollbar.access.errors import SignInLinkSpent
from tollbar.access.principal import Capability

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@pytest.fixture
async def link(database, clock):
    """A fresh sign-in link's token."""
    async with database.transaction() as session:
        actor = await access.ensure_first_project(session, clock)
        return await access.create_sign_in_link(session, actor, clock)


async def redeemed(database, token, clock):
    async with database.transaction() as session:
        return await access.redeem_sign_in_link(session, token, clock)


async def person(database, cookie, clock):
    async with database.transaction() as session:
        return await access.session_principal(session, cookie, clock)


async def test_a_link_signs_in_once_and_looking_at_it_uses_nothing(database, clock, link):
    for _ in range(3):
        async with database.session() as session:
            assert await access.sign_in_link_is_open(session, link, clock)
    await redeemed(database, link, clock)
    async with database.session() as session:
        assert not await access.sign_in_link_is_open(session, link, clock)
    with pytest.raises(SignInLinkSpent):
        await redeemed(database, link, clock)


async def test_of_many_browsers_that_use_a_link_at_once_one_is_signed_in(database, clock, link):
    found = await asyncio.gather(*(redeemed(database, link, clock) for _ in range(8)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in found) == ["SessionToken"] + ["SignInLinkSpent"] * 7


async def test_a_link_is_dead_after_ten_minutes(database, clock, link):
    clock.advance(600)
    with pytest.raises(SignInLinkSpent):
        await redeemed(database, link, clock)


async def test_a_signed_in_person_has_every_right_in_the_project_of_the_link(database, clock, link):
    token = await redeemed(database, link, clock)
    principal = await person(database, token.value, clock)
    assert principal.kind == "session"
    assert principal.capabilities == frozenset(Capability)
    async with database.session() as session:
        answer = await access.who_am_i(session, principal)
    assert (answer["auth_method"], answer["key"], answer["project"]["name"]) == ("session", None, "Default")


async def test_of_link_and_cookie_only_hashes_are_stored(database, clock, link):
    token = await redeemed(database, link, clock)
    async with database.session() as session:
        links = (await session.execute(text("SELECT * FROM sign_in_link"))).mappings().one()
        sessions = (await session.execute(text("SELECT * FROM console_session"))).mappings().one()
    assert links["token_sha256"] == hashlib.sha256(link.encode()).hexdigest()
    assert sessions["cookie_sha256"] == hashlib.sha256(token.value.encode()).hexdigest()
    assert link not in repr(dict(links))
    assert token.value not in repr(dict(sessions))


async def test_a_session_ends_after_twelve_idle_hours_and_use_keeps_it_alive(database, clock, link):
    token = await redeemed(database, link, clock)
    for _ in range(3):
        clock.advance(11.9 * HOUR_S)
        assert await person(database, token.value, clock) is not None
    clock.advance(12 * HOUR_S)
    assert await person(database, token.value, clock) is None


async def test_a_session_ends_after_fourteen_days_however_busy_it_is(database, clock, link):
    token = await redeemed(database, link, clock)
    assert (token.expires_at - clock.now()).total_seconds() == 14 * DAY_S
    for _ in range(14 * 4 - 1):
        clock.advance(DAY_S / 4)
        assert await person(database, token.value, clock) is not None
    clock.advance(DAY_S / 4)
    assert await person(database, token.value, clock) is None


async def test_signing_out_ends_the_session_at_once(database, clock, link):
    token = await redeemed(database, link, clock)
    async with database.transaction() as session:
        await access.sign_out(session, token.value, clock)
    assert await person(database, token.value, clock) is None


@pytest.mark.parametrize("cookie", ["", "tbs_unknown", "\ud800"])
async def test_a_cookie_that_nobody_was_given_is_nobody(database, clock, cookie):
    assert await person(database, cookie, clock) is None
