"""The system calls that no tenant has: those by which process 1 of its own sandbox could be traced or written to.

Everything else stays as it is: a tenant may trace its own processes. In memory process 1 is shut off by a mount.
"""

from __future__ import annotations

import platform
import struct
from typing import Final

_INSTRUCTION: Final = struct.Struct("<HBBI")
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050001
"""The call fails with EPERM."""

_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Where the kernel puts the number, the architecture and the low halves of the first two arguments."""

_TRACE_ME: Final = 0
_X32: Final = 0x40000000
_CALLS: Final = {
    "x86_64": ((0xC000003E, (101, _X32 | 521), (310, 311, _X32 | 539, _X32 | 540)), (0x40000003, (26,), (347, 348))),
    "aarch64": ((0xC00000B7, (117,), (270, 271)), (0x40000028, (26,), (376, 377))),
}
"""For each machine: architecture, the numbers of ptrace, and of process_vm_readv and process_vm_writev."""

Instruction = tuple[int, int, int, int]


def process_1_filter(machine: str | None = None) -> bytes:
    """Returns the filter as the kernel takes it, for this machine; empty for one that is not known."""
    program: list[Instruction] = []
    for architecture, ptrace, memory in _CALLS.get(machine or platform.machine(), ()):
        checks = [part for number in ptrace for part in _refuse(number, _SECOND)]
        checks += [part for number in memory for part in _refuse(number, _FIRST)]
        program += [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 0, len(checks) + 1, architecture), *checks]
        program.append((_RETURN, 0, 0, _ALLOW))
    if program:
        program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(_INSTRUCTION.pack(*part) for part in program)


def _refuse(number: int, pid_at: int) -> list[Instruction]:
    """Refuses a call whose pid is 1, except a process's own wish to be traced, which names none."""
    wish = [(_LOAD, 0, 0, _FIRST), (_JUMP_EQUAL, 3, 0, _TRACE_ME)] if pid_at == _SECOND else []
    rest = [*wish, (_LOAD, 0, 0, pid_at), (_JUMP_EQUAL, 0, 1, 1), (_RETURN, 0, 0, _REFUSE)]
    return [(_LOAD, 0, 0, _NUMBER), (_JUMP_EQUAL, 0, len(rest), number), *rest]
