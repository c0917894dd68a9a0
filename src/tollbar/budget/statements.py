"""The statements on money that are more than one table's select. Budgets come before calls, in the order level, id."""

from __future__ import annotations

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

IDS = bindparam("ids", type_=ARRAY(TEXT))
LOCK = text("SELECT id FROM budget WHERE id = ANY(:ids) ORDER BY level, id FOR UPDATE").bindparams(IDS)

LOCK_CHAIN = text(
    """
    SELECT id, level, state, cap_pusd, settled_pusd + overrun_pusd AS spent_pusd, reserved_pusd,
           EXISTS (SELECT FROM spend_limit WHERE project_id = :project AND day_cap_pusd IS NOT NULL) AS limited
      FROM budget WHERE id = ANY(:ids) ORDER BY level, id FOR UPDATE OF budget
    """
).bindparams(IDS)

# Of its own, after the lock: in one statement the constraint would be asked of what the rows were before the lock was
# waited for. The conditional update alone keeps each cap; the lock lets us say which row refuses.
RESERVE_LEASE = text(
    """
    WITH held AS (
      UPDATE budget SET reserved_pusd = reserved_pusd + :worst
       WHERE id = ANY(:ids) AND state = 'open'
         AND (cap_pusd IS NULL OR settled_pusd + overrun_pusd + reserved_pusd + :worst <= cap_pusd)
      RETURNING id)
    INSERT INTO ledger_call (id, kind, purpose, budget_ids, project_id, day, subject, sku, simulated, worker_id,
                             rate_pusd, worst_pusd, state, sent_at, expires_at)
    SELECT :id, 'sandbox', :purpose, :ids, :project, :on, :subject, :sku, :simulated, :worker, :rate, :worst, 'sent',
           clock_timestamp() + make_interval(secs => :ahead),
           clock_timestamp() + make_interval(secs => :ahead + :seconds)
     WHERE (SELECT count(*) FROM held) = cardinality(:ids)
    RETURNING expires_at
    """
).bindparams(IDS)

OPEN_DAY = text(
    """
    INSERT INTO budget (id, level, subject, cap_pusd)
    SELECT :day, 0, :subject, day_cap_pusd FROM spend_limit
     WHERE project_id = :project AND day_cap_pusd IS NOT NULL
    ON CONFLICT DO NOTHING
    """
)

INSERT_REFUSED = text(
    """
    INSERT INTO ledger_call (id, kind, purpose, budget_ids, project_id, day, subject, sku, simulated, worker_id,
                             rate_pusd, worst_pusd, state, outcome, ended_at, expires_at)
    VALUES (:id, 'sandbox', :purpose, :ids, :project, :on, :subject, :sku, :simulated, :worker, :rate, :worst,
            'refused', 'exceeded', clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO NOTHING
    """
).bindparams(IDS)

# What an open lease has used so far can no longer come back; the rest of it still can.
USED = text(
    """
    SELECT b.id, (
             SELECT coalesce(sum(least(c.worst_pusd, c.rate_pusd
                      * greatest(0, ceil(extract(epoch FROM clock_timestamp() - c.sent_at)))::bigint)), 0)
               FROM ledger_call c
              WHERE c.budget_ids @> ARRAY[b.id] AND c.kind = 'sandbox' AND c.state IN ('reserved', 'sent'))::bigint
           AS pusd
      FROM unnest(:ids) AS b(id)
    """
).bindparams(IDS)

# Budgets first, then the call, as everywhere; a call that ended before moves nothing.
END_CALL = text(
    """
    WITH chain AS MATERIALIZED (
      SELECT id, warned_at FROM budget
       WHERE id = ANY((SELECT budget_ids FROM ledger_call WHERE id = :id AND state = ANY(:origins))::text[])
       ORDER BY level, id FOR UPDATE),
    ended AS (
      UPDATE ledger_call
         SET state = :to, outcome = :outcome, ended_at = clock_timestamp(),
             cost_pusd = LEAST(coalesce(CAST(:cost AS bigint), worst_pusd), worst_pusd),
             overrun_pusd = GREATEST(coalesce(CAST(:cost AS bigint), worst_pusd) - worst_pusd, 0)
       WHERE id = :id AND state = ANY(:origins) AND (SELECT count(*) FROM chain) >= 0
      RETURNING budget_ids, kind, purpose, worst_pusd, cost_pusd, overrun_pusd, cost_pusd + overrun_pusd AS spent,
                price_snapshot, (kind = 'model' AND state <> 'released')::int AS counts, clamped::int, simulated::int,
                (worst_pusd > 0 AND (state = 'written_off' OR CAST(:cost AS bigint) IS NULL))::int AS at_worst),
    moved AS (
      UPDATE budget b
         SET reserved_pusd = b.reserved_pusd - e.worst_pusd, settled_pusd = b.settled_pusd + e.cost_pusd,
             overrun_pusd = b.overrun_pusd + e.overrun_pusd,
             verifier_pusd = b.verifier_pusd + CASE WHEN e.purpose = 'verifier' THEN e.spent ELSE 0 END,
             model_pusd = b.model_pusd
                          + CASE WHEN e.kind = 'model' AND e.purpose <> 'verifier' THEN e.spent ELSE 0 END,
             verifier_model_pusd = b.verifier_model_pusd
                          + CASE WHEN e.kind = 'model' AND e.purpose = 'verifier' THEN e.spent ELSE 0 END,
             model_calls = b.model_calls + e.counts, clamped_calls = b.clamped_calls + e.counts * e.clamped,
             simulated_calls = b.simulated_calls + e.counts * e.simulated,
             worst_case_calls = b.worst_case_calls + e.counts * e.at_worst,
             unpriced_calls = b.unpriced_calls + e.counts * :unpriced,
             truncated_calls = b.truncated_calls + e.counts * :truncated,
             price_snapshot = coalesce(e.price_snapshot, b.price_snapshot),
             warned_at = coalesce(b.warned_at, CASE
               WHEN (b.settled_pusd + b.overrun_pusd + e.spent)::numeric * 100 >= b.cap_pusd::numeric * :warn
               THEN clock_timestamp() END)
        FROM ended e WHERE b.id = ANY(e.budget_ids)
      RETURNING b.id, b.warned_at)
    SELECT ended.budget_ids, ended.overrun_pusd,
           array_agg(moved.id) FILTER (WHERE moved.warned_at IS NOT NULL AND chain.warned_at IS NULL) AS warned
      FROM ended LEFT JOIN moved ON true LEFT JOIN chain ON chain.id = moved.id
     GROUP BY ended.budget_ids, ended.overrun_pusd
    """
).bindparams(bindparam("origins", type_=ARRAY(TEXT)))

# --- model calls

RESERVE = text(
    """
    UPDATE budget SET reserved_pusd = reserved_pusd + :worst
     WHERE id = ANY(:ids) AND state = 'open'
       AND (cap_pusd IS NULL OR settled_pusd + overrun_pusd + reserved_pusd + :worst <= cap_pusd)
    """
).bindparams(IDS)

MARK_SENT = text(
    """
    UPDATE ledger_call SET state = 'sent', sent_at = clock_timestamp()
     WHERE id = :id AND state = 'reserved' AND expires_at > clock_timestamp()
    """
)

# Open leases do not come back whole: their sandbox goes on, and renews them, while its agent waits for the model.
HELD_BY_LEASES = text(
    """
    SELECT b.id, (SELECT coalesce(sum(c.worst_pusd), 0) FROM ledger_call c
                   WHERE c.budget_ids @> ARRAY[b.id] AND c.kind = 'sandbox' AND c.state IN ('reserved', 'sent'))::bigint
           AS pusd
      FROM unnest(:ids) AS b(id)
    """
).bindparams(IDS)

SAY_WAITING = text(
    """
    UPDATE budget SET waiting_until = clock_timestamp() + make_interval(secs => :for_s)
     WHERE id = :id AND state = 'open'
    """
)

SPENT_BY_SUBJECT = text(
    """
    SELECT subject, kind, purpose, sum(coalesce(cost_pusd, 0) + overrun_pusd)::bigint AS pusd,
           sum(overrun_pusd)::bigint AS overrun,
           coalesce(sum(worst_pusd) FILTER (WHERE state IN ('reserved', 'sent')), 0)::bigint AS reserved,
           count(*) FILTER (WHERE counts) AS calls,
           count(*) FILTER (WHERE counts AND NOT priced) AS unpriced,
           count(*) FILTER (WHERE counts AND outcome <> 'ok' AND cost_pusd = worst_pusd AND worst_pusd > 0)
             AS worst_case,
           count(*) FILTER (WHERE counts AND clamped) AS clamped,
           count(*) FILTER (WHERE counts AND truncated) AS truncated,
           count(*) FILTER (WHERE counts AND simulated) AS simulated,
           max(price_snapshot) AS price_snapshot
      FROM (SELECT *, kind = 'model' AND state IN ('settled', 'written_off') AS counts
              FROM ledger_call WHERE subject = ANY(:ids)) AS mine
     GROUP BY subject, kind, purpose
    """
).bindparams(IDS)

# The gateway keeps the input with the cache in it, and the output with the reasoning.
_USAGE = """
    SELECT sku, count(*) AS calls, count(*) FILTER (WHERE outcome = 'unmetered') AS unmetered,
           sum(coalesce(cost_pusd, 0) + overrun_pusd)::bigint AS pusd,
           coalesce(sum((usage->>'input_tokens')::bigint), 0)::bigint AS input_tokens,
           coalesce(sum((usage->>'cache_read_tokens')::bigint), 0)::bigint AS cache_read_tokens,
           coalesce(sum((usage->>'cache_write_tokens')::bigint), 0)::bigint AS cache_write_tokens,
           coalesce(sum((usage->>'output_tokens')::bigint), 0)::bigint AS output_tokens,
           coalesce(sum((usage->>'output_reasoning_tokens')::bigint), 0)::bigint AS reasoning_tokens
      FROM ledger_call WHERE kind = 'model' AND state IN ('settled', 'written_off') AND {}
     GROUP BY sku ORDER BY sku
    """
USAGE_OF_BUDGET = text(_USAGE.format("budget_ids @> ARRAY[CAST(:budget AS text)]"))
USAGE_OF_SUBJECTS = text(_USAGE.format("subject = ANY(:ids)")).bindparams(IDS)
