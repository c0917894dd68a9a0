"""`tollbar limits` and `tollbar billing`, and the warning that most of a cap is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli import examples
from tests.cli.conftest import Ended
from tests.cli.standin import StandIn
from tests.cli.test_submit import ACCOUNT

WARNING = {"percent": 80, "at": "2026-11-30T11:00:00.000Z"}
ME: dict[str, Any] = {
    "auth_method": "api_key", "key": {}, "workspace": {"workspace_id": "ws_1", "name": "Main"},
    "project": {"project_id": "prj_1", "workspace_id": "ws_1", "name": "Default"}, "capabilities": [],
}  # fmt: skip
LIMITS: dict[str, Any] = {
    "items": [
        {"name": "requests_per_minute", "limit": 200, "used": 3, "unit": "requests", "resets_at": None},
        {"name": "daily_spend", "limit": "2", "used": "1.7", "unit": "USD", "resets_at": None, "warning": WARNING},
        {"name": "default_job_cap", "limit": None, "used": None, "unit": "USD", "resets_at": None},
    ]
}


def test_limits_show_what_is_used_of_them(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on("GET /v1/me", ME)
    signed_in.on("GET /v1/workspaces/ws_1/projects/prj_1/limits", LIMITS)
    lines = tollbar("limits", "show").out.splitlines()
    assert lines[0].startswith("requests a minute\t3\t200\t")
    assert lines[1].startswith("spend a day (UTC)\t1.70 USD\t2.00 USD\t")
    assert lines[1].endswith("80 % of the cap is spent")
    assert lines[2].startswith("cap of a Job that names none\t-\tno limit\t")
    assert tollbar("limits", "show", "--json").json == {**LIMITS, "next_cursor": None}


def test_billing_shows_the_account_with_its_warning(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on("GET /v1/billing/account", ACCOUNT)
    out = tollbar("billing", "show").out
    assert "spent today\t1.70 USD" in out
    assert "left today\t0.20 USD" in out
    assert "warning\t80 % of the cap is spent" in out
    assert tollbar("billing", "show", "--json").json == ACCOUNT


def test_billing_lists_usage_charges_and_prices(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    blank = {"day": None, "product": None, "endpoint_id": None, "sku": None}
    signed_in.on(
        "GET /v1/billing/usage", {"items": [{**blank, "sku": "a/b", "amount_usd": "0.5"}], "next_cursor": None}
    )
    assert (
        tollbar("billing", "usage", "--group-by", "sku", "--start", "2026-11-01T00:00:00+01:00").out
        == "a/b\t0.50 USD\n"
    )
    (asked,) = signed_in.to("GET /v1/billing/usage")
    assert asked.query == {"group_by": "sku", "start": "2026-11-01T00:00:00+01:00"}
    entry = {
        "entry_id": "lease_1", "kind": "charge", "product": "sandbox", "sku": "a/b", "purpose": "agent",
        "amount_usd": "0.0042", "reference": "trial_1", "occurred_at": "2026-11-30T11:00:00.000Z",
    }  # fmt: skip
    signed_in.on("GET /v1/billing/ledger", {"items": [entry], "next_cursor": None})
    assert tollbar("billing", "ledger").out.startswith("lease_1\t0.0042 USD\tcharge\tsandbox a/b\ttrial_1\t")
    price = {"product": "sandbox", "sku": "a/b", "unit": "vcpu_second", "amount_usd": "0.01", "snapshot": "f" * 64}
    signed_in.on("GET /v1/billing/prices", {"items": [price], "next_cursor": None})
    assert tollbar("billing", "prices").out == f"sandbox a/b\tvcpu_second\t0.01 USD\t{'f' * 12}\n"


def test_a_job_that_spent_most_of_its_cap_says_so_where_it_shows_and_once_while_it_is_watched(
    tollbar: Callable[..., Ended], signed_in: StandIn
) -> None:
    first, ended = examples.job(), examples.completed()
    warned = {**first, "budget": {**first["budget"], "warning": WARNING}}
    last = {**ended, "budget": {**ended["budget"], "warning": WARNING, "max_cost_per_trial_usd": "0.2"}}
    signed_in.on(f"GET /v1/job/{first['job_id']}", warned, {**warned, "n_scored": 1}, last)
    watched = tollbar("jobs", "watch", first["job_id"])
    assert watched.err.count("80 % of the cap is spent") == 1
    shown = tollbar("jobs", "show", first["job_id"]).out
    assert "warning\t80 % of the cap is spent" in shown
    assert "cap of a Trial\t0.20 USD" in shown


def test_prices_of_a_model_are_a_row_for_each_tier(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    plain: dict[str, Any] = {
        "when": None, "above_input_tokens": 0, "input_usd": "3", "cache_read_usd": "0.3", "cache_write_usd": None,
        "cache_write_1h_usd": None, "output_usd": "15",
    }  # fmt: skip
    fast = {**plain, "when": {"speed": "fast"}, "above_input_tokens": 200_000, "output_usd": "75"}
    document: dict[str, Any] = {
        "model": "anthropic:claude-x", "priced_as": "anthropic:claude-x", "snapshot": "genai-prices/0.2.3/0a1b2c3d4e5f",
        "free": False, "note": None, "context_window": 200_000, "output_tokens_max": None, "image_tokens_max": 8192,
        "unit": "million tokens", "prices": [plain, fast],
    }  # fmt: skip
    signed_in.on("GET /v1/billing/model-prices", document)
    lines = tollbar("prices", "show", "anthropic:claude-x").out.splitlines()
    assert "standard\tinput 3, cache read 0.3, output 15" in lines
    assert "speed fast, above 200000 input tokens\tinput 3, cache read 0.3, output 75" in lines
    assert "most output tokens\t-" in lines
    assert signed_in.to("GET /v1/billing/model-prices")[0].query == {"model": "anthropic:claude-x"}
    assert tollbar("prices", "show", "anthropic:claude-x", "--json").json == document
