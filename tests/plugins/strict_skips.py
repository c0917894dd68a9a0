"""A plugin of pytest: where `CI` is set, a test that skips has failed, so that nothing is left out unseen.

Loaded by `make test` as `-p tests.plugins.strict_skips`. A test that is expected to fail is no skip.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, Final

import pytest

_OFF: Final = {"", "0", "false", "no"}


def _strict() -> bool:
    return os.environ.get("CI", "").lower() not in _OFF


def _reason(longrepr: Any) -> str:
    """Returns the words that a skip gave."""
    return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    if _strict() and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where CI is set: {_reason(report.longrepr)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns a skipped test into a failed one."""
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns a module that skips itself into an error."""
    report = yield
    _refuse(report)
    return report
