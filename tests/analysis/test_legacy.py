"""Results of the two metric kinds of the former engine, over the API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import Lab, exposed

from hoglab.statistics import FunnelVariant, TrendsVariant, legacy_result

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SIZES = {"control": 120, "test": 130}
BUYERS = {"control": 30, "test": 60}


def of(person: str, event: str, variant: str, at: datetime, **properties: Any) -> Event:
    return Event(person, at, event, {"$feature/checkout": variant, **properties})


def traffic() -> list[Event]:
    """Everybody sees the page, some buy twice for 5; an exposure by the flag's event for everybody."""
    events = []
    for variant, size in SIZES.items():
        for number in range(size):
            person = f"{variant}-{number}"
            events += [exposed(person, variant, START), of(person, "$pageview", variant, START + HOUR)]
            if number < BUYERS[variant]:
                for day in (0, 1):
                    at = START + 2 * HOUR + timedelta(days=day)
                    events.append(of(person, "purchase", variant, at, amount=5))
    return [*events, of("nobody", "purchase", "other", START), Event("nobody", START, "purchase")]


def query(lab: Lab, experiment: dict[str, Any], kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "experiment_id": experiment["id"], **fields}


PURCHASES = {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "purchase"}]}
REVENUE = {
    "kind": "TrendsQuery",
    "series": [{"kind": "EventsNode", "event": "purchase", "math": "avg", "math_property": "amount"}],
}
FUNNEL = {
    "kind": "FunnelsQuery",
    "series": [{"kind": "EventsNode", "event": name} for name in ("$pageview", "purchase")],
}


def test_trends_count_events_that_carry_the_variant(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(traffic())
    answer = lab.query(query(lab, experiment, "ExperimentTrendsQuery", count_query=PURCHASES))
    assert answer["variants"] == [
        {"key": "control", "count": 60, "exposure": 1, "absolute_exposure": 120},
        {"key": "test", "count": 120, "exposure": 130 / 120, "absolute_exposure": 130},
    ]
    expected = legacy_result(TrendsVariant("control", 60, 120), [TrendsVariant("test", 120, 130)])
    assert answer["probability"] == expected.probability
    assert answer["significance_code"] == str(expected.significance_code)
    assert answer["significant"] is expected.significant
    assert answer["p_value"] == expected.p_value
    assert answer["stats_version"] == 2
    assert answer["credible_intervals"] == {
        key: list(interval) for key, interval in expected.credible_intervals.items()
    }
    by_key = {series["breakdown_value"]: series for series in answer["insight"]}
    assert by_key["test"]["days"] == ["2026-03-08", "2026-03-09", "2026-03-10"]
    assert by_key["test"]["data"] == [60, 120, 120], "cumulative"


def test_any_math_of_a_trend_is_a_sum(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(traffic())
    answer = lab.query(query(lab, experiment, "ExperimentTrendsQuery", count_query=REVENUE))
    assert [row["count"] for row in answer["variants"]] == [300, 600]
    expected = legacy_result(
        TrendsVariant("control", 300, 120, summed=True), [TrendsVariant("test", 600, 130, summed=True)]
    )
    assert answer["probability"] == expected.probability


@pytest.mark.parametrize(("math", "exposures"), [("dau", [30, 60]), (None, [60, 120])])
def test_an_exposure_query_takes_the_place_of_the_flags_event(
    lab: Lab, math: str | None, exposures: list[int]
) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(traffic())
    seen = {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "purchase", "math": math}]}
    answer = lab.query(
        query(lab, experiment, "ExperimentTrendsQuery", count_query=PURCHASES, exposure_query=seen)
    )
    assert [row["absolute_exposure"] for row in answer["variants"]] == exposures


def test_funnels_count_people(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(traffic())
    answer = lab.query(query(lab, experiment, "ExperimentFunnelsQuery", funnels_query=FUNNEL))
    assert answer["variants"] == [
        {"key": "control", "success_count": 30, "failure_count": 90},
        {"key": "test", "success_count": 60, "failure_count": 70},
    ]
    expected = legacy_result(FunnelVariant("control", 30, 90), [FunnelVariant("test", 60, 70)])
    assert answer["probability"] == expected.probability
    assert answer["expected_loss"] == expected.p_value
    assert [step["count"] for step in answer["insight"][1]] == [130, 60]


def test_the_window_of_a_funnel_is_its_own(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send(traffic())
    narrow = {**FUNNEL, "funnelsFilter": {"funnelWindowInterval": 30, "funnelWindowIntervalUnit": "minute"}}
    answer = lab.query(query(lab, experiment, "ExperimentFunnelsQuery", funnels_query=narrow))
    assert [row["success_count"] for row in answer["variants"]] == [0, 0]


def test_without_data_it_says_what_is_missing(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("a", "test", START), of("a", "purchase", "test", START)])
    answer = lab.query(query(lab, experiment, "ExperimentTrendsQuery", count_query=PURCHASES), status=400)
    assert answer["code"] == "no-results"
    assert json.loads(answer["detail"]) == {
        "no-exposures": False,
        "no-control-variant": True,
        "no-test-variant": False,
    }


@pytest.mark.parametrize(
    ("kind", "fields", "detail"),
    [
        ("ExperimentTrendsQuery", {}, "count_query is required"),
        (
            "ExperimentFunnelsQuery",
            {"funnels_query": {}},
            "funnels_query.series must be a list of events or actions.",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(lab: Lab, kind: str, fields: dict[str, Any], detail: str) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    assert lab.query(query(lab, experiment, kind, **fields), status=400)["detail"] == detail
