"""Run as a program of its own for one socket: it listens on the loopback of another network, and hands the socket over.

Arguments after the first: the descriptor of a network namespace, the port, and the socket to answer on. Only a process
with the rights of that namespace's owner can do it.
"""

from __future__ import annotations

import socket
import sys

from tollbar.sandboxes.entry_helper import BACKLOG, FAILED, LISTENING, REPLY, bring_loopback_up, join_network


def main() -> None:
    """Answers LISTENING with the socket, or FAILED and an errno."""
    network, port, number = map(int, sys.argv[2:])
    with socket.socket(fileno=number) as control:
        try:
            join_network(network)
            with socket.socket() as listening:
                bring_loopback_up(listening)
                listening.bind(("127.0.0.1", port))
                listening.listen(BACKLOG)
                socket.send_fds(control, [REPLY.pack(LISTENING, 0)], [listening.fileno()])
        except OSError as error:
            control.sendall(REPLY.pack(FAILED, error.errno or 0))
