"""The planned end of an experiment: who plans it, and which people count. From the event to the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import BOUGHT_AGAIN, NOW, PURCHASES, Lab, bought, exposed

START = NOW - timedelta(days=16)
METHODS = [{"method": "frequentist"}, {"method": "bayesian"}]
WINDOW = {"conversion_window": 7, "conversion_window_unit": "day"}


def crowd(day: int, people: int, buyers: dict[str, int]) -> Iterator[Event]:
    """People of both variants who come on one day, and how many of them buy."""
    at = START + timedelta(days=day, minutes=5)
    for variant, count in buyers.items():
        for number in range(people):
            person = f"{day}-{variant}-{number}"
            yield exposed(person, variant, at)
            if number < count:
                yield bought(person, at + timedelta(minutes=1), 5)


def verdict(lab: Lab, **fields: Any) -> dict[str, Any]:
    given = {"start_date": START.isoformat(), "metrics": [PURCHASES], **fields}
    made = lab.experiment(**given)
    answer = lab.ok("GET", f"/experiments/{made['id']}/results/", params={"refresh": "true"})
    said: dict[str, Any] = answer["verdict"]
    return said


def codes(said: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in said["reasons"]}


@pytest.mark.parametrize("config", METHODS)
@pytest.mark.parametrize(
    ("buyers", "state", "action"),
    [
        ({"control": 3600, "test": 3606}, "running", "write_plan"),
        ({"control": 3600, "test": 3800}, "better", "ship_variant"),
    ],
)
def test_a_plan_that_nobody_wrote_never_stops_an_experiment(
    lab: Lab, config: dict[str, Any], buyers: dict[str, int], state: str, action: str
) -> None:
    lab.send(crowd(0, 4000, buyers))
    said = verdict(lab, stats_config=config)
    assert (said["numbers"]["plan_source"], said["numbers"]["days_needed"]) == ("default", 14)
    assert (said["state"], said["next_action"]["code"]) == (state, action)
    assert "default_plan" in codes(said)
    if state == "running":
        assert said["headline"].startswith("Nothing is clear yet: no difference on “Purchase rate” beyond ±")


@pytest.mark.parametrize(
    "plan", [{"recommended_running_time": 14}, {"recommended_sample_size": 8000}, {"minimum_detectable_effect": 9}]
)  # fmt: skip
def test_a_plan_that_somebody_wrote_does(lab: Lab, plan: dict[str, Any]) -> None:
    lab.send(crowd(0, 4000, {"control": 3600, "test": 3606}))
    said = verdict(lab, stats_config=METHODS[0], running_time_calculation=plan)
    assert (said["state"], said["next_action"]["code"]) == ("inconclusive", "stop")
    assert "default_plan" not in codes(said)


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"metrics": [{**PURCHASES, **WINDOW}], "only_count_matured_users": True}, 400),
        ({"metrics": [BOUGHT_AGAIN]}, 2 * (60 + 90)),
        ({"metrics": [PURCHASES, BOUGHT_AGAIN]}, 2 * (60 + 90)),
        ({"metrics": [PURCHASES], "metrics_secondary": [BOUGHT_AGAIN]}, 1000),
    ],
    ids=["matured", "starters", "the slowest", "a secondary metric"],
)
def test_the_plan_counts_the_people_whom_the_metric_counts(
    lab: Lab, fields: dict[str, Any], counted: int
) -> None:
    """A thousand people were exposed, half of what is enough to reach a plan of 900 people too early."""
    lab.send(crowd(0, 200, {"control": 60, "test": 60}))
    lab.send(crowd(12, 300, {"control": 90, "test": 90}))
    plan = {"recommended_sample_size": 900, "recommended_running_time": 14}
    said = verdict(lab, stats_config=METHODS[0], running_time_calculation=plan, **fields)
    assert said["numbers"]["people"] == counted
    is_reached = counted >= 900
    assert (said["state"] == "running") is not is_reached
    assert ("people_not_counted_yet" in codes(said)) is not is_reached
    if not is_reached:
        assert f"{counted:,} of 900 people" in said["headline"]
