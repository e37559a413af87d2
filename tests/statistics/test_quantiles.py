"""Quantile metrics."""

from __future__ import annotations

from math import ceil, floor, sqrt

import numpy as np
import pytest

from hoglab.statistics import QuantileSample, Refusal, RefusalError, quantile_ranks


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
    assert refused.value.reason is Refusal.TOO_FEW_SAMPLES


def test_a_quantile_outside_its_own_interval_is_refused() -> None:
    with pytest.raises(RefusalError) as refused:
        _ = QuantileSample(1000, 0.5, 7, 4, 6).variance
    assert refused.value.reason is Refusal.INCONSISTENT


@pytest.mark.parametrize("level", [0, 1, float("nan")])
def test_a_level_must_lie_inside(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        quantile_ranks(level, 100)
    with pytest.raises(ValueError, match="level"):
        QuantileSample(100, level, 1, 1, 1)
