"""The port that a server listens on, and what its connections inherit."""

from __future__ import annotations

import socket

import pytest

from tollbar.app.ports import PortTaken, listen

LOOPBACK = "127.0.0.1"


def test_no_connection_holds_back_the_second_packet_of_an_answer() -> None:
    with listen(LOOPBACK, 0, explicit=True) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_port_that_was_asked_for_and_is_in_use_is_refused_by_number() -> None:
    with listen(LOOPBACK, 0, explicit=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"{port} is in use"):
            listen(LOOPBACK, port, explicit=True)


def test_a_port_that_nobody_asked_for_gives_way_to_the_next_free_one() -> None:
    with listen(LOOPBACK, 0, explicit=True) as taken:
        port = taken.getsockname()[1]
        with listen(LOOPBACK, port, explicit=False) as other:
            assert port < other.getsockname()[1] <= port + 50
