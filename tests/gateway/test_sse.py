"""The reader of event streams: any split, any line end, every byte kept."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tollbar.gateway.sse import Event, Reader

STREAM = (
    ": comment\n\n"
    'event: message_start\ndata: {"a": "ü€😀"}\n\n'
    'data:{"b": 1}\r\n\r\n'
    "data: one\ndata: two\nid: 7\nretry: 5\n\n\n\n"
    "data\r\rdata: [DONE]\n\n"
).encode()
DATA = ['{"a": "ü€😀"}'.encode(), b'{"b": 1}', b"one\ntwo", b"", b"[DONE]"]


def _read(chunks: list[bytes]) -> tuple[list[Event], bytes]:
    reader = Reader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events, reader.rest


def test_events_have_their_name_and_data() -> None:
    events, rest = _read([STREAM])
    assert [event.data for event in events if not event.raw.startswith(b":")] == DATA
    assert [event.name for event in events][1] == "message_start"
    assert b"".join(event.raw for event in events) + rest == STREAM


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_split_anywhere_gives_the_same_events(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    events, rest = _read(chunks)
    assert [event.data for event in events] == [event.data for event in _read([STREAM])[0]]
    assert b"".join(event.raw for event in events) + rest == STREAM


def test_byte_by_byte_is_the_same() -> None:
    whole = _read([STREAM])[0]
    single = _read([STREAM[place : place + 1] for place in range(len(STREAM))])[0]
    assert [(event.name, event.data) for event in single] == [(event.name, event.data) for event in whole]


def test_a_last_event_without_an_empty_line_is_read_at_the_end() -> None:
    reader = Reader()
    assert reader.feed(b"data: x\n\ndata: last") != []
    assert [event.data for event in reader.finish()] == [b"last"]
    assert reader.rest == b""
    assert Reader().finish() == []


def test_an_event_of_several_megabytes_is_read_and_one_above_the_limit_is_not() -> None:
    large = b"data: " + b"x" * (5 * 1024 * 1024) + b"\n\n"
    reader = Reader()
    events = [event for start in range(0, len(large), 65_536) for event in reader.feed(large[start : start + 65_536])]
    assert [len(event.data) for event in events] == [5 * 1024 * 1024]
    small = Reader(max_event_bytes=100)
    assert small.feed(b"data: " + b"x" * 200) == []
    assert small.overflowed
    assert small.feed(b"\n\n") == []


def test_a_byte_order_mark_is_not_part_of_the_first_field() -> None:
    assert [event.data for event in Reader().feed(b"\xef\xbb\xbfdata: x\n\n")] == [b"x"]
