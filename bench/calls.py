"""Calls of a model over HTTP, as cheap as Python can make them: what is measured is whoever answers.

Run as a program it works in a process of its own and writes one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

_PATIENCE_S = 120
_WARM_CALLS = 10
BODY = {
    "model": "gpt-5-mini",
    "messages": [{"role": "user", "content": "Say something short. " * 50}],
    "max_completion_tokens": 500,
}


class CallsFailed(Exception):
    """A call was answered by something else than 200."""


@dataclass(frozen=True)
class Calls:
    """What was measured: seconds of each of some calls in a row, or how many a second went through connections."""

    seconds: list[float] = field(default_factory=list[float])
    per_second: float = 0.0


def run(url: str, key: str, *, count: int = 0, connections: int = 0, seconds: float = 0.0) -> Calls:
    """Makes `count` calls one after the other, or as many as go through `connections` in `seconds`.

    Works in a new process. Raises `CallsFailed`.
    """
    words = ["-m", "bench.calls", url, key, f"--count={count}", f"--connections={connections}", f"--seconds={seconds}"]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=_PATIENCE_S + seconds
    )
    if done.returncode:
        raise CallsFailed(done.stderr[-500:])
    return Calls(**json.loads(done.stdout))


@dataclass
class _Line:
    """One connection that is kept."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    request: bytes

    @classmethod
    async def open(cls, url: str, key: str) -> _Line:
        parts = urlsplit(url)
        body = json.dumps(BODY).encode()
        head = [
            "POST /v1/chat/completions HTTP/1.1",
            f"host: {parts.netloc}",
            f"authorization: Bearer {key}",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        return cls(reader, writer, "\r\n".join(head).encode() + b"\r\n\r\n" + body)

    async def call(self) -> None:
        self.writer.write(self.request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" in head:
            body = await self.reader.readuntil(b"0\r\n\r\n")
        else:
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = await self.reader.readexactly(length)
        if b" 200 " not in head[:16]:
            raise CallsFailed(f"{head!r} {body!r}")


async def _in_a_row(url: str, key: str, count: int) -> Calls:
    line = await _Line.open(url, key)
    found: list[float] = []
    for number in range(_WARM_CALLS + count):
        started = time.perf_counter()
        await line.call()
        if number >= _WARM_CALLS:
            found.append(time.perf_counter() - started)
    line.writer.close()
    return Calls(seconds=found)


async def _at_once(url: str, key: str, connections: int, seconds: float) -> Calls:
    lines = [await _Line.open(url, key) for _ in range(connections)]
    await asyncio.gather(*(line.call() for line in lines))
    done, started = 0, time.perf_counter()

    async def calls(line: _Line) -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            await line.call()
            done += 1

    await asyncio.gather(*map(calls, lines))
    return Calls(per_second=done / (time.perf_counter() - started))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("key")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    work = (
        _at_once(options.url, options.key, options.connections, options.seconds)
        if options.connections
        else _in_a_row(options.url, options.key, options.count)
    )
    sys.stdout.write(json.dumps(asdict(asyncio.run(work))))


if __name__ == "__main__":
    main()
