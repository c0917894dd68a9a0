"""Run as a program of its own by `starter`, once per worker: starts bwrap with the tenants' uid and says how it ended.

It has one thread, gives up every right before the first request, and dies with the worker. A message is a number (4
bytes) and descriptors: the order (a file with JSON: `argv`, `nofile`, `file_bytes`), then the descriptors that
the program gets as 3, 1, 2, `INFO` and `ARGUMENTS`; as `FILTER` it gets the system calls that no tenant has.
Any more descriptors are the `cgroup.procs` of its groups. Answers are the number, a kind and a value:

- STARTED, the pid, with a pidfd: it is in its groups and bound to its resource limits (OUTSIDE: the kernel did not let
  the tenants' uid put it there); then, once, EXIT and its exit code (negative for
  a signal);
- or FAILED and an errno.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys

from tollbar.sandboxes.entry_helper import become_helper
from tollbar.sandboxes.seccomp import process_1_filter

REQUEST = struct.Struct("<I")
ANSWER = struct.Struct("<Iii")
STARTED, EXIT, FAILED, OUTSIDE = 1, 2, 3, 4
MOST_DESCRIPTORS = 16
NAME = b"tollbar-start"
CHANNEL, INFO, ARGUMENTS, FILTER = 3, 4, 5, 6
"""The numbers under which the started program finds its descriptors besides the usual two."""

PROCESS_1_FILTER = process_1_filter()
_PLACES = (CHANNEL, 1, 2, INFO, ARGUMENTS)
_FIRST_FREE = 16
_LEAST_DESCRIPTORS = 1 + len(_PLACES)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)

Children = dict[int, int]
"""The number of the request for each pid that was not waited for."""


def serve(requests: socket.socket, deaths: int) -> None:
    """Starts and waits until the other end is closed; whatever was started dies with this process."""
    children: Children = {}
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    poller.register(deaths, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if deaths in ready:
            os.read(deaths, 1 << 10)
            tell_deaths(requests, children)
        if requests.fileno() in ready and not take(requests, children):
            return


def tell_deaths(requests: socket.socket, children: Children) -> None:
    """Says of every child that has ended how it did."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            requests.send(ANSWER.pack(children.pop(pid, 0), EXIT, os.waitstatus_to_exitcode(status)))


def take(requests: socket.socket, children: Children) -> bool:
    """Takes one request; False when there are no more."""
    said, extra, _, _ = requests.recvmsg(REQUEST.size, socket.CMSG_SPACE(MOST_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC)
    if not said:
        return False
    received = [number for _, _, data in extra for number in memoryview(data).cast("i")]
    (number,) = REQUEST.unpack(said)
    try:
        pid = start(received)
    except OSError as error:
        requests.send(ANSWER.pack(number, FAILED, error.errno or 0))
    else:
        children[pid] = number
        pidfd = os.pidfd_open(pid)
        kind = STARTED if join(received[_LEAST_DESCRIPTORS:], pid) else OUTSIDE
        socket.send_fds(requests, [ANSWER.pack(number, kind, pid)], [pidfd])
        os.close(pidfd)
    finally:
        for descriptor in received:
            os.close(descriptor)
    return True


def join(groups: list[int], pid: int) -> bool:
    """Puts a process into groups, by files that the worker opened with its own rights; says whether it is in all."""
    try:
        for group in groups:
            os.write(group, b"%d" % pid)
    except OSError:
        return False
    return True


def start(received: list[int]) -> int:
    """Starts a program and returns its pid. Raises `OSError` when nothing was started."""
    if len(received) < _LEAST_DESCRIPTORS:
        raise OSError
    order = json.loads(os.pread(received[0], os.fstat(received[0]).st_size, 0))
    places = [(os.POSIX_SPAWN_DUP2, source, place) for source, place in zip(received[1:], _PLACES, strict=False)]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        os.write(writing, PROCESS_1_FILTER)
        os.close(writing)
        places.append((os.POSIX_SPAWN_DUP2, reading, FILTER))
        pid = os.posix_spawn(
            order["program"],
            order["argv"],
            {"PATH": _PATH},
            file_actions=places,
            setpgroup=0,
            setsigdef=_DEFAULT_SIGNALS,
        )
    finally:
        os.close(reading)
    for kind, most in ((resource.RLIMIT_NOFILE, order["nofile"]), (resource.RLIMIT_FSIZE, order["file_bytes"])):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, (most, most))
    return pid


def _note(_number: int, _frame: object) -> None:
    """The bell is what tells of a death."""


def main() -> None:
    """Gives up the rights and serves; the arguments after the first are uid, gid and the socket's number."""
    uid, gid, number = map(int, sys.argv[2:])
    with open(os.devnull) as nothing:  # noqa: PTH123 - pathlib is not worth its memory here
        while os.dup(nothing.fileno()) < _FIRST_FREE:
            pass  # the low numbers stay taken: none that is received can be in the way of another
    requests = socket.socket(fileno=os.dup(number))
    os.close(number)
    deaths, bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    become_helper(uid, gid, NAME, dies_with_parent=True)
    signal.signal(signal.SIGCHLD, _note)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    gc.disable()
    serve(requests, deaths)
