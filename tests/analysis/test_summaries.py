"""What a list of experiments says of their results: the verdict of the page, with its moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.lab import NOW, REVENUE, Lab, exposed
from tests.analysis.test_one_moment import START, history, results
from tests.waiting import PATIENCE_S

from hoglab.analysis.results import briefs

SHOWN = ("state", "headline", "next_action", "numbers", "withholds_decisions")


def running(lab: Lab, key: str = "checkout") -> dict[str, Any]:
    return lab.experiment(
        key,
        start_date=START.isoformat(),
        metrics=[REVENUE],
        running_time_calculation={"recommended_running_time": 7},
    )


def summary(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    (found,) = lab.ok("GET", "/experiments/results_summary/", params={"ids": str(experiment["id"])})
    assert isinstance(found, dict)
    return found


def fresh(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    """The summary, once what the first request asked for is computed."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := summary(lab, experiment))["is_fresh"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_a_list_says_what_the_page_says(lab: Lab) -> None:
    made = running(lab)
    lab.send(history())
    before = summary(lab, made)
    assert (before["is_fresh"], before["verdict"], before["people"]) == (False, None, None)
    after = fresh(lab, made)
    page = results(lab, made)
    assert after["verdict"] == {name: page["verdict"][name] for name in SHOWN}
    assert after["verdict"]["next_action"]["code"] == "ship_variant"
    assert after["people"] == sum(page["exposures"]["total_exposures"].values()) == 600
    assert after["metric"]["result"] == page["metrics"][0]["result"]
    assert after["as_of"].startswith(lab.now.isoformat()[:19])


def test_an_opened_page_is_what_the_list_says_from_then_on(lab: Lab) -> None:
    made = running(lab)
    lab.send(history())
    page = results(lab, made)
    found = summary(lab, made)
    assert found["is_fresh"]
    assert found["verdict"] == {name: page["verdict"][name] for name in SHOWN}


@pytest.mark.parametrize(
    ("age", "is_fresh"), [(briefs.FRESH_FOR - timedelta(seconds=1), True), (briefs.FRESH_FOR, False)]
)
def test_what_is_old_says_of_when_it_is_and_is_computed_again(
    lab: Lab, age: timedelta, is_fresh: bool
) -> None:
    made = running(lab)
    lab.send(history())
    first = fresh(lab, made)
    lab.send([exposed(f"late-{number}", "test", NOW - timedelta(hours=1)) for number in range(5)])
    lab.now += age
    found = summary(lab, made)
    assert (found["is_fresh"], found["people"], found["as_of"]) == (is_fresh, 600, first["as_of"])
    if not is_fresh:
        again = fresh(lab, made)
        assert again["people"] == 605
        assert again["as_of"] > first["as_of"]


def test_a_zero_is_not_believed_for_long(lab: Lab) -> None:
    """An experiment without people is a fault that somebody would look for."""
    made = running(lab)
    assert fresh(lab, made)["people"] == 0
    lab.send(history())
    lab.now += briefs.FRESH_EMPTY_FOR
    assert not summary(lab, made)["is_fresh"]
    assert fresh(lab, made)["people"] == 600


@pytest.mark.parametrize(
    "change",
    [
        lambda lab, path: lab.ok(
            "PATCH", path, {"running_time_calculation": {"recommended_running_time": 90}}
        ),
        lambda lab, path: lab.ok("POST", f"{path}end/"),
    ],
    ids=["plan", "end"],
)
def test_a_change_of_the_experiment_makes_its_verdict_void(
    lab: Lab, change: Callable[[Lab, str], object]
) -> None:
    made = running(lab)
    lab.send(history())
    assert fresh(lab, made)["verdict"]["next_action"]["code"] == "ship_variant"
    lab.now += timedelta(seconds=1)
    change(lab, f"/experiments/{made['id']}/")
    assert summary(lab, made)["verdict"] is None
    page = results(lab, made)["verdict"]
    assert fresh(lab, made)["verdict"] == {name: page[name] for name in SHOWN}


def test_a_draft_has_nothing_to_wait_for(lab: Lab) -> None:
    made = lab.experiment(metrics=[REVENUE], start_date=None)
    found = summary(lab, made)
    assert (found["is_fresh"], found["people"], found["as_of"], found["verdict"]) == (True, None, None, None)


def test_many_wait_and_none_is_forgotten(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round computes what it can; the rest waits for the next request."""
    monkeypatch.setattr(briefs, "ROUND_S", 0.0)
    monkeypatch.setattr(briefs, "MAX_WAITING", 2)
    made = [running(lab, f"flag-{number}") for number in range(3)]
    lab.send(history())
    ids = ",".join(str(experiment["id"]) for experiment in made)

    def asked() -> list[bool]:
        return [
            found["is_fresh"] for found in lab.ok("GET", "/experiments/results_summary/", params={"ids": ids})
        ]

    assert asked() == [False] * 3
    monkeypatch.setattr(briefs, "ROUND_S", PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not all(asked()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_verdicts_unused_for_longest_are_dropped(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(briefs, "MAX_BRIEFS", 2)
    experiments = [running(lab, f"checkout-{number}") for number in range(3)]
    lab.send(history())
    for experiment in experiments:
        results(lab, experiment)
    assert [summary(lab, experiment)["is_fresh"] for experiment in experiments[1:]] == [True, True]
    assert summary(lab, experiments[0])["is_fresh"] is False
