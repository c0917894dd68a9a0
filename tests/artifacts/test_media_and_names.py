"""What a file is, by its content alone, and which names a listing may hold."""

import pytest

from tollbar.artifacts.media import HEAD_BYTES, is_text, media_type
from tollbar.kit.text import is_portable_path


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", "text/plain"),
        (b"hello\n", "text/plain"),
        ("naïve ☃ 😀".encode(), "text/plain"),
        (b'{"a": [1]}\n', "application/json"),
        (b"[1, 2]", "application/json"),
        (b"[INFO] started", "text/plain"),
        (b"{not json}", "text/plain"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "text/plain"),
        (b"<html></html>", "text/plain"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, "image/jpeg"),
        (b"GIF87a" + b"\0" * 20, "image/gif"),
        (b"GIF89a" + b"\0" * 20, "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "application/octet-stream"),
        (b"\x89PNG", "application/octet-stream"),
        (b"text with\0a NUL", "application/octet-stream"),
        (b"latin-1: \xe9t\xe9", "application/octet-stream"),
        (b"cut at its end: \xf0\x9f\x98", "application/octet-stream"),
    ],
)
def test_the_type_follows_from_the_content(head, expected):
    assert media_type(head) == expected


@pytest.mark.parametrize("before", range(4))
def test_a_character_that_the_first_8_kib_cut_does_not_make_a_text_binary(before):
    head = ("x" * (HEAD_BYTES - before) + "😀").encode()[:HEAD_BYTES]
    assert is_text(head)
    assert media_type(head) == "text/plain"


def test_a_bad_byte_in_the_first_8_kib_makes_it_binary_even_near_their_end():
    assert not is_text(b"x" * (HEAD_BYTES - 2) + b"\xff\xff")


def test_a_long_json_document_is_told_by_how_it_begins():
    assert media_type(b'{"rows": [' + b" " * HEAD_BYTES) == "application/json"
    assert media_type(b"[warning] " + b"x" * HEAD_BYTES) == "text/plain"


@pytest.mark.parametrize(
    "name", ["a", "a/b.txt", "logs/é ☃", "..a", "a..", "a/C:x", "-x", " ", "a//b".replace("//", "/")]
)
def test_a_relative_posix_path_may_be_listed(name):
    assert is_portable_path(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/../b",
        "./a",
        "a\\b",
        "C:x",
        "c:/x",
        "a\nb",
        "a\x00b",
        "\x7f",
        "\x85",
        "\udcff",
    ],
)
def test_a_name_that_a_client_could_not_write_is_never_listed(name):
    assert not is_portable_path(name)
