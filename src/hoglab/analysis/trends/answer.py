"""The answer of a ``TrendsQuery``: a statement for each series, and its rows as PostHog shows them."""

# ruff: noqa: S608 - see hoglab.analysis.query.scope

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.execution import StatementRunner, explained_failures
from hoglab.analysis.query.days import DAY_US, micros
from hoglab.analysis.query.event_relation import RESOLVED_EVENTS, RelationRow
from hoglab.analysis.query.scope import SqlStatement, local_time, with_cohorts
from hoglab.analysis.trends.query import MAX_BREAKDOWN_VALUES, Interval, TrendMath, TrendSeries, TrendsQuery
from hoglab.filters import FilterError
from hoglab.filters.sql import FilterScope, combined, group_condition

if TYPE_CHECKING:
    from hoglab.storage.event_store.dialects import Dialect

OTHERS = "$$_posthog_breakdown_other_$$"
"""Breakdown value for events whose own value is not among the most frequent ones."""
NO_VALUE = "$$_posthog_breakdown_null_$$"
"""Breakdown value for events without one."""


def trends_answer(
    runner: StatementRunner, project_id: int, asked: TrendsQuery, now: datetime
) -> dict[str, Any]:
    """Compute the trends of a project. Raises `DefinitionError` and `ComputationError`."""
    results = []
    labels, moment_count = asked.labels, asked.count
    for series in asked.series:
        statement = _built(runner.dialect, project_id, asked, series, now)
        with explained_failures(runner.timeout_s), runner.reader() as reader:
            rows = runner.executed(reader, statement)
        points: defaultdict[str | None, list[int]] = defaultdict(lambda: [0] * moment_count)
        if asked.breakdown is None:
            points[None]  # there without any event, too
        for number, value, count in rows:
            points[value][number] = count
        ranked = sorted(points.items(), key=lambda item: (item[0] == OTHERS, -sum(item[1]), str(item[0])))
        results += [
            {
                "label": series.name,
                "breakdown_value": value,
                "days": labels,
                "data": counts,
                "count": sum(counts),
            }
            for value, counts in ranked
        ]
    return {"kind": "TrendsQuery", "interval": str(asked.interval), "results": results}


def _built(
    dialect: Dialect, project_id: int, asked: TrendsQuery, series: TrendSeries, now: datetime
) -> SqlStatement:
    try:
        return _statement(dialect, project_id, asked, series, now)
    except FilterError as error:
        raise DefinitionError(str(error)) from error


def _statement(
    dialect: Dialect, project_id: int, asked: TrendsQuery, series: TrendSeries, now: datetime
) -> SqlStatement:
    """Return rows ``(number of the interval, breakdown value, count)``, without rows whose count is 0."""
    parameters = dialect.parameters()
    row = RelationRow(dialect, parameters)
    scope = with_cohorts(FilterScope(row, now, asked.zone), row, asked.cohorts)
    conditions = [
        f"project_id = {parameters.bind(project_id)}",
        f"timestamp >= {parameters.bind(asked.start)}",
        f"timestamp < {parameters.bind(asked.end)}",
        *([] if series.event is None else [f"event = {parameters.bind(series.event)}"]),
        group_condition(asked.filters, scope),
        group_condition(series.filters, scope),
    ]
    value = "NULL"
    if asked.breakdown is not None:
        text = row.text(asked.breakdown.column, asked.breakdown.key)
        value = f"coalesce({text}, {parameters.bind(NO_VALUE)})"
    matched = (
        f"SELECT {_number(dialect, asked)} AS number, {value} AS value, person_id, distinct_id "
        f"FROM {RESOLVED_EVENTS} WHERE {combined('AND', conditions)}"
    )
    count = "count(*)"
    if series.math is TrendMath.DAU:  # who has no person is told by the distinct id
        count = "count(DISTINCT person_id) + count(DISTINCT CASE WHEN person_id IS NULL THEN distinct_id END)"
    if asked.breakdown is None:
        sql = f"SELECT number, NULL AS value, {count} AS counted FROM ({matched}) AS matched GROUP BY number"
        return SqlStatement(dialect.finished(sql), parameters.values)
    parts = [
        dialect.named("matched", matched),
        dialect.named(
            "frequent",
            "SELECT value FROM matched GROUP BY value ORDER BY count(*) DESC, value "
            f"LIMIT {MAX_BREAKDOWN_VALUES}",
        ),
        dialect.named(
            "ranked",
            f"SELECT number, CASE WHEN value IN (SELECT value FROM frequent) THEN value "
            f"ELSE {parameters.bind(OTHERS)} END AS shown, person_id, distinct_id FROM matched",
        ),
    ]
    sql = (
        f"WITH {', '.join(parts)} SELECT number, shown AS value, {count} AS counted FROM ranked "
        "GROUP BY number, shown"
    )
    return SqlStatement(dialect.finished(sql), parameters.values)


def _number(dialect: Dialect, asked: TrendsQuery) -> str:
    """Return the number of the interval that an event lies in, from 0."""
    ts = dialect.micros("timestamp")
    if asked.interval is Interval.DAY:
        days = asked.days
        return dialect.integer_division(
            f"{local_time(ts, days.offsets)} - {days.first_number * DAY_US}", DAY_US
        )
    return dialect.integer_division(f"{ts} - {micros(asked.start)}", asked.step_us)
