"""What the model can do in the sandbox: run shell commands, read, write and edit files. All of it by `exec`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents.adapter import AgentSession
from tollbar.sandboxes.interface import ExecResult

_WINDOW_BYTES: Final = 48_000
"""What one read returns; the last 64 KiB of a command's output are kept."""
_MAX_EDIT_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 60_000
"""What one argument of a command can carry with ease (128 KiB)."""
_SHOWN_CHARS: Final = 30_000
_FILE_S: Final = 60.0

_READ: Final = 'exec tail -c "+$2" -- "$1" | head -c "$3"'
_WRITE: Final = 'mkdir -p -- "$(dirname -- "$1")" && printf %s "$2" > "$1"'
_APPEND: Final = 'printf %s "$2" >> "$1"'


class ToolProblem(Exception):
    """What the model is told in place of a result."""


@dataclass(frozen=True)
class Tool:
    """One tool as the model sees it, and what it does."""

    name: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    run: Callable[[Actions, Mapping[str, Any]], Awaitable[str]]

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: dict(member) for name, member in self.properties.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }


@dataclass(frozen=True)
class Actions:
    """Runs tools in one sandbox."""

    session: AgentSession
    timeout_s: float
    """The longest that a shell command may take."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns what the model is told of a call: its result, or what was wrong with it."""
        tool = TOOLS.get(name)
        if tool is None:
            return f"There is no tool {name}. The tools are {', '.join(TOOLS)}."
        try:
            return shown(await tool.run(self, _checked(tool, arguments)))
        except ToolProblem as problem:
            return str(problem)

    async def shell(self, command: str, timeout_s: float) -> str:
        ended = await self.session.exec(("/bin/sh", "-c", command), timeout_s=timeout_s)
        said = _said(ended)
        if ended.timed_out:
            return f"{said}\n[ended after {timeout_s:g} s: it took too long]".lstrip()
        if ended.exit_code == 0:
            return said or "[no output]"
        how = "killed" if ended.exit_code is None else f"exit code {ended.exit_code}"
        return f"{said}\n[{how}]".lstrip()

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        """Returns bytes of a file from `offset` (0 is the first); raises `ToolProblem`."""
        ended = await self._file(_READ, path, str(offset + 1), str(limit))
        return ended.stdout_tail

    async def write(self, path: str, content: bytes) -> None:
        """Replaces a file, with its folders, by UTF-8 text; raises `ToolProblem`."""
        script, rest = _WRITE, content
        while script is _WRITE or rest:
            part, rest = _first_part(rest)
            await self._file(script, path, part)
            script = _APPEND

    async def _file(self, script: str, path: str, *arguments: str) -> ExecResult:
        ended = await self.session.exec(("/bin/sh", "-c", script, "file", path, *arguments), timeout_s=_FILE_S)
        if ended.timed_out or ended.exit_code != 0 or ended.stderr_tail:
            raise ToolProblem(ended.stderr_tail.decode(errors="replace").strip() or f"{path} cannot be used.")
        return ended


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in tool.required:
        if name not in arguments:
            raise ToolProblem(f"The argument {name} is missing.")
    for name, value in arguments.items():
        wanted = tool.properties.get(name)
        if wanted is None:
            raise ToolProblem(f"{tool.name} has no argument {name}.")
        kind = str if wanted["type"] == "string" else int if wanted["type"] == "integer" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise ToolProblem(f"The argument {name} must be of type {wanted['type']}.")
        if isinstance(value, str) and "\0" in value:
            raise ToolProblem(f"The argument {name} holds a NUL byte.")
    return arguments


def _first_part(content: bytes) -> tuple[str, bytes]:
    """Returns as much of a text as one argument may carry, cut between two characters, and the rest."""
    end = min(_CHUNK_BYTES, len(content))
    while end < len(content) and content[end] & 0xC0 == 0x80:
        end -= 1
    return content[:end].decode(), content[end:]


def _said(ended: ExecResult) -> str:
    text = (ended.stdout_tail + ended.stderr_tail).decode(errors="replace").strip("\n")
    return f"[the beginning is left out]\n{text}" if ended.truncated else text


def shown(text: str) -> str:
    """Returns a text as the model gets it: beginning and end where it is long."""
    if len(text) <= _SHOWN_CHARS:
        return text
    half = _SHOWN_CHARS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


async def _bash(actions: Actions, given: Mapping[str, Any]) -> str:
    wanted = given.get("timeout_s", actions.timeout_s)
    return await actions.shell(given["command"], min(max(1.0, float(wanted)), actions.timeout_s))


async def _read_file(actions: Actions, given: Mapping[str, Any]) -> str:
    offset = max(0, given.get("offset", 0))
    limit = min(max(1, given.get("limit", _WINDOW_BYTES)), _WINDOW_BYTES)
    found = await actions.read(given["path"], offset, limit)
    text = found.decode(errors="replace")
    if len(found) == limit:
        return f"{text}\n[there may be more: read on with offset {offset + limit}]"
    return text or ("[the file is empty]" if offset == 0 else "[nothing is left]")


async def _write_file(actions: Actions, given: Mapping[str, Any]) -> str:
    content = given["content"].encode("utf-8", "replace")
    await actions.write(given["path"], content)
    return f"Wrote {len(content)} bytes to {given['path']}."


async def _edit_file(actions: Actions, given: Mapping[str, Any]) -> str:
    old, new = (given[name].encode("utf-8", "replace") for name in ("old", "new"))
    content = b""
    while len(part := await actions.read(given["path"], len(content), _WINDOW_BYTES)) == _WINDOW_BYTES:
        content += part
        if len(content) > _MAX_EDIT_BYTES:
            raise ToolProblem("The file is too long to be edited so; use the shell.")
    content += part
    if b"\0" in content or content.decode(errors="replace").encode() != content:
        raise ToolProblem("The file is no UTF-8 text; use the shell.")
    count = content.count(old) if old else 0
    if count != 1:
        raise ToolProblem(f"The old text must stand in the file exactly once; it was found {count} times.")
    await actions.write(given["path"], content.replace(old, new))
    return f"Edited {given['path']}."


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "description": description}


_ALL: Final = (
    Tool(
        "bash",
        "Runs a command in a shell in the working directory and returns its output and exit code.",
        {
            "command": _text("The command."),
            "timeout_s": {"type": "number", "description": "When to end it, in seconds."},
        },
        ("command",),
        _bash,
    ),
    Tool(
        "read_file",
        "Returns the text of a file, or a part of it.",
        {
            "path": _text("Path of the file."),
            "offset": _count("Byte to begin with; 0 is the first."),
            "limit": _count(f"How many bytes, at most {_WINDOW_BYTES}."),
        },
        ("path",),
        _read_file,
    ),
    Tool(
        "write_file",
        "Writes a file, in place of what was there; its folders are made.",
        {"path": _text("Path of the file."), "content": _text("The whole content.")},
        ("path", "content"),
        _write_file,
    ),
    Tool(
        "edit_file",
        "Replaces a text that stands in a file exactly once by another one.",
        {"path": _text("Path of the file."), "old": _text("The text to replace."), "new": _text("What to put there.")},
        ("path", "old", "new"),
        _edit_file,
    ),
)

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in _ALL}
