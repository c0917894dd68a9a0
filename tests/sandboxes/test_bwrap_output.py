"""Output: drained whatever a command prints, kept as two tails and a bounded file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbar.sandboxes.capture import BoundedFile

KEPT = 64 << 10


async def test_short_output_is_kept_whole_in_one_file(box, tmp_path):
    result = await box.sh("echo one; echo two >&2; sleep 0.1; echo three", output=tmp_path / "log")
    assert (tmp_path / "log").read_text().splitlines() == ["one", "two", "three"]
    assert not result.truncated
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


async def test_a_command_may_open_its_own_output_again(box):
    result = await box.sh("echo one > /dev/stdout; echo two > /dev/stderr; echo three | tee /dev/fd/2")
    assert (result.stdout_tail, result.stderr_tail) == (b"one\nthree\n", b"two\nthree\n")


async def test_a_command_without_output_leaves_an_empty_file(box, tmp_path):
    (tmp_path / "log").write_text("of an older try")
    await box.sh("true", output=tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b""


async def test_long_output_keeps_its_first_and_last_part_and_says_how_much_is_missing(box, tmp_path):
    out = await box.sh("seq 1000000; echo end >&2", output=tmp_path / "log", max_output_bytes=100_000)
    text = (tmp_path / "log").read_text()
    whole = "".join(f"{number}\n" for number in range(1, 1_000_001)) + "end\n"
    head, mark, tail = text.partition("\n[tollbar: ")
    missing, _, last = tail.partition(" bytes are left out here]\n")
    assert mark
    assert len(head) == 50_000
    assert whole.startswith(head)
    assert len(last) == 50_000
    assert int(missing) == len(whole) - 100_000
    assert out.truncated
    assert out.stdout_tail == whole[:-4].encode()[-KEPT:]
    assert out.stderr_tail == b"end\n"


async def test_without_a_file_the_tails_say_that_bytes_were_dropped(box):
    assert not (await box.sh(f"head -c {KEPT} /dev/zero")).truncated
    assert (await box.sh(f"head -c {KEPT + 1} /dev/zero")).truncated


async def test_bytes_that_are_no_text_pass_unchanged(box, tmp_path):
    every = "".join(f"\\{number:03o}" for number in range(256))
    result = await box.sh(f"printf '{every}'", output=tmp_path / "log")
    assert result.stdout_tail == bytes(range(256))
    assert (tmp_path / "log").read_bytes() == bytes(range(256))


async def test_a_flood_of_output_does_not_stop_the_time_out(box, tmp_path):
    result = await box.sh("yes", timeout_s=1, output=tmp_path / "log", max_output_bytes=1 << 20)
    assert result.timed_out
    assert result.wall_s < 3
    assert (tmp_path / "log").stat().st_size < (1 << 20) + 100


async def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(box, tmp_path, host):
    mark = host.marker()
    with pytest.raises(FileNotFoundError):
        await box.sh(f"setsid sleep {mark} & echo x", output=tmp_path / "no" / "log")
    await box.sandbox.kill()
    assert host.living(mark) == []


@given(parts=st.lists(st.binary(max_size=40), max_size=30), max_bytes=st.integers(0, 60))
def test_the_bounded_file_keeps_exactly_the_first_and_last_half(tmp_path_factory, parts, max_bytes):
    path = tmp_path_factory.mktemp("bounded") / "file"
    file = BoundedFile(path, max_bytes)
    for part in parts:
        file.write(part)
    dropped = file.dropped
    file.close()
    whole = b"".join(parts)
    if len(whole) <= max_bytes:
        assert path.read_bytes() == whole
        assert dropped == 0
    else:
        first, last = whole[: max_bytes // 2], whole[len(whole) - (max_bytes - max_bytes // 2) :]
        dropped = len(whole) - max_bytes
        assert path.read_bytes() == first + f"\n[tollbar: {dropped} bytes are left out here]\n".encode() + last
