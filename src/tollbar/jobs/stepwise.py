"""Tasks with steps: one sandbox, and in it step after step a run of the agent, its seal and its grading.

Everything of a step is archived below `steps/<name>/`. A step that ends without a reward for a reason that does not
count ends the Trial; a step below its `min_reward` only keeps the rest from running. Another try begins with the
first step, because the sandbox is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tollbar.artifacts import service as artifacts
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets.taskmodel import RewardStrategy, Step, VerifierMode
from tollbar.jobs import access, agent_run, endings, phase, refusals, reports, rewards, store, verifying
from tollbar.jobs.agent_run import AgentRun, Ran, Sealed
from tollbar.jobs.endings import Ending
from tollbar.jobs.leases import Meter, TryOver
from tollbar.jobs.parts import parts_of
from tollbar.jobs.phase import Environment, PhaseFailed
from tollbar.jobs.retries import Failure
from tollbar.jobs.rewards import Graded, Unscored
from tollbar.jobs.states import AgentOutcome, Reason
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, Waiting, WorkingSet
from tollbar.jobs.verifying import Case, Verdict
from tollbar.kit.cleanup import to_the_end
from tollbar.kit.jsonio import canonical
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.interface import Sandbox

SETUP_TIMEOUT_S: Final = 600.0
"""Time of a step's `workdir/setup.sh`, in seconds."""

Item = dict[str, Any]
"""One step as the Trial shows it."""


async def run(tools: TrialTools, found: WorkingSet, local: LocalTask) -> None:
    """Runs and grades the steps of a task up to the last one that has to run, and seals the Trial."""
    environment = await phase.agent_environment(tools, found, local)
    parts = parts_of(local.task)
    for part in parts:
        if part.is_separate:
            await phase.verifier_environment(tools, found, local, part)
    uses = tools.adapters[found.job.agent].models(found.job.params)
    agents_s = sum(phase.agent_timeout_s(tools, found, part) for part in parts)
    key = await access.granted(tools, found, uses, agents_s)
    runs = [agent_run.prepared(tools, found, local, part, environment, key) for part in parts]
    progress = _Progress(tools, found, local, environment, runs)
    try:
        for this in runs:
            if not await progress.step(this):
                break
        await progress.seal()
    finally:
        await to_the_end(progress.leave())


class _Progress:
    """The steps of one try so far, and the sandbox in which they run."""

    def __init__(
        self,
        tools: TrialTools,
        found: WorkingSet,
        local: LocalTask,
        environment: Environment,
        runs: Sequence[AgentRun],
    ) -> None:
        self._tools = tools
        self._found = found
        self._local = local
        self._environment = environment
        self._runs = runs
        self._sandbox: Sandbox | None = None
        self._items: list[Item] = []
        self._seals: list[dict[str, str]] = []

    async def step(self, this: AgentRun) -> bool:
        """Runs, seals and grades one step; says whether the next one may run."""
        tools, found, step = self._tools, self._found, this.part.step
        assert step is not None
        try:
            async with phase.meter(
                tools, found, self._environment, Payer.AGENT, this.timeout_s, run_no=this.part.number
            ) as meter:
                ran, left, sandbox = await self._agent(this, step, meter)
        finally:
            await to_the_end(agent_run.keep_logs(tools, this))
        began = tools.clock.monotonic()
        case = Case(found, self._local, this.part, left.manifest_blob, sandbox, this.form)
        verdict = await verifying.verify(tools, case)
        verified_s = round(tools.clock.monotonic() - began, 3)
        item = _item(this, step, ran, left, verdict, verified_s)
        self._items.append(item)
        self._seals.append(
            {"name": step.name, "manifest_blob": left.manifest_blob, "manifest_sha256": left.seal.sha256}
        )
        await self._note(this, verdict, [*left.items, *verdict.items])
        return isinstance(verdict.outcome, Graded) and item["gate"] != "below"

    async def seal(self) -> None:
        """Writes the seal of the whole Trial: it names the seal of every step that ran."""
        tools, found = self._tools, self._found
        steps = [{"name": each["name"], "sha256": each["manifest_sha256"]} for each in self._seals]
        manifest_blob = await tools.blobs.put_bytes(canonical({"schema": "tollbar.steps/v1", "steps": steps}))
        row = {
            "trial_id": found.trial.id,
            "try_no": found.try_no,
            "manifest_blob": manifest_blob,
            "manifest_sha256": manifest_blob,
            "facts": {"steps": self._seals},
            "created_at": tools.clock.now(),
        }
        async with tools.database.transaction() as session:
            if not await store.note_trial(session, found.trial.id, found.try_no, sealed_sha256=manifest_blob):
                raise TryOver
            if not await store.add_seal(session, row):
                raise TryOver

    async def leave(self) -> None:
        """Destroys the sandbox, unless its Job may want it kept."""
        if self._sandbox is not None and self._found.job.keep_failed_s:
            key = (self._found.trial.id, self._found.try_no)
            self._tools.waiting[key] = Waiting(self._sandbox, self._found.job.keep_failed_s)
        elif self._sandbox is not None:
            await phase.destroy(self._sandbox)

    async def _agent(self, this: AgentRun, step: Step, meter: Meter) -> tuple[Ran, Sealed, Sandbox]:
        tools, started = self._tools, self._tools.clock.monotonic()
        first = self._sandbox is None
        sandbox = self._sandbox = self._sandbox or await agent_run.new_sandbox(tools, this)
        meter.sandbox_stands()
        async with _touched(step.name, by_agent=not first):
            await self._upload(this, step, sandbox, first=first)
            if first:
                await meter.run(phase.healthy(tools, sandbox, self._environment.healthcheck))
                await meter.run(agent_run.set_up(this, sandbox))
            if f"{step.folder}/workdir/setup.sh" in this.part.task.paths:
                await self._set_up_step(sandbox, meter)
            await meter.run(phase.healthy(tools, sandbox, step.healthcheck))
            if first:
                await phase.note_running(tools, self._found)
            ran = await agent_run.execute(tools, this, sandbox, meter, started)
            await agent_run.check_models(tools, this, ran)
        return ran, await agent_run.sealed(tools, this, ran, sandbox), sandbox

    async def _upload(self, this: AgentRun, step: Step, sandbox: Sandbox, *, first: bool) -> None:
        """Takes away what the last step's verifier had and brings the step's own files, while no process lives."""
        tools, folder = self._tools, self._local.folder
        if not first:
            nothing = await verifying.empty(tools)
            for place in ("/tests", "/logs/verifier", "/logs/agent"):
                await sandbox.put(nothing, place)
        solution = this.part.task.solution_folder(step) if this.plan.needs_solution else None
        if solution is not None:
            await sandbox.put(folder / solution, "/solution")
        workdir = folder / step.folder / "workdir"
        if await asyncio.to_thread(workdir.is_dir):
            await sandbox.add(workdir, self._environment.workdir)

    async def _set_up_step(self, sandbox: Sandbox, meter: Meter) -> None:
        script = f"{self._environment.workdir.rstrip('/')}/setup.sh"
        result = await meter.run(sandbox.exec(("bash", script), timeout_s=SETUP_TIMEOUT_S))
        phase.check_memory(result, self._environment)
        if result.exit_code != 0:
            raise EnvironmentStartFailed("start", f"workdir/setup.sh failed: {phase.how_it_failed(result)}")

    async def _note(self, this: AgentRun, verdict: Verdict, items: list[NewArtifact]) -> None:
        """Writes how far the Trial has come, with the artifacts of the step."""
        tools, found = self._tools, self._found
        task = self._local.task
        strategy = task.config.reward_strategy or RewardStrategy.MEAN
        used = [*self._environment.substitutions, *verdict.substitutions]
        facts = {
            "steps": {"total": len(self._runs), "strategy": strategy.value, "items": self._items},
            "agent_outcome": _outcome(self._items),
            "message": next((item["message"] for item in self._items if item["message"]), None),
            "timings": _sums([item["timings_s"] for item in self._items]),
            "substitutions": _unlike([*map(dict, used), *refusals.substitutions(self._local.needs)]),
            "sandbox_forms": {"agent": this.form.value, "verifier": verdict.form.value},
            "flags": list(dict.fromkeys(flag for item in self._items for flag in item["flags"])),
            "refusals": [refusal for item in self._items for refusal in item["artifact_refusals"]],
        }
        async with tools.database.transaction() as session:
            if not await store.note_trial(session, found.trial.id, found.try_no, **tools.clean(facts)):
                raise TryOver
            await artifacts.record(
                session,
                tools.blobs,
                tools.clock,
                items,
                trial_id=found.trial.id,
                project_id=found.job.project_id,
                try_no=found.try_no,
            )


@asynccontextmanager
async def _touched(name: str, *, by_agent: bool) -> AsyncGenerator[None]:
    """Says of which step a start failed; in a sandbox that an agent has had, that is not tried again.

    It came up before, so the agent may have broken it: another try, or another agent's luck, must not be the prize.
    """
    try:
        yield
    except EnvironmentStartFailed as error:
        text = f"Step {name}: {error.message}"
        raise PhaseFailed(Failure(Reason(error.reason), error.detail, text, for_good=by_agent)) from error


def _item(this: AgentRun, step: Step, ran: Ran, left: Sealed, verdict: Verdict, verified_s: float) -> Item:
    outcome = verdict.outcome
    graded = outcome if isinstance(outcome, Graded) else None
    missing = outcome if isinstance(outcome, Unscored) else None
    flags = [*ran.flags, *(graded.flags if graded else ())]
    if graded is not None and verdict.exit_code:
        flags.append("verifier_exit_nonzero")
    said = agent_run.message(this, ran)
    return {
        "name": step.name,
        "reward": graded.reward if graded else None,
        "rewards": dict(graded.members) if graded else None,
        "reason": missing.reason if missing else None,
        "reason_detail": missing.detail if missing else None,
        "message": (missing.message or said) if missing else said,
        "agent_outcome": ran.outcome.value,
        "structured_result": graded.structured() if graded else None,
        "gate": _gate(step.min_reward, graded),
        "min_reward": dict(step.min_reward) if isinstance(step.min_reward, Mapping) else step.min_reward,
        "verifier": {"mode": this.part.mode.value, "exit_code": verdict.exit_code, "runs": verdict.runs},
        "timings_s": {**ran.timings, "seal": left.seal_s, "verifier": verified_s},
        "flags": flags,
        "artifact_refusals": left.refusals,
        "sealed_sha256": left.seal.sha256,
        "agent_report": reports.document(ran.report),
    }


def _gate(wanted: float | Mapping[str, float] | None, graded: Graded | None) -> str | None:
    """Returns `reached` or `below`, None without a `min_reward`; a missing value is below everything."""
    if wanted is None:
        return None
    least = wanted if isinstance(wanted, Mapping) else {"reward": wanted}
    members = graded.members if graded is not None else {}
    return "reached" if all(name in members and members[name] >= value for name, value in least.items()) else "below"


def ending(found: WorkingSet) -> Ending:
    """Returns the ending of a Trial whose steps were all run and graded, from what stands on it."""
    trial = found.trial
    assert trial.steps is not None
    items: list[Item] = trial.steps["items"]
    modes = {item["verifier"]["mode"] for item in items}
    values = {
        "verifier": {
            "mode": (VerifierMode.SHARED if VerifierMode.SHARED in modes else VerifierMode.SEPARATE).value,
            "exit_code": items[-1]["verifier"]["exit_code"],
            "tests": "task",
            "sealed_sha256": trial.sealed_sha256,
            "runs": sum(item["verifier"]["runs"] for item in items),
        }
    }
    for item in items:
        if item["reason"] is not None:
            text = f"Step {item['name']}: {item['message'] or item['reason_detail'] or item['reason']}"
            return endings.unscored(Failure(Reason(item["reason"]), item["reason_detail"], text), **values)
    graded = [_graded(item) for item in items]
    if trial.steps["strategy"] == RewardStrategy.FINAL:
        outcome: Graded | Unscored = graded[-1]
    else:
        weights = {name: float(weight) for name, weight in found.task_row.weights.items()}
        outcome = rewards.mean(graded, weights)
    if isinstance(outcome, Unscored):
        return endings.unscored(Failure(Reason(outcome.reason), outcome.detail, outcome.message), **values)
    return endings.scored(outcome, found.task_row.threshold, **values)


def _graded(item: Item) -> Graded:
    """Returns what a step's verifier said, from how the Trial shows it."""
    structured = item["structured_result"] or {}
    return Graded(
        reward=item["reward"],
        dimensions=structured.get("dimensions") or {},
        composite=structured.get("composite"),
        details=structured.get("details"),
        failure_code=structured.get("failure_code"),
        members=item["rewards"],
    )


def _outcome(items: Sequence[Item]) -> str:
    """Returns how the agent of a Trial ended: as the first step whose agent did not complete, if there is one."""
    words = [item["agent_outcome"] for item in items]
    return next((word for word in words if word != AgentOutcome.COMPLETED), AgentOutcome.COMPLETED.value)


def _sums(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: round(sum(table.get(name, 0.0) for table in tables), 3) for name in names}


def _unlike(made: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for number, each in enumerate(made) if each not in made[:number]]
