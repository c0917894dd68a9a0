"""What model calls used: tokens in disjoint counts, as people read them, and call by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import store
from tollbar.kit.money import format_usd


@dataclass(frozen=True)
class Used:
    """One model call that the provider answered or was asked for: tokens (input with the cache in it) and money."""

    id: str
    outcome: str | None
    http_status: int | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_pusd: int

    @property
    def answered(self) -> bool:
        """Says whether the agent got an answer of the model."""
        return self.outcome in {"ok", "overrun", "unmetered"}


async def of_budget(session: AsyncSession, budget_id: str) -> dict[str, Any]:
    """Returns the `usage` of everything that was charged to a budget; see `wire`."""
    return wire(await store.usage_of_budget(session, budget_id))


async def of_subjects(session: AsyncSession, subjects: Sequence[str]) -> dict[str, Any]:
    """Returns the `usage` of those subjects together."""
    return wire(await store.usage_of_subjects(session, subjects))


async def calls_of(session: AsyncSession, subject: str) -> list[Used]:
    """Returns a subject's model calls that went out, in the order in which they were asked for."""
    return [_used(row) for row in await store.model_calls(session, subject)]


def wire(rows: Sequence[Any]) -> dict[str, Any]:
    """Returns `usage` from rows per model: the first four counts are disjoint and add up; reasoning is output."""
    read, written = sum(row.cache_read_tokens for row in rows), sum(row.cache_write_tokens for row in rows)
    return {
        "calls": sum(row.calls for row in rows),
        "input_tokens": sum(row.input_tokens for row in rows) - read - written,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": sum(row.output_tokens for row in rows),
        "reasoning_tokens": sum(row.reasoning_tokens for row in rows),
        "unmetered_calls": sum(row.unmetered for row in rows),
        "by_model": [{"model": row.sku, "calls": row.calls, "cost_usd": format_usd(row.pusd)} for row in rows],
    }


def _used(row: Any) -> Used:
    usage = row.usage or {}
    return Used(
        id=row.id,
        outcome=row.outcome,
        http_status=row.http_status,
        input_tokens=usage.get("input_tokens", 0),
        cached_tokens=usage.get("cache_read_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        cost_pusd=(row.cost_pusd or 0) + row.overrun_pusd,
    )
