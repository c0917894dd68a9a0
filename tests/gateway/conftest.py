"""Prices are read once for all tests of the gateway."""

from __future__ import annotations

import pytest

from tollbar.gateway.prices import PriceBook


@pytest.fixture(scope="session")
def book() -> PriceBook:
    return PriceBook()
