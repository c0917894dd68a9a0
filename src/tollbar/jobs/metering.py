"""Models and money before the first Trial: what cannot be priced under a cap ends its Job before any call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.agents.adapter import Adapter
from tollbar.budget import calls
from tollbar.budget import limits as project_limits
from tollbar.budget import service as budget
from tollbar.budget.calls import Call, CallPurpose
from tollbar.budget.schemas import Chain, Level
from tollbar.engine.port import Engine
from tollbar.gateway.offers import Offer
from tollbar.jobs import endings, expansion
from tollbar.jobs.models import ModelNotServed, ModelOffers
from tollbar.jobs.states import JobErrorCode
from tollbar.jobs.tables import JobRow

_NOW_S: Final = 60.0


async def begin(
    session: AsyncSession,
    engine: Engine,
    gateway: ModelOffers | None,
    adapters: Mapping[str, Adapter],
    job: JobRow,
    now: datetime,
) -> int:
    """Begins a (locked) Job and returns how many Trials it got.

    A Job under a cap, its own, its Trials' or its project's day, of which a model has no price starts none: it ends
    `cancelled` with `BUDGET_UNMETERED`. A model that nobody serves here is its Trials' affair.
    """
    if not job.expanded and gateway is not None and adapters[job.agent].models(job.params):
        job.prices = gateway.prices
    if not job.expanded and gateway is not None and await _is_capped(session, job):
        unpriced = [offer for offer in await offers_of(session, gateway, adapters, job) if not offer.priced]
        if unpriced:
            await _end_unmetered(session, engine, job, unpriced[0], now)
            return 0
    return await expansion.expand(session, job, now)


async def offers_of(
    session: AsyncSession, gateway: ModelOffers, adapters: Mapping[str, Adapter], job: JobRow
) -> list[Offer]:
    """Returns how each model of a Job is served, its agent's own first; what is not served is left out."""
    asked = await asked_of(session, gateway, adapters, job)
    return [one for one in asked.values() if isinstance(one, Offer)]


async def asked_of(
    session: AsyncSession, gateway: ModelOffers, adapters: Mapping[str, Adapter], job: JobRow
) -> dict[str, Offer | ModelNotServed]:
    """Returns for each model of a Job by name how it is served, or why it is not; its agent's own comes first."""
    found: dict[str, Offer | ModelNotServed] = {}
    for use in adapters[job.agent].models(job.params):
        try:
            found[use.name] = await gateway.offer(session, job.workspace_id, use.name)
        except ModelNotServed as error:
            found[use.name] = error
    return found


async def _is_capped(session: AsyncSession, job: JobRow) -> bool:
    own = await budget.view(session, job.budget_id)
    if own.cap_pusd is not None or job.trial_cap_pusd is not None:
        return True
    return (await project_limits.limits_of(session, job.project_id)).day_cap_pusd is not None


async def _end_unmetered(session: AsyncSession, engine: Engine, job: JobRow, offer: Offer, now: datetime) -> None:
    refused = Call(
        id=f"call_{job.id}_unpriced",
        chain=Chain(job.project_id, (job.budget_id,), simulated=offer.simulated),
        day=now.date(),
        subject=f"job:{job.id}",
        purpose=CallPurpose.AGENT,
        worker_id="",
        sku=offer.name,
        life_s=_NOW_S,
    )
    await calls.stop_unpriced(session, refused)
    message = f"The model {offer.name} has no price, and the spending of this Job has a cap: nothing was started."
    error = {
        "error_code": JobErrorCode.BUDGET_UNMETERED.value,
        "error_message": message,
        "error_scope": Level.JOB.value,
    }
    await endings.stop_job(session, engine, job, now, error=error)
