"""The way out of a phase whose task lists hosts: a proxy in its sandbox, its log on the Trial, refusals as events.

It is open while the phase's command runs, and ends with the next `kill`. What ignores the variables that announce it
has no network.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from tollbar.artifacts.schemas import NewArtifact
from tollbar.datasets.network import NetworkMode
from tollbar.gateway.egress import serve
from tollbar.jobs import evidence, networks, phase, store
from tollbar.jobs.events import service as events
from tollbar.jobs.events import store as event_store
from tollbar.jobs.parts import Part
from tollbar.jobs.phase import Environment
from tollbar.jobs.states import TRIAL_ACTIVE
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.kit.cleanup import to_the_end
from tollbar.kit.clock import Clock, wire_time
from tollbar.sandboxes.interface import PROXY_PORT, Sandbox

LOG: Final = "network.txt"
"""What the log is called beside the phase's other logs."""
MOST_LINES: Final = 5000
MOST_EVENTS: Final = 20
"""Refused hosts of one phase that stand among the events; the log has them all."""
_MOST_HOST: Final = 253
_BESIDE: Final = ("127.0.0.1", "localhost", "::1")
_OPEN: Final = "open"

_log = structlog.get_logger()


@dataclass
class Record:
    """What one proxy let out and refused, in order. Hosts are the tenant's words: they are cut and made printable."""

    clock: Clock
    lines: list[str] = field(default_factory=list[str])
    dropped: int = 0
    refused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def said(self, host: str, verdict: str) -> None:
        """Takes the verdict on a connection."""
        name = _printable(host)
        if verdict != _OPEN and ((name, verdict) in self.refused or len(self.refused) < MOST_LINES):
            self.refused[name, verdict] += 1
        self._add(f"{name} {verdict}")

    def closed(self, host: str, sent: int, received: int) -> None:
        """Takes the end of a connection that was open."""
        self._add(f"{_printable(host)} closed, {sent} bytes sent, {received} received")

    def text(self) -> str:
        """Returns the log; a last line says what it lacks."""
        more = [f"{self.dropped} more lines were not kept"] if self.dropped else []
        return "".join(f"{line}\n" for line in [*self.lines, *more])

    def _add(self, line: str) -> None:
        if len(self.lines) < MOST_LINES:
            self.lines.append(f"{wire_time(self.clock.now())} {line}")
        else:
            self.dropped += 1


@asynccontextmanager
async def opened(
    tools: TrialTools, found: WorkingSet, part: Part, whose: str, sandbox: Sandbox, environment: Environment
) -> AsyncGenerator[Mapping[str, str]]:
    """Opens the listed hosts of a phase to a sandbox, until its next `kill`; yields the variables that announce it.

    `whose` is `networks.AGENT` or `networks.VERIFIER`. A phase that lists none has no way out and no variables. The log
    is a file then, for `with_log` and `keep_log`. Raises what `expose_gateway` raises.
    """
    policy = networks.policy(part, whose)
    if policy.mode is not NetworkMode.ALLOWLIST:
        yield {}
        return
    record = Record(tools.clock)
    proxy = await tools.outside.proxy(policy.allowed_hosts, record.said, record.closed)

    async def attend(listening: socket.socket) -> None:
        await serve(proxy, listening)

    url = await sandbox.expose_gateway(attend, PROXY_PORT)
    try:
        yield announced(url, environment.image.neighbours)
    finally:
        await to_the_end(_end(tools, found, part, whose, record))


def announced(url: str, neighbours: Sequence[str] = ()) -> dict[str, str]:
    """Returns the variables by which programs know a proxy, and the hosts that need none, in both spellings in use."""
    values = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": ",".join((*_BESIDE, *neighbours))}
    return {**values, **{name.lower(): value for name, value in values.items()}}


async def with_log(
    tools: TrialTools, found: WorkingSet, part: Part, whose: str, items: list[NewArtifact]
) -> list[NewArtifact]:
    """Returns what a phase left with its network's log, in place of what the tenant put under that name."""
    name, path = _log_of(tools, found, part, whose)
    return await evidence.with_log(tools.sink, items, name, path)


async def keep_log(tools: TrialTools, found: WorkingSet, part: Part, whose: str) -> None:
    """Keeps the log of a phase that came to nothing; none is left to keep where `with_log` took it."""
    name, path = _log_of(tools, found, part, whose)
    await phase.keep_log(tools, found, name, path)


def _log_of(tools: TrialTools, found: WorkingSet, part: Part, whose: str) -> tuple[str, Path]:
    step = "" if part.step is None else f"{part.number}-"
    return f"{part.prefix}{whose}/{LOG}", tools.logs / f"{found.trial.id}-{found.try_no}-{step}{whose}-network"


async def _end(tools: TrialTools, found: WorkingSet, part: Part, whose: str, record: Record) -> None:
    _, path = _log_of(tools, found, part, whose)
    await asyncio.to_thread(path.write_text, record.text())
    try:
        await _tell(tools, found, whose, record)
    except Exception:  # noqa: BLE001 - an event that is lost must not hide how the phase ended
        _log.exception("refused hosts could not be told", trial_id=found.trial.id, try_no=found.try_no)


async def _tell(tools: TrialTools, found: WorkingSet, whose: str, record: Record) -> None:
    """Writes the refused hosts among the events, the most frequent first."""
    texts = [
        tools.redactor.value(f"{host or 'a host without name'} to the {whose} ({verdict}, {times}x)")
        for (host, verdict), times in record.refused.most_common(MOST_EVENTS)
    ]
    if len(record.refused) > MOST_EVENTS:
        texts.append(f"{len(record.refused) - MOST_EVENTS} more hosts to the {whose}; see {whose}/{LOG}")
    async with tools.database.transaction() as session:
        if texts and await store.is_try(session, found.trial.id, found.try_no, TRIAL_ACTIVE, lock=True):
            await event_store.add(session, events.network_refused(found.trial, found.try_no, texts))


def _printable(host: str) -> str:
    return "".join(sign if sign.isprintable() and sign != " " else "?" for sign in host[:_MOST_HOST])
