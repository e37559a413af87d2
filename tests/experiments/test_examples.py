"""The examples of spec experiments-api 9, word for word where they are complete."""

from __future__ import annotations

from typing import Any

from tests.experiments.conftest import Lab

DEFAULT_VARIANTS = [
    {"key": "control", "name": "Control Group", "rollout_percentage": 50},
    {"key": "test", "name": "Test Variant", "rollout_percentage": 50},
]
KEYS = [
    "id",
    "name",
    "description",
    "start_date",
    "end_date",
    "feature_flag_key",
    "feature_flag",
    "holdout",
    "holdout_id",
    "exposure_cohort",
    "parameters",
    "running_time_calculation",
    "excluded_variants",
    "secondary_metrics",
    "saved_metrics",
    "saved_metrics_ids",
    "filters",
    "archived",
    "deleted",
    "created_by",
    "created_at",
    "updated_at",
    "type",
    "exposure_criteria",
    "metrics",
    "metrics_secondary",
    "stats_config",
    "scheduling_config",
    "_create_in_folder",
    "conclusion",
    "conclusion_comment",
    "primary_metrics_ordered_uuids",
    "secondary_metrics_ordered_uuids",
    "only_count_matured_users",
    "status",
    "is_legacy",
    "user_access_level",
]
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Purchases",
    "source": {"kind": "EventsNode", "event": "purchase"},
    "goal": "increase",
}


def test_9_1_minimal_create(lab: Lab) -> None:
    created = lab.create()
    assert list(created) == KEYS
    assert created["feature_flag"] == {
        "id": created["feature_flag"]["id"],
        "team_id": 1,
        "name": "Feature Flag for Experiment Button colour",
        "key": "button-colour",
        "filters": {
            "groups": [{"properties": [], "rollout_percentage": 100, "aggregation_group_type_index": None}],
            "multivariate": {"variants": DEFAULT_VARIANTS},
            "aggregation_group_type_index": None,
            "holdout": None,
        },
        "deleted": False,
        "active": False,
        "ensure_experience_continuity": False,
        "has_encrypted_payloads": False,
        "version": 1,
        "evaluation_runtime": "all",
        "evaluation_tags": [],
        "bucketing_identifier": None,
        "evaluation_contexts": [],
    }
    expected: dict[str, Any] = {
        "name": "Button colour",
        "description": "",
        "start_date": None,
        "end_date": None,
        "feature_flag_key": "button-colour",
        "holdout": None,
        "holdout_id": None,
        "exposure_cohort": None,
        "parameters": {
            "feature_flag_variants": [{**v, "split_percent": 50} for v in DEFAULT_VARIANTS],
            "rollout_percentage": 100,
            "ensure_experience_continuity": False,
        },
        "running_time_calculation": {},
        "excluded_variants": [],
        "secondary_metrics": [],
        "saved_metrics": [],
        "saved_metrics_ids": None,
        "filters": {},
        "archived": False,
        "deleted": False,
        "created_at": "2026-01-02T03:04:05.678901Z",
        "type": "product",
        "exposure_criteria": {"filterTestAccounts": True},
        "metrics": [],
        "metrics_secondary": [],
        "stats_config": {"method": "bayesian"},
        "scheduling_config": None,
        "conclusion": None,
        "conclusion_comment": None,
        "primary_metrics_ordered_uuids": None,
        "secondary_metrics_ordered_uuids": None,
        "only_count_matured_users": False,
        "status": "draft",
        "is_legacy": False,
        "user_access_level": "manager",
    }
    assert {key: created[key] for key in expected} == expected
    assert lab.ok("GET", f"/experiments/{created['id']}/") == created


def test_9_2_variants_metric_saved_metric_holdout(lab: Lab) -> None:
    holdout = lab.ok(
        "POST",
        "/experiment_holdouts/",
        {"name": "Q1", "filters": [{"properties": [], "rollout_percentage": 20}]},
        status=201,
    )
    saved = lab.ok(
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
    created = lab.create(
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


def test_9_3_validation_failure(lab: Lab) -> None:
    assert lab.refused("POST", "/experiments/", {"feature_flag_key": "x y"}) == {
        "type": "validation_error",
        "code": "required",
        "detail": "This field is required.",
        "attr": "name",
    }
    assert lab.refused("POST", "/experiments/", {"name": "n", "feature_flag_key": "x y"}) == {
        "type": "validation_error",
        "code": "invalid_key",
        "detail": "Only letters, numbers, hyphens (-) & underscores (_) are allowed.",
        "attr": "key",
    }
    assert lab.ok("GET", "/experiments/")["count"] == 0


def test_9_4_running_variant_change_refused_then_forced(lab: Lab) -> None:
    created = lab.create(start_date="2026-01-01T00:00:00Z")
    path = f"/experiments/{created['id']}/"
    change = {
        "parameters": {
            "feature_flag_variants": [
                {"key": "control", "rollout_percentage": 20},
                {"key": "test", "rollout_percentage": 80},
            ]
        }
    }
    assert lab.refused("PATCH", path, change) == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "This experiment is running. To change its flag config, send update_feature_flag_params=true "
        "(or edit the feature flag directly).",
        "attr": "feature_flag",
    }
    changed = lab.ok("PATCH", path, {**change, "update_feature_flag_params": True})
    shares = [v["rollout_percentage"] for v in changed["feature_flag"]["filters"]["multivariate"]["variants"]]
    assert shares == [20, 80]
    assert changed["feature_flag"]["version"] == created["feature_flag"]["version"] + 1


def test_9_5_end(lab: Lab) -> None:
    created = lab.create(start_date="2026-01-01T00:00:00Z")
    path = f"/experiments/{created['id']}/end/"
    ended = lab.ok("POST", path, {"conclusion": "won", "conclusion_comment": "test lifted orders"})
    assert (ended["status"], ended["end_date"]) == ("stopped", "2026-01-02T03:04:05.678901Z")
    assert (ended["conclusion"], ended["conclusion_comment"]) == ("won", "test lifted orders")
    assert ended["feature_flag"] == created["feature_flag"]
    assert lab.refused("POST", path) == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "Experiment has already ended.",
        "attr": None,
    }


def test_9_6_ship(lab: Lab) -> None:
    created = lab.create(start_date="2026-01-01T00:00:00Z")
    shipped = lab.ok("POST", f"/experiments/{created['id']}/ship_variant/", {"variant_key": "test"})
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


def test_9_8_exposure_cohort(lab: Lab) -> None:
    created = lab.create(start_date="2026-01-02T03:04:05.678901Z")
    path = f"/experiments/{created['id']}/create_exposure_cohort_for_experiment/"
    cohort = lab.ok("POST", path, {})["cohort"]
    assert cohort["name"] == 'Users exposed to experiment "Button colour"'
    assert cohort["experiment_set"] == [created["id"]]
    assert cohort["filters"] == {
        "properties": {
            "type": "OR",
            "values": [
                {
                    "type": "OR",
                    "values": [
                        {
                            "type": "behavioral",
                            "value": "performed_event",
                            "key": "$feature_flag_called",
                            "negation": False,
                            "event_type": "events",
                            "event_filters": [
                                {
                                    "key": "$feature_flag",
                                    "value": ["button-colour"],
                                    "operator": "exact",
                                    "type": "event",
                                }
                            ],
                            "explicit_datetime": "2026-01-02T03:04:05.678901+00:00",
                        }
                    ],
                }
            ],
        }
    }
    assert lab.ok("GET", f"/experiments/{created['id']}/")["exposure_cohort"] == cohort["id"]
    assert lab.refused("POST", path)["detail"] == "Experiment already has an exposure cohort"


def test_9_9_holdout(lab: Lab) -> None:
    body = {"name": "Q1 holdout", "filters": [{"properties": [], "rollout_percentage": 20}]}
    created = lab.ok("POST", "/experiment_holdouts/", body, status=201)
    assert created["description"] is None
    assert created["filters"] == [
        {"properties": [], "rollout_percentage": 20, "variant": f"holdout-{created['id']}"}
    ]


def test_9_10_soft_delete_and_hard_delete(lab: Lab) -> None:
    created = lab.create()
    path = f"/experiments/{created['id']}/"
    assert lab.ok("PATCH", path, {"deleted": True})["deleted"] is True
    assert lab.refused("GET", path, status=404) == {
        "type": "invalid_request",
        "code": "not_found",
        "detail": "Not found.",
        "attr": None,
    }
    answer = lab.call("DELETE", path)
    assert (answer.status_code, answer.content) == (405, b"")
    assert lab.ok("PATCH", path, {"deleted": False, "name": "Back"})["name"] == "Back"
