"""Every numeric vector: known inputs, known outputs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from hoglab.statistics import (
    BaselineStats,
    BayesianConfig,
    BayesianTest,
    FunnelVariant,
    Proportion,
    QuantileSample,
    Ratio,
    Retention,
    RunningTimeMetric,
    SampleMean,
    SequentialTest,
    StatisticsConfig,
    StatisticsRefusal,
    SufficientStatistics,
    TrendsVariant,
    VariantComparison,
    WithCovariate,
    baseline_failures,
    benjamini_hochberg,
    bias_risk,
    calculate_running_time,
    compare,
    holm,
    legacy_result,
    quantile_ranks,
    resolve_config,
    sample_ratio_mismatch,
    variant_failures,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
RELATIVE = 1e-9
ABSOLUTE_FOR_PROBABILITIES = 1e-12
PROBABILITIES = {"p_value", "chance_to_win"}
BOTH_METHODS = ({"method": "bayesian"}, {"method": "frequentist"})


def statistics_of(metric_type: str, row: dict[str, Any]) -> SufficientStatistics:
    n, total = row["number_of_samples"], row["sum"]
    outcome: SampleMean | Proportion
    match metric_type:
        case "ratio":
            return Ratio(**row)
        case "retention":
            retention = Retention(n, total)
            assert all(getattr(retention, name) == value for name, value in row.items())
            return retention
        case "funnel":
            outcome = Proportion(n, total)
            assert outcome.sum_squares == row["sum_squares"]
        case "mean":
            outcome = SampleMean(n, total, row["sum_squares"])
        case _:
            raise AssertionError(metric_type)
    if "covariate_sum" not in row:
        return outcome
    return WithCovariate(
        outcome, row["covariate_sum"], row["covariate_sum_squares"], row["covariate_sum_product"]
    )


def numbers_of(comparison: VariantComparison) -> dict[str, Any]:
    """All that a comparison found, under the names of the vectors."""
    assert comparison.inference is not None
    numbers = asdict(comparison.inference)
    if comparison.cuped is not None:
        cuped = comparison.cuped
        numbers |= asdict(cuped) | {
            "control_adjusted_mean": cuped.control.mean,
            "control_adjusted_variance": cuped.control.variance,
            "test_adjusted_mean": cuped.treatment.mean,
            "test_adjusted_variance": cuped.treatment.variance,
        }
    return numbers


def assert_close(name: str, found: object, expected: object) -> None:
    if isinstance(expected, list):
        assert isinstance(found, tuple), name
        assert len(found) == len(expected), name
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(f"{name}[{index}]", one, other)
    elif isinstance(expected, bool) or expected is None:
        assert found is expected, name
    else:
        assert isinstance(found, int | float), name
        assert isinstance(expected, int | float), name
        absolute = ABSOLUTE_FOR_PROBABILITIES if name in PROBABILITIES else 0.0
        assert isclose(found, expected, rel_tol=RELATIVE, abs_tol=absolute), (name, found, expected)


@pytest.mark.parametrize("vector", VECTORS["comparisons"], ids=lambda vector: vector["id"])
def test_comparison(vector: dict[str, Any]) -> None:
    config = resolve_config({**vector["stats_config"], "posthog_numbers": True})
    if vector.get("inverse"):
        assert isinstance(config.inference_config, BayesianConfig)
        config = replace(config, inference_config=replace(config.inference_config, inverse=True))
    baseline = statistics_of(vector["metric_type"], vector["baseline"])
    variant = statistics_of(vector["metric_type"], vector["variant"])

    comparison = compare(config, baseline, variant)

    assert comparison.validation_failures == ()
    assert comparison.refusal is None
    assert comparison.method == vector["stats_config"]["method"]
    numbers = numbers_of(comparison)
    expected = dict(vector["expected"])
    if "chance_to_win" in expected and "p_value" in expected:
        bayesian = replace(
            config, inference_config=BayesianConfig(difference_type=config.inference_config.difference_type)
        )
        found = compare(bayesian, baseline, variant).chance_to_win
        assert_close("chance_to_win", found, expected.pop("chance_to_win"))
    for name, value in expected.items():
        assert_close(name, numbers[name], value)


def test_the_wire_fields_are_those_of_the_method() -> None:
    for vector in VECTORS["comparisons"]:
        groups = [statistics_of(vector["metric_type"], vector[side]) for side in ("baseline", "variant")]
        comparison = compare(resolve_config(vector["stats_config"]), *groups)
        assert comparison.inference is not None
        assert comparison.significant is comparison.inference.significant
        if isinstance(comparison.inference, BayesianTest):
            assert comparison.chance_to_win == comparison.inference.chance_to_win
            assert comparison.credible_interval == comparison.inference.credible_interval
            assert comparison.p_value is None
            assert comparison.confidence_interval is None
        else:
            assert comparison.p_value == comparison.inference.p_value
            assert comparison.confidence_interval == comparison.inference.confidence_interval
            assert comparison.chance_to_win is None
            assert comparison.credible_interval is None
        sequential = vector["stats_config"].get("frequentist", {}).get("sequential_testing_enabled", False)
        assert isinstance(comparison.inference, SequentialTest) is sequential


@pytest.mark.parametrize("stats_config", BOTH_METHODS, ids=lambda config: config["method"])
@pytest.mark.parametrize("vector", VECTORS["validation"])
def test_validation(vector: dict[str, Any], stats_config: dict[str, Any]) -> None:
    baseline = statistics_of(vector["metric_type"], vector["baseline"])
    variant = statistics_of(vector["metric_type"], vector["variant"])

    comparison = compare(resolve_config(stats_config), baseline, variant)

    assert list(baseline_failures(baseline)) == vector["baseline_failures"]
    assert list(variant_failures(variant)) == vector["variant_failures"]
    assert comparison.validation_failures == variant_failures(variant)
    assert (comparison.inference is not None) is vector["has_statistics"]
    assert (comparison.refusal is None) is vector["has_statistics"]


@pytest.mark.parametrize("vector", VECTORS["refusals"], ids=lambda vector: vector["id"])
def test_refusal(vector: dict[str, Any]) -> None:
    baseline = statistics_of(vector["metric_type"], vector["baseline"])
    variant = statistics_of(vector["metric_type"], vector["variant"])

    bayesian = compare(resolve_config({"method": "bayesian"}), baseline, variant)
    frequentist = compare(
        resolve_config({"method": "frequentist", "posthog_numbers": True}), baseline, variant
    )

    assert bayesian == VariantComparison(
        bayesian.method, variant, refusal=StatisticsRefusal(vector["bayesian_refusal"])
    )
    assert frequentist.validation_failures == ()
    assert frequentist.refusal == vector["frequentist_refusal"]
    if vector["frequentist"] is None:
        assert frequentist.inference is None
    else:
        numbers = numbers_of(frequentist)
        for name, value in vector["frequentist"].items():
            assert_close(name, numbers[name], value)


@pytest.mark.parametrize("vector", VECTORS["sample_ratio_mismatch"])
def test_sample_ratio_mismatch(vector: dict[str, Any]) -> None:
    found = sample_ratio_mismatch(vector["observed"], vector["rollout"], vector["excluded_variants"])
    expected = vector["expected"]
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.expected == pytest.approx(expected["expected"], rel=RELATIVE)
    assert found.degrees_of_freedom == expected["degrees_of_freedom"]
    assert_close("chi2", found.chi2, expected["chi2"])
    # Without the absolute tolerance: the tail is computed as a tail, down to 1e-132.
    assert isclose(found.p_value, expected["p_value"], rel_tol=RELATIVE)


@pytest.mark.parametrize("vector", VECTORS["bias_risk"])
def test_bias_risk(vector: dict[str, Any]) -> None:
    found = bias_risk(
        vector["total_exposures"], vector["rollout"], excludes_multiple=vector["excludes_multiple"]
    )
    if vector["expected"] is None:
        assert found is None
    else:
        assert found is not None
        assert_close("percentage", found.multiple_variant_percentage, vector["expected"])


@pytest.mark.parametrize("vector", VECTORS["running_time"])
def test_running_time(vector: dict[str, Any]) -> None:
    stats = vector["baseline_stats"]
    found = calculate_running_time(
        RunningTimeMetric(vector["metric_type"]),
        vector["minimum_detectable_effect"],
        vector["number_of_variants"],
        baseline_value=vector["baseline_value"],
        exposure_rate_per_day=vector["exposure_rate_per_day"],
        baseline_stats=None if stats is None else BaselineStats(**stats),
    )
    for name, value in vector["expected"].items():
        assert_close(name, getattr(found, name), value)


@pytest.mark.parametrize("vector", VECTORS["legacy"])
def test_legacy(vector: dict[str, Any]) -> None:
    kind = FunnelVariant if vector["kind"] == "funnel" else TrendsVariant
    variant = kind("test", **vector["variant"])
    baseline = kind("control", **vector.get("baseline", vector["variant"]))

    result = legacy_result(baseline, [variant])

    if "credible_interval" in vector:
        assert_close("credible_interval", result.credible_intervals["test"], vector["credible_interval"])
    if "chance_to_win" in vector:
        assert isclose(result.probability["test"], vector["chance_to_win"], rel_tol=RELATIVE)


@pytest.mark.parametrize("vector", VECTORS["multiple_testing"])
def test_multiple_testing(vector: dict[str, Any]) -> None:
    assert holm(vector["p_values"]) == pytest.approx(vector["holm"], rel=RELATIVE)
    assert benjamini_hochberg(vector["p_values"]) == pytest.approx(vector["benjamini_hochberg"], rel=RELATIVE)


@pytest.mark.parametrize("vector", VECTORS["quantiles"])
def test_quantiles(vector: dict[str, Any]) -> None:
    n, level = vector["n"], vector["level"]
    ranks = quantile_ranks(level, n)
    sample = QuantileSample(n, level, vector["quantile"], vector["quantile_lower"], vector["quantile_upper"])
    assert_close("lower_rank", ranks.lower, vector["lower_rank"])
    assert_close("upper_rank", ranks.upper, vector["upper_rank"])
    assert_close("variance", sample.variance, vector["per_observation_variance"])
    assert_close("error", sample.moments().variance_of_mean ** 0.5, vector["standard_error"])


def test_the_defaults_are_bayesian_and_relative() -> None:
    assert resolve_config(None) == StatisticsConfig()
