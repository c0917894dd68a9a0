"""Output of a command: drained whatever it prints, kept as two tails and as one bounded file on the host."""

from __future__ import annotations

import fcntl
import os
import select
import termios
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 64 << 10
_CHUNK: Final = 64 << 10


class Tail:
    """The last 64 KiB of a stream."""

    def __init__(self) -> None:
        self.total = 0
        self._kept = bytearray()

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * TAIL_BYTES:
            del self._kept[:-TAIL_BYTES]

    def value(self) -> bytes:
        """Returns what is kept."""
        return bytes(self._kept[-TAIL_BYTES:])


class BoundedFile:
    """A file that keeps the first and the last half of what is written to it, with a mark where bytes are missing.

    Memory is bounded by one chunk: the last half is a ring in the file itself, put in order by `close`.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._head = max_bytes // 2
        self._ring = max_bytes - self._head
        self.written = 0

    @property
    def dropped(self) -> int:
        """Returns how many bytes are missing."""
        return max(0, self.written - self._head - self._ring)

    def write(self, data: bytes) -> None:
        """Takes the next bytes."""
        view = memoryview(data)
        while view:
            if self.written < self._head:
                part = view[: self._head - self.written]
                offset = self.written
            else:
                position = (self.written - self._head) % self._ring if self._ring else 0
                part = view[: self._ring - position] if self._ring else view
                offset = self._head + position
            if self._ring or self.written < self._head:
                _write_all(self._descriptor, part, offset)
            self.written += len(part)
            view = view[len(part) :]

    def close(self) -> None:
        """Puts the ring in order, after the mark, and closes the file."""
        try:
            if self.dropped:
                self._unroll()
        finally:
            os.close(self._descriptor)

    def _unroll(self) -> None:
        position = (self.written - self._head) % self._ring if self._ring else 0
        ring = os.pread(self._descriptor, self._ring, self._head)
        mark = f"\n[tollbar: {self.dropped} bytes are left out here]\n".encode()
        _write_all(self._descriptor, memoryview(mark + ring[position:] + ring[:position]), self._head)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


class Capture:
    """Drains the two output pipes of one command in a thread of its own until both are closed at the other end.

    `done` is called, in that thread, as soon as what was kept is complete: then, or after `finish`.
    """

    def __init__(self, stdout: int, stderr: int, output: Path | None, max_bytes: int, done: Callable[[], None]) -> None:
        self.stdout = Tail()
        self.stderr = Tail()
        self.error: OSError | None = None
        self.truncated = False
        self._streams = {stdout: self.stdout, stderr: self.stderr}
        self._output = output
        self._max_bytes = max_bytes
        self._done = done
        self._open_pipes = dict.fromkeys(self._streams)  # in this order: what came at once counts as stdout first
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = threading.Lock()
        self._closed = False
        threading.Thread(target=self._run, name="sandbox-output", daemon=True).start()

    def finish(self) -> None:
        """Takes what was printed up to now as everything; what others print later is read and dropped."""
        with self._closing:
            if not self._closed:
                os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        try:
            self._keep()
        except OSError as error:
            self.error = error
            self._drain(None)
        self._done()
        try:
            self._drain(None, forget=True)
        finally:
            with self._closing:
                self._closed = True
                for descriptor in (*self._streams, self._bell):
                    os.close(descriptor)

    def _keep(self) -> None:
        file = None if self._output is None else BoundedFile(self._output, self._max_bytes)
        self._drain(file)
        if file is None:
            self.truncated = any(tail.total > TAIL_BYTES for tail in self._streams.values())
        else:
            self.truncated = file.dropped > 0
            file.close()

    def _drain(self, file: BoundedFile | None, *, forget: bool = False) -> None:
        """Reads until both pipes are closed, or, unless it is to `forget`, up to what there was at `finish`."""
        poller = select.poll()
        for descriptor in (*self._open_pipes, *(() if forget else (self._bell,))):
            poller.register(descriptor, select.POLLIN)
        while self._open_pipes:
            ready = [descriptor for descriptor, _ in poller.poll()]
            if self._bell in ready:
                for descriptor in list(self._open_pipes):
                    self._take(descriptor, _waiting(descriptor), file)
                return
            for descriptor in ready:
                if not self._read(descriptor, _CHUNK, None if forget else file, keep=not forget):
                    poller.unregister(descriptor)

    def _take(self, descriptor: int, count: int, file: BoundedFile | None) -> None:
        while count > 0:
            read = self._read(descriptor, min(count, _CHUNK), file, keep=True)
            if not read:
                return
            count -= read

    def _read(self, descriptor: int, count: int, file: BoundedFile | None, *, keep: bool) -> int:
        """Reads at most `count` bytes; 0 says that the pipe is closed at the other end."""
        data = os.read(descriptor, count)
        if not data:
            self._open_pipes.pop(descriptor, None)
        elif keep:
            self._streams[descriptor].feed(data)
            if file is not None:
                file.write(data)
        return len(data)


def _waiting(descriptor: int) -> int:
    """Returns how many bytes of a pipe can be read at once."""
    count = array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]
