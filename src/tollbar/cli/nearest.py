"""A name that the server does not know is answered with the nearest one that it does."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tollbar.client.errors import ApiError, ClientError

if TYPE_CHECKING:
    from tollbar.client import Client

_PAGE: Final = 100


@contextmanager
def with_nearest_dataset(client: Client, name: str) -> Generator[None]:
    """Adds the nearest dataset to a `DATASET_NOT_FOUND` that is raised inside."""
    with _with_nearest(
        "DATASET_NOT_FOUND", name, lambda: [item["name"] for item in client.datasets(limit=_PAGE)["items"]]
    ):
        yield


@contextmanager
def with_nearest_profile(client: Client, name: str) -> Generator[None]:
    """Adds the nearest profile to a `PROFILE_NOT_FOUND` that is raised inside."""
    with _with_nearest(
        "PROFILE_NOT_FOUND", name, lambda: [item["name"] for item in client.profiles(limit=_PAGE)["items"]]
    ):
        yield


@contextmanager
def _with_nearest(code: str, name: str, known: Callable[[], Iterable[str]]) -> Generator[None]:
    try:
        yield
    except ApiError as error:
        if error.code == code and (near := _nearest(name, known)) is not None:
            error.hint = f"did you mean {near}?"
        raise


def _nearest(name: str, known: Callable[[], Iterable[str]]) -> str | None:
    """Returns the nearest name, None when there is none or the server does not tell: the first error matters more."""
    try:
        found = difflib.get_close_matches(name, list(known()), n=1)
    except ClientError:
        return None
    return found[0] if found else None
