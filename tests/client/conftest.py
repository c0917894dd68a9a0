"""A client and the stand-in that it talks to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.standin import KEY, StandIn, running

from tollbar.client import Client


@pytest.fixture
def server() -> Iterator[StandIn]:
    with running() as standin:
        yield standin


@pytest.fixture
def pauses() -> list[float]:
    """The pauses that the client took, in seconds; none of them really passes."""
    return []


@pytest.fixture
def client(server: StandIn, pauses: list[float]) -> Iterator[Client]:
    with Client(server.url, KEY, "ws_1", "prj_1", pause=pauses.append) as one:
        yield one
