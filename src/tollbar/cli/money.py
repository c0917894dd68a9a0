"""`tollbar limits show` and `tollbar billing`: what may be spent, what was spent, and on what."""

from __future__ import annotations

from typing import Annotated, Any, Final

from cyclopts import Parameter

from tollbar.cli.jobviews import warning
from tollbar.cli.lists import FIRST_PAGE, Pages, show_list
from tollbar.cli.output import Column, Kind, Moment, Rows
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import UNKNOWN, money

_NAMES: Final = {
    "requests_per_minute": "requests a minute",
    "concurrent_trials": "Trials at once",
    "daily_spend": "spend a day (UTC)",
    "default_job_cap": "cap of a Job that names none",
}
_LIMITS: Final = (
    Column[dict[str, Any]]("LIMIT", lambda item: _NAMES.get(item["name"], item["name"])),
    Column[dict[str, Any]]("USED", lambda item: _amount(item, "used"), Kind.WHOLE),
    Column[dict[str, Any]]("OF", lambda item: _amount(item, "limit") if item["limit"] is not None else "no limit"),
    Column[dict[str, Any]]("RESETS", lambda item: item.get("resets_at"), Kind.TIME),
    Column[dict[str, Any]]("NOTE", warning),
)
_LEDGER: Final = (
    Column[dict[str, Any]]("ENTRY", lambda item: item["entry_id"], Kind.WHOLE),
    Column[dict[str, Any]]("AMOUNT", lambda item: money(item["amount_usd"]), Kind.WHOLE),
    Column[dict[str, Any]]("KIND", lambda item: item["kind"]),
    Column[dict[str, Any]]("WHAT", lambda item: f"{item['product']} {item['sku']}"),
    Column[dict[str, Any]]("FOR", lambda item: item["reference"], Kind.WHOLE),
    Column[dict[str, Any]]("AT", lambda item: item["occurred_at"], Kind.TIME),
)
_PRICES: Final = (
    Column[dict[str, Any]]("WHAT", lambda item: f"{item['product']} {item['sku']}"),
    Column[dict[str, Any]]("UNIT", lambda item: item["unit"]),
    Column[dict[str, Any]]("PRICE", lambda item: f"{item['amount_usd']} USD", Kind.WHOLE),
    Column[dict[str, Any]]("REVISION", lambda item: item["snapshot"][:12]),
)


def _amount(item: dict[str, Any], name: str) -> str:
    value = item[name]
    return UNKNOWN if value is None else money(value) if item["unit"] == "USD" else str(value)


def show_limits(*, options: Global = NO_OPTIONS) -> None:
    """Show what bounds the project, and how much of it is used.

    Example: tollbar limits show --json
    """
    session = Session(options)
    with session.client() as client:
        session.out.listing(client.limits(), _LIMITS)


def show_account(*, options: Global = NO_OPTIONS) -> None:
    """Show what the project has spent today and this month (UTC), and what is left.

    Example: tollbar billing show
    """
    session = Session(options)
    with session.client() as client:
        found = client.billing_account()
    session.out.record(found, _account_rows(found))


def _account_rows(found: dict[str, Any]) -> Rows:
    rows: list[tuple[str, object]] = [
        ("spent today", money(found["spent_today_usd"])),
        ("reserved", money(found["reserved_usd"])),
        ("daily cap", money(found["daily_cap_usd"])),
        ("left today", money(found["remaining_today_usd"])),
        ("day ends", Moment(found["resets_at"])),
        ("spent this month", money(found["spent_this_month_usd"])),
        ("default cap of a Job", money(found["default_job_cap_usd"])),
    ]
    note = warning(found)
    return rows if note is None else [*rows, ("warning", note)]


def show_usage(
    *,
    start: Annotated[str | None, Parameter(help="From this time on, such as 2026-11-01T00:00:00Z.")] = None,
    end: Annotated[str | None, Parameter(help="Before this time; default: now.")] = None,
    group_by: Annotated[str | None, Parameter(help="day (default), product, endpoint or sku.")] = None,
    options: Global = NO_OPTIONS,
) -> None:
    """Show what was spent in a window of at most 366 days, in sums; by default the last 30 days, day by day.

    Example: tollbar billing usage --group-by sku
    """
    session = Session(options)
    member = "endpoint_id" if group_by == "endpoint" else group_by or "day"
    columns = (
        Column[dict[str, Any]](member.upper(), lambda item: item[member], Kind.WHOLE),
        Column[dict[str, Any]]("AMOUNT", lambda item: money(item["amount_usd"]), Kind.WHOLE),
    )
    with session.client() as client:
        session.out.listing(client.billing_usage(start=start, end=end, group_by=group_by), columns)


def list_ledger(*, pages: Pages = FIRST_PAGE, options: Global = NO_OPTIONS) -> None:
    """List every charge, newest first.

    Example: tollbar billing ledger --all --json
    """
    session = Session(options)
    with session.client() as client:
        show_list(session.out, pages, lambda limit, cursor: client.billing_ledger(limit=limit, cursor=cursor), _LEDGER)


def list_prices(*, pages: Pages = FIRST_PAGE, options: Global = NO_OPTIONS) -> None:
    """List what things cost; a page has as many runners as its limit says.

    Example: tollbar billing prices
    """
    session = Session(options)
    with session.client() as client:
        show_list(session.out, pages, lambda limit, cursor: client.billing_prices(limit=limit, cursor=cursor), _PRICES)
