"""Runs one command: reads the line, runs the function, and turns whatever happens into an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

from cyclopts import App, CycloptsError

from tollbar.cli.exits import Exit
from tollbar.cli.output import write_json
from tollbar.cli.problems import CliError, Report, Usage, report
from tollbar.cli.session import Options, Session
from tollbar.cli.tree import NOTHING_FURTHER, Further, build
from tollbar.client.errors import ClientError

_FLAGS: Final = frozenset({"--json", "--quiet", "--yes"})
_HELP_FLAGS: Final = frozenset({"--help", "-h"})
_WITH_VALUE: Final = frozenset({"--output", "--context", "--url"})


def run(argv: Sequence[str], further: Further = NOTHING_FURTHER) -> int:
    """Runs the command of a line and returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that cannot be written is no reason to fail
    try:
        code = _run(list(argv), further)
        sys.stdout.flush()
    except BrokenPipeError:
        return _end_by_pipe()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    return code


def arrange(tokens: Sequence[str]) -> list[str]:
    """Returns the line with global options behind the command, and `help X Y` as `X Y --help`."""
    leading, rest = _leading(tokens)
    if rest[:1] == ["help"] and rest[1:] != ["exit-codes"] and not any(word.startswith("-") for word in rest):
        rest = [*rest[1:], "--help"]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *leading, *rest[end:]] if rest else leading


def _leading(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    taken = 0
    while taken < len(tokens):
        name, equals, _ = tokens[taken].partition("=")
        if name in _FLAGS and not equals:
            taken += 1
        elif name in _WITH_VALUE:
            taken += 1 if equals else 2
        else:
            break
    return list(tokens[:taken]), list(tokens[taken:])


def _run(argv: list[str], further: Further) -> int:
    app = build(further)
    tokens = arrange(argv)
    words = [token for token in tokens if token not in _HELP_FLAGS]
    if not words or (len(words) == 1 and words[0] in {noun.name for noun in further.all_nouns}):
        return _print_help(app, words, asked=len(words) < max(1, len(tokens)))
    session: Session | None = None
    try:
        try:
            command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise Usage(str(error).rstrip("."), fix=_help_line(tokens, further)) from None
        options = bound.arguments.get("options")
        session = Session(options) if isinstance(options, Options) else None
        return _int(command(*bound.args, **bound.kwargs))
    except (CliError, ClientError) as error:
        return _tell(report(error, argv), as_json=_wants_json(session, tokens))
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get("TOLLBAR_DEBUG") == "1":
            raise
        return _tell(_fault(error), as_json=_wants_json(session, tokens))


def _int(result: Any) -> int:
    return int(result) if isinstance(result, int) else Exit.DONE


def _print_help(app: App, words: list[str], *, asked: bool) -> int:
    """Prints the help of a noun or of everything; a noun without a verb and without asking is a mistake."""
    from rich.console import Console  # the help formatter draws with it

    part = app
    for word in words:
        part = app[word]
        for verb in [name for name in part if not name.startswith("-")]:
            _ = part[verb]  # loads the function, whose docstring the help shows
    is_mistake = bool(words) and not asked
    app.help_print(words, console=Console(file=sys.stderr if is_mistake else sys.stdout, highlight=False))
    return Exit.USAGE if is_mistake else Exit.DONE


def _help_line(tokens: Sequence[str], further: Further) -> str:
    known = {noun.name: tuple(noun.verbs) for noun in further.all_nouns}
    known |= {command.name: () for command in further.all_commands}
    words = [word for word in tokens[:1] if word in known]
    words += [word for word in tokens[1:2] if words and word in known[words[0]]]
    return " ".join(["see: tollbar", *words, "--help"])


def _wants_json(session: Session | None, tokens: Sequence[str]) -> bool:
    if session is not None:
        try:
            return session.out.is_json
        except (CliError, ClientError):
            pass
    said = "--json" in tokens or "--output json" in " ".join(tokens) or "--output=json" in tokens
    return said or os.environ.get("TOLLBAR_OUTPUT") == "json"


def _tell(told: Report, *, as_json: bool) -> int:
    """With JSON the error object is the data of a command that has written none."""
    if as_json and not told.follows_data:
        write_json(sys.stdout, told.body)
        sys.stdout.flush()
    print("\n".join(told.lines()), file=sys.stderr)
    return told.exit


def _fault(error: Exception) -> Report:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    body = {"code": "INTERNAL_ERROR", "message": f"tollbar's command line failed: {what}"}
    fix = "see where: repeat the command with TOLLBAR_DEBUG=1"
    return Report(Exit.FAILED, body, body["message"], (), fix)


def _end_by_pipe() -> int:
    """Ends as a command does whose reader went away: quietly, by the signal."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    return 128 + signal.SIGPIPE
