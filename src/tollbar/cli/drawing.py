"""Tables on a terminal. The one module that imports the drawing library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def draw_table(stream: TextIO, titles: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Draws rows under titles; a column is cut to the width, unless it is marked as never cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, (title, whole) in enumerate(titles):
        widest = max([len(title), *(len(row[index]) for row in rows)])
        table.add_column(Text(title), no_wrap=True, overflow="ellipsis", min_width=widest if whole else None)
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    console = Console(file=stream, highlight=False)
    needed = console.measure(table).minimum
    console.print(table, width=max(console.width, needed), crop=False, soft_wrap=False)
