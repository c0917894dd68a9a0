"""Health checks: a command that is run in a held sandbox until it succeeds, before anything else may use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollbar.kit.clock import Clock
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.interface import ExecResult, Sandbox

_SAID_BYTES: Final = 1024


async def run_healthcheck(
    sandbox: Sandbox,
    command: str | Sequence[str],
    *,
    interval_s: float,
    timeout_s: float,
    start_period_s: float,
    start_interval_s: float,
    retries: int,
    clock: Clock,
) -> int:
    """Returns how often the command ran until it exited with 0; text is run by the sandbox's `sh`.

    A failure within `start_period_s` of the first run is followed by `start_interval_s` of waiting and does not count.
    Any other counts, a time-out too; after each but the last of `retries` in a row `interval_s` are waited. Raises
    `EnvironmentStartFailed` (`healthcheck`) with what the last run printed, and whatever `Sandbox.exec` raises.
    """
    argv = ("sh", "-c", command) if isinstance(command, str) else command
    began_s = clock.monotonic()
    runs = failures = 0
    while True:
        result = await sandbox.exec(argv, timeout_s=timeout_s)
        runs += 1
        if result.exit_code == 0:
            return runs
        if clock.monotonic() - began_s < start_period_s:
            await clock.sleep(start_interval_s)
            continue
        failures += 1
        if failures >= retries:
            raise EnvironmentStartFailed("healthcheck", _unhealthy(result, failures, timeout_s))
        await clock.sleep(interval_s)


def _unhealthy(result: ExecResult, failures: int, timeout_s: float) -> str:
    how = f"took longer than {timeout_s:g} s" if result.timed_out else f"exit code {result.exit_code}"
    said = (result.stdout_tail + result.stderr_tail)[-_SAID_BYTES:].decode(errors="replace").strip()
    return f"The health check failed {failures} times in a row; at last: {how}. {said}".strip()
