"""Work that no cancellation may cut: what a phase puts in order behind itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Returns what `work` returns; a cancellation that comes meanwhile leaves after its end.

    A bare shield would let the caller go at once, and nobody would wait for the rest.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                break
            cancelled = error
        except Exception:  # noqa: BLE001 - the task keeps it, and its result below raises it
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen, and outranked by the cancellation
        raise cancelled
    return task.result()
