"""Which port to listen on: the one asked for, or the next free one when nobody asked."""

from __future__ import annotations

import errno
import socket
from typing import Final

_TRIES: Final = 50


class PortTaken(Exception):
    """The port that was asked for is in use; the message says what to do."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is in use. Choose another one with --port, or 0 for any free one.")


def listen(host: str, port: int, *, explicit: bool) -> socket.socket:
    """Returns a listening socket on `port`, or on the next free one when the port was not asked for explicitly."""
    for candidate in [port] if explicit or port == 0 else range(port, port + _TRIES):
        try:
            listener = socket.create_server((host, candidate), family=_family(host), backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            # Connections inherit it. The event loop sets it only where the protocol number is written down, and an
            # answer's second packet would wait some 40 ms for the client's acknowledgement of the first.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
    raise PortTaken(host, port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def origin_of(listener: socket.socket, host: str) -> str:
    """Returns the http origin of a listening socket as a browser on this machine writes it."""
    port = listener.getsockname()[1]
    name = "127.0.0.1" if host in {"0.0.0.0", ""} else "[::1]" if host == "::" else host  # noqa: S104 - compared, not bound
    return f"http://{f'[{name}]' if ':' in name and not name.startswith('[') else name}:{port}"
