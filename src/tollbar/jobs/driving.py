"""Runs an agent that is a loop of this process: it acts in the held sandbox, and asks the gateway beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tollbar.agents.adapter import AgentReport, Drive, DriveEnd, DriveResult, GatewayAccess
from tollbar.jobs.access import Access
from tollbar.jobs.phase import Environment, check_memory
from tollbar.kit.clock import Clock
from tollbar.sandboxes.interface import ExecResult, Sandbox

_MAX_LOG_BYTES: Final = 10 << 20


@dataclass
class Session:
    """What a loop has: the sandbox's commands, the gateway, and a log on this machine."""

    sandbox: Sandbox
    environment: Environment
    announced: Mapping[str, str]
    gateway: GatewayAccess
    file: IO[bytes]
    report: AgentReport = field(default_factory=AgentReport)
    _logged: int = 0

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> ExecResult:
        given = {**self.announced, **(env or {})}
        result = await self.sandbox.exec(argv, cwd=cwd, env=given, timeout_s=timeout_s)
        check_memory(result, self.environment)
        return result

    def log(self, text: str) -> None:
        line = text.encode("utf-8", "replace") + b"\n"
        free = _MAX_LOG_BYTES - self._logged
        self.file.write(line[:free])
        self._logged += min(free, len(line))

    def note(self, report: AgentReport) -> None:
        self.report = report


@dataclass(frozen=True)
class Driven:
    """How a loop ended, as a command ends, and what it said of itself. `result` None: its time was over."""

    command: ExecResult
    result: DriveResult | None
    report: AgentReport


async def run(
    drive: Drive,
    access: Access,
    sandbox: Sandbox,
    environment: Environment,
    announced: Mapping[str, str],
    *,
    timeout_s: float,
    log: Path,
    clock: Clock,
) -> Driven:
    """Runs a loop to its end or its time limit; `announced` are variables of each of its commands.

    What it raises is the caller's: a fault of ours, or of the sandbox.
    """
    started = clock.monotonic()
    result: DriveResult | None = None
    with log.open("wb") as file:
        async with access.beside() as gateway:
            session = Session(sandbox, environment, announced, gateway, file)
            limit = asyncio.timeout(timeout_s)
            try:
                async with limit:
                    result = await drive(session)
            except TimeoutError:
                if not limit.expired():
                    raise
            if result is not None and result.message is not None:
                session.log(result.message)
    exit_code = None if result is None else int(result.end is not DriveEnd.COMPLETED)
    wall_s = clock.monotonic() - started
    command = ExecResult(exit_code, b"", b"", False, result is None, False, wall_s, None)
    return Driven(command, result, session.report)
