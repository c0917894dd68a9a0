"""A way to the database that a test can close: TCP on this machine, passed on to the server's socket."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL, make_url


class Proxy:
    """Passes connections on; `cut` ends them and lets none through until `mend`; `target` may change meanwhile."""

    def __init__(self, url: str) -> None:
        self.aim(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._ended = threading.Event()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def url(self) -> str:
        """The URL of the database through the proxy."""
        port = self._listener.getsockname()[1]
        return URL.create("postgresql+psycopg", "postgres", "", "127.0.0.1", port, self._database).render_as_string(
            hide_password=False
        )

    def aim(self, url: str) -> None:
        """Passes later connections on to the server of that URL."""
        made = make_url(url)
        self._database = made.database
        self._socket = Path(str(made.query["host"])) / f".s.PGSQL.{made.query['port']}"

    def cut(self) -> None:
        self._open.clear()
        for pair in list(self._pairs):
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._ended.set()
        self.cut()
        with contextlib.suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            near, _ = self._listener.accept()
            far = socket.socket(socket.AF_UNIX)
            try:
                if not self._open.is_set():
                    raise ConnectionRefusedError
                far.connect(str(self._socket))
            except OSError:
                near.close()
                far.close()
                continue
            thread = threading.Thread(target=self._pass, args=(near, far))
            thread.start()
            self._threads.append(thread)

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        self._pairs.add((near, far))
        with near, far, selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            with contextlib.suppress(OSError):
                while True:
                    for key, _ in ready.select():
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr] # a socket, as registered
                        if not data:
                            raise ConnectionResetError
                        key.data.sendall(data)
        self._pairs.discard((near, far))


@contextmanager
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy to the server of that URL, open, closed with the block."""
    made = Proxy(url)
    try:
        yield made
    finally:
        made.close()
