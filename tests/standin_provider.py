"""A provider of models on loopback, for whole servers: it answers by a script and keeps what it was asked.

It speaks the providers' own HTTP, streams included, and accepts one key; nothing of a gateway is in it.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tollbar.gateway import asks
from tollbar.gateway.bodies import decode, parse
from tollbar.gateway.dialects import Operation, route
from tollbar.gateway.scripted import Facts, Script, answer, count, load


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class StandIn:
    """A provider that runs; `status`, when set, answers every model call with that status and an error."""

    key: str
    port: int = 0
    script: Script | None = None
    adapter: str | None = None
    """mini-swe-agent ends by a command: for which agent the script's end is written."""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def calls(self) -> list[Asked]:
        """The model calls among the requests."""
        return [one for one in self.asked if one.method == "POST" and not one.path.endswith("count_tokens")]

    def plays(self, text: str, adapter: str) -> StandIn:
        """Sets the script, for an agent, and forgets what was asked."""
        self.script, self.adapter, self.status, self.headers = load(text), adapter, None, {}
        self.asked.clear()
        return self

    def refuses(self, status: int, **headers: str) -> StandIn:
        """Sets the answer to every model call, and forgets what was asked."""
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}
        self.asked.clear()
        return self

    def reply(self, one: Asked) -> tuple[int, Mapping[str, str], bytes]:
        """Returns the answer to a request: status, headers, body."""
        path, _, query = one.path.partition("?")
        found = route(one.method, path, query, one.headers)
        if found is None:
            return 404, {}, b'{"error": {"message": "there is no such path"}}'
        if found.operation is Operation.PING:
            return 200, {}, b""
        given = one.headers.get("x-api-key") or one.headers.get("authorization", "").removeprefix("Bearer ")
        if given != self.key:
            return 401, {}, b'{"error": {"type": "authentication_error", "message": "the key is wrong"}}'
        body = decode(one.body, one.headers.get("content-encoding"))
        if found.operation is Operation.COUNT:
            counted = count(found.dialect, len(body))
            return counted.status, counted.headers, counted.body
        if self.status is not None:
            wrong = {"type": "error", "error": {"type": "api_error", "message": "refused on order", "code": "ordered"}}
            return self.status, {"content-type": "application/json", **self.headers}, json.dumps(wrong).encode()
        assert self.script is not None
        document = parse(body)
        ask = asks.read(found, document, len(body), beta=one.headers.get("anthropic-beta", ""))
        said = answer(self.script, ask, document, Facts(adapter=self.adapter), created=1_796_000_000)
        return said.status, said.headers, said.body


@contextmanager
def stand_in(key: str, listening: socket.socket | None = None) -> Iterator[StandIn]:
    """Runs a provider on a free port of loopback, or on a socket that listens already."""
    provider = StandIn(key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider), bind_and_activate=listening is None)
    if listening is not None:
        server.socket.close()
        server.socket = listening
        server.server_name, server.server_port = "stand-in", 0
    provider.port = server.server_address[1] if listening is None else 0
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(provider: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            length = int(headers.get("content-length", "0"))
            one = Asked(self.command, self.path, headers, self.rfile.read(length))
            provider.asked.append(one)
            status, given, body = provider.reply(one)
            self.send_response(status)
            for name, value in {**given, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = _answer  # noqa: N815 - the server's own names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's own name
            """Says nothing."""

    return Handler
