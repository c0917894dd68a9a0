"""The second step of a Trial: run the verifier on the sealed artifacts and record what it says, once.

A separate verifier gets a fresh sandbox with nothing of the agent's but the seal. A shared one gets the agent's
files, with every process of the agent dead and a fresh `/logs/verifier`. Its processes are dead before the reward
is read. A fault that is the verifier's own repeats the verifier, never the agent.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from tollbar.artifacts import service as artifacts
from tollbar.artifacts.errors import BlobMissing
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets.taskmodel import VerifierMode
from tollbar.jobs import endings, evidence, phase, rewards, store
from tollbar.jobs.cleanup import to_the_end
from tollbar.jobs.endings import Ending
from tollbar.jobs.leases import CapReached, Meter, TryOver
from tollbar.jobs.phase import ENDED, GONE, Environment, Outcome
from tollbar.jobs.retries import VERIFIER_RUNS, Failure, pause_s, repeats_verifier
from tollbar.jobs.rewards import Graded, RewardFiles, Unscored
from tollbar.jobs.states import Reason, TrialState
from tollbar.jobs.tables import SealRow
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes import seal as sealing
from tollbar.sandboxes.errors import EnvironmentFailure, EnvironmentRefused, SandboxLost
from tollbar.sandboxes.interface import ExecResult, Form, Purpose, Sandbox, SandboxName, SandboxSpec

TEST_SCRIPT: Final = "/tests/test.sh"
LOG_NAME: Final = "verifier/test-stdout.txt"
_UNAVAILABLE: Final = 75
"""Exit code by which a verifier says that it could not judge (EX_TEMPFAIL)."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Case:
    """What is graded: the Trial, its task, its seal."""

    found: WorkingSet
    local: LocalTask
    seal: SealRow
    mode: VerifierMode

    @property
    def separate(self) -> bool:
        return self.mode is VerifierMode.SEPARATE


@dataclass(frozen=True)
class _Verdict:
    """What one run of the verifier came to."""

    outcome: Graded | Unscored
    exit_code: int | None = None
    items: list[NewArtifact] = field(default_factory=list[NewArtifact])
    substitutions: tuple[Mapping[str, Any], ...] = ()


async def run(tools: TrialTools, trial_id: str, try_no: int) -> Outcome:
    """Grades one try and ends its Trial; returns `ended`, `gone` (stopped, or another try's), or a failure's facts."""
    found = await _claim(tools, trial_id, try_no)
    if found is None:
        return GONE
    try:
        await _grade(tools, found)
    except TryOver:
        return GONE
    except CapReached as error:
        await phase.cap_reached(tools, found, error)
    except EnvironmentFailure as error:
        return await phase.fail(tools, found, Failure(Reason(error.reason), error.detail, error.message))
    except Exception:  # noqa: BLE001 - whatever it was, the Trial must come to an end
        return await phase.fail(tools, found, phase.internal_error(found, "grading failed"))
    return ENDED


async def _claim(tools: TrialTools, trial_id: str, try_no: int) -> WorkingSet | None:
    origins = {TrialState.RUNNING, TrialState.STARTING}
    async with tools.database.transaction() as session:
        moved = await store.move_trial(session, trial_id, try_no, TrialState.VERIFYING, origins=origins)
        row = await store.working_set(session, trial_id) if moved else None
    return None if row is None else WorkingSet(*row, try_no)


async def _grade(tools: TrialTools, found: WorkingSet) -> None:
    """Runs the verifier, again where the fault was its own, and records what it came to."""
    started = tools.clock.monotonic()
    local = await tools.tasks.load(found.task_row.files_sha256, found.trial.task_name)
    async with tools.database.session() as session:
        seal = await store.seal(session, found.trial.id)
    assert seal is not None
    case = _Case(found, local, seal, local.task.verifier_mode())
    run_no = 1
    while True:
        verdict = await _verify(tools, case, run_no)
        outcome = verdict.outcome
        again = isinstance(outcome, Unscored) and repeats_verifier(outcome.reason, outcome.detail)
        if not again or run_no == VERIFIER_RUNS:
            break
        await tools.clock.sleep(pause_s(run_no, f"{found.trial.id}:{found.try_no}"))
        run_no += 1
    await to_the_end(phase.let_go(tools, found))
    timings = {"verifier": round(tools.clock.monotonic() - started, 3)}
    await _record(tools, case, verdict, run_no, timings)


async def _verify(tools: TrialTools, case: _Case, run_no: int) -> _Verdict:
    """Runs the verifier once and pays for it; a fault of its infrastructure is a verdict without reward.

    Raises what is no fault of the verifier: `EnvironmentRefused`, `SandboxLost`, `CapReached`, `TryOver`.
    """
    found, local = case.found, case.local
    log = tools.logs / f"{found.trial.id}-{found.try_no}-verifier"
    timeout_s = local.task.verifier_timeout_s()
    try:
        with _stage("start"):
            world = phase.verifier_environment if case.separate else phase.agent_environment
            environment = await world(tools, found, local)
        async with phase.meter(tools, found, environment, Payer.VERIFIER, timeout_s, run_no=run_no) as meter:
            sandbox = await (_fresh(tools, case, environment) if case.separate else _kept(tools, case))
            try:
                meter.sandbox_stands()
                if not case.separate:
                    await _put(tools, case, sandbox)
                return await _judge(tools, case, environment, sandbox, meter, log)
            finally:
                if case.separate:
                    await to_the_end(phase.destroy(sandbox))
    except _VerifierFault as fault:
        return _Verdict(fault.outcome)
    except phase.PhaseFailed as error:
        return _Verdict(Unscored(error.failure.reason.value, error.failure.detail, error.failure.message))
    finally:
        await to_the_end(phase.keep_log(tools, found, LOG_NAME, log))


async def _judge(
    tools: TrialTools, case: _Case, environment: Environment, sandbox: Sandbox, meter: Meter, log: Path
) -> _Verdict:
    """Runs the test script to its end, leaves no process of it, and reads what it wrote."""
    with _stage("download"):
        script = await sandbox.read_file(TEST_SCRIPT, 1)
    if script is None:
        missing = Unscored(Reason.VERIFIER_FAILED, "script", f"There is no {TEST_SCRIPT}.")
        return _Verdict(missing, substitutions=environment.substitutions)
    env = phase.variables_of(case.found, case.local.task.verifier_env())
    timeout_s = case.local.task.verifier_timeout_s()
    with _stage("start"):
        result = await meter.run(sandbox.exec((TEST_SCRIPT,), env=env, timeout_s=timeout_s, output=log))
    await sandbox.kill()
    phase.check_memory(result, environment)
    with _stage("download"):
        outcome = await _read(case, sandbox, result)
        left = await sandbox.seal([evidence.VERIFIER_LOGS], tools.seal_limits, tools.blobs.put_fd)
        items = await evidence.with_log(tools.blobs, evidence.verifier_artifacts(left), LOG_NAME, log)
    return _Verdict(outcome, result.exit_code, items, environment.substitutions)


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


async def _kept(tools: TrialTools, case: _Case) -> Sandbox:
    """Returns the agent's own sandbox, which stays until the verifier is through with it."""
    sandbox = tools.kept.get((case.found.trial.id, case.found.try_no))
    if sandbox is None:
        raise SandboxLost("worker", "The agent's sandbox, which its verifier shares, is gone.")
    return sandbox


async def _put(tools: TrialTools, case: _Case, sandbox: Sandbox) -> None:
    """Puts the tests into the agent's sandbox, and an empty folder where anything of the agent's could be graded."""
    with _stage("upload"):
        await sandbox.put(case.local.folder / "tests", "/tests")
        await sandbox.put(await _empty(tools), "/logs/verifier")


async def _fresh(tools: TrialTools, case: _Case, environment: Environment) -> Sandbox:
    """Returns a new sandbox of the verifier's image that holds the sealed artifacts at their original paths."""
    local = case.local
    name = SandboxName(case.found.trial.id, case.found.try_no, Purpose.VERIFY)
    with _stage("upload"):
        manifest = sealing.read_manifest(await tools.blobs.get(case.seal.manifest_blob))

        def fill(folder: Path) -> None:
            sealing.restore(manifest, tools.blobs.copy_to, folder)
            _keep_out(folder)

        copy = await tools.provider.scratch_layer(name, fill)
    with _stage("start"):
        inputs = [copy]
        if not local.task.verifier_image().has_tests:
            inputs += [await tools.tasks.input_layer(local, folder, "/tests") for folder in local.task.tests_folders()]
        return await tools.provider.create(
            SandboxSpec(
                name=name,
                owner=tools.executor_id,
                form=Form.ONE_SHOT,
                image=environment.image,
                workdir=environment.workdir,
                env=environment.env,
                limits=environment.limits,
                inputs=tuple(inputs),
                directories=(environment.workdir, "/logs/artifacts", "/logs/verifier"),
            )
        )


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


async def _empty(tools: TrialTools) -> Path:
    folder = tools.logs / "empty"
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    return folder


async def _read(case: _Case, sandbox: Sandbox, result: ExecResult) -> Graded | Unscored:
    if result.timed_out:
        limit_s = case.local.task.verifier_timeout_s()
        return Unscored(Reason.VERIFIER_TIMEOUT, None, phase.timer_message("verifier's", result, limit_s))
    files = RewardFiles(
        json=await sandbox.read_file("/logs/verifier/reward.json", rewards.MAX_REWARD_BYTES + 1),
        txt=await sandbox.read_file("/logs/verifier/reward.txt", rewards.MAX_REWARD_BYTES + 1),
        details=await sandbox.read_file("/logs/verifier/reward-details.json", rewards.MAX_DETAILS_BYTES + 1),
    )
    if result.exit_code == _UNAVAILABLE and files.json is None and files.txt is None:
        return Unscored(Reason.VERIFIER_FAILED, "unavailable", "The verifier said that it could not judge (exit 75).")
    weights = {name: float(weight) for name, weight in case.found.task_row.weights.items()}
    return rewards.read(files, weights)


async def _record(tools: TrialTools, case: _Case, verdict: _Verdict, run_no: int, timings: dict[str, float]) -> None:
    """Writes artifacts and result in one transaction. Raises `TryOver` when the Trial is not this try's to end."""
    found, trial, now = case.found, case.found.trial, tools.clock.now()
    ending = _ending(case, verdict, run_no, timings)
    async with tools.database.transaction() as session:
        # Before the end, which locks the Job: nobody waits for the blobs that are looked at here.
        await artifacts.record(
            session,
            tools.blobs,
            tools.clock,
            verdict.items,
            trial_id=trial.id,
            project_id=found.job.project_id,
            try_no=found.try_no,
        )
        if not await endings.end_trial(session, trial.job_id, trial.id, found.try_no, trial.task_seq, ending, now):
            raise TryOver


def _ending(case: _Case, verdict: _Verdict, run_no: int, timings: dict[str, float]) -> Ending:
    outcome, trial = verdict.outcome, case.found.trial
    values: dict[str, Any] = {
        "verifier": {
            "mode": case.mode.value,
            "exit_code": verdict.exit_code,
            "tests": "task",
            "sealed_sha256": case.seal.manifest_sha256,
            "runs": run_no,
        },
        "timings": {**trial.timings, **timings},
        "sandbox_forms": {**trial.sandbox_forms, "verifier": Form.ONE_SHOT.value},
        "substitutions": trial.substitutions
        + [dict(made) for made in verdict.substitutions if made not in trial.substitutions],
    }
    if isinstance(outcome, Unscored):
        failure = Failure(Reason(outcome.reason), outcome.detail, outcome.message or trial.message)
        return endings.unscored(failure, **values)
    flags = [*trial.flags, *outcome.flags]
    if verdict.exit_code:
        flags.append("verifier_exit_nonzero")
    passed = outcome.reward >= case.found.task_row.threshold
    values |= {"structured": _structured(outcome), "flags": flags, "passed": passed}
    return Ending(TrialState.SUCCEEDED, values, outcome.reward, passed)


def _structured(outcome: Graded) -> dict[str, Any] | None:
    if not outcome.dimensions and outcome.details is None:
        return None
    structured = {
        "dimensions": dict(outcome.dimensions),
        "composite": outcome.composite,
        "details": outcome.details,
    }
    if outcome.failure_code is not None:
        structured["failure_code"] = outcome.failure_code
    return structured
