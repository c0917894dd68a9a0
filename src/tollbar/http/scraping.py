"""`/metrics`: figures of the whole installation for an operator's Prometheus, behind a token of its own."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tollbar.access.errors import Unauthenticated
from tollbar.budget import billing
from tollbar.engine import store as workers
from tollbar.http.deps import Deps
from tollbar.http.metrics import CONTENT_TYPE, Gauge
from tollbar.jobs.figures import figures
from tollbar.kit.errors import NotFound
from tollbar.kit.money import PUSD_PER_USD

router = APIRouter(include_in_schema=False)


@router.get("/metrics")
async def scrape(request: Request, deps: Deps) -> Response:
    """Jobs, Trials, workers, money and requests; 404 unless the server has a token for it."""
    if not deps.metrics.is_open:
        raise NotFound("such route", hint="Set TOLLBAR_METRICS_TOKEN to have one.")
    given = request.headers.get("authorization", "")
    if not deps.metrics.may_read(given):
        raise Unauthenticated(presented=bool(given))
    async with deps.database.session() as session:
        counts = await figures(session)
        states = await workers.states(session)
        slots = await workers.slots_by_backend(session)
        money = await billing.totals(session)
    living: dict[str, float] = {}
    for state in states.values():
        living[state.value] = living.get(state.value, 0) + 1
    text = deps.metrics.text(
        [
            Gauge("tollbar_jobs", "Jobs by status.", "status", dict(counts.jobs)),
            Gauge("tollbar_trials_live", "Trials that have not ended, by status.", "status", dict(counts.live)),
            Gauge("tollbar_trials_ended", "Trials that have ended, by status.", "status", dict(counts.ended)),
            Gauge("tollbar_trials_failed", "Trials without a reward, by reason.", "reason", dict(counts.failed)),
            Gauge("tollbar_workers", "Workers by state.", "state", living),
            Gauge("tollbar_worker_slots", "Slots of living workers, by backend.", "backend", dict(slots)),
            Gauge(
                "tollbar_money_usd",
                "USD of all Jobs: spent, reserved, and spent beyond a bound (overrun, which must stay 0).",
                "kind",
                {name: pusd / PUSD_PER_USD for name, pusd in money.items()},
            ),
        ]
    )
    return Response(text, media_type=CONTENT_TYPE)
