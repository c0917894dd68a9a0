"""What a status says, what it costs to ask, and that it equals a recount over the Trials."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from tests.jobs.checks import sums_equal_a_recount
from tests.jobs.standin import Call, ended
from tests.jobs.world import ONE, World

from tollbar.jobs import checking, endings, service
from tollbar.jobs.endings import Ending
from tollbar.jobs.errors import InvalidJobStatus, InvalidJobType, InvalidTrialStatus, JobNotFound, TrialNotFound
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import Reason, TrialState
from tollbar.kit.errors import InvalidCursor
from tollbar.kit.paging import page_request
from tollbar.sandboxes.interface import ExecResult


@asynccontextmanager
async def statements(world: World) -> AsyncGenerator[list[str]]:
    """Yields the list of statements that are sent meanwhile."""
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(statement)

    engine = world.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def large(world: World, trials: int) -> str:
    """Returns a running Job with that many Trials (planted), a third of them ended and four at work."""
    job = await world.submit(dataset=ONE, attempts=100)
    await world.engine.run(f"job:{job['job_id']}")
    await world.rows(
        "INSERT INTO trial (id, job_id, project_id, seq, task_seq, task_name, task_id, task_digest, attempt, state,"
        " reward, passed, created_at, finished_at)"
        " SELECT 'planted_' || n, job_id, project_id, n, 0, task_name, task_id, task_digest, n,"
        " CASE WHEN n % 3 = 0 THEN 'succeeded' WHEN n < 105 THEN 'running' ELSE 'pending' END,"
        " CASE WHEN n % 3 = 0 THEN 1.0 END, CASE WHEN n % 3 = 0 THEN true END, created_at,"
        " CASE WHEN n % 3 = 0 THEN now() END FROM trial, generate_series(101, :n) AS n WHERE seq = 0",
        n=trials,
    )
    await world.rows("ANALYZE trial")
    return job["job_id"]


async def test_a_status_costs_the_same_for_a_job_of_one_trial_and_of_twenty_thousand_trials(world: World) -> None:
    small = await world.submit(dataset=ONE)
    async with statements(world) as few:
        await world.job(small["job_id"])
    job_id = await large(world, 20_000)
    async with statements(world) as many:
        job = await world.job(job_id)
    assert [text.split()[0] for text in many] == [text.split()[0] for text in few]
    assert len(many) <= 6
    assert job["trial_counts"]["running"] == 3
    (asked,) = [text for text in many if "trial." in text and "count" in text]
    assert "trial.reward" not in asked
    plan = await world.rows(
        "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT job_id, state, count(*) FROM trial WHERE job_id = ANY(:ids)"
        " AND state IN ('running', 'starting', 'stopping', 'verifying') GROUP BY job_id, state",
        ids=[job_id],
    )
    nodes = list(walk(plan[0][0][0]["Plan"]))
    assert {node["Relation Name"] for node in nodes if "Relation Name" in node} == {"trial"}
    assert not any(node["Node Type"] == "Seq Scan" for node in nodes)
    assert max(node["Actual Rows"] for node in nodes) <= 4
    assert sum(node.get("Rows Removed by Filter", 0) for node in nodes) == 0


def walk(node: dict[str, Any]) -> Any:
    yield node
    for child in node.get("Plans", []):
        yield from walk(child)


async def test_a_page_of_jobs_costs_no_more_statements_than_one_job(world: World) -> None:
    for _ in range(6):
        await world.submit()
    async with statements(world) as seen, world.database.session() as session:
        page = page_request(None, None, scope={})
        found = await service.list_page(session, world.context, world.actor, page)
    assert (len(found.items), len(seen)) == (6, 6)


# --- a recount

OUTCOMES = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, -1.5]), st.sampled_from(["REWARD_MISSING", "SANDBOX_LOST"]), st.just(None)
)


def reference(rewards: list[list[float]], attempts: int) -> dict[str, Any]:
    """Computes the scores from rewards per task, as the evaluation guide words them."""
    scored = [task for task in rewards if task]
    means = [math.fsum(task) / len(task) for task in scored]
    shares = [sum(reward >= 1 for reward in task) / len(task) for task in scored]

    def over(values: list[float]) -> float | None:
        return round(math.fsum(values) / len(values), 6) if values else None

    at, hat, tasks = {}, {}, {}
    for k in range(1, attempts + 1):
        fit = [(len(task), sum(reward >= 1 for reward in task)) for task in scored if len(task) >= k]
        at[str(k)] = over([1 - math.comb(n - c, k) / math.comb(n, k) for n, c in fit])
        hat[str(k)] = over([math.comb(c, k) / math.comb(n, k) for n, c in fit])
        tasks[str(k)] = len(fit)
    return {
        "score": over(means),
        "pass": over(shares),
        "pass@k": at,
        "pass^k": hat,
        "pass_tasks": tasks,
        "n_scored": sum(map(len, scored)),
    }


async def end(world: World, row: Any, outcome: float | str) -> None:
    if isinstance(outcome, str):
        ending = endings.unscored(Failure(Reason(outcome)))
    else:
        ending = Ending(TrialState.SUCCEEDED, {"passed": outcome >= 1}, outcome, outcome >= 1)
    async with world.database.transaction() as session:
        await endings.end_trial(session, row.job_id, row.id, 1, row.task_seq, ending, world.clock.now())


@given(st.lists(OUTCOMES, min_size=8, max_size=8), st.randoms(use_true_random=False), st.booleans())
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
async def test_a_status_equals_a_recount_over_the_trials(
    world: World, outcomes: list[float | str | None], shuffler: Any, stopped: bool
) -> None:
    job = await world.submit(attempts=4)
    await world.engine.run(f"job:{job['job_id']}")
    rows = await world.rows("SELECT * FROM trial WHERE job_id = :j ORDER BY task_seq, attempt", j=job["job_id"])
    await world.rows("UPDATE trial SET state = 'verifying' WHERE job_id = :j", j=job["job_id"])
    pairs = list(zip(rows, outcomes, strict=True))
    shuffler.shuffle(pairs)
    for row, outcome in pairs:
        if outcome is not None:
            await end(world, row, outcome)
    running = [row for row, outcome in pairs if outcome is None]
    if stopped:
        await world.stop(job["job_id"])
        await world.recovery.take_over([f"trial:{row.id}:1" for row in running])
    found = await world.job(job["job_id"])
    rewards = [[outcome for outcome in half if isinstance(outcome, float)] for half in (outcomes[:4], outcomes[4:])]
    assert {name: found[name] for name in reference(rewards, 4)} == reference(rewards, 4)
    failed = sum(isinstance(outcome, str) for outcome in outcomes)
    expected = {"total": 8, "failed": failed, "scored": sum(map(len, rewards)), "succeeded": sum(map(len, rewards))}
    expected |= {"pending": 0, "starting": 0, "running": 0, "stopping": 0}
    expected |= {"cancelled": len(running) if stopped else 0, "verifying": 0 if stopped else len(running)}
    assert found["trial_counts"] == expected
    assert found["final"] == (stopped or not running)
    await sums_equal_a_recount(world)


# --- lists and what is not found


async def test_a_status_says_preparing_and_scoring_when_it_is_so(world: World) -> None:
    job = await world.submit(dataset=ONE)
    await world.rows("UPDATE job SET state = 'running'")
    assert (await world.job(job["job_id"]))["phase"] == "preparing"
    await world.rows("UPDATE job SET state = 'pending'")
    await world.engine.run()
    assert (await world.job(job["job_id"]))["phase"] == "running"
    await world.rows("UPDATE trial SET state = 'verifying'")
    assert (await world.job(job["job_id"]))["phase"] == "scoring"


async def test_an_admitted_trial_is_shown_as_pending(world: World) -> None:
    job = await world.submit(dataset=ONE)
    await world.expand(job["job_id"])
    assert await world.value("SELECT state FROM trial") == "admitted"
    assert (await world.job(job["job_id"]))["trial_counts"]["pending"] == 1
    assert (await world.result(job["job_id"]))["trials"]["items"][0]["status"] == "pending"
    async with world.database.session() as session:
        page = page_request(None, None, scope={})
        found = await service.trials_page(session, world.actor, page, state="pending")
    assert [item["status"] for item in found.items] == ["pending"]


async def test_lists_know_their_words_and_kinds(world: World) -> None:
    job = await world.run(dataset=ONE, tag="nightly")
    page = page_request(None, None, scope={})
    async with world.database.session() as session:
        for kind, count in (("agent", 1), (None, 1), ("regrade", 0), ("train", 0), ("sandbox", 0), ("inference", 0)):
            jobs = await service.list_page(session, world.context, world.actor, page, kind=kind)
            trials = await service.trials_page(session, world.actor, page, kind=kind)
            assert (len(jobs.items), len(trials.items)) == (count, count)
        assert (await service.list_page(session, world.context, world.actor, page, tag="nightly")).items == [job]
        assert (await service.list_page(session, world.context, world.actor, page, tag="other")).items == []
        assert (await service.list_page(session, world.context, world.actor, page, state="completed")).items == [job]
        assert (await service.list_page(session, world.context, world.actor, page, state="failed")).items == []
        with pytest.raises(InvalidJobType):
            await service.list_page(session, world.context, world.actor, page, kind="dance")
        with pytest.raises(InvalidJobStatus):
            await service.list_page(session, world.context, world.actor, page, state="succeeded")
        with pytest.raises(InvalidJobType):
            await service.trials_page(session, world.actor, page, kind="dance")
        with pytest.raises(InvalidTrialStatus):
            await service.trials_page(session, world.actor, page, state="admitted")


async def test_pages_of_a_result_are_whole_and_in_order(world: World) -> None:
    job = await world.run(attempts=3)
    seen: list[Any] = []
    cursor: str | None = None
    async with world.database.session() as session:
        while True:
            page = page_request("4", cursor, scope={})
            found = await service.result(session, world.context, world.actor, job["job_id"], page)
            seen += [(item["task_id"], item["attempt"]) for item in found["trials"]["items"]]
            cursor = found["trials"]["next_cursor"]
            if cursor is None:
                break
    assert seen == [(task, attempt) for task in ("one", "two") for attempt in (1, 2, 3)]


@pytest.mark.parametrize("position", [[], [1], ["x"], ["x", 1], [1, True], [None, None], [1, 2, 3]])
async def test_a_cursor_that_was_made_up_is_refused(world: World, position: list[Any]) -> None:
    job = await world.submit()
    page = page_request(None, None, scope={})
    made_up = type(page)(page.limit, position, page.scope)
    async with world.database.session() as session:
        with pytest.raises(InvalidCursor):
            await service.result(session, world.context, world.actor, job["job_id"], made_up)


async def test_what_is_another_projects_is_not_found(world: World) -> None:
    job = await world.run(dataset=ONE)
    (trial,) = await world.trial_results(job["job_id"])
    stranger = type(world.actor)("project", "key_x", world.actor.workspace_id, "prj_other", world.actor.capabilities)
    page = page_request(None, None, scope={})
    async with world.database.session() as session:
        for call in (service.status, service.matrix):
            arguments = (session, world.context, stranger) if call is service.status else (session, stranger)
            with pytest.raises(JobNotFound):
                await call(*arguments, job["job_id"])
        for ask in (service.trial, service.trial_result, service.require_trial):
            with pytest.raises(TrialNotFound):
                await ask(session, stranger, trial["trial_id"])
        assert (await service.trials_page(session, stranger, page)).items == []
        assert (await service.list_page(session, world.context, stranger, page)).items == []


async def test_the_matrix_has_a_row_per_task_and_the_reasons_of_what_is_missing(world: World) -> None:
    world.provider.agent = [lambda _: ended()]
    job = await world.run(attempts=2)
    async with world.database.session() as session:
        matrix = await service.matrix(session, world.actor, job["job_id"])
    assert [(task["task_id"], len(task["cells"])) for task in matrix["tasks"]] == [("one", 2), ("two", 2)]
    assert {cell["reward"] for task in matrix["tasks"] for cell in task["cells"]} == {0.0}
    assert (matrix["reasons"], matrix["complete"]) == ([], True)
    await world.rows("UPDATE job SET state = 'running'")
    stopped = await world.submit()
    await world.stop(stopped["job_id"])
    async with world.database.session() as session:
        matrix = await service.matrix(session, world.actor, stopped["job_id"])
    assert matrix["reasons"] == [{"code": "CANCELLED", "count": 2}]


async def test_a_trial_that_ends_between_the_reads_of_a_status_is_in_it_once(world: World) -> None:
    job = await world.submit(dataset=ONE)
    await world.expand(job["job_id"])
    await world.rows("UPDATE trial SET state = 'running'")
    plain = world.database.url.replace("postgresql+psycopg", "postgresql")
    ended_already: list[str] = []

    def end(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "GROUP BY trial.job_id" in statement and not ended_already:
            ended_already.append(statement)
            with psycopg.connect(plain) as other:
                other.execute("UPDATE trial SET state = 'succeeded', reward = 1, passed = true, finished_at = now()")
                other.execute("UPDATE job_task SET n_succeeded = 1, n_passed = 1, reward_sum = 1")

    engine = world.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", end)
    try:
        counts = (await world.job(job["job_id"]))["trial_counts"]
    finally:
        event.remove(engine, "before_cursor_execute", end)
    assert ended_already
    assert (counts["pending"], counts["running"], counts["succeeded"]) == (0, 1, 0)
    counts = (await world.job(job["job_id"]))["trial_counts"]
    assert (counts["pending"], counts["running"], counts["succeeded"]) == (0, 0, 1)


@pytest.mark.requirement("G-EVAL-18.35")
async def test_a_job_says_whether_its_dataset_was_checked_and_its_matrix_which_tasks_are_flaky(world: World) -> None:
    await world.publish("team/lone", ("one",))
    rewards = iter("10101")

    def guesses(call: Call) -> ExecResult:
        call.write("/logs/verifier/reward.txt", next(rewards) if call.read("/app/out.txt") == "done" else "0")
        return ended()

    world.provider.verifier = [guesses]
    before = await world.run(dataset="team/lone@1")
    assert before["dataset_checked"] is False
    async with world.database.transaction() as session:
        matrix = await service.matrix(session, world.actor, before["job_id"])
        started = await checking.check(session, world.context, world.actor, world.blobs, "team/lone", "1", {})
    assert [task["flaky"] for task in matrix["tasks"]] == [False]
    assert (await world.job(before["job_id"]))["dataset_checked"] is False
    await world.engine.drain(world.pump.run_once)
    assert (await world.job(started["oracle"]["job_id"]))["status"] == "completed"
    assert (await world.job(before["job_id"]))["dataset_checked"] is True
    other = await world.submit(dataset="team/set@1")
    async with world.database.session() as session:
        matrix = await service.matrix(session, world.actor, before["job_id"])
        page = page_request(None, None, scope={})
        listed = (await service.list_page(session, world.context, world.actor, page)).items
    assert [task["flaky"] for task in matrix["tasks"]] == [True]
    assert {job["job_id"]: job["dataset_checked"] for job in listed}[other["job_id"]] is False
    assert [job["dataset_checked"] for job in listed].count(True) == 3
