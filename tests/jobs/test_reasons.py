"""Every row of the table of reasons that this version has: the words, whether it counts, and how often it is tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.standin import Behaviour, Call, ended, out_of_memory, solves, timed_out
from tests.jobs.world import ONE, SEPARATE, SHARED, SHARED_ONE, World

from tollbar.sandboxes.errors import (
    EnvironmentBuildFailed,
    EnvironmentFailure,
    EnvironmentRefused,
    EnvironmentStartFailed,
    SandboxLost,
)
from tollbar.sandboxes.interface import ExecResult

AGENT, VERIFIER = "/solution/solve.sh", "/tests/test.sh"


def fails(error: type[EnvironmentFailure], detail: str) -> EnvironmentFailure:
    return error(detail, "It said so.")


def writes(path: str, data: str | bytes, result: ExecResult | None = None) -> Behaviour:
    """Returns a verifier that writes one file and ends."""

    def behave(call: Call) -> ExecResult:
        call.write(path, data)
        return result or ended()

    return behave


def says(result: ExecResult | Exception) -> Behaviour:
    """Returns a command that only ends so."""

    def behave(call: Call) -> ExecResult:
        if isinstance(result, Exception):
            raise result
        return result

    return behave


def words(trial: dict[str, Any]) -> tuple[Any, ...]:
    return trial["status"], trial["reward"], trial["reason"], trial["reason_detail"]


async def nothing_is_left(world: World) -> None:
    """No sandbox, no log file, no reservation, no Trial that lives."""
    assert world.provider.living() == []
    assert world.tools.waiting == {}
    assert world.log_files() == []
    assert await world.value("SELECT coalesce(sum(reserved_pusd), 0)::int FROM budget") == 0
    live = "state NOT IN ('succeeded', 'failed', 'cancelled')"
    assert await world.value(f"SELECT count(*) FROM trial WHERE {live}") == 0
    assert await world.value("SELECT count(*) FROM job WHERE state IN ('pending', 'running', 'stopping')") == 0


@pytest.mark.requirement("G-EVAL-17.capability")
@pytest.mark.parametrize(
    ("detail", "change", "mentions"),
    [
        ("network", ('network_mode = "no-network"', 'network_mode = "public"'), "network_mode public"),
        ("gpu", ("[environment]\n", "[environment]\ngpus = 2\n"), "environment.gpus"),
        ("os", ("[environment]\n", '[environment]\nos = "windows"\n'), "environment.os"),
        ("variable", ("[environment]\n", '[environment]\nenv = {A = "${MISSING}"}\n'), "${MISSING}"),
        ("key", ("[environment]\n", '[environment]\nskills_dir = "/skills"\n'), "skills_dir"),
        ("key", ("[agent]\n", '[agent]\nuser = "nobody"\n'), "user"),
        ("key", ("[environment]\n", "[environment]\nhealthcheck = {command = 'true'}\n"), "healthcheck"),
        ("key", ("[agent]\n", "[metadata.tollbar]\nkeep_agent_processes = true\n[agent]\n"), "keep_agent_processes"),
        ("key", ("[agent]\n", '[[verifier.collect]]\ncommand = "true"\nuser = "nobody"\n[agent]\n'), "collect.user"),
    ],
)
async def test_what_the_backend_cannot_give_is_refused_before_anything_starts(
    world: World, detail: str, change: tuple[str, str], mentions: str
) -> None:
    mode = SHARED if "keep_agent" in change[1] else SEPARATE
    files = {"tests__test_dot_bat": "", "solution__solve_dot_bat": ""} if detail == "os" else {}
    await world.publish("team/odd", tasks=("odd",), toml=mode.replace(*change), **files)
    world.provider.can = replace(world.provider.can, healthcheck=detail != "key")
    blind = replace(world, context=replace(world.context, capabilities={}))  # so that the submission is taken
    trial = await blind.one(dataset="team/odd@1", runner="envhub/metered@main", max_cost_usd=1)
    assert words(trial) == ("failed", None, "ENVIRONMENT_REFUSED", detail)
    assert mentions in trial["message"]
    assert (world.provider.made, world.provider.built) == ([], [])
    assert (trial["try_no"], trial["cost"]["total_usd"]) == (1, "0")
    await nothing_is_left(world)


@pytest.mark.requirement("G-EVAL-18.8")
@pytest.mark.parametrize(
    ("where", "error", "reason", "detail", "tries"),
    [
        ("build", fails(EnvironmentRefused, "substitution"), "ENVIRONMENT_REFUSED", "substitution", 1),
        ("build", fails(EnvironmentBuildFailed, "build"), "ENVIRONMENT_BUILD_FAILED", "build", 3),
        ("build", fails(EnvironmentBuildFailed, "timeout"), "ENVIRONMENT_BUILD_FAILED", "timeout", 3),
        ("create:agent", fails(EnvironmentStartFailed, "start"), "ENVIRONMENT_START_FAILED", "start", 3),
        ("create:agent", fails(EnvironmentStartFailed, "timeout"), "ENVIRONMENT_START_FAILED", "timeout", 3),
        ("exec:agent", fails(EnvironmentStartFailed, "start"), "ENVIRONMENT_START_FAILED", "start", 3),
        ("exec:agent", fails(SandboxLost, "worker"), "SANDBOX_LOST", "worker", 3),
        ("exec:agent", fails(SandboxLost, "engine"), "SANDBOX_LOST", "engine", 3),
        ("kill:agent", fails(SandboxLost, "engine"), "SANDBOX_LOST", "engine", 3),
        ("seal:agent", fails(SandboxLost, "seal"), "SANDBOX_LOST", "seal", 3),
        ("create:agent", OSError(28, "No space left on device"), "INTERNAL_ERROR", None, 2),
        ("seal:agent", RuntimeError("a bug"), "INTERNAL_ERROR", None, 2),
        ("layer", RuntimeError("a bug"), "INTERNAL_ERROR", None, 2),
    ],
)
async def test_a_fault_of_the_infrastructure_is_tried_again_and_at_last_has_its_reason(
    world: World, where: str, error: Exception, reason: str, detail: str | None, tries: int
) -> None:
    world.provider.faults[where] = [error] * 3
    trial = await world.one(dataset=ONE)
    assert words(trial) == ("failed", None, reason, detail)
    assert (trial["try_no"], trial["agent_outcome"]) == (tries, None)
    assert "a bug" not in (trial["message"] or "")
    assert world.provider.runs_of(VERIFIER) == 0
    await nothing_is_left(world)


@pytest.mark.requirement("G-EVAL-18.12")
async def test_a_fault_that_passes_costs_a_try_and_no_slot(world: World) -> None:
    world.provider.faults["create:agent"] = [fails(EnvironmentStartFailed, "start"), fails(SandboxLost, "engine")]
    started = world.clock.monotonic()
    job = await world.run(dataset=ONE)
    (trial,) = await world.trial_results(job["job_id"])
    assert words(trial) == ("succeeded", 1.0, None, None)
    assert (trial["try_no"], trial["attempt"], job["n_scored"], job["n_total"]) == (3, 1, 1, 1)
    # 2 s and 8 s, each 20 % either way.
    assert 8.0 <= world.clock.monotonic() - started <= 12.0
    await nothing_is_left(world)


@pytest.mark.requirement("G-SBX-14.memory_whole")
async def test_the_whole_sandbox_ended_for_memory_is_no_score_and_is_tried_again(world: World) -> None:
    world.provider.agent = [says(out_of_memory()), solves]
    assert (await world.one(dataset=ONE))["try_no"] == 2
    world.provider.agent = [says(out_of_memory())]
    trial = await world.one(dataset=ONE)
    assert words(trial) == ("failed", None, "SANDBOX_OOM", None)
    assert (trial["try_no"], trial["agent_outcome"]) == (3, None)
    assert "2048 MiB" in trial["message"]
    assert [item["name"] for item in trial["artifacts"]["items"]] == ["agent/oracle.txt"]
    await nothing_is_left(world)


@pytest.mark.parametrize(
    ("agent", "outcome", "message"),
    [
        (says(ended(0)), "completed", None),
        (says(timed_out()), "timeout", "The agent's time limit of 30 s was reached after 30.0 s."),
        (says(ended(3)), "nonzero_exit", None),
        (says(ended(137, oom_killed=True)), "nonzero_exit", None),
    ],
)
@pytest.mark.parametrize("reward", [1.0, 0.0])
async def test_however_the_agent_ended_its_work_is_graded_and_counts(
    world: World, agent: Behaviour, outcome: str, message: str | None, reward: float
) -> None:
    world.provider.agent = [agent]
    world.provider.verifier = [writes("/logs/verifier/reward.txt", str(reward))]
    job = await world.run(dataset=ONE)
    (trial,) = await world.trial_results(job["job_id"])
    assert words(trial) == ("succeeded", reward, None, None)
    assert (trial["agent_outcome"], trial["message"], trial["try_no"]) == (outcome, message, 1)
    assert (job["n_scored"], job["score"]) == (1, reward)
    await nothing_is_left(world)


async def test_an_agent_that_cannot_run_a_task_is_not_tried_again(world: World) -> None:
    await world.publish("team/bare", tasks=("bare",), solution__solve_dot_sh=None)
    trial = await world.one(dataset="team/bare@1")
    assert words(trial) == ("failed", None, "AGENT_SETUP_FAILED", "install")
    assert (trial["try_no"], world.provider.made) == (1, [])
    await nothing_is_left(world)


@pytest.mark.parametrize(
    ("verifier", "reason", "detail"),
    [
        (writes("/logs/verifier/reward.txt", "1", timed_out()), "VERIFIER_TIMEOUT", None),
        (says(ended(0)), "REWARD_MISSING", "absent"),
        (says(ended(1)), "REWARD_MISSING", "absent"),
        (writes("/logs/verifier/reward.txt", ""), "REWARD_MISSING", "empty"),
        (writes("/logs/verifier/reward.txt", "1_0"), "REWARD_INVALID", "not_a_number"),
        (writes("/logs/verifier/reward.json", '{"reward": 0, "reward": 1}'), "REWARD_INVALID", "duplicate_key"),
        (writes("/logs/verifier/reward.txt", "1" * 70_000), "REWARD_TOO_LARGE", "size"),
    ],
)
async def test_a_verifier_without_a_reward_ends_the_trial_at_once(
    world: World, verifier: Behaviour, reason: str, detail: str | None
) -> None:
    world.provider.verifier = [verifier]
    job = await world.run(dataset=ONE)
    (trial,) = await world.trial_results(job["job_id"])
    assert words(trial) == ("failed", None, reason, detail)
    assert (trial["try_no"], trial["verifier"]["runs"], trial["agent_outcome"]) == (1, 1, "completed")
    assert (job["status"], job["error"]["code"], job["score"], job["n_scored"]) == (
        "failed",
        "NO_TRIAL_SCORED",
        None,
        0,
    )
    if reason == "VERIFIER_TIMEOUT":
        assert trial["message"] == "The verifier's time limit of 20 s was reached after 30.0 s."
    await nothing_is_left(world)


async def test_an_image_that_lacks_its_test_script_has_a_reason_and_no_second_run(world: World) -> None:
    # A verifier image of the task's own must bring `/tests`; this stand-in's image brings nothing.
    await world.publish("team/own", tasks=("own",), tests__Dockerfile="FROM scratch\n")
    trial = await world.one(dataset="team/own@1")
    assert words(trial) == ("failed", None, "VERIFIER_FAILED", "script")
    assert (trial["try_no"], trial["verifier"]["runs"], world.provider.runs_of(VERIFIER)) == (1, 1, 0)
    await nothing_is_left(world)


FAULTS: dict[str, tuple[str, Exception]] = {
    "start": ("create:verify", fails(EnvironmentStartFailed, "start")),
    "upload": ("scratch", OSError(5, "Input/output error")),
    "download": ("seal:verify", fails(SandboxLost, "seal")),
}


@pytest.mark.parametrize(("detail", "fault"), FAULTS.items())
async def test_a_fault_of_the_verifiers_sandbox_repeats_the_verifier_alone(
    world: World, detail: str, fault: tuple[str, Exception]
) -> None:
    where, error = fault
    world.provider.faults[where] = [error] * 2
    trial = await world.one(dataset=ONE)
    assert words(trial) == ("succeeded", 1.0, None, None)
    assert (trial["try_no"], trial["verifier"]["runs"]) == (1, 3)
    world.provider.faults[where] = [error] * 3
    trial = await world.one(dataset=ONE)
    assert words(trial) == ("failed", None, "VERIFIER_FAILED", detail)
    assert (trial["try_no"], trial["verifier"]["runs"], trial["agent_outcome"]) == (1, 3, "completed")
    assert world.provider.runs_of(AGENT) == 2
    await nothing_is_left(world)


@pytest.mark.requirement("G-EVAL-18.7")
@pytest.mark.parametrize("source", [ONE, SHARED_ONE])
async def test_a_verifier_that_cannot_judge_is_asked_three_times_on_the_same_work(
    world: World, source: dict[str, str]
) -> None:
    world.provider.verifier = [says(ended(75))]
    trial = await world.one(dataset=source)
    assert words(trial) == ("failed", None, "VERIFIER_FAILED", "unavailable")
    assert (world.provider.runs_of(AGENT), world.provider.runs_of(VERIFIER)) == (1, 3)
    # One sandbox for all in shared mode; a fresh one for each run of a separate verifier.
    assert len(world.provider.made) == (1 if source is SHARED_ONE else 4)
    await nothing_is_left(world)


async def test_exit_75_with_a_reward_is_only_an_exit_code(world: World) -> None:
    world.provider.verifier = [writes("/logs/verifier/reward.txt", "0.5", ended(75))]
    trial = await world.one(dataset=ONE)
    assert (trial["reward"], trial["flags"]) == (0.5, ["verifier_exit_nonzero"])


async def test_sealed_bytes_that_are_gone_are_missing_input_and_not_tried_again(world: World) -> None:
    held: list[str] = []

    async def lose(step: str) -> None:
        if step == "agent":
            held.append(await world.value("SELECT sha256 FROM artifact WHERE name = 'app/out.txt'"))
            await world.blobs.store.delete_async(f"sha256/{held[0][:2]}/{held[0][2:]}")

    world.engine.after_step = lose
    trial = await world.one(dataset=ONE)
    assert words(trial) == ("failed", None, "VERIFIER_INPUT_MISSING", None)
    assert (trial["try_no"], trial["verifier"]["runs"]) == (1, 1)
    await nothing_is_left(world)


@pytest.mark.parametrize("source", [ONE, SHARED_ONE])
async def test_a_sandbox_that_is_lost_under_the_verifier_is_a_lost_try(world: World, source: dict[str, str]) -> None:
    purpose = "agent" if source is SHARED_ONE else "verify"
    first = [None] if source is SHARED_ONE else []
    world.provider.faults[f"exec:{purpose}"] = [*first, fails(SandboxLost, "worker")]
    trial = await world.one(dataset=source)
    assert words(trial) == ("succeeded", 1.0, None, None)
    assert trial["try_no"] == 2
    # What is sealed is graded; a shared sandbox takes the agent's work with it.
    assert world.provider.runs_of(AGENT) == (2 if source is SHARED_ONE else 1)
    await nothing_is_left(world)


async def test_a_fault_of_ours_while_grading_is_tried_once_more_on_the_seal(world: World) -> None:
    world.provider.faults["kill:verify"] = [RuntimeError("a bug"), RuntimeError("a bug")]
    trial = await world.one(dataset=ONE)
    assert words(trial) == ("failed", None, "INTERNAL_ERROR", None)
    assert (trial["try_no"], world.provider.runs_of(AGENT), world.provider.runs_of(VERIFIER)) == (2, 1, 2)
    await nothing_is_left(world)
