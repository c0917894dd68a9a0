"""Agent Jobs over HTTP: submitted once, listed, asked, stopped."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.conftest import DATASET, code_of

SHOWN = {
    "job_id", "type", "status", "name", "total_tasks", "created_at", "finished_at", "tag", "phase", "attempts",
    "trial_counts", "score", "pass", "n_scored", "n_total", "cost", "budget",
}  # fmt: skip


async def test_a_new_submission_is_a_202_and_its_repeat_a_200_with_the_same_job(world):
    await world.publish()
    request = {"request_id": "r-1", "dataset": f"{DATASET}@1", "attempts": 2, "max_cost_usd": 5.0}
    same = {"request_id": "r-1", "dataset": {"name": DATASET, "version": "1"}, "attempts": 2, "max_cost_usd": "5.00"}
    async with world.client() as client:
        first = await client.post("/v1/job", json=request)
        again = await client.post("/api/v1/job", json=same)
        other = await client.post("/v1/job", json={**request, "attempts": 3})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert first.json()["budget"]["max_cost_usd"] == "5"
    assert (other.status_code, code_of(other)) == (409, "JOB_REQUEST_CONFLICT")
    assert (other.json()["job_id"], other.json()["differs"]) == (first.json()["job_id"], ["attempts"])


async def test_of_many_equal_submissions_at_once_one_is_new(world):
    await world.publish()
    async with world.client() as client:
        answers = await asyncio.gather(
            *(client.post("/v1/job", json={"request_id": "same", "dataset": f"{DATASET}@1"}) for _ in range(12))
        )
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [202]
    assert len({answer.json()["job_id"] for answer in answers}) == 1


async def test_an_amount_is_read_as_the_text_that_was_sent(world):
    await world.publish()
    async with world.client() as client:
        for text, expected in (("0.1", "0.1"), ("1e-6", "0.000001"), ("100000", "100000"), ('"2.50"', "2.5")):
            body = f'{{"dataset": "{DATASET}@1", "max_cost_usd": {text}}}'
            answer = await client.post("/v1/job", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["budget"]["max_cost_usd"]) == (202, expected)
        for text in ("0", "0.0000009", "100000.01", "-1", "true", '"NaN"'):
            body = f'{{"dataset": "{DATASET}@1", "max_cost_usd": {text}}}'
            answer = await client.post("/v1/job", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, code_of(answer)) == (422, "INVALID_AMOUNT")
        assert len((await client.get("/v1/job")).json()["items"]) == 4


async def test_a_dry_run_is_a_200_and_writes_nothing(world):
    await world.publish()
    async with world.client() as client:
        answer = await client.post("/v1/job", json={"dataset": f"{DATASET}@1", "attempts": 3, "dry_run": True})
        assert (answer.status_code, answer.json()["n_total"]) == (200, 6)
        assert (await client.get("/v1/job")).json()["items"] == []


async def test_jobs_are_listed_newest_first_in_pages_with_what_clients_show(world):
    ids = [(await world.submit(tag=f"t{number % 2}"))["job_id"] for number in range(5)]
    seen, cursor = [], {}
    async with world.client() as client:
        while cursor is not None:
            page = (await client.get("/v1/job", params={"limit": "2", **cursor})).json()
            assert set(page) == {"items", "next_cursor"}
            seen += page["items"]
            cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
        assert [item["job_id"] for item in seen] == ids[::-1]
        assert set(seen[0]) >= SHOWN
        assert {"name": DATASET, "version": "1"}.items() <= seen[0]["dataset_ref"].items()
        tagged = (await client.get("/v1/job", params={"tag": "t1"})).json()["items"]
        assert [item["job_id"] for item in tagged] == [ids[3], ids[1]]


@pytest.mark.requirement("G-HTTP-16.12")
async def test_filters_know_the_words_of_the_dialect(world):
    await world.submit()
    async with world.client() as client:
        for query, count in (
            ({"type": "agent"}, 1),
            ({"type": "regrade"}, 0),
            ({"type": "train"}, 0),
            ({"type": "sandbox"}, 0),
            ({"type": "inference"}, 0),
            ({"status": "pending"}, 1),
            ({"status": "completed"}, 0),
        ):
            assert len((await client.get("/v1/job", params=query)).json()["items"]) == count
        for path, query, code in (
            ("/v1/job", {"type": "other"}, "INVALID_JOB_TYPE"),
            ("/v1/job", {"status": "done"}, "INVALID_JOB_STATUS"),
            ("/v1/trials", {"type": "other"}, "INVALID_JOB_TYPE"),
            ("/v1/trials", {"status": "completed"}, "INVALID_TRIAL_STATUS"),
        ):
            answer = await client.get(path, params=query)
            assert (answer.status_code, code_of(answer)) == (422, code)
        assert (await client.get("/v1/trials", params={"type": "train"})).json()["items"] == []


async def test_a_job_and_its_result_can_be_asked_at_any_time(world):
    job = await world.submit(attempts=3)
    for attempt in (1, 2, 3):
        await world.trial(job["job_id"], attempt=attempt)
    async with world.client() as client:
        status = (await client.get(f"/v1/job/{job['job_id']}")).json()
        assert (status["job_id"], status["status"], status["total_tasks"]) == (job["job_id"], "pending", 2)
        path = f"/v1/job/{job['job_id']}/result"
        first = (await client.get(path, params={"trials_limit": "2"})).json()
        cursor = first["trials"]["next_cursor"]
        rest = (await client.get(path, params={"trials_limit": "2", "trials_cursor": cursor})).json()
    assert first["final"] is False
    assert [item["attempt"] for item in first["trials"]["items"]] == [1, 2]
    assert [item["attempt"] for item in rest["trials"]["items"]] == [3]
    assert {"usage", "cost", "budget", "score"} <= set(first)


async def test_stopping_is_repeatable_and_keeps_the_job_ended(world):
    job = await world.submit()
    async with world.client() as client:
        for _ in range(2):
            answer = await client.post(f"/v1/job/{job['job_id']}/stop")
            assert (answer.status_code, answer.json()["job_id"]) == (200, job["job_id"])
            assert answer.json()["status"] in {"stopping", "cancelled"}


async def test_a_job_cannot_be_paused_resumed_or_woken(world):
    job = await world.submit()
    async with world.client() as client:
        for action in ("pause", "resume", "wake"):
            answer = await client.post(f"/v1/job/{job['job_id']}/{action}", json={})
            assert (answer.status_code, code_of(answer)) == (409, "JOB_ACTION_UNSUPPORTED")
            unknown = await client.post(f"/v1/job/no-such-job/{action}", json={})
            assert (unknown.status_code, code_of(unknown)) == (404, "JOB_NOT_FOUND")
        nonsense = await client.post(f"/v1/job/{job['job_id']}/dance", json={})
        assert (nonsense.status_code, code_of(nonsense)) == (404, "NOT_FOUND")


async def test_unknown_jobs_and_trials_are_404s_of_their_kind(ask):
    for path, code in (
        ("/v1/job/no-such-job", "JOB_NOT_FOUND"),
        ("/v1/job/no-such-job/result", "JOB_NOT_FOUND"),
        ("/v1/trials/no-such-trial", "TRIAL_NOT_FOUND"),
        ("/v1/trials/no-such-trial/detail", "TRIAL_NOT_FOUND"),
        ("/v1/trials/no-such-trial/result", "TRIAL_NOT_FOUND"),
        ("/v1/trials/no-such-trial/artifacts", "TRIAL_NOT_FOUND"),
        ("/v1/trials/no-such-trial/artifacts/x/content", "TRIAL_NOT_FOUND"),
    ):
        answer = await ask("GET", path)
        assert (answer.status_code, code_of(answer)) == (404, code)


async def test_the_log_of_a_job_and_its_events_go_on_from_a_cursor_and_never_answer_without_one(world):
    await world.publish()
    async with world.client() as client:
        job_id = (await client.post("/v1/job", json={"dataset": f"{DATASET}@1"})).json()["job_id"]
        log = (await client.get(f"/v1/job/{job_id}/logs", params={"limit": 1000})).json()
        assert [item["source"] for item in log["items"]] == ["system"]
        assert log["items"][0]["content"].startswith("submitted by project ")
        more = (await client.get(f"/v1/job/{job_id}/logs", params={"cursor": log["next_cursor"]})).json()
        assert (more["items"], more["eof"], more["has_more"]) == ([], False, False)
        events = (await client.get(f"/v1/job/{job_id}/events")).json()
        assert [(one["resource_id"], one["status"], one["source"]) for one in events["items"]] == [
            (job_id, "pending", "system")
        ]
        for query, code in (
            ({"source": "x"}, "INVALID_LOG_SOURCE"),
            ({"cursor": "x"}, "LOG_CURSOR_INVALID"),
            ({"limit": 1001}, "INVALID_LIMIT"),
            ({"cursor": log["next_cursor"], "source": "system"}, "LOG_CURSOR_INVALID"),
        ):
            answer = await client.get(f"/v1/job/{job_id}/logs", params=query)
            assert (answer.status_code, code_of(answer)) == (422, code)
        assert code_of(await client.get("/v1/job/job_01KDC4P2R8N5W3T7H9K1M6Q0VZ/logs")) == "JOB_NOT_FOUND"
        assert code_of(await client.get("/v1/trials/trial_01KDC4P3A1B2C3D4E5F6G7H8J9/logs")) == "TRIAL_NOT_FOUND"
