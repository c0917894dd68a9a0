"""Run as a program of its own by `entry`, once per worker: lets commands into held sandboxes.

It imports little and has one thread, because only a process with one thread can join a user
namespace. The socket of that number brings, for each command, one message with six descriptors: a control socket, the
command's channel, its two output pipes, the user namespace that owns the sandbox's other ones, and a pidfd of its
process 1. A child is forked per command; everything else is said over the control socket:

- in: the length of the request (4 bytes) and the request, JSON with `argv`, `env`, `nofile`, `file_bytes` and
  `terminal` (whether standard output is a terminal, which then becomes standard input and the controlling terminal);
- out: PID and the pid of the command's process, which waits; in: one byte that lets it go;
- out: EXIT and its exit code (negative for a signal), or FAILED and an errno.

A message with three descriptors (control socket, user namespace, pidfd) asks for a socket instead: `port` in, and out
LISTENING with a socket that listens there on the loopback of the sandbox's own network. A socket belongs to the network
in which it was made, whoever has it.

Nothing of a tenant runs before the command's process is in all namespaces with the rights of a tenant and no other,
and it cannot be traced until then. An end of the control socket before the byte ends it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
import termios

from tollbar.sandboxes.seccomp import process_1_filter

REQUESTS = 3
NAME = b"tollbar-entry"
DESCRIPTORS = 6
LISTEN_DESCRIPTORS = 3
BACKLOG = 64
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID: `bwrap_command.CAPABILITIES` by their numbers."""

PROCESS_1_FILTER = process_1_filter()

PID, EXIT, FAILED, LISTENING = 1, 2, 3, 4
REPLY = struct.Struct("<ii")
LENGTH = struct.Struct("<I")

_NEW_USER = 0x10000000
_NEW_ALL = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | _NEW_USER | 0x20000000 | 0x40000000
_SET_NAME, _SET_DUMPABLE, _DROP_BOUND, _NO_NEW_PRIVILEGES, _AMBIENT = 15, 4, 24, 38, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR = 2, 4
_DIE_WITH_PARENT = 1
_NEW_NETWORK = 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_SET_FILTER = 22
_CAPABILITY_VERSION = 0x20080522
_FIRST_FREE, _ALL_CLOSED = 4, 64
_LAST_CAPABILITY = "/proc/sys/kernel/cap_last_cap"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _prctl(option: int, *arguments: object) -> None:
    numbers = [ctypes.c_ulong(part) if isinstance(part, int) else part for part in arguments]
    _call("prctl", option, *numbers, *[ctypes.c_ulong(0)] * (4 - len(numbers)))


def become_helper(uid: int, gid: int, name: bytes = NAME, *, dies_with_parent: bool = False) -> None:
    """Gives up every right, for this process and all that come from it; `name` is what it is called."""
    _prctl(_SET_NAME, name)  # first: a program of the tenants' uid without this name counts as a stranger
    if os.geteuid() == 0:
        for number in range(_last_capability() + 1):
            _prctl(_DROP_BOUND, number)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    _call("capset", struct.pack("<Ii", _CAPABILITY_VERSION, 0), bytes(24))
    if dies_with_parent:
        _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _prctl(_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def serve(last_capability: int) -> None:
    """Forks a child for every message, until the other end is closed."""
    with socket.socket(fileno=REQUESTS) as requests:
        while True:
            said, extra, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC)
            if not said:
                return
            received = [number for _, _, data in extra for number in memoryview(data).cast("i")]
            if len(received) in {DESCRIPTORS, LISTEN_DESCRIPTORS} and os.fork() == 0:
                requests.close()
                try:
                    if len(received) == DESCRIPTORS:
                        attend(received, last_capability)
                    else:
                        listen(received)
                finally:
                    os._exit(0)
            for descriptor in received:
                os.close(descriptor)


def listen(received: list[int]) -> None:
    """Makes a socket that listens in the network of a sandbox, and hands it over."""
    control, owner, process_1 = socket.socket(fileno=received[0]), *received[1:]
    (length,) = LENGTH.unpack(_exactly(control, LENGTH.size))
    request = json.loads(_exactly(control, length))
    try:
        _call("setns", owner, _NEW_USER)
        join_network(process_1)
        with socket.socket() as listening:
            bring_loopback_up(listening)
            listening.bind(("127.0.0.1", request["port"]))
            listening.listen(BACKLOG)
            socket.send_fds(control, [REPLY.pack(LISTENING, 0)], [listening.fileno()])
    except OSError as error:
        control.sendall(REPLY.pack(FAILED, error.errno or 0))


def join_network(descriptor: int) -> None:
    """Joins the network of a namespace, or of a process by its pidfd. Raises `OSError`."""
    _call("setns", descriptor, _NEW_NETWORK)


def bring_loopback_up(any_socket: socket.socket) -> None:
    """Switches `lo` of this process's network on, unless it is."""
    asked = struct.pack("16sH14x", b"lo", 0)
    (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _GET_FLAGS, asked), 16)
    if not flags & _UP:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def attend(received: list[int], last_capability: int) -> None:
    """Takes one command into its sandbox and says how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = socket.socket(fileno=received[0])
    channel, stdout, stderr, owner, process_1 = received[1:]
    (length,) = LENGTH.unpack(_exactly(control, LENGTH.size))
    request = json.loads(_exactly(control, length))
    try:
        _call("setns", owner, _NEW_USER)
        _call("setns", process_1, _NEW_ALL)
        child = os.fork()
    except OSError as error:
        control.sendall(REPLY.pack(FAILED, error.errno or 0))
        return
    if child == 0:
        try:
            become_tenant(control, request, (channel, stdout, stderr), last_capability)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else can say it
            os.write(2, f"{error}\n".encode(errors="replace"))
        finally:
            os._exit(127)
    for descriptor in received[1:]:
        os.close(descriptor)
    del request
    control.sendall(REPLY.pack(PID, child))
    _, status = os.waitpid(child, 0)
    control.sendall(REPLY.pack(EXIT, os.waitstatus_to_exitcode(status)))


def become_tenant(
    control: socket.socket, request: dict[str, object], streams: tuple[int, int, int], last_capability: int
) -> None:
    """Waits for the word, gives up what a tenant does not have, and becomes the command."""
    if control.recv(1) == b"":
        return
    for descriptor, place in zip(streams, (3, 1, 2), strict=True):
        os.dup2(descriptor, place)
    os.closerange(_FIRST_FREE, _ALL_CLOSED)
    nofile, file_bytes = int(str(request["nofile"])), int(str(request["file_bytes"]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    if request["terminal"]:
        os.dup2(1, 0)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir("/")
    keep_capabilities(last_capability)
    refuse_calls(PROCESS_1_FILTER)
    argv, env = request["argv"], request["env"]
    if isinstance(argv, list) and isinstance(env, dict):
        execute(argv, env)


def execute(argv: list[str], env: dict[str, str]) -> None:
    """Becomes the program that the tenant's own path leads to. Raises `OSError`."""
    reason = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    for folder in env["PATH"].split(":"):
        try:
            os.execve(f"{folder}/{argv[0]}", argv, env)  # noqa: S606 - there is no shell here to start it
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise reason


def keep_capabilities(last_capability: int) -> None:
    """Keeps the few rights of a tenant, in every set, and loses the others for good."""
    for number in range(last_capability + 1):
        if number not in CAPABILITIES:
            _prctl(_DROP_BOUND, number)
    kept = sum(1 << number for number in CAPABILITIES)
    header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
    _call("capset", header, struct.pack("<6I", kept, kept, kept, 0, 0, 0))
    _prctl(_AMBIENT, _AMBIENT_CLEAR)
    for number in CAPABILITIES:
        _prctl(_AMBIENT, _AMBIENT_RAISE, number)


def refuse_calls(program: bytes) -> None:
    """Binds this process to a filter of system calls, for good; it has no new privileges by now."""
    if program:
        code = ctypes.create_string_buffer(program, len(program))
        described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        _prctl(_SET_FILTER, 2, described)


def _exactly(control: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = control.recv(min(count, 1 << 16))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _last_capability() -> int:
    with open(_LAST_CAPABILITY) as file:  # noqa: PTH123 - pathlib is not worth its memory here
        return int(file.read())


def main() -> None:
    """Gives up the rights and serves; the arguments after the first are uid, gid and the socket's number."""
    last_capability = _last_capability()
    uid, gid, requests = map(int, sys.argv[2:])
    if requests != REQUESTS:
        os.dup2(requests, REQUESTS)
        os.close(requests)
    os.set_inheritable(REQUESTS, False)
    become_helper(uid, gid)
    gc.disable()  # a collection in a child would copy every page that it shares
    sys.meta_path.clear()  # what is not imported by now would come from a tenant's files
    serve(last_capability)
