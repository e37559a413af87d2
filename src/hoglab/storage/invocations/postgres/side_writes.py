"""Rows written beside invocations in the queue's transactions: traces, dead letters, positions, counts, jobs."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hoglab.storage.database.postgres.session import settle
from hoglab.storage.database.types import to_micros
from hoglab.storage.event_log.leases import finish_within
from hoglab.storage.event_log.partitions import PartitionDone
from hoglab.storage.invocations import InvocationResult, JobOverError, MaskingMovedError
from hoglab.storage.invocations.dead_letter_rows import MAX_DEAD_LETTERS
from hoglab.storage.invocations.dead_letter_rows import values_of as dead_values
from hoglab.storage.invocations.traces import Traces, totals, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from hoglab.storage.invocations import (
        AppMetric,
        ConsumerPosition,
        DeadLetter,
        JobStep,
        LogEntry,
        MaskingCount,
    )

_RESULT_FIELDS = InvocationResult.__struct_fields__
_RESULT_TYPES = {
    "project_id": "integer",
    "attempts": "integer",
    "is_retry": "boolean",
    "duration_ms": "integer",
    "invocation_globals": "bytea",
    **dict.fromkeys(("version", "scheduled_at", "first_scheduled_at", "started_at", "finished_at"), "bigint"),
}
# A transaction has its number before its lines have ids: who follows logs waits for those that are at work.
_LOG = (
    "INSERT INTO log_entry (project_id, log_source, log_source_id, instance_id, timestamp, level, message) "
    "SELECT project_id, log_source, log_source_id, instance_id, timestamp, level, message FROM unnest("
    "%b::integer[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[]) WITH ORDINALITY AS line "
    "(project_id, log_source, log_source_id, instance_id, timestamp, level, message, place) "
    "WHERE pg_current_xact_id() IS NOT NULL ORDER BY place"
)
_METRIC = (
    "INSERT INTO app_metric (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id, "
    "count) SELECT * FROM unnest(%b::integer[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[], "
    "%b::text[], %b::bigint[]) "
    "ON CONFLICT (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id) "
    "DO UPDATE SET count = app_metric.count + excluded.count"
)
_RESULT = (  # noqa: S608, constants only
    "INSERT INTO invocation_result ({}) SELECT * FROM unnest({}) ON CONFLICT (invocation_id) DO UPDATE SET {} "
    "WHERE excluded.version > invocation_result.version"
).format(
    ", ".join(_RESULT_FIELDS),
    ", ".join(f"%b::{_RESULT_TYPES.get(name, 'text')}[]" for name in _RESULT_FIELDS),
    ", ".join(f"{name} = excluded.{name}" for name in _RESULT_FIELDS[1:]),
)
_MASKED = (
    "INSERT INTO masking_counter (function_id, hash, count, expires_at) "
    "VALUES (%s, %s, %s, %s) "
    "ON CONFLICT (function_id, hash) DO UPDATE SET count = excluded.count, expires_at = excluded.expires_at "
    "WHERE CASE WHEN %s = 0 THEN masking_counter.expires_at <= %s "
    "ELSE masking_counter.count = %s AND masking_counter.expires_at = excluded.expires_at END"
)
_POSITION = (
    'INSERT INTO consumer_position (consumer, "offset", updated_at) VALUES (%s, %s, %s) '
    'ON CONFLICT (consumer) DO UPDATE SET "offset" = greatest(consumer_position."offset", excluded."offset"), '
    "updated_at = excluded.updated_at"
)
_DEAD = (
    "INSERT INTO dead_event (id, project_id, function_id, source, step, reason, event_uuid, event, distinct_id, "
    "payload, first_failed_at, failed_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (id) DO UPDATE SET step = excluded.step, reason = excluded.reason, payload = excluded.payload, "
    "failed_at = excluded.failed_at, attempts = dead_event.attempts + 1"
)
_FORGET_DEAD = "DELETE FROM dead_event WHERE id = ANY (%s)"
_TRIM_DEAD = (
    "DELETE FROM dead_event WHERE id IN (SELECT id FROM dead_event WHERE project_id = %s AND function_id = %s "
    "ORDER BY failed_at DESC OFFSET %s)"
)
_STEP = (
    "UPDATE backfill SET cursor = %s, seen = seen + %s, queued = queued + %s, settled = settled + %s, "
    "put_aside = put_aside + %s WHERE id = %s AND cursor = %s AND status = 'running'"
)


def write_traces(
    connection: psycopg.Connection[Any],
    traces: Traces,
    logs: Sequence[LogEntry],
    metrics: Sequence[AppMetric],
    results: Sequence[InvocationResult],
) -> None:
    """Write traces of runs: the lines of one run at strictly increasing moments, metrics added up by the hour.

    Rows that others may change, too, are written in one order, so that nobody waits for each other.
    """
    if logs:
        connection.execute(_LOG.encode(), _columns(map(traces.line, logs)))
    if metrics:
        connection.execute(
            _METRIC.encode(), _columns(sorted((*key, count) for key, count in totals(metrics).items()))
        )
    if results:
        newest: dict[str, InvocationResult] = {}
        for result in results:
            known = newest.get(result.invocation_id)
            if known is None or result.version > known.version:
                newest[result.invocation_id] = result
        connection.execute(_RESULT.encode(), _columns(values_of(newest[id_]) for id_ in sorted(newest)))


def count_masked(connection: psycopg.Connection[Any], masking: Sequence[MaskingCount], now: int) -> None:
    """Put counts in the place of those that they were made of. Raises `MaskingMovedError` when these are others now."""
    rows = [
        (
            masked.function_id,
            masked.hash,
            masked.count,
            to_micros(masked.expires_at),
            masked.before,
            now,
            masked.before,
        )
        for masked in sorted(masking, key=attrgetter("function_id", "hash"))
    ]
    with connection.cursor() as cursor:
        cursor.executemany(_MASKED, rows)
        settle(connection)
        if cursor.rowcount != len(rows):
            raise MaskingMovedError


def advance(
    connection: psycopg.Connection[Any], position: ConsumerPosition | PartitionDone, now: int
) -> None:
    """Move the position of a consumer, never back, or of a partition. Raises `LeaseLostError`."""
    if isinstance(position, PartitionDone):
        finish_within(connection, position)
    else:
        connection.execute(_POSITION, (*position, now))


def save_dead(connection: psycopg.Connection[Any], dead: Sequence[DeadLetter]) -> int:
    """Keep dead letters, and return how many older ones were deleted to make room."""
    with connection.cursor() as cursor:
        cursor.executemany(_DEAD, [dead_values(letter) for letter in sorted(dead, key=attrgetter("id"))])
    owners = {(letter.project_id, letter.function_id or "") for letter in dead}
    trimmed = [connection.execute(_TRIM_DEAD, (*owner, MAX_DEAD_LETTERS)) for owner in sorted(owners)]
    settle(connection)
    return sum(cursor.rowcount for cursor in trimmed)


def forget_dead(connection: psycopg.Connection[Any], ids: Sequence[str]) -> None:
    connection.execute(_FORGET_DEAD, (list(ids),))


def advance_job(connection: psycopg.Connection[Any], step: JobStep, new: int) -> None:
    """Record the progress of a job. Raises `JobOverError`."""
    counts = (step.seen, new, step.already_run, step.dead_letters)
    cursor = connection.execute(_STEP, (step.cursor, *counts, step.id, step.before))
    settle(connection)
    if not cursor.rowcount:
        raise JobOverError(step.id)


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
