"""Designs that stop early, from events to the verdict: which moment decides, and by which bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, Lab, bought, exposed

from hoglab.reports.report import ExperimentReport
from hoglab.statistics import resolve_config

DAYS = 9
START = NOW.replace(hour=0) - timedelta(days=DAYS)
A_DAY = 200
"""New people of a variant on each day."""


def crowd(control: Sequence[int], test: Sequence[int]) -> Iterator[Event]:
    """Yield people of each day, of whom so many buy."""
    for variant, buyers in (("control", control), ("test", test)):
        for day, count in enumerate(buyers):
            moment = START + timedelta(days=day, hours=1)
            for number in range(A_DAY):
                person = f"{variant}-{day}-{number}"
                yield exposed(person, variant, moment)
                if number < count:
                    yield bought(person, moment + timedelta(minutes=1), 5)


def results(lab: Lab, design: dict[str, Any], *, people: int = 3200, **fields: Any) -> dict[str, Any]:
    experiment = lab.experiment(
        start_date=START.isoformat(),
        metrics=[PURCHASES],
        stats_config={"method": "frequentist", "frequentist": design},
        running_time_calculation={"recommended_sample_size": people, "minimum_detectable_effect": 20},
        **fields,
    )
    answer: dict[str, Any] = lab.ok(
        "GET", f"/experiments/{experiment['id']}/results/", params={"refresh": "1"}
    )
    return answer


GROUP = {"design": "group_sequential", "analyses": 4}


def codes(answer: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in answer["verdict"]["reasons"]}


def test_an_early_analysis_decides_for_good_and_by_its_own_numbers(lab: Lab) -> None:
    """Days 3 to 9 take the difference back; the analysis of day 2 of 8 has decided before."""
    lab.send(list(crowd([20] * 9, [50, 50, 0, 0, 0, 20, 20, 20, 20])))
    answer = results(lab, GROUP, people=3200)
    verdict = answer["verdict"]
    assert (verdict["state"], verdict["next_action"]["code"]) == ("better", "ship_variant")
    assert verdict["as_of"] == (START + timedelta(days=1)).date().isoformat()
    assert (verdict["numbers"]["analyses_done"], verdict["numbers"]["analyses_planned"]) == (1, 4)
    assert {"decided_at_analysis", "planned_analyses", "error_rates"} <= codes(answer)
    assert answer["statistics"]["design"] == "group_sequential"
    # The verdict's interval is wider than the one of a single look at the same numbers would be.
    (decided,) = verdict["metrics"][0]["variants"]
    assert decided["effect"] == pytest.approx(1.5)
    assert decided["interval"][0] < 0.6


def test_between_its_analyses_a_design_decides_nothing(lab: Lab) -> None:
    """A difference that any single look calls significant appears a day after the analysis at half of the plan."""
    lab.send(list(crowd([20] * 9, [20] * 8 + [100])))
    answer = results(lab, {**GROUP, "analyses": 2}, people=6400)
    verdict = answer["verdict"]
    (row,) = answer["metrics"][0]["result"]["variant_results"]
    assert row["significant"]
    assert (verdict["state"], verdict["next_action"]["code"]) == ("running", "keep_running")
    assert verdict["metrics"][0]["variants"][0]["decision"] == "early"
    assert (verdict["numbers"]["analyses_done"], verdict["numbers"]["analyses_planned"]) == (1, 2)
    assert "planned analyses" in verdict["next_action"]["text"]
    assert not verdict["reads_at_any_time"]


def test_the_last_analysis_is_at_the_planned_end(lab: Lab) -> None:
    lab.send(list(crowd([20] * 9, [21] * 9)))
    verdict = results(lab, GROUP)["verdict"]
    assert (verdict["state"], verdict["next_action"]["code"]) == ("inconclusive", "stop")
    assert verdict["as_of"] == (START + timedelta(days=7)).date().isoformat()
    assert verdict["numbers"]["analyses_done"] == 4


def test_an_early_analysis_needs_more_than_a_single_look(lab: Lab) -> None:
    """At the first of four analyses p = 0.007 is not enough, and at the last one it is."""
    lab.send(list(crowd([20, 20] + [20] * 7, [34, 34] + [20] * 7)))
    early = results(lab, GROUP)["verdict"]
    assert early["state"] == "inconclusive"
    single = results(lab, {}, people=800)["verdict"]
    assert single["state"] == "better"


def test_a_stop_between_analyses_decides_nothing(lab: Lab) -> None:
    lab.send(list(crowd([20] * 9, [20] * 8 + [100])))
    answer = results(lab, {**GROUP, "analyses": 2}, people=6400, end_date=NOW.isoformat())
    assert answer["verdict"]["state"] == "inconclusive"
    assert "stopped_early" in codes(answer)


def test_a_hybrid_design_may_be_read_on_any_day_until_its_end(lab: Lab) -> None:
    lab.send(list(crowd([20] * 9, [60] * 9)))
    answer = results(lab, {"design": "hybrid"}, people=100_000)
    assert answer["verdict"]["state"] == "better"
    assert answer["verdict"]["reads_at_any_time"]
    assert answer["verdict"]["as_of"] is None
    assert "hybrid" in codes(answer)


def test_a_hybrid_design_is_read_once_at_its_end(lab: Lab) -> None:
    """The sequential part does not see this difference on any day, and the test at the end does."""
    lab.send(list(crowd([20] * 8 + [20], [27] * 8 + [0])))
    ended = results(lab, {"design": "hybrid"})["verdict"]
    assert (ended["state"], ended["reads_at_any_time"]) == ("better", False)
    assert ended["as_of"] == (START + timedelta(days=7)).date().isoformat()
    ahead = results(lab, {"design": "hybrid"}, people=100_000)["verdict"]
    assert ahead["state"] == "running"


def test_reports_say_which_numbers_decide(lab: Lab) -> None:
    for design, words in (
        ("group_sequential", "planned analyses"),
        ("hybrid", "any time until the planned end"),
    ):
        config = resolve_config({"method": "frequentist", "frequentist": {"design": design}})
        report = ExperimentReport({}, config, (), {}, (), NOW)
        assert words in report.methods[0]


def test_a_plan_sets_where_a_sequential_test_is_sharpest(lab: Lab) -> None:
    """The same p-value as with the tuning parameter that the plan means: the people of two of three variants."""
    lab.send(list(crowd([20] * 9, [27] * 9)))
    sequential = {"sequential_testing_enabled": True}
    planned, written, default = (
        results(lab, {**sequential, **tuning}, people=people)["metrics"][0]["result"]["variant_results"][0]
        for tuning, people in (
            ({}, 20_000),
            ({"sequential_tuning_parameter": 20_000}, 700),
            ({"sequential_tuning_parameter": 5000}, 20_000),
        )
    )
    assert planned["p_value"] == written["p_value"] != default["p_value"]
