"""The server looks for harm by itself: from events to the alarm that functions hear, and the pause if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.lab import NOW, PURCHASES, Lab
from tests.analysis.test_harm import START, crowd, launched

from hoglab.accounts import internal_events
from hoglab.analysis.results import ExperimentResults, HarmWatch
from hoglab.analysis.results.harm_watch import JOB, LEAST_WAIT, LONGEST_WAIT, is_due
from hoglab.experiments import store
from hoglab.storage.job_leases import JobName

FREQUENTIST = {"method": "frequentist"}


def watch(lab: Lab) -> HarmWatch:
    results = ExperimentResults.of(lab.service, lab.events, budget_s=None)
    return HarmWatch(lab.service, results, lab.experiments.linkage)


def heard(lab: Lab) -> list[Any]:
    """The events of harm and pauses since the last time, as functions hear them."""
    with lab.database.write() as tx:
        events = internal_events.waiting(tx.connection, 1000)
        internal_events.forget(tx, events)
    return [event for event in events if event.event in ("$experiment_harm", "$experiment_paused")]


def is_active(lab: Lab, experiment: dict[str, Any]) -> bool:
    return bool(lab.ok("GET", f"/experiments/{experiment['id']}/")["feature_flag"]["active"])


def test_the_alarm_is_raised_once_and_names_variant_rate_and_advice(lab: Lab) -> None:
    made = launched(lab, FREQUENTIST, "control", "test")
    lab.send(crowd({"control": 140, "test": 18}))
    assert watch(lab).run_once() == 1
    [event] = heard(lab)
    assert event.event == "$experiment_harm"
    assert event.person is None
    said = event.properties
    assert (said["experiment_id"], said["variants"], said["error_rate"]) == (made["id"], ["test"], 0.01)
    assert said["headline"].startswith("“test” does harm: “Purchase rate”: -87.1%")
    assert said["next_action"].startswith("Stop now")
    assert (said["paused"], is_active(lab, made)) == (False, True)
    with lab.database.read() as connection:
        entries, _ = activity_of(connection, made["id"])
    assert entries[0]["is_system"]
    assert entries[0]["detail"]["changes"][0]["after"] == "test"
    lab.now += LONGEST_WAIT
    assert watch(lab).run_once() == 0  # another watch, as after a restart
    assert heard(lab) == []


def activity_of(connection: Any, experiment_id: int) -> tuple[list[dict[str, Any]], int]:
    from hoglab.accounts import activity

    return activity.entries(
        connection, 1, limit=10, offset=0, scopes=["Experiment"], item_id=str(experiment_id)
    )


def test_a_further_harmful_variant_is_told_of_too(lab: Lab) -> None:
    launched(lab, FREQUENTIST, "control", "good", "bad")
    lab.send(crowd({"control": 140, "good": 150, "bad": 20}))
    assert watch(lab).run_once() == 1
    assert [event.properties["variants"] for event in heard(lab)] == [["bad"]]
    lab.send(crowd({"control": 0, "good": 0, "bad": 0}))  # sent again: nothing new
    lab.now += LONGEST_WAIT
    assert watch(lab).run_once() == 0


def test_the_flag_is_switched_off_where_the_experiment_asks_for_that(lab: Lab) -> None:
    shares = [{"key": key, "rollout_percentage": 50} for key in ("control", "test")]
    made = launched(
        lab,
        FREQUENTIST,
        "control",
        "test",
        parameters={"feature_flag_variants": shares, "pause_on_harm": True},
    )
    lab.send(crowd({"control": 140, "test": 18}))
    assert watch(lab).run_once() == 1
    assert [event.event for event in heard(lab)] == ["$experiment_harm", "$experiment_paused"]
    assert not is_active(lab, made)
    lab.ok("POST", f"/experiments/{made['id']}/resume/", {})
    lab.now += LONGEST_WAIT
    assert watch(lab).run_once() == 0
    assert is_active(lab, made)  # somebody resumed it on purpose, and knows


def test_a_setting_that_is_no_yes_or_no_is_refused(lab: Lab) -> None:
    body = {"name": "x", "feature_flag_key": "x", "parameters": {"pause_on_harm": "yes"}}
    answer = lab.call("POST", "/experiments/", body)
    assert (answer.status_code, answer.json()["attr"]) == (400, "parameters")


@pytest.mark.parametrize("test", [108, 150])
def test_noise_and_gains_raise_no_alarm(lab: Lab, test: int) -> None:
    launched(lab, FREQUENTIST, "control", "test")
    lab.send(crowd({"control": 140, "test": test}))
    assert watch(lab).run_once() == 0
    assert heard(lab) == []


def ended(lab: Lab, made: dict[str, Any]) -> None:
    lab.ok("POST", f"/experiments/{made['id']}/end/", {})


def paused(lab: Lab, made: dict[str, Any]) -> None:
    lab.ok("POST", f"/experiments/{made['id']}/pause/", {})


def deleted(lab: Lab, made: dict[str, Any]) -> None:
    lab.ok("PATCH", f"/experiments/{made['id']}/", {"deleted": True})


@pytest.mark.parametrize("change", [ended, paused, deleted])
def test_experiments_that_show_no_variant_are_left_alone(lab: Lab, change: Any) -> None:
    made = launched(lab, FREQUENTIST, "control", "test")
    lab.send(crowd({"control": 140, "test": 18}))
    change(lab, made)
    heard(lab)
    assert watch(lab).run_once() == 0
    assert heard(lab) == []


def test_a_new_launch_is_told_of_again(lab: Lab) -> None:
    made = launched(lab, FREQUENTIST, "control", "test")
    lab.send(crowd({"control": 140, "test": 18}))
    assert watch(lab).run_once() == 1
    lab.ok("POST", f"/experiments/{made['id']}/reset/", {})
    lab.ok("PATCH", f"/experiments/{made['id']}/", {"start_date": START.isoformat()})
    assert watch(lab).run_once() == 1


@pytest.fixture
def beside(lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    other = Lab(tmp_path, beside=lab)
    yield other
    other.close()


def test_of_two_processes_one_looks(lab: Lab, beside: Lab) -> None:
    made = launched(lab, FREQUENTIST, "control", "test")
    lab.send(crowd({"control": 140, "test": 18}))
    with lab.service.jobs.claimed(JobName(JOB, str(made["id"]))):
        assert watch(beside).run_once() == 0  # somebody is at it
    assert [watch(beside).run_once(), watch(lab).run_once()] == [1, 0]
    assert len(heard(lab)) == 1


def test_an_experiment_is_looked_at_when_it_is_a_tenth_older(lab: Lab) -> None:
    made = lab.experiment(start_date=(NOW - timedelta(hours=1)).isoformat(), metrics=[PURCHASES])
    with lab.database.read() as connection:
        row = store.get(connection, 1, made["id"])
    assert row is not None
    assert row.start_date is not None
    looks, moment = [], row.start_date
    while moment < row.start_date + timedelta(days=30):
        moment += timedelta(minutes=30)
        if is_due(row, moment):
            looks.append(moment)
            row = replace(row, watched_at=moment)
    waits = [later - earlier for earlier, later in pairwise([made_at(row), *looks])]
    assert (waits[0], waits[-1]) == (LEAST_WAIT, LONGEST_WAIT)
    assert waits == sorted(waits)
    assert len(looks) < 80
    lab.now = looks[0]
    watch(lab).run_once()
    with lab.database.read() as connection:
        looked_at = store.get(connection, 1, made["id"])
    assert looked_at is not None
    assert looked_at.watched_at == lab.now


def made_at(row: store.ExperimentRow) -> datetime:
    assert row.start_date is not None
    return row.start_date
