"""The examples of the contract: as they stand there, but for ids, moments and users (rules 9).

What the user's document says wins over the examples: ``_create_in_folder`` is in every answer, and making an exposure
cohort is 200.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.contract.conftest import Api
from tests.contract.rules import rule

MOMENT = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?(Z|\+00:00)$")
IDS = frozenset({"id", "team_id", "experiment", "saved_metric", "holdout_id", "experiment_set"})
USER_KEYS = (
    "id uuid distinct_id first_name last_name email is_email_verified hedgehog_config role_at_organization"
)
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Purchases",
    "source": {"kind": "EventsNode", "event": "purchase"},
    "goal": "increase",
}


def create(api: Api, key: str = "button-colour", **fields: Any) -> dict[str, Any]:
    return api.experiment(key, **{"name": "Button colour", **fields})


def normalised(value: Any, key: str = "") -> Any:
    """Without what differs from server to server."""
    if key == "created_by":
        assert list(value) == USER_KEYS.split()
        return "user"
    if isinstance(value, dict):
        return {name: normalised(each, name) for name, each in value.items() if name != "_create_in_folder"}
    if key in IDS and value is not None:
        return "id"
    if isinstance(value, list):
        return [normalised(each) for each in value]
    return "moment" if isinstance(value, str) and MOMENT.match(value) else value


def assert_same(answer: Any, example: str) -> None:
    """Equal as texts, so that the order of keys counts too."""
    assert json.dumps(normalised(answer), indent=1) == json.dumps(normalised(json.loads(example)), indent=1)


USER = """{"id": 1, "uuid": "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22", "distinct_id": "hq4Z0e", "first_name": "Admin",
  "last_name": "", "email": "admin@example.com", "is_email_verified": true, "hedgehog_config": null,
  "role_at_organization": "engineering"}"""
MINIMAL = (
    """
{"id": 12, "name": "Button colour", "description": "", "start_date": null, "end_date": null,
 "feature_flag_key": "button-colour",
 "feature_flag": {"id": 31, "team_id": 1, "name": "Feature Flag for Experiment Button colour", "key": "button-colour",
  "filters": {"groups": [{"properties": [], "rollout_percentage": 100, "aggregation_group_type_index": null}],
   "multivariate": {"variants": [
     {"key": "control", "name": "Control Group", "rollout_percentage": 50},
     {"key": "test", "name": "Test Variant", "rollout_percentage": 50}]},
   "aggregation_group_type_index": null, "holdout": null},
  "deleted": false, "active": false, "ensure_experience_continuity": false, "has_encrypted_payloads": false,
  "version": 1, "evaluation_runtime": "all", "evaluation_tags": [], "bucketing_identifier": null,
  "evaluation_contexts": []},
 "holdout": null, "holdout_id": null, "exposure_cohort": null,
 "parameters": {"feature_flag_variants": [
    {"key": "control", "name": "Control Group", "rollout_percentage": 50, "split_percent": 50},
    {"key": "test", "name": "Test Variant", "rollout_percentage": 50, "split_percent": 50}],
   "rollout_percentage": 100, "ensure_experience_continuity": false},
 "running_time_calculation": {}, "excluded_variants": [], "secondary_metrics": [], "saved_metrics": [],
 "saved_metrics_ids": null, "filters": {}, "archived": false, "deleted": false, "created_by": """
    + USER
    + """,
 "created_at": "2026-01-02T03:04:05.678901Z", "updated_at": "2026-01-02T03:04:05.680112Z",
 "type": "product", "exposure_criteria": {"filterTestAccounts": true}, "metrics": [], "metrics_secondary": [],
 "stats_config": {"method": "bayesian"}, "scheduling_config": null, "conclusion": null, "conclusion_comment": null,
 "primary_metrics_ordered_uuids": null, "secondary_metrics_ordered_uuids": null,
 "only_count_matured_users": false, "status": "draft", "is_legacy": false, "user_access_level": "manager"}"""
)
COHORT = (
    """
{"cohort": {"id": 44, "name": "Users exposed to experiment \\"Button colour\\"", "description": "", "groups": [],
 "deleted": false,
 "filters": {"properties": {"type": "OR", "values": [{"type": "OR", "values": [{"type": "behavioral",
   "value": "performed_event", "key": "$feature_flag_called", "negation": false, "event_type": "events",
   "event_filters": [{"key": "$feature_flag", "value": ["button-colour"], "operator": "exact", "type": "event"}],
   "explicit_datetime": "2026-01-02T03:04:05.678901+00:00"}]}]}},
 "query": null, "is_calculating": true, "created_by": """
    + USER
    + """,
 "created_at": "2026-01-05T10:00:00.000001Z", "last_calculation": null, "errors_calculating": 0,
 "last_error_message": null, "count": null, "is_static": false, "cohort_type": null, "experiment_set": [12],
 "version": null, "pending_version": null}}"""
)
HOLDOUT = (
    """
{"id": 3, "name": "Q1 holdout", "description": null,
 "filters": [{"properties": [], "rollout_percentage": 20, "variant": "holdout-3"}],
 "created_by": """
    + USER
    + """,
 "created_at": "2026-01-01T00:00:00.000100Z", "updated_at": "2026-01-01T00:00:00.000400Z"}"""
)
SERIES = """
{"experiment_id": 12, "metric_uuid": "6f1f3a52-1d0e-4c58-9a59-0f6f4e6b7a10", "status": "partial",
 "timeseries": {"2026-01-02": {
   "baseline": {"key": "control", "number_of_samples": 510, "sum": 61.0, "sum_squares": 75.0},
   "variant_results": [{"key": "test", "number_of_samples": 498, "sum": 74.0, "sum_squares": 92.0,
      "method": "bayesian", "chance_to_win": 0.93, "credible_interval": [-0.04, 0.52], "significant": false}]},
  "2026-01-03": null, "2026-01-04": null},
 "errors": {"2026-01-03": "Query timed out"}, "computed_at": "2026-01-03T02:00:07.120000+00:00",
 "created_at": "2026-01-03T02:00:01.000100+00:00", "updated_at": "2026-01-04T02:00:01.000100+00:00",
 "recalculation_status": null, "recalculation_created_at": null}"""


@rule("9.1")
def test_minimal_create(api: Api) -> None:
    created = create(api)
    assert_same(created, MINIMAL)
    assert api.ok("GET", f"/experiments/{created['id']}/") == created


@rule("9.2")
def test_variants_metric_saved_metric_holdout(api: Api) -> None:
    holdout = api.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "Q1", "filters": [{"properties": [], "rollout_percentage": 20}]},
        status=201,
    )
    saved = api.ok(
        "POST",
        "/experiment_saved_metrics/",
        {
            "name": "Checkout",
            "query": {
                "kind": "ExperimentMetric",
                "metric_type": "funnel",
                "series": [{"kind": "EventsNode", "event": "checkout"}],
            },
        },
        status=201,
    )
    created = create(
        api,
        "pricing-page",
        name="Pricing page",
        holdout_id=holdout["id"],
        type="web",
        parameters={
            "rollout_percentage": 80,
            "minimum_detectable_effect": 20,
            "feature_flag_variants": [
                {"key": "Control", "split_percent": 34},
                {"key": "a", "split_percent": 33},
                {"key": "b", "split_percent": 33},
            ],
        },
        metrics=[METRIC],
        saved_metrics_ids=[{"id": saved["id"], "metadata": {"type": "secondary"}}],
        stats_config={"method": "frequentist"},
    )
    filters = created["feature_flag"]["filters"]
    assert filters["groups"] == [
        {"properties": [], "rollout_percentage": 80, "aggregation_group_type_index": None}
    ]
    assert filters["multivariate"]["variants"] == [
        {"key": "control", "rollout_percentage": 34},
        {"key": "a", "rollout_percentage": 33},
        {"key": "b", "rollout_percentage": 33},
    ]
    assert filters["holdout"] == {"id": holdout["id"], "exclusion_percentage": 20}
    assert created["holdout_id"] == holdout["id"]
    assert created["holdout"]["filters"][0]["variant"] == f"holdout-{holdout['id']}"
    assert created["running_time_calculation"] == {"minimum_detectable_effect": 20}
    (metric,) = created["metrics"]
    assert metric == {**METRIC, "uuid": metric["uuid"], "fingerprint": metric["fingerprint"]}
    assert len(metric["fingerprint"]) == 64
    assert created["primary_metrics_ordered_uuids"] == [metric["uuid"]]
    assert created["secondary_metrics_ordered_uuids"] == [saved["query"]["uuid"]]
    (link,) = created["saved_metrics"]
    assert link["experiment"] == created["id"]
    assert link["saved_metric"] == saved["id"]
    assert link["metadata"] == {"type": "secondary"}
    assert link["name"] == "Checkout"
    assert {**link["query"], "fingerprint": ""} == {**saved["query"], "fingerprint": ""}
    assert created["stats_config"] == {"method": "frequentist"}


@rule("9.3")
def test_validation_failure(api: Api) -> None:
    assert api.refused("POST", "/experiments/", {"feature_flag_key": "x y"}) == {
        "type": "validation_error",
        "code": "required",
        "detail": "This field is required.",
        "attr": "name",
    }
    assert api.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "x y"}) == {
        "type": "validation_error",
        "code": "invalid_key",
        "detail": "Only letters, numbers, hyphens (-) & underscores (_) are allowed.",
        "attr": "key",
    }
    assert api.ok("GET", "/experiments/")["count"] == 0


@rule("9.4")
def test_running_variant_change_refused_then_forced(api: Api) -> None:
    created = create(api, start_date="2026-01-01T00:00:00Z")
    path = f"/experiments/{created['id']}/"
    change = {
        "parameters": {
            "feature_flag_variants": [
                {"key": "control", "rollout_percentage": 20},
                {"key": "test", "rollout_percentage": 80},
            ]
        }
    }
    assert api.refused("PATCH", path, change) == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "This experiment is running. To change its flag config, send update_feature_flag_params=true "
        "(or edit the feature flag directly).",
        "attr": "feature_flag",
    }
    changed = api.ok("PATCH", path, {**change, "update_feature_flag_params": True})
    shares = [v["rollout_percentage"] for v in changed["feature_flag"]["filters"]["multivariate"]["variants"]]
    assert shares == [20, 80]
    assert changed["feature_flag"]["version"] == created["feature_flag"]["version"] + 1


@rule("9.5")
def test_end(api: Api) -> None:
    created = create(api, start_date="2026-01-01T00:00:00Z")
    path = f"/experiments/{created['id']}/end/"
    ended = api.ok("POST", path, {"conclusion": "won", "conclusion_comment": "test lifted orders"})
    assert ended["status"] == "stopped"
    assert MOMENT.match(ended["end_date"])
    assert (ended["conclusion"], ended["conclusion_comment"]) == ("won", "test lifted orders")
    assert ended["feature_flag"] == created["feature_flag"]
    assert api.refused("POST", path) == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "Experiment has already ended.",
        "attr": None,
    }


@rule("9.6")
def test_ship(api: Api) -> None:
    created = create(api, start_date="2026-01-01T00:00:00Z")
    shipped = api.ok("POST", f"/experiments/{created['id']}/ship_variant/", {"variant_key": "test"})
    assert shipped["feature_flag"]["filters"] == {
        "groups": [{"properties": [], "rollout_percentage": 100, "aggregation_group_type_index": None}],
        "multivariate": {
            "variants": [
                {"key": "control", "rollout_percentage": 0, "name": "Control Group"},
                {"key": "test", "rollout_percentage": 100, "name": "Test Variant"},
            ]
        },
        "aggregation_group_type_index": None,
        "payloads": {},
        "holdout": None,
    }
    assert shipped["status"] == "stopped"


@rule("9.7")
def test_daily_results(api: Api) -> None:
    example = json.loads(SERIES)
    created = create(api, metrics=[METRIC], start_date=(datetime.now(UTC) - timedelta(days=1)).isoformat())
    metric = created["metrics"][0]
    query = f"metric_uuid={metric['uuid']}&fingerprint={metric['fingerprint']}"
    path = f"/experiments/{created['id']}/timeseries_results/?{query}"
    answer = api.until(lambda: (one := api.ok("GET", path))["status"] == "completed" and one)
    assert list(answer) == list(example)
    assert len(answer["timeseries"]) == 2
    wanted = example["timeseries"]["2026-01-02"]
    for result in answer["timeseries"].values():
        assert wanted["baseline"].keys() <= result["baseline"].keys()
        (variant,) = result["variant_results"]
        assert wanted["variant_results"][0].keys() <= variant.keys()


@rule("9.8")
def test_exposure_cohort(api: Api) -> None:
    created = create(api, start_date="2026-01-02T03:04:05.678901Z")
    path = f"/experiments/{created['id']}/create_exposure_cohort_for_experiment/"
    made = api.ok("POST", path, {})
    pending = made["cohort"].pop(
        "pending_version"
    )  # what is being calculated has the number that it will have
    assert pending == 1
    expected = COHORT.replace(', "pending_version": null', "")
    assert_same(made, expected)
    behaviour = made["cohort"]["filters"]["properties"]["values"][0]["values"][0]
    assert behaviour["explicit_datetime"] == "2026-01-02T03:04:05.678901+00:00"
    assert api.ok("GET", f"/experiments/{created['id']}/")["exposure_cohort"] == made["cohort"]["id"]


@rule("9.9")
def test_holdout(api: Api) -> None:
    body = {"name": "Q1 holdout", "filters": [{"properties": [], "rollout_percentage": 20}]}
    created = api.ok("POST", "/experiment_holdouts/", body, status=201)
    assert_same(created, HOLDOUT.replace("holdout-3", f"holdout-{created['id']}"))


@rule("9.10")
def test_soft_delete_and_hard_delete(api: Api) -> None:
    created = create(api)
    path = f"/experiments/{created['id']}/"
    assert api.ok("PATCH", path, {"deleted": True})["deleted"] is True
    assert api.refused("GET", path, status=404) == {
        "type": "invalid_request",
        "code": "not_found",
        "detail": "Not found.",
        "attr": None,
    }
    answer = api.call("DELETE", path)
    assert (answer.status_code, answer.content) == (405, b"")
    assert api.ok("PATCH", path, {"deleted": False, "name": "Back"})["name"] == "Back"
