"""Waiting for something on the server: asks again and again, and outlives a restart of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from tollbar.client.errors import ApiError, ClientError, ServerUnreachable
from tollbar.client.schemas import Job, LogPage

T = TypeVar("T")

_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_MIN_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 30.0
_DEFAULT_PAUSE_S: Final = 2.0
_LOG_PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Patience:
    """How often a failed question is asked again in a row: 15 tries are about 100 s."""

    tries: int = 15
    first_pause_s: float = 0.5
    longest_pause_s: float = 10.0

    def pause_s(self, failures: int, error: ClientError) -> float:
        """Returns the pause after the `failures`-th failure in a row; a server that names one is followed (<= 30 s)."""
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            return min(max(error.retry_after_s, _MIN_PAUSE_S), _MAX_PAUSE_S)
        return min(self.first_pause_s * 2.0 ** (failures - 1), self.longest_pause_s)


def follow(
    ask: Callable[[], Job],
    *,
    pause: Callable[[float], None],
    patience: Patience,
    on_trouble: Callable[[ClientError, float], None],
) -> Iterator[Job]:
    """Yields the Job as it is now and at each later question until it is final; see `ask_again`."""
    for job in ask_again(ask, pause=pause, patience=patience, on_trouble=on_trouble):
        yield job
        if job["final"]:
            return
        pause(min(max(job["poll_after_s"] or _DEFAULT_PAUSE_S, _MIN_PAUSE_S), _MAX_PAUSE_S))


def follow_log(
    read: Callable[[str | None], LogPage],
    *,
    cursor: str | None,
    pause: Callable[[float], None],
    patience: Patience,
    on_trouble: Callable[[ClientError, float], None],
) -> Iterator[LogPage]:
    """Yields the parts of a log from a cursor (None: its beginning) to its end; `read` returns the part after one."""
    at = [cursor]
    for page in ask_again(lambda: read(at[0]), pause=pause, patience=patience, on_trouble=on_trouble):
        at[0] = page["next_cursor"]
        yield page
        if page["eof"] and not page["has_more"]:
            return
        if not page["has_more"]:
            pause(_LOG_PAUSE_S)


def ask_again(
    ask: Callable[[], T],
    *,
    pause: Callable[[float], None],
    patience: Patience,
    on_trouble: Callable[[ClientError, float], None],
) -> Iterator[T]:
    """Yields answer after answer, for as long as the caller goes on.

    A failure that may pass is asked again after a pause and told to `on_trouble` (with the pause in seconds); after
    `patience.tries` in a row it is raised. Asking is safe to repeat, which is why only this is ever repeated.
    """
    failures = 0
    while True:
        try:
            found = ask()
        except (ApiError, ServerUnreachable) as error:
            failures += 1
            if failures > patience.tries or (isinstance(error, ApiError) and error.status not in _PASSING):
                raise
            wait_s = patience.pause_s(failures, error)
            on_trouble(error, wait_s)
            pause(wait_s)
            continue
        failures = 0
        yield found
