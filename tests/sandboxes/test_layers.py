"""The layer cache: each key is made once, whoever asks; what is unused goes, what is in use stays."""

import asyncio
import os
import sys
import threading
import time

import pytest

from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.layers import LayerStore

HOUR = 3600


@pytest.fixture
def store(tmp_path):
    return LayerStore(tmp_path, Identity(os.geteuid(), os.getegid(), drop=False))


def filling(text, made=None):
    def fill(folder):
        if made is not None:
            made.append(text)
        (folder / "file").write_text(text)

    return fill


def layers_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


async def test_a_layer_is_made_once_and_found_again(store):
    made = []
    first = await store.ensure("key", filling("one", made))
    second = await store.ensure("key", filling("two", made))
    assert first == second
    assert (first / "file").read_text() == "one"
    assert made == ["one"]


async def test_different_keys_are_different_layers_with_short_names(store):
    paths = {await store.ensure(f"key-{number}" * 50, filling("x")) for number in range(5)}
    assert len(paths) == 5
    assert all(len(path.name) == 24 for path in paths)


async def test_many_who_ask_at_once_wait_for_one_maker(store):
    made = []

    def slow(folder):
        made.append(threading.get_ident())
        time.sleep(0.1)
        (folder / "file").write_text("x")

    paths = await asyncio.gather(*(store.ensure("key", slow) for _ in range(8)))
    assert len(set(paths)) == 1
    assert len(made) == 1
    assert made[0] != threading.get_ident(), "filling never blocks the event loop"


async def test_two_stores_over_one_folder_make_a_layer_once(store, tmp_path):
    """As two processes do: they share nothing but the folder."""
    other = LayerStore(tmp_path, Identity(os.geteuid(), os.getegid(), drop=False))
    made = []

    def slow(folder):
        made.append(1)
        time.sleep(0.2)
        (folder / "file").write_text("x")

    paths = await asyncio.gather(store.ensure("key", slow), other.ensure("key", slow))
    assert paths[0] == paths[1]
    assert made == [1]


async def test_a_maker_that_fails_leaves_nothing_and_the_next_one_tries_again(store, tmp_path):
    def fail(folder):
        (folder / "half").write_text("x")
        msg = "broken"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="broken"):
        await store.ensure("key", fail)
    assert layers_in(tmp_path) == []
    path = await store.ensure("key", filling("whole"))
    assert [entry.name for entry in path.iterdir()] == ["file"]


async def test_a_layer_can_be_made_by_moving_a_folder_into_its_place(store, tmp_path):
    async def make(folder):
        ready = tmp_path / "ready"
        ready.mkdir()
        (ready / "file").write_text("moved")
        ready.rename(folder)

    path = await store.ensure_with("key", make)
    assert (path / "file").read_text() == "moved"


async def test_a_cancelled_maker_leaves_nothing(store, tmp_path):
    started = asyncio.Event()

    async def make(folder):
        started.set()
        await asyncio.sleep(60)

    making = asyncio.create_task(store.ensure_with("key", make))
    await started.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert layers_in(tmp_path) == []
    await store.ensure("key", filling("x"))


DYING = """
import asyncio, os, sys
from pathlib import Path
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.layers import LayerStore

def fill(folder):
    (folder / "half").write_text("x")
    os._exit(9)

asyncio.run(LayerStore(Path(sys.argv[1]), Identity(0, 0, drop=False)).ensure("key", fill))
"""


async def test_what_a_dead_maker_left_is_removed_by_the_next(store, tmp_path):
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(tmp_path))
    assert await died.wait() == 9
    assert len(layers_in(tmp_path)) == 1, "the half-made one is there, under another name"
    path = await store.ensure("key", filling("whole"))
    assert [entry.name for entry in path.iterdir()] == ["file"]
    assert layers_in(tmp_path) == [path.name]


async def test_a_layer_whose_note_was_lost_is_used_as_it_is(store, tmp_path):
    path = await store.ensure("key", filling("one"))
    (tmp_path / f"{path.name}.size").unlink()
    assert await store.ensure("key", filling("two")) == path
    assert (path / "file").read_text() == "one"
    assert int((tmp_path / f"{path.name}.size").read_text()) >= 3


async def test_pruning_removes_the_longest_unused_and_keeps_what_is_used_or_young(store, tmp_path):
    now = time.monotonic() + 10**9
    paths = [await store.ensure(f"key-{number}", filling("x" * 1000)) for number in range(5)]
    for age, path in zip([5, 4, 3, 2, 0.5], paths, strict=True):
        os.utime(tmp_path / f"{path.name}.size", (now - age * HOUR, now - age * HOUR))
    gone = await store.prune(2500, used=[paths[0]], now_s=now)
    assert sorted(gone) == sorted([paths[1].name, paths[2].name])
    assert layers_in(tmp_path) == sorted(path.name for path in (paths[0], paths[3], paths[4]))


async def test_nothing_is_pruned_while_everything_fits(store, tmp_path):
    path = await store.ensure("key", filling("x"))
    assert await store.prune(10**6, used=[], now_s=time.monotonic() + 10**10) == []
    assert path.is_dir()


async def test_a_pruned_layer_is_made_again_when_it_is_asked_for(store, tmp_path):
    path = await store.ensure("key", filling("one"))
    os.utime(tmp_path / f"{path.name}.size", (0, 0))
    assert await store.prune(0, used=[], now_s=10.0 * HOUR) == [path.name]
    assert (await store.ensure("key", filling("two")) / "file").read_text() == "two"


async def test_pruning_finishes_what_a_dead_process_left(store, tmp_path):
    (tmp_path / "abc.new-1").mkdir()
    (tmp_path / "abc.new-1/file").write_text("x")
    (tmp_path / "def.gone-1/0/deep").mkdir(parents=True)
    await store.prune(10**6, used=[], now_s=0)
    assert layers_in(tmp_path) == []
