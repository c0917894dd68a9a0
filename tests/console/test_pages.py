"""What the pages say, and to whom."""

from __future__ import annotations

import html
import json
import re
import shlex

import pytest
from tests.console.conftest import OWN, submit
from tests.console.sample import TASKS, sample
from tests.console.test_signing_in import token_of
from tests.mcp.worked import renamed, worked

from tollbar.console import words
from tollbar.jobs import service as jobs
from tollbar.jobs import store
from tollbar.jobs.states import JobErrorCode, JobState, Reason

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\u202egnp.exe\u2066"


def text_of(page: str) -> str:
    """Returns what a reader of the page sees or hears, on one line."""
    body = re.sub(r"<(head|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", body))).strip()


def cells(page: str) -> list[tuple[str, str, str]]:
    """Returns kind, what is seen and what is spoken of each cell of the matrix."""
    pattern = r'<td class="cell (\w+)"[^>]*><span aria-hidden="true">(.*?)</span><span class="spoken">(.*?)</span></td>'
    return [(kind, html.unescape(seen), text_of(spoken)) for kind, seen, spoken in re.findall(pattern, page)]


async def test_the_start_leads_to_the_jobs(browser):
    answer = await browser.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")


async def test_an_empty_list_says_what_a_job_is_and_how_to_start_one(browser):
    text = text_of((await browser.get("/jobs")).text)
    assert "No Job yet" in text
    assert "tollbar jobs submit demo/mini@1 --max-cost 0.05 --watch" in text


@pytest.mark.requirement("G-EVAL-18.9")
async def test_the_list_shows_state_score_coverage_money_and_age(world, browser):
    made = await sample(world)
    page = (await browser.get("/jobs")).text
    rows = [text_of(row) for row in re.findall(r'<tr role="row">(.*?)</tr>', page, flags=re.DOTALL)[1:]]
    assert [re.search(r"/jobs/(job_\w+)", row)[1] for row in page.split('<tr role="row">')[2:]] == [
        made.running, made.capped, made.gaps, made.done
    ]  # fmt: skip
    assert "◐ running" in rows[0]
    assert "12 of 24" in rows[0]
    assert "■ cancelled BUDGET_EXCEEDED" in rows[1]
    assert "0.46 USD of 0.50 USD" in rows[1]
    assert "5 min ago" in rows[1]
    assert "● completed" in rows[3]
    assert "120 of 120" in rows[3]
    assert "nightly" in rows[3]
    assert re.search(r"0\.8292 0\.\d+ to 0\.\d+", rows[3])


async def test_the_list_is_filtered_by_state_and_tag_and_says_so(world, browser):
    made = await sample(world)
    page = (await browser.get("/jobs", params={"status": "completed"})).text
    assert made.done in page
    assert made.capped not in page
    assert re.search(r'<a href="/jobs\?status=completed" aria-current="page">', page)
    page = (await browser.get("/jobs", params={"tag": "cap demo"})).text
    assert made.capped in page
    assert made.done not in page
    nothing = (await browser.get("/jobs", params={"tag": "cap demo", "status": "failed"})).text
    assert "No Job matches" in nothing


async def test_the_list_goes_on_at_a_cursor_of_its_own(world, browser):
    made = [await submit(world) for _ in range(27)]
    first = (await browser.get("/jobs")).text
    assert made[0] not in first
    older = html.unescape(re.search(r'<a href="(/jobs\?cursor=[^"]+)">Older Jobs', first)[1])
    second = (await browser.get(older)).text
    assert [job_id in second for job_id in made[:3]] == [True, True, False]
    refused = await browser.get(older + "&status=failed")
    assert refused.status_code == 422
    assert "INVALID_CURSOR" in refused.text


async def test_a_finished_job_shows_each_attempt_in_sign_and_words(world, browser):
    made = await sample(world)
    page = (await browser.get(f"/jobs/{made.done}")).text
    found = cells(page)
    assert len(found) == 120
    assert re.findall(r'<th scope="row"><bdi>(.*?)</bdi></th>\s*<td class="sum">', page) == list(TASKS)
    assert found[0] == ("below", "✗ 0", "count-words, attempt 1: succeeded, reward 0, does not pass")
    assert found[1] == ("pass", "✓ 1", "count-words, attempt 2: succeeded, reward 1, passes")
    assert ("below", "✗ 0.5", "order-report, attempt 4: succeeded, reward 0.5, does not pass") in found
    text = text_of(page)
    assert "120 of 120 scored" in text
    assert "took 3 min 14 s" in text
    assert re.search(r"Score 0\.8292 95 %: 0\.\d+ to 0\.\d+", text)
    assert "1.23 USD of 5.00 USD" in text
    assert "reserved 0.00 USD, left 3.77 USD" in text


async def test_pass_at_k_and_pass_hat_k_are_those_of_the_service(world, browser):
    made = await sample(world)
    async with world.database.session() as session:
        job = await jobs.status(session, world.context, world.actor, made.gaps)
    page = (await browser.get(f"/jobs/{made.gaps}")).text
    table = re.search(r'<table class="by-k">(.*?)</table>', page, flags=re.DOTALL)[1]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]
    assert rows[0] == ["k", "1", "2", "3", "4", "5"]
    assert rows[1] == ["pass@k", *(words.number(value) for value in job["pass@k"].values())]
    assert rows[2] == ["pass^k", *(words.number(value) for value in job["pass^k"].values())]
    assert rows[3] == ["tasks", *map(str, job["pass_tasks"].values())]


async def test_missing_rewards_are_explained_and_filter_the_matrix(world, browser):
    made = await sample(world)
    page = (await browser.get(f"/jobs/{made.gaps}")).text
    found = cells(page)
    assert ("none", "! A", "fix-config, attempt 1: failed, no reward: ENVIRONMENT_BUILD_FAILED") in found
    assert ("none", "! B", "count-words, attempt 3: failed, no reward: VERIFIER_TIMEOUT") in found
    text = text_of(page)
    assert "5 Trials ENVIRONMENT_BUILD_FAILED The task's environment could not be built." in text
    assert "21 of 30 scored" in text
    assert "21 succeeded, 9 failed" in text
    only = (await browser.get(f"/jobs/{made.gaps}", params={"reason": "VERIFIER_TIMEOUT"})).text
    assert {spoken.split(",")[0] for _, _, spoken in cells(only)} == {"count-words"}
    assert "Only tasks with VERIFIER_TIMEOUT" in text_of(only)
    unknown = (await browser.get(f"/jobs/{made.gaps}", params={"reason": HOSTILE})).text
    assert len(cells(unknown)) == 30


async def test_a_job_that_met_its_cap_says_so_and_keeps_its_rewards(world, browser):
    made = await sample(world)
    text = text_of((await browser.get(f"/jobs/{made.capped}")).text)
    assert "Stopped by its cap BUDGET_EXCEEDED" in text
    assert "leaves no room for the next call" in text
    assert "Finished Trials keep their rewards" in text
    assert "0.46 USD of 0.50 USD" in text
    assert "36 Trials BUDGET_EXCEEDED The cap stopped the Job." in text


async def test_the_bar_of_the_cap_is_drawn_by_attributes(world, browser):
    made = await sample(world)
    page = (await browser.get(f"/jobs/{made.running}")).text
    assert '<rect class="part" x="0" y="0" width="15.0" height="10"/>' in page, "0.12 of 0.80"
    assert '<rect class="held" x="15.0" y="0" width="22.5" height="10"/>' in page, "0.18 of 0.80"
    assert "reserved 0.18 USD, left 0.50 USD" in text_of(page)
    assert {kind for kind, _, _ in cells(page)} == {"pass", "below", "work", "open"}
    assert ("work", "…", "greeting, attempt 3: running") in cells(page)
    assert ("open", "·", "greeting, attempt 4: pending") in cells(page)


async def test_a_job_without_a_cap_and_without_trials_has_a_page(world, browser):
    job_id = await submit(world)
    text = text_of((await browser.get(f"/jobs/{job_id}")).text)
    assert "0.00 USD no cap" in text
    assert "No Trial has been made yet" in text
    assert "Score - no interval yet" in text
    assert "--no-cap" in text


async def test_a_person_can_stop_a_job_from_its_page(world, browser):
    job_id = await submit(world, attempts=2)
    page = (await browser.get(f"/jobs/{job_id}")).text
    answer = await browser.post(f"/jobs/{job_id}/stop", data={"token": token_of(page)}, headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
    after = (await browser.get(f"/jobs/{job_id}")).text
    assert "■ cancelled" in text_of(after)
    assert "A person stopped this Job" in text_of(after)
    assert "Stop it now" not in after


async def test_the_command_and_the_call_make_the_same_job_again(world, browser):
    first = await submit(
        world, dataset={"name": "demo/mini", "version": "1", "task_id": "greeting"}, attempts=3, tag="it's \"x\"",
        max_cost_usd="0.25", profile_name="tollbar/nop", runner="envhub/metered@main",
    )  # fmt: skip
    page = (await browser.get(f"/jobs/{first}")).text
    command, call = (
        html.unescape(found) for found in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.DOTALL)
    )
    assert shlex.split(command) == [
        "tollbar", "jobs", "submit", "demo/mini@1", "--task", "greeting", "--profile", "tollbar/nop@1",
        "--runner", "envhub/metered@main", "--attempts", "3", "--tag", "it's \"x\"", "--max-cost", "0.25",
    ]  # fmt: skip
    again = await submit(world, **{**json.loads(call), "request_id": "again"})
    async with world.database.session() as session:
        one, two = [await jobs.status(session, world.context, world.actor, job_id) for job_id in (first, again)]
    same = ("name", "selection", "profile", "runner", "attempts", "total_tasks", "tag", "dataset_ref", "budget")
    assert {name: one[name] for name in same} == {name: two[name] for name in same}


async def test_another_projects_job_is_not_found(world, browser):
    async with world.database.transaction() as session:
        request = {"dataset": "demo/mini@1", "profile_name": None}
        with pytest.raises(Exception, match="No profile"):
            await jobs.submit(session, world.context, world.stranger, request)
    job_id = await submit(world)
    token = token_of((await browser.get("/jobs")).text)
    async with world.database.transaction() as session:
        job = await _row(session, job_id)
        job.project_id = world.stranger.project_id
    for answer in (
        await browser.get(f"/jobs/{job_id}"),
        await browser.get("/jobs/job_unknown"),
        await browser.get("/jobs/%00"),
        await browser.post(f"/jobs/{job_id}/stop", data={"token": token}, headers=OWN),
    ):
        assert answer.status_code == 404
        assert "There is no such Job in this project." in answer.text
        assert "tollbar/oracle" not in answer.text
    assert job_id not in (await browser.get("/jobs")).text


async def test_hostile_words_are_shown_and_never_become_markup(world, browser):
    job_id = await submit(world, attempts=1)
    await renamed(world, job_id, tag=HOSTILE, name=HOSTILE)
    async with world.database.transaction() as session:
        await _rename_task(session, job_id, HOSTILE)
    await worked(world, job_id, {HOSTILE: [1.0]})
    for path in (f"/jobs/{job_id}", "/jobs", f"/jobs?tag={HOSTILE}"):
        page = (await browser.get(path)).text
        assert "<script" not in page
        assert "<img src=x" not in page
        assert not re.search(r"<[^>]*\son\w+=", page)
        assert "\u202e" not in page
        assert "\u2066" not in page
        assert "{{7*7}}" in page
        shown = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\\u202egnp.exe\\u2066"
        assert shown in html.unescape(page)
    assert f"{shown}, attempt 1: succeeded, reward 1, passes" in html.unescape(
        re.sub(r"</?bdi>", "", (await browser.get(f"/jobs/{job_id}")).text)
    )


async def test_an_address_that_nothing_has_is_a_page_for_people_and_json_for_programs(app, visitor):
    page = await visitor.get("/nothing/here")
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "There is no page at this address" in page.text
    for path, accept in (("/nothing", "*/*"), ("/v1/nothing", "text/html"), ("/api/nothing", "text/html")):
        answer = await visitor.get(path, headers={"Accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert (await visitor.get("/v1/job/x/stop")).status_code in {401, 405}
    assert (await visitor.delete("/jobs")).status_code == 405


def test_every_state_has_a_sign_of_its_own_and_every_reason_a_sentence():
    assert set(words.SYMBOLS) == set(JobState)
    assert len(set(words.SYMBOLS.values())) == len(JobState)
    assert set(words.REASONS) == set(Reason)
    assert set(words.ENDINGS) == set(JobErrorCode)


async def _row(session, job_id):
    job = await store.lock_job(session, job_id)
    assert job is not None
    return job


async def _rename_task(session, job_id, name):
    for task in (await store.tasks(session, job_id))[:1]:
        task.task_id = name
