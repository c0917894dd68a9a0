"""The cap under fire: 400 calls from eight processes that share nothing but the database."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.gateway.world import StandIn, World, script, world_of

from tollbar.access import service as access
from tollbar.budget import limits
from tollbar.budget import service as budget
from tollbar.budget.schemas import Level
from tollbar.db.session import Database
from tollbar.gateway.prices import PriceBook
from tollbar.kit.money import format_usd

ROOT = Path(__file__).parents[2]
PROCESSES = 8
CALLS = 400
USAGE = "usage = { input = 1000, cached = 0, output = 100 }"
COST = 1000 * 250_000 + 100 * 2_000_000
CAP = 150 * COST
"""Fits 150 calls, fewer than half."""


def turn(fault: str = "") -> str:
    return f'\n  [[case.turn]]\n  text = "All done."\n  {USAGE}\n{fault}'


@dataclass
class Race:
    """Racers on one key, and a watcher of the budgets that they share."""

    world: World
    budgets: tuple[str, ...]
    secret: str
    whole_call_s: float
    processes: list[asyncio.subprocess.Process] = field(default_factory=list[Any])
    most: dict[str, int] = field(default_factory=dict[str, int])
    """The highest that spent and reserved of each budget were together, in any sample."""
    samples: int = 0

    @property
    def database(self) -> Database:
        return self.world.database

    async def line_up(self, provider: str) -> None:
        many = CALLS // PROCESSES
        for index in range(PROCESSES):
            facts = (self.database.url, provider, self.secret, f"w{index}", str(index * many), str(many))
            racer = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.gateway.racer", *facts, str(self.whole_call_s),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
            )  # fmt: skip
            self.processes.append(racer)
        for racer in self.processes:
            assert racer.stdout is not None
            assert await racer.stdout.readline() == b"ready\n"

    async def run(self) -> dict[int, tuple[int, str | None]]:
        """Lets all go at once; returns status and code of each call of a process that lived to tell it."""
        watching = asyncio.create_task(self._watch())
        for racer in self.processes:
            assert racer.stdin is not None
            racer.stdin.write(b"go\n")
        told = [await racer.communicate() for racer in self.processes]
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return {
            number: (status, code)
            for out, _ in told
            if out
            for number, status, code in json.loads(out.splitlines()[-1])
        }

    async def rows(self, words: str, **facts: Any) -> list[Any]:
        async with self.database.session() as session:
            return list(await session.execute(text(words), facts))

    async def _watch(self) -> None:
        while True:
            words = "SELECT id, settled_pusd + reserved_pusd, cap_pusd FROM budget WHERE cap_pusd IS NOT NULL"
            for name, taken, _ in await self.rows(words):
                self.most[name] = max(self.most.get(name, 0), taken)
            self.samples += 1
            await asyncio.sleep(0.01)

    async def caps_held(self) -> None:
        """Asserts that no sample and no end passed a cap, and that nothing is reserved any more."""
        assert self.samples > 20
        for name, settled, reserved, cap in await self.rows(
            "SELECT id, settled_pusd, reserved_pusd, cap_pusd FROM budget WHERE cap_pusd IS NOT NULL"
        ):
            assert self.most.get(name, 0) <= cap
            assert settled <= cap
            assert reserved == 0, name

    async def kill_one(self, provider: StandIn) -> None:
        """Ends a process by SIGKILL while calls of it are on their way."""
        while len(provider.asked) < 40:  # noqa: ASYNC110 - the provider is this test's own
            await asyncio.sleep(0.005)
        self.processes[3].send_signal(signal.SIGKILL)


@asynccontextmanager
async def race(
    database: Database,
    book: PriceBook,
    provider: StandIn,
    *caps: tuple[Level, int | None],
    whole_call_s: float = 60,
    day: int | None = None,
) -> AsyncIterator[Race]:
    """Yields racers that are ready to call on a chain of budgets."""
    async with world_of(database, book, provider.url) as world:
        async with database.transaction() as session:
            actor = await access.ensure_first_project(session, world.clock)
            world.project_id = actor.project_id
            if day is not None:
                await limits.set_limits(session, actor, {"daily_cap_usd": format_usd(day)}, world.clock)
        budgets = tuple([await world.budget(cap, level) for level, cap in caps])
        made = Race(world, budgets, (await world.key(*budgets)).secret, whole_call_s)
        try:
            await made.line_up(provider.url)
            yield made
        finally:
            for racer in made.processes:
                if racer.returncode is None:
                    racer.kill()
                    await racer.wait()


def asked(provider: StandIn) -> list[int]:
    """Returns the numbers of the calls that reached the provider."""
    found = [re.search(r"call (\d+);", json.dumps(body)) for _, _, body in provider.asked]
    return sorted(int(one.group(1)) for one in found if one is not None)


def went_through(outcomes: dict[int, tuple[int, str | None]]) -> list[int]:
    return sorted(number for number, (status, _) in outcomes.items() if status == 200)


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL12", "G-GW-GL15")
@pytest.mark.parametrize("tight", ["job", "trial", "day"])
async def test_no_cap_of_a_chain_is_ever_passed_and_a_refused_call_never_reaches_the_provider(
    database: Database, book: PriceBook, tight: str
) -> None:
    wide = 2 * CALLS * COST
    caps = [(level, CAP if tight == name else wide) for name, level in (("job", Level.JOB), ("trial", Level.TRIAL))]
    day = CAP if tight == "day" else wide
    async with StandIn(script(turn())).serving() as provider, race(database, book, provider, *caps, day=day) as racers:
        outcomes = await racers.run()
        passed = went_through(outcomes)
        assert asked(provider) == passed
        assert len(outcomes) == CALLS
        # A call of this size reserves more than it costs; the last one that fits leaves less than that.
        assert 140 <= len(passed) <= 150
        assert {code for status, code in outcomes.values() if status != 200} <= {"BUDGET_EXCEEDED", "BUDGET_BUSY"}
        await racers.caps_held()
        assert {await racers.world.money(name) for name in racers.budgets} == {(len(passed) * COST, 0)}
        states = await racers.rows(
            "SELECT state, count(*), sum(cost_pusd) FROM ledger_call WHERE state <> 'refused' GROUP BY 1"
        )
        assert [tuple(row) for row in states] == [("settled", len(passed), len(passed) * COST)]


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL27")
async def test_a_gateway_that_is_killed_costs_at_most_what_it_had_reserved(database: Database, book: PriceBook) -> None:
    slow = script(turn("  delay_ms = 40\n  chunk_chars = 2\n"))
    async with StandIn(slow).serving() as provider, race(database, book, provider, (Level.JOB, CAP)) as racers:
        outcomes, _ = await asyncio.gather(racers.run(), racers.kill_one(provider))
        assert len(outcomes) == CALLS - CALLS // PROCESSES
        async with database.transaction() as session:
            lost = await budget.write_off(session, workers=["w3"])
        async with database.transaction() as session:
            assert await budget.write_off(session, workers=["w3"]) == 0, "nothing is written off twice"
        await racers.caps_held()
        assert lost > 0
        rows = await racers.rows(
            "SELECT worker_id, state, cost_pusd, worst_pusd FROM ledger_call WHERE state NOT IN ('refused', 'released')"
        )
        written_off = [row for row in rows if row.state == "written_off"]
        assert {row.worker_id for row in written_off} <= {"w3"}
        assert all(row.cost_pusd == (row.worst_pusd if row.state == "written_off" else COST) for row in rows)
        assert (await racers.world.money(racers.budgets[0]))[0] == sum(row.cost_pusd for row in rows) <= CAP
        of_others = {number for number in asked(provider) if not 150 <= number < 200}
        assert of_others == set(went_through(outcomes))


FAULTS = {
    "breaks": ("  fault = { reset_after_bytes = 30 }\n", "reset"),
    "omits usage": ("  fault = { no_usage = true }\n", "unmetered"),
    "stalls": ("  fault = { stall_s = 30 }\n", "timeout"),
    "bills above the bound": ("  fault = { usage_over = true }\n", "overrun"),
}


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL34")
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_cap_holds_while_the_provider_misbehaves(database: Database, book: PriceBook, fault: str) -> None:
    words, outcome = FAULTS[fault]
    bad = [f'match = {{ contains = "{digit};" }}\n{turn(words)}' for digit in (1, 4, 8)]
    broken = script("\n[[case]]\n".join([*bad, turn()]))
    async with (
        StandIn(broken).serving() as provider,
        race(database, book, provider, (Level.JOB, CAP), whole_call_s=6) as racers,
    ):
        outcomes = await racers.run()
        await racers.caps_held()
        rows = await racers.rows("SELECT outcome, state, cost_pusd, overrun_pusd, worst_pusd FROM ledger_call")
        sent = [row for row in rows if row.state in {"settled", "written_off"}]
        assert len(asked(provider)) == len(sent)
        assert set(asked(provider)) >= set(went_through(outcomes))
        assert any(row.outcome == outcome for row in sent)
        assert all(row.cost_pusd == (COST if row.outcome == "ok" else row.worst_pusd) for row in sent)
        assert all((row.overrun_pusd > 0) == (row.outcome == "overrun") for row in sent)
        assert (await racers.world.money(racers.budgets[0]))[0] == sum(row.cost_pusd for row in sent) <= CAP
