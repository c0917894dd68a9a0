"""What goes wrong in the command line itself, and the three lines in which everything that goes wrong is told."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tollbar.cli.exits import Exit, of_status
from tollbar.client.errors import ApiError, ClientError, FolderRefused, UnusableSetting
from tollbar.kit.text import printable

_MAX_LISTED: Final = 20
_FIXES: Final = {
    "JOB_NOT_FOUND": "list the Jobs: tollbar jobs list",
    "TRIAL_NOT_FOUND": "list the Trials of a Job: tollbar jobs result JOB",
    "ARTIFACT_NOT_FOUND": "list them: tollbar artifacts list TRIAL",
    "DATASET_NOT_FOUND": "list the datasets: tollbar datasets list",
    "DATASET_REVISION_NOT_FOUND": "list the versions: tollbar datasets show NAME",
    "RUNNER_NOT_FOUND": "list the runners: tollbar runners list",
    "PROFILE_NOT_FOUND": "list the profiles: tollbar profiles list",
    "UNAUTHENTICATED": "give a valid key: export TOLLBAR_API_KEY=...",
    "RATE_LIMITED": "wait, then repeat the command",
}


class CliError(Exception):
    """A refusal of the command line: what happened, why (one line each), and a line that can be pasted."""

    code = "FAILED"
    exit = Exit.FAILED
    follows_data = False
    """Whether the command has written its data already, so that nothing may follow them on stdout."""

    def __init__(self, message: str, *, why: Sequence[str] = (), fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.why = tuple(why)
        self.fix = fix


class Usage(CliError):
    """The command cannot be run as it is written."""

    code = "USAGE"
    exit = Exit.USAGE


class BadConfiguration(CliError):
    """A variable or a configuration file holds what it must not."""

    code = "BAD_CONFIGURATION"
    exit = Exit.USAGE


class NoKey(CliError):
    """There is no key, or none that may be used."""

    code = "NO_KEY"
    exit = Exit.SIGN_IN


class NotFoundHere(CliError):
    """The server's answer does not hold what was asked for."""

    code = "NOT_FOUND"
    exit = Exit.NOT_FOUND


class Below(CliError):
    """The score is below the bar that was set."""

    code = "BELOW_FAIL_UNDER"
    exit = Exit.BELOW
    follows_data = True


class NothingToJudge(CliError):
    """Too few Trials have a reward for the score to be judged."""

    code = "COVERAGE_TOO_LOW"
    follows_data = True


class JobEnded(CliError):
    """The Job ended otherwise than by completing; `code` is that of its error."""

    follows_data = True

    def __init__(self, message: str, code: str, exit_: Exit, *, why: Sequence[str], fix: str) -> None:
        super().__init__(message, why=why, fix=fix)
        self.code = code
        self.exit = exit_


class Incomplete(CliError):
    """A part of what was asked for is missing; the rest was done."""

    code = "INCOMPLETE"


class Unfollowed(CliError):
    """Watching ended before the Job did: the network was lost, and the Job goes on."""

    code = "SERVER_UNREACHABLE"


class Detached(CliError):
    """A person left a Job that goes on."""

    code = "INTERRUPTED"
    exit = Exit.INTERRUPTED
    follows_data = True


class Unanswered(CliError):
    """A submission was sent and no answer came; `again` makes the same command safe to repeat."""

    code = "SERVER_UNREACHABLE"

    def __init__(self, message: str, again: Sequence[str]) -> None:
        super().__init__(message, why=["the Job may have been submitted; repeating it cannot submit it twice"])
        self.again = tuple(again)


@dataclass(frozen=True)
class Report:
    """A failure as it is shown: lines for people, an error object for programs, an exit code for both."""

    exit: Exit
    body: dict[str, Any]
    message: str
    why: tuple[str, ...]
    fix: str | None
    follows_data: bool = False

    def lines(self) -> list[str]:
        """Returns the lines for stderr, without anything that moves a terminal's cursor."""
        head = [f"error: {self.message.rstrip('.')} ({self.body['code']})"]
        tail = [] if self.fix is None else [self.fix]
        return [printable(line) for line in head + [f"  {line}" for line in [*self.why, *tail]]]


def report(error: CliError | ClientError, argv: Sequence[str]) -> Report:
    """Returns how a failure is told; `argv` is the command that failed."""
    if isinstance(error, ApiError):
        return Report(of_status(error.status), error.error_object(), error.message, _facts(error), _fix(error))
    if isinstance(error, ClientError):
        why = error.problems if isinstance(error, FolderRefused) else ()
        code = Exit.USAGE if isinstance(error, FolderRefused | UnusableSetting) else Exit.FAILED
        return Report(code, error.error_object(), error.message, _some(why), error.hint)
    fix = error.fix
    if isinstance(error, Unanswered):
        fix = shlex.join(["tollbar", *argv, *error.again])
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    hint = "\n".join([*error.why, *([fix] if fix else [])])
    whole = {**body, "hint": hint} if hint else body
    return Report(error.exit, whole, error.message, error.why, fix, error.follows_data)


def _facts(error: ApiError) -> tuple[str, ...]:
    """Returns why the server refused, from the members of its error object."""
    body = error.body
    lines = [f"{item.get('path')}: {item.get('problem')}" for item in _objects(body.get("fields"))]
    lines += [_problem(item) for item in _objects(body.get("problems"))]
    lines += [f"{item.get('task')}: {item.get('message')}" for item in _objects(body.get("refused"))]
    if capability := body.get("missing_capability"):
        lines.append(f"the key lacks the capability {capability}")
    if differs := body.get("differs"):
        lines.append(f"{body.get('job_id')} was submitted with other {', '.join(map(str, differs))}")
    if resets_at := body.get("resets_at"):
        lines.append(f"it resets at {resets_at}")
    if error.retry_after_s is not None:
        lines.append(f"the server asks to wait {error.retry_after_s:g} s")
    if error_id := body.get("error_id"):
        lines.append(f"error_id {error_id} (the same in the server's log)")
    return _some(lines)


def _problem(item: dict[str, Any]) -> str:
    place = str(item.get("file", ""))
    if item.get("line") is not None:
        place += f", line {item['line']}"
    key = f"{item['key']}: " if item.get("key") else ""
    return f"{place}: {key}{item.get('message')}"


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _some(lines: Sequence[str]) -> tuple[str, ...]:
    left = len(lines) - _MAX_LISTED
    return (*lines[:_MAX_LISTED], f"and {left} more (all of them with --json)") if left > 0 else tuple(lines)


def _fix(error: ApiError) -> str | None:
    if error.code == "JOB_REQUEST_CONFLICT" and "job_id" in error.body:
        return f"see the first one: tollbar jobs show {error.body['job_id']}"
    if error.status >= 500:
        return error.hint or "the server's log has the details; repeat the command, or run: tollbar doctor"
    return error.hint or _FIXES.get(error.code)
