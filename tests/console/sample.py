"""Jobs as people meet them: one that is done, one that met its cap, one with gaps, one at work."""

from __future__ import annotations

from dataclasses import dataclass

from tests.console.conftest import submit
from tests.mcp.worked import spent, stopped_by_cap, worked
from tests.mcp.world import World

TASKS = ("count-words", "fix-config", "greeting", "order-report", "repair-script", "sort-list")


@dataclass(frozen=True)
class Sample:
    """Ids of Jobs."""

    done: str
    """6 tasks, 20 attempts, mixed rewards."""
    capped: str
    gaps: str
    """Several reasons for missing rewards."""
    running: str


async def sample(world: World) -> Sample:
    """Makes the Jobs, oldest first; minutes pass between them."""
    done = await submit(world, attempts=20, max_cost_usd="5", tag="nightly", request_id="nightly-2026-11-30")
    rewards = {
        task: [1.0 if (at * 7 + n * n) % (n + 3) else (0.5 if n == 3 else 0.0) for at in range(20)]
        for n, task in enumerate(TASKS)
    }
    await spent(world, done, 1.2345)
    await worked(world, done, rewards, took_s=194, ended=True)
    world.clock.advance(7200)
    gaps = await submit(world, attempts=5, max_cost_usd="1", profile_name="tollbar/nop")
    await worked(
        world,
        gaps,
        {
            "count-words": [0.0, 0.0, "VERIFIER_TIMEOUT", 0.0, "VERIFIER_TIMEOUT"],
            "fix-config": ["ENVIRONMENT_BUILD_FAILED"] * 5,
            "greeting": [0.0, 1.0, 0.25, "REWARD_MISSING", 0.0],
            "order-report": [0.0] * 5,
            "repair-script": [1.0, "SANDBOX_OOM", 1.0, 1.0, 1.0],
            "sort-list": [0.0] * 5,
        },
        took_s=61,
        ended=True,
    )
    world.clock.advance(1500)
    capped = await submit(world, attempts=8, max_cost_usd="0.5", runner="envhub/metered@main", tag="cap demo")
    await spent(world, capped, 0.461)
    ended = {task: [1.0, 1.0, *["BUDGET_EXCEEDED"] * 6] for task in TASKS}
    await worked(world, capped, ended, took_s=48)
    await stopped_by_cap(world, capped)
    world.clock.advance(240)
    running = await submit(world, attempts=4, max_cost_usd="0.8", runner="envhub/metered@main")
    await spent(world, running, 0.12, reserved_usd=0.18)
    at_work = {task: [1.0, 0.0 if n % 2 else 1.0, "running", "pending"] for n, task in enumerate(TASKS)}
    await worked(world, running, at_work, took_s=33)
    return Sample(done, capped, gaps, running)
