"""Why there are no statistics, and which metrics are refused: in plain words, from the event to the verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.reports.html import page
from hoglab.reports.report import ExperimentReport, metric_report
from hoglab.reports.terminal import report_lines
from hoglab.statistics import REFUSAL_WORDS, StatisticsRefusal, resolve_config

START = NOW - timedelta(days=9)
PEOPLE = 80
BAYESIAN, FREQUENTIST = {"method": "bayesian"}, {"method": "frequentist"}
RATIO = {
    "kind": "ExperimentMetric",
    "metric_type": "ratio",
    "name": "Per visit",
    "numerator": {"kind": "EventsNode", "event": "purchase"},
    "denominator": {"kind": "EventsNode", "event": "visit"},
}
RETENTION = {
    "kind": "ExperimentMetric",
    "metric_type": "retention",
    "name": "Came back",
    "start_event": {"kind": "EventsNode", "event": "visit"},
    "completion_event": {"kind": "EventsNode", "event": "visit"},
    "retention_window_start": 1,
    "retention_window_end": 7,
    "retention_window_unit": "day",
    "start_handling": "first_seen",
}


def amounts(amount_of: Callable[[int], float | None]) -> Iterator[Event]:
    for variant in ("control", "test"):
        for number in range(PEOPLE):
            person = f"{variant}-{number}"
            yield exposed(person, variant, START)
            amount = amount_of(number)
            if amount is not None:
                yield bought(person, START + timedelta(minutes=1), amount)


@pytest.mark.parametrize(
    ("config", "metric", "amount_of", "refusal"),
    [
        (BAYESIAN, REVENUE, lambda number: -2 - number % 3, "baseline-mean-not-positive"),
        (FREQUENTIST, RATIO, lambda _number: 5, "denominator-is-zero"),
        (BAYESIAN, REVENUE, lambda _number: 5, "no-variance"),
        (FREQUENTIST, REVENUE, lambda _number: 5, "no-variance"),
        (BAYESIAN, PURCHASES, lambda number: 5 if number < PEOPLE - 2 else None, "too-few-conversions"),
        (BAYESIAN, REVENUE, lambda number: 1e16 if number == 1 else 3, "out-of-range"),
        (FREQUENTIST, REVENUE, lambda _number: None, "invalid-baseline"),
    ],
)
def test_the_reason_reaches_the_api_the_verdict_the_terminal_and_the_page(
    lab: Lab, config: dict[str, Any], metric: dict[str, Any], amount_of: Callable[[int], float | None], refusal: str
) -> None:  # fmt: skip
    made = lab.experiment(
        start_date=START.isoformat(),
        stats_config=config,
        metrics=[metric],
        running_time_calculation={"recommended_running_time": 8},
    )
    lab.send(amounts(amount_of))
    found = lab.ok("GET", f"/experiments/{made['id']}/results/")
    (row,) = found["metrics"][0]["result"]["variant_results"]
    assert (row["refusal"], row["significant"]) == (refusal, None)
    problem = row["problem"]
    assert problem == (
        "baseline: its value is zero, so there is no relative change"
        if refusal == "invalid-baseline"
        else REFUSAL_WORDS[StatisticsRefusal(refusal)]
    )
    (decision,) = found["verdict"]["metrics"][0]["variants"]
    assert (decision["decision"], decision["problem"]) == ("missing", problem)
    text = f"“{metric['name']}” has no statistics for “test”: {problem}."
    assert text in [reason["text"] for reason in found["verdict"]["reasons"]]
    settings = resolve_config(config)
    shown = metric_report(
        made["metrics"][0],
        metric["name"],
        primary=True,
        config=settings,
        result=found["metrics"][0]["result"],
    )
    report = ExperimentReport(
        made, settings, found["health"]["findings"], found["exposures"], (shown,), NOW, found["verdict"]
    )
    console = Console(width=400, force_terminal=False, record=True)
    console.print(*report_lines(report))
    assert console.export_text().count(problem) == 2, "in the table and in the verdict"
    assert page(report).count(problem) == 2


def test_every_refusal_has_words() -> None:
    assert set(REFUSAL_WORDS) == set(StatisticsRefusal)


# -- definitions that mean something else ----------------------------------------------------------------------------


def meaningless() -> Iterator[tuple[dict[str, Any], str]]:
    """Metrics with one part that nobody means, and the place of that part."""
    rng = random.Random(5)
    for metric in (REVENUE, PURCHASES, RATIO, RETENTION):
        for length in (0, -1, -rng.randrange(2, 99)):
            yield (
                {**metric, "conversion_window": length, "conversion_window_unit": "day"},
                "conversion_window",
            )
        yield {**metric, "conversion_window": 7}, "conversion_window_unit"
    for _ in range(4):
        last = rng.randrange(0, 30)
        window = {"retention_window_start": last + rng.randrange(1, 9), "retention_window_end": last}
        yield {**RETENTION, **window}, "retention_window_end"
        yield {**RETENTION, "retention_window_start": -rng.randrange(1, 9)}, "retention_window_start"
        low = rng.uniform(0.01, 0.9)
        bounds = [
            ({"lower_bound_percentile": low, "upper_bound_percentile": low}, "upper_bound_percentile"),
            (
                {"lower_bound_percentile": low, "upper_bound_percentile": low * rng.random()},
                "upper_bound_percentile",
            ),
            ({"upper_bound_percentile": 0}, "upper_bound_percentile"),
            ({"lower_bound_percentile": 1}, "lower_bound_percentile"),
        ]
        for handling, place in bounds:
            yield {**REVENUE, **handling}, place
            for side in ("numerator", "denominator"):
                yield {**RATIO, f"{side}_outlier_handling": handling}, f"{side}_outlier_handling.{place}"


def test_a_metric_that_means_something_else_is_refused_with_its_place(lab: Lab) -> None:
    made = lab.experiment(metrics=[REVENUE])
    for metric, place in meaningless():
        for method, path, body in (
            ("POST", "/experiments/", {"name": "x", "feature_flag_key": "x", "metrics": [metric]}),
            ("PATCH", f"/experiments/{made['id']}/", {"metrics_secondary": [metric]}),
            ("POST", "/experiment_saved_metrics/", {"name": "Shared", "query": metric}),
        ):
            refused = lab.ok(method, path, body, status=400)
            assert f"{place}: " in refused["detail"], (refused, metric)
    assert lab.ok("GET", f"/experiments/{made['id']}/")["metrics_secondary"] == []


def test_a_stored_metric_that_means_something_else_is_warned_of(lab: Lab) -> None:
    """It was stored by an older release, or by PostHog, and goes on counting as it did."""
    wrong = {**REVENUE, "conversion_window": 0, "conversion_window_unit": "day", "upper_bound_percentile": 0}
    made = lab.store_metrics(lab.experiment(start_date=START.isoformat()), [wrong])
    findings = lab.ok("GET", f"/experiments/{made['id']}/health/")["findings"]
    attrs = [each["details"].get("attr") for each in findings]
    assert [attr for attr in attrs if attr] == [
        "metrics__0__conversion_window",
        "metrics__0__upper_bound_percentile",
    ]


@pytest.mark.parametrize(
    "metric",
    [
        {**RETENTION, "retention_window_start": 7},
        {**RETENTION, "retention_window_start": 0, "retention_window_end": 0},
        {**REVENUE, "lower_bound_percentile": 0, "upper_bound_percentile": 1},
        {**REVENUE, "lower_bound_percentile": 0.1, "upper_bound_percentile": 0.9},
        {**REVENUE, "conversion_window": None, "conversion_window_unit": "day"},
        {**REVENUE, "conversion_window": 1, "conversion_window_unit": "second"},
    ],
)
def test_what_means_what_it_says_is_saved(lab: Lab, metric: dict[str, Any]) -> None:
    lab.experiment(metrics=[metric])
