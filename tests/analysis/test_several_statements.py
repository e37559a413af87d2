"""What takes several statements is told by both engines: shared scans, late events, merges of persons."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import pytest
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.test_emitters import START, exposure, question

from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.model import Question
from hoglab.analysis.query.shared_scan import EXPOSURE_TABLES, TABLE

PURCHASE = {"kind": "EventsNode", "event": "purchase"}
BIG = {"key": "size", "value": ["big", 7], "operator": "exact", "type": "event"}
LARGE = {"key": "amount", "value": 2, "operator": "gt", "type": "event"}
METRICS: list[dict[str, Any]] = [
    {"metric_type": "mean", "source": PURCHASE},
    {"metric_type": "mean", "source": {**PURCHASE, "math": "sum", "math_property": "amount"}},
    {"metric_type": "mean", "source": {**PURCHASE, "math": "dau", "properties": [BIG]}},
    {
        "metric_type": "mean",
        "source": {**PURCHASE, "math": "hogql", "math_hogql": "sum(properties.amount + 1)"},
    },
    {"metric_type": "mean", "source": {**PURCHASE, "properties": [LARGE]}, "upper_bound_percentile": 0.9},
    {
        "metric_type": "ratio",
        "numerator": {**PURCHASE, "math": "sum", "math_property": "amount"},
        "denominator": PURCHASE,
    },
    {"metric_type": "funnel", "series": [{**PURCHASE, "properties": [BIG]}, {**PURCHASE, "event": "paid"}]},
    {
        "metric_type": "quantile",
        "source": {**PURCHASE, "math": "sum", "math_property": "amount"},
        "quantile_level": 0.5,
    },
]


class Asked(list[str]):
    """The statements that an engine was asked."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        with engine.reader() as reader:
            asked = type(reader)
        execute: Any = asked.execute

        def noted(reader: Any, sql: str, *values: Any, **options: Any) -> Any:
            self.append(sql)
            return execute(reader, sql, *values, **options)

        monkeypatch.setattr(asked, "execute", noted)


def test_questions_share_a_look_at_the_events(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    project = 81
    events = []
    for number in range(40):
        name, at = f"person-{number}", START + timedelta(minutes=number)
        properties = {"amount": number % 5, "size": ("big", "small", 7)[number % 3]}
        events.append(exposure(name))
        events += [
            Event(name, at + timedelta(hours=hour), "purchase", properties) for hour in range(number % 4)
        ]
        events.append(Event(name, at + timedelta(hours=9), "paid"))
    engine.add(events, project_id=project)
    asked = [question(metric, project) for metric in METRICS]
    alone = [engine.computer.result(each) for each in asked]
    statements = Asked(engine, monkeypatch)
    with engine.computer.sharing(asked) as result:
        assert [result(each) for each in asked] == alone
    assert sum("resolved_events" in sql for sql in statements) == 2, (
        "for the tables of exposures and of events"
    )
    statements.clear()
    with engine.computer.sharing(asked) as result:
        result(asked[0])
    made = [sql.split("TABLE ", 1)[1].split()[0] for sql in statements if sql.startswith("CREATE ")]
    assert made == [*EXPOSURE_TABLES, TABLE], "they were gone after the first time"


def series(metric: dict[str, Any], project: int, days: int = 6) -> Question:
    found = question(metric, project)
    end = START + timedelta(days=days) - timedelta(seconds=1)
    span = replace(found.span, start=START, end=end, now=end, days=DayGrid.between(START, end, UTC))
    return replace(found, span=span)


def changed(computer: Computer, asked: Question, after: int) -> list[int]:
    """The days that are others for what came behind a log offset."""
    return sorted(computer.changes(asked, after, asked.span.end))


def test_late_events_tell_their_days(engine: Engine) -> None:
    project = 82
    asked = series({"metric_type": "mean", "source": {**PURCHASE, "properties": [BIG]}}, project)
    engine.add([exposure("ann")], project_id=project)
    before = engine.position()
    assert changed(engine.computer, asked, before) == []
    late = [
        Event("ann", START + timedelta(days=3, hours=1), "purchase", {"size": "big"}),
        Event("ann", START + timedelta(days=1, hours=1), "purchase", {"size": "small"}),
        Event("ann", START + timedelta(days=2, hours=1), "viewed", {"size": "big"}),
    ]
    engine.add(late, project_id=project)
    assert changed(engine.computer, asked, before) == [3]
    assert changed(engine.computer, asked, engine.position()) == []


@pytest.mark.parametrize("by_id", [False, True])
def test_merges_tell_the_days_from_which_on_they_matter(engine: Engine, by_id: bool) -> None:
    """When the second one did something; where the metric asks who somebody is, when the first one did."""
    project = 83 + by_id
    only = [{"type": "hogql", "key": "person_id != 'nobody'"}] if by_id else []
    asked = series({"metric_type": "mean", "source": {**PURCHASE, "properties": only}}, project)
    at = START + timedelta(days=2, hours=1)
    events = [
        exposure("ann"),
        Event("ann", START + timedelta(hours=5), "purchase"),
        Event("phone", at, "purchase"),
    ]
    engine.add([*events, exposure("bob"), Event("cy", at, "viewed")], project_id=project)
    before = engine.position()
    engine.add([], project_id=project, merges=[("cy", "bob")])
    others = [0] if by_id else []
    assert changed(engine.computer, asked, before) == others
    engine.add([], project_id=project, merges=[("phone", "ann")])
    assert changed(engine.computer, asked, before) == ([0] if by_id else [2])
    assert changed(engine.computer, asked, engine.position()) == []
