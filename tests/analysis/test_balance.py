"""Metrics that leave people out: nothing is decided where a variant changes who is counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import BOUGHT_AGAIN, NOW, PURCHASES, REVENUE, Lab, bought, exposed

START = NOW - timedelta(days=9)
PEOPLE = 400
PER_ORDER = {
    "kind": "ExperimentMetric",
    "metric_type": "ratio",
    "name": "Revenue per order",
    "numerator": REVENUE["source"],
    "denominator": {"kind": "EventsNode", "event": "purchase"},
}
QUANTILE = {**REVENUE, "name": "Median order", "metric_type": "quantile", "quantile_level": 0.5}
PER_EVENT = {**QUANTILE, "quantile_unit": "event"}
BUYERS_ONLY = {**QUANTILE, "ignore_zeros": True}
LENGTH = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Session length",
    "source": {
        "kind": "EventsNode",
        "event": "purchase",
        "math": "avg",
        "math_property": "$session_duration",
    },
}


def crowd(starters: dict[str, int], returners: dict[str, int]) -> Iterator[Event]:
    """People who buy, of whom some buy again two days later; everybody was exposed."""
    for variant, buyers in starters.items():
        for number in range(PEOPLE):
            person = f"{variant}-{number}"
            yield exposed(person, variant, START)
            if number < buyers:
                at = START + timedelta(minutes=1)
                yield Event(
                    person, at, "purchase", {"amount": 5 + number * 0.37, "$session_id": f"s-{person}"}
                )
            if number < returners[variant]:
                yield bought(person, START + timedelta(days=2), 7 + number * 0.31)


def experiment(lab: Lab, **fields: Any) -> dict[str, Any]:
    given = {
        "start_date": START.isoformat(),
        "stats_config": {"method": "frequentist"},
        "running_time_calculation": {"recommended_running_time": 8},
    }
    return lab.experiment(**{**given, **fields})


def results(lab: Lab, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok("GET", f"/experiments/{made['id']}/results/", params={"refresh": "true"})
    assert found["status"] == "complete"
    return found


def imbalances(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in found["health"]["findings"] if each["code"] == "denominator_imbalance"]


def test_more_starters_who_return_less_are_no_loss(lab: Lab) -> None:
    """Twice as many begin, and of them fewer return: of all people 60 % more do. “Worse” would be wrong."""
    made = experiment(lab, metrics=[BOUGHT_AGAIN])
    lab.send(crowd({"control": 120, "test": 240}, {"control": 60, "test": 96}))
    found = results(lab, made)
    (row,) = found["metrics"][0]["result"]["variant_results"]
    assert row["point_estimate"] == pytest.approx(-0.2)
    said = found["verdict"]
    assert (said["state"], said["next_action"]["code"]) == ("invalid", "fix_metric")
    assert said["next_action"]["text"].startswith("Compare retention per exposed person")
    (finding,) = imbalances(found)
    assert finding["severity"] == "critical"
    assert "30.0% of “control” and 60.0% of “test” (p < 0.0001)" in finding["message"]
    assert finding["details"]["counted"] == {"control": 120, "test": 240}
    assert finding["details"]["exposed"] == {"control": PEOPLE, "test": PEOPLE}


@pytest.mark.parametrize(
    "metric", [BOUGHT_AGAIN, PER_ORDER, PER_EVENT, BUYERS_ONLY, LENGTH], ids=lambda m: m["name"]
)
@pytest.mark.parametrize("place", ["metrics", "metrics_secondary"])
def test_every_metric_that_leaves_people_out_is_watched(lab: Lab, metric: dict[str, Any], place: str) -> None:
    made = experiment(lab, **{"metrics": [PURCHASES], place: [metric]})
    lab.send(crowd({"control": 120, "test": 240}, {"control": 60, "test": 96}))
    found = results(lab, made)
    (finding,) = imbalances(found)
    assert finding["details"]["counted"] == {"control": 120, "test": 240}
    decided = {entry["name"]: entry["variants"][0]["decision"] for entry in found["verdict"]["metrics"]}
    assert decided[metric["name"]] == "withheld"
    assert found["verdict"]["withholds_decisions"] is (place == "metrics")


@pytest.mark.parametrize("metric", [PURCHASES, REVENUE, QUANTILE], ids=lambda m: m["name"])
def test_a_metric_that_counts_everybody_is_not(lab: Lab, metric: dict[str, Any]) -> None:
    made = experiment(lab, metrics=[metric])
    lab.send(crowd({"control": 120, "test": 240}, {"control": 60, "test": 96}))
    assert imbalances(results(lab, made)) == []


def test_as_many_starters_in_each_variant_are_no_finding(lab: Lab) -> None:
    made = experiment(lab, metrics=[BOUGHT_AGAIN, PER_ORDER])
    lab.send(crowd({"control": 130, "test": 150}, {"control": 60, "test": 80}))
    found = results(lab, made)
    assert imbalances(found) == []
    rows = [found["metrics"][1]["result"][name] for name in ("baseline", "variant_results")]
    assert (rows[0]["people_counted"], rows[1][0]["people_counted"]) == (130, 150)
