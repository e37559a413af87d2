"""Numbers as events have them, and days of time zones with unusual clocks: both engines against plain Python."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.analysis import oracle
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import Bench, assert_same, retention
from tests.analysis.test_emitters import START, exposure, question

NUMBERS: list[tuple[Any, float]] = [
    *((0, 0), (-0.0, 0), (7, 7), (-2.5, -2.5), (0.1, 0.1), (5e-324, 5e-324), (1e99, 1e99), (-1e100, -1e100)),
    *(
        (2**53, 2.0**53),
        (2**53 + 1, 2.0**53),
        (2**63, 2.0**63),
        (-(2**63) - 1, -(2.0**63)),
        (2**64 + 1, 2.0**64),
    ),
    *((10**30, 1e30), (-(10**30), -1e30), (10**101, 0), (1.0000001e100, 0), (1e300, 0)),
    *(
        ("1e3", 1000),
        ("1E5", 1e5),
        ("1e+2", 100),
        ("1.e2", 100),
        ("+5", 5),
        ("-.5", -0.5),
        ("7.", 7),
        ("-0", 0),
    ),
    *(("0.1", 0.1), ("007", 7), ("9007199254740993", 2.0**53), ("1e-400", 0), ("1e400", 0), ("1e101", 0)),
    *(
        (text, 0)
        for text in ("", " 7", "7 ", "\n5", "5\n", "NaN", "nan", "inf", "-Infinity", "0x10", "1,000")
    ),
    *(
        (text, 0)
        for text in ("1_000", "--1", "+-1", ".", "-", "e5", "1e", "1e+", "1.2.3", "٣", "７", "1²", "true")
    ),
    *((True, 0), (False, 0), (None, 0), ([], 0), ([5], 0), ({}, 0), ({"a": {"b": [1, 2]}}, 0)),
]


@pytest.mark.parametrize("math", ["sum", "avg", "min", "max", "hogql", "quantile"])
def test_what_is_a_number(engine: Engine, math: str) -> None:
    """One person for each value, told apart by a property of their exposure."""
    project = 30 + ["sum", "avg", "min", "max", "hogql", "quantile"].index(math)
    events = [exposure("nobody", variant="test", place="none")]
    for place, (value, _) in enumerate(NUMBERS):
        events += [
            exposure(f"p{place}", place=str(place)),
            Event(f"p{place}", START, "purchase", {"x": value}),
        ]
    engine.add(events, project_id=project)
    asked = {"math": math, "math_property": "x"}
    if math in ("hogql", "quantile"):
        inner = "toFloat(properties.x)"
        asked = {
            "math": "hogql",
            "math_hogql": f"sum({inner})" if math == "hogql" else f"quantile(0.9)({inner})",
        }
    metric = {
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "purchase", **asked},
        "breakdownFilter": {"breakdowns": [{"property": "place"}]},
    }
    found = engine.computer.result(question(metric, project)).cells
    shown = {value[0]: groups["control"].sum for value, groups in found.items() if "control" in groups}
    assert shown == {str(place): number for place, (_, number) in enumerate(NUMBERS)}


ZONES = [
    ("America/Sao_Paulo", datetime(2018, 11, 2, tzinfo=UTC)),  # a day that begins at one o'clock
    ("America/Sao_Paulo", datetime(2018, 2, 16, tzinfo=UTC)),  # a day that has its last hour twice
    ("Australia/Lord_Howe", datetime(2026, 4, 3, tzinfo=UTC)),  # half an hour
    ("Australia/Lord_Howe", datetime(2026, 10, 2, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2026, 3, 27, tzinfo=UTC)),  # 5:45 from UTC
    ("America/St_Johns", datetime(2006, 10, 27, tzinfo=UTC)),  # a minute after midnight
    ("Africa/Casablanca", datetime(2026, 2, 13, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 28, tzinfo=UTC)),  # without the 30th
    ("America/Caracas", datetime(2016, 4, 29, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 27, tzinfo=UTC)),  # two hours
]


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    return Bench(engine)


@pytest.mark.parametrize(("zone", "start"), ZONES)
def test_days_of_odd_clocks(bench: Bench, zone: str, start: datetime) -> None:
    """Somebody new comes every half hour and a moment before it; they are back a day, or nearly one, later."""
    step, micro = timedelta(minutes=30), timedelta(microseconds=1)
    events = []
    for place in range(4 * 48 * 2):
        moment = start + place // 2 * step - place % 2 * micro
        shown = {"$feature_flag": "flag", "$feature_flag_response": ("control", "test")[place % 3 == 0]}
        back = moment + timedelta(days=1) + (place % 5 - 2) * step
        events += [
            Event(f"p{place}", moment, "$feature_flag_called", shown),
            Event(f"p{place}", moment, "purchase"),
            Event(f"p{place}", back, "purchase"),
        ]
    events = [replace(event, uuid=UUID(int=place)) for place, event in enumerate(events, 1)]
    end = start + timedelta(days=4)
    setting = Setting(start, end, now=end, zone=zone)
    for metric in (retention(1, 1, "day"), retention(23, 24, "hour")):
        asked = bench.ask(setting, events, metric)
        found = bench.computer.result(asked)
        assert_same(found.groups, oracle.statistics(setting, events, metric), str(metric))
    grid = asked.span.days
    assert grid is not None
    found = {
        variant: {day.isoformat(): new for day, new in zip(grid.days, counts, strict=True) if new}
        for variant, counts in bench.computer.exposures(asked).items()
    }
    assert found == oracle.new_exposures(setting, events)
