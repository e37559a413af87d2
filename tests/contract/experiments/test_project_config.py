"""A project's settings for experiments (spec: experiment-results 4.1, 7.1)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api

PATH = "/experiments_config/"
UNTOUCHED = {
    "default_experiment_stats_method": None,
    "default_experiment_confidence_level": None,
    "default_only_count_matured_users": False,
    "default_cuped_enabled": False,
    "default_cuped_lookback_days": None,
    "default_sequential_testing_enabled": False,
    "default_sequential_tuning_parameter": None,
    "default_posthog_numbers": False,
    "default_minimum_detectable_effect": None,
    "default_flag_persistence_enabled": False,
    "experiment_recalculation_times": None,
    "experiment_precomputation_enabled": False,
}
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "purchase"},
}


def test_settings_are_kept_and_taken_away(api: Api) -> None:
    shown = api.ok("GET", PATH)
    assert list(shown) == list(UNTOUCHED)
    assert shown == UNTOUCHED
    changes = {
        "default_experiment_confidence_level": "0.9",
        "default_cuped_lookback_days": 30,
        "default_sequential_tuning_parameter": 1,
        "default_posthog_numbers": True,
        "default_minimum_detectable_effect": 12.5,
        "experiment_recalculation_times": ["22:00", "04:00:00"],
        "experiment_precomputation_enabled": True,
        "unknown": 1,
    }
    expected = {**UNTOUCHED, **changes, "experiment_recalculation_times": ["04:00:00", "22:00:00"]}
    del expected["unknown"]
    expected["default_experiment_confidence_level"] = 0.9
    assert api.ok("PATCH", PATH, changes) == expected
    assert api.ok("GET", PATH) == expected
    cleared = api.ok("PATCH", PATH, {"default_cuped_lookback_days": None})
    assert cleared == {**expected, "default_cuped_lookback_days": None}


def test_new_experiments_start_with_them(api: Api) -> None:
    before = api.experiment("before")
    api.ok(
        "PATCH",
        PATH,
        {
            "default_experiment_stats_method": "frequentist",
            "default_experiment_confidence_level": 0.9,
            "default_only_count_matured_users": True,
            "default_flag_persistence_enabled": True,
        },
    )
    made = api.experiment("after")
    assert made["stats_config"]["method"] == "frequentist"
    assert made["stats_config"]["frequentist"] == {"alpha": 0.1}
    assert made["only_count_matured_users"] is True
    assert made["feature_flag"]["ensure_experience_continuity"] is True
    assert api.ok("GET", f"/experiments/{before['id']}/") == before


def test_cuped_by_default_holds_for_experiments_that_are_there(api: Api) -> None:
    silent = api.experiment("silent", metrics=[METRIC])
    without = api.experiment("without", metrics=[METRIC], stats_config={"cuped": {"enabled": False}})

    def fingerprint(experiment: dict[str, Any]) -> str:
        found: str = api.ok("GET", f"/experiments/{experiment['id']}/")["metrics"][0]["fingerprint"]
        return found

    before = fingerprint(silent), fingerprint(without)
    api.ok("PATCH", PATH, {"default_cuped_enabled": True})
    assert fingerprint(silent) != before[0]
    assert fingerprint(without) == before[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("default_experiment_stats_method", "guessing"),
        ("default_experiment_confidence_level", 1),
        ("default_experiment_confidence_level", 0),
        ("default_experiment_confidence_level", "much"),
        ("default_only_count_matured_users", None),
        ("default_cuped_lookback_days", 0),
        ("default_cuped_lookback_days", 31),
        ("default_sequential_tuning_parameter", 0),
        ("default_minimum_detectable_effect", -1),
        ("experiment_recalculation_times", "02:00:00"),
        ("experiment_recalculation_times", []),
        ("experiment_recalculation_times", ["02:30:00"]),
        ("experiment_recalculation_times", ["24:00:00"]),
        ("experiment_recalculation_times", [2]),
        ("experiment_recalculation_times", ["22:00:00", "03:00:00"]),
        ("experiment_recalculation_times", ["00:00:00", "08:00:00", "16:00:00"]),
    ],
)
def test_bad_values_are_refused(api: Api, name: str, value: Any) -> None:
    error = api.refused("PATCH", PATH, {"default_cuped_enabled": True, name: value})
    assert error["attr"] == name
    assert api.ok("GET", PATH) == UNTOUCHED


def test_scopes(api: Api) -> None:
    reader = api.with_key(api.new_key("project:read"))
    assert reader.ok("GET", PATH) == UNTOUCHED
    assert "project:write" in reader.refused("PATCH", PATH, {}, status=403)["detail"]
    other = api.with_key(api.new_key("experiment:write"))
    assert "project:read" in other.refused("GET", PATH, status=403)["detail"]
