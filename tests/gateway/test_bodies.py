"""A body is unpacked under a limit and read strictly."""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import brotli
import pytest

from tollbar.gateway.bodies import decode, parse
from tollbar.gateway.errors import Code, Refused

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = json.dumps({"model": "m", "messages": ["x" * 1000]}).encode()


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


@pytest.mark.requirement("G-GW-GL22")
@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body_is_bounded_by_what_it_unpacks_to(encoding: str) -> None:
    packed = PACKED[encoding](TEXT)
    assert decode(packed, encoding.upper()) == TEXT
    assert decode(packed, encoding, len(TEXT)) == TEXT
    with pytest.raises(Refused) as refused:
        decode(packed, encoding, len(TEXT) - 1)
    assert refused.value.code is Code.REQUEST_TOO_LARGE


@pytest.mark.requirement("G-GW-GL22")
@pytest.mark.parametrize("encoding", PACKED)
def test_a_small_body_that_unpacks_to_very_much_is_refused(encoding: str) -> None:
    bomb = PACKED[encoding](b"0" * (40 * 1024 * 1024))
    assert len(bomb) < 100_000
    with pytest.raises(Refused) as refused:
        decode(bomb, encoding)
    assert refused.value.code is Code.REQUEST_TOO_LARGE


@pytest.mark.parametrize("encoding", PACKED)
def test_damaged_and_cut_bodies_are_refused(encoding: str) -> None:
    packed = PACKED[encoding](TEXT)
    for wrong in (packed[:-5], b"plain text", packed[:3]):
        with pytest.raises(Refused) as refused:
            decode(wrong, encoding)
        assert refused.value.code is Code.INVALID_REQUEST


def test_other_encodings_are_refused_by_415() -> None:
    for encoding in ("compress", "gzip, gzip", "aes128gcm"):
        with pytest.raises(Refused) as refused:
            decode(b"x", encoding)
        assert refused.value.code is Code.UNSUPPORTED_MEDIA_TYPE


def test_bare_deflate_plain_bodies_and_joined_gzip_streams_are_read() -> None:
    assert decode(_raw_deflate(TEXT), "deflate") == TEXT
    assert decode(TEXT, None) == decode(TEXT, "identity") == TEXT
    assert decode(gzip.compress(b'{"a"') + gzip.compress(b":1}"), "gzip") == b'{"a":1}'
    with pytest.raises(Refused):
        decode(TEXT, None, 10)


@pytest.mark.requirement("G-GW-GL22")
@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens": 1, "max_tokens": 100000}',
        b'{"generationConfig": {"maxOutputTokens": 1, "maxOutputTokens": 2}}',
        b'{"messages": [{"role": "user", "role": "user"}]}',
        rb'{"model": "a", "mod\u0065l": "b"}',
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b"[1]",
        b'"text"',
        b"",
        b"\xff\xfe{}",
        b'\xef\xbb\xbf{"model": "m"}',
        b'{"a": ' + b"[" * 100_000,
        b'{"n": ' + b"1" * 5000 + b"}",
        b'{"a": 1} {"a": 2}',
    ],
)
def test_what_two_readers_could_read_differently_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse(body)
    assert refused.value.code is Code.INVALID_REQUEST


def test_a_refusal_does_not_repeat_the_body() -> None:
    with pytest.raises(Refused) as refused:
        parse(b'{"secret-value": 1, "secret-value": 2}')
    assert "secret" not in str(refused.value)


def test_a_good_body_is_an_object() -> None:
    assert parse(rb'{"model": "m", "text": "\ud800"}') == {"model": "m", "text": "\ud800"}
