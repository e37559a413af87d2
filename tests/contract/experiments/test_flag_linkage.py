"""An experiment and its flag (rules 4)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.contract.conftest import Api
from tests.contract.rules import rule

from hoglab.demo.server import ChildServer

START = "2026-01-01T00:00:00Z"
EVERYBODY = {"groups": [{"properties": [], "rollout_percentage": 100}]}
DEFAULTS = [
    {"key": "control", "name": "Control Group", "rollout_percentage": 50},
    {"key": "test", "name": "Test Variant", "rollout_percentage": 50},
]


def variants(**shares: int) -> list[dict[str, Any]]:
    return [{"key": key, "rollout_percentage": share} for key, share in shares.items()]


def flag(api: Api, key: str, found: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    filters = {**EVERYBODY, "multivariate": {"variants": found or variants(control=50, test=50)}}
    body = {"key": key, "filters": filters, "active": False}
    made: dict[str, Any] = api.ok("POST", "/feature_flags/", body, status=201)
    return made


def shares(experiment: dict[str, Any]) -> dict[str, int]:
    found = experiment["feature_flag"]["filters"]["multivariate"]["variants"]
    return {one["key"]: one["rollout_percentage"] for one in found}


def patch(api: Api, experiment: dict[str, Any], **body: Any) -> dict[str, Any]:
    changed: dict[str, Any] = api.ok("PATCH", f"/experiments/{experiment['id']}/", body)
    return changed


def refuse(api: Api, experiment: dict[str, Any], **body: Any) -> dict[str, Any]:
    return api.refused("PATCH", f"/experiments/{experiment['id']}/", body)


class TestNewFlag:
    @rule("4.1.1", "4.1.2", "4.1.3")
    def test_defaults(self, api: Api) -> None:
        made = api.experiment("button-colour", name="Button colour")["feature_flag"]
        assert (made["key"], made["name"]) == ("button-colour", "Feature Flag for Experiment Button colour")
        assert (made["version"], made["active"], made["deleted"]) == (1, False, False)
        assert made["filters"] == {
            "groups": [{"properties": [], "rollout_percentage": 100, "aggregation_group_type_index": None}],
            "multivariate": {"variants": DEFAULTS},
            "aggregation_group_type_index": None,
            "holdout": None,
        }
        assert api.experiment("started", start_date=START)["feature_flag"]["active"] is True

    @rule("4.1.4")
    def test_configuration(self, api: Api) -> None:
        parameters = {
            "feature_flag_variants": [
                {"key": "Control", "split_percent": 20},
                {"key": "b", "split_percent": 80},
            ],
            "rollout_percentage": 40,
            "feature_flag_payloads": {"b": '{"x": 1}'},
            "aggregation_group_type_index": 1,
            "ensure_experience_continuity": True,
            "minimum_detectable_effect": 20,
        }
        made = api.experiment(parameters=parameters)
        filters = made["feature_flag"]["filters"]
        assert shares(made) == {"control": 20, "b": 80}
        assert [group["rollout_percentage"] for group in filters["groups"]] == [40]
        assert (filters["aggregation_group_type_index"], filters["payloads"]) == (1, {"b": '{"x": 1}'})
        assert made["feature_flag"]["ensure_experience_continuity"] is True
        assert made["running_time_calculation"] == {"minimum_detectable_effect": 20}

    @rule("4.1.5")
    def test_holdout(self, api: Api) -> None:
        body = {"name": "H", "filters": [{"properties": [], "rollout_percentage": 20}]}
        holdout = api.ok("POST", "/experiment_holdouts/", body, status=201)
        made = api.experiment(holdout_id=holdout["id"])
        assert made["feature_flag"]["filters"]["holdout"] == {"id": holdout["id"], "exclusion_percentage": 20}

    @rule("4.1.6")
    @pytest.mark.parametrize(
        ("fields", "attr"),
        [
            ({"feature_flag_key": "x y"}, "key"),
            ({"parameters": {"feature_flag_variants": variants(a=50, b=40)}}, "filters"),
            ({"stats_config": {"method": "magic"}}, None),
            ({"metrics": [{"kind": "Other"}]}, "metrics"),
            ({"saved_metrics_ids": [{"id": 999999}]}, "saved_metrics_ids"),
            ({"holdout_id": 999999}, "holdout_id"),
        ],
    )
    def test_a_failure_leaves_nothing(self, api: Api, fields: dict[str, Any], attr: str | None) -> None:
        error = api.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "new", **fields})
        assert error["attr"] == attr
        assert api.ok("GET", "/experiments/")["count"] == 0
        assert api.ok("GET", "/feature_flags/")["count"] == 0

    @rule("4.1.7")
    def test_creates_at_once(self, shared_server: ChildServer) -> None:
        headers = {"Authorization": f"Bearer {shared_server.api_key}"}
        together = threading.Barrier(8)
        with httpx.Client(base_url=shared_server.url, headers=headers) as client:
            made = client.post("/api/organizations/@current/projects/", json={"name": "Race"}).json()

            def create(number: int) -> httpx.Response:
                together.wait()
                body = {"name": f"E{number}", "feature_flag_key": "raced"}
                return client.post(f"/api/projects/{made['id']}/experiments/", json=body)

            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(create, range(8)))
            assert [answer.status_code for answer in answers] == [201] * 8
            assert len({answer.json()["feature_flag"]["id"] for answer in answers}) == 1
            assert client.get(f"/api/projects/{made['id']}/feature_flags/").json()["count"] == 1


class TestExistingFlag:
    @rule("4.2.1", "4.2.3")
    def test_linked_as_it_is(self, api: Api) -> None:
        existing = flag(api, "shared", variants(control=10, a=90))
        made = api.experiment("shared", start_date=START)
        assert (made["feature_flag"]["id"], shares(made)) == (existing["id"], {"control": 10, "a": 90})
        assert (made["feature_flag"]["active"], made["feature_flag"]["version"]) == (False, 1)
        assert api.experiment("shared", name="Second")["feature_flag"]["id"] == existing["id"]

    @rule("4.2.2")
    @pytest.mark.parametrize("count", [0, 1, 21])
    def test_unsuitable(self, api: Api, count: int) -> None:
        found = [{"key": f"v{n}", "rollout_percentage": 100 if n == 0 else 0} for n in range(count)]
        filters = {**EVERYBODY, "multivariate": {"variants": found} if found else None}
        api.ok("POST", "/feature_flags/", {"key": "odd", "filters": filters}, status=201)
        error = api.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "odd"})
        fewer = "Feature flag must have at least 2 variants (control and at least one test variant)"
        assert error["attr"] is None
        assert error["detail"] == (fewer if count < 2 else "Feature flag must have at most 20 variants.")

    @rule("4.2.4")
    def test_configuration_for_an_existing_flag(self, api: Api) -> None:
        flag(api, "shared", variants(control=10, a=90))
        same = {
            "feature_flag_variants": [
                {"key": "control", "split_percent": 10},
                {"key": "a", "split_percent": 90},
            ]
        }
        assert api.experiment("shared", parameters=same)
        other = {"feature_flag_variants": variants(control=50, a=50)}
        error = api.refused(
            "POST", "/experiments/", {"name": "n", "feature_flag_key": "shared", "parameters": other}
        )
        assert error["attr"] == "feature_flag"
        assert error["detail"].startswith("A feature flag with key 'shared' already exists")

    @rule("4.2.5")
    def test_deleted_flags(self, api: Api) -> None:
        gone = flag(api, "phoenix")
        api.ok("PATCH", f"/feature_flags/{gone['id']}/", {"deleted": True})
        assert api.experiment("phoenix")["feature_flag"]["id"] != gone["id"]


class TestChanges:
    @rule("4.3.1")
    def test_drafts(self, api: Api) -> None:
        made = api.experiment()
        parameters = {"feature_flag_variants": variants(control=20, a=30, b=50), "rollout_percentage": 60}
        after = patch(api, made, parameters=parameters)
        assert shares(after) == {"control": 20, "a": 30, "b": 50}
        assert after["feature_flag"]["version"] == 2
        assert after["parameters"]["rollout_percentage"] == 60

    @rule("4.3.2")
    def test_running(self, api: Api) -> None:
        made = api.experiment(start_date=START)
        change = {"feature_flag_variants": variants(control=20, test=80)}
        error = refuse(api, made, parameters=change)
        assert error["attr"] == "feature_flag"
        assert error["detail"] == (
            "This experiment is running. To change its flag config, send update_feature_flag_params=true "
            "(or edit the feature flag directly)."
        )
        assert patch(api, made, parameters=made["parameters"])["feature_flag"]["version"] == 1
        after = patch(api, made, parameters=change, update_feature_flag_params=True)
        assert (shares(after), after["feature_flag"]["version"]) == ({"control": 20, "test": 80}, 2)

    @rule("4.3.3")
    @pytest.mark.parametrize(
        "found", [{"control": 50, "other": 50}, {"control": 20, "test": 40, "third": 40}]
    )
    def test_the_set_of_variants_is_fixed(self, api: Api, found: dict[str, int]) -> None:
        made = api.experiment(start_date=START)
        change = {"feature_flag_variants": variants(**found)}
        error = refuse(api, made, parameters=change, update_feature_flag_params=True)
        assert (error["attr"], error["detail"]) == (None, "Can't update feature_flag_variants on Experiment")

    @rule("4.3.4")
    def test_the_holdout_is_fixed(self, api: Api) -> None:
        body = {"name": "H", "filters": [{"properties": [], "rollout_percentage": 20}]}
        holdout = api.ok("POST", "/experiment_holdouts/", body, status=201)["id"]
        draft = api.experiment("a")
        assert patch(api, draft, holdout_id=holdout)["feature_flag"]["filters"]["holdout"]["id"] == holdout
        running = api.experiment("b", start_date=START, holdout_id=holdout)
        assert patch(api, running, holdout_id=holdout)["holdout_id"] == holdout
        assert refuse(api, running, holdout_id=None)["detail"] == "Can't update holdout on running Experiment"

    @rule("4.3.5")
    def test_only_the_first_condition_gets_the_rollout(self, api: Api) -> None:
        made = api.experiment()
        leaf = {"key": "plan", "type": "person", "value": "pro", "operator": "exact"}
        groups = [
            {"properties": [leaf], "rollout_percentage": 10},
            {"properties": [], "rollout_percentage": 30},
        ]
        path = f"/feature_flags/{made['feature_flag']['id']}/"
        api.ok("PATCH", path, {"filters": {"groups": groups}})
        after = patch(api, made, parameters={"rollout_percentage": 70})["feature_flag"]["filters"]["groups"]
        assert [group["rollout_percentage"] for group in after] == [70, 30]
        assert [one["key"] for one in after[0]["properties"]] == ["plan"]

    @rule("4.3.6")
    def test_names_and_keys(self, api: Api) -> None:
        made = api.experiment("old", name="Old")
        assert patch(api, made, name="New")["feature_flag"]["name"] == "Feature Flag for Experiment Old"
        api.ok("PATCH", f"/feature_flags/{made['feature_flag']['id']}/", {"key": "new"})
        assert api.ok("GET", f"/experiments/{made['id']}/")["feature_flag_key"] == "new"


class TestFeatureFlagObject:
    @rule("4.4.1")
    def test_echoes(self, api: Api) -> None:
        made = api.experiment(start_date=START)
        assert patch(api, made, feature_flag=made["feature_flag"])["feature_flag"]["version"] == 1
        assert patch(api, made, feature_flag={"key": "ignored"})["feature_flag"]["key"] == "button"

    @rule("4.4.2")
    def test_configuration(self, api: Api) -> None:
        made = api.experiment()
        wanted = {"filters": {"multivariate": {"variants": variants(control=10, test=90)}}}
        assert shares(patch(api, made, feature_flag=wanted)) == {"control": 10, "test": 90}
        error = refuse(api, made, feature_flag={"filters": {"surprise": 1}})
        assert error["detail"] == "Unsupported key for the experiment feature_flag input."
        assert error["attr"] == "feature_flag__filters__surprise"
