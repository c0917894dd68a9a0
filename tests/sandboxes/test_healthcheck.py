"""Health checks: what counts as a failure, how long is waited, and that a slow check does not end what it asks for."""

import pytest
from tests.support import ManualClock

from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.healthcheck import run_healthcheck
from tollbar.sandboxes.interface import ExecResult, Form
from tollbar.sandboxes.sandbox_base import BwrapSandbox

COUNT = "n=$(cat /n 2>/dev/null || echo 0); n=$((n+1)); echo $n > /n; "


class Answers:
    """A sandbox whose commands take a second of the clock each and end with the given codes."""

    def __init__(self, clock: ManualClock, codes):
        self._clock = clock
        self._codes = list(codes)
        self.began_s = []

    async def exec(self, argv, *, timeout_s):
        self.began_s.append(self._clock.monotonic())
        self._clock.advance(1)
        code = self._codes.pop(0)
        return ExecResult(code, b"", b"why not\n", False, code is None, False, 1.0, None)


SETTINGS = {"interval_s": 10, "timeout_s": 30, "start_period_s": 0, "start_interval_s": 2, "retries": 3}


@pytest.mark.parametrize(
    ("settings", "codes", "began_s"),
    [
        ({}, [0], [0]),
        ({}, [1, 1, 0], [0, 11, 22]),
        ({}, [None, 7, 0], [0, 11, 22]),
        ({"retries": 1}, [0], [0]),
        ({"start_period_s": 6}, [1, 1, 1, 0], [0, 3, 6, 17]),
        ({"start_period_s": 6}, [1, 1, 1, 1, 0], [0, 3, 6, 17, 28]),
        ({"interval_s": 0}, [1, 1, 0], [0, 1, 2]),
    ],
)
async def test_failures_are_waited_for_and_the_start_period_has_its_own_interval(settings, codes, began_s):
    clock = ManualClock()
    sandbox = Answers(clock, codes)
    assert await run_healthcheck(sandbox, "true", **{**SETTINGS, **settings}, clock=clock) == len(codes)
    assert sandbox.began_s == began_s


@pytest.mark.parametrize(
    ("settings", "codes", "ended_s"),
    [
        ({}, [1, 1, 1, 0], 23),
        ({}, [None, None, None], 23),
        ({"retries": 1}, [1], 1),
        ({"start_period_s": 6, "retries": 2}, [1, 1, 1, 1], 18),
    ],
)
async def test_too_many_failures_in_a_row_end_it_without_another_wait(settings, codes, ended_s):
    clock = ManualClock()
    with pytest.raises(EnvironmentStartFailed, match="why not") as failed:
        await run_healthcheck(Answers(clock, codes), "true", **{**SETTINGS, **settings}, clock=clock)
    assert failed.value.detail == "healthcheck"
    assert clock.monotonic() == ended_s


@pytest.mark.forms(Form.HELD)
async def test_a_service_that_comes_up_in_a_real_sandbox_is_waited_for(box):
    sandbox: BwrapSandbox = box.sandbox
    runs = await run_healthcheck(sandbox, COUNT + "[ $n -ge 3 ]", **SETTINGS, clock=ManualClock())
    assert runs == 3
    assert (box.upper / "n").read_text() == "3\n"


@pytest.mark.forms(Form.HELD)
async def test_a_check_that_takes_too_long_fails_and_its_service_lives_on(provider, box, host):
    await provider.preflight()
    if provider.capabilities().limits["pids"] != "kernel":
        pytest.skip("without control groups a time-out ends every tenant")
    mark = host.marker()
    await box.sandbox.exec(["sh", "-c", f"setsid sleep {mark} &"], timeout_s=9)
    settings = {**SETTINGS, "timeout_s": 0.3}
    script = COUNT + f"[ $n -ge 2 ] || sleep {host.marker()}"
    assert await run_healthcheck(box.sandbox, script, **settings, clock=ManualClock()) == 2
    assert len(host.living(mark)) == 1
