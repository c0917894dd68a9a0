"""Tasks with steps: what each step sees, where a Trial stops, what its reward is, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs import checks
from tests.jobs.standin import Behaviour, Call, ended, timed_out
from tests.jobs.world import METERED, RATE_PUSD, World

from tollbar.jobs.rewards import Graded, Unscored, mean
from tollbar.kit.money import format_usd
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.interface import ExecResult

TOML = """\
schema_version = "1.4"
artifacts = ["/app/out.txt"]
{top}
[verifier]
environment_mode = "{mode}"
{verifier}
[environment]
network_mode = "no-network"
{environment}
[[steps]]
name = "one"
{one}
[[steps]]
name = "two"
{two}
[[steps]]
name = "three"
{three}
"""
NAMES = ("one", "two", "three")


def toml(mode: str = "shared", **parts: str) -> str:
    given = dict.fromkeys(("top", "verifier", "environment", *NAMES), "")
    return TOML.format(mode=mode, **{**given, **parts})


def files(**more: str | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {f"steps__{name}__instruction_dot_md": f"Do {name}.\n" for name in NAMES}
    return {**found, **more}


def rewards(*values: str) -> list[Behaviour]:
    """Returns verifiers that write these, one after the other; text beginning with a brace is a reward.json."""

    def judge(value: str) -> Behaviour:
        def behave(call: Call) -> ExecResult:
            name = "json" if value.startswith("{") else "txt"
            call.write(f"/logs/verifier/reward.{name}", value)
            return ended()

        return behave

    return [judge(value) for value in values]


async def one(world: World, text: str, **more: str | None) -> dict[str, Any]:
    await world.publish("team/steps", tasks=("walk",), toml=text, **files(**more))
    trial = await world.one(dataset="team/steps@1")
    await checks.all_has_ended(world)
    return trial


def short(trial: Mapping[str, Any]) -> tuple[Any, ...]:
    return trial["status"], trial["reward"], trial["reason"], trial["reason_detail"]


def names(trial: Mapping[str, Any]) -> list[str]:
    return [item["name"] for item in trial["steps"]["items"]]


async def test_the_mean_of_the_steps_that_ran_is_the_reward_and_their_number_stands_beside_it(world: World) -> None:
    world.provider.verifier = rewards("1", "0.4")
    trial = await one(world, toml(two="min_reward = 0.5"))
    assert short(trial) == ("succeeded", 0.7, None, None)
    assert (trial["steps_run"], trial["steps_total"], names(trial)) == (2, 3, ["one", "two"])
    assert [item["gate"] for item in trial["steps"]["items"]] == [None, "below"]
    assert [item["reward"] for item in trial["steps"]["items"]] == [1.0, 0.4]
    assert trial["steps"]["strategy"] == "mean"
    (item,) = (await world.result(trial["job_id"]))["trials"]["items"]
    assert (item["reward"], item["steps_run"], item["steps_total"]) == (0.7, 2, 3)


async def test_the_final_strategy_takes_the_last_step_that_ran(world: World) -> None:
    world.provider.verifier = rewards("1", "0.4")
    trial = await one(world, toml(top='multi_step_reward_strategy = "final"', two="min_reward = 0.5"))
    assert (trial["reward"], trial["steps"]["strategy"], trial["steps_run"]) == (0.4, "final", 2)


@pytest.mark.parametrize(
    ("gate", "written", "run"),
    [
        ("min_reward = 1.0", "1", 3),
        ("min_reward = 1.0", "0.999", 1),
        ("min_reward = {speed = 0.5, correct = 1}", '{"speed": 0.5, "correct": 1}', 3),
        ("min_reward = {speed = 0.5, correct = 1}", '{"speed": 0.4, "correct": 1}', 1),
        ("min_reward = {speed = 0.5, correct = 1}", '{"speed": 0.5}', 1),
        ("min_reward = 0.0", '{"speed": 1}', 1),
    ],
)
async def test_a_gate_stops_the_rest_and_a_missing_value_is_below_everything(
    world: World, gate: str, written: str, run: int
) -> None:
    world.provider.verifier = rewards(written)
    trial = await one(world, toml(one=gate))
    assert (trial["status"], trial["steps_run"]) == ("succeeded", run)
    assert world.provider.runs_of("/tests/test.sh") == run


def test_a_key_that_a_step_lacks_counts_zero_in_the_reward_and_is_left_out_as_a_dimension() -> None:
    def step(**members: float) -> Graded:
        return Graded(members["reward"], {"c": members["c"]} if "c" in members else {}, members=members)

    found = mean([step(reward=1, c=1), step(reward=0.5), step(reward=0)], {})
    assert isinstance(found, Graded)
    assert (found.reward, dict(found.dimensions), found.composite) == (0.5, {"c": 1.0}, 0.5)
    assert dict(found.members) == {"reward": 0.5, "c": 1 / 3}
    weighed = mean([step(reward=1, c=1), step(reward=0.5)], {"c": 3.0, "s": 1.0})
    assert isinstance(weighed, Graded)
    assert weighed.composite is None, "a declared dimension that no step has"
    several = [Graded(0.5, members={"a": 1, "b": 0}), Graded(0.5, members={"a": 0.5})]
    assert mean(several, {}) == Graded(0.375, {}, 0.375, members={"a": 0.75, "b": 0.0})
    assert isinstance(mean(several, {"z": 1.0}), Unscored)


async def test_each_step_sees_its_own_files_and_nothing_of_the_verifier_before(world: World) -> None:
    seen: list[Any] = []

    def agent(call: Call) -> ExecResult:
        paths = ("/solution/solve.sh", "/tests/test.sh", "/app/config.txt", "/app/out.txt", "/logs/agent/notes.txt")
        seen.append([call.read(path) for path in paths])
        call.write("/app/out.txt", f"run {len(seen)}")
        call.write("/logs/agent/notes.txt", f"notes {len(seen)}")
        call.sandbox.alive.add("left behind")
        return ended()

    def verifier(call: Call) -> ExecResult:
        assert call.sandbox.alive == {"main"}, "the agent's processes are dead"
        folder = call.sandbox.place("/logs/verifier")
        seen.append((call.read("/tests/test.sh"), call.read("/tests/shared.sh"), list(folder.iterdir())))
        call.write("/logs/verifier/reward.txt", "1")
        return ended()

    world.provider.agent, world.provider.verifier = [agent], [verifier]
    trial = await one(
        world,
        toml(),
        tests__shared_dot_sh="shared",
        steps__two__tests__test_dot_sh="#!/bin/sh\n: two\n",
        steps__two__solution__solve_dot_sh="#!/bin/sh\n: two\n",
        steps__two__workdir__config_dot_txt="config",
    )
    plain, own = "#!/bin/sh\n", "#!/bin/sh\n: two\n"
    assert seen[0::2] == [
        [plain, None, None, None, None],
        [own, None, "config", "run 1", None],
        [plain, None, "config", "run 3", None],
    ]
    assert seen[1::2] == [(plain, "shared", []), (own, "shared", []), (plain, "shared", [])]
    assert len(world.provider.made) == 1, "one sandbox for all"
    assert trial["sandbox_forms"] == {"agent": "held", "verifier": "held"}
    found = {item["name"] for item in trial["artifacts"]["items"]}
    per_step = ("app/out.txt", "agent/notes.txt", "agent/oracle.txt", "verifier/reward.txt", "verifier/test-stdout.txt")
    assert found == {f"steps/{name}/{path}" for name in NAMES for path in per_step}
    assert trial["sealed_sha256"] == await world.value("SELECT manifest_sha256 FROM seal")


async def test_separate_verifiers_get_the_seal_of_their_step_in_sandboxes_of_their_own(world: World) -> None:
    def agent(call: Call) -> ExecResult:
        call.write("/app/out.txt", (call.read("/app/out.txt") or "") + "x")
        return ended()

    seen: list[str | None] = []

    def verifier(call: Call) -> ExecResult:
        seen.append(call.read("/app/out.txt"))
        seen.append(call.read("/tests/extra.sh"))
        call.write("/app/out.txt", "changed")
        call.write("/logs/verifier/reward.txt", "1")
        return ended()

    world.provider.agent, world.provider.verifier = [agent], [verifier]
    trial = await one(world, toml("separate"), steps__three__tests__extra_dot_sh="extra")
    assert seen == ["x", None, "xx", None, "xxx", "extra"]
    assert trial["sandbox_forms"] == {"agent": "held", "verifier": "one_shot"}
    assert (trial["verifier"]["mode"], trial["reward"], len(world.provider.made)) == ("separate", 1.0, 4)


@pytest.mark.requirement("G-EVAL-18.8")
@pytest.mark.parametrize(
    ("verifier", "reason", "detail"),
    [
        (lambda _: ended(), "REWARD_MISSING", "absent"),
        (lambda _: timed_out(), "VERIFIER_TIMEOUT", None),
        (lambda _: ended(75), "VERIFIER_FAILED", "unavailable"),
    ],
)
async def test_a_step_without_a_reward_makes_the_trial_unscored_and_keeps_what_was_sealed(
    world: World, verifier: Callable[[Call], ExecResult], reason: str, detail: str | None
) -> None:
    world.provider.verifier = [*rewards("1"), verifier]
    trial = await one(world, toml())
    assert short(trial) == ("failed", None, reason, detail)
    assert (trial["try_no"], names(trial), trial["steps"]["items"][0]["reward"]) == (1, ["one", "two"], 1.0)
    assert trial["message"].startswith("Step two: ")
    assert trial["sealed_sha256"] is not None
    assert world.provider.runs_of("/solution/solve.sh") == 2


async def test_an_agent_that_runs_out_of_time_in_a_step_is_graded_and_goes_on(world: World) -> None:
    world.provider.agent = [lambda _: ended(), lambda _: timed_out(), lambda _: ended(3)]
    world.provider.verifier = rewards("1", "0", "0.5")
    trial = await one(world, toml(two="[steps.agent]\ntimeout_sec = 7"))
    assert (trial["reward"], trial["agent_outcome"]) == (0.5, "timeout")
    outcomes = [item["agent_outcome"] for item in trial["steps"]["items"]]
    assert outcomes == ["completed", "timeout", "nonzero_exit"]
    assert trial["message"] == "The agent's time limit of 7 s was reached after 30.0 s."


async def test_a_fault_in_a_later_step_replays_all_of_them_and_counts_once(world: World) -> None:
    world.provider.faults["seal:agent"] = [None, None, SandboxLost("seal", "It was lost.")]
    world.provider.verifier = rewards("1", "1", "0", "0.5", "1")
    trial = await one(world, toml())
    assert (trial["try_no"], trial["steps_run"]) == (2, 3)
    assert world.provider.runs_of("/solution/solve.sh") == 5
    assert trial["reward"] == 0.5
    tries = await world.rows("SELECT DISTINCT try_no FROM artifact")
    assert [row[0] for row in tries] == [2], "nothing of the lost try stands beside"


async def test_a_worker_that_dies_between_the_two_steps_of_the_engine_runs_no_step_again(world: World) -> None:
    await world.publish("team/steps", tasks=("walk",), toml=toml(), **files())
    job = await world.submit(dataset="team/steps@1")
    await world.expand(job["job_id"])
    (work,) = [row.id for row in await world.engine.waiting()]

    async def die(step: str) -> None:
        if step == "agent":
            world.engine.after_step = None
            world.engine.cut(work)

    world.engine.after_step = die
    await world.engine.run(work)
    await world.recovery.take_over([work])
    await world.engine.drain(world.pump.run_once)
    (trial,) = await world.trial_results(job["job_id"])
    assert (trial["status"], trial["try_no"], trial["steps_run"]) == ("succeeded", 2, 3)
    assert world.provider.runs_of("/solution/solve.sh") == world.provider.runs_of("/tests/test.sh") == 3
    await checks.all_has_ended(world)


@pytest.mark.parametrize("where", ["setup", "healthcheck"])
async def test_a_step_that_does_not_come_up_after_the_agent_was_there_has_its_reason_and_no_other_try(
    world: World, where: str
) -> None:
    world.provider.other = [lambda _: ended(9, stderr_tail=b"why")]
    checked = 'healthcheck = {command = "true", retries = 2, interval_sec = 1}'
    text = toml(two=checked) if where == "healthcheck" else toml()
    script = {} if where == "healthcheck" else {"steps__two__workdir__setup_dot_sh": "#!/bin/bash\n"}
    trial = await one(world, text, **script)
    detail = "healthcheck" if where == "healthcheck" else "start"
    assert short(trial) == ("failed", None, "ENVIRONMENT_START_FAILED", detail)
    assert (trial["try_no"], world.provider.runs_of("/solution/solve.sh")) == (1, 1)
    assert trial["message"].startswith("Step two: ")
    assert "why" in trial["message"]


@pytest.mark.parametrize("where", ["setup", "healthcheck"])
async def test_a_first_step_that_does_not_come_up_is_a_fault_of_the_infrastructure(world: World, where: str) -> None:
    world.provider.other = [lambda _: ended(9), lambda _: ended()]
    checked = 'healthcheck = {command = "true", retries = 1}'
    script = {} if where == "healthcheck" else {"steps__one__workdir__setup_dot_sh": "#!/bin/bash\n"}
    trial = await one(world, toml(one=checked) if where == "healthcheck" else toml(), **script)
    assert (trial["status"], trial["try_no"]) == ("succeeded", 2)
    assert world.provider.runs_of("/solution/solve.sh") == 3


async def test_a_shell_that_an_agent_broke_between_steps_brings_it_no_second_try(world: World) -> None:
    error = EnvironmentStartFailed("start", "sh: not found")
    world.provider.faults["exec:agent"] = [None, None, error]
    trial = await one(world, toml())
    assert short(trial) == ("failed", None, "ENVIRONMENT_START_FAILED", "start")
    assert (trial["try_no"], names(trial)) == (1, ["one"])


async def test_every_step_pays_for_its_agent_and_its_verifier_and_nothing_twice(patient: World) -> None:
    patient.provider.verifier = rewards("1")
    await patient.publish("team/steps", tasks=("walk",), toml=toml(), **files())
    trial = await patient.one(dataset="team/steps@1", runner=METERED, max_cost_usd=100)
    assert trial["reward"] == 1.0
    rows = await patient.rows("SELECT purpose, count(*), count(DISTINCT id) FROM ledger_call GROUP BY 1 ORDER BY 1")
    assert [(row[1], row[2]) for row in rows] == [(3, 3), (3, 3)]
    assert trial["cost"]["total_usd"] == trial["cost"]["verifier_usd"] == "0", "the clock stands still"
    dry = await patient.submit(dataset="team/steps@1", runner=METERED, dry_run=True)
    # Three agents of an hour at most, and three verifiers of 600 s, each with 5 s for start and end.
    assert dry["worst_case_usd"] == format_usd(RATE_PUSD * 3 * (3605 + 605))
    await checks.all_has_ended(patient)


async def test_what_a_step_asks_for_and_cannot_have_is_refused_before_anything_starts(world: World) -> None:
    hook = '[[steps.verifier.collect]]\ncommand = "true"\nuser = "nobody"'
    trial = await one(world, toml(two=hook))
    assert short(trial) == ("failed", None, "ENVIRONMENT_REFUSED", "key")
    assert world.provider.made == []


async def test_a_job_that_insists_on_one_shot_sandboxes_cannot_run_steps(world: World) -> None:
    await world.publish("team/steps", tasks=("walk",), toml=toml(), **files())
    blind = replace(world, context=replace(world.context, capabilities={}))
    trial = await blind.one(dataset="team/steps@1", execution={"sandbox_form": "one_shot"})
    assert short(trial) == ("failed", None, "ENVIRONMENT_REFUSED", "key")
    assert "execution.sandbox_form" in trial["message"]
    assert world.provider.made == []
