"""What a submission may say, member by member, and when two submissions are the same request."""

from __future__ import annotations

from typing import Any

import pytest

from tollbar.jobs import submission
from tollbar.jobs.forms import AskedForm
from tollbar.kit.errors import TollbarError

SAID = {"dataset": "team/set@1"}


def read(**members: Any) -> submission.Submission:
    return submission.read({**SAID, **members})


@pytest.mark.parametrize(
    ("members", "status", "code"),
    [
        ({"attempts": 0}, 422, "INVALID_ATTEMPTS"),
        ({"attempts": 101}, 422, "INVALID_ATTEMPTS"),
        ({"attempts": True}, 422, "INVALID_ATTEMPTS"),
        ({"attempts": 1.0}, 422, "INVALID_ATTEMPTS"),
        ({"attempts": "1"}, 422, "INVALID_ATTEMPTS"),
        ({"tag": ""}, 422, "INVALID_TAG"),
        ({"tag": "x" * 129}, 422, "INVALID_TAG"),
        ({"tag": "a\nb"}, 422, "INVALID_TAG"),
        ({"tag": 7}, 422, "INVALID_TAG"),
        ({"request_id": ""}, 422, "INVALID_REQUEST_ID"),
        ({"request_id": "x" * 129}, 422, "INVALID_REQUEST_ID"),
        ({"request_id": "a\x00"}, 422, "INVALID_REQUEST_ID"),
        ({"request_id": 1}, 422, "INVALID_REQUEST_ID"),
        ({"priority": 101}, 422, "INVALID_PRIORITY"),
        ({"priority": -101}, 422, "INVALID_PRIORITY"),
        ({"priority": 1.5}, 422, "INVALID_PRIORITY"),
        ({"priority": True}, 422, "INVALID_PRIORITY"),
        ({"max_cost_usd": 0}, 422, "INVALID_AMOUNT"),
        ({"max_cost_usd": "0.0000009"}, 422, "INVALID_AMOUNT"),
        ({"max_cost_usd": 100000.01}, 422, "INVALID_AMOUNT"),
        ({"max_cost_usd": "-1"}, 422, "INVALID_AMOUNT"),
        ({"max_cost_usd": "NaN"}, 422, "INVALID_AMOUNT"),
        ({"max_cost_usd": True}, 422, "INVALID_AMOUNT"),
        ({"queue_id": "fast"}, 404, "QUEUE_NOT_FOUND"),
        ({"execution": 5}, 422, "INVALID_REQUEST"),
        ({"execution": {"timeout_sec": 0}}, 422, "INVALID_REQUEST"),
        ({"execution": {"timeout_sec": True}}, 422, "INVALID_REQUEST"),
        ({"execution": {"retries": 1}}, 422, "INVALID_REQUEST"),
        ({"execution": {"delete_delay_sec": 60}}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"execution": {"sandbox_form": "warm"}}, 422, "INVALID_REQUEST"),
        ({"execution": {"sandbox_form": True}}, 422, "INVALID_REQUEST"),
        ({"execution": {"sandbox_form": []}}, 422, "INVALID_REQUEST"),
        ({"execution": {"keep_failed_sec": -1}}, 422, "INVALID_REQUEST"),
        ({"execution": {"keep_failed_sec": 7 * 86400 + 1}}, 422, "INVALID_REQUEST"),
        ({"execution": {"keep_failed_sec": float("nan")}}, 422, "INVALID_REQUEST"),
        ({"execution": {"keep_failed_sec": "1h"}}, 422, "INVALID_REQUEST"),
        ({"seed": "1"}, 422, "INVALID_REQUEST"),
        ({"seed": 2**63}, 422, "INVALID_REQUEST"),
        ({"profile": {"name": "x"}}, 422, "INVALID_REQUEST"),
        ({"profile_id": "a/b", "profile_name": "a/b"}, 422, "INVALID_JOB"),
        ({"profile_version": "1"}, 422, "INVALID_JOB"),
        ({"params": []}, 422, "INVALID_REQUEST"),
        ({"params": {"a": 1, "A": 2}}, 422, "INVALID_JOB"),
        ({"allow_base_substitution": "yes"}, 422, "INVALID_REQUEST"),
        ({"dry_run": 1}, 422, "INVALID_REQUEST"),
        ({"job_id": "job_x"}, 422, "INVALID_JOB_ID"),
        ({"type": "train"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"type": "inference"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"type": "sandbox"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"type": "regrade"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"type": "dance"}, 422, "INVALID_JOB_TYPE"),
        ({"task": {}}, 422, "UNSUPPORTED_TASK_FORMAT"),
        ({"source_train_job_id": "x"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"source_train_trial_id": "x"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"image": "x"}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"trials": 3}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"spec": {}}, 422, "UNSUPPORTED_CAPABILITY"),
        ({"command": ""}, 422, "INVALID_COMMAND"),
        ({"command": "a\0b"}, 422, "INVALID_COMMAND"),
        ({"command": "x" * 65_537}, 422, "INVALID_COMMAND"),
        ({"max_concurrent": 0}, 422, "INVALID_REQUEST"),
        ({"atempts": 2}, 422, "INVALID_REQUEST"),
        ({"runner": 5}, 422, "INVALID_REQUEST"),
        ({"profile_name": ""}, 422, "INVALID_REQUEST"),
        ({"profile_name": "x" * 257}, 422, "INVALID_REQUEST"),
    ],
)
def test_each_bad_member_is_refused_with_its_code(members: dict[str, Any], status: int, code: str) -> None:
    with pytest.raises(TollbarError) as refused:
        read(**members)
    assert (refused.value.status, refused.value.code) == (status, code)


@pytest.mark.parametrize("members", [{"atempts": 2}, {"attempts_": 1, "zeal": 2}])
def test_an_unknown_member_is_named(members: dict[str, Any]) -> None:
    with pytest.raises(TollbarError) as refused:
        read(**members)
    assert [field["path"] for field in refused.value.facts["fields"]] == sorted(members)


def test_the_edges_of_each_range_are_taken() -> None:
    assert read(attempts=100, priority=-100, tag="x" * 128, request_id="y" * 128).attempts == 100
    assert read(max_cost_usd="0.000001").cap_pusd == 10**6
    assert read(max_cost_usd=100000).cap_pusd == 10**17
    assert read(seed=-(2**63) + 1).seed == -(2**63) + 1
    longest = {"timeout_sec": 7 * 86400, "delete_delay_sec": 0, "keep_failed_sec": 7 * 86400, "sandbox_form": "held"}
    assert read(execution=longest).execution == submission.Execution(604800.0, AskedForm.HELD, 604800.0)
    assert read(execution={"keep_failed_sec": 0}) == read(execution={"sandbox_form": "auto"}) == read()


def test_what_is_left_out_has_its_default() -> None:
    wanted = read()
    assert (wanted.attempts, wanted.priority, wanted.cap_pusd, wanted.seed, wanted.dry_run) == (1, 0, None, None, False)
    assert wanted.normal() == {
        "type": "agent",
        "dataset": {"name": "team/set", "version": "1"},
        "attempts": 1,
        "priority": 0,
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"max_cost_usd": 5}, {"max_cost_usd": "5.00"}),
        ({"max_cost_usd": 5.0}, {"max_cost_usd": "5e0"}),
        ({"dataset": "team/set@1"}, {"dataset": {"name": "team/set", "version": "1"}}),
        ({"dataset": {"name": "team/set", "version": "1", "split": None}}, {"dataset": "team/set@1"}),
        ({"attempts": 1}, {}),
        ({"priority": 0, "queue_id": "default", "execution": {}}, {}),
        ({"tag": None, "seed": None, "params": {}}, {}),
        ({"profile_id": "a/b@2"}, {"profile_name": "a/b", "profile_version": "2"}),
        ({"profile_id": "a/b"}, {"profile_name": "a/b"}),
        ({"profile": {"seed": 4}}, {"seed": 4}),
        ({"params": {"model": "x"}}, {"params": {"MODEL": "x"}}),
        ({"execution": {"timeout_sec": 5}}, {"execution": {"timeout_sec": 5.0}}),
        ({"request_id": "a"}, {"request_id": "b"}),
        ({"dry_run": True}, {}),
    ],
)
def test_two_ways_to_say_the_same_are_one_request(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert read(**one).sha256() == read(**other).sha256()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dataset": "team/set@2"}, "dataset"),
        ({"attempts": 2}, "attempts"),
        ({"max_cost_usd": 6}, "max_cost_usd"),
        ({"runner": "envhub/base@main"}, "runner"),
        ({"profile_name": "a/b"}, "profile_name"),
        ({"params": {"A": 1}}, "params"),
        ({"tag": "t"}, "tag"),
        ({"seed": 1}, "seed"),
        ({"priority": 1}, "priority"),
        ({"execution": {"timeout_sec": 5}}, "timeout_sec"),
        ({"allow_base_substitution": False}, "allow_base_substitution"),
    ],
)
def test_each_changed_argument_makes_another_request_and_is_named(change: dict[str, Any], name: str) -> None:
    first, second = read(), read(**change)
    assert first.sha256() != second.sha256()
    assert submission.differing(first.normal(), second.normal()) == [name]
