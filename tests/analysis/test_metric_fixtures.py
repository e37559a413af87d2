"""One event log, many metrics: the numbers that every implementation has to agree on."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.engines import Engine
from tests.analysis.events import PROJECT, Event

from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.presentation import result_object
from hoglab.analysis.query.days import DayGrid, zone_of
from hoglab.analysis.query.model import Question, Span
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.statistics import StatisticsConfig

FIXTURES = json.loads((Path(__file__).parent / "metric_fixtures.json").read_text())
EXPERIMENT = FIXTURES["experiment"]
START, END = (datetime.fromisoformat(EXPERIMENT[f"{edge}_date"]) for edge in ("start", "end"))


@pytest.fixture(scope="module")
def computer(engine: Engine) -> Computer:
    events = [
        Event(
            event["person"], datetime.fromisoformat(event["timestamp"]), event["event"], event["properties"]
        )
        for event in FIXTURES["events"]
    ]
    engine.add(events, project_id=PROJECT)
    return engine.computer


def question(metric: dict[str, Any], options: dict[str, Any], *, days: bool = False) -> Question:
    zone = options.get("tz", EXPERIMENT["timezone"])
    calculation = Calculation(
        start_date=START,
        feature_flag_key=EXPERIMENT["feature_flag_key"],
        variants=EXPERIMENT["variants"],
        statistics=StatisticsConfig(),
        exposure_criteria={
            "filterTestAccounts": EXPERIMENT["filter_test_accounts"],
            "multiple_variant_handling": options.get("handling"),
        },
        timezone=zone,
    )
    reader = MetricParser(lambda _identifier: None)
    grid = DayGrid.between(START, END, zone_of(zone)) if days else None
    return Question(
        reader.exposures(PROJECT, calculation),
        Span(START, END, END, grid),
        reader.metric(metric),
        zone=zone,
    )


@pytest.mark.parametrize("case", FIXTURES["cases"], ids=lambda case: case["name"])
def test_statistics_are_exact(computer: Computer, case: dict[str, Any]) -> None:
    asked = question(case["metric"], case["options"])
    result = result_object(computer.result(asked), EXPERIMENT["variants"], StatisticsConfig(), asked.metric)
    rows = {row["key"]: row for row in (result["baseline"], *result["variant_results"])}
    for variant, expected in case["expected"].items():
        for name, number in expected.items():
            assert rows[variant][name] == pytest.approx(number, rel=1e-12), (variant, name)


@pytest.mark.parametrize("case", FIXTURES["cases"], ids=lambda case: case["name"])
def test_the_last_point_of_a_series_is_the_result(computer: Computer, case: dict[str, Any]) -> None:
    asked = question(case["metric"], case["options"], days=True)
    assert asked.span.days is not None
    last = asked.span.days.count - 1
    point = computer.points(asked, [last])[last]
    result = result_object(point, EXPERIMENT["variants"], StatisticsConfig(), asked.metric)
    rows = {row["key"]: row for row in (result["baseline"], *result["variant_results"])}
    for variant, expected in case["expected"].items():
        for name, number in expected.items():
            assert rows[variant][name] == pytest.approx(number, rel=1e-12), (variant, name)


def test_first_exposures_per_day(computer: Computer) -> None:
    asked = question(FIXTURES["cases"][0]["metric"], {}, days=True)
    grid = asked.span.days
    assert grid is not None
    found = {
        variant: {day.isoformat(): new for day, new in zip(grid.days, counts, strict=True) if new}
        for variant, counts in computer.exposures(asked).items()
    }
    assert found == FIXTURES["first_exposures_per_day_exclude"]


@pytest.mark.parametrize("case", FIXTURES["cases"], ids=lambda case: case["name"])
def test_what_single_entities_add_sums_up_to_the_result(computer: Computer, case: dict[str, Any]) -> None:
    asked = question(case["metric"], case["options"])
    everybody = replace(
        asked.exposures, variants=("all",), variant_property=None, flag_key=None, first_seen=True
    )
    asked = replace(asked, exposures=everybody)
    whole = computer.result(asked).groups.get("all")
    rows, statistics = computer.entities(asked, 1000)
    if whole is None:
        assert sum(row[0] for row in rows) == 0
        return
    assert sum(row[0] for row in rows) == whole.number_of_samples
    added = statistics([fsum(column) for column in zip(*rows, strict=True)])
    assert added.sums == pytest.approx(whole.sums, rel=1e-12)
    assert len(computer.entities(asked, 1)[0]) == 1
