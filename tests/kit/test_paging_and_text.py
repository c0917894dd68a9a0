"""Pages, strict JSON, ids, and windows on untrusted text."""

from __future__ import annotations

import pytest

from tollbar.kit import ids, jsonio, text
from tollbar.kit.errors import InvalidCursor, InvalidLimit, MalformedJson
from tollbar.kit.paging import page_request

SCOPE = {"route": "jobs", "project": "prj_1"}


def test_pages_follow_each_other_until_the_end() -> None:
    rows, seen, cursor = list(range(7)), [], None
    while True:
        page = page_request("3", cursor, scope=SCOPE)
        start = 0 if page.after is None else page.after[0] + 1
        cut = page.page(rows[start : start + 4], lambda row: [row])
        seen += cut.items
        if cut.next_cursor is None:
            break
        assert cut.next_cursor != cursor
        cursor = cut.next_cursor
    assert seen == rows


@pytest.mark.parametrize("limit", ["0", "101", "-1", "ten", "1.5", "", True, "\u0663"])
def test_a_limit_out_of_range_is_refused_and_not_clamped(limit: object) -> None:
    with pytest.raises(InvalidLimit):
        page_request(limit, None, scope=SCOPE)


def test_a_cursor_of_another_list_filter_or_project_is_refused() -> None:
    cursor = page_request(1, None, scope=SCOPE).page([1, 2], lambda row: [row]).next_cursor
    for scope in ({**SCOPE, "project": "prj_2"}, {**SCOPE, "status": "failed"}, {"route": "trials"}):
        with pytest.raises(InvalidCursor):
            page_request(1, cursor, scope=scope)


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "e30", "W10", "\n", "eyJzIjoxfQ"])
def test_a_damaged_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        page_request(1, cursor, scope=SCOPE)


@pytest.mark.parametrize(
    "body",
    [b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b"{", b"\xff", b"[" * 100_000],
)
def test_a_body_that_two_readers_would_read_differently_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        jsonio.read_json(body)


def test_equal_values_have_equal_canonical_forms() -> None:
    assert jsonio.canonical({"b": 1, "a": "\u00e9"}) == '{"a":"\u00e9","b":1}'.encode()


def test_ids_sort_by_time_and_are_recognised_by_kind() -> None:
    made = [ids.new_id("job") for _ in range(3)]
    assert all(ids.is_id(one, "job") and not ids.is_id(one, "trial") for one in made)
    assert not ids.is_id("job_" + "U" * 26, "job")
    assert not ids.is_id(made[0] + "\n", "job")


def test_control_characters_and_direction_marks_are_shown_escaped() -> None:
    assert text.printable("a\x1b[31m\u202eb\x9b\r\tc\n") == "a\\x1b[31m\\u202eb\\x9b\\x0d\tc\n"


def test_a_cursor_with_a_position_of_another_form_is_refused() -> None:
    cursor = page_request(1, None, scope=SCOPE).page([1, 2], lambda row: [row]).next_cursor
    page = page_request(1, cursor, scope=SCOPE)
    assert page.start(int) == (1,)
    for types in ((str,), (int, int), ()):
        with pytest.raises(InvalidCursor):
            page.start(*types)


@pytest.mark.parametrize("value", ["a\0b", {"a": ["ok", "\ud800"]}, {"\0": 1}])
def test_text_that_no_database_takes_is_found_wherever_it_stands(value: object) -> None:
    assert text.unstorable(value) is not None
    assert text.unstorable({"a": ["\u00e9", 1, None]}) is None
