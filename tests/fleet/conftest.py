"""An installation on a PostgreSQL of its own, with storage that its machines share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.processes import Fleet

_uids = itertools.count(40_000 + os.getpid() % 10_000 * 2)


@pytest.fixture
def fleet(empty_database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """A migrated installation without any process yet; sandboxes have a uid that nobody else's have."""
    environment = {
        "TOLLBAR_ARTIFACTS_URL": f"file://{tmp_path}/shared",
        "TOLLBAR_SANDBOX_UID": str(next(_uids)),
    }
    made = Fleet(empty_database_url, tmp_path, environment)
    assert made.migrate().returncode == 0
    yield made
    made.stop()
