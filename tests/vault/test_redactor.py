"""Secrets are taken out by their value, whatever form they travel in, and nothing else is touched."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbar.vault.redactor import Redactor

SECRET = 'sk-live/Zürich+"7%?& end'
MARK = "[redacted:PROVIDER]"


def redactor(*secrets: str) -> Redactor:
    made = Redactor()
    for secret in secrets or (SECRET,):
        made.add("PROVIDER", secret)
    return made


@pytest.mark.requirement("G-TEAM-S7")
@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        re.sub("%..", lambda escape: escape[0].lower(), quote(SECRET, safe="")),
    ],
)
def test_a_secret_is_found_as_it_is_and_escaped(form):
    assert MARK in redactor().text(f"before {form} after")
    assert "live" not in redactor().text(f"before {form} after")


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
def test_a_secret_is_found_in_base64_wherever_it_starts(encode, before):
    encoded = encode(f"{before}{SECRET} and more".encode()).decode()

    cleaned = redactor().text(f"Authorization: Basic {encoded}")

    assert MARK in cleaned
    # No run of the encoding that the secret alone determines is left: 4 characters are 3 of its bytes.
    inner = encode(f"{before}{SECRET}".encode()).decode()
    start = len(encode(before.encode()).decode().rstrip("=")) + 1
    assert not any(inner[at : at + 8] in cleaned for at in range(start, len(inner) - 8))


def test_values_inside_of_documents_are_cleaned_and_the_rest_keeps_its_shape():
    given_value = {"header": f"Bearer {SECRET}", SECRET: [1, None, True, {"deep": SECRET}], "n": 2.5}

    assert redactor().value(given_value) == {
        "header": f"Bearer {MARK}",
        MARK: [1, None, True, {"deep": MARK}],
        "n": 2.5,
    }


def test_of_two_secrets_that_overlap_the_longer_one_is_taken_out_whole():
    made = redactor("abcdefgh", "abcdefgh-and-more")

    assert made.text("x abcdefgh-and-more y") == f"x {MARK} y"


def test_a_value_that_is_forgotten_is_text_again():
    made = redactor()
    made.forget(SECRET)

    assert made.text(SECRET) == SECRET


def test_a_value_too_short_to_be_taken_out_safely_is_refused():
    with pytest.raises(ValueError, match="8 characters"):
        redactor("1234567")


def test_bytes_that_are_no_text_pass_unchanged_around_a_secret():
    data = b"\xff\xfe\x00" + SECRET.encode() + b"\x80\xff"

    assert redactor().data(data) == b"\xff\xfe\x00" + MARK.encode() + b"\x80\xff"


@given(
    text=st.text(alphabet="ab1234567890-", max_size=60),
    at=st.integers(0, 60),
    cuts=st.lists(st.integers(1, 9), max_size=40),
)
def test_a_stream_says_the_same_as_the_whole_wherever_it_is_cut(text, at, cuts):
    made = redactor("1234567890", "ab-12345678")
    data = (text[:at] + "1234567890" + text[at:]).encode()
    stream = made.stream()
    parts: list[bytes] = []
    rest = data
    for cut in cuts:
        parts.append(stream.feed(rest[:cut]))
        rest = rest[cut:]
    parts += [stream.feed(rest), stream.close()]

    assert b"".join(parts) == made.data(data)
    assert b"1234567890" not in b"".join(parts)


def test_a_stream_without_secrets_holds_nothing_back():
    stream = Redactor().stream()

    assert stream.feed(b"at once") == b"at once"
    assert stream.close() == b""
