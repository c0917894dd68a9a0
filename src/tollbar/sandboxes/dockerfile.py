"""The subset of Dockerfiles that a declared base honours, read into a plan.

Everything else is refused by name and line. `dockerfile-parse` finds instructions, continuations and line numbers;
what it lets through and Docker reads otherwise is refused here: heredocs, unknown instructions, `${NAME:-x}` forms,
open quotes, continuations that end nowhere, files without `FROM`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, NoReturn

from dockerfile_parse import DockerfileParser

from tollbar.sandboxes.dockerfile_words import WordFault, expand, split, split_words
from tollbar.sandboxes.errors import EnvironmentRefused

INERT: Final = frozenset({"LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "CMD", "ENTRYPOINT"})
"""Instructions that change nothing here: tollbar starts its own commands. Recorded and passed over."""

MAX_BYTES: Final = 1 << 20

_HEREDOC: Final = re.compile(r"(?<!<)<<-?[ \t]*['\"]?[A-Za-z_]|(?:^|\s)[0-9]*<<-?[^<\s]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_DIRECTIVE: Final = re.compile(r"#\s*(escape|syntax|check)\s*=\s*(\S.*)", re.IGNORECASE)
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
_OCTAL: Final = re.compile(r"[0-7]{3,4}")
_HINT: Final = "the docker backend does"


@dataclass(frozen=True)
class Workdir:
    """Sets and makes the working directory. Words are as they were written; variables are replaced when it is built."""

    line: int
    path: str


@dataclass(frozen=True)
class Env:
    """Sets variables; all values see those from before the line."""

    line: int
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Arg:
    """Declares build arguments, each with its default or None."""

    line: int
    pairs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Copy:
    """Copies from the build context; `chmod` is an octal number."""

    line: int
    sources: tuple[str, ...]
    dest: str
    chmod: str | None = None


@dataclass(frozen=True)
class Run:
    """Runs a command while building: the shell form is one text, the JSON form its arguments."""

    line: int
    command: str | tuple[str, ...]


Step = Workdir | Env | Arg | Copy | Run


@dataclass(frozen=True)
class Inert:
    """A line without effect: its number and instruction, or `comment` or `directive`."""

    line: int
    name: str


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile as it can be built. `globals` are the arguments declared before `FROM`."""

    declared: str
    declared_line: int
    steps: tuple[Step, ...]
    globals: tuple[Arg, ...]
    inert: tuple[Inert, ...]
    escape: str


def refuse(line: int, problem: str) -> NoReturn:
    """Raises the refusal of what stands in a line; `problem` begins with the instruction."""
    raise EnvironmentRefused("key", f"Dockerfile line {line}: {problem}.") from None


def parse(data: bytes) -> Dockerfile:
    """Returns the plan of a Dockerfile; raises `EnvironmentRefused` (`key`) for the first thing it may not hold."""
    text = _text(data)
    # An end of line is added so that a last line without one, or one that goes on, is not lost.
    source: Any = BytesIO(f"{text}\n\n".encode())
    found = DockerfileParser(fileobj=source, env_replace=False).structure
    reading = _Reading(_escape_of(text))
    for item in found:
        reading.take(item["instruction"], item["startline"] + 1, item["value"].strip(), item["content"])
    return reading.result()


def _text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise EnvironmentRefused("key", f"Dockerfile: the file is larger than {MAX_BYTES} bytes.")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError:
        raise EnvironmentRefused("key", "Dockerfile: the file is not UTF-8.") from None
    if not text.strip():
        raise EnvironmentRefused("key", "Dockerfile: the file is empty.")
    control = _CONTROL.search(text)
    if control is not None:
        refuse(text.count("\n", 0, control.start()) + 1, "the line holds a control character")
    return text


def _escape_of(text: str) -> str:
    """Returns the escape character that the directives at the top of the file set, as the parser finds it."""
    for number, line in enumerate(text.split("\n"), start=1):
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None or directive[1].lower() == "check":
            break
        if directive[1].lower() == "escape":
            if directive[2] not in {"\\", "`"}:
                refuse(number, "the escape directive names no escape character")
            return directive[2]
    return "\\"


class _Reading:
    """The plan while it is read."""

    def __init__(self, escape: str) -> None:
        self._escape = escape
        self._base: tuple[str, int] | None = None
        self._steps: list[Step] = []
        self._globals: list[Arg] = []
        self._inert: list[Inert] = []
        self._at_directives = True
        self._readers: dict[str, Callable[[int, str], Step]] = {
            "WORKDIR": self._workdir,
            "ENV": self._env,
            "ARG": self._arg,
            "COPY": self._copy,
            "RUN": self._run,
        }

    def take(self, name: str, line: int, value: str, content: str) -> None:
        if name == "COMMENT" and content.lstrip().startswith("#"):
            self._comment(line, content)
            return
        self._at_directives = False
        self._check(name, line, value, content)
        if name == "FROM":
            if self._base is not None:
                refuse(line, f"FROM stands a second time; this backend builds no stages, {_HINT}")
            self._base = (self._image(line, value), line)
        elif self._base is None and name != "ARG":
            refuse(line, f"{name} stands before FROM")
        elif name in INERT:
            self._inert.append(Inert(line, name))
        else:
            step = self._readers[name](line, value)
            if isinstance(step, Arg) and self._base is None:
                self._globals.append(step)
            else:
                self._steps.append(step)

    def result(self) -> Dockerfile:
        if self._base is None:
            raise EnvironmentRefused("key", "Dockerfile: there is no FROM.")
        base, line = self._base
        return Dockerfile(base, line, tuple(self._steps), tuple(self._globals), tuple(self._inert), self._escape)

    def _comment(self, line: int, content: str) -> None:
        self._at_directives = self._at_directives and _DIRECTIVE.fullmatch(content.strip()) is not None
        self._inert.append(Inert(line, "directive" if self._at_directives else "comment"))

    def _check(self, name: str, line: int, value: str, content: str) -> None:
        """Refuses what is not known, and what the parser reads otherwise than Docker."""
        lines = content.removesuffix("\n").split("\n")
        if len(lines) > 1 and not lines[-1].strip():
            refuse(line, f"{name} goes on over an empty line")
        for number, part in enumerate(lines):
            if part.rstrip().endswith(self._escape * 2):
                refuse(line + number, f"{name} has a line that ends with two escape characters")
        if name in {"RUN", "COPY", "ADD"} and _HEREDOC.search(value):
            refuse(line, f"{name} holds a heredoc; this backend reads none, {_HINT}")
        written = content.split(maxsplit=1)[0]
        if not written.isascii() or name not in {"FROM", *INERT, *self._readers}:
            refuse(line, f"{name} is not honoured by this backend; {_HINT}")
        if not value:
            refuse(line, f"{name} has no value")

    def _image(self, line: int, value: str) -> str:
        words = split(value)
        if words[0].startswith("--"):
            refuse(line, f"FROM {words[0].partition('=')[0]} is not honoured by this backend; {_HINT}")
        if len(words) not in {1, 3} or (len(words) == 3 and words[1].upper() != "AS"):
            refuse(line, "FROM must name one image")
        if words[0].lower() == "scratch":
            refuse(line, f"FROM scratch has no base that could be used instead; {_HINT}")
        if "$" in words[0]:
            refuse(line, f"FROM takes its image from a variable; this backend reads none there, {_HINT}")
        if _IMAGE.fullmatch(words[0]) is None:
            refuse(line, "FROM does not name an image")
        return words[0]

    def _workdir(self, line: int, value: str) -> Workdir:
        self._words(line, "WORKDIR", [value])
        return Workdir(line, value)

    def _env(self, line: int, value: str) -> Env:
        words = self._split(line, "ENV", value)
        pairs = [word.split("=", 1) for word in words]
        if len(pairs[0]) == 1:
            pairs = [re.split(r"[\t\v\f\r ]+", value, maxsplit=1)]
        if any(len(pair) != 2 or not pair[0] for pair in pairs):
            refuse(line, "ENV must be written NAME=value")
        self._words(line, "ENV", [part for pair in pairs for part in pair])
        return Env(line, tuple((name, text) for name, text in pairs))

    def _arg(self, line: int, value: str) -> Arg:
        pairs = [word.partition("=") for word in self._split(line, "ARG", value)]
        if any(not name for name, _, _ in pairs):
            refuse(line, "ARG must be written NAME or NAME=default")
        self._words(line, "ARG", [part for name, _, text in pairs for part in (name, text)])
        return Arg(line, tuple((name, text if given else None) for name, given, text in pairs))

    def _copy(self, line: int, value: str) -> Copy:
        chmod, rest = self._copy_flags(line, value)
        words = self._json(line, "COPY", rest) or split(rest)
        if len(words) < 2:
            refuse(line, "COPY names no source or no destination")
        self._words(line, "COPY", words)
        *sources, dest = words
        plain = expand(dest, lambda _: "", self._escape)
        if len(sources) > 1 and "$" not in dest and plain != "." and not plain.endswith("/"):
            refuse(line, "COPY of several sources needs a destination that ends with /")
        return Copy(line, tuple(sources), dest, chmod)

    def _copy_flags(self, line: int, value: str) -> tuple[str | None, str]:
        chmod, rest = None, value
        while rest.startswith("--"):
            flag, *after = re.split(r"[\t\v\f\r ]+", rest, maxsplit=1)
            rest = after[0] if after else ""
            name, _, text = flag.partition("=")
            if name == "--chmod" and _OCTAL.fullmatch(text):
                chmod = text
            elif name == "--chmod":
                refuse(line, "COPY --chmod must be an octal number")
            elif name != "--chown" or not set(text.split(":")) <= {"0", "root"}:
                refuse(line, f"COPY {name} is not honoured by this backend; {_HINT}")
        return chmod, rest

    def _run(self, line: int, value: str) -> Run:
        if value.startswith("--"):
            flag = split(value)[0].partition("=")[0]
            refuse(line, f"RUN {flag} is not honoured by this backend; {_HINT}")
        words = self._json(line, "RUN", value)
        return Run(line, value if words is None else tuple(words))

    def _json(self, line: int, name: str, value: str) -> list[str] | None:
        """Returns the words of the JSON form, or None when it is none."""
        if not value.startswith("["):
            return None
        try:
            words = json.loads(value)
        except ValueError:
            return None
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            refuse(line, f"{name} has a JSON form that is not a list of texts")
        if any(_CONTROL.search(word) for word in words):
            refuse(line, f"{name} holds a control character")
        return words

    def _split(self, line: int, name: str, value: str) -> list[str]:
        try:
            return split_words(value, self._escape)
        except WordFault as fault:
            refuse(line, f"{name} {fault}")

    def _words(self, line: int, name: str, words: list[str]) -> None:
        """Refuses words that could not be expanded later."""
        for word in words:
            try:
                expand(word, lambda _: "", self._escape)
            except WordFault as fault:
                refuse(line, f"{name} {fault}")
