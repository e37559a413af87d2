"""Holdouts, saved metrics, flags, cohorts and the activity log (rules 7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api, Laboratory
from tests.contract.rules import rule

START = "2026-01-01T00:00:00Z"
LEGACY = (
    "Legacy metric kind 'ExperimentTrendsQuery' is no longer supported for new saved metrics. "
    "Use 'ExperimentMetric' instead."
)
TEN_PERCENT = [{"properties": [], "rollout_percentage": 10}]
MEAN = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "purchase"},
}
EVERYBODY = {"groups": [{"properties": [], "rollout_percentage": 100}]}
HALVES = [{"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50}]


def holdout(api: Api, name: str = "Q1", filters: Any = None) -> dict[str, Any]:
    body = {"name": name, "filters": filters or TEN_PERCENT}
    made: dict[str, Any] = api.ok("POST", "/experiment_holdouts/", body, status=201)
    return made


def saved_metric(api: Api, name: str = "Orders", **query: Any) -> dict[str, Any]:
    body = {"name": name, "query": MEAN | query}
    made: dict[str, Any] = api.ok("POST", "/experiment_saved_metrics/", body, status=201)
    return made


def flag(api: Api, key: str = "beta", **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = api.ok(
        "POST", "/feature_flags/", {"key": key, "filters": EVERYBODY, **fields}, status=201
    )
    return made


def keys_of(page: dict[str, Any], name: str = "key") -> list[str]:
    return [one[name] for one in page["results"]]


class TestHoldouts:
    @rule("7.1.1")
    def test_life(self, api: Api) -> None:
        first, second = holdout(api, "A"), holdout(api, "B")
        path = f"/experiment_holdouts/{first['id']}/"
        assert keys_of(api.ok("GET", "/experiment_holdouts/"), "name") == ["B", "A"]
        assert list(first)[:7] == [
            "id", "name", "description", "filters", "created_by", "created_at", "updated_at",
        ]  # fmt: skip
        assert api.ok("PATCH", path, {"name": "C"})["name"] == "C"
        assert api.ok("PUT", path, {"name": "D", "filters": TEN_PERCENT})["name"] == "D"
        assert api.call("DELETE", path).status_code == 204
        assert api.refused("GET", path, status=404)
        assert keys_of(api.ok("GET", "/experiment_holdouts/"), "id") == [second["id"]]

    @rule("7.1.2")
    def test_texts(self, api: Api) -> None:
        assert api.refused("POST", "/experiment_holdouts/", {"filters": TEN_PERCENT})["code"] == "required"
        long = {"name": "x" * 401, "filters": TEN_PERCENT}
        assert api.refused("POST", "/experiment_holdouts/", long)["code"] == "max_length"
        assert holdout(api)["description"] is None

    @rule("7.1.3")
    def test_variants(self, api: Api) -> None:
        made = holdout(api, filters=[{"properties": [], "rollout_percentage": 5, "variant": "mine"}])
        assert [one["variant"] for one in made["filters"]] == [f"holdout-{made['id']}"]

    @rule("7.1.4")
    @pytest.mark.parametrize(
        ("filters", "attr", "detail"),
        [
            (None, None, "Filters are required to create an holdout group"),
            ([], "filters", "Filters must not be empty."),
            ([{"properties": []}], "filters", "Rollout percentage must be present."),
            ([{"rollout_percentage": 101}], "filters", "Rollout percentage must be between 0 and 100."),
        ],
    )
    def test_filters(self, api: Api, filters: Any, attr: str | None, detail: str) -> None:
        body = {"name": "H"} if filters is None else {"name": "H", "filters": filters}
        error = api.refused("POST", "/experiment_holdouts/", body)
        assert (error["attr"], error["detail"]) == (attr, detail)

    @rule("7.1.5", "7.1.6")
    def test_flags_follow(self, api: Api) -> None:
        made = holdout(api)
        experiments = [api.experiment(key, holdout_id=made["id"]) for key in ("one", "two")]
        path = f"/experiment_holdouts/{made['id']}/"

        def on_flags() -> list[Any]:
            shown = [api.ok("GET", f"/experiments/{one['id']}/") for one in experiments]
            return [one["feature_flag"]["filters"]["holdout"] for one in shown]

        assert on_flags() == [{"id": made["id"], "exclusion_percentage": 10}] * 2
        api.ok("PATCH", path, {"filters": [{"properties": [], "rollout_percentage": 25}]})
        assert on_flags() == [{"id": made["id"], "exclusion_percentage": 25}] * 2
        assert api.call("DELETE", path).status_code == 204
        assert on_flags() == [None, None]
        assert api.ok("GET", f"/experiments/{experiments[0]['id']}/")["holdout_id"] is None

    @rule("7.1.7")
    def test_held_out_people(self, api: Api) -> None:
        made = holdout(api, filters=[{"properties": [], "rollout_percentage": 100}])
        api.experiment("kept-out", holdout_id=made["id"], start_date=START)
        token = api.ok("GET", "/")["api_token"]
        body = {"token": token, "distinct_id": "ann"}
        answer = api.with_key(None).runner.run(api.client.post("/flags/?v=2", json=body)).json()
        assert answer["flags"]["kept-out"]["variant"] == f"holdout-{made['id']}"


class TestSavedMetrics:
    @rule("7.2.1")
    def test_life(self, api: Api) -> None:
        made = saved_metric(api, "beta")
        saved_metric(api, "Alpha")
        path = f"/experiment_saved_metrics/{made['id']}/"
        assert keys_of(api.ok("GET", "/experiment_saved_metrics/"), "name") == ["Alpha", "beta"]
        assert list(made) == [
            "id", "name", "description", "query", "created_by", "created_at", "updated_at", "tags",
            "user_access_level",
        ]  # fmt: skip
        assert api.ok("PATCH", path, {"description": "new"})["description"] == "new"
        assert api.call("DELETE", path).status_code == 204
        assert api.refused("GET", path, status=404)

    @rule("7.2.2")
    def test_names(self, api: Api) -> None:
        saved_metric(api, "Orders")
        error = api.refused("POST", "/experiment_saved_metrics/", {"name": "oRDERS", "query": MEAN})
        assert (error["attr"], error["detail"]) == ("name", "A shared metric with this name already exists.")

    @rule("7.2.3")
    @pytest.mark.parametrize(
        ("query", "detail"),
        [
            (None, "Query is required to create a saved metric"),
            (
                {"kind": "ExperimentTrendsQuery"},
                LEGACY,
            ),
            ({"kind": "Other"}, "Metric query kind must be 'ExperimentMetric'"),
            ({"kind": "ExperimentMetric"}, "ExperimentMetric requires a metric_type"),
            (
                {"kind": "ExperimentMetric", "metric_type": "x"},
                "ExperimentMetric metric_type must be 'mean', 'funnel', 'ratio', or 'retention'",
            ),
        ],
    )
    def test_queries(self, api: Api, query: Any, detail: str) -> None:
        body = {"name": "M"} if query is None else {"name": "M", "query": query}
        assert api.refused("POST", "/experiment_saved_metrics/", body)["detail"] == detail

    @rule("7.2.4")
    def test_uuid(self, api: Api) -> None:
        made = saved_metric(api)
        path = f"/experiment_saved_metrics/{made['id']}/"
        assert made["query"]["uuid"]
        kept = api.ok("PATCH", path, {"query": MEAN | {"name": "Other"}})
        assert kept["query"]["uuid"] == made["query"]["uuid"]
        other = {"query": MEAN | {"uuid": "018f6c1e-7b0a-4000-8000-3f0c9a5b1d22"}}
        assert api.refused("PATCH", path, other)["detail"] == "Saved metric UUID cannot be changed"

    @rule("7.2.5")
    def test_deletion_reaches_experiments(self, api: Api) -> None:
        made = saved_metric(api)
        link = {"id": made["id"], "metadata": {"type": "primary"}}
        experiment = api.experiment(saved_metrics_ids=[link], metrics=[MEAN])
        assert made["query"]["uuid"] in experiment["primary_metrics_ordered_uuids"]
        assert api.call("DELETE", f"/experiment_saved_metrics/{made['id']}/").status_code == 204
        after = api.ok("GET", f"/experiments/{experiment['id']}/")
        assert after["saved_metrics"] == []
        assert after["primary_metrics_ordered_uuids"] == [experiment["metrics"][0]["uuid"]]

    @rule("7.2.6")
    def test_tags(self, api: Api) -> None:
        body = {"name": "M", "query": MEAN, "tags": ["Growth", "growth", "Core"]}
        made = api.ok("POST", "/experiment_saved_metrics/", body, status=201)
        assert sorted(made["tags"]) == ["core", "growth"]


class TestFlags:
    @rule("7.3.1")
    def test_lists(self, api: Api) -> None:
        flag(api, "alpha", active=False)
        flag(api, "beta", name="The beta programme")
        gone = flag(api, "gone")
        api.ok("PATCH", f"/feature_flags/{gone['id']}/", {"deleted": True})
        away = flag(api, "away", active=False)
        api.ok("PATCH", f"/feature_flags/{away['id']}/", {"archived": True})
        assert keys_of(api.ok("GET", "/feature_flags/")) == ["beta", "alpha"]
        assert keys_of(api.ok("GET", "/feature_flags/?archived=true")) == ["away"]
        assert keys_of(api.ok("GET", "/feature_flags/?search=programme")) == ["beta"]
        assert keys_of(api.ok("GET", "/feature_flags/?active=false")) == ["alpha"]
        assert keys_of(api.ok("GET", "/feature_flags/?order=key")) == ["alpha", "beta"]
        api.experiment("tested")
        assert keys_of(api.ok("GET", "/feature_flags/?type=experiment")) == ["tested"]

    @rule("7.3.2")
    def test_fields(self, api: Api) -> None:
        experiment = api.experiment(start_date=START)
        shown = api.ok("GET", f"/feature_flags/{experiment['feature_flag']['id']}/")
        assert {
            "id", "name", "key", "filters", "deleted", "active", "archived", "created_by", "created_at", "updated_at",
            "version", "last_modified_by", "ensure_experience_continuity", "experiment_set", "experiment_set_metadata",
            "surveys", "features", "can_edit", "tags", "evaluation_contexts", "usage_dashboard", "user_access_level",
            "analytics_dashboards", "has_enriched_analytics", "is_remote_configuration", "has_encrypted_payloads",
            "status", "evaluation_runtime", "bucketing_identifier", "last_called_at", "is_used_in_replay_settings",
            "is_eligible_for_experiment", "is_simple_flag", "rollout_percentage", "evaluation_tags",
        } <= set(shown)  # fmt: skip
        assert shown["experiment_set"] == [experiment["id"]]
        assert shown["experiment_set_metadata"] == [
            {"id": experiment["id"], "name": "Button", "is_running": True}
        ]

    @rule("7.3.3")
    def test_keys(self, api: Api) -> None:
        flag(api, "beta")
        taken = api.refused("POST", "/feature_flags/", {"key": "beta", "filters": EVERYBODY})
        assert (taken["attr"], taken["code"]) == ("key", "unique")
        assert taken["detail"] == "There is already a feature flag with this key."
        bad = api.refused("POST", "/feature_flags/", {"key": "a b", "filters": EVERYBODY})
        assert (bad["attr"], bad["code"]) == ("key", "invalid_key")

    @rule("7.3.4")
    @pytest.mark.parametrize(
        ("filters", "code", "detail"),
        [
            ({}, "invalid_input", "Feature flags must have at least one condition set (group)."),
            ({"groups": []}, "invalid_input", "Feature flags must have at least one condition set (group)."),
            (
                {"groups": [{"rollout_percentage": 150}]},
                "invalid_input",
                "groups[0].rollout_percentage must be between 0 and 100, got 150",
            ),
            (
                {"groups": [{"rollout_percentage": "x"}]},
                "invalid_input",
                "groups[0].rollout_percentage must be a number or null, got str",
            ),
            (
                {**EVERYBODY, "multivariate": {"variants": [{"key": "a", "rollout_percentage": 90}]}},
                "cross_field.variant_rollout_sum_not_100",
                "multivariate.variants: Variant rollout percentages must sum to 100, got 90.",
            ),
            (
                {**EVERYBODY, "multivariate": {"variants": [{"key": "a", "rollout_percentage": 50}] * 2}},
                "cross_field.variant_keys_not_unique",
                "multivariate.variants: Variant keys must be unique, duplicated: a.",
            ),
            (
                {**EVERYBODY, "multivariate": {"variants": HALVES}, "payloads": {"b": "1"}},
                "cross_field.payload_key_not_a_variant",
                "payloads.b: Payload key 'b' does not match any variant key.",
            ),
            (
                {**EVERYBODY, "payloads": {"x": "1"}},
                "cross_field.payload_key_not_true",
                "payloads.x: Payload key 'x' is invalid: boolean flags only support the 'true' key.",
            ),
            ({**EVERYBODY, "payloads": []}, "invalid_input", "Payloads must be passed as a dictionary"),
            (
                {**EVERYBODY, "payloads": {"true": "{"}},
                "invalid_input",
                "Payload for key 'true' is not valid JSON.",
            ),
            (
                {
                    "groups": [{"properties": [], "rollout_percentage": 100, "variant": "b"}],
                    "multivariate": {"variants": HALVES},
                },
                "cross_field.group_variant_not_a_variant",
                "groups[0].variant: Variant override 'b' does not match any variant key.",
            ),
        ],
    )
    def test_filters(self, api: Api, filters: Any, code: str, detail: str) -> None:
        error = api.refused("POST", "/feature_flags/", {"key": "k", "filters": filters})
        assert (error["attr"], error["code"], error["detail"]) == ("filters", code, detail)

    @rule("7.3.5")
    def test_patch_merges(self, api: Api) -> None:
        made = flag(api, filters={**EVERYBODY, "multivariate": {"variants": HALVES}})
        path = f"/feature_flags/{made['id']}/"
        after = api.ok("PATCH", path, {"filters": {"payloads": {"test": "1"}}})["filters"]
        assert after["payloads"] == {"test": "1"}
        assert [one["key"] for one in after["multivariate"]["variants"]] == ["control", "test"]
        assert api.ok("PATCH", path, {"filters": {}})["filters"] == after

    @rule("7.3.6")
    def test_contradictions(self, api: Api) -> None:
        made = flag(api)
        path = f"/feature_flags/{made['id']}/"
        assert "Cannot archive an enabled" in api.refused("PATCH", path, {"archived": True})["detail"]
        api.ok("PATCH", path, {"archived": True, "active": False})
        assert "Cannot enable an archived" in api.refused("PATCH", path, {"active": True})["detail"]
        both = {"bucketing_identifier": "device_id", "ensure_experience_continuity": True}
        assert "incompatible" in api.refused("PATCH", path, both)["detail"]

    @rule("7.3.7")
    def test_versions(self, api: Api) -> None:
        made = flag(api)
        after = api.ok("PATCH", f"/feature_flags/{made['id']}/", {"name": "New", "version": 77})
        assert (made["version"], after["version"]) == (1, 2)
        assert after["last_modified_by"]["id"] == made["created_by"]["id"]

    @rule("7.3.8", "7.3.9")
    def test_deletion(self, api: Api) -> None:
        experiment = api.experiment("tested")
        number = experiment["feature_flag"]["id"]
        path = f"/feature_flags/{number}/"
        assert api.ok("PATCH", path, {"deleted": True})["key"] == f"tested:deleted:{number}"
        assert api.refused("GET", path, status=404)
        assert flag(api, "tested")["id"] != number
        assert api.ok("PATCH", path, {"deleted": False})["key"] == "tested-2"
        plain = flag(api, "plain")
        api.ok("PATCH", f"/feature_flags/{plain['id']}/", {"deleted": True})
        assert flag(api, "plain")["id"] != plain["id"]

    @rule("7.3.10")
    def test_unknown_cohorts(self, api: Api) -> None:
        inside = {"key": "id", "type": "cohort", "value": 999999, "operator": "in"}
        filters = {"groups": [{"properties": [inside], "rollout_percentage": 100}]}
        error = api.refused("POST", "/feature_flags/", {"key": "k", "filters": filters})
        assert (error["code"], error["detail"]) == (
            "cohort_does_not_exist",
            "Cohort with id 999999 does not exist",
        )

    @rule("7.3.11")
    def test_running_experiments_protect_their_flag(self, api: Api) -> None:
        experiment = api.experiment("kept", start_date=START)
        path = f"/feature_flags/{experiment['feature_flag']['id']}/"
        named = f'"Button" (ID: {experiment["id"]})'
        error = api.refused("PATCH", path, {"deleted": True})
        assert (error["attr"], named in error["detail"]) == (None, True)
        fewer = [{"key": "control", "rollout_percentage": 50}, {"key": "new", "rollout_percentage": 50}]
        error = api.refused("PATCH", path, {"filters": {"multivariate": {"variants": fewer}}})
        assert error["attr"] == "filters"
        assert error["detail"].startswith("Cannot remove variant(s) 'test' from a feature flag")
        api.ok("POST", f"/experiments/{experiment['id']}/end/")
        assert api.ok("PATCH", path, {"filters": {"multivariate": {"variants": fewer}}})


class TestCohorts:
    @rule("7.4.1", "7.4.2")
    def test_life(self, api: Api) -> None:
        leaf = {"key": "plan", "type": "person", "value": "pro", "operator": "exact"}
        body = {"name": "Pro", "filters": {"properties": {"type": "AND", "values": [leaf]}}}
        made = api.ok("POST", "/cohorts/", body, status=201)
        assert list(made) == [
            "id", "name", "description", "groups", "deleted", "filters", "query", "is_calculating", "created_by",
            "created_at", "last_calculation", "errors_calculating", "last_error_message", "count", "is_static",
            "cohort_type", "experiment_set", "version", "pending_version",
        ]  # fmt: skip
        path = f"/cohorts/{made['id']}/"
        assert keys_of(api.ok("GET", "/cohorts/"), "id") == [made["id"]]
        assert api.ok("PATCH", path, {"name": "Paying"})["name"] == "Paying"
        assert api.call("DELETE", path).status_code == 405
        assert api.ok("PATCH", path, {"deleted": True})["deleted"] is True
        assert api.refused("GET", path, status=404)


class TestActivity:
    def log(self, api: Api, scope: str, identifier: int) -> list[dict[str, Any]]:
        page = api.ok("GET", f"/activity_log/?scope={scope}&item_id={identifier}")
        assert page["count"] == len(page["results"])
        found: list[dict[str, Any]] = page["results"]
        return found

    @rule("7.5.1", "7.5.2")
    def test_experiments(self, api: Api) -> None:
        made = api.experiment()
        path = f"/experiments/{made['id']}/"
        api.ok("PATCH", path, {"name": "Other"})
        api.ok("PATCH", path, {"name": "Other"})
        api.ok("POST", f"{path}launch/")
        api.ok("PATCH", path, {"deleted": True})
        api.ok("PATCH", path, {"deleted": False})
        log = self.log(api, "Experiment", made["id"])
        assert [one["activity"] for one in log] == ["restored", "deleted", "updated", "updated", "created"]
        assert list(log[0]) == [
            "id", "user", "activity", "scope", "item_id", "detail", "created_at", "is_system", "was_impersonated",
            "unread",
        ]  # fmt: skip
        assert log[0]["item_id"] == str(made["id"])
        assert list(log[0]["detail"]) == ["id", "changes", "merge", "trigger", "name", "short_id", "type"]
        renamed = {
            "type": "Experiment",
            "action": "changed",
            "field": "name",
            "before": "Button",
            "after": "Other",
        }
        assert log[3]["detail"]["changes"] == [renamed]
        assert {"start_date", "status"} <= {change["field"] for change in log[2]["detail"]["changes"]}

    @rule("7.5.3")
    def test_holdouts_and_saved_metrics(self, api: Api) -> None:
        kept = self.log(api, "Experiment", holdout(api)["id"])
        assert "holdout" in {one["detail"]["type"] for one in kept}
        metric = self.log(api, "Experiment", saved_metric(api)["id"])
        assert "shared_metric" in {one["detail"]["type"] for one in metric}

    @rule("7.5.4")
    def test_flags_of_experiments(self, api: Api) -> None:
        made = api.experiment()
        api.ok("POST", f"/experiments/{made['id']}/launch/")
        log = self.log(api, "FeatureFlag", made["feature_flag"]["id"])
        assert [one["activity"] for one in log] == ["updated", "created"]
        assert [change["field"] for change in log[0]["detail"]["changes"]] == ["active"]


@rule("7.3.8")
def test_flags_of_other_projects_are_missing(api: Api, laboratory: Laboratory) -> None:
    theirs = flag(laboratory.api())
    assert api.refused("PATCH", f"/feature_flags/{theirs['id']}/", {"deleted": False}, status=404)
