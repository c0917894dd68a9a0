"""Prices take memory and time: nothing reads them before a call is priced."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from datetime import UTC, datetime
import tollbar.gateway.bound, tollbar.gateway.cost, tollbar.gateway.edits, tollbar.gateway.prices
book = tollbar.gateway.prices.PriceBook()
assert "genai_prices" not in sys.modules
assert book.rates("openai", "gpt-5-mini", datetime(2026, 12, 1, tzinfo=UTC))
assert "genai_prices.data" in sys.modules
"""


def test_the_price_data_is_read_when_the_first_call_is_priced() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
