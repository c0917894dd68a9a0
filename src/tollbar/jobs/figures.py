"""How many Jobs and Trials an installation has, in which state: figures for operators, of every project together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.jobs import statements
from tollbar.jobs.schemas import trial_status


@dataclass(frozen=True)
class Figures:
    """Counts by the words of the wire; `live` are Trials that have not ended, `ended` those that have."""

    jobs: Mapping[str, int]
    live: Mapping[str, int]
    ended: Mapping[str, int]
    failed: Mapping[str, int]
    """Of the ended ones those without a reward, by their reason."""


async def figures(session: AsyncSession) -> Figures:
    """Returns the counts now; what it costs grows with Jobs and with live and failed Trials, not with all of them."""
    live: dict[str, int] = {}
    for state, count in (await statements.live_trials(session)).items():
        live[trial_status(state)] = live.get(trial_status(state), 0) + count
    return Figures(
        await statements.jobs_by_state(session),
        live,
        await statements.ended_trials(session),
        await statements.failed_trials(session),
    )
