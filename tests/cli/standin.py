"""A stand-in server in this process: answers what a test planted, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

KEY = "tbp_test0123456789"


@dataclass(frozen=True)
class Answer:
    """One answer: a JSON value or bytes; `cut` closes the connection without any."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class StandIn:
    """Routes are `GET /v1/job`; each has a list of answers, the last of which repeats."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.needs_key = True
        self._answers: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self.url = ""

    def on(self, route: str, *answers: Any) -> None:
        """Plants answers: an `Answer`, or an object that is answered with 200."""
        self._answers[route] = [one if isinstance(one, Answer) else Answer(body=one) for one in answers]

    def to(self, route: str) -> list[Asked]:
        """Returns the requests to a route."""
        return [one for one in self.asked if f"{one.method} {one.path}" == route]

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            if self.needs_key and asked.headers.get("authorization") != f"Bearer {KEY}":
                return Answer(401, {"code": "UNAUTHENTICATED", "message": "The key is missing or not valid."})
            planted = self._answers.get(f"{asked.method} {asked.path}")
            if planted is None:
                return Answer(404, {"code": "NOT_FOUND", "message": f"There is no route {asked.path}."})
            return planted.pop(0) if len(planted) > 1 else planted[0]


@contextmanager
def running() -> Iterator[StandIn]:
    """A stand-in that listens on a free port of this machine."""
    standin = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(standin))
    server.daemon_threads = True
    standin.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield standin
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(standin: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = standin.answer(Asked(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body))
            if answer.cut:
                self.close_connection = True
                return
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(data)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve  # noqa: N815 - the names that the base class calls

        def log_message(self, *args: object) -> None:
            pass

    return Handler
