"""The wire objects of the contract, section 15: every member that it shows is there, with its type."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.jobs.standin import Call, ended
from tests.jobs.world import METERED, ONE, World

from tollbar.sandboxes.interface import ExecResult


class Money:
    """Decimal text of USD without superfluous zeros."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(r"0|[1-9]\d*|\d+\.\d*[1-9]", other) is not None

    __hash__ = None  # type: ignore[assignment] # it is only compared


class Time:
    """A UTC time with milliseconds."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", other) is not None

    __hash__ = None  # type: ignore[assignment] # it is only compared


class Hex:
    """64 hexadecimal digits."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(r"[0-9a-f]{64}", other) is not None

    __hash__ = None  # type: ignore[assignment] # it is only compared


NONE = type(None)
MONEY, TIME, HEX = Money(), Time(), Hex()

SCORES: dict[str, Any] = {
    "score": (float, NONE),
    "pass": (float, NONE),
    "pass@k": {"1": (float, NONE), "2": (float, NONE)},
    "pass^k": {"1": (float, NONE), "2": (float, NONE)},
    "pass_tasks": {"1": int, "2": int},
    "n_scored": int,
    "n_total": int,
    "threshold": float,
    "intervals": {"level": float, "score": ([float], NONE), "pass": ([float], NONE)},
}
BUDGET: dict[str, Any] = {
    "max_cost_usd": (MONEY, NONE),
    "spent_usd": MONEY,
    "reserved_usd": MONEY,
    "remaining_usd": (MONEY, NONE),
    "state": str,
    "stopped_by": (dict, NONE),
}
COST: dict[str, Any] = {"total_usd": MONEY, "model_usd": MONEY, "sandbox_usd": MONEY, "verifier_usd": MONEY}
USAGE: dict[str, Any] = dict.fromkeys(
    (
        "calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
        "unmetered_calls",
    ),
    int,
)  # fmt: skip
COUNTS = (
    "total", "pending", "starting", "running", "verifying", "stopping", "succeeded", "failed", "cancelled", "scored",
)  # fmt: skip
JOB: dict[str, Any] = {
    "job_id": str,
    "type": str,
    "name": str,
    "status": str,
    "phase": str,
    "error": (dict, NONE),
    "request_id": (str, NONE),
    "tag": (str, NONE),
    "dataset_ref": {"kind": str, "name": str, "version": str, "manifest_sha256": HEX},
    "selection": {"config": (str, NONE), "split": (str, NONE), "task_id": (str, NONE)},
    "profile": {"name": str, "version": str, "sha256": HEX},
    "agent": {"name": str, "model": (str, NONE)},
    "runner": {"name": str, "revision": HEX, "source_ref": (str, NONE)},
    "attempts": int,
    "total_tasks": int,
    "trial_counts": dict.fromkeys(COUNTS, int),
    "final": bool,
    **SCORES,
    "budget": BUDGET,
    "cost": {**COST, "price_snapshot": (str, NONE), "unpriced_calls": int},
    "simulated": bool,
    "poll_after_s": (int, NONE),
    "created_at": TIME,
    "started_at": (TIME, NONE),
    "finished_at": (TIME, NONE),
    "url": str,
}
RESULT: dict[str, Any] = {
    **{name: JOB[name] for name in (
        "job_id", "type", "status", "phase", "error", "attempts", "total_tasks", "final", "budget", "cost",
        "simulated", "created_at", "started_at", "finished_at",
    )},
    **SCORES,
    "usage": {**USAGE, "by_model": list},
    "trials": {"items": list, "next_cursor": (str, NONE)},
}  # fmt: skip
ITEM: dict[str, Any] = {
    "trial_id": str,
    "task_id": str,
    "attempt": int,
    "status": str,
    "reward": (float, NONE),
    "pass": (bool, NONE),
    "reason": (str, NONE),
    "cost_usd": MONEY,
}
HEAD: dict[str, Any] = {
    "trial_id": str,
    "type": str,
    "job_id": str,
    "name": str,
    "attempt": int,
    "try_no": int,
    "status": str,
    "reward": (float, NONE),
    "pass": (bool, NONE),
    "reason": (str, NONE),
    "agent_outcome": (str, NONE),
    "finished_at": (TIME, NONE),
}
TRIAL: dict[str, Any] = {
    **HEAD,
    "task": {"name": str, "task_id": str, "digest": str, "split": (str, NONE)},
    "created_at": TIME,
    "started_at": (TIME, NONE),
}
TRIAL_RESULT: dict[str, Any] = {
    **HEAD,
    "structured_result": {"dimensions": dict, "composite": (float, NONE), "details": object},
    "verifier": {"mode": str, "exit_code": int, "tests": str, "sealed_sha256": HEX},
    "timings_s": dict.fromkeys(("prepare", "agent", "seal", "verifier"), float),
    "usage": USAGE,
    "cost": COST,
    "substitutions": list,
    "sandbox_forms": {"agent": str, "verifier": str},
    "artifact_refusals": list,
    "artifacts": {"items": list, "next_cursor": (str, NONE)},
    "untrusted": str,
}
ARTIFACT: dict[str, Any] = {
    "artifact_id": str,
    "name": str,
    "kind": str,
    "media_type": (str, NONE),
    "size": (int, NONE),
    "sha256": (HEX, NONE),
    "state": str,
    "upload_state": str,
}


def problems(value: Any, shape: Any, path: str) -> list[str]:
    """Returns the paths at which a value lacks a member or has another type."""
    if isinstance(shape, tuple):
        return min((problems(value, one, path) for one in shape), key=len)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        missing = [f"{path}.{name} is missing" for name in shape if name not in value]
        return missing + [
            found
            for name, inner in shape.items()
            if name in value
            for found in problems(value[name], inner, f"{path}.{name}")
        ]
    if isinstance(shape, list):
        return [found for item in value for found in problems(item, shape[0], f"{path}[]")] if value else []
    if isinstance(shape, type):
        fits = type(value) is shape or (shape is object)
        return [] if fits else [f"{path} is {value!r}"]
    return [] if value == shape else [f"{path} is {value!r}"]


def conforms(value: Any, shape: Any, path: str) -> None:
    assert problems(value, shape, path) == []
    assert json.loads(json.dumps(value, allow_nan=False)) == value


def scores(call: Call) -> ExecResult:
    call.write("/logs/verifier/reward.json", '{"correctness": 0.5, "style": 0.5}')
    call.write("/logs/verifier/reward-details.json", '{"why": "one of two"}')
    return ended()


async def test_a_job_has_every_member_in_each_of_its_states(patient: World) -> None:
    world = patient
    waiting = await world.submit(attempts=2, tag="nightly", request_id="one", max_cost_usd=5, runner=METERED)
    conforms(waiting, JOB, "pending")
    assert (waiting["poll_after_s"], waiting["url"]) == (2, f"https://tollbar.example/jobs/{waiting['job_id']}")
    await world.expand(waiting["job_id"])
    conforms(await world.job(waiting["job_id"]), JOB, "running")
    await world.engine.drain(world.pump.run_once)
    done = await world.job(waiting["job_id"])
    conforms(done, JOB, "completed")
    assert (done["score"], done["poll_after_s"]) == (1.0, None)
    conforms(await world.run(attempts=2), JOB, "uncapped")
    stopped = await world.submit(attempts=2)
    conforms(await world.stop(stopped["job_id"]), JOB, "cancelled")
    capped = await world.run(attempts=2, runner=METERED, max_cost_usd="0.01")
    conforms(capped, JOB, "capped")
    assert set(capped["error"]) == {"code", "message", "scope"}
    world.provider.verifier = [lambda _: ended()]
    failed = await world.run(attempts=2)
    conforms(failed, JOB, "failed")
    assert set(failed["error"]) == {"code", "message"}


async def test_a_job_result_has_every_member(patient: World) -> None:
    job = await patient.run(attempts=2, max_cost_usd=5, runner=METERED)
    result = await patient.result(job["job_id"])
    conforms(result, RESULT, "result")
    assert len(result["trials"]["items"]) == 4
    for item in result["trials"]["items"]:
        conforms(item, ITEM, "item")


async def test_a_trial_and_its_result_have_every_member(patient: World) -> None:
    world = patient
    world.provider.verifier = [scores]
    job = await world.run(dataset=ONE, max_cost_usd=5, runner=METERED)
    (trial,) = await world.trial_results(job["job_id"])
    conforms(trial, TRIAL, "trial")
    conforms(trial, TRIAL_RESULT, "trial result")
    assert (trial["name"], trial["verifier"]["tests"], trial["verifier"]["mode"]) == ("one__1", "task", "separate")
    assert trial["artifacts"]["items"]
    for item in trial["artifacts"]["items"]:
        conforms(item, ARTIFACT, "artifact")


@pytest.mark.parametrize("fault", ["build", "exec:agent", "exec:verify"])
async def test_a_trial_without_a_reward_has_every_member_too(patient: World, fault: str) -> None:
    world = patient
    world.provider.faults[fault] = [RuntimeError("a bug")] * 3
    job = await world.run(dataset=ONE)
    (trial,) = await world.trial_results(job["job_id"])
    lesser = {name: (shape, NONE, dict) for name, shape in TRIAL_RESULT.items()}
    conforms(trial, {**lesser, **HEAD}, "trial result")
    assert (trial["reward"], trial["structured_result"], trial["reason"]) == (None, None, "INTERNAL_ERROR")
    (item,) = (await world.result(job["job_id"]))["trials"]["items"]
    conforms(item, ITEM, "item")
