"""The second step of a Trial: run the verifier on the sealed artifacts and record what it says, once.

A separate verifier gets a fresh sandbox with nothing of the agent's but the seal. A shared one gets the agent's
files, with every process of the agent dead and a fresh `/logs/verifier`. Its processes are dead before the reward
is read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from tollbar.artifacts import service as artifacts
from tollbar.artifacts.errors import BlobMissing
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets.taskmodel import VerifierMode
from tollbar.jobs import endings, evidence, phase, rewards, store
from tollbar.jobs.endings import Ending
from tollbar.jobs.leases import CapReached, Meter
from tollbar.jobs.phase import Environment
from tollbar.jobs.rewards import Graded, RewardFiles, Unscored
from tollbar.jobs.states import Reason, TrialState
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes import seal as sealing
from tollbar.sandboxes.errors import EnvironmentFailure
from tollbar.sandboxes.interface import ExecResult, Form, Purpose, Sandbox, SandboxName, SandboxSpec

TEST_SCRIPT: Final = "/tests/test.sh"
_UNAVAILABLE: Final = 75
"""Exit code by which a verifier says that it could not judge (EX_TEMPFAIL)."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Verdict:
    outcome: Graded | Unscored
    exit_code: int | None
    mode: VerifierMode
    seal_sha256: str
    timings: dict[str, float]


async def run(tools: TrialTools, trial_id: str, try_no: int) -> str:
    """Grades one try and ends its Trial; returns `ended`, or `gone` when it was stopped or is another try's."""
    found = await _claim(tools, trial_id, try_no)
    if found is None:
        return "gone"
    log = _log.bind(job_id=found.job.id, trial_id=trial_id, try_no=try_no)
    try:
        await _grade(tools, found)
    except CapReached as error:
        await phase.cap_reached(tools, found, error)
    except BlobMissing as error:
        await phase.end(tools, found, endings.unscored(Reason.VERIFIER_INPUT_MISSING, None, error.message))
    except EnvironmentFailure as error:
        reason = Reason(error.reason) if error.reason == Reason.ENVIRONMENT_REFUSED else Reason.VERIFIER_FAILED
        detail = error.detail if reason is Reason.ENVIRONMENT_REFUSED else "start"
        await phase.end(tools, found, endings.unscored(reason, detail, error.message))
    except Exception:
        log.exception("grading failed")
        message = "Something went wrong inside the server."
        await phase.end(tools, found, endings.unscored(Reason.INTERNAL_ERROR, None, message))
    return "ended"


async def _claim(tools: TrialTools, trial_id: str, try_no: int) -> WorkingSet | None:
    origins = {TrialState.RUNNING, TrialState.STARTING}
    async with tools.database.transaction() as session:
        moved = await store.move_trial(session, trial_id, try_no, TrialState.VERIFYING, origins=origins)
        row = await store.working_set(session, trial_id) if moved else None
    return None if row is None else WorkingSet(*row, try_no)


async def _grade(tools: TrialTools, found: WorkingSet) -> None:
    """Runs the verifier, pays for it, and then records: a Job that has ended owes nothing any more."""
    local = await tools.tasks.load(found.task_row.files_sha256, found.trial.task_name)
    async with tools.database.session() as session:
        seal = await store.seal(session, found.trial.id)
    assert seal is not None
    mode = local.task.verifier_mode()
    started = tools.clock.monotonic()
    separate = mode is VerifierMode.SEPARATE
    world = phase.verifier_environment if separate else phase.agent_environment
    environment = await world(tools, found, local)
    timeout_s = local.task.verifier_timeout_s()
    async with phase.meter(tools, found, environment, Payer.VERIFIER, timeout_s) as meter:
        make = _fresh if separate else _kept
        sandbox = await make(tools, found, local, environment, seal.manifest_blob)
        try:
            result = await _exec(tools, found, local, sandbox, meter)
            outcome = await _read(found, sandbox, result)
            items = await _keep(tools, found, sandbox)
        finally:
            await asyncio.shield(sandbox.destroy())
    timings = {"verifier": round(tools.clock.monotonic() - started, 3)}
    exit_code = None if result is None else result.exit_code
    await _record(tools, found, _Verdict(outcome, exit_code, mode, seal.manifest_sha256, timings), items)


async def _exec(
    tools: TrialTools,
    found: WorkingSet,
    local: LocalTask,
    sandbox: Sandbox,
    meter: Meter,
) -> ExecResult | None:
    """Runs the test script to its end and leaves no process of it; None when there is no script."""
    if await sandbox.read_file(TEST_SCRIPT, 1) is None:
        return None
    env = phase.variables_of(found, local.task.verifier_env())
    timeout_s = local.task.verifier_timeout_s()
    work = sandbox.exec((TEST_SCRIPT,), env=env, timeout_s=timeout_s, output=_log_path(tools, found))
    result = await meter.run(work)
    await sandbox.kill()
    return result


def _log_path(tools: TrialTools, found: WorkingSet) -> Path:
    return tools.logs / f"{found.trial.id}-{found.try_no}-verifier"


async def _kept(
    tools: TrialTools, found: WorkingSet, local: LocalTask, environment: Environment, manifest_blob: str
) -> Sandbox:
    """Returns the agent's own sandbox, with the tests put in and nothing of the agent's at the verifier's place."""
    del environment, manifest_blob
    sandbox = tools.kept.pop((found.trial.id, found.try_no))
    await sandbox.put(local.folder / "tests", "/tests")
    await sandbox.put(await _empty(tools), "/logs/verifier")
    return sandbox


async def _fresh(
    tools: TrialTools, found: WorkingSet, local: LocalTask, environment: Environment, manifest_blob: str
) -> Sandbox:
    """Returns a new sandbox of the verifier's image that holds the sealed artifacts at their original paths."""
    name = SandboxName(found.trial.id, found.try_no, Purpose.VERIFY)
    manifest = sealing.read_manifest(await tools.blobs.get(manifest_blob))
    inputs = [
        await tools.provider.scratch_layer(name, lambda folder: sealing.restore(manifest, tools.blobs.copy_to, folder))
    ]
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


async def _empty(tools: TrialTools) -> Path:
    folder = tools.logs / "empty"
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    return folder


async def _read(found: WorkingSet, sandbox: Sandbox, result: ExecResult | None) -> Graded | Unscored:
    if result is None:
        return Unscored(Reason.VERIFIER_FAILED, "script")
    if result.timed_out:
        return Unscored(Reason.VERIFIER_TIMEOUT)
    files = RewardFiles(
        json=await sandbox.read_file("/logs/verifier/reward.json", rewards.MAX_REWARD_BYTES + 1),
        txt=await sandbox.read_file("/logs/verifier/reward.txt", rewards.MAX_REWARD_BYTES + 1),
        details=await sandbox.read_file("/logs/verifier/reward-details.json", rewards.MAX_DETAILS_BYTES + 1),
    )
    if result.exit_code == _UNAVAILABLE and files.json is None and files.txt is None:
        return Unscored(Reason.VERIFIER_FAILED, "unavailable")
    weights = {name: float(weight) for name, weight in found.task_row.weights.items()}
    return rewards.read(files, weights)


async def _keep(tools: TrialTools, found: WorkingSet, sandbox: Sandbox) -> list[NewArtifact]:
    """Stores what the verifier wrote and returns its artifacts."""
    left = await sandbox.seal([evidence.VERIFIER_LOGS], tools.seal_limits, tools.blobs.put_fd)
    items = evidence.verifier_artifacts(left)
    return await evidence.with_log(tools.blobs, items, "verifier/test-stdout.txt", _log_path(tools, found))


async def _record(tools: TrialTools, found: WorkingSet, verdict: _Verdict, items: list[NewArtifact]) -> None:
    """Writes result and artifacts in one transaction."""
    trial, now = found.trial, tools.clock.now()
    ending = _ending(found, verdict)
    async with tools.database.transaction() as session:
        if await endings.end_trial(session, trial.job_id, trial.id, found.try_no, trial.task_seq, ending, now):
            await artifacts.record(
                session,
                tools.blobs,
                tools.clock,
                items,
                trial_id=found.trial.id,
                project_id=found.job.project_id,
                try_no=found.try_no,
            )


def _ending(found: WorkingSet, verdict: _Verdict) -> Ending:
    outcome = verdict.outcome
    values: dict[str, Any] = {
        "verifier": {
            "mode": verdict.mode.value,
            "exit_code": verdict.exit_code,
            "tests": "task",
            "sealed_sha256": verdict.seal_sha256,
        },
        "timings": {**found.trial.timings, **verdict.timings},
        "sandbox_forms": {**found.trial.sandbox_forms, "verifier": Form.ONE_SHOT.value},
    }
    if isinstance(outcome, Unscored):
        return endings.unscored(Reason(outcome.reason), outcome.detail, None, **values)
    flags = list(outcome.flags)
    if verdict.exit_code:
        flags.append("verifier_exit_nonzero")
    structured = None
    if outcome.dimensions or outcome.details is not None:
        structured = {
            "dimensions": dict(outcome.dimensions),
            "composite": outcome.composite,
            "details": outcome.details,
        }
        if outcome.failure_code is not None:
            structured["failure_code"] = outcome.failure_code
    passed = outcome.reward >= found.task_row.threshold
    values |= {"structured": structured, "flags": flags, "passed": passed}
    return Ending(TrialState.SUCCEEDED, values, outcome.reward, passed)
