"""Reward files: every row of the evaluation guide's table of probed edge cases, on the reader itself."""

from __future__ import annotations

import json

import pytest

from tollbar.jobs import rewards
from tollbar.jobs.rewards import Graded, RewardFiles, Unscored

FULL_WIDTH_ONE = "\uff11".encode()


def txt(data: bytes) -> Graded | Unscored:
    return rewards.read(RewardFiles(None, data, None), {})


def from_json(data: bytes | object, **others: bytes) -> Graded | Unscored:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return rewards.read(RewardFiles(text, others.get("txt"), others.get("details")), {})


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"1", 1), (b" 1 \r\n", 1), (b"+1", 1), (b"1e0", 1), (b".5", 0.5), (b"5.", 5), (b"-3.5", -3.5), (b"-0", 0)],
)
def test_a_plain_number_in_reward_txt_is_the_reward(data: bytes, value: float) -> None:
    graded = txt(data)
    assert isinstance(graded, Graded)
    assert graded.reward == value
    assert str(graded.reward)[0] != "-" or value < 0


@pytest.mark.parametrize(
    "data",
    [b"1_0", FULL_WIDTH_ONE, "\u00a01".encode(), b"0.5 pts", b"1,0", b"true", b"0x1", b"1\n0", b"1\x00"],
)
def test_what_only_looks_like_a_number_is_no_reward(data: bytes) -> None:
    assert txt(data) == Unscored("REWARD_INVALID", "not_a_number")


@pytest.mark.parametrize("data", [b"nan", b"Infinity", b"-inf", b"1e309"])
def test_a_number_that_is_not_finite_is_no_reward(data: bytes) -> None:
    assert txt(data) == Unscored("REWARD_INVALID", "not_finite")


def test_missing_and_empty_files_are_told_apart() -> None:
    assert rewards.read(RewardFiles(None, None, None), {}) == Unscored("REWARD_MISSING", "absent")
    assert txt(b"") == txt(b" \n\t ") == Unscored("REWARD_MISSING", "empty")
    assert from_json(b" ") == Unscored("REWARD_MISSING", "empty")


def test_byte_order_marks_and_other_encodings_are_refused() -> None:
    assert txt(b"\xef\xbb\xbf1") == Unscored("REWARD_INVALID", "bom")
    assert from_json(b'\xef\xbb\xbf{"reward": 1}') == Unscored("REWARD_INVALID", "bom")
    assert txt(b"\xff\xfe1\x00") == Unscored("REWARD_INVALID", "encoding")


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b'{"reward": true}', "not_a_number"),
        (b'{"reward": "1"}', "not_a_number"),
        (b'{"reward": null}', "not_a_number"),
        (b'{"reward": [1]}', "not_a_number"),
        (b'{"reward": {"a": 1}}', "not_a_number"),
        (b'{"reward": 0, "reward": 1}', "duplicate_key"),
        (b"{}", "no_keys"),
        (b"0.5", "not_an_object"),
        (b"[]", "not_an_object"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'"1"', "not_an_object"),
        (b'{"reward": NaN}', "not_finite"),
        (b'{"reward": Infinity}', "not_finite"),
        (b'{"reward": 1e309}', "not_finite"),
        (b'{"reward": 1,}', "syntax"),
        (b'{"reward": 1} {"reward": 0}', "syntax"),
        (b'{"reward": 1} ok', "syntax"),
        (b"{'reward': 1}", "syntax"),
        (b'{"": 1}', "bad_key"),
        (b'{"a\\u0000b": 1}', "bad_key"),
        (b'{"reward": 1e308}', "out_of_range"),
        (b'{"reward": 123456789012345678901234567890}', "out_of_range"),
    ],
)
def test_each_invalid_form_of_reward_json_has_its_word(data: bytes, detail: str) -> None:
    assert from_json(data) == Unscored("REWARD_INVALID", detail)


def test_a_file_over_the_limit_is_not_read() -> None:
    assert txt(b"1" * (rewards.MAX_REWARD_BYTES + 1)) == Unscored("REWARD_TOO_LARGE", "size")


def test_reward_json_decides_and_a_contradiction_is_flagged() -> None:
    assert from_json({"reward": 1}, txt=b"0") == Graded(1.0, {}, 1.0, None, None, ("reward_files_differ",))
    assert from_json({"reward": 1}, txt=b"1") == Graded(1.0, {}, 1.0)
    assert from_json(b"{}", txt=b"1") == Unscored("REWARD_INVALID", "no_keys")


def test_a_single_member_is_reward_and_dimension() -> None:
    assert from_json({"accuracy": 0.5}) == Graded(0.5, {"accuracy": 0.5}, 0.5)


def test_several_members_without_reward_are_averaged_when_nothing_is_declared() -> None:
    assert from_json({"a": 1, "b": 0.5}) == Graded(0.75, {"a": 1.0, "b": 0.5}, 0.75)


def test_declared_weights_make_the_composite_and_a_missing_dimension_is_never_0() -> None:
    weights = {"c": 3.0, "s": 1.0}
    both = rewards.read(RewardFiles(b'{"c": 1, "s": 0.5}', None, None), weights)
    assert both == Graded(0.875, {"c": 1.0, "s": 0.5}, 0.875)
    lacking = rewards.read(RewardFiles(b'{"c": 1, "x": 0}', None, None), weights)
    assert lacking == Unscored("REWARD_INVALID", "missing_dimension")
    with_reward = rewards.read(RewardFiles(b'{"reward": 1, "c": 1}', None, None), weights)
    assert with_reward == Graded(1.0, {"c": 1.0}, None)


def test_flat_details_are_dimensions_and_reward_json_wins() -> None:
    graded = from_json({"reward": 1, "a": 1}, details=b'{"a": 0, "b": 0.5}')
    assert graded == Graded(1.0, {"a": 1.0, "b": 0.5}, 1.0)


def test_other_details_are_kept_as_text_with_their_failure_code() -> None:
    details = {"failure_code": "WRONG_TOTAL", "why": "one of two"}
    graded = from_json({"reward": 0}, details=json.dumps(details).encode())
    assert isinstance(graded, Graded)
    assert (graded.reward, graded.details, graded.failure_code) == (0.0, details, "WRONG_TOTAL")


def test_bad_details_never_touch_the_reward() -> None:
    for details in (b"{", b"\xff", b"x" * (rewards.MAX_DETAILS_BYTES + 1)):
        graded = from_json({"reward": 1}, details=details)
        assert isinstance(graded, Graded)
        assert (graded.reward, graded.flags) == (1.0, ("details_invalid",))
