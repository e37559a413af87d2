"""Ids of actions and cohorts: those of another project, of nothing, or of what was deleted are refused everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from tests.contract.conftest import Api, Laboratory

STEPS = [{"event": "purchase"}]
RULES = {"properties": {"type": "AND", "values": [{"type": "person", "key": "plan", "value": ["pro"]}]}}
METRIC = {"kind": "ExperimentMetric", "metric_type": "mean"}
EXPERIMENT = {"name": "e", "feature_flag_key": "e"}
FUNCTION = {"name": "f", "hog": "return 1", "enabled": False}

Body = Callable[[int], dict[str, Any]]


def node(action: int) -> dict[str, Any]:
    return {"kind": "ActionsNode", "id": action}


def entry(action: int) -> dict[str, Any]:
    return {"id": str(action), "type": "actions", "name": "Bought", "order": 0}


def member(cohort: int) -> dict[str, Any]:
    return {"type": "cohort", "key": "id", "value": cohort, "operator": "in"}


def of_members(cohort: int) -> dict[str, Any]:
    return {"kind": "EventsNode", "event": "purchase", "properties": [member(cohort)]}


def exposing(action: int) -> dict[str, Any]:
    return {"kind": "ActionsNode", "id": action}


def viewed(cohort: int) -> dict[str, Any]:
    return {"kind": "ExperimentEventExposureConfig", "event": "viewed", "properties": [member(cohort)]}


def release(cohort: int) -> dict[str, Any]:
    return {"properties": [member(cohort)], "rollout_percentage": 100}


def rules(leaf: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"type": "AND", "values": [leaf]}}


def bought(action: int) -> dict[str, Any]:
    return rules(
        {
            "type": "behavioral",
            "value": "performed_event",
            "key": action,
            "event_type": "actions",
            "negation": False,
        }
    )


ACTIONS: dict[str, tuple[str, Body]] = {
    "metrics": ("/experiments/", lambda x: {**EXPERIMENT, "metrics": [METRIC | {"source": node(x)}]}),
    "secondary metrics": (
        "/experiments/", lambda x: {**EXPERIMENT, "metrics_secondary": [METRIC | {"source": node(x)}]}
    ),
    "exposure": (
        "/experiments/", lambda x: {**EXPERIMENT, "exposure_criteria": {"exposure_config": exposing(x)}}
    ),
    "activation": (
        "/experiments/", lambda x: {**EXPERIMENT, "exposure_criteria": {"activation_config": exposing(x)}}
    ),
    "saved metric": (
        "/experiment_saved_metrics/", lambda x: {"name": "s", "query": METRIC | {"source": node(x)}}
    ),
    "cohort": ("/cohorts/", lambda x: {"name": "c", "filters": bought(x)}),
    "function": ("/hog_functions/", lambda x: {**FUNCTION, "filters": {"actions": [entry(x)]}}),
    "mapping": (
        "/hog_functions/", lambda x: {**FUNCTION, "mappings": [{"filters": {"actions": [entry(x)]}}]}
    ),
}  # fmt: skip
COHORTS: dict[str, tuple[str, Body]] = {
    "metrics": ("/experiments/", lambda x: {**EXPERIMENT, "metrics": [METRIC | {"source": of_members(x)}]}),
    "secondary metrics": (
        "/experiments/", lambda x: {**EXPERIMENT, "metrics_secondary": [METRIC | {"source": of_members(x)}]}
    ),
    "exposure": (
        "/experiments/", lambda x: {**EXPERIMENT, "exposure_criteria": {"exposure_config": viewed(x)}}
    ),
    "saved metric": (
        "/experiment_saved_metrics/", lambda x: {"name": "s", "query": METRIC | {"source": of_members(x)}}
    ),
    "flag": ("/feature_flags/", lambda x: {"key": "f", "filters": {"groups": [release(x)]}}),
    "flag's enrolment": (
        "/feature_flags/",
        lambda x: {"key": "f", "filters": {"groups": [{}], "super_groups": [release(x)]}},
    ),
    "holdout": (
        "/experiment_holdouts/",
        lambda x: {"name": "h", "filters": [{"properties": [member(x)], "rollout_percentage": 5}]},
    ),
    "cohort": ("/cohorts/", lambda x: {"name": "c", "filters": rules(member(x))}),
    "action": ("/actions/", lambda x: {"name": "a", "steps": [{"event": "b", "properties": [member(x)]}]}),
    "function": ("/hog_functions/", lambda x: {**FUNCTION, "filters": {"properties": [member(x)]}}),
    "event of a function": (
        "/hog_functions/",
        lambda x: {**FUNCTION, "filters": {"events": [{"id": "b", "properties": [member(x)]}]}},
    ),
    "mapping": (
        "/hog_functions/", lambda x: {**FUNCTION, "mappings": [{"filters": {"properties": [member(x)]}}]}
    ),
}  # fmt: skip


def made(api: Api, path: str) -> int:
    """A new action, or a new cohort."""
    name = f"Named {uuid4()}"
    body = {"name": name, "steps": STEPS} if path == "/actions/" else {"name": name, "filters": RULES}
    identifier: int = api.ok("POST", path, body, status=201)["id"]
    return identifier


def unusable(laboratory: Laboratory, api: Api, path: str) -> list[int]:
    """Ids that a project has nothing for."""
    deleted = made(api, path)
    api.ok("PATCH", f"{path}{deleted}/", {"deleted": True})
    return [made(laboratory.api(), path), 999_999, deleted]


@pytest.mark.parametrize("place", ACTIONS)
def test_actions(laboratory: Laboratory, api: Api, place: str) -> None:
    path, body = ACTIONS[place]
    check(api, path, body, made(api, "/actions/"), unusable(laboratory, api, "/actions/"))


@pytest.mark.parametrize("place", COHORTS)
def test_cohorts(laboratory: Laboratory, api: Api, place: str) -> None:
    path, body = COHORTS[place]
    check(api, path, body, made(api, "/cohorts/"), unusable(laboratory, api, "/cohorts/"))


def check(api: Api, path: str, body: Body, good: int, bad: list[int]) -> None:
    before = api.ok("GET", path)["count"]
    for identifier in bad:
        error = api.refused("POST", path, body(identifier))
        assert str(identifier) in error["detail"], error
        fields = [name for name in body(0) if name not in ("name", "key", "hog", "enabled")]
        # Metrics are refused as a whole (spec experiments-api 3.8).
        assert error["attr"] is None or error["attr"].partition("__")[0] in fields, error
    assert api.ok("GET", path)["count"] == before
    thing = api.ok("POST", path, body(good), status=201)
    change = {name: value for name, value in body(bad[0]).items() if name not in ("key", "feature_flag_key")}
    error = api.refused("PATCH", f"{path}{thing['id']}/", change)
    assert str(bad[0]) in error["detail"]


@pytest.mark.parametrize(
    ("path", "named"), [("/actions/", node), ("/cohorts/", of_members)], ids=["action", "cohort"]
)
def test_queries(laboratory: Laboratory, api: Api, path: str, named: Callable[[int], dict[str, Any]]) -> None:
    experiment = api.experiment(start_date="2026-01-01T00:00:00Z")
    for identifier in unusable(laboratory, api, path):
        metric = METRIC | {"source": named(identifier)}
        query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
        error = api.refused("POST", "/query/", {"query": query})
        assert error["attr"].startswith("query__metric__source__")
        assert str(identifier) in error["detail"]


def test_what_was_named_before_it_was_deleted_does_not_lock_anything(api: Api) -> None:
    action = made(api, "/actions/")
    experiment = api.experiment(
        metrics=[METRIC | {"source": node(action)}],
        exposure_criteria={"exposure_config": exposing(action)},
        start_date="2026-01-01T00:00:00Z",
    )
    function = api.ok(
        "POST", "/hog_functions/", {**FUNCTION, "filters": {"actions": [entry(action)]}}, status=201
    )
    api.ok("POST", f"/experiments/{experiment['id']}/end/")
    api.ok("PATCH", f"/actions/{action}/", {"deleted": True})
    echo = {"name": "Other", "exposure_criteria": experiment["exposure_criteria"]}
    assert api.ok("PATCH", f"/experiments/{experiment['id']}/", echo)["name"] == "Other"
    sent = {"name": "Other", "filters": function["filters"]}
    assert api.ok("PATCH", f"/hog_functions/{function['id']}/", sent)["name"] == "Other"
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": experiment["metrics"][0]}
    assert api.ok("POST", "/query/", {"query": query})["kind"] == "ExperimentQuery"
