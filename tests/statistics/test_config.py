"""How settings are resolved from an experiment's JSON and the project's defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.statistics import (
    BayesianConfig,
    Correction,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    Prior,
    RelativeVariance,
    StatisticsConfig,
    resolve_config,
)


def frequentist(stored: dict[str, Any], defaults: dict[str, Any] | None = None) -> FrequentistConfig:
    test = resolve_config({"method": "frequentist", "frequentist": stored}, defaults).inference_config
    assert isinstance(test, FrequentistConfig)
    return test


def bayesian(stored: dict[str, Any]) -> BayesianConfig:
    test = resolve_config({"method": "bayesian", "bayesian": stored}).inference_config
    assert isinstance(test, BayesianConfig)
    return test


def cuped(stored: object, defaults: dict[str, Any] | None = None) -> CupedConfig:
    return resolve_config({"cuped": stored}, defaults).cuped


@pytest.mark.parametrize(
    "stored", [None, {}, [], "bayesian", {"method": None}, {"method": "magic"}, {"method": []}]
)
def test_without_a_method_it_is_bayesian(stored: object) -> None:
    assert resolve_config(stored) == StatisticsConfig(BayesianConfig())


def test_everything_that_is_stored_is_read() -> None:
    stored = {
        "method": "frequentist",
        "baseline_variant_key": "old",
        "bayesian": {"ci_level": 0.9},
        "frequentist": {
            "alpha": 0.01,
            "difference_type": "ABSOLUTE",
            "sequential_testing_enabled": True,
            "sequential_tuning_parameter": 800,
        },
        "cuped": {"enabled": True, "lookback_days": 7, "relative_variance": "posthog"},
        "version": 2,
    }
    assert resolve_config(stored) == StatisticsConfig(
        FrequentistConfig(0.01, DifferenceType.ABSOLUTE, True, 800),
        CupedConfig(True, 7, RelativeVariance.POSTHOG),
        "old",
    )
    assert resolve_config(stored | {"method": "bayesian"}).inference_config == BayesianConfig(0.9)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("RELATIVE", "relative"),
        ("ABSOLUTE", "absolute"),
        ("absolute", "relative"),
        (None, "relative"),
        (1, "relative"),
    ],
)
def test_the_difference_type_is_matched_in_upper_case(stored: object, expected: str) -> None:
    assert frequentist({"difference_type": stored}).difference_type == expected
    assert bayesian({"difference_type": stored}).difference_type == expected


@pytest.mark.parametrize("stored", [0, 1, -0.1, 1.5, "0.9", None, True, float("nan"), 10**400])
def test_levels_outside_the_open_interval_fall_back(stored: object) -> None:
    assert bayesian({"ci_level": stored}).ci_level == 0.95
    assert frequentist({"alpha": stored}).alpha == 0.05


def test_a_present_switch_beats_the_projects_default() -> None:
    defaults = {"default_sequential_testing_enabled": True, "default_cuped_enabled": True}
    assert frequentist({}, defaults).sequential_testing_enabled
    assert not frequentist({"sequential_testing_enabled": False}, defaults).sequential_testing_enabled
    assert not frequentist({"sequential_testing_enabled": None}, defaults).sequential_testing_enabled
    assert not frequentist({}).sequential_testing_enabled
    assert cuped({}, defaults).enabled
    assert cuped(None, defaults).enabled
    assert not cuped({"enabled": False}, defaults).enabled
    assert not cuped({}).enabled


@pytest.mark.parametrize(
    ("stored", "default", "expected"),
    [
        (1, None, 1),
        (1e9, None, 1e9),
        (0.5, 700, 700),
        (2e9, 700, 700),
        ("900", 700, 700),
        (None, 0, 5000),
        (None, None, 5000),
    ],
)
def test_the_tuning_parameter_falls_back_when_out_of_range(
    stored: object, default: object, expected: float
) -> None:
    found = frequentist(
        {"sequential_tuning_parameter": stored}, {"default_sequential_tuning_parameter": default}
    )
    assert found.sequential_tuning_parameter == expected


@pytest.mark.parametrize(
    ("stored", "default", "expected"),
    [
        (1, 9, 1),
        (30, 9, 30),
        (0, 9, 1),
        (99, 9, 30),
        (7.5, 9, 9),
        (True, 9, 9),
        (None, 40, 30),
        (None, "9", 14),
    ],
)
def test_lookback_days_are_clamped(stored: object, default: object, expected: int) -> None:
    assert (
        cuped({"lookback_days": stored}, {"default_cuped_lookback_days": default}).lookback_days == expected
    )


def test_only_a_proper_prior_is_used() -> None:
    assert bayesian({"prior": {"mean": 0.1, "variance": 0.5, "proper": True}}).prior == Prior(0.1, 0.5)
    for prior in (
        {"mean": 0.1, "variance": 0.5},
        {"mean": 0.1, "variance": 0.5, "proper": False},
        {"mean": 0.1, "variance": 0, "proper": True},
        {"mean": "x", "variance": 1, "proper": True},
        "RELATIVE",
    ):
        assert bayesian({"prior": prior}).prior is None
    assert bayesian({"prior_type": "RELATIVE"}) == BayesianConfig()


def test_the_baseline_is_the_configured_one_then_control_then_the_first() -> None:
    assert StatisticsConfig(baseline_variant_key="b").baseline_key(["a", "control"]) == "b"
    assert StatisticsConfig().baseline_key(["a", "control"]) == "control"
    assert StatisticsConfig().baseline_key(["a", "b"]) == "a"
    assert resolve_config({"baseline_variant_key": ""}).baseline_variant_key is None
    with pytest.raises(ValueError, match="no baseline"):
        StatisticsConfig().baseline_key([])


@pytest.mark.parametrize("level", [0, 1, -1, float("nan")])
def test_a_level_given_by_code_must_make_sense(level: float) -> None:
    with pytest.raises(ValueError, match="ci_level"):
        BayesianConfig(level)
    with pytest.raises(ValueError, match="alpha"):
        FrequentistConfig(level)


@pytest.mark.parametrize("parameter", [0.9, 1.1e9, float("nan")])
def test_a_tuning_parameter_given_by_code_must_be_in_range(parameter: float) -> None:
    with pytest.raises(ValueError, match="sequential_tuning_parameter"):
        FrequentistConfig(sequential_tuning_parameter=parameter)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SECTION = JSON | st.dictionaries(
    st.sampled_from(
        ["ci_level", "alpha", "difference_type", "prior", "enabled", "lookback_days", "relative_variance"]
    ),
    JSON,
)


@given(
    JSON
    | st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(["bayesian", "frequentist"]) | JSON,
            "bayesian": SECTION,
            "frequentist": SECTION,
            "cuped": SECTION,
            "baseline_variant_key": JSON,
        },
    )
)
def test_any_json_resolves_to_a_usable_config(stored: object) -> None:
    config = resolve_config(stored)
    assert config.inference_config.method == config.method
    assert 1 <= config.cuped.lookback_days <= 30


@pytest.mark.parametrize("correction", Correction)
def test_a_correction_is_opted_into(correction: Correction) -> None:
    assert resolve_config({"multiple_testing_correction": str(correction)}).correction is correction


@pytest.mark.parametrize("stored", [None, "Holm", "", 1, [], {}])
def test_an_unknown_correction_is_none(stored: object) -> None:
    assert resolve_config({"multiple_testing_correction": stored}).correction is Correction.NONE
