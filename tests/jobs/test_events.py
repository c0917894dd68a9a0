"""What happened to a Job and its Trials: told in order, once each, to its own project alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from tests.jobs.standin import ended
from tests.jobs.world import ONE, SEPARATE, World

from tollbar.datasets import service as datasets
from tollbar.jobs import flows, service
from tollbar.jobs.errors import InvalidLogSource, JobNotFound, LogCursorInvalid, TrialNotFound
from tollbar.jobs.events import service as events
from tollbar.jobs.events import store as event_store
from tollbar.jobs.events.service import LogRequest
from tollbar.kit.errors import InvalidLimit, InvalidRequest
from tollbar.kit.paging import page_request
from tollbar.sandboxes.errors import EnvironmentStartFailed


async def log(world: World, job_id: str, **asked: str) -> dict[str, Any]:
    async with world.database.session() as session:
        return await events.job_log(session, world.actor, job_id, LogRequest(**asked))


async def told(world: World, job_id: str) -> list[dict[str, Any]]:
    """Returns every event of a Job, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        asked = page_request("3", cursor, scope={"route": "events", "job": job_id})
        async with world.database.session() as session:
            page = await events.events_page(session, world.actor, job_id, asked)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def types(found: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in found]


async def test_a_job_and_its_trial_tell_each_step_in_its_order(world: World) -> None:
    job = await world.run(dataset=ONE)
    found = await told(world, job["job_id"])
    assert types(found) == [
        "job.submitted", "job.started", "job.expanded", "trial.started", "trial.agent_started", "trial.sealed",
        "trial.verifier_started", "trial.ended", "job.ended",
    ]  # fmt: skip
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)
    by_type = {one["type"]: one for one in found}
    assert (by_type["trial.ended"]["status"], by_type["job.ended"]["status"]) == ("succeeded", "completed")
    assert by_type["job.started"]["resource_id"] == job["job_id"]
    assert by_type["trial.ended"]["resource_id"].startswith("trial_")
    assert by_type["job.submitted"]["message"] == f"{world.actor.kind} {world.actor.key_id}"


async def test_who_stopped_a_job_is_told_before_what_it_ended(world: World) -> None:
    job = await world.submit(dataset=ONE, attempts=2)
    await flows.expand(world.tools, job["job_id"])
    await world.stop(job["job_id"])
    found = await told(world, job["job_id"])
    assert types(found)[3:] == ["job.stop_requested", "job.stopping", "trial.ended", "trial.ended", "job.ended"]
    assert found[3]["message"] == f"{world.actor.kind} {world.actor.key_id}"
    assert {one["reason"] for one in found if one["type"] == "trial.ended"} == {"CANCELLED"}


async def test_a_try_that_comes_to_nothing_is_told_with_its_reason_and_the_next_number(world: World) -> None:
    world.provider.faults["create:agent"] = [EnvironmentStartFailed("start", "no room")]
    job = await world.run(dataset=ONE)
    (again,) = [one for one in await told(world, job["job_id"]) if one["type"] == "trial.retried"]
    assert (again["reason"], again["try_no"], again["status"]) == ("ENVIRONMENT_START_FAILED", 2, "pending")


async def test_tasks_that_cannot_run_are_told_at_the_submission_by_name(world: World) -> None:
    await world.publish("team/mixed", tasks=("light",))
    folder = world.root / "datasets" / "team-mixed"
    shutil.copytree(folder / "light", folder / "heavy")
    (folder / "heavy" / "task.toml").write_text(SEPARATE + "gpus = 1\n")
    async with world.database.transaction() as session:
        await datasets.publish_folder(
            session, world.actor, folder=folder, name="team/mixed", version="2", visibility="private",
            blobs=world.blobs, clock=world.clock,
        )  # fmt: skip
    job = await world.submit(dataset="team/mixed@2")
    refused = [one for one in await told(world, job["job_id"]) if one["type"] == "task.refused"]
    assert [(one["reason"], one["reason_detail"]) for one in refused] == [("ENVIRONMENT_REFUSED", "gpu")]
    assert refused[0]["message"].startswith("team/heavy: ")


async def test_a_log_is_followed_by_its_cursor_and_shows_each_line_once(world: World) -> None:
    job = await world.submit(dataset=ONE)
    first = await log(world, job["job_id"])
    assert [item["content"] for item in first["items"]] == [f"submitted by {world.actor.kind} {world.actor.key_id}"]
    assert (first["has_more"], first["eof"]) == (False, False)
    nothing = await log(world, job["job_id"], cursor=first["next_cursor"])
    assert (nothing["items"], nothing["eof"], bool(nothing["next_cursor"])) == ([], False, True)
    await world.engine.drain(world.pump.run_once)
    seen, cursor = [*first["items"]], nothing["next_cursor"]
    while True:
        page = await log(world, job["job_id"], cursor=cursor, limit="2")
        seen, cursor = [*seen, *page["items"]], page["next_cursor"]
        if page["eof"] and not page["has_more"]:
            break
    whole = await log(world, job["job_id"], limit="1000")
    assert seen == whole["items"]
    assert len({item["id"] for item in seen}) == len(seen) == 9
    assert seen[-2]["content"] == "succeeded, reward 1"


async def test_a_line_never_appears_behind_a_reader_who_has_passed_its_place(world: World) -> None:
    job = await world.submit(dataset=ONE)
    job_id = job["job_id"]
    start = (await log(world, job_id))["next_cursor"]
    add = text(
        "INSERT INTO job_event (tx, job_id, project_id, at, type) SELECT pg_current_xact_id()::text::bigint, id,"
        " project_id, now(), :type FROM job"
    )
    async with world.database.transaction() as slow:
        await slow.execute(add, {"type": "slow"})
        async with world.database.transaction() as quick:
            await quick.execute(add, {"type": "quick"})
        early = await log(world, job_id, cursor=start)
        assert early["items"] == []
    later = await log(world, job_id, cursor=early["next_cursor"])
    assert [item["content"] for item in later["items"]] == ["slow", "quick"]


async def test_a_log_ends_only_when_nothing_can_follow(world: World) -> None:
    job = await world.run(dataset=ONE)
    assert (await log(world, job["job_id"]))["eof"] is True
    async with world.database.transaction() as open_one:
        await open_one.execute(text("SELECT pg_current_xact_id()"))
        await world.rows(
            "INSERT INTO job_event (tx, job_id, project_id, at, type) SELECT pg_current_xact_id()::text::bigint, id,"
            " project_id, now(), 'late' FROM job"
        )
        assert (await log(world, job["job_id"]))["eof"] is False
    assert (await log(world, job["job_id"]))["eof"] is True


async def test_the_end_of_a_log_is_asked_for_by_the_number_of_lines(world: World) -> None:
    job = await world.run(dataset=ONE)
    whole = (await log(world, job["job_id"]))["items"]
    last = await log(world, job["job_id"], tail="2")
    assert last["items"] == whole[-2:]
    assert (await log(world, job["job_id"], cursor=last["next_cursor"]))["items"] == []


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"source": "kernel"}, InvalidLogSource),
        ({"cursor": "nonsense"}, LogCursorInvalid),
        ({"limit": "1001"}, InvalidLimit),
        ({"limit": "0"}, InvalidLimit),
        ({"tail": "0"}, InvalidLimit),
        ({"tail": "1001"}, InvalidLimit),
        ({"tail": "x"}, InvalidLimit),
        ({"tail": "1", "cursor": "x"}, InvalidRequest),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(world: World, asked: Any, refused: type[Exception]) -> None:
    job = await world.submit(dataset=ONE)
    with pytest.raises(refused):
        await log(world, job["job_id"], **asked)


async def test_a_cursor_is_of_its_job_and_source(world: World) -> None:
    one, other = await world.submit(dataset=ONE), await world.submit(dataset=ONE)
    cursor = (await log(world, one["job_id"]))["next_cursor"]
    for job_id, source in ((other["job_id"], "all"), (one["job_id"], "system")):
        with pytest.raises(LogCursorInvalid):
            await log(world, job_id, cursor=cursor, source=source)


async def test_another_project_finds_neither_log_nor_events(world: World) -> None:
    job = await world.run(dataset=ONE)
    trial_id = await world.value("SELECT id FROM trial")
    stranger = replace(world.actor, project_id="proj_other")
    async with world.database.session() as session:
        with pytest.raises(JobNotFound):
            await events.job_log(session, stranger, job["job_id"], LogRequest())
        with pytest.raises(TrialNotFound):
            await events.trial_log(session, stranger, trial_id, LogRequest())
        with pytest.raises(JobNotFound):
            await events.events_page(session, stranger, job["job_id"], page_request(None, None, scope={}))


async def test_a_trial_tells_only_of_itself(world: World) -> None:
    await world.run()
    trial_id = await world.value("SELECT id FROM trial WHERE seq = 1")
    async with world.database.session() as session:
        found = await events.trial_log(session, world.actor, trial_id, LogRequest())
    assert {item["trial_id"] for item in found["items"]} == {trial_id}
    assert (len(found["items"]), found["eof"]) == (5, True)


@pytest.mark.requirement("G-EVAL-18.36")
async def test_a_job_whose_trials_all_fail_for_one_reason_says_so_while_it_runs(world: World) -> None:
    world.provider.verifier = [lambda _: ended()]
    job = await world.submit(attempts=2)
    await flows.expand(world.tools, job["job_id"])
    world.capacity = 3
    await world.pump.run_once()
    assert (await world.job(job["job_id"]))["warnings"] == []
    for work in [one.id for one in await world.engine.waiting() if one.flow == "trial"]:
        await world.engine.run(work)
    running = await world.job(job["job_id"])
    assert running["status"] == "running"
    assert [(one["code"], one["reason"]) for one in running["warnings"]] == [("NO_TRIAL_SCORED_YET", "REWARD_MISSING")]
    warned = [one for one in await told(world, job["job_id"]) if one["type"] == "job.warned"]
    assert [one["reason"] for one in warned] == ["REWARD_MISSING"]
    async with world.database.session() as session:
        page = page_request(None, None, scope={})
        (listed,) = (await service.list_page(session, world.context, world.actor, page)).items
    assert listed["warnings"] == running["warnings"]


async def test_a_job_says_that_no_living_worker_runs_its_sandboxes(world: World) -> None:
    job = await world.submit()
    assert (await world.job(job["job_id"]))["warnings"] == []
    await world.rows("UPDATE worker SET beat_at = beat_at - interval '2 days'")
    (warning,) = (await world.job(job["job_id"]))["warnings"]
    assert (warning["code"], warning["reason"]) == ("NO_LIVING_WORKER", "bwrap")
    assert "tollbar worker" in warning["message"]
    await world.rows("UPDATE worker SET beat_at = clock_timestamp(), backends = '{docker}'")
    assert [one["code"] for one in (await world.job(job["job_id"]))["warnings"]] == ["NO_LIVING_WORKER"]
    await world.rows("UPDATE worker SET backends = '{docker,bwrap}'")
    assert (await world.job(job["job_id"]))["warnings"] == []


async def test_a_job_that_has_ended_waits_for_no_worker(world: World) -> None:
    job = await world.run()
    await world.rows("UPDATE worker SET state = 'gone'")
    assert (await world.job(job["job_id"]))["warnings"] == []


async def test_one_reward_or_a_second_reason_takes_the_warning_back(world: World) -> None:
    await world.run()
    job = await world.submit()
    await flows.expand(world.tools, job["job_id"])
    fail = "UPDATE trial SET state = 'failed', reason = :r, finished_at = now() WHERE job_id = :j AND seq = :s"
    await world.rows(fail, r="REWARD_MISSING", j=job["job_id"], s=0)
    await world.rows("UPDATE job_task SET n_failed = 1 WHERE job_id = :j AND seq = 0", j=job["job_id"])
    assert len((await world.job(job["job_id"]))["warnings"]) == 1
    await world.rows(fail, r="SANDBOX_LOST", j=job["job_id"], s=1)
    assert (await world.job(job["job_id"]))["warnings"] == []


async def test_a_job_shows_what_it_was_given(world: World) -> None:
    job = await world.submit(dataset=ONE, priority=7, seed=42)
    assert (job["priority"], job["seed"], job["params"]) == (7, 42, {})


async def test_after_a_restore_events_stand_in_the_order_in_which_readers_had_them(world: World) -> None:
    job = await world.run(dataset=ONE)
    # An older transaction may write a later event: the number of the row and the order of reading differ.
    await world.rows("UPDATE job_event SET tx = 9000000000 - id WHERE type <> 'job.ended'")
    await world.rows("UPDATE job_event SET tx = 9000000000 WHERE type = 'job.ended'")
    assert await told(world, job["job_id"]) == [], "another server's transactions: as if none had ended yet"
    async with world.database.transaction() as session:
        await event_store.forget_transactions(session)
    restored = await told(world, job["job_id"])
    ids = [int(one["id"]) for one in restored]
    assert (ids[:-1], restored[-1]["type"]) == (sorted(ids[:-1], reverse=True), "job.ended")
    assert len(ids) == 9
    page = await log(world, job["job_id"])
    assert [int(item["id"]) for item in page["items"]] == ids
    await world.stop(job["job_id"])
    assert await told(world, job["job_id"]) == restored
