"""What a try has of the gateway: a key for its models, and a listener in its sandbox or beside its loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from tollbar.agents.adapter import GatewayAccess, ModelUse, ServedModel
from tollbar.budget.calls import CallPurpose
from tollbar.budget.schemas import trial_subject
from tollbar.gateway.keys import KeyOrder
from tollbar.gateway.offers import Offer
from tollbar.jobs import store
from tollbar.jobs.leases import TryOver
from tollbar.jobs.models import ModelGateway, ModelNotServed
from tollbar.jobs.phase import PhaseFailed
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import TRIAL_WORKING, Reason
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.interface import Sandbox

INSIDE: Final = "http://127.0.0.1:8787"
"""Where the gateway is in every sandbox that has it."""
_BACKLOG: Final = 64
_SPARE: Final = timedelta(hours=1)
"""What a key outlives the agents' time by: builds, set-up, grading between steps. It is revoked long before."""


@dataclass(frozen=True)
class Access:
    """The key of one try, and who serves it."""

    gateway: ModelGateway
    subject: str
    inside: GatewayAccess

    async def expose(self, sandbox: Sandbox) -> None:
        """Opens the gateway inside a held sandbox, until its next `kill`."""

        async def serve(listening: socket.socket) -> None:
            await self.gateway.serve(listening, self.subject)

        base_url = await sandbox.expose_gateway(serve)
        if base_url != self.inside.base_url:
            raise EnvironmentStartFailed("start", f"The gateway is at {base_url} instead of {self.inside.base_url}.")

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[GatewayAccess]:
        """Serves the gateway to a loop of this process, on a port of the loopback that closes with the context."""
        with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listening:
            listening.setblocking(False)
            serving = asyncio.create_task(self.gateway.serve(listening, self.subject))
            try:
                yield replace(self.inside, base_url=f"http://127.0.0.1:{listening.getsockname()[1]}")
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


async def granted(tools: TrialTools, found: WorkingSet, uses: tuple[ModelUse, ...], agent_s: float) -> Access | None:
    """Issues the key of this try for models that its agent calls for `agent_s` in all; None: it calls none.

    Raises `PhaseFailed` with `MODEL_UNAVAILABLE` where one of them is not served here, `TryOver` when the try may not
    spend any more.
    """
    if not uses:
        return None
    trial, job = found.trial, found.job
    async with tools.database.transaction() as session:
        if not await store.is_try(session, trial.id, found.try_no, TRIAL_WORKING, lock=True):
            raise TryOver
        gateway = _gateway(tools, uses)
        try:
            offers = {use.name: await gateway.offer(session, job.workspace_id, use.name) for use in uses}
        except ModelNotServed as error:
            failure = Failure(Reason.MODEL_UNAVAILABLE, "not_found", error.message, for_good=True)
            raise PhaseFailed(failure) from error
        subject = trial_subject(trial.id, found.try_no)
        order = KeyOrder(
            workspace_id=job.workspace_id,
            subject=subject,
            purpose=CallPurpose.AGENT,
            chain=found.chain,
            routes=routes_of(list(offers.values())),
            expires_at=tools.clock.now() + timedelta(seconds=agent_s) + _SPARE,
            facts=facts_of(found),
        )
        key = await gateway.issue(session, order)
    served = {name: ServedModel(offer.wire, offer.kind) for name, offer in offers.items()}
    return Access(gateway, subject, GatewayAccess(INSIDE, key.secret, served))


def routes_of(offers: list[Offer]) -> dict[str, str]:
    """Returns the route of a key by bare model names. Raises `PhaseFailed` when two models share one."""
    routes: dict[str, str] = {}
    for offer in offers:
        if routes.setdefault(offer.wire, offer.route) != offer.route:
            text = f"Two providers serve {offer.wire} to one agent; it could not tell them apart."
            raise PhaseFailed(Failure(Reason.MODEL_UNAVAILABLE, "bad_request", text, for_good=True))
    return routes


def facts_of(found: WorkingSet) -> dict[str, object]:
    """Returns what a script may choose its case by."""
    trial, job = found.trial, found.job
    ref = job.dataset_ref
    return {
        "task": trial.task_name,
        "task_ref": trial.task_id,
        "dataset": f"{ref['name']}@{ref['version']}",
        "adapter": job.agent,
        "profile": job.profile["name"],
        "attempt": trial.attempt,
        "purpose": CallPurpose.AGENT.value,
        "prices": job.prices,
    }


def _gateway(tools: TrialTools, uses: tuple[ModelUse, ...]) -> ModelGateway:
    if tools.gateway is None:
        text = f"This worker has no gateway for {uses[0].name}."
        raise PhaseFailed(Failure(Reason.MODEL_UNAVAILABLE, "not_found", text))
    return tools.gateway
