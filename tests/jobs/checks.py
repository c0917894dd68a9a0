"""What must hold when everything has ended, whatever happened on the way."""

from __future__ import annotations

import math
from typing import Any

from tests.jobs.world import World

_SUMS = """
SELECT t.job_id, t.seq, t.n_succeeded, t.n_failed, t.n_cancelled, t.n_passed, t.reward_sum,
       count(*) FILTER (WHERE r.state = 'succeeded') AS succeeded,
       count(*) FILTER (WHERE r.state = 'failed') AS failed,
       count(*) FILTER (WHERE r.state = 'cancelled') AS cancelled,
       count(*) FILTER (WHERE r.passed) AS passed,
       coalesce(sum(r.reward), 0) AS rewards, count(*) AS n, j.attempts
  FROM job_task t JOIN job j ON j.id = t.job_id JOIN trial r ON r.job_id = t.job_id AND r.task_seq = t.seq
 GROUP BY t.job_id, t.seq, j.attempts
"""
_MONEY = """
SELECT b.id, b.cap_pusd, b.settled_pusd, b.reserved_pusd, b.overrun_pusd,
       coalesce(sum(c.cost_pusd), 0)::bigint AS cost, coalesce(sum(c.overrun_pusd), 0)::bigint AS overrun,
       count(*) FILTER (WHERE c.state IN ('reserved', 'sent')) AS open
  FROM budget b LEFT JOIN ledger_call c ON b.id = ANY(c.budget_ids)
 GROUP BY b.id
"""
_SEALS = """
SELECT t.id, t.try_no, t.sealed_sha256, s.manifest_sha256, s.try_no AS sealed_try,
       array_agg(DISTINCT a.try_no) FILTER (WHERE a.kind = 'output') AS output_tries
  FROM trial t LEFT JOIN seal s ON s.trial_id = t.id LEFT JOIN artifact a ON a.trial_id = t.id
 GROUP BY t.id, s.manifest_sha256, s.try_no
"""


async def sums_equal_a_recount(world: World) -> None:
    """The sums per task are those of the Trials, and every slot has one."""
    for row in await world.rows(_SUMS):
        assert (row.n_succeeded, row.n_failed, row.n_cancelled) == (row.succeeded, row.failed, row.cancelled)
        assert (row.n_passed, row.n) == (row.passed, row.attempts)
        assert math.isclose(row.reward_sum, row.rewards)


async def money_is_in_order(world: World) -> None:
    """Budgets say what their calls say; nothing is reserved, nothing is above a cap."""
    for row in await world.rows(_MONEY):
        assert (row.open, row.reserved_pusd) == (0, 0)
        assert (row.settled_pusd, row.overrun_pusd) == (row.cost, row.overrun)
        assert row.cap_pusd is None or row.settled_pusd + row.overrun_pusd <= row.cap_pusd


async def evidence_is_of_one_try(world: World) -> None:
    """What a Trial shows as sealed is its seal, and its outputs are of the try that made it."""
    for row in await world.rows(_SEALS):
        assert row.sealed_sha256 == row.manifest_sha256
        if row.sealed_try is not None:
            assert row.sealed_try <= row.try_no
            assert set(row.output_tries or ()) <= {row.sealed_try}


def nothing_is_left_on_the_machine(world: World) -> None:
    """No sandbox, no log file."""
    assert world.provider.living() == []
    assert world.tools.waiting == {}
    assert world.log_files() == []


async def all_has_ended(world: World) -> None:
    """Every Job and Trial has ended, and everything above holds."""
    live = "('pending', 'admitted', 'starting', 'running', 'verifying', 'stopping')"
    assert await world.rows(f"SELECT id, state, try_no FROM trial WHERE state IN {live}") == []
    assert await world.rows(f"SELECT id, state FROM job WHERE state IN {live}") == []
    await sums_equal_a_recount(world)
    await money_is_in_order(world)
    await evidence_is_of_one_try(world)
    nothing_is_left_on_the_machine(world)


def outcome(trial: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what a Trial came to, in short."""
    return trial["status"], trial["reward"], trial["reason"], trial["reason_detail"]
