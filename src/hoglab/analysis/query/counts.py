"""Events counted alone, without a join with exposures.

Trends of the former engine count events with the variant in their own property (spec experiment-results 1.8).
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from hoglab.analysis.query.exposures import exposure_condition
from hoglab.analysis.query.metrics.values import counted, value_of_event
from hoglab.analysis.query.model import Value
from hoglab.analysis.query.scope import Scope, SqlStatement, exclusive


def events_per_day(scope: Scope, value: Value) -> SqlStatement:
    """Return rows ``(variant, day, total)``: the events of the question's exposures, or their summed values."""
    _define_tagged(scope, value_of_event(scope, value))
    return scope.statement(
        f"SELECT variant, {scope.day('ts')} AS day, {scope.dialect.sum_numbers(counted(value, 'x'))} AS total "
        f"FROM tagged GROUP BY variant, {scope.day('ts')}"
    )


def people(scope: Scope) -> SqlStatement:
    """Return rows ``(variant, people)``: the number of distinct entities with such an event."""
    _define_tagged(scope, "1")
    return scope.statement(
        "SELECT variant, count(DISTINCT entity) AS people FROM tagged WHERE entity IS NOT NULL GROUP BY variant"
    )


def any_event(scope: Scope) -> SqlStatement:
    """Return one row when the project has an event with a name of the exposures' source, else no row."""
    exposures = scope.question.exposures
    names = ", ".join(scope.bind(str(match.event)) for match in exposures.source.alternatives)
    return scope.statement(
        f"SELECT 1 AS found FROM {scope.relation.name} "
        f"WHERE project_id = {scope.bind(exposures.project_id)} AND event IN ({names}) LIMIT 1"
    )


def _define_tagged(scope: Scope, x: str) -> None:
    """Define ``tagged(entity, variant, ts, x)``: the events with the number of their variant."""
    exposures, span = scope.question.exposures, scope.question.span
    if exposures.variant_property is None:
        raise ValueError("events tell no variant here")
    text = scope.property_text(exposures.variant_property)
    cases = " ".join(f"WHEN {scope.bind(key)} THEN {number}" for number, key in enumerate(exposures.variants))
    scope.define(
        "tagged",
        f"SELECT {scope.entity()} AS entity, CASE {text} {cases} END AS variant, {scope.ts()} AS ts, {x} AS x "
        f"FROM {scope.events} WHERE {scope.within(span.start, exclusive(span.end))} "
        f"AND {exposure_condition(scope)}",
    )
