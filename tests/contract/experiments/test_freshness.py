"""What an experiment shows is never out of date, one by one or in a list, though both may come from memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.contract.conftest import Api

START = "2026-01-05T00:00:00Z"


@dataclass(frozen=True)
class Scene:
    """An experiment that shows something of everything that it can show."""

    api: Api
    id: int
    flag: int
    holdout: int
    saved_metric: int
    action: int

    def read(self) -> dict[str, Any]:
        """The experiment; a list must show the same of it."""
        found: dict[str, Any] = self.api.ok("GET", f"/experiments/{self.id}/")
        listed = self.api.ok("GET", "/experiments/")["results"]
        assert [each for each in listed if each["id"] == self.id] == [found]
        return found

    def patch(self, path: str, body: dict[str, Any]) -> None:
        self.api.ok("PATCH", path, body)

    def action_call(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = self.api.ok("POST", f"/experiments/{self.id}/{name}/")
        return made

    def removed(self, path: str) -> None:
        """End the experiment, which keeps what it uses, and delete something that it used."""
        self.action_call("end")
        assert self.api.call("DELETE", path).status_code == 204


def metric(**source: Any) -> dict[str, Any]:
    return {"kind": "ExperimentMetric", "metric_type": "mean", "source": source}


@pytest.fixture
def scene(api: Api) -> Scene:
    action = api.ok("POST", "/actions/", {"name": "Order", "steps": [{"event": "order"}]}, status=201)["id"]
    holdout = api.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "Spring", "filters": [{"properties": [], "rollout_percentage": 5}]},
        status=201,
    )["id"]
    saved = api.ok(
        "POST",
        "/experiment_saved_metrics/",
        {"name": "Signups", "query": metric(kind="EventsNode", event="signed up")},
        status=201,
    )["id"]
    made = api.experiment(
        metrics=[metric(kind="ActionsNode", id=action)],
        saved_metrics_ids=[{"id": saved}],
        holdout_id=holdout,
        start_date=START,
    )
    api.ok("POST", f"/experiments/{made['id']}/create_exposure_cohort_for_experiment/")
    return Scene(api, made["id"], made["feature_flag"]["id"], holdout, saved, action)


def at(*path: str | int) -> Callable[[Any], Any]:
    def look(shown: Any) -> Any:
        for key in path:
            shown = shown[key]
        return shown

    return look


Change = Callable[[Scene], object]
CHANGES: dict[str, tuple[Change, Callable[[Any], Any]]] = {
    "its name": (lambda s: s.patch(f"/experiments/{s.id}/", {"name": "New"}), at("name")),
    "paused": (lambda s: s.action_call("pause"), at("status")),
    "ended": (lambda s: s.action_call("end"), at("status")),
    "its flag switched off": (
        lambda s: s.patch(f"/feature_flags/{s.flag}/", {"active": False}),
        at("status"),
    ),
    "its flag's name": (
        lambda s: s.patch(f"/feature_flags/{s.flag}/", {"name": "N"}),
        at("feature_flag", "name"),
    ),
    "its flag's release": (
        lambda s: s.patch(
            f"/feature_flags/{s.flag}/",
            {"filters": {"groups": [{"properties": [], "rollout_percentage": 30}]}},
        ),
        at("parameters", "rollout_percentage"),
    ),
    "its holdout's name": (
        lambda s: s.patch(f"/experiment_holdouts/{s.holdout}/", {"name": "Summer"}),
        at("holdout", "name"),
    ),
    "its holdout's share": (
        lambda s: s.patch(
            f"/experiment_holdouts/{s.holdout}/", {"filters": [{"properties": [], "rollout_percentage": 9}]}
        ),
        at("holdout", "filters"),
    ),
    "its holdout removed": (
        lambda s: s.removed(f"/experiment_holdouts/{s.holdout}/"),
        at("holdout_id"),
    ),
    "a saved metric's name": (
        lambda s: s.patch(f"/experiment_saved_metrics/{s.saved_metric}/", {"name": "Joined"}),
        at("saved_metrics", 0, "name"),
    ),
    "a saved metric's query": (
        lambda s: s.patch(
            f"/experiment_saved_metrics/{s.saved_metric}/",
            {"query": metric(kind="EventsNode", event="joined")},
        ),
        at("saved_metrics", 0, "query", "source", "event"),
    ),
    "a saved metric removed": (
        lambda s: s.removed(f"/experiment_saved_metrics/{s.saved_metric}/"),
        at("saved_metrics"),
    ),
    "an action's name": (
        lambda s: s.patch(f"/actions/{s.action}/", {"name": "Purchase"}),
        at("metrics", 0, "source", "name"),
    ),
    "the exposure cohort removed": (
        lambda s: s.patch(f"/cohorts/{s.read()['exposure_cohort']}/", {"deleted": True}),
        at("exposure_cohort"),
    ),
    "the project's test accounts": (
        lambda s: s.patch(
            f"/api/projects/{s.api.project_id}/",
            {
                "test_account_filters": [
                    {"key": "email", "value": "@x.test", "operator": "icontains", "type": "person"}
                ]
            },
        ),
        at("metrics", 0, "fingerprint"),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_shows_at_once(scene: Scene, what: str) -> None:
    change, look = CHANGES[what]
    before = look(scene.read())
    assert look(scene.read()) == before  # from memory
    change(scene)
    assert look(scene.read()) != before


def test_a_deleted_experiment_is_gone_at_once(scene: Scene) -> None:
    scene.read()
    scene.patch(f"/experiments/{scene.id}/", {"deleted": True})
    assert scene.api.refused("GET", f"/experiments/{scene.id}/", status=404)["detail"] == "Not found."
    assert scene.api.ok("GET", "/experiments/")["results"] == []
    scene.patch(f"/experiments/{scene.id}/", {"deleted": False})
    assert scene.read()["id"] == scene.id


def test_an_experiment_of_another_project_is_not_there(scene: Scene, api: Api) -> None:
    scene.read()
    made = api.ok("POST", "/api/organizations/@current/projects/", {"name": "Other"}, status=201)
    assert api.refused("GET", f"/api/projects/{made['id']}/experiments/{scene.id}/", status=404)


def test_the_tag_is_that_of_the_writes(scene: Scene) -> None:
    path = f"/experiments/{scene.id}/"
    written = scene.api.call("PATCH", path, {"description": "Again"}).headers["etag"]
    assert [scene.api.call("GET", path).headers["etag"] for _ in range(2)] == [written, written]
    assert scene.api.call("GET", path, headers={"If-None-Match": written}).status_code == 304
