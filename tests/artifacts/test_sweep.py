"""Bytes that nobody names go after a day; bytes that somebody is just storing, or that anybody names, never."""

import asyncio
import hashlib
import os
import threading

import pytest

from tollbar.artifacts.blobs import BlobStore, local_blobs, sweep_mark
from tollbar.artifacts.sweep import Sweep

DAY = 86_400.0


@pytest.fixture
def blobs(tmp_path):
    return local_blobs(tmp_path / "blobs")


def path_of(tmp_path, sha256):
    return tmp_path / "blobs" / "sha256" / sha256[:2] / sha256[2:]


def aged(tmp_path, sha256, seconds):
    """Makes a stored blob as old as that."""
    path = path_of(tmp_path, sha256)
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def sweep(blobs, *, rows=(), seals=()):
    async def by_rows():
        return set(rows)

    async def by_seals():
        return set(seals)

    return Sweep(blobs, by_rows, by_seals, blobs.clock)


async def test_only_what_nobody_names_and_what_is_older_than_a_day_goes(blobs, tmp_path):
    named, sealed, young, old = [await blobs.put_bytes(text) for text in (b"named", b"sealed", b"young", b"old")]
    for sha256 in (named, sealed, old):
        aged(tmp_path, sha256, DAY + 60)
    aged(tmp_path, young, DAY - 60)
    swept = await sweep(blobs, rows=[named], seals=[sealed]).run_once()
    assert (swept.count, swept.size) == (1, 3)
    assert [await blobs.exists(one) for one in (named, sealed, young, old)] == [True, True, True, False]


async def test_what_is_stored_again_after_an_hour_becomes_young(blobs, tmp_path):
    sha256 = await blobs.put_bytes(b"twice")
    aged(tmp_path, sha256, 30 * DAY)
    assert await blobs.put_bytes(b"twice") == sha256
    assert (await sweep(blobs).run_once()).count == 0
    assert await blobs.get(sha256) == b"twice"


async def test_what_was_stored_within_the_hour_is_not_written_again(blobs, tmp_path):
    sha256 = await blobs.put_bytes(b"twice")
    aged(tmp_path, sha256, 3000)
    before = path_of(tmp_path, sha256).stat()
    await blobs.put_bytes(b"twice")
    after = path_of(tmp_path, sha256).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


class Stepping:
    """An object store that stops before chosen calls until the test lets it go on."""

    def __init__(self, store, stops):
        self._store = store
        self._stops = stops
        self.reached = {name: threading.Event() for name in stops}
        self.go_on = {name: threading.Event() for name in stops}

    def __getattr__(self, name):
        call = getattr(self._store, name)

        def stepping(path, *args, **kwargs):
            step = f"{name} {path.partition('/')[0]}"
            if step in self._stops:
                self.reached[step].set()
                assert self.go_on[step].wait(5)
            return call(path, *args, **kwargs)

        return stepping


@pytest.mark.parametrize("writer_stops_before", ["head sha256", "put sha256", "head sweeping"])
@pytest.mark.parametrize("sweep_stops_before", ["head sha256", "delete sha256", "delete sweeping"])
async def test_a_blob_that_is_stored_while_a_sweep_removes_it_is_there_afterwards(
    blobs, tmp_path, writer_stops_before, sweep_stops_before
):
    """The writer stands at each of its steps while the sweep comes to each of its own, and the other way round."""
    data = b"the same bytes"
    sha256 = await blobs.put_bytes(data)
    for first in ("writer", "sweep"):
        await blobs.put_bytes(data)
        aged(tmp_path, sha256, 2 * DAY)
        slow_writer = Stepping(blobs.store, [writer_stops_before])
        slow_sweep = Stepping(blobs.store, [sweep_stops_before])
        writing = asyncio.create_task(BlobStore(slow_writer, blobs.clock).put_bytes(data))
        await asyncio.to_thread(slow_writer.reached[writer_stops_before].wait, 5)
        removing = asyncio.create_task(asyncio.to_thread(sweep(BlobStore(slow_sweep, blobs.clock)).remove, sha256))
        await asyncio.to_thread(slow_sweep.reached[sweep_stops_before].wait, 0.2)
        order = [slow_writer.go_on[writer_stops_before], slow_sweep.go_on[sweep_stops_before]]
        tasks = [writing, removing]
        if first == "sweep":
            order.reverse()
            tasks.reverse()
        order[0].set()
        await asyncio.wait({tasks[0]}, timeout=0.1)
        order[1].set()
        stored, _ = await asyncio.gather(writing, removing)
        assert stored == sha256
        assert await blobs.get(sha256) == data, first


async def test_many_writers_and_sweeps_of_the_same_blobs_lose_none(blobs, tmp_path):
    contents = [bytes([number]) * 100 for number in range(8)]
    names = [hashlib.sha256(data).hexdigest() for data in contents]
    kept = set()

    def age_all(stop):
        while not stop.wait(0.001):
            for name in names:
                if name not in kept:
                    try:
                        aged(tmp_path, name, 2 * DAY)
                    except FileNotFoundError:
                        continue

    stop = threading.Event()
    aging = threading.Thread(target=age_all, args=(stop,))
    aging.start()
    try:

        async def sweeps():
            while not stop.is_set():
                await asyncio.sleep(0)
                for name in names:
                    if name not in kept:
                        await asyncio.to_thread(sweep(blobs).remove, name)

        running = [asyncio.create_task(sweeps()) for _ in range(2)]
        for data, name in zip(contents, names, strict=True):
            for _ in range(5):
                await blobs.put_bytes(data)
            kept.add(name)  # the row is committed: nothing ages it or sweeps it any more
            await blobs.put_bytes(data)
    finally:
        stop.set()
        aging.join()
    await asyncio.gather(*running)
    assert [await blobs.get(name) for name in names] == contents


async def test_the_mark_of_a_sweep_that_died_holds_nobody_up_for_ever(tmp_path):
    blobs = local_blobs(tmp_path / "blobs")
    sha256 = await blobs.put_bytes(b"x")
    blobs.store.put(sweep_mark(sha256), b"")
    mark = tmp_path / "blobs" / "sweeping" / sha256
    then = mark.stat().st_mtime - 700
    os.utime(mark, (then, then))
    assert await asyncio.wait_for(blobs.put_bytes(b"x"), 5) == sha256
