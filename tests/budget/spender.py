"""A process that leases and settles on nested budgets until it is told what it cannot get; run by the race test.

python spender.py '{"url": ..., "worker": ..., "chains": [[...], ...], "project": ..., "rounds": ...}' prints what
came of each lease, and with "hangs": true says `held` after its first one and keeps it for ever.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from datetime import date
from typing import Any

from tollbar.budget import service
from tollbar.budget.schemas import Chain, Lease, Purpose, Reserved
from tollbar.db.session import open_database

DAY = date(2026, 11, 30)
RATE = 10**9


def lease(facts: dict[str, Any], number: int, dice: random.Random) -> Lease:
    budgets = dice.choice(facts["chains"])
    return Lease(
        id=f"lease_{facts['worker']}_{number}",
        chain=Chain(facts["project"], tuple(budgets)),
        day=DAY,
        subject=f"trial:{facts['worker']}:{number}",
        sku="envhub/metered",
        purpose=dice.choice(list(Purpose)),
        worker_id=facts["worker"],
        rate_pusd=RATE,
        seconds=dice.randint(1, 60),
    )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def spend(facts: dict[str, Any]) -> None:
    database = open_database(facts["url"], pool_size=4)
    dice = random.Random(facts["worker"])
    outcomes = dict.fromkeys(("Reserved", "Wait", "Reached"), 0)

    async def one(number: int) -> None:
        wanted = lease(facts, number, dice)
        async with database.transaction() as session:
            decision = await service.reserve_lease(session, wanted)
        outcomes[type(decision).__name__] += 1
        if not isinstance(decision, Reserved):
            return
        if facts.get("hangs"):
            say("held")
            await asyncio.Event().wait()
        used = dice.randint(0, wanted.seconds)
        async with database.transaction() as session:
            await service.settle_lease(session, wanted.id, used * RATE)

    for start in range(0, facts["rounds"], 4):
        await asyncio.gather(*(one(number) for number in range(start, start + 4)))
    await database.close()
    say(json.dumps(outcomes))


if __name__ == "__main__":
    asyncio.run(spend(json.loads(sys.argv[1])))
