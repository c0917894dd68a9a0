"""Reading and writing through a pool."""

import asyncio

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from tollbar.datasets.store import unhurried
from tollbar.db.session import limited_url, open_database, psycopg_url

COUNT = sa.text("SELECT count(*) FROM note")
ADD = sa.text("INSERT INTO note VALUES (:secret)")


@pytest.fixture
async def notes(database):
    async with database.transaction() as session:
        await session.execute(sa.text("CREATE TABLE note (secret text PRIMARY KEY)"))
    return database


async def count(database):
    async with database.session() as session:
        return await session.scalar(COUNT)


async def test_a_transaction_is_kept_and_a_reading_session_keeps_nothing(notes):
    async with notes.transaction() as session:
        await session.execute(ADD, {"secret": "one"})
    async with notes.session() as session:
        await session.execute(ADD, {"secret": "two"})
    assert await count(notes) == 1


async def test_a_glance_holds_no_transaction_and_the_next_user_of_its_connection_has_one(database_url):
    database = open_database(database_url, pool_size=1)
    watcher = open_database(database_url, pool_size=1)
    asks = sa.text("SELECT state FROM pg_stat_activity WHERE pid = :pid")
    try:
        async with watcher.session() as watching, database.glance() as session:
            pid = await session.scalar(sa.text("SELECT pg_backend_pid()"))
            assert await watching.scalar(asks, {"pid": pid}) == "idle"
        with pytest.raises(ZeroDivisionError):
            async with database.transaction() as session:
                assert await session.scalar(sa.text("SELECT pg_backend_pid()")) == pid
                await session.execute(sa.text("CREATE TABLE undone ()"))
                raise ZeroDivisionError
        async with database.session() as session:
            assert await session.scalar(sa.text("SELECT to_regclass('undone')")) is None
    finally:
        await database.close()
        await watcher.close()


async def test_an_error_undoes_the_whole_transaction(notes):
    with pytest.raises(ZeroDivisionError):
        async with notes.transaction() as session:
            await session.execute(ADD, {"secret": "one"})
            raise ZeroDivisionError
    assert await count(notes) == 0


async def test_the_text_of_an_error_holds_no_parameters(notes):
    with pytest.raises(IntegrityError) as failed:
        async with notes.transaction() as session:
            await session.execute(sa.text("INSERT INTO note SELECT NULL WHERE :secret <> ''"), {"secret": "hunter2"})
    assert "hunter2" not in str(failed.value)


async def test_each_test_has_a_database_of_its_own(database, empty_database_url):
    assert database.url != empty_database_url
    other = open_database(empty_database_url)
    async with database.session() as mine, other.session() as others:
        named = sa.text("SELECT current_database()")
        assert await mine.scalar(named) != await others.scalar(named)
    await other.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_a_url_is_read_by_psycopg_whatever_its_scheme_and_keeps_its_password(scheme):
    assert psycopg_url(f"{scheme}://u:p%40ss@h:1/d") == "postgresql+psycopg://u:p%40ss@h:1/d"


async def test_a_transaction_that_stands_still_is_ended_and_one_that_may_wait_is_not(database_url):
    limited = open_database(limited_url(f"{database_url}&options=-cwork_mem=8MB", 0.2))
    try:
        async with limited.session() as session:
            assert await session.scalar(sa.text("SHOW work_mem")) == "8MB"
            assert await session.scalar(sa.text("SHOW idle_in_transaction_session_timeout")) == "200ms"
            with pytest.raises(DBAPIError):
                while True:
                    await asyncio.sleep(0.3)
                    await session.execute(sa.text("SELECT 1"))
        async with limited.transaction() as session:
            await unhurried(session)
            await asyncio.sleep(0.4)
            await session.execute(sa.text("SELECT 1"))
    finally:
        await limited.close()


def test_a_limit_takes_the_place_of_an_earlier_one():
    once = limited_url("postgresql://u:p@host/db", 30)
    assert limited_url(once, 5) == limited_url("postgresql://u:p@host/db", 5)


async def test_the_statements_of_a_reading_session_see_one_state_of_the_database(notes):
    async with notes.session() as session:
        assert await session.scalar(COUNT) == 0
        async with notes.transaction() as other:
            await other.execute(ADD, {"secret": "one"})
        assert await session.scalar(COUNT) == 0
    assert await count(notes) == 1


async def test_a_transaction_after_a_reading_session_sees_what_others_commit_meanwhile(notes):
    await count(notes)
    async with notes.transaction() as session:
        assert await session.scalar(COUNT) == 0
        async with notes.transaction() as other:
            await other.execute(ADD, {"secret": "one"})
        assert await session.scalar(COUNT) == 1
