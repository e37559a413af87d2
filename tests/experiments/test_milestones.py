"""What is told of the life of an experiment (spec: hog-runtime 7.4)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.conftest import Lab

from hoglab.accounts import internal_events


def told(lab: Lab) -> list[Any]:
    """The events of experiments since the last time."""
    with lab.database.write() as tx:
        events = internal_events.waiting(tx.connection, 1000)
        internal_events.forget(tx, events)
    return [event for event in events if event.event.startswith("$experiment_")]


def names(lab: Lab) -> list[str]:
    return [event.event.removeprefix("$experiment_") for event in told(lab)]


@pytest.fixture
def experiment(lab: Lab) -> str:
    made = lab.create("checkout", name="Checkout")
    [event] = told(lab)
    assert event.event == "$experiment_created"
    return f"/experiments/{made['id']}"


def test_every_step_is_told_once(lab: Lab, experiment: str) -> None:
    steps: list[tuple[str, dict[str, Any], list[str]]] = [
        ("launch", {}, ["launched"]),
        ("pause", {}, ["paused"]),
        ("resume", {}, ["resumed"]),
        ("end", {"conclusion": "won"}, ["ended"]),
        ("archive", {}, ["archived"]),
        ("unarchive", {}, ["unarchived"]),
        ("ship_variant", {"variant_key": "test"}, ["variant_shipped"]),
        ("reset", {}, ["reset"]),
    ]
    for action, body, expected in steps:
        lab.ok("POST", f"{experiment}/{action}/", body)
        assert names(lab) == expected, action


def test_changes_by_patch_are_told_too(lab: Lab, experiment: str) -> None:
    lab.ok("PATCH", f"{experiment}/", {"description": "no milestone"})
    assert names(lab) == []
    lab.ok("PATCH", f"{experiment}/", {"start_date": "2026-01-01T00:00:00Z"})
    assert names(lab) == ["launched"]
    lab.ok("PATCH", f"{experiment}/", {"end_date": "2026-01-02T00:00:00Z", "conclusion": "lost"})
    [event] = told(lab)
    assert event.event == "$experiment_ended"
    assert event.properties["experiment_name"] == "Checkout"
    assert event.properties["feature_flag_key"] == "checkout"
    assert (event.properties["status"], event.properties["conclusion"]) == ("stopped", "lost")
    assert event.properties["start_date"].startswith("2026-01-01T00:00:00")
    assert event.person["id"]
    lab.ok("PATCH", f"{experiment}/", {"deleted": True})
    assert names(lab) == ["deleted"]
    lab.ok("PATCH", f"{experiment}/", {"deleted": False})
    assert names(lab) == ["restored"]


def test_shipping_a_running_experiment_ends_it(lab: Lab, experiment: str) -> None:
    lab.ok("POST", f"{experiment}/launch/", {})
    told(lab)
    lab.ok("POST", f"{experiment}/ship_variant/", {"variant_key": "test"})
    ended, shipped = told(lab)
    assert (ended.event, shipped.event) == ("$experiment_ended", "$experiment_variant_shipped")
    assert shipped.properties["variant"] == "test"


def test_a_copy_is_told_as_a_new_one(lab: Lab, experiment: str) -> None:
    lab.ok("POST", f"{experiment}/duplicate/", {"name": "Again"})
    [event] = told(lab)
    assert (event.event, event.properties["experiment_name"]) == ("$experiment_created", "Again")
