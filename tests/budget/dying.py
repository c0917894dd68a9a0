"""A process that makes one model call and stops at a point until it is killed; run by the tests of calls.

python dying.py '{"url": ..., "budget": ..., "call": ..., "at": "reserving" | "reserved" | "sent" | "settling"}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import date
from decimal import Decimal
from typing import Any

from tollbar.budget import calls
from tollbar.budget.calls import Call, CallPurpose
from tollbar.budget.schemas import Chain
from tollbar.db.session import open_database
from tollbar.gateway.bound import Quote

QUOTE = Quote(Decimal(1_512_000_000), Decimal(2_000_000), 1000, 256, 0, 1, None, {})
COST = 669_500_000


async def stop_here(facts: dict[str, Any], point: str) -> None:
    if facts["at"] == point:
        sys.stdout.write(f"{point}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


async def make(facts: dict[str, Any]) -> None:
    database = open_database(facts["url"], pool_size=2)
    chain = Chain("prj_1", (facts["budget"],))
    call = Call(facts["call"], chain, date(2026, 11, 30), "trial:t:1", CallPurpose.AGENT, "dying", "m", 960)
    async with database.transaction() as session:
        await calls.reserve(session, call, QUOTE)
        await stop_here(facts, "reserving")
    await stop_here(facts, "reserved")
    async with database.transaction() as session:
        await calls.mark_sent(session, call.id)
    await stop_here(facts, "sent")
    async with database.transaction() as session:
        await calls.settle(session, call.id, COST, {})
        await stop_here(facts, "settling")
    await stop_here(facts, "settled")


if __name__ == "__main__":
    asyncio.run(make(json.loads(sys.argv[1])))
