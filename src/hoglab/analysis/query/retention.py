"""Retention metrics: who came back after a start event (spec experiment-results 3.6)."""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from datetime import timedelta

from hoglab.analysis.days import DAY_US, micros, zone_of, zone_offsets
from hoglab.analysis.query.model import SECOND_US, RetentionMetric, RetentionUnit, later
from hoglab.analysis.query.outcome import Outcome, Partial, define_values, series, totals
from hoglab.analysis.query.scope import Scope, Statement, local_time

HOUR_US = 3600 * SECOND_US
UNIT_US = {
    RetentionUnit.SECOND: SECOND_US,
    RetentionUnit.MINUTE: 60 * SECOND_US,
    RetentionUnit.HOUR: HOUR_US,
    RetentionUnit.DAY: DAY_US,
    RetentionUnit.WEEK: 7 * DAY_US,
    RetentionUnit.MONTH: 30 * DAY_US,
}
_OUTCOME = Outcome(
    partials=(Partial("started", "max"), Partial("retained", "max")),
    values={"started": "{started}", "retained": "{retained}"},
    statistics={"n": "{started}", "s": "{retained}"},
    exact=True,
)


def retention_statement(
    scope: Scope, metric: RetentionMetric, *, matured_only: bool
) -> tuple[Statement, Outcome]:
    """A statement for a retention metric. ``unit`` must be defined. Series: only for ``first_seen`` starts."""
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
    if scope.days is not None:
        return series(scope, _OUTCOME, "partial"), _OUTCOME
    scope.define(
        "combined",
        "SELECT entity, max(started) AS started, max(retained) AS retained FROM partial GROUP BY entity",
    )
    return totals(scope, _OUTCOME, define_values(scope, _OUTCOME, "combined")), _OUTCOME


def span_us(metric: RetentionMetric) -> int:
    """How long after its start event an entity may still come back, in microseconds."""
    return metric.last * UNIT_US[metric.unit]


def _define_starts(scope: Scope, metric: RetentionMetric, *, matured_only: bool) -> None:
    """``started(entity, ts, uuid)``: the start event that counts."""
    span = scope.question.span
    within = f" AND start_row.ts <= unit.t0 + {metric.window_us}" if metric.window_us else ""
    scope.define(
        "start_row",
        f"SELECT {scope.entity()} AS entity, {scope.ts()} AS ts, uuid FROM {scope.events} "
        f"WHERE {scope.within(span.start, scope.read_until(metric.window_us))} AND {scope.has_entity()} "
        f"AND {scope.matches(metric.start)}",
    )
    extreme, order = ("max", "-start_row.ts") if metric.last_seen else ("min", "start_row.ts")
    uuid = scope.dialect.first_by("start_row.uuid", [order, "start_row.uuid"])
    scope.define(
        "chosen",
        f"SELECT unit.entity AS entity, {extreme}(start_row.ts) AS ts, {uuid} AS uuid "
        "FROM start_row INNER JOIN unit ON unit.entity = start_row.entity "
        f"WHERE start_row.ts >= unit.t0{within} GROUP BY unit.entity",
    )
    mature = f" WHERE ts + {span_us(metric)} <= {micros(span.matured_at)}" if matured_only else ""
    scope.define("started", f"SELECT entity, ts, uuid FROM chosen{mature}")


def _define_returns(scope: Scope, metric: RetentionMetric) -> None:
    """``returned(entity, ts)``: the first completion in the retention window."""
    span = scope.question.span
    scope.define(
        "completion_row",
        f"SELECT {scope.entity()} AS entity, {scope.ts()} AS ts, uuid FROM {scope.events} "
        f"WHERE {scope.within(span.start, scope.read_until(metric.window_us + span_us(metric)))} "
        f"AND {scope.has_entity()} AND {scope.matches(metric.completion)}",
    )
    scope.define(
        "returned",
        "SELECT started.entity AS entity, min(completion_row.ts) AS ts "
        "FROM completion_row INNER JOIN started ON started.entity = completion_row.entity "
        "WHERE completion_row.ts >= started.ts AND completion_row.uuid <> started.uuid "
        f"AND {_in_window(scope, metric)} GROUP BY started.entity",
    )


def _in_window(scope: Scope, metric: RetentionMetric) -> str:
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


def _local(scope: Scope, metric: RetentionMetric, ts: str) -> str:
    span = scope.question.span
    end = later(span.end, metric.window_us + span_us(metric))
    offsets = zone_offsets(
        span.start - timedelta(days=2), later(end, 2 * DAY_US), zone_of(scope.question.zone)
    )
    return local_time(ts, offsets)
