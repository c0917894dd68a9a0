"""The first workspace and project exist once, however many servers start."""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from tollbar.access import service as access
from tollbar.access.principal import Capability


async def ensured(database, clock):
    async with database.transaction() as session:
        return await access.ensure_first_project(session, clock)


async def test_servers_that_start_together_share_one_first_project(database, clock):
    found = await asyncio.gather(*(ensured(database, clock) for _ in range(8)))
    assert len({(actor.workspace_id, actor.project_id) for actor in found}) == 1
    assert await ensured(database, clock) == found[0]
    async with database.session() as session:
        names = (
            await session.execute(text("SELECT w.name, p.name FROM project p JOIN workspace w ON w.id = workspace_id"))
        ).all()
    assert [tuple(row) for row in names] == [("Main", "Default")]


async def test_the_server_itself_has_every_right_there(database, clock):
    actor = await ensured(database, clock)
    assert actor.kind == "system"
    assert actor.capabilities == frozenset(Capability)
