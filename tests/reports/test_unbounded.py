"""Intervals without a bound on a side, from the numbers to the wire, the verdict and every form of a report."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from math import inf
from typing import Any
from xml.etree.ElementTree import tostring

import pytest
from rich.console import Console

from hoglab.analysis.presentation import evidence_of, result_object
from hoglab.analysis.query import Answer
from hoglab.analysis.query.model import FunnelMeasure
from hoglab.analysis.results.judging import verdict_object
from hoglab.reports.files import document
from hoglab.reports.html import page
from hoglab.reports.plots import Bar, Curve, curves, forest
from hoglab.reports.report import ExperimentReport, metric_report
from hoglab.reports.terminal import report_lines
from hoglab.statistics import FrequentistConfig, Proportion, StatisticsConfig
from hoglab.statistics.numbers import effect_text, interval_text
from hoglab.statistics.verdict import Case, Evidence, Look, MetricEvidence, Plan, progress_at, verdict

SEQUENTIAL = StatisticsConfig(FrequentistConfig(sequential_testing_enabled=True))
BASELINE = Proportion(1000, 6)


def result(test: int) -> dict[str, Any]:
    answer = Answer({"control": BASELINE, "test": Proportion(1000, test)})
    return result_object(answer, ["control", "test"], SEQUENTIAL, FunnelMeasure(()))


def test_the_wire_has_null_and_the_reason() -> None:
    (row,) = result(60)["variant_results"]
    assert row["point_estimate"] == pytest.approx(9.0)
    low, high = row["confidence_interval"]
    assert 2 < low < 9
    assert high is None
    assert row["unbounded_reason"] == "baseline-near-zero"
    assert row["significant"] is True
    answer = Answer({"control": Proportion(1000, 300), "test": Proportion(1000, 350)})
    (bounded,) = result_object(answer, ["control", "test"], SEQUENTIAL, FunnelMeasure(()))["variant_results"]
    assert None not in bounded["confidence_interval"]
    assert bounded["unbounded_reason"] is None


def test_evidence_has_the_estimate_and_results_stored_before_have_the_middle() -> None:
    whole = result(60)
    (row,) = whole["variant_results"]
    found = evidence_of(row, SEQUENTIAL, "funnel", whole["baseline"])
    assert found.effect == pytest.approx(9.0)
    assert found.interval == (row["confidence_interval"][0], inf)
    assert found.problem is None
    assert found.is_unbounded
    assert found.largest_difference is None
    assert found.strength > 1
    before = {**row, "confidence_interval": [0.1, 0.3]}
    del before["point_estimate"]
    assert evidence_of(before, SEQUENTIAL, "funnel", whole["baseline"]).effect == pytest.approx(0.2)
    before["confidence_interval"] = [None, 0.3]
    assert evidence_of(before, SEQUENTIAL, "funnel", whole["baseline"]).interval is None


@pytest.mark.parametrize(("test", "state"), [(60, "better"), (10, "inconclusive")])
def test_a_verdict_says_it_and_is_json(test: int, state: str) -> None:
    whole = result(test)
    (row,) = whole["variant_results"]
    evidence = evidence_of(row, SEQUENTIAL, "funnel", whole["baseline"])
    progress = progress_at(Plan(people=100, days=1), SEQUENTIAL, Look(2000, 2))
    case = Case(
        SEQUENTIAL,
        "control",
        [MetricEvidence("u", "Sales", True, [evidence], is_share=True)],
        progress,
        has_ended=True,
        as_of=date(2026, 3, 1),
    )
    found = verdict_object(verdict(case))
    assert found["state"] == state
    json.dumps(found, allow_nan=False)
    assert found["metrics"][0]["variants"][0]["interval"][1] is None
    assert found["numbers"]["largest_difference"] is None
    said = "or more)" if state == "better" else "no bound on the difference on “Sales”"
    assert said in found["headline"]


def test_a_metric_with_bounds_is_still_told_beside_one_without() -> None:
    progress = progress_at(Plan(people=100, days=1), SEQUENTIAL, Look(2000, 2))
    metrics = [
        MetricEvidence(name, name, True, [Evidence("test", interval, estimate=0.1)])
        for name, interval in (("Sales", (-0.2, inf)), ("Visits", (-0.1, 0.2)))
    ]
    found = verdict(Case(SEQUENTIAL, "control", metrics, progress, has_ended=True))
    assert "“Visits” beyond ±20.0%" in found.headline
    assert "Sales" not in found.headline


def test_every_form_of_a_report_shows_it() -> None:
    whole = result(60)
    metric = metric_report(
        {"metric_type": "funnel", "uuid": "u"},
        "Sales",
        primary=True,
        config=SEQUENTIAL,
        result=whole,
        days={"2026-03-01": result(50), "2026-03-02": whole},
    )
    experiment = {
        "id": 1,
        "name": "n",
        "status": "running",
        "feature_flag_key": "f",
        "start_date": "2026-03-01",
        "end_date": None,
        "stats_config": {},
    }
    report = ExperimentReport(experiment, SEQUENTIAL, [], {}, (metric,), datetime(2026, 3, 2, tzinfo=UTC))
    text = page(report)
    assert " or more" in text
    assert "inf" not in text.partition("</style>")[2]
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(*report_lines(report))
    shown = captured.get()
    assert " or more" in shown
    assert "+900.0%" in shown
    assert "▶" in shown
    written = json.loads(json.dumps(document(report), allow_nan=False))
    _, row = written["rows"]
    assert row["interval_upper"] is None
    assert row["interval_lower"] > 2
    assert row["effect"] == pytest.approx(9.0)
    assert row["unbounded_reason"] == "baseline-near-zero"


def test_plots_end_at_their_edge_where_there_is_no_bound() -> None:
    drawn = tostring(
        forest([Bar("a", -inf, inf, 0.1, "no bounds"), Bar("b", 0.1, inf, 0.2, "x")], str), "unicode"
    )
    band = tostring(
        curves(["2026-03-01", "2026-03-02"], [Curve("a", [0.1, 0.2], [(-inf, 0.3), (0.1, inf)])], str, "x")
    )
    for svg in (drawn, band.decode()):
        assert "inf" not in svg
        assert "nan" not in svg


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((0.05, 0.1), "+5.0% … +10.0%"),
        ((0.05, inf), "+5.0% or more"),
        ((-inf, 0.1), "+10.0% or less"),
        ((-inf, inf), "no bounds"),
    ],
)
def test_an_interval_in_words(interval: tuple[float, float], text: str) -> None:
    assert interval_text(interval, relative=True) == text
    assert effect_text(interval[0] if abs(interval[0]) < inf else 0.0, relative=True) in ("+5.0%", "0%")
