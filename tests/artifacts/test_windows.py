"""Windows on text: bounded, never inside a character, every undecodable byte counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbar.artifacts.windows import MARGIN, TextWindow, cut

TEXT = "a😀é☃bb😀😀\n\ufffd🐍z"
DATA = TEXT.encode()


def window(data: bytes, offset: int, max_bytes: int) -> TextWindow:
    """Reads as the service does: a margin on both sides, no more."""
    start = max(0, offset - MARGIN)
    return cut(data[start : offset + max_bytes + MARGIN], start, offset, max_bytes)


def rest(data: bytes, offset: int, max_bytes: int) -> list[TextWindow]:
    """Follows windows to the end of the file."""
    found = [window(data, offset, max_bytes)]
    while found[-1].end < len(data):
        found.append(window(data, found[-1].end, max_bytes))
        assert found[-1].offset == found[-2].end
        assert found[-1].end > found[-1].offset
    return found


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 4, 5, 7, 100])
@pytest.mark.parametrize("offset", range(len(DATA) + 1))
def test_windows_from_every_byte_rebuild_the_file(offset, max_bytes):
    windows = rest(DATA, offset, max_bytes)
    assert offset - 3 <= windows[0].offset <= offset
    assert DATA[: windows[0].offset] + "".join(part.text for part in windows).encode() == DATA
    assert all(part.replaced_bytes == 0 for part in windows)


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 4, 5, 7, 100])
def test_a_window_is_no_larger_than_asked_but_for_one_character(max_bytes):
    for part in rest(DATA, 0, max_bytes):
        size = part.end - part.offset
        assert size <= max_bytes or len(part.text) == 1


def test_the_end_of_a_file_is_an_empty_window():
    assert window(DATA, len(DATA), 10) == TextWindow(len(DATA), len(DATA), "", 0)
    assert window(b"", 0, 10) == TextWindow(0, 0, "", 0)


def test_bytes_that_are_no_text_are_replaced_and_counted_and_real_replacement_characters_are_not():
    data = b"ok \xff\xfe " + "\ufffd".encode() + b" \xf0\x9f\x98 end"
    found = window(data, 0, 100)
    assert found == TextWindow(0, len(data), "ok \ufffd\ufffd \ufffd \ufffd end", 5)


def test_a_character_that_the_file_itself_cuts_is_replaced_at_once():
    data = b"abc\xf0\x9f\x98"
    assert rest(data, 0, 4)[-1].end == len(data)
    assert sum(part.replaced_bytes for part in rest(data, 0, 4)) == 3


@given(st.binary(max_size=64), st.integers(0, 64), st.integers(1, 9))
def test_any_bytes_are_covered_once_and_in_order(data, offset, max_bytes):
    offset = min(offset, len(data))
    windows = rest(data, offset, max_bytes)
    assert windows[0].offset <= offset
    assert windows[-1].end == len(data)
    for part in windows:
        kept = len(part.text.replace("\ufffd", "").encode())
        real = data[part.offset : part.end].count("\ufffd".encode()) * 3
        assert part.replaced_bytes + kept + real >= part.end - part.offset or real
        assert part.replaced_bytes + kept <= part.end - part.offset


@given(st.text(max_size=40), st.integers(1, 9))
def test_any_text_is_rebuilt(text, max_bytes):
    text = text.encode("utf-8", "ignore").decode()
    assert "".join(part.text for part in rest(text.encode(), 0, max_bytes)) == text
