"""Funnels with steps in tables beside the events: all steps are joined by one key (spec experiment-results 3.7).

Exposures belong to the entity itself. An event that is a step belongs to every entity with its key; if it is also an
exposure of that entity, both are one row.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hoglab.analysis.query.expressions import text_of
from hoglab.analysis.query.metrics.tables import TableRows, between
from hoglab.analysis.query.model import EventSource, FunnelMeasure, JoinKey, TableSource, tables_of
from hoglab.analysis.query.scope import Scope
from hoglab.filters.sql import combined

Numbered = Sequence[tuple[int, str]]
"""Steps by their number, with the condition that a row is that step."""


def define_keyed_rows(scope: Scope, metric: FunnelMeasure) -> None:
    """Define ``step_row(entity, ts, s0 … sk)``. ``unit`` and ``exposure`` must be defined."""
    names = [f"s{number}" for number in range(len(metric.steps) + 1)]
    events = [
        (number, scope.matches(step))
        for number, step in enumerate(metric.steps, 1)
        if isinstance(step, EventSource)
    ]
    first = ", ".join(f"{1 if number == 0 else 0} AS {name}" for number, name in enumerate(names))
    parts = [f"SELECT entity, ts, CAST(uuid AS VARCHAR) AS id, {first} FROM exposure"]
    if events:
        parts.append(_event_steps(scope, metric, names, events))
    scope.define("event_step", " UNION ALL ".join(parts))
    merged = ", ".join(f"max({name}) AS {name}" for name in names)
    rows = [f"SELECT entity, ts, {merged} FROM event_step GROUP BY entity, ts, id"]
    for place, steps in enumerate(_by_table(metric)):
        table = _define_table(scope, f"table_{place}", steps)
        shown = ", ".join(
            f"{table}.{name}" if number in dict(steps) else "0" for number, name in enumerate(names)
        )
        rows.append(
            f"SELECT unit.entity, {table}.ts, {shown} FROM {table} "
            f"INNER JOIN unit ON unit.{scope.key_of(steps[0][1])} = {table}.key "
            f"WHERE {table}.key <> '' AND {between(table, scope.question.span.start, _before(scope, metric))} "
            f"AND {combined('OR', [f'{table}.s{number} = 1' for number, _ in steps])}"
        )
    scope.define("step_row", " UNION ALL ".join(rows))


def _before(scope: Scope, metric: FunnelMeasure) -> datetime:
    return scope.read_until(metric.window_us, inclusive=True)


def _event_steps(scope: Scope, metric: FunnelMeasure, names: Sequence[str], events: Numbered) -> str:
    """Return the steps that are events, of all entities that have their key."""
    source = tables_of(metric)[0]
    key = text_of(source.events_join_key.expression, scope, "events_join_key")
    conditions = dict(events)
    flags = ", ".join(
        f"CASE WHEN {conditions[number]} THEN 1 ELSE 0 END AS {name}"
        if number in conditions
        else f"0 AS {name}"
        for number, name in enumerate(names)
    )
    scope.define(
        "keyed_event",
        f"SELECT {key} AS key, {scope.ts()} AS ts, CAST({scope.column('uuid')} AS VARCHAR) AS id, {flags} "
        f"FROM {scope.events} "
        f"WHERE {scope.within(scope.question.span.start, _before(scope, metric))} "
        f"AND {combined('OR', list(conditions.values()))}",
    )
    return (
        f"SELECT unit.entity, keyed_event.ts, keyed_event.id, {', '.join(f'keyed_event.{n}' for n in names)} "
        f"FROM keyed_event INNER JOIN unit ON unit.{scope.key_of(source)} = keyed_event.key "
        "WHERE keyed_event.key <> ''"
    )


def _by_table(metric: FunnelMeasure) -> list[list[tuple[int, TableSource]]]:
    """Group steps that the same row of a table may be."""
    steps_by_table: dict[tuple[str, str, JoinKey], list[tuple[int, TableSource]]] = {}
    for number, step in enumerate(metric.steps, 1):
        if isinstance(step, TableSource):
            steps_by_table.setdefault((step.table.name, step.timestamp, step.join_key), []).append(
                (number, step)
            )
    return list(steps_by_table.values())


def _define_table(scope: Scope, name: str, steps: Sequence[tuple[int, TableSource]]) -> str:
    """Define the rows of a table with a column for each of its steps."""
    rows = TableRows(scope, steps[0][1])
    flags = {f"s{number}": f"CASE WHEN {rows.matches(step)} THEN 1 ELSE 0 END" for number, step in steps}
    return rows.define(name, {"key": rows.key(), "ts": rows.ts(), **flags})
