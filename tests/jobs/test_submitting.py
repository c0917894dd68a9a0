"""Submissions on a real database: one Job per request, frozen facts, and nothing written when refused."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from tests.jobs.world import METERED, SEPARATE, World

from tollbar.agents.errors import InvalidProfile, ProfileArchived, ProfileDefaultRequired, ProfileNotFound
from tollbar.db.session import open_database
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.port import EngineState
from tollbar.jobs import service
from tollbar.jobs.errors import (
    InvalidJob,
    JobRequestConflict,
    MissingCap,
    ProfileRunnerConflict,
    UnsupportedCapability,
)
from tollbar.kit.errors import TollbarError
from tollbar.sandboxes.errors import RunnerNotFound

TABLES = ("job", "job_task", "trial", "budget", "ledger_call", "work")


async def counts(world: World) -> dict[str, int]:
    return {table: await world.value(f"SELECT count(*) FROM {table}") for table in TABLES}


async def profile(world: World, name: str, version: str = "1", *, default: bool = True, **spec: Any) -> None:
    """Stores a profile version as a client could have."""
    whole = {"name": name, "version": version, "agent": "nop", "spec": {"params": {}}, **spec}
    project = world.actor.project_id
    await world.rows(
        "INSERT INTO profile (project_id, name, default_version, updated_at) VALUES (:p, :n, :d, now())"
        " ON CONFLICT (project_id, name) DO UPDATE SET default_version = coalesce(:d, profile.default_version)",
        p=project, n=name, d=version if default else None,
    )  # fmt: skip
    async with world.database.transaction() as session:
        statement = text(
            "INSERT INTO profile_version (project_id, name, version, seq, spec, sha256, created_at)"
            " VALUES (:p, :n, :v, 1, CAST(:s AS jsonb), :v, now())"
        )
        await session.execute(statement, {"p": project, "n": name, "v": version, "s": json.dumps(whole)})


async def test_a_submission_writes_job_tasks_budget_and_work_at_once(world: World) -> None:
    job = await world.submit(attempts=3, tag="nightly", request_id="one", max_cost_usd=5)
    assert await counts(world) == {"job": 1, "job_task": 2, "trial": 0, "budget": 1, "ledger_call": 0, "work": 1}
    assert (job["status"], job["phase"], job["final"], job["n_total"]) == ("pending", "queued", False, 6)
    assert job["trial_counts"]["pending"] == job["trial_counts"]["total"] == 6
    assert (await world.engine.waiting())[0].id == f"job:{job['job_id']}"


async def test_fifty_equal_submissions_at_once_give_one_job(world: World) -> None:
    many = open_database(world.database.url, pool_size=25)
    worlds = replace(world, database=many)
    try:
        jobs = await asyncio.gather(*(worlds.submit(request_id="same", max_cost_usd=1) for _ in range(50)))
    finally:
        await many.close()
    assert len({job["job_id"] for job in jobs}) == 1
    assert await counts(world) == {"job": 1, "job_task": 2, "trial": 0, "budget": 1, "ledger_call": 0, "work": 1}


async def test_one_of_two_different_submissions_under_one_id_is_told_of_the_conflict(world: World) -> None:
    outcomes = await asyncio.gather(
        world.submit(request_id="same", attempts=1), world.submit(request_id="same", attempts=2), return_exceptions=True
    )
    (refused,) = [found for found in outcomes if isinstance(found, JobRequestConflict)]
    (job,) = [found for found in outcomes if isinstance(found, dict)]
    assert refused.facts == {"job_id": job["job_id"], "differs": ["attempts"]}
    assert (await counts(world))["job"] == 1


async def test_changed_arguments_are_a_conflict_that_names_them_and_never_the_values(world: World) -> None:
    first = await world.submit(request_id="again", attempts=1, max_cost_usd=5, tag="secret-tag")
    with pytest.raises(JobRequestConflict) as refused:
        await world.submit(request_id="again", attempts=2, max_cost_usd=6)
    assert refused.value.body()["differs"] == ["attempts", "max_cost_usd", "tag"]
    assert refused.value.body()["job_id"] == first["job_id"]
    assert "secret-tag" not in str(refused.value.body())


@pytest.mark.requirement("G-HTTP-16.5")
async def test_a_repeat_gives_the_first_job_although_the_default_profile_moved(world: World) -> None:
    first = await world.submit(request_id="again")
    assert first["profile"]["name"] == "tollbar/oracle"
    await world.rows("UPDATE profile SET is_project_default = false")
    await world.rows("UPDATE profile SET is_project_default = true WHERE name = 'tollbar/nop'")
    repeat = await world.submit(request_id="again")
    assert (repeat["job_id"], repeat["profile"]) == (first["job_id"], first["profile"])
    assert (await world.submit(request_id="new"))["profile"]["name"] == "tollbar/nop"


async def test_a_repeat_answers_the_present_state(world: World) -> None:
    job = await world.run(request_id="again", max_cost_usd=1)
    assert (await world.submit(request_id="again", max_cost_usd="1.0")) == job


async def test_the_same_id_in_another_project_is_another_job(world: World) -> None:
    await world.submit(request_id="mine")
    other = replace(world, actor=replace(world.actor, project_id="prj_other"))
    await profile(other, "team/nop")
    with pytest.raises(TollbarError) as hidden:
        await other.submit(request_id="mine", profile_name="team/nop")
    assert hidden.value.code == "DATASET_NOT_FOUND"


@pytest.mark.requirement("G-HTTP-16.5")
@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"dataset": "no/such@1"}, "DATASET_NOT_FOUND"),
        ({"dataset": "team/set@9"}, "DATASET_REVISION_NOT_FOUND"),
        ({"dataset": {"name": "team/set", "task_id": "none"}}, "TASK_MEMBER_NOT_FOUND"),
        ({"dataset": {"name": "team/set", "split": "none"}}, "DATASET_SELECTION_NOT_FOUND"),
        ({"dataset_ref": {"kind": "dataset", "name": "team/set"}}, "INVALID_DATASET_SELECTOR"),
        ({"dataset": None}, "INVALID_DATASET_SELECTOR"),
        ({"profile_name": "no/such"}, "PROFILE_NOT_FOUND"),
        ({"profile_name": "tollbar/nop", "profile_version": "9"}, "PROFILE_NOT_FOUND"),
        ({"runner": "no/such@main"}, "RUNNER_NOT_FOUND"),
        ({"runner": "a b"}, "INVALID_RUNNER"),
        ({"params": {"MODEL": "x"}}, "INVALID_JOB"),
        ({"attempts": 0}, "INVALID_ATTEMPTS"),
    ],
)
async def test_a_refused_submission_writes_nothing_and_leaves_its_id_free(
    world: World, members: dict[str, Any], code: str
) -> None:
    before = await counts(world)
    with pytest.raises(TollbarError) as refused:
        await world.submit(request_id="mine", **members)
    assert refused.value.code == code
    assert await counts(world) == before
    assert (await world.submit(request_id="mine"))["request_id"] == "mine"


@pytest.mark.requirement("G-ENG-17.rollback")
async def test_a_rolled_back_submission_leaves_no_row_and_no_work_in_the_real_engine(world: World) -> None:
    engine = DbosEngine(world.database.url, uuid.uuid4().hex)
    context = replace(world.context, engine=engine)
    try:
        job_ids: list[str] = []
        for fails in (True, False):
            try:
                async with world.database.transaction() as session:
                    request = {"dataset": "team/set@1", "request_id": "mine"}
                    job, is_new = await service.submit(session, context, world.actor, request)
                    assert is_new
                    job_ids.append(job["job_id"])
                    if fails:
                        raise KeyError
            except KeyError:
                assert await counts(world) == dict.fromkeys(TABLES, 0)
        states = await engine.state([f"job:{job_id}" for job_id in job_ids])
        assert states == {f"job:{job_ids[1]}": EngineState.ENQUEUED}
    finally:
        await engine.stop()


async def test_an_engine_that_refuses_takes_the_whole_submission_back(world: World) -> None:
    await world.rows("DROP TABLE work")
    with pytest.raises(Exception, match="work"):
        await world.submit(request_id="mine")
    assert await world.value("SELECT count(*) FROM job") == await world.value("SELECT count(*) FROM budget") == 0


async def test_a_dry_run_resolves_everything_and_writes_nothing(world: World) -> None:
    before = await counts(world)
    found = await world.submit(dry_run=True, runner=METERED, attempts=3, max_cost_usd=5)
    assert await counts(world) == before
    # Agent 30 s, verifier 20 s, 5 s beside each, at 0.012 USD a second.
    assert found["worst_case_usd"] == "0.72"
    assert (found["total_tasks"], found["n_total"], found["refused"], found["warnings"]) == (2, 6, [], [])
    assert found["dataset_ref"]["version"] == "1"
    assert found["profile"]["name"] == "tollbar/oracle"
    assert found["runner"]["name"] == "envhub/metered"
    assert (found["max_cost_usd"], found["dry_run"]) == ("5", True)


async def test_a_dry_run_looks_no_request_id_up(world: World) -> None:
    await world.submit(request_id="taken", attempts=1)
    found = await world.submit(request_id="taken", attempts=2, dry_run=True)
    assert (found["dry_run"], found["n_total"]) == (True, 4)


async def test_a_dry_run_warns_of_a_cap_below_one_try(world: World) -> None:
    found = await world.submit(dry_run=True, runner=METERED, max_cost_usd="0.5")
    assert found["warnings"] == ["One try of a Trial can cost more than the cap."]


async def test_a_submission_of_which_nothing_can_run_is_refused_and_a_part_of_it_is_not(world: World) -> None:
    gpu = SEPARATE.replace("[environment]\n", "[environment]\ngpus = 1\n")
    await world.publish("team/gpu", tasks=("needs",), toml=gpu)
    with pytest.raises(UnsupportedCapability) as refused:
        await world.submit(dataset="team/gpu@1")
    assert refused.value.facts["refused"][0]["detail"] == "gpu"
    shutil.copytree(world.root / "datasets" / "team-gpu", world.root / "datasets" / "team-mixed")
    await world.publish("team/mixed", tasks=("one",))
    found = await world.submit(dataset="team/mixed@1", dry_run=True)
    assert [item["task"] for item in found["refused"]] == ["team/needs"]
    assert found["warnings"] == ["1 of 2 tasks cannot run here."]
    job = await world.run(dataset="team/mixed@1")
    assert (job["status"], job["n_scored"], job["trial_counts"]["failed"]) == ("completed", 1, 1)


async def test_without_a_backend_a_submission_is_taken_and_waits(world: World) -> None:
    blind = replace(world, context=replace(world.context, capabilities={}))
    assert (await blind.submit())["status"] == "pending"


async def test_over_mcp_a_submission_without_a_cap_is_refused_even_as_a_repeat(world: World) -> None:
    await world.submit(request_id="mine")
    async with world.database.transaction() as session:
        with pytest.raises(MissingCap):
            await service.submit(
                session, world.context, world.actor, {"dataset": "team/set@1", "request_id": "mine"}, needs_cap=True
            )


# --- profiles, runners, parameters


async def test_a_profile_without_a_default_version_needs_one(world: World) -> None:
    await profile(world, "team/nop", default=False)
    with pytest.raises(ProfileDefaultRequired):
        await world.submit(profile_name="team/nop")
    assert (await world.submit(profile_name="team/nop", profile_version="1"))["profile"]["version"] == "1"
    assert (await world.submit(profile_id="team/nop@1"))["profile"]["name"] == "team/nop"


async def test_an_archived_version_is_refused(world: World) -> None:
    await profile(world, "team/nop")
    await world.rows("UPDATE profile_version SET archived_at = now() WHERE name = 'team/nop'")
    with pytest.raises(ProfileArchived):
        await world.submit(profile_name="team/nop")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"agent": None}, "names no agent"),
        ({"agent": "no-such"}, "no agent 'no-such'"),
        ({"spec": {"params": {"model": "x"}}}, "does not know the parameter MODEL"),
        ({"schema_version": "envplatform.profile/v1", "params": {"a": 1}}, "does not know the parameter A"),
    ],
)
async def test_a_profile_that_cannot_be_run_is_refused_at_submission(
    world: World, spec: dict[str, Any], problem: str
) -> None:
    await profile(world, "team/odd", **spec)
    with pytest.raises(InvalidProfile, match=problem):
        await world.submit(profile_name="team/odd")


async def test_without_any_profile_a_submission_is_refused_with_a_hint(world: World) -> None:
    await world.rows("UPDATE profile SET is_project_default = false")
    with pytest.raises(InvalidJob) as refused:
        await world.submit()
    assert refused.value.hint == "Give profile_name."


async def test_a_runner_that_contradicts_the_profile_is_a_conflict(world: World) -> None:
    await profile(world, "team/bound", runner="envhub/base@main")
    with pytest.raises(ProfileRunnerConflict):
        await world.submit(profile_name="team/bound", runner=METERED)
    assert (await world.submit(profile_name="team/bound", runner="base"))["runner"]["name"] == "envhub/base"
    assert (await world.submit(profile_name="team/bound"))["runner"]["name"] == "envhub/base"
    await profile(world, "team/lost", runner="no/such@main")
    with pytest.raises(RunnerNotFound):
        await world.submit(profile_name="team/lost")


async def test_a_profile_of_another_project_is_not_found(world: World) -> None:
    await profile(replace(world, actor=replace(world.actor, project_id="prj_other")), "their/nop")
    with pytest.raises(ProfileNotFound):
        await world.submit(profile_name="their/nop")


async def test_a_variable_of_a_task_is_a_parameter_of_the_job_and_of_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITY", "from the server")
    toml = SEPARATE + '\n[verifier.env]\nTOWN = "${CITY}"\nPLACE = "${region:-north}"\n'
    await world.publish("team/towns", toml=toml, tasks=("one",))
    with pytest.raises(UnsupportedCapability) as refused:
        await world.submit(dataset="team/towns@1")
    assert refused.value.facts["refused"][0]["detail"] == "variable"
    trial = await world.one(dataset="team/towns@1", params={"city": "Bern"})
    assert trial["reward"] == 1.0
    (call,) = [call for call in world.provider.calls if call.argv == ("/tests/test.sh",)]
    assert (call.env["TOWN"], call.env["PLACE"]) == ("Bern", "north")


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"command": "ls"}, "UNSUPPORTED_COMMAND"),
        ({"profile_name": "tollbar/command"}, "INVALID_JOB"),
        ({"profile_name": "tollbar/command", "params": {"command": 3}}, "INVALID_JOB"),
        ({"profile_name": "tollbar/replay"}, "INVALID_JOB"),
        ({"profile_name": "tollbar/replay", "params": {"TURNS": []}}, "INVALID_JOB"),
        ({"profile_name": "tollbar/replay", "params": {"TURNS": ["ls", 3]}}, "INVALID_JOB"),
    ],
)
async def test_an_agent_that_cannot_run_with_its_parameters_is_refused_at_the_submission(
    world: World, members: dict[str, Any], code: str
) -> None:
    with pytest.raises(TollbarError) as refused:
        await world.submit(**members)
    assert (refused.value.code, refused.value.status) == (code, 422)
    assert await world.value("SELECT count(*) FROM job") == 0
