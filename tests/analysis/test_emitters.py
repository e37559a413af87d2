"""Text from users in statements: it arrives as it is on both engines, and never becomes part of the statement."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.analysis.engines import Engine
from tests.analysis.events import Event, person_id
from tests.embedded import EmbeddedDialect

from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import CohortMembers, Question, Span
from hoglab.analysis.query.pipeline import compiled
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.statistics import StatisticsConfig
from hoglab.storage.event_store.dialects import Dialect
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
END = START + timedelta(days=1)
HOSTILE = [
    *(
        "a'b",
        'a"b',
        "a\\b",
        "a\\'b",
        "'; DROP TABLE events; --",
        "{v0:String}",
        "$v0",
        "a\nb\tc",
        "${x}",
        "?",
    ),
    *(
        "*",
        "a.b",
        "a/b~c",
        "~0~1",
        "$feature/exp-a",
        "ключ 🔑",
        " ",
        "%",
        "_",
        "a%b",
        "[0]",
        "{}",
        "NULL",
        "#",
    ),
]


def question(metric: dict[str, Any], project: int, **options: Any) -> Question:
    calculation = Calculation(
        start_date=START,
        feature_flag_key=options.pop("flag", "flag"),
        variants=options.pop("variants", ["control", "test"]),
        statistics=StatisticsConfig(),
        exposure_criteria={"filterTestAccounts": False, **options.pop("criteria", {})},
    )
    reader = MetricParser(lambda _identifier: None)
    exposures = reader.exposures(project, calculation, metric)
    return Question(exposures, Span(START, END, END), reader.metric(metric), **options)


def exposure(person: str, flag: str = "flag", variant: str = "control", **properties: Any) -> Event:
    shown = {"$feature_flag": flag, "$feature_flag_response": variant, **properties}
    return Event(person, START, "$feature_flag_called", shown)


def counting(**filter_: Any) -> dict[str, Any]:
    source = {"kind": "EventsNode", "event": "purchase", "properties": [{"type": "event", **filter_}]}
    return {"metric_type": "mean", "source": source}


@pytest.fixture(scope="module")
def project(engine: Engine) -> int:
    """Ann has bought once for each hostile text: as key, as value, and in the middle of a longer value."""
    events = [exposure("ann"), exposure("bob", variant="test")]
    for place, text in enumerate(HOSTILE):
        at = START + timedelta(minutes=place)
        events.append(Event("ann", at, "purchase", {text: "here", "value": text, "longer": f"<{text}>"}))
    engine.add(events, project_id=7)
    return 7


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_keys_and_values_are_found(engine: Engine, project: int, text: str) -> None:
    for filter_ in (
        {"key": text, "operator": "exact", "value": "here"},
        {"key": "value", "operator": "exact", "value": text},
        {"key": text, "operator": "is_set", "value": None},
    ):
        found = engine.computer.result(question(counting(**filter_), project)).groups["control"]
        assert found.sum == 1, filter_


@pytest.mark.parametrize("text", ["a\\b", "a\\'b", "a'b", "{v0:String}", "🔑"])
def test_a_backslash_in_a_pattern_is_itself(engine: Engine, project: int, text: str) -> None:
    for operator in ("icontains", "like"):
        value = text if operator == "icontains" else f"<%{text}%>"
        metric = counting(key="longer", operator=operator, value=value)
        assert engine.computer.result(question(metric, project)).groups["control"].sum == 1, operator


def test_hostile_names_of_events_flags_variants_and_breakdowns(engine: Engine) -> None:
    for place, text in enumerate(HOSTILE):
        project = 100 + place
        engine.add(
            [
                exposure("ann", text, text, **{text: "cell"}),
                Event("ann", START, text, {text: 5}),
                exposure("bob", text, "other"),
            ],
            project_id=project,
        )
        metric = {
            "metric_type": "mean",
            "source": {"kind": "EventsNode", "event": text, "math": "sum", "math_property": text},
            "breakdownFilter": {"breakdowns": [{"property": text, "type": "event"}]},
        }
        answer = engine.computer.result(question(metric, project, flag=text, variants=[text, "other"]))
        assert answer.cells[("cell",)][text].sum == 5, text


@pytest.mark.parametrize(
    ("expression", "cells"),
    [
        ("properties.plan", {"free": 2, "pro": 1, "$$_posthog_breakdown_null_$$": 1}),
        ("if(properties.plan = 'pro', 'paying', 'other')", {"paying": 1, "other": 3}),
        ("floor(properties.age / 10) * 10", {"20": 2, "30": 1, "$$_posthog_breakdown_null_$$": 1}),
        ("properties.age / 8", {"2.5": 1, "3.625": 1, "4": 1, "$$_posthog_breakdown_null_$$": 1}),
        ("properties.age >= 29", {"true": 2, "false": 2}),
        ("lower(person.properties.country)", {"at": 1, "$$_posthog_breakdown_null_$$": 3}),
    ],
)
def test_breakdowns_by_hogql_say_the_same(engine: Engine, expression: str, cells: dict[str, int]) -> None:
    project = 400 + abs(hash(expression)) % 10**6
    events = [
        exposure("ann", plan="free", age=20),
        exposure("bob", plan="free", age=29),
        exposure("cem", plan="pro", age=32),
        replace(exposure("dan"), person_properties={"country": "AT"}),
    ]
    engine.add(events, project_id=project)
    filter_ = {"breakdowns": [{"property": expression, "type": "hogql"}]}
    metric = {"metric_type": "mean", "source": {"event": "purchase"}, "breakdownFilter": filter_}
    answer = engine.computer.result(question(metric, project))
    assert {cell: groups["control"].number_of_samples for (cell,), groups in answer.cells.items()} == cells


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("properties.p = 7", 2),
        ("toFloat(properties.p) > 4", 2),
        ("properties.p != '7'", 6),
        ("properties.p = null", 1),
        ("not (properties.p < 5)", 7),
        ("properties.p not between 5 and 8", 6),
        ("properties.p = properties.q", 1),
        ("event = 'purchase' or nothing_else = 1 and false", None),
        ("lower(properties['p']) = 'ab' or properties.p = true", 2),
    ],
)
def test_conditions_in_hogql_mean_the_same(engine: Engine, condition: str, found: int | None) -> None:
    project = 700 + abs(hash(condition)) % 10**6
    events = [exposure("ann"), exposure("bob", variant="test")]
    values = [7, "7", 4, "ab", "a\nc", True, None, "2026-03-01T10:00:00+02:00"]
    events += [Event("ann", START, "purchase", {"p": each}) for each in values]
    engine.add(events, project_id=project)
    asked = question(counting(key=condition, type="hogql"), project)
    if found is None:
        with pytest.raises(DefinitionError, match=r"hogql: nothing_else cannot .* \(at character 23\)"):
            engine.computer.result(asked)
    else:
        assert engine.computer.result(asked).groups["control"].sum == found
        negated = question(counting(key=condition, type="hogql", negation=True), project)
        assert engine.computer.result(negated).groups["control"].sum == len(values) - found


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [
        *(("gt", 5, 2), ("lt", "5", 1), ("exact", 7, 2), ("exact", "7", 2), ("between", [6, 8], 2)),
        *(("is_date_after", "2026-01-01", 2), ("is_date_before", "2027-01-01", 5), ("regex", "^a.c$", 0)),
        *(("regex", "^[ab]+$", 1), ("not_icontains", "AB", 8), ("is_not_set", None, 1), ("exact", True, 1)),
    ],
)
def test_operators_mean_the_same(engine: Engine, operator: str, value: Any, found: int) -> None:
    values = [7, "7", 4, "ab", "a\nc", True, None, "2026-03-01T10:00:00+02:00", " 1772582400 "]
    project = 300 + abs(hash((operator, repr(value)))) % 10**6
    events = [exposure("ann"), exposure("bob", variant="test")]
    events += [Event("ann", START, "purchase", {"p": each}) for each in values]
    engine.add(events, project_id=project)
    metric = counting(key="p", operator=operator, value=value)
    assert engine.computer.result(question(metric, project)).groups["control"].sum == found


def test_people_of_a_cohort_are_bound(engine: Engine, project: int) -> None:
    metric = {
        "metric_type": "mean",
        "source": {
            "kind": "EventsNode",
            "event": "purchase",
            "properties": [{"type": "cohort", "key": "id", "value": 3}],
        },
    }
    for members, found in (((str(person_id("ann")),), len(HOSTILE)), ((str(person_id("bob")),), 0), ((), 0)):
        asked = question(metric, project, cohorts={3: CohortMembers(people=members)})
        assert engine.computer.result(asked).groups["control"].sum == found


@pytest.mark.parametrize("dialect", [EmbeddedDialect(), ClickHouse()])
def test_no_text_of_a_user_is_in_a_statement(dialect: Dialect) -> None:
    mark = "xq'zzy\\"
    condition = {"key": mark, "operator": "icontains", "value": mark, "type": "event"}
    source = {
        "kind": "EventsNode",
        "event": mark,
        "math": "sum",
        "math_property": mark,
        "properties": [condition, {**condition, "operator": "regex", "value": "xq'zzy"}],
    }
    metric = {
        "metric_type": "mean",
        "source": source,
        "breakdownFilter": {"breakdowns": [{"property": mark}]},
    }
    hogql = {**source, "math": "hogql", "math_hogql": r"sum(if(properties['xq\'zzy'] = 'xq\'zzy', 1, 0))"}
    for each in (metric, {**metric, "source": hogql}):
        statement = compiled(question(each, 1, flag=mark, variants=[mark]), dialect).statement
        assert "xq" not in statement.sql
        assert mark in statement.parameters.values()
