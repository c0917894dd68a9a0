"""Tables on a terminal. The one module that imports the drawing library."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

_GAP: Final = "  "
_NARROWEST: Final = 8
_CUT: Final = "…"


def draw_table(stream: TextIO, titles: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> int:
    """Draws rows under titles and returns how many columns, the last ones, had no width.

    A column is cut to the width of the terminal, unless it is marked as never cut.
    """
    width = shutil.get_terminal_size().columns
    console = Console(file=stream, highlight=False, width=width)
    head = [title for title, _ in titles]
    natural = [max(cell_len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    least = [
        width if whole else min(width, max(cell_len(title), _NARROWEST))
        for width, (title, whole) in zip(natural, titles, strict=True)
    ]
    shown = len(head)
    while shown > 1 and _total(least[:shown]) > width:
        shown -= 1
    widths = _fitted(natural[:shown], least[:shown], width)
    for number, row in enumerate((head, *rows)):
        line = _GAP.join(_cut(text, width) for text, width in zip(row, widths, strict=False)).rstrip()
        console.print(Text(line, style="bold" if number == 0 else ""), no_wrap=True, crop=False, overflow="ignore")
    return len(head) - shown


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _fitted(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Returns widths that fit: whatever is widest above its least width gives way first."""
    widths = list(natural)
    while _total(widths) > width:
        giving = [index for index, width in enumerate(widths) if width > least[index]]
        if not giving:
            break
        widths[max(giving, key=lambda index: widths[index])] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + _CUT
