"""Sufficient statistics: moments, and that adding them up is the same as merging the samples."""

from __future__ import annotations

from functools import reduce
from math import isclose
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.statistics import (
    Moments,
    Proportion,
    Ratio,
    RefusalError,
    Retention,
    SampleMean,
    StatisticsRefusal,
    WithCovariate,
)

NUMBERS = st.integers(-(10**9), 10**9).map(lambda thousandths: thousandths / 1000)
WHOLE = st.integers(-(10**12), 10**12)
GROUPS = st.lists(st.lists(NUMBERS, min_size=1, max_size=12), min_size=1, max_size=5)
WHOLE_GROUPS = st.lists(st.lists(WHOLE, max_size=12), min_size=1, max_size=5)
PAIRS = st.lists(st.lists(st.tuples(WHOLE, WHOLE), max_size=8), min_size=1, max_size=5)


def close(one: float, other: float, scale: float) -> bool:
    return isclose(one, other, rel_tol=1e-9, abs_tol=1e-12 * scale)


@given(GROUPS)
def test_merged_means_are_means_of_merged_samples(groups: list[list[float]]) -> None:
    merged = reduce(add, (SampleMean.of(group) for group in groups))
    values = [value for group in groups for value in group]
    direct = SampleMean.of(values)
    assert merged.number_of_samples == len(values)
    assert close(merged.sum, direct.sum, max(map(abs, values)) * len(values))
    assert close(merged.sum_squares, direct.sum_squares, 0)


@given(WHOLE_GROUPS)
def test_merging_whole_numbers_is_exact(groups: list[list[int]]) -> None:
    merged = sum((SampleMean.of(group) for group in groups), start=SampleMean(0, 0, 0))
    assert merged == SampleMean.of(value for group in groups for value in group)


@given(PAIRS)
def test_merged_ratios_and_covariates_are_those_of_the_whole(
    groups: list[list[tuple[int, int]]],
) -> None:
    everything = [pair for group in groups for pair in group]
    ratio = sum((Ratio.of(group) for group in groups), start=Ratio(0, 0, 0, 0, 0, 0, people_counted=0))
    assert ratio == Ratio.of(everything)
    covariate = reduce(add, (WithCovariate.of(group) for group in groups))
    assert covariate == WithCovariate.of(everything)


@given(st.lists(st.lists(st.integers(0, 3), max_size=10), min_size=1, max_size=5))
def test_merged_funnels_are_funnels_of_merged_entities(groups: list[list[int]]) -> None:
    def funnel(reached: list[int]) -> Proportion:
        counts = tuple(sum(step >= wanted for step in reached) for wanted in (1, 2, 3))
        return Proportion(len(reached), counts[-1], counts)

    merged = sum((funnel(group) for group in groups), start=Proportion(0, 0))
    assert merged == funnel([step for group in groups for step in group])
    retained = sum((Retention(len(group), group.count(3)) for group in groups), start=Retention(0, 0))
    assert retained == Retention(merged.number_of_samples, merged.sum)


@given(st.lists(NUMBERS, min_size=2, max_size=50))
def test_mean_and_variance_are_those_of_the_sample(values: list[float]) -> None:
    moments = SampleMean.of(values).moments()
    scale = max(map(abs, values)) ** 2
    assert close(moments.mean, float(np.mean(values)), scale)
    assert isclose(moments.variance, float(np.var(values, ddof=1)), rel_tol=1e-9, abs_tol=1e-11 * scale)


def test_whole_numbers_far_from_zero_keep_their_variance() -> None:
    values = [10**15, 10**15 + 1, 10**15 + 2]
    assert SampleMean.of(values).variance == 1.0


def test_the_variance_of_a_ratio_is_that_of_its_linearisation() -> None:
    rng = np.random.default_rng(11)
    denominators = rng.poisson(3, 400) + 1.0
    numerators = 2.5 * denominators + rng.normal(0, 4, 400)
    sample = Ratio.of(zip(numerators.tolist(), denominators.tolist(), strict=True))
    ratio = numerators.sum() / denominators.sum()
    residuals = (numerators - ratio * denominators) / denominators.mean()
    assert sample.mean == pytest.approx(ratio, rel=1e-12)
    assert sample.variance == pytest.approx(float(np.var(residuals, ddof=1)), rel=1e-9)


def test_a_ratio_that_never_varies_has_no_variance() -> None:
    assert Ratio.of([(0.3 * d, 0.1 * d) for d in range(1, 60)]).variance == 0


@given(st.integers(2, 1000), st.data())
def test_retention_is_a_ratio_with_a_denominator_of_one(n: int, data: st.DataObject) -> None:
    retained = data.draw(st.integers(0, n))
    retention, ratio = Retention(n, retained), Ratio(n, retained, retained, n, n, retained)
    assert retention.mean == ratio.mean
    assert isclose(retention.variance, ratio.variance, rel_tol=1e-12, abs_tol=1e-15)


def test_a_funnel_has_the_variance_of_the_wire_and_that_of_the_sample() -> None:
    funnel = Proportion(10, 4)
    assert funnel.variance == pytest.approx(0.24, rel=1e-15)
    assert funnel.sample_variance == pytest.approx(float(np.var([1] * 4 + [0] * 6, ddof=1)), rel=1e-15)
    assert funnel.non_conversions == 6


def test_covariates_have_the_moments_of_the_sample() -> None:
    pairs = [(1.0, 2.0), (2.0, 2.5), (4.0, 7.0), (3.0, 1.0)]
    group = WithCovariate.of(pairs)
    y, x = np.array(pairs).T
    assert group.covariate_mean == pytest.approx(float(x.mean()))
    assert group.covariate_variance == pytest.approx(float(x.var(ddof=1)))
    assert group.covariance == pytest.approx(float(np.cov(y, x)[0, 1]))
    assert group.moments() == SampleMean.of(y.tolist()).moments()
    assert (group.number_of_samples, group.sum, group.sum_squares) == (4, 10.0, 30.0)


def test_one_sample_has_no_variance() -> None:
    assert SampleMean(1, 3.0, 9.0).variance == 0
    assert Ratio(1, 3.0, 9.0, 2.0, 4.0, 6.0).variance == 0
    assert WithCovariate.of([(1.0, 2.0)]).covariance == 0


@pytest.mark.parametrize(
    "empty",
    [SampleMean(0, 0, 0), Proportion(0, 0), Ratio(0, 0, 0, 0, 0, 0, people_counted=0), Retention(0, 0)],
)
def test_no_samples_have_no_moments(empty: SampleMean | Proportion | Ratio | Retention) -> None:
    with pytest.raises(RefusalError) as refused:
        empty.moments()
    assert refused.value.reason is StatisticsRefusal.NO_SAMPLES


@pytest.mark.parametrize(
    "impossible",
    [
        SampleMean(100, 100.0, 99.99999),
        SampleMean(100, 100, 99),
        Proportion(10, 11),
        Proportion(10, -1),
        Retention(10, 11),
        Ratio(100, 100.0, 99.0, 100.0, 200.0, 100.0),
        Ratio(100, 100.0, 200.0, 100.0, 99.0, 100.0),
        Ratio(100, 100.0, 200.0, 100.0, 200.0, 500.0),
    ],
)
def test_impossible_sums_are_refused(impossible: SampleMean | Proportion | Ratio | Retention) -> None:
    with pytest.raises(RefusalError) as refused:
        impossible.moments()
    assert refused.value.reason is StatisticsRefusal.INCONSISTENT


def test_rounding_noise_is_neither_a_refusal_nor_a_variance() -> None:
    assert SampleMean(100, 100.0, 100.0 * (1 - 5e-10)).variance == 0
    assert SampleMean.of([0.1] * 1000).variance == 0


def test_a_denominator_of_zero_is_refused() -> None:
    with pytest.raises(RefusalError) as refused:
        Ratio(100, 10, 10, 0, 0, 0).moments()
    assert refused.value.reason is StatisticsRefusal.DENOMINATOR_IS_ZERO


@pytest.mark.parametrize(
    ("denominator", "zero"), [(9e-9, True), (-9e-9, True), (1.1e-8, False), (-1.1e-8, False)]
)
def test_a_denominator_near_zero_is_zero(denominator: float, zero: bool) -> None:
    ratio = Ratio(100, 10.0, 10.0, denominator, 1e-12, 0.0)
    if zero:
        with pytest.raises(RefusalError):
            _ = ratio.mean
    else:
        assert ratio.mean == 10 / denominator


def test_different_kinds_do_not_add_up() -> None:
    with pytest.raises(TypeError):
        _ = SampleMean(1, 1, 1) + Proportion(1, 1)
    with pytest.raises(TypeError):
        _ = WithCovariate(SampleMean(1, 1, 1), 0, 0, 0) + WithCovariate(Proportion(1, 1), 0, 0, 0)
    with pytest.raises(ValueError, match="different length"):
        _ = Proportion(5, 1, (3, 1)) + Proportion(5, 1, (4, 3, 1))


def test_the_variance_of_a_mean_shrinks_with_the_group() -> None:
    assert Moments(1.0, 8.0, 4).variance_of_mean == 2.0
