"""Retention metrics: entities that came back after a start event (spec experiment-results 3.6)."""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from datetime import datetime, timedelta

from hoglab.analysis.query.days import DAY_US, micros, zone_of, zone_offsets
from hoglab.analysis.query.metrics.outcome import Outcome, Partial
from hoglab.analysis.query.metrics.tables import TableRows
from hoglab.analysis.query.model import (
    SECOND_US,
    EventSource,
    RetentionMeasure,
    RetentionUnit,
    Source,
    TableSource,
    later,
)
from hoglab.analysis.query.scope import Scope, local_time
from hoglab.filters.sql import TRUE, combined

HOUR_US = 3600 * SECOND_US
UNIT_US = {
    RetentionUnit.SECOND: SECOND_US,
    RetentionUnit.MINUTE: 60 * SECOND_US,
    RetentionUnit.HOUR: HOUR_US,
    RetentionUnit.DAY: DAY_US,
    RetentionUnit.WEEK: 7 * DAY_US,
    RetentionUnit.MONTH: 30 * DAY_US,
}
RETENTION_OUTCOME = Outcome(
    partials=(Partial("started", "max"), Partial("retained", "max")),
    values={"started": "{started}", "retained": "{retained}"},
    statistics={"n": "{started}", "s": "{retained}"},
    exact=True,
)


def define_retention(scope: Scope, metric: RetentionMeasure, *, matured_only: bool) -> None:
    """Define the entities that started and came back: by day of a grid, else altogether. ``unit`` must be defined.

    A grid of days is only for ``first_seen`` starts.
    """
    if scope.days is not None and metric.last_seen:
        raise ValueError("the last start of an entity moves, so its days cannot be told in one pass")
    _define_starts(scope, metric, matured_only=matured_only)
    _define_returns(scope, metric)
    counts = scope.day("started.ts")
    if matured_only:
        counts = f"greatest({counts}, {scope.day(f'started.ts + {span_us(metric)}')})"
    scope.define(
        "partial",
        f"SELECT started.entity AS entity, {counts} AS day, 1 AS started, 0 AS retained FROM started "
        f"UNION ALL SELECT started.entity, greatest({counts}, {scope.day('returned.ts')}), 0, 1 "
        "FROM started INNER JOIN returned ON returned.entity = started.entity",
    )
    if scope.days is None:
        scope.define(
            "combined",
            "SELECT entity, max(started) AS started, max(retained) AS retained FROM partial GROUP BY entity",
        )


def span_us(metric: RetentionMeasure) -> int:
    """Return the time after its start event within which an entity may come back, in microseconds."""
    return metric.last * UNIT_US[metric.unit]


def _define_starts(scope: Scope, metric: RetentionMeasure, *, matured_only: bool) -> None:
    """Define ``started(entity, ts, id)``: the start that counts."""
    span = scope.question.span
    within = f" AND start_row.ts <= unit.t0 + {metric.window_us}" if metric.window_us else ""
    _define_rows(scope, "start", metric.start, scope.read_until(metric.window_us))
    extreme, order = ("max", "-start_row.ts") if metric.last_seen else ("min", "start_row.ts")
    first = scope.dialect.first_by("start_row.id", [order, "start_row.id"])
    scope.define(
        "chosen",
        f"SELECT unit.entity AS entity, {extreme}(start_row.ts) AS ts, {first} AS id "
        "FROM start_row INNER JOIN unit ON unit.entity = start_row.entity "
        f"WHERE start_row.ts >= unit.t0{within} GROUP BY unit.entity",
    )
    mature = f" WHERE ts + {span_us(metric)} <= {micros(span.end)}" if matured_only else ""
    scope.define("started", f"SELECT entity, ts, id FROM chosen{mature}")


def _define_returns(scope: Scope, metric: RetentionMeasure) -> None:
    """Define ``returned(entity, ts)``: the first completion in the retention window that is not the start itself."""
    start, completion = metric.start, metric.completion
    before = scope.read_until(metric.window_us + span_us(metric))
    if isinstance(start, TableSource) and isinstance(completion, TableSource) and _same(start, completion):
        _define_shared_completions(scope, start, completion, before)
        other = "(completion_row.ts > started.ts OR completion_row.rows_then > 1)"
    else:
        _define_rows(scope, "completion", completion, before)
        both_events = isinstance(start, EventSource) and isinstance(completion, EventSource)
        other = "completion_row.id <> started.id" if both_events else TRUE
    scope.define(
        "returned",
        "SELECT started.entity AS entity, min(completion_row.ts) AS ts "
        "FROM completion_row INNER JOIN started ON started.entity = completion_row.entity "
        f"WHERE completion_row.ts >= started.ts AND {other} "
        f"AND {_in_window(scope, metric)} GROUP BY started.entity",
    )


def _same(start: TableSource, completion: TableSource) -> bool:
    """Return the condition that a row may be both start and completion; two moments are two events."""
    return (start.table.name, start.timestamp) == (completion.table.name, completion.timestamp)


def _define_shared_completions(
    scope: Scope, start: TableSource, completion: TableSource, before: datetime
) -> None:
    """Define ``completion_row(entity, ts, rows_then)``: moments with a completion, and the number of their rows.

    Rows have no ids. Of several rows at the moment of the start one is the start, another is the return.
    """
    rows = TableRows(scope, completion)
    completes, starts = rows.matches(completion), rows.matches(start)
    columns = {"completes": f"CASE WHEN {completes} THEN 1 ELSE 0 END"}
    rows.define_owned(
        "either", columns, combined("OR", [completes, starts]), "unit", scope.question.span.start, before
    )
    scope.define(
        "completion_row",
        "SELECT entity, ts, count(*) AS rows_then FROM either_row GROUP BY entity, ts HAVING max(completes) = 1",
    )


def _define_rows(scope: Scope, name: str, source: Source, before: datetime) -> None:
    """Define ``<name>_row(entity, ts, id)``: events by their places, for uuids may be shared, or rows of a table."""
    since = scope.question.span.start
    if isinstance(source, TableSource):
        rows = TableRows(scope, source)
        rows.define_owned(name, {"id": "0"}, rows.matches(source), "unit", since, before)
        return
    scope.define(
        f"{name}_row",
        f"SELECT {scope.entity()} AS entity, {scope.ts()} AS ts, {scope.column('seq')} AS id FROM {scope.events} "
        f"WHERE {scope.within(since, before)} AND {scope.has_entity()} AND {scope.matches(source)}",
    )


def _in_window(scope: Scope, metric: RetentionMeasure) -> str:
    began, ts = "started.ts", "completion_row.ts"
    unit_us = UNIT_US[metric.unit]
    match metric.unit:
        case RetentionUnit.DAY:
            days = [
                scope.dialect.integer_division(_local(scope, metric, place), DAY_US) for place in (began, ts)
            ]
            return f"{days[1]} BETWEEN {days[0]} + {metric.first} AND {days[0]} + {metric.last}"
        case RetentionUnit.HOUR:
            began, ts = (f"({place} - {_local(scope, metric, place)} % {HOUR_US})" for place in (began, ts))
        case RetentionUnit.MONTH:
            low = scope.dialect.month_later(began, metric.first)
            high = scope.dialect.month_later(began, metric.last)
            return f"{ts} BETWEEN {low} AND {high} AND {ts} <= {began} + {span_us(metric)}"
    return f"{ts} BETWEEN {began} + {metric.first * unit_us} AND {began} + {metric.last * unit_us}"


def _local(scope: Scope, metric: RetentionMeasure, ts: str) -> str:
    span = scope.question.span
    end = later(span.end, metric.window_us + span_us(metric))
    offsets = zone_offsets(
        span.start - timedelta(days=2), later(end, 2 * DAY_US), zone_of(scope.question.zone)
    )
    return local_time(ts, offsets)
