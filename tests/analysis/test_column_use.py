"""Statements know what they read of events, and what else they depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any

import duckdb
import pytest
from tests.analysis.test_against_oracle import METRICS
from tests.analysis.test_emitters import question
from tests.embedded import EmbeddedDialect

from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.event_relation import ColumnUse, EventRelation, Form, Property
from hoglab.analysis.query.model import CohortMembers, Question
from hoglab.analysis.query.pipeline import Pipeline, pipeline_of
from hoglab.analysis.query.scope import Scope
from hoglab.analysis.query.statements import all_days_at_once, can_share

NARROW = EventRelation("narrow_events", property_forms=frozenset(Form))
TYPES = {
    "project_id": "INTEGER",
    "timestamp": "TIMESTAMPTZ",
    "person_id": "UUID",
    "uuid": "UUID",
}
EVENT = {"kind": "EventsNode", "event": "purchase"}
FIRST = {"multiple_variant_handling": "first_seen"}
ACTIVATED = {"activation_config": {"event": "began", "properties": []}}


def asked(metric: dict[str, Any], **options: Any) -> Question:
    found = question(metric, 1, **options)
    days = DayGrid.between(found.span.start, found.span.end, UTC)
    return replace(found, span=replace(found.span, days=days)) if all_days_at_once(found) else found


def pipeline(found: Question) -> Pipeline:
    return pipeline_of(Scope(found, EmbeddedDialect(), NARROW))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        yield found


def plan(engine: duckdb.DuckDBPyConnection, found: Pipeline, columns: list[str]) -> None:
    """Let the engine read the statement, of a table with these columns."""
    statement = found.compiled.statement
    engine.execute(f"CREATE OR REPLACE TABLE narrow_events ({', '.join(columns)})")
    [explained] = engine.extract_statements(f"EXPLAIN {statement.sql}")
    engine.execute(explained, {name: statement.parameters[name] for name in explained.named_parameters})


def columns_of(use: ColumnUse) -> list[str]:
    columns = [f"{name} {TYPES.get(name, 'VARCHAR')}" for name in sorted(use.columns)]
    return columns + [
        f"{each.name} {'VARCHAR' if each.form is Form.TEXT else 'DOUBLE'}" for each in use.properties
    ]


SHAREABLE = [metric for metric in METRICS if can_share(question(metric, 1))]


@pytest.mark.parametrize("criteria", [{}, ACTIVATED, FIRST], ids=["exposed", "activated", "first seen"])
@pytest.mark.parametrize("metric", SHAREABLE, ids=range(len(SHAREABLE)))
def test_statements_read_what_they_say_and_nothing_else(
    engine: duckdb.DuckDBPyConnection, metric: dict[str, Any], criteria: dict[str, Any]
) -> None:
    found = pipeline(asked(metric, criteria=criteria))
    columns = columns_of(found.column_use)
    plan(engine, found, columns)
    for each in columns:
        with pytest.raises(duckdb.BinderException):
            plan(engine, found, [other for other in columns if other != each])


def filtered(**condition: Any) -> dict[str, Any]:
    return {"metric_type": "mean", "source": {**EVENT, "properties": [{"type": "event", **condition}]}}


@pytest.mark.parametrize(
    ("metric", "forms"),
    [
        (filtered(key="p", operator="exact", value="x"), {Form.TEXT}),
        (filtered(key="p", operator="exact", value="7"), {Form.TEXT, Form.JSON_NUMBER}),
        (filtered(key="p", operator="gt", value=7), {Form.NUMBER}),
        (filtered(key="p", operator="is_set"), {Form.TEXT}),
        ({"metric_type": "mean", "source": {**EVENT, "math": "sum", "math_property": "p"}}, {Form.NUMBER}),
    ],
    ids=["text", "number as text", "greater", "is set", "sum"],
)
def test_a_property_is_read_in_the_forms_that_are_asked_for(metric: dict[str, Any], forms: set[Form]) -> None:
    found = pipeline(asked(metric)).column_use.properties
    assert found == {Property("properties", "p", form) for form in forms}


@pytest.mark.parametrize(("value", "depends"), [("-3d", True), ("2026-03-08", False)])
@pytest.mark.parametrize("by", ["metric", "cohort", "exposure"])
def test_what_depends_on_the_moment_says_so(value: str, depends: bool, by: str) -> None:
    condition = {"key": "p", "type": "person", "operator": "is_date_before", "value": value}
    match by:
        case "metric":
            found = asked(filtered(**condition))
        case "exposure":
            found = asked(filtered(**condition))
            filters = found.metric.value.source.filters  # type: ignore[union-attr]
            exposures = replace(found.exposures, test_account_filters=filters)
            found = replace(
                found, exposures=exposures, metric=asked({"metric_type": "mean", "source": EVENT}).metric
            )
        case _:
            group = filtered(type="cohort", key="id", value=1)
            leaf = asked(filtered(**condition)).metric.value.source.filters  # type: ignore[union-attr]
            found = asked(group, cohorts={1: CohortMembers(leaf)})
    assert pipeline(found).column_use.now is depends


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        ({"metric_type": "mean", "source": EVENT}, False),
        (filtered(type="cohort", key="id", value=1), True),
        (filtered(type="hogql", key="person_id = 'x'"), True),
        (filtered(key="person_id", operator="exact", value="x"), False),
    ],
    ids=["nobody", "cohort", "expression", "a property of that name"],
)
def test_conditions_on_who_somebody_is_say_so(metric: dict[str, Any], names: bool) -> None:
    scope = Scope(asked(metric, cohorts={1: CohortMembers(people=("a",))}), EmbeddedDialect())
    scope.matches(scope.question.metric.value.source)  # type: ignore[arg-type, union-attr]
    assert ("person_id" in scope.row.take_use().columns) is names
