"""Arguments that no tool takes: each is refused with the code that HTTP uses, none of its words come back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from tests.mcp.conftest import ERAS, Call, json_text, request_of
from tests.mcp.world import AUTOMATION, World, http_client

SUBMIT = {"dataset": "demo/mini@1", "request_id": "r1", "max_cost_usd": 1}
MARK = "kumquat"


async def raw_call(app: Any, world: World, era: str, name: str, arguments: Any) -> dict[str, Any]:
    """Calls a tool without a client in between, so that anything can be sent; returns the error object."""
    body, headers = request_of(era, "tools/call", {"name": name, "arguments": arguments})
    sent = json_text(body)
    sent["headers"] |= headers
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        answer = await http.post("/v1/mcp", **sent)
    result = answer.json()["result"]
    assert result["isError"], result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert MARK not in answer.text
    return result["structuredContent"]


async def nothing_was_written(world: World) -> bool:
    return await world.count("job") == await world.count("budget") == 0 and world.engine.works == []


NO_CAPS = (
    None, 0, "0", 0.0000009, "0.0000009", 100000.01, "100000.01", -1, math.nan, math.inf, -math.inf, "NaN", "1e999",
    True, "", " 1", "1 USD", MARK, [1], {"usd": 1}, "0.1234567890123",
)  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
async def test_a_cap_that_is_none_is_refused_and_nothing_is_written(app, world, era):
    for amount in NO_CAPS:
        arguments = {**SUBMIT, "max_cost_usd": amount}
        error = await raw_call(app, world, era, "envloop_job_submit", arguments)
        assert (error["code"], error["status"]) == ("INVALID_AMOUNT", 422), amount
        assert [field["path"] for field in error["fields"]] == ["max_cost_usd"]
    assert await nothing_was_written(world)


@pytest.mark.parametrize("era", ERAS)
async def test_a_submission_without_a_cap_is_never_made(app, world, era):
    error = await raw_call(app, world, era, "envloop_job_submit", {"dataset": "demo/mini@1", "request_id": "r1"})
    assert (error["code"], error["status"]) == ("INVALID_AMOUNT", 422)
    assert await nothing_was_written(world)


@pytest.mark.parametrize("era", ERAS)
async def test_the_ends_of_the_range_of_caps_are_allowed(call: Call, era):
    for amount in (0.000001, "0.000001", 100000, "100000", "100000.00"):
        arguments = {**SUBMIT, "request_id": repr(amount), "max_cost_usd": amount}
        job = await call("envloop_job_submit", era=era, **arguments)
        assert float(job["budget"]["max_cost_usd"]) == float(amount)


QUESTIONS: list[tuple[str, dict[str, Any], str, list[str] | None]] = [
    ("envloop_job_status", {}, "INVALID_REQUEST", ["job_id"]),
    ("envloop_job_status", {"job_id": None}, "INVALID_REQUEST", ["job_id"]),
    ("envloop_job_status", {"job_id": 5}, "INVALID_REQUEST", ["job_id"]),
    ("envloop_job_status", {"job_id": [MARK]}, "INVALID_REQUEST", ["job_id"]),
    ("envloop_job_status", {"job_id": MARK}, "JOB_NOT_FOUND", None),
    ("envloop_job_status", {"job_id": f"{MARK}\0"}, "INVALID_REQUEST", ["job_id"]),
    ("envloop_job_status", {"job_id": "x", "attempt": None}, "INVALID_REQUEST", ["attempt"]),
    ("envloop_job_status", {"job_id": "x", "b": 1, "a": MARK}, "INVALID_REQUEST", ["a", "b"]),
    ("envloop_trial_result", {"trial_id": {"a": MARK}}, "INVALID_REQUEST", ["trial_id"]),
    ("envloop_datasets_list", {"limit": 0}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": 101}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": "5"}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": True}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": 2.5}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": 10**40}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": math.nan}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"limit": [MARK]}, "INVALID_LIMIT", None),
    ("envloop_datasets_list", {"cursor": 5}, "INVALID_REQUEST", ["cursor"]),
    ("envloop_datasets_list", {"cursor": MARK}, "INVALID_CURSOR", None),
    ("envloop_datasets_list", {"type": MARK}, "INVALID_REQUEST", ["type"]),
    ("envloop_datasets_list", {"q": {"x": MARK}}, "INVALID_REQUEST", ["q"]),
    ("envloop_datasets_list", {"q": f"{MARK}\0"}, "INVALID_REQUEST", ["q"]),
    ("envloop_dataset_get", {}, "INVALID_REQUEST", ["name"]),
    ("envloop_dataset_get", {"name": "demo/mini", "version": ""}, "DATASET_REVISION_NOT_FOUND", None),
    ("envloop_dataset_get", {"name": "d/m", "version": "1", "revision": "a"}, "INVALID_REQUEST", ["revision"]),
    ("envloop_job_result", {"job_id": "x", "trials_limit": 0}, "INVALID_LIMIT", None),
    ("envloop_job_result", {"job_id": "x", "trials_cursor": 5}, "INVALID_REQUEST", ["trials_cursor"]),
    ("envloop_job_result", {"job_id": "x", "trials_cursor": MARK}, "INVALID_CURSOR", None),
    ("envloop_job_result", {"job_id": "x", "limit": 5}, "INVALID_REQUEST", ["limit"]),
]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_with_wrong_arguments_is_refused(app, world, era):
    for tool, arguments, code, paths in QUESTIONS:
        error = await raw_call(app, world, era, tool, arguments)
        assert error["code"] == code, (tool, arguments)
        assert error["status"] in {404, 422}
        assert paths == ([field["path"] for field in error["fields"]] if "fields" in error else None)


CHANGES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"request_id": None}, "INVALID_REQUEST", "request_id"),
    ({"request_id": ""}, "INVALID_REQUEST_ID", None),
    ({"request_id": 5}, "INVALID_REQUEST_ID", None),
    ({"request_id": "x" * 129}, "INVALID_REQUEST_ID", None),
    ({"request_id": f"{MARK}\0"}, "INVALID_REQUEST_ID", None),
    ({"attempts": 0}, "INVALID_ATTEMPTS", None),
    ({"attempts": 101}, "INVALID_ATTEMPTS", None),
    ({"attempts": "3"}, "INVALID_ATTEMPTS", None),
    ({"attempts": True}, "INVALID_ATTEMPTS", None),
    ({"attempts": math.nan}, "INVALID_ATTEMPTS", None),
    ({"attempts": {"n": MARK}}, "INVALID_ATTEMPTS", None),
    ({"tag": f"{MARK}\n"}, "INVALID_TAG", None),
    ({"tag": ["x"]}, "INVALID_TAG", None),
    ({"dataset": None}, "INVALID_DATASET_SELECTOR", None),
    ({"dataset": 5}, "INVALID_DATASET_SELECTOR", None),
    ({"dataset": {"name": {"deep": MARK}}}, "INVALID_DATASET_SELECTOR", None),
    ({"dataset": "demo/mini@1\0"}, "INVALID_REQUEST", "dataset"),
    ({"dataset_ref": {}}, "INVALID_DATASET_SELECTOR", None),
    ({"params": [MARK]}, "INVALID_REQUEST", "params"),
    ({"params": {"X": math.nan}}, "INVALID_REQUEST", "params"),
    ({"params": {"X": f"{MARK}\0"}}, "INVALID_REQUEST", "params"),
    ({"runner": 5}, "INVALID_REQUEST", "runner"),
    ({"profile_name": 5}, "INVALID_REQUEST", "profile_name"),
    ({"profile_name": f"{MARK}\0"}, "INVALID_REQUEST", "profile_name"),
    ({"profile_version": "1"}, "INVALID_JOB", None),
    ({"attempt": 3}, "INVALID_REQUEST", "attempt"),
    ({"dry_run": True}, "INVALID_REQUEST", "dry_run"),
    ({"type": "agent"}, "INVALID_REQUEST", "type"),
]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
async def test_a_submission_with_wrong_arguments_is_refused_and_writes_nothing(app, world, era):
    for change, code, path in CHANGES:
        error = await raw_call(app, world, era, "envloop_job_submit", {**SUBMIT, **change})
        assert (error["code"], error["status"]) == (code, 422), change
        assert path is None or [field["path"] for field in error["fields"]] == [path]
    assert await nothing_was_written(world)


async def test_half_a_surrogate_pair_is_refused(app, world):
    """The reader of the handshake era knows no such text at all."""
    error = await raw_call(app, world, "auto", "envloop_datasets_list", {"q": "\ud800"})
    assert error["fields"] == [{"path": "q", "problem": "holds a character that no text can have"}]


async def test_deeply_nested_arguments_are_refused(app, world):
    nested: Any = 1
    for _ in range(20):
        nested = {"a": [nested]}
    for era in ERAS:
        error = await raw_call(app, world, era, "envloop_job_submit", {**SUBMIT, "params": nested})
        assert error["fields"] == [{"path": "params", "problem": "is nested more than 32 levels deep"}]


async def test_names_of_unknown_arguments_come_back_short_and_few(app, world):
    arguments = {"\u202e\0" + "n" * 5000 + str(number): 1 for number in range(100)}
    error = await raw_call(app, world, "auto", "envloop_datasets_list", arguments)
    assert len(error["fields"]) == 20
    assert all(len(field["path"]) < 100 and field["path"].isprintable() for field in error["fields"])


async def test_null_is_as_good_as_leaving_an_argument_out(call: Call):
    found = await call("envloop_datasets_list", type=None, q=None, limit=None, cursor=None)
    assert found == await call("envloop_datasets_list")
    assert {item["name"] for item in found["items"]} == {"demo/mini", "tests/hello-world"}
