"""The fingerprint of metrics (spec experiment-results 6)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hoglab.experiments.definitions.fingerprint import Calculation, fingerprint, fingerprint_v1
from hoglab.statistics import resolve_config

VECTORS = json.loads((Path(__file__).parent / "fingerprints.json").read_text())


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _calculation(vector: dict[str, Any]) -> Calculation:
    if vector["version"] == 1:
        inputs = vector["inputs"]
        config = {"method": inputs.get("method", "bayesian")}
        return Calculation(
            start_date=_moment(inputs["start"]),
            feature_flag_key="flag",
            variants=["control", "test"],
            statistics=resolve_config(config),
            stats_config=config,
            exposure_criteria=inputs.get("exp"),
            only_count_matured_users=inputs.get("mat", False),
            excluded_variants=inputs.get("exc", []),
        )
    settings = vector["settings"]
    stats = settings["stats"]
    method = stats["method"]
    config = {
        "method": method,
        "posthog_numbers": True,
        method: {
            **{k: v for k, v in stats.items() if k != "method"},
            "difference_type": stats["difference_type"].upper(),
        },
        "cuped": {"relative_variance": "delta", **settings.get("cuped", {})},
    }
    return Calculation(
        start_date=_moment(settings["start_date"]),
        feature_flag_key=settings["feature_flag_key"],
        variants=settings["variants"],
        statistics=resolve_config(config),
        stats_config=config,
        exposure_criteria=settings.get("exposure_criteria"),
        excluded_variants=settings.get("excluded", []),
        timezone=settings.get("timezone", "UTC"),
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"v{v['version']} {v['case']}")
def test_vectors(vector: dict[str, Any]) -> None:
    compute = fingerprint_v1 if vector["version"] == 1 else fingerprint
    assert compute(vector["metric"], _calculation(vector)) == vector["sha256"]


@pytest.mark.parametrize(
    ("config", "other", "same"),
    [
        ({}, {"cuped": {"enabled": True}}, False),
        ({"cuped": {"enabled": True}}, {"cuped": {"enabled": True, "relative_variance": "posthog"}}, False),
        ({"cuped": {"enabled": True}}, {"cuped": {"enabled": True, "relative_variance": "delta"}}, True),
        ({}, {"cuped": {"enabled": False, "relative_variance": "posthog"}}, True),
        ({}, {"bayesian": {"prior": {"proper": True, "mean": 0, "variance": 0.01}}}, False),
        ({}, {"bayesian": {"prior": {"proper": False, "mean": 0, "variance": 0.01}}}, True),
        (
            {"bayesian": {"prior": {"proper": True, "mean": 0, "variance": 0.01}}},
            {"bayesian": {"prior": {"proper": True, "mean": 0, "variance": 0.02}}},
            False,
        ),
        ({}, {"multiple_testing_correction": "bonferroni"}, True),
        ({}, {"posthog_numbers": True}, False),
        ({}, {"posthog_numbers": False}, True),
    ],
)
def test_every_statistical_setting_that_changes_stored_numbers_counts(
    config: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    """Stored results are found by it: with a setting left out those of the former one would be shown."""
    metric = {"metric_type": "mean", "source": {"kind": "EventsNode", "event": "buy"}}
    base = _calculation(next(v for v in VECTORS if v["version"] == 2))
    found = [fingerprint(metric, replace(base, statistics=resolve_config(each))) for each in (config, other)]
    assert (found[0] == found[1]) is same


def test_labels_do_not_count_and_settings_do() -> None:
    """Spec experiments-api 10, trap 17."""
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "buy"},
    }
    base = _calculation(next(v for v in VECTORS if v["version"] == 2))
    expected = fingerprint(metric, base)
    assert fingerprint({**metric, "uuid": "x", "name": "Orders", "fingerprint": "y"}, base) == expected
    assert fingerprint({**metric, "breakdownFilter": {"breakdowns": []}}, base) == expected
    assert fingerprint({**metric, "goal": "decrease"}, base) != expected
    assert fingerprint({**metric, "upper_bound_percentile": 1.0}, base) == fingerprint(
        {**metric, "upper_bound_percentile": 1}, base
    )
