"""What is told of the life of an experiment (spec: hog-runtime 7.4)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.conftest import Lab

from hoglab.accounts import activity, internal_events


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


def test_the_log_names_every_step(lab: Lab, experiment: str) -> None:
    """Steps that change only the flag are in the log of the experiment, too."""
    steps: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("launch", {}, {"status": "running"}),
        ("pause", {}, {"status": "paused"}),
        ("resume", {}, {"status": "running"}),
        ("freeze_exposure", {}, {"status": "exposure_frozen"}),
        ("unfreeze_exposure", {}, {"status": "running"}),
        ("end", {}, {"status": "stopped"}),
        ("ship_variant", {"variant_key": "test"}, {"shipped_variant": "test"}),
        ("ship_variant", {"variant_key": "control"}, {"shipped_variant": "control"}),
        ("archive", {}, {"archived": True}),
        ("unarchive", {}, {"archived": False}),
        ("reset", {}, {"status": "draft"}),
    ]
    count = logged(lab, experiment)[0]
    for action, body, expected in steps:
        lab.ok("POST", f"{experiment}/{action}/", body)
        total, changes = logged(lab, experiment)
        assert total == count + 1, action
        count = total
        assert expected.items() <= {change["field"]: change["after"] for change in changes}.items(), action
        assert len({change["field"] for change in changes}) == len(changes), action


def test_shipping_a_running_experiment_is_one_entry(lab: Lab, experiment: str) -> None:
    lab.ok("POST", f"{experiment}/launch/", {})
    lab.ok("POST", f"{experiment}/ship_variant/", {"variant_key": "test", "conclusion": "won"})
    changes = {change["field"]: change["after"] for change in logged(lab, experiment)[1]}
    assert (changes["shipped_variant"], changes["status"], changes["conclusion"]) == (
        "test",
        "stopped",
        "won",
    )


def logged(lab: Lab, experiment: str) -> tuple[int, list[dict[str, Any]]]:
    """How many entries the log of an experiment has, and the changes of the newest one."""
    with lab.database.read() as connection:
        entries, count = activity.entries(
            connection, 1, limit=1, offset=0, scopes=["Experiment"], item_id=experiment.rsplit("/", 1)[1]
        )
    return count, entries[0]["detail"]["changes"] or []
