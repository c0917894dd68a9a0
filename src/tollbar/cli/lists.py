"""What all lists have in common: a page, the page after a cursor, or everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from cyclopts import Parameter

from tollbar.cli.output import Column, Output
from tollbar.cli.problems import Usage
from tollbar.client.schemas import Page

T = TypeVar("T")
_LARGEST_PAGE: Final = 100


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Which part of a list is wanted."""

    limit: Annotated[int | None, Parameter(help="How many to list, 1 to 100.")] = None
    cursor: Annotated[str | None, Parameter(help="Go on after this cursor.")] = None
    all: Annotated[bool, Parameter(negative="", show_default=False, help="List everything, following cursors.")] = False

    def read(self, fetch: Callable[[int | None, str | None], Page[T]]) -> Page[T]:
        """Returns the wanted part; `fetch(limit, cursor)` returns one page."""
        if not self.all:
            return fetch(self.limit, self.cursor)
        if self.limit is not None or self.cursor is not None:
            raise Usage("--all lists everything, so --limit and --cursor do not go with it")
        from tollbar.client import every

        return {"items": list(every(lambda cursor: fetch(_LARGEST_PAGE, cursor))), "next_cursor": None}


FIRST_PAGE: Final = Paging()
Pages = Annotated[Paging, Parameter(name="*")]


def show_list(
    out: Output, pages: Paging, fetch: Callable[[int | None, str | None], Page[T]], columns: Sequence[Column[T]]
) -> None:
    """Writes the wanted part of a list."""
    out.listing(pages.read(fetch), columns)
