"""Nothing that is in use can be deleted, whatever uses it: cohorts, actions, holdouts and shared metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.conftest import Api
from tests.contract.shared.test_references import (
    ACTIONS,
    COHORTS,
    METRIC,
    Body,
    made,
    member,
    node,
    release,
)

HOLDOUT = {"name": "h", "filters": [{"properties": [], "rollout_percentage": 5}]}
SAVED = {"name": "s", "query": METRIC | {"source": {"kind": "EventsNode", "event": "purchase"}}}
UNUSED = {"holdout"}
"""Places whose cohorts decide nothing: of a holdout's conditions only the share counts."""


def put_to_use(api: Api, path: str, thing: dict[str, Any]) -> Callable[[], Any]:
    """Bring a definition into use; return the function that ends its use."""
    place = f"{path}{thing['id']}/"
    if path == "/experiment_saved_metrics/":
        experiment = api.experiment(saved_metrics_ids=[{"id": thing["id"]}])
        return put_to_use(api, "/experiments/", experiment)
    if path == "/experiments/":
        api.ok("POST", f"{place}launch/")
        return lambda: api.ok("POST", f"{place}end/")
    if path == "/hog_functions/":
        api.ok("PATCH", place, {"enabled": True})
        return lambda: api.ok("PATCH", place, {"enabled": False})
    if path == "/feature_flags/":
        return lambda: api.ok("PATCH", place, {"active": False})
    return lambda: api.ok("PATCH", place, {"deleted": True})


PLACES: list[tuple[str, str, tuple[str, Body]]] = [
    *(("/actions/", name, place) for name, place in ACTIONS.items()),
    *(("/cohorts/", name, place) for name, place in COHORTS.items() if name not in UNUSED),
]


@pytest.mark.parametrize(
    ("kind", "place"), [(kind, place) for kind, _, place in PLACES], ids=[f"{p[0]} {p[1]}" for p in PLACES]
)
def test_what_is_in_use_stays(api: Api, kind: str, place: tuple[str, Body]) -> None:
    path, body = place
    used = made(api, kind)
    thing = api.ok("POST", path, body(used), status=201)
    end_use = put_to_use(api, path, thing)
    for changes in ({"deleted": True}, {"name": "New", "deleted": True}):
        error = api.refused("PATCH", f"{kind}{used}/", changes)
        assert "cannot be deleted while it is in use by " in error["detail"]
        assert str(thing["id"]) in error["detail"] or '"' in error["detail"]
    assert api.ok("GET", f"{kind}{used}/")["deleted"] is False
    end_use()
    assert api.ok("PATCH", f"{kind}{used}/", {"deleted": True})["deleted"] is True


def test_filters_of_test_accounts_use_cohorts(api: Api) -> None:
    cohort = made(api, "/cohorts/")
    api.ok("PATCH", "", {"test_account_filters": [member(cohort)]})
    error = api.refused("PATCH", f"/cohorts/{cohort}/", {"deleted": True})
    assert "filters of test accounts" in error["detail"]
    api.ok("PATCH", "", {"test_account_filters": []})
    api.ok("PATCH", f"/cohorts/{cohort}/", {"deleted": True})


@pytest.mark.parametrize(
    ("path", "body", "link"),
    [
        ("/experiment_holdouts/", HOLDOUT, lambda x: {"holdout_id": x}),
        ("/experiment_saved_metrics/", SAVED, lambda x: {"saved_metrics_ids": [{"id": x}]}),
    ],
    ids=["holdout", "shared metric"],
)
def test_what_a_running_experiment_has_stays(
    api: Api, path: str, body: dict[str, Any], link: Callable[[int], dict[str, Any]]
) -> None:
    thing = api.ok("POST", path, body, status=201)["id"]
    experiment = api.experiment(**link(thing))["id"]
    api.ok("POST", f"/experiments/{experiment}/launch/")
    for step in (None, "pause", "resume"):
        if step is not None:
            api.ok("POST", f"/experiments/{experiment}/{step}/")
        error = api.refused("DELETE", f"{path}{thing}/")
        assert f"(ID: {experiment})" in error["detail"]
    api.ok("POST", f"/experiments/{experiment}/end/")
    assert api.call("DELETE", f"{path}{thing}/").status_code == 204


def test_a_flag_is_not_enabled_without_its_cohort(api: Api) -> None:
    for number, name in enumerate(("groups", "super_groups")):
        cohort = made(api, "/cohorts/")
        filters = {"groups": [{}], name: [release(cohort)]}
        flag = api.ok("POST", "/feature_flags/", {"key": f"f{number}", "filters": filters}, status=201)["id"]
        for off, on in (({"active": False}, {"active": True}), ({"deleted": True}, {"deleted": False})):
            api.ok("PATCH", f"/feature_flags/{flag}/", off)
            api.ok("PATCH", f"/cohorts/{cohort}/", {"deleted": True})
            assert api.refused("PATCH", f"/feature_flags/{flag}/", on)["code"] == "cohort_does_not_exist"
            api.ok("PATCH", f"/cohorts/{cohort}/", {"deleted": False})
            api.ok("PATCH", f"/feature_flags/{flag}/", on)


@pytest.mark.parametrize("way", ["launch", "start date"])
def test_an_experiment_is_not_launched_without_what_it_names(api: Api, way: str) -> None:
    def launch(experiment: int, status: int) -> None:
        path, now = f"/experiments/{experiment}/", {"start_date": "2026-01-01T00:00:00Z"}
        sent = ("POST", f"{path}launch/", None) if way == "launch" else ("PATCH", path, now)
        answer = api.call(*sent)
        assert answer.status_code == status, answer.text

    action = made(api, "/actions/")
    saved = api.ok(
        "POST",
        "/experiment_saved_metrics/",
        {"name": "s", "query": METRIC | {"source": node(action)}},
        status=201,
    )["id"]
    experiments = [
        api.experiment("a", metrics=[METRIC | {"source": node(action)}])["id"],
        api.experiment("b", exposure_criteria={"exposure_config": node(action)})["id"],
        api.experiment("c", saved_metrics_ids=[{"id": saved}])["id"],
    ]
    api.ok("PATCH", f"/actions/{action}/", {"deleted": True})
    for experiment in experiments:
        launch(experiment, 400)
        assert api.ok("GET", f"/experiments/{experiment}/")["status"] == "draft"
    api.ok("PATCH", f"/actions/{action}/", {"deleted": False})
    for experiment in experiments:
        launch(experiment, 200)
