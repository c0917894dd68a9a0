"""What the ledger refuses."""

from __future__ import annotations

from collections.abc import Sequence

from tollbar.kit.errors import TollbarError
from tollbar.kit.money import format_usd


class InsufficientBalance(TollbarError):
    """The project has spent what it may spend today; work under a limit starts again when the UTC day ends."""

    code = "INSUFFICIENT_BALANCE"
    status = 402

    def __init__(self, cap_pusd: int, spent_pusd: int, resets_at: str) -> None:
        super().__init__(
            f"The project has spent {format_usd(spent_pusd)} USD of the {format_usd(cap_pusd)} USD that it may spend"
            " today.",
            hint="Wait for the next UTC day, or let a person raise the project's daily limit.",
            daily_cap_usd=format_usd(cap_pusd),
            spent_today_usd=format_usd(spent_pusd),
            resets_at=resets_at,
        )


class InvalidBillingWindow(TollbarError):
    """`start` and `end` of a billing question are no times with an offset, or not in order, or too far apart."""

    code = "INVALID_BILLING_WINDOW"
    status = 422

    def __init__(self, problem: str) -> None:
        super().__init__(f"The billing window {problem}.", hint="Give start and end as 2026-11-30T00:00:00Z.")


class InvalidGroupBy(TollbarError):
    """`group_by` names nothing that usage can be grouped by."""

    code = "INVALID_GROUP_BY"
    status = 422

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"group_by must be one of {', '.join(names)}.")


class UnknownBudget(Exception):
    """A chain names budgets that were never opened: a fault of the caller, so no interface shows it."""

    def __init__(self, budget_ids: Sequence[str]) -> None:
        super().__init__(f"no such budget: {', '.join(budget_ids)}")
