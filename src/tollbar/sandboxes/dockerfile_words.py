"""Words of Dockerfile instructions: split, quotes and escapes removed, `$NAME` and `${NAME}` replaced, as Docker does.

The splitter that comes with `dockerfile-parse` is not used: it loses a `$` that names nothing, does not know that
`\\$` within double quotes is a plain `$`, and accepts open quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Lookup = Callable[[str], str]
"""Returns the value of a variable."""

_SPACE: Final = re.compile(r"[\t\v\f\r ]+")
_NAME: Final = re.compile(r"[0-9]+|\w+")
_SPECIAL: Final = frozenset("@*#?-$!")
_BRACED: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class WordFault(ValueError):
    """A word cannot be read; the text says why."""


def split(text: str) -> list[str]:
    """Returns the parts between white space, whatever quotes they hold, as `COPY` and `FROM` are read."""
    return [part for part in _SPACE.split(text) if part]


def split_words(text: str, escape: str) -> list[str]:
    """Returns the words with their quotes and escapes, as `ENV` and `ARG` are read. Raises `WordFault`."""
    words: list[str] = []
    word: list[str] = []
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        step = 2 if char == escape and quote != "'" else 1
        if not quote and char.isspace():
            if word:
                words.append("".join(word))
            word = []
        else:
            word.append(text[position : position + step])
            if step == 1 and char in "'\"" and quote in {"", char}:
                quote = "" if quote else char
        position += step
    if quote:
        raise WordFault("holds an open quote")
    return [*words, "".join(word)] if word else words


def expand(text: str, lookup: Lookup, escape: str) -> str:
    """Returns a word as the instruction means it. Raises `WordFault` for an open quote or a form of `${` but `${NAME}`.

    Within single quotes everything is literal; within double quotes only `"`, `$` and the escape itself are escaped.
    """
    out: list[str] = []
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if quote == "'":
            if char == quote:
                quote = ""
            else:
                out.append(char)
        elif char == escape:
            following = text[position : position + 1]
            position += 1
            out.append(following if not quote or following in {'"', "$", escape} else char + following)
        elif char == "$":
            value, position = _variable(text, position, lookup)
            out.append(value)
        elif char == '"' or (char == "'" and not quote):
            quote = "" if quote else char
        else:
            out.append(char)
    if quote:
        raise WordFault("holds an open quote")
    return "".join(out)


def _variable(text: str, position: int, lookup: Lookup) -> tuple[str, int]:
    """Returns the value of the variable that is named at `position`, after its `$`, and where the text goes on."""
    if text[position : position + 1] == "{":
        braced = _BRACED.match(text, position)
        if braced is None:
            raise WordFault("holds a ${...} form other than ${NAME}")
        return lookup(braced[1]), braced.end()
    if text[position : position + 1] in _SPECIAL:
        return "", position + 1
    name = _NAME.match(text, position)
    if name is None:
        return "$", position
    return lookup(name[0]), name.end()
