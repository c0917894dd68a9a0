"""Runs a verifier on what the agent left: in a fresh sandbox with nothing of the agent's but the seal, or in its own.

A shared one gets the agent's files, with every process of the agent dead and a fresh `/logs/verifier`. The verifier's
processes are dead before the reward is read. A fault that is the verifier's own repeats it, never the agent.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from tollbar.artifacts.errors import BlobMissing
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget.schemas import Purpose as Payer
from tollbar.jobs import evidence, forms, networks, outlet, phase, rewards
from tollbar.jobs.leases import CapReached, Meter, TryOver
from tollbar.jobs.parts import Part
from tollbar.jobs.phase import Environment
from tollbar.jobs.retries import VERIFIER_RUNS, pause_s, repeats_verifier
from tollbar.jobs.rewards import Graded, RewardFiles, Unscored
from tollbar.jobs.states import Reason
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.kit.cleanup import to_the_end
from tollbar.sandboxes import seal as sealing
from tollbar.sandboxes.errors import EnvironmentFailure, EnvironmentRefused, SandboxLost
from tollbar.sandboxes.interface import ExecResult, Form, Network, Purpose, Sandbox, SandboxName, SandboxSpec

TEST_SCRIPT: Final = "/tests/test.sh"
LOG_NAME: Final = "verifier/test-stdout.txt"
_UNAVAILABLE: Final = 75
"""Exit code by which a verifier says that it could not judge (EX_TEMPFAIL)."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Case:
    """What is graded: a part of a Trial's task, by its seal."""

    found: WorkingSet
    local: LocalTask
    part: Part
    manifest_blob: str
    sandbox: Sandbox | None = None
    """The agent's own, which a shared verifier uses; it is gone with its worker."""
    sandbox_form: Form = Form.ONE_SHOT

    @property
    def timeout_s(self) -> float:
        return self.part.task.verifier_timeout_s(self.part.step)

    @property
    def log_name(self) -> str:
        return self.part.prefix + LOG_NAME


@dataclass(frozen=True)
class Verdict:
    """What a verifier came to, after so many `runs`; `form` is that of its sandbox."""

    outcome: Graded | Unscored
    form: Form
    exit_code: int | None = None
    items: list[NewArtifact] = field(default_factory=list[NewArtifact])
    substitutions: tuple[Mapping[str, Any], ...] = ()
    runs: int = 1


async def verify(tools: TrialTools, case: Case) -> Verdict:
    """Runs the verifier, again where the fault was its own, and pays for it; ends with a verdict or a reason.

    Raises what is no fault of the verifier: `EnvironmentRefused`, `SandboxLost`, `CapReached`, `TryOver`.
    """
    run_no = 1
    while True:
        verdict = replace(await _run(tools, case, run_no), runs=run_no)
        outcome = verdict.outcome
        again = isinstance(outcome, Unscored) and repeats_verifier(outcome.reason, outcome.detail)
        if not again or run_no == VERIFIER_RUNS:
            return verdict
        await tools.clock.sleep(pause_s(run_no, f"{case.found.trial.id}:{case.found.try_no}"))
        run_no += 1


async def _run(tools: TrialTools, case: Case, run_no: int) -> Verdict:
    """Runs the verifier once; a fault of its infrastructure is a verdict without reward."""
    found, part = case.found, case.part
    step = "" if part.step is None else f"{part.number}-"
    log = tools.logs / f"{found.trial.id}-{found.try_no}-{step}verifier"
    form = case.sandbox_form
    lease_no = (part.number - 1) * VERIFIER_RUNS + run_no
    try:
        with _stage("start"):
            if part.is_separate:
                environment = await phase.verifier_environment(tools, found, case.local, part)
                checked = environment.healthcheck is not None
                can, reaches = tools.provider.capabilities(), networks.of_verifiers_sandbox(part) is not Network.NONE
                form = forms.verifier_form(found.job.sandbox_form, can, healthcheck=checked, network=reaches)
            else:
                environment = await phase.agent_environment(tools, found, case.local)
        async with phase.meter(tools, found, environment, Payer.VERIFIER, case.timeout_s, run_no=lease_no) as meter:
            sandbox = await (_fresh(tools, case, environment, form) if part.is_separate else _shared(case))
            try:
                meter.sandbox_stands()
                if not part.is_separate:
                    await _put(tools, case, sandbox)
                return await _judge(tools, case, environment, sandbox, meter, log, form)
            finally:
                if part.is_separate:
                    await to_the_end(phase.destroy(sandbox))
    except _VerifierFault as fault:
        return Verdict(fault.outcome, form)
    except phase.PhaseFailed as error:
        return Verdict(Unscored(error.failure.reason.value, error.failure.detail, error.failure.message), form)
    finally:
        await to_the_end(phase.keep_log(tools, found, case.log_name, log))
        await to_the_end(outlet.keep_log(tools, found, part, networks.VERIFIER))


async def _judge(
    tools: TrialTools,
    case: Case,
    environment: Environment,
    sandbox: Sandbox,
    meter: Meter,
    log: Path,
    form: Form,
) -> Verdict:
    """Runs the test script to its end, leaves no process of it, and reads what it wrote."""
    with _stage("download"):
        script = await sandbox.read_file(TEST_SCRIPT, 1)
    if script is None:
        missing = Unscored(Reason.VERIFIER_FAILED, "script", f"There is no {TEST_SCRIPT}.")
        return Verdict(missing, form, substitutions=environment.substitutions)
    env = phase.variables_of(case.found, case.part.task.verifier_env(case.part.step))
    async with AsyncExitStack() as opened:
        with _stage("start"):
            if case.part.is_separate:
                await meter.run(phase.healthy(tools, sandbox, environment.healthcheck))
            way_out = outlet.opened(tools, case.found, case.part, networks.VERIFIER, sandbox, environment)
            env |= await opened.enter_async_context(way_out)
            result = await meter.run(sandbox.exec((TEST_SCRIPT,), env=env, timeout_s=case.timeout_s, output=log))
        await sandbox.kill()
    phase.check_memory(result, environment)
    with _stage("download"):
        outcome = await _read(case, sandbox, result)
        left = await sandbox.seal([evidence.VERIFIER_LOGS], tools.seal_limits, tools.sink.put_fd)
        items = evidence.archived(evidence.verifier_artifacts(left), case.part)
        items = await evidence.with_log(tools.sink, items, case.log_name, log)
        items = await outlet.with_log(tools, case.found, case.part, networks.VERIFIER, items)
    return Verdict(outcome, form, result.exit_code, items, environment.substitutions)


class _VerifierFault(Exception):
    """The verifier's infrastructure failed; `outcome` is what the run came to."""

    def __init__(self, outcome: Unscored) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


@contextmanager
def _stage(detail: str) -> Generator[None]:
    """Turns what goes wrong in a part of the verifier's run into `VERIFIER_FAILED` with that detail.

    A refusal, a sandbox that was lost and the end of the money or of the try are no fault of the verifier.
    """
    try:
        yield
    except (EnvironmentRefused, TryOver, CapReached):
        raise
    except BlobMissing as error:
        if detail != "upload":
            raise
        raise _VerifierFault(Unscored(Reason.VERIFIER_INPUT_MISSING, None, error.message)) from error
    except SandboxLost as error:
        if error.detail != "seal":
            raise
        raise _VerifierFault(Unscored(Reason.VERIFIER_FAILED, detail, error.message)) from error
    except EnvironmentFailure as error:
        raise _VerifierFault(Unscored(Reason.VERIFIER_FAILED, detail, error.message)) from error
    except Exception as error:
        if detail == "start" and not isinstance(error, OSError):
            raise
        _log.exception("the verifier's sandbox could not be used", stage=detail)
        message = "The verifier's sandbox could not be used."
        raise _VerifierFault(Unscored(Reason.VERIFIER_FAILED, detail, message)) from error


async def _shared(case: Case) -> Sandbox:
    """Returns the agent's own sandbox, which stays until the verifier is through with it."""
    if case.sandbox is None:
        raise SandboxLost("worker", "The agent's sandbox, which its verifier shares, is gone.")
    return case.sandbox


async def _put(tools: TrialTools, case: Case, sandbox: Sandbox) -> None:
    """Puts the tests into the agent's sandbox, and an empty folder where anything of the agent's could be graded."""
    with _stage("upload"):
        first, *others = case.part.task.tests_folders(case.part.step)
        await sandbox.put(case.local.folder / first, "/tests")
        for folder in others:
            await sandbox.add(case.local.folder / folder, "/tests")
        await sandbox.put(await empty(tools), "/logs/verifier")


async def _fresh(tools: TrialTools, case: Case, environment: Environment, form: Form) -> Sandbox:
    """Returns a new sandbox of the verifier's image that holds the sealed artifacts at their original paths."""
    name = SandboxName(case.found.trial.id, case.found.try_no, Purpose.VERIFY)
    with _stage("upload"):
        manifest = sealing.read_manifest(await tools.blobs.get(case.manifest_blob))

        def fill(folder: Path) -> None:
            sealing.restore(manifest, tools.blobs.copy_to, folder)
            _keep_out(folder)

        copy = await tools.provider.scratch_layer(name, fill)
    with _stage("start"):
        return await tools.provider.create(
            SandboxSpec(
                name=name,
                owner=tools.executor_id,
                form=form,
                image=environment.image,
                workdir=environment.workdir,
                env=environment.env,
                limits=environment.limits,
                ceiling=environment.ceiling,
                network=networks.of_verifiers_sandbox(case.part),
                inputs=(copy, *await _tests_layers(tools, case)),
                directories=(environment.workdir, "/logs/artifacts", "/logs/verifier"),
            )
        )


async def _tests_layers(tools: TrialTools, case: Case) -> list[Path]:
    """Returns the layers that make up `/tests`, bottom first; none for an image that brings it."""
    task, step = case.part.task, case.part.step
    if task.verifier_image(step).has_tests:
        return []
    return [
        await tools.tasks.input_layer(case.local, folder, "/tests", over=number > 0)
        for number, folder in enumerate(task.tests_folders(step))
    ]


def _keep_out(layer: Path) -> None:
    """Takes out of the restored artifacts what would lie over the verifier's own places, whatever the task declares.

    Neither a planted reward nor changed tests reach the verifier; nothing of the image shows in `/logs/verifier`.
    """
    for place in ("tests", "logs/verifier"):
        path = layer
        for part in place.split("/"):
            path /= part
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
                break
        else:
            shutil.rmtree(path)
    own = layer / "logs" / "verifier"
    own.mkdir(parents=True)
    os.setxattr(own, "user.overlay.opaque", b"y")


async def empty(tools: TrialTools) -> Path:
    """Returns a folder of the host with nothing in it."""
    folder = tools.logs / "empty"
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    return folder


async def _read(case: Case, sandbox: Sandbox, result: ExecResult) -> Graded | Unscored:
    if result.timed_out:
        return Unscored(Reason.VERIFIER_TIMEOUT, None, phase.timer_message("verifier's", result, case.timeout_s))
    files = RewardFiles(
        json=await sandbox.read_file("/logs/verifier/reward.json", rewards.MAX_REWARD_BYTES + 1),
        txt=await sandbox.read_file("/logs/verifier/reward.txt", rewards.MAX_REWARD_BYTES + 1),
        details=await sandbox.read_file("/logs/verifier/reward-details.json", rewards.MAX_DETAILS_BYTES + 1),
    )
    if result.exit_code == _UNAVAILABLE and files.json is None and files.txt is None:
        return Unscored(Reason.VERIFIER_FAILED, "unavailable", "The verifier said that it could not judge (exit 75).")
    weights = {name: float(weight) for name, weight in case.found.task_row.weights.items()}
    return rewards.read(files, weights)
