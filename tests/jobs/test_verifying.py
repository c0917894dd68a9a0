"""What the verifier sees, what is read of it, and what stands beside a reward."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.jobs.standin import Call, ended, solves, timed_out
from tests.jobs.world import ONE, SEPARATE, SHARED, SHARED_ONE, World

from tollbar.sandboxes.interface import ExecResult


async def test_a_shared_verifier_starts_with_a_fresh_folder_and_no_process_of_the_agents(world: World) -> None:
    def plants(call: Call) -> ExecResult:
        call.write("/logs/verifier/reward.json", '{"reward": 1}')
        call.write("/logs/verifier/reward.txt", "1")
        call.write("/tests/test.sh", "echo mine")
        call.sandbox.alive.add("background")
        return ended()

    seen: list[Any] = []

    def looks(call: Call) -> ExecResult:
        folder = call.sandbox.place("/logs/verifier")
        seen.append((sorted(path.name for path in folder.iterdir()), set(call.sandbox.alive)))
        seen.append(call.read("/tests/test.sh"))
        call.sandbox.alive.add("rewrites the reward")
        return ended()

    world.provider.agent, world.provider.verifier = [plants], [looks]
    trial = await world.one(dataset=SHARED_ONE)
    # The stand-in refuses to seal and to read while anything lives, so the verifier's own process is dead, too.
    assert seen == [([], {"main"}), "#!/bin/sh\n"]
    assert (trial["reason"], trial["reason_detail"]) == ("REWARD_MISSING", "absent")
    assert trial["verifier"]["mode"] == "shared"


async def test_a_link_at_the_shared_verifiers_place_is_replaced_and_not_followed(world: World) -> None:
    target = world.root / "outside"
    target.mkdir()

    def links(call: Call) -> ExecResult:
        place = call.sandbox.place("/logs/verifier")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        return ended()

    world.provider.agent = [links]
    await world.one(dataset=SHARED_ONE)
    assert list(target.iterdir()) == []


async def test_a_separate_verifier_sees_the_seal_and_nothing_else_of_the_agents(world: World) -> None:
    def works(call: Call) -> ExecResult:
        call.write("/app/out.txt", "done")
        call.write("/app/undeclared.txt", "unseen")
        call.write("/tests/test.sh", "echo mine")
        call.write("/logs/artifacts/shot.txt", "published")
        return ended()

    seen: list[Any] = []

    def looks(call: Call) -> ExecResult:
        paths = ("/app/out.txt", "/app/undeclared.txt", "/logs/artifacts/shot.txt", "/tests/test.sh")
        seen.extend(call.read(path) for path in paths)
        return ended()

    world.provider.agent, world.provider.verifier = [works], [looks]
    trial = await world.one(dataset=ONE)
    assert seen == ["done", None, "published", "#!/bin/sh\n"]
    names = {item["name"]: item["kind"] for item in trial["artifacts"]["items"]}
    assert names["app/out.txt"] == names["logs/artifacts/shot.txt"] == "output"


async def test_a_declared_file_that_the_agent_did_not_write_is_listed_as_missing_and_the_reward_stands(
    world: World,
) -> None:
    world.provider.agent = [lambda _: ended()]
    trial = await world.one(dataset=ONE)
    assert (trial["reward"], trial["status"]) == (0.0, "succeeded")
    (missing,) = [item for item in trial["artifacts"]["items"] if item["state"] == "missing"]
    assert missing["name"] == "app/out.txt"


async def test_an_agent_without_a_command_is_graded_on_an_untouched_sandbox(world: World) -> None:
    trial = await world.one(dataset=ONE, profile_name="tollbar/nop")
    assert (trial["reward"], trial["agent_outcome"]) == (0.0, "completed")
    assert world.provider.runs_of("/solution/solve.sh") == 0


async def test_a_reward_file_that_is_a_link_is_absent(world: World) -> None:
    def links(call: Call) -> ExecResult:
        call.write("/logs/verifier/real", "1")
        call.sandbox.place("/logs/verifier/reward.txt").symlink_to("real")
        return ended()

    world.provider.verifier = [links]
    trial = await world.one(dataset=ONE)
    assert (trial["reason"], trial["reason_detail"]) == ("REWARD_MISSING", "absent")


def writing(**files: str | bytes) -> Any:
    def behave(call: Call) -> ExecResult:
        for name, data in files.items():
            call.write(f"/logs/verifier/{name.replace('__', '-').replace('_dot_', '.')}", data)
        return ended()

    return behave


DETAILS = "reward__details_dot_json"
DEEP = "[" * 400 + "]" * 400


HOSTILE: list[str | bytes] = [
    '{"why": "\\u0000"}',
    '{"\\u0000": 1}',
    '{"why": "\\ud800"}',
    '{"why": ["a", {"b\\udfff": 1}]}',
    DEEP,
    '{"a": ' + DEEP + "}",
    "{",
    b"\xff",
    '{"a": NaN}',
    '{"a": 1, "a": 2}',
    "[" + "9" * 5000 + "]",
]


async def test_hostile_details_are_flagged_and_never_touch_the_reward(world: World) -> None:
    world.provider.verifier = [writing(reward_dot_txt="1", **{DETAILS: details}) for details in HOSTILE]
    job = await world.run(dataset=ONE, attempts=len(HOSTILE))
    assert (job["n_scored"], job["score"]) == (len(HOSTILE), 1.0)
    for trial in await world.trial_results(job["job_id"]):
        assert (trial["reward"], trial["flags"], trial["structured_result"]) == (1.0, ["details_invalid"], None)


async def test_details_that_are_no_dimensions_are_kept_as_text(world: World) -> None:
    kept: list[Any] = [{str(number): 1 for number in range(65)}, {"": 1}, {"a" * 129: 1}, {"a\nb": 1}, {"a": 1e10}]
    world.provider.verifier = [writing(reward_dot_txt="1", **{DETAILS: json.dumps(details)}) for details in kept]
    job = await world.run(dataset=ONE, attempts=len(kept))
    trials = await world.trial_results(job["job_id"])
    found = [trial["structured_result"] for trial in trials]
    assert all({"dimensions": {}, "composite": 1.0, "details": details} in found for details in kept)
    assert all(trial["flags"] == [] for trial in trials)


async def test_a_structured_reward_has_dimensions_a_composite_and_a_failure_code(world: World) -> None:
    toml = SEPARATE + '\n[metadata.tollbar]\nweights = {correctness = "3", style = "1"}\npass_threshold = "0.8"\n'
    await world.publish("team/weighed", tasks=("one",), toml=toml)
    details = {"failure_code": "WRONG_TOTAL", "why": "one of two"}
    world.provider.verifier = [
        writing(reward_dot_json='{"correctness": 1, "style": 0.5}', **{DETAILS: json.dumps(details)})
    ]
    job = await world.run(dataset="team/weighed@1")
    (trial,) = await world.trial_results(job["job_id"])
    assert (trial["reward"], trial["pass"]) == (0.875, True)
    assert trial["structured_result"] == {
        "dimensions": {"correctness": 1.0, "style": 0.5},
        "composite": 0.875,
        "details": details,
        "failure_code": "WRONG_TOTAL",
    }
    assert (job["score"], job["pass"]) == (0.875, 1.0)


async def test_the_timer_that_ended_the_agent_is_told_although_there_is_no_reward(world: World) -> None:
    world.provider.agent, world.provider.verifier = [lambda _: timed_out()], [lambda _: ended()]
    trial = await world.one(dataset=ONE)
    assert (trial["reason"], trial["agent_outcome"]) == ("REWARD_MISSING", "timeout")
    assert trial["message"] == "The agent's time limit of 30 s was reached after 30.0 s."


async def test_both_reward_files_that_differ_and_a_failing_script_are_flagged(world: World) -> None:
    def behave(call: Call) -> ExecResult:
        call.write("/logs/verifier/reward.json", '{"reward": 1}')
        call.write("/logs/verifier/reward.txt", "0")
        return ended(7)

    world.provider.verifier = [behave]
    trial = await world.one(dataset=ONE)
    assert (trial["reward"], trial["verifier"]["exit_code"]) == (1.0, 7)
    assert trial["flags"] == ["reward_files_differ", "verifier_exit_nonzero"]


# --- collect hooks


HOOKED = '[[verifier.collect]]\ncommand = "cp /app/a /app/out.txt"\ntimeout_sec = 7\n'


@pytest.mark.parametrize("mode", [SEPARATE, SHARED])
async def test_collect_hooks_run_after_the_agent_and_before_the_seal(world: World, mode: str) -> None:
    def works(call: Call) -> ExecResult:
        call.write("/app/a", "done")
        call.sandbox.alive.add("background")
        return ended()

    def collects(call: Call) -> ExecResult:
        assert call.sandbox.alive == {"main"}
        call.write("/app/out.txt", call.read("/app/a") or "")
        call.sandbox.alive.add("left by the hook")
        return ended()

    world.provider.agent, world.provider.other = [works], [collects]
    await world.publish("team/hooked", tasks=("one",), toml=mode.replace("[environment]", HOOKED + "[environment]"))
    trial = await world.one(dataset="team/hooked@1")
    assert (trial["reward"], trial["flags"]) == (1.0, [])
    (call,) = [call for call in world.provider.calls if call.argv[0] == "sh"]
    assert (call.argv, call.timeout_s) == (("sh", "-c", "cp /app/a /app/out.txt"), 7.0)


@pytest.mark.parametrize("result", [ended(1), timed_out()])
async def test_a_hook_that_fails_is_flagged_and_ends_nothing(world: World, result: ExecResult) -> None:
    world.provider.agent, world.provider.other = [solves], [lambda _: result]
    await world.publish("team/hooked", tasks=("one",), toml=SEPARATE.replace("[environment]", HOOKED + "[environment]"))
    trial = await world.one(dataset="team/hooked@1")
    assert (trial["reward"], trial["flags"]) == (1.0, ["collect_hook_failed"])


@pytest.mark.requirement("G-EVAL-18.35")
async def test_agent_and_verifier_have_one_time_zone_and_one_hash_seed(world: World) -> None:
    await world.one(dataset=ONE)
    fixed = {(call.env["TZ"], call.env["LANG"], call.env["PYTHONHASHSEED"]) for call in world.provider.calls}
    assert {call.argv[0] for call in world.provider.calls} >= {"/solution/solve.sh", "/tests/test.sh"}
    assert fixed == {("UTC", "C.UTF-8", "0")}
