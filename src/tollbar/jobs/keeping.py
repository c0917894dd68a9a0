"""Sandboxes of Trials that did not pass, kept for a while so that a person can look into them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.jobs import phase, store
from tollbar.jobs.errors import SandboxNotKept
from tollbar.jobs.lookup import trial_row
from tollbar.jobs.tables import JobRow, TrialRow
from tollbar.jobs.tools import TrialTools, Waiting
from tollbar.sandboxes.interface import Purpose, SandboxName

_log = structlog.get_logger()


@dataclass(frozen=True)
class KeptSandbox:
    """A sandbox that can be entered on the machine `host` until that time; its processes are dead."""

    trial_id: str
    name: SandboxName
    backend: str
    host: str
    until: datetime


async def leave(tools: TrialTools, trial_id: str, try_no: int, waiting: Waiting) -> None:
    """Keeps the sandbox of a try that ended its Trial without a pass, where its Job asks for it; else destroys it."""
    if waiting.keep_failed_s == 0 or not await _keep(tools, trial_id, try_no, waiting):
        await phase.destroy(waiting.sandbox)


async def _keep(tools: TrialTools, trial_id: str, try_no: int, waiting: Waiting) -> bool:
    until = tools.clock.now() + timedelta(seconds=waiting.keep_failed_s)
    handle = waiting.sandbox.handle
    async with tools.database.transaction() as session:
        if not await store.note_kept(session, trial_id, try_no, until, handle.host):
            return False
    name = SandboxName(trial_id, try_no, Purpose.AGENT)
    try:
        provider = tools.on(handle.backend).provider
        await provider.keep(name, until)
        await provider.let_go(name)
    except Exception:  # noqa: BLE001 - the Trial has ended: its result stands whatever becomes of its sandbox
        _log.exception("a sandbox could not be kept", trial_id=trial_id, try_no=try_no)
        async with tools.database.transaction() as session:
            await store.note_kept(session, trial_id, try_no, None, None)
        return False
    return True


async def kept(session: AsyncSession, actor: Principal, trial_id: str, now: datetime) -> KeptSandbox:
    """Returns where the sandbox of a Trial is kept. Raises `TrialNotFound` and `SandboxNotKept`."""
    trial = await trial_row(session, actor, trial_id)
    found = [each for each in await all_kept(session, actor, now) if each.trial_id == trial.id]
    if not found:
        raise SandboxNotKept(trial_id)
    return found[0]


async def all_kept(session: AsyncSession, actor: Principal, now: datetime) -> list[KeptSandbox]:
    """Returns the sandboxes of the actor's project that are kept now, those that go first at the top."""
    return [_described(trial, job) for trial, job in await store.kept_trials(session, actor, now)]


def _described(trial: TrialRow, job: JobRow) -> KeptSandbox:
    assert trial.kept_until is not None
    assert trial.kept_on is not None
    name = SandboxName(trial.id, trial.try_no, Purpose.AGENT)
    return KeptSandbox(trial.id, name, job.runner["backend"], trial.kept_on, trial.kept_until)
