"""A process of the race: a gateway of its own on the shared database, and calls that all start at one word.

Arguments: database, provider, key, worker, first number, how many calls, and the longest that a call may take. It says
`ready`, waits for a line, and prints one JSON list of [number, status, code] for what its calls came to.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from tests.gateway.world import world_of

from tollbar.app.listeners import loopback
from tollbar.db.session import open_database
from tollbar.gateway.prices import PriceBook
from tollbar.kit.clock import SystemClock


async def call(client: httpx2.AsyncClient, number: int) -> list[Any]:
    """Makes one call, every other one as a stream, and says what it came to."""
    body = {
        "model": "gpt-5-mini",
        "messages": [{"role": "user", "content": f"call {number};"}],
        "max_completion_tokens": 300,
        "stream": number % 2 == 1,
    }
    try:
        answer = await client.post("/v1/chat/completions", json=body)
    except httpx2.TransportError as error:
        return [number, 0, type(error).__name__]
    return [number, answer.status_code, answer.headers.get("x-tollbar-code")]


async def main(url: str, provider: str, secret: str, worker: str, first: int, many: int, whole_call_s: float) -> None:
    """Runs the calls of this process."""
    database = open_database(url, pool_size=8)
    book = PriceBook()
    book.rates("openai", "gpt-5-mini", SystemClock().now())  # read before the race
    async with world_of(database, book, provider, worker_id=worker, whole_call_s=whole_call_s) as world:
        with loopback() as listening:
            serving = asyncio.create_task(world.listeners.serve(listening, None))
            async with httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{listening.getsockname()[1]}",
                headers={"authorization": f"Bearer {secret}"},
                trust_env=False,
                timeout=80,
                limits=httpx2.Limits(max_connections=None),
            ) as client:
                sys.stdout.write("ready\n")
                sys.stdout.flush()
                await asyncio.to_thread(sys.stdin.readline)
                outcomes = await asyncio.gather(*(call(client, first + index) for index in range(many)))
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        await world.gateway.close(60)
    await database.close()
    sys.stdout.write("\n" + json.dumps(outcomes))


if __name__ == "__main__":
    url, provider, secret, worker = sys.argv[1:5]
    asyncio.run(main(url, provider, secret, worker, int(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])))
