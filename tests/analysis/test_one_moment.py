"""A verdict is about one moment and one set of people, and an experiment with an end has ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import BOUGHT_AGAIN, NOW, PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.analysis.results import gathering
from hoglab.analysis.results.exposures import ExposureCounts
from hoglab.analysis.results.gathering import ExperimentResults
from hoglab.analysis.results.health import ExperimentHealth

START = NOW - timedelta(days=9)
QUANTILE = {
    **REVENUE,
    "metric_type": "quantile",
    "name": "Typical amount",
    "quantile_level": 0.5,
    "ignore_zeros": True,
}


def history(people: int = 300, name: str = "p", *, equally_many: bool = False) -> Iterator[Event]:
    """Yield events of people of both variants; in test they pay more, more come back, and more or as many buy."""
    for variant, buyers in (("control", people // (2 if equally_many else 4)), ("test", people // 2)):
        for number in range(people):
            person = f"{name}-{variant}-{number}"
            yield exposed(person, variant, START)
            if number < buyers:
                amount = number % 20 + number / 1000 + (20 if variant == "test" else 5)
                yield bought(person, START + timedelta(minutes=1), amount)
                if number % 5 < (4 if variant == "test" else 2):
                    yield bought(person, START + timedelta(days=2), amount)


def ended(lab: Lab, metric: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return lab.experiment(
        start_date=START.isoformat(),
        end_date=(NOW - timedelta(days=1)).isoformat(),
        stats_config={"method": "frequentist"},
        metrics=[metric],
        running_time_calculation={"recommended_running_time": 7},
        **fields,
    )


def results(lab: Lab, experiment: dict[str, Any], **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok("GET", f"/experiments/{experiment['id']}/results/", params=query)
    return found


@pytest.mark.parametrize("matured", [False, True])
@pytest.mark.parametrize(
    "metric", [PURCHASES, REVENUE, QUANTILE, BOUGHT_AGAIN], ids=lambda each: each["name"]
)
def test_events_that_are_imported_after_the_end_are_judged_at_once(
    lab: Lab, metric: dict[str, Any], matured: bool
) -> None:
    # Metrics that count buyers alone are compared between as many of them.
    equally_many = metric in (QUANTILE, BOUGHT_AGAIN)
    experiment = ended(lab, metric, only_count_matured_users=matured)
    assert results(lab, experiment)["verdict"]["state"] == "invalid", "nobody was exposed"
    lab.send(history(equally_many=equally_many))
    found = results(lab, experiment)
    assert (found["status"], found["exposures"]["total_exposures"]["test"]) == ("complete", 300)
    assert found["metrics"][0]["result"]["baseline"]["number_of_samples"] > 0
    assert (found["verdict"]["state"], found["verdict"]["next_action"]["code"]) == ("better", "ship_variant")
    lab.send(history(name="q", equally_many=equally_many))
    again = results(lab, experiment)["metrics"][0]["result"]["baseline"]["number_of_samples"]
    assert again == 2 * found["metrics"][0]["result"]["baseline"]["number_of_samples"]


def test_an_answer_of_two_moments_is_being_refreshed_and_has_no_verdict(lab: Lab) -> None:
    experiment = ended(lab, PURCHASES)
    results(lab, experiment)
    lab.send(history())
    project = lab.accounts.project(1)
    assert project is not None
    exposures = ExposureCounts(lab.service)
    exposures.counted(lab.service.plan_of(project, experiment["id"]))
    health = ExperimentHealth(lab.service, exposures, lab.events)
    late = ExperimentResults(lab.service, exposures, health, budget_s=0)
    found = late.read(project, experiment["id"])
    assert found["exposures"]["total_exposures"]["test"] == 300
    assert found["status"] == "partial"
    assert experiment["metrics"][0]["uuid"] in found["pending"]
    assert found["metrics"][0]["status"] == "pending"
    assert found["verdict"] is None
    whole = ExperimentResults(lab.service, exposures, health, budget_s=60).read(project, experiment["id"])
    assert (whole["status"], whole["verdict"]["state"]) == ("complete", "better")


def test_a_few_more_people_are_no_other_moment(lab: Lab) -> None:
    """A busy experiment is not computed at each request: results may be a minute old."""
    experiment = lab.experiment(start_date=START.isoformat(), metrics=[PURCHASES])
    lab.send(history())
    results(lab, experiment)
    lab.send(exposed(f"late-{variant}", variant, START) for variant in ("control", "test"))
    found = results(lab, experiment)
    assert found["exposures"]["total_exposures"]["test"] == 301
    assert found["metrics"][0]["result"]["baseline"]["number_of_samples"] == 300
    assert found["verdict"] is not None


def test_a_metric_that_always_counts_other_people_is_not_computed_at_each_request(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it was computed after the exposures, to compute it again makes nothing alike."""
    experiment = lab.experiment(start_date=START.isoformat(), metrics=[PURCHASES])
    lab.send(history())
    results(lab, experiment)
    monkeypatch.setattr(gathering, "_is_alike", lambda _counts, _totals: False)
    refreshed: list[bool] = []
    refresh = lab.service.series.refresh

    def noted(*arguments: Any, force: bool) -> None:
        refreshed.append(force)
        refresh(*arguments, force=force)

    monkeypatch.setattr(lab.service.series, "refresh", noted)
    for _ in range(3):
        lab.now += timedelta(seconds=1)
        assert results(lab, experiment)["status"] == "complete"
    assert refreshed == [True], "by the first of these requests, for it was as old as the exposures"


# -- the end ---------------------------------------------------------------------------------------------------------


def test_an_end_in_the_future_is_refused(lab: Lab) -> None:
    future = (NOW + timedelta(days=3)).isoformat()
    body = {"name": "x", "feature_flag_key": "x", "start_date": START.isoformat(), "end_date": future}
    refused = lab.ok("POST", "/experiments/", body, status=400)
    assert (refused["attr"], "recommended_running_time" in refused["detail"]) == ("end_date", True)
    made = lab.experiment(start_date=START.isoformat())
    refused = lab.ok("PATCH", f"/experiments/{made['id']}/", {"end_date": future}, status=400)
    assert refused["attr"] == "end_date"
    soon = (NOW + timedelta(minutes=1)).isoformat()  # a clock that is a little fast
    assert lab.ok("PATCH", f"/experiments/{made['id']}/", {"end_date": soon})["status"] == "stopped"


def test_list_health_and_verdict_agree_on_the_end(lab: Lab) -> None:
    made = lab.experiment(
        start_date=START.isoformat(),
        metrics=[PURCHASES],
        running_time_calculation={"recommended_running_time": 30},
    )
    lab.send(history())
    assert results(lab, made)["verdict"]["state"] == "running"
    lab.ok("PATCH", f"/experiments/{made['id']}/", {"end_date": (NOW + timedelta(minutes=4)).isoformat()})
    assert [each["status"] for each in lab.ok("GET", "/experiments/")["results"]] == ["stopped"]
    said = results(lab, made)["verdict"]
    assert said["state"] == "inconclusive"
    assert said["headline"].startswith("Stopped too early to decide")


def test_nobody_matures_after_the_end(lab: Lab) -> None:
    """A result of an ended experiment does not grow by people whose window was open at its end."""
    window = {"conversion_window": 3, "conversion_window_unit": "day"}
    experiment = ended(lab, {**PURCHASES, **window}, only_count_matured_users=True)
    lab.send(history(100))
    lab.send(exposed(f"late-{variant}-{number}", variant, NOW - timedelta(days=2))
             for variant in ("control", "test") for number in range(50))  # fmt: skip
    for days in (0, 1, 5):
        lab.now = NOW + timedelta(days=days)
        found = results(lab, experiment, refresh="true")["metrics"][0]["result"]
        assert found["baseline"]["number_of_samples"] == 100
