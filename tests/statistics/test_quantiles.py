"""Quantile metrics."""

from __future__ import annotations

from math import ceil, floor, isnan, sqrt

import numpy as np
import pytest
from scipy import stats

from hoglab.statistics import (
    BayesianConfig,
    BayesianTest,
    FrequentistConfig,
    FrequentistTest,
    QuantileSample,
    Ratio,
    RefusalError,
    SampleMean,
    StatisticsConfig,
    StatisticsRefusal,
    cluster_factor,
    compare,
    quantile_precision,
    quantile_ranks,
)


def test_intervals_between_the_ranks_cover_the_true_quantile() -> None:
    runs, size, level = 1500, 400, 0.8
    values = np.sort(np.random.default_rng(8).exponential(1, (runs, size)), axis=1)
    ranks = quantile_ranks(level, size)
    truth = -np.log(1 - level)
    covered = (values[:, floor(ranks.lower) - 1] <= truth) & (truth <= values[:, ceil(ranks.upper) - 1])
    # Rounding the ranks outwards makes the interval a little wider than nominal.
    assert 0.95 - 4 * sqrt(0.95 * 0.05 / runs) < covered.mean() < 0.98


def test_the_standard_error_is_that_of_repeated_samples() -> None:
    runs, size, level = 1500, 1000, 0.9
    values = np.sort(np.random.default_rng(9).exponential(1, (runs, size)), axis=1)
    ranks = quantile_ranks(level, size)
    quantiles = values[:, floor(level * size)]
    lows, highs = values[:, round(ranks.lower) - 1], values[:, round(ranks.upper) - 1]
    variances = [
        QuantileSample(size, level, *row).moments().variance_of_mean
        for row in zip(quantiles.tolist(), lows.tolist(), highs.tolist(), strict=True)
    ]
    assert np.mean(variances) == pytest.approx(float(np.var(quantiles)), rel=0.15)


def test_clustering_inflates_the_variance() -> None:
    plain = QuantileSample(1000, 0.9, 145.0, 139.0, 152.5)
    clustered = QuantileSample(1000, 0.9, 145.0, 139.0, 152.5, cluster_factor=1.8)
    assert clustered.variance == pytest.approx(1.8 * plain.variance)
    assert clustered.mean == 145.0


@pytest.mark.parametrize(("level", "enough"), [(0.5, 4), (0.9, 35), (0.1, 35), (0.99, 381)])
def test_a_quantile_needs_enough_values_on_both_sides(level: float, enough: int) -> None:
    assert QuantileSample(enough, level, 5, 4, 6).variance > 0
    with pytest.raises(RefusalError) as refused:
        _ = QuantileSample(enough - 1, level, 5, 4, 6).variance
    assert refused.value.reason is StatisticsRefusal.TOO_FEW_SAMPLES


def test_a_quantile_outside_its_own_interval_is_refused() -> None:
    with pytest.raises(RefusalError) as refused:
        _ = QuantileSample(1000, 0.5, 7, 4, 6).variance
    assert refused.value.reason is StatisticsRefusal.INCONSISTENT


@pytest.mark.parametrize("level", [0, 1, float("nan")])
def test_a_level_must_lie_inside(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        quantile_ranks(level, 100)
    with pytest.raises(ValueError, match="level"):
        QuantileSample(100, level, 1, 1, 1)


def test_a_sample_of_values_holds_the_values_at_the_ranks() -> None:
    values = list(range(1, 1001))
    sample = QuantileSample.of(reversed(values), 0.9)
    ranks = quantile_ranks(0.9, 1000)
    assert sample.quantile == 901  # the element at the 0-based rank floor(0.9·1000)
    # Value and rank are the same number here, also between two values.
    assert (sample.quantile_lower, sample.quantile_upper) == pytest.approx((ranks.lower, ranks.upper))
    few = QuantileSample.of([3.0, 1.0, 2.0], 0.5)
    assert (few.quantile_lower, few.quantile, few.quantile_upper) == (1.0, 2.0, 3.0)
    with pytest.raises(RefusalError):
        QuantileSample.of([], 0.5)


def test_one_value_per_entity_is_no_clustering_and_equal_values_are_full_clustering() -> None:
    values = np.random.default_rng(10).exponential(1, 4000).tolist()
    plain = QuantileSample.of(values, 0.7)
    alone = QuantileSample.of_clusters([[value] for value in values], 0.7)
    assert alone.cluster_factor == pytest.approx(1, rel=2e-3)
    assert alone.quantile == plain.quantile
    # Five copies of each value tell as much as one of them.
    copies = QuantileSample.of_clusters([[value] * 5 for value in values] + [[]], 0.7)
    assert copies.number_of_samples == 20_000
    assert copies.cluster_factor == pytest.approx(5, rel=2e-3)


def test_the_counts_behind_the_cluster_factor_add_up() -> None:
    rng = np.random.default_rng(11)
    rows = [(int(rng.binomial(size, 0.6)), int(size)) for size in rng.integers(1, 9, 500)]
    halves = Ratio.of(rows[:200]) + Ratio.of(rows[200:])
    assert cluster_factor(0.6, halves) == cluster_factor(0.6, Ratio.of(rows))
    with pytest.raises(RefusalError) as refused:
        cluster_factor(0.6, Ratio.of(rows[:1]))
    assert refused.value.reason is StatisticsRefusal.TOO_FEW_SAMPLES
    with pytest.raises(ValueError, match="level"):
        cluster_factor(1.0, halves)


def test_the_sums_of_a_row_are_those_of_a_mean_with_the_same_estimate() -> None:
    samples = QuantileSample(1000, 0.9, 145.0, 139.0, 152.5), QuantileSample(900, 0.9, 160.0, 150.0, 166.0)
    means = (SampleMean(sample.number_of_samples, sample.sum, sample.sum_squares) for sample in samples)
    config = StatisticsConfig(FrequentistConfig())
    by_quantiles, by_means = (compare(config, *groups).inference for groups in (samples, means))
    assert isinstance(by_quantiles, FrequentistTest)
    assert isinstance(by_means, FrequentistTest)
    assert by_quantiles.standard_error == pytest.approx(by_means.standard_error, rel=1e-9)
    assert by_quantiles.point_estimate == pytest.approx(by_means.point_estimate, rel=1e-9)
    assert by_quantiles.degrees_of_freedom < by_means.degrees_of_freedom / 10
    assert isnan(QuantileSample(10, 0.9, 5, 4, 6).sum_squares)


@pytest.mark.parametrize(("level", "size"), [(0.5, 20_000), (0.9, 50_000), (0.01, 400_000)])
def test_bounds_are_those_of_a_studentized_quantile(level: float, size: int) -> None:
    z = stats.norm.ppf(0.975)
    distance = z * sqrt(size * level * (1 - level))
    bound = stats.t.ppf(0.975, quantile_precision(level, size))
    assert bound - z == pytest.approx(z**3 / (4 * distance), rel=0.02)  # Hall and Sheather 1988


def test_a_posterior_of_quantiles_is_as_wide_as_what_is_known_of_its_variance() -> None:
    samples = QuantileSample(1000, 0.9, 145.0, 139.0, 152.5), QuantileSample(900, 0.9, 160.0, 150.0, 166.0)
    bayesian, frequentist = (
        compare(StatisticsConfig(method), *samples) for method in (BayesianConfig(), FrequentistConfig())
    )
    assert bayesian.credible_interval == pytest.approx(frequentist.confidence_interval, rel=1e-12)
    assert frequentist.p_value is not None
    assert bayesian.chance_to_win == pytest.approx(1 - frequentist.p_value / 2, rel=1e-12)
    test, reference = bayesian.inference, frequentist.inference
    assert isinstance(test, BayesianTest)
    assert isinstance(reference, FrequentistTest)
    posterior = stats.t(reference.degrees_of_freedom, test.posterior_mean, test.posterior_sd)
    assert test.risk_control == pytest.approx(posterior.expect(lambda x: x, lb=0), rel=1e-6)
    assert test.risk_treatment == pytest.approx(-posterior.expect(lambda x: x, ub=0), rel=1e-6)


@pytest.mark.parametrize("config", [StatisticsConfig(), StatisticsConfig(FrequentistConfig())])
def test_a_comparison_of_quantiles_is_validated_and_refused_like_others(config: StatisticsConfig) -> None:
    baseline = QuantileSample(1000, 0.99, 145.0, 139.0, 152.5)
    assert compare(config, baseline, baseline).refusal is None
    few = QuantileSample(49, 0.99, 145.0, 139.0, 152.5)
    assert compare(config, baseline, few).validation_failures == ("not-enough-exposures",)
    assert compare(config, baseline, QuantileSample(380, 0.99, 145.0, 139.0, 152.5)).refusal is (
        StatisticsRefusal.TOO_FEW_SAMPLES
    )
    with pytest.raises(
        ValueError, match=r"QuantileSample at 0\.5 with a baseline of QuantileSample at 0\.99"
    ):
        compare(config, baseline, QuantileSample(1000, 0.5, 145.0, 139.0, 152.5))
