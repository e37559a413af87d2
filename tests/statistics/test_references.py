"""Every comparison against gbstats, GrowthBook's engine, and scipy, on thousands of random statistics.

gbstats 0.8.0 is by other people and has the same methods. Two things it does otherwise: it forms p-values as
2·(1 - cdf), which has no digits below about 1e-13, and its variance of a relative CUPED effect is neither of ours,
so that adjusted groups are compared by absolute effects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isclose, sqrt
from typing import Any

import numpy as np
import pytest
from gbstats.bayesian.tests import EffectBayesianABTest, EffectBayesianConfig, GaussianPrior
from gbstats.frequentist.tests import (
    FrequentistConfig as TheirFrequentistConfig,
)
from gbstats.frequentist.tests import SequentialConfig, SequentialTwoSidedTTest, TwoSidedTTest
from gbstats.models import statistics as theirs
from gbstats.utils import check_srm
from scipy import stats

from hoglab.statistics import (
    BayesianConfig,
    BayesianTest,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    FrequentistTest,
    Moments,
    Prior,
    Proportion,
    QuantileSample,
    Ratio,
    Retention,
    SampleMean,
    SequentialTest,
    StatisticsConfig,
    SufficientStatistics,
    WithCovariate,
    cluster_factor,
    compare,
    effect_of,
    estimate_effect,
    infer,
    sample_ratio_mismatch,
    welch_test,
)

PAIRS_OF_EACH_KIND = 900
RELATIVE = 1e-9
PROBABILITY = 1e-12
"""Absolute: what is left of a small probability in one minus a number near one."""
ABSOLUTE_EFFECT, RELATIVE_EFFECT = DifferenceType.ABSOLUTE, DifferenceType.RELATIVE
Rng = np.random.Generator
Group = tuple[SufficientStatistics, Any]
"""The same statistics, ours and theirs."""


def spread(rng: Rng, low: float, high: float) -> float:
    """A positive number, as likely in each order of magnitude."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def size_of(rng: Rng) -> int:
    return int(spread(rng, 60, 1e7))


def sums_of(rng: Rng, size: int, mean: float, deviation: float) -> tuple[float, float]:
    """Σy and Σy² of `size` values with about this mean and standard deviation."""
    total = size * (mean + deviation * rng.standard_normal() / sqrt(size))
    return total, deviation**2 * (size - 1) * float(rng.uniform(0.9, 1.1)) + total * total / size


def means(rng: Rng) -> tuple[Group, Group]:
    mean = spread(rng, 0.01, 1000)
    # Beyond a few means of deviation, Σy² is that of the values alone and the arithmetic loses nothing.
    deviation = mean * spread(rng, 0.05, 20)

    def group() -> Group:
        size = size_of(rng)
        sums = sums_of(rng, size, mean, deviation)
        return SampleMean(size, *sums), theirs.SampleMeanStatistic(size, *sums)

    return group(), group()


def successes(rng: Rng, size: int, rate: float) -> int:
    return int(np.clip(rng.binomial(size, rate), 6, size - 6))


def funnels(rng: Rng) -> tuple[Group, Group]:
    rate = float(rng.uniform(0.02, 0.95))

    def group() -> Group:
        size = size_of(rng)
        count = successes(rng, size, rate)
        return Proportion(size, count), theirs.ProportionStatistic(size, count)

    return group(), group()


def retentions(rng: Rng) -> tuple[Group, Group]:
    rate = float(rng.uniform(0.02, 0.95))

    def group() -> Group:
        size = size_of(rng)
        count = successes(rng, size, rate)
        # A ratio whose denominator is one start event for each entity.
        ones, hits = (theirs.SampleMeanStatistic(size, total, total) for total in (size, count))
        return Retention(size, count), theirs.RatioStatistic(size, hits, ones, count)

    return group(), group()


def joint_sums(rng: Rng, size: int, deviations: tuple[float, float], mean: float) -> tuple[float, ...]:
    """Σy, Σy², Σx, Σx², Σxy of correlated pairs."""
    y, yy = sums_of(rng, size, mean, deviations[0])
    x, xx = sums_of(rng, size, mean * 1.2, deviations[1])
    centred = sqrt((yy - y * y / size) * (xx - x * x / size))
    return y, yy, x, xx, float(rng.uniform(-0.9, 0.95)) * centred + x * y / size


def ratios(rng: Rng) -> tuple[Group, Group]:
    mean = spread(rng, 0.5, 100)
    deviations = mean * spread(rng, 0.1, 3), mean * spread(rng, 0.1, 0.8)

    def group() -> Group:
        size = size_of(rng)
        y, yy, x, xx, xy = joint_sums(rng, size, deviations, mean)
        numerator, denominator = (theirs.SampleMeanStatistic(size, *part) for part in ((y, yy), (x, xx)))
        return Ratio(size, y, yy, x, xx, xy), theirs.RatioStatistic(size, numerator, denominator, xy)

    return group(), group()


def adjusted_means(rng: Rng) -> tuple[Group, Group]:
    mean = spread(rng, 0.5, 100)
    deviations = mean * spread(rng, 0.1, 3), mean * spread(rng, 0.1, 3)

    def group() -> Group:
        size = size_of(rng)
        y, yy, x, xx, xy = joint_sums(rng, size, deviations, mean)
        outcome, covariate = (theirs.SampleMeanStatistic(size, *part) for part in ((y, yy), (x, xx)))
        return (
            WithCovariate(SampleMean(size, y, yy), x, xx, xy),
            theirs.RegressionAdjustedStatistic(size, outcome, covariate, xy, 0.0),
        )

    return group(), group()


def quantiles(rng: Rng) -> tuple[Group, Group]:
    level, value = float(rng.uniform(0.1, 0.9)), spread(rng, 1, 1000)

    def group() -> Group:
        size, low, high = size_of(rng), *rng.uniform(0.05, 0.2, 2).tolist()
        quantile = value * float(rng.uniform(0.8, 1.2))
        bounds = quantile * (1 - low), quantile * (1 + high)
        entities = max(size // 3, 20)
        below_mean, size_mean = level * size / entities, size / entities
        # The two counts of an entity are close to each other, as shares of all its values are.
        n_sum, n_squares = float(size), size_mean**2 * entities * 1.4
        s_sum, s_squares = below_mean * entities, below_mean**2 * entities * 1.6
        product = below_mean * size_mean * entities * 1.45
        counts = Ratio(entities, s_sum, s_squares, n_sum, n_squares, product)
        ours = QuantileSample(size, level, quantile, *bounds, cluster_factor(level, counts))
        return ours, theirs.QuantileClusteredStatistic(
            size, size, level, quantile, *bounds, s_sum, s_squares, n_sum, n_squares, product, entities
        )

    return group(), group()


KINDS: dict[str, Callable[[Rng], tuple[Group, Group]]] = {
    "mean": means,
    "funnel": funnels,
    "retention": retentions,
    "ratio": ratios,
    "mean with covariate": adjusted_means,
    "quantile": quantiles,
}


def assert_same(found: float, expected: float, *, scale: float = 0.0) -> None:
    assert isclose(found, float(expected), rel_tol=RELATIVE, abs_tol=RELATIVE * scale), (found, expected)


def assert_same_interval(found: tuple[float, float], expected: list[float], scale: float) -> None:
    for mine, other in zip(found, expected, strict=True):
        assert_same(mine, other, scale=scale)


def differences(kind: str) -> list[DifferenceType]:
    """Those whose variance gbstats computes by the same formula."""
    return [ABSOLUTE_EFFECT] if kind == "mean with covariate" else list(DifferenceType)


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_agrees_with_gbstats(kind: str) -> None:
    rng = np.random.default_rng([7, len(kind)])
    for _ in range(PAIRS_OF_EACH_KIND):
        (control, their_control), (test, their_test) = KINDS[kind](rng)
        difference = differences(kind)[int(rng.integers(len(differences(kind))))]
        alpha, tuning = float(rng.uniform(0.005, 0.2)), spread(rng, 100, 1e6)
        name = str(difference)

        def ours(config: BayesianConfig | FrequentistConfig, pair: tuple[Any, Any] = (control, test)) -> Any:
            settings = StatisticsConfig(config, CupedConfig(enabled=True), posthog_numbers=True)
            if kind != "quantile":
                return compare(settings, *pair).inference
            # They take the error of a quantile for as well known as that of a mean; all else is the same.
            effect, _ = estimate_effect(settings, *pair)
            groups = [replace(group, variance_df=None) for group in (effect.control, effect.treatment)]
            sampled = effect_of(config.difference_type, *groups, posthog_numbers=True)
            return infer(config, sampled)

        welch = ours(FrequentistConfig(alpha, difference))
        their_config = TheirFrequentistConfig(difference_type=name, alpha=alpha)
        reference = TwoSidedTTest(their_control, their_test, their_config)
        expected = reference.compute_result()
        assert isinstance(welch, FrequentistTest)
        # An estimate near zero has the rounding of the two means that it is the difference of.
        scale = welch.standard_error + abs(reference.stat_b.mean) * (difference is ABSOLUTE_EFFECT)
        assert_same(welch.point_estimate, expected.expected, scale=scale)
        assert_same(welch.standard_error, expected.uplift.stddev)
        assert_same(welch.degrees_of_freedom, reference.dof)
        assert welch.p_value == pytest.approx(expected.p_value, rel=1e-7, abs=PROBABILITY)
        assert_same_interval(welch.confidence_interval, expected.ci, scale)

        always = ours(FrequentistConfig(alpha, difference, True, tuning))
        expected = SequentialTwoSidedTTest(
            their_control, their_test, SequentialConfig(name, alpha=alpha, sequential_tuning_parameter=tuning)
        ).compute_result()
        assert isinstance(always, SequentialTest)
        assert always.p_value == pytest.approx(expected.p_value, rel=1e-7)
        assert_same_interval(always.confidence_interval, expected.ci, scale)


@pytest.mark.parametrize("proper", [False, True])
@pytest.mark.parametrize("kind", ["mean", "funnel", "retention", "ratio"])
def test_posteriors_agree_with_gbstats(kind: str, proper: bool) -> None:
    rng = np.random.default_rng([8, len(kind), proper])
    # Their expected losses take a millisecond each.
    for _ in range(150):
        (control, their_control), (test, their_test) = KINDS[kind](rng)
        level = float(rng.uniform(0.8, 0.995))
        prior = (float(rng.uniform(-0.1, 0.1)), spread(rng, 1e-4, 1.0))
        found = compare(
            StatisticsConfig(
                BayesianConfig(level, RELATIVE_EFFECT, Prior(*prior) if proper else None),
                posthog_numbers=True,
            ),
            control,
            test,
        ).inference
        expected = EffectBayesianABTest(
            their_control,
            their_test,
            EffectBayesianConfig("relative", alpha=1 - level, prior_effect=GaussianPrior(*prior, proper)),
        ).compute_result()
        assert isinstance(found, BayesianTest)
        scale = found.posterior_sd
        assert_same(found.posterior_mean, expected.expected, scale=scale)
        assert_same(found.posterior_sd, expected.uplift.stddev)
        assert found.chance_to_win == pytest.approx(expected.chance_to_win, rel=1e-7, abs=PROBABILITY)
        assert_same_interval(found.credible_interval, expected.ci, scale)
        losses = found.risk_control, found.risk_treatment
        assert losses == pytest.approx(expected.risk, rel=1e-6, abs=1e-9 * scale)


def test_adjusted_moments_agree_with_gbstats() -> None:
    rng = np.random.default_rng(9)
    for _ in range(PAIRS_OF_EACH_KIND):
        (control, their_control), (test, their_test) = adjusted_means(rng)
        found = compare(
            StatisticsConfig(FrequentistConfig(difference_type=ABSOLUTE_EFFECT), CupedConfig(True)),
            control,
            test,
        ).cuped
        reference = TwoSidedTTest(their_control, their_test)
        assert found is not None
        assert_same(found.theta, reference.stat_a.theta, scale=1)
        for mine, other in ((found.control, reference.stat_a), (found.treatment, reference.stat_b)):
            assert mine.mean == pytest.approx(other.mean, rel=1e-9, abs=1e-9 * abs(other.unadjusted_mean))
            assert_same(mine.variance, other.variance)


def test_intervals_and_p_values_agree_with_scipy_at_every_scale() -> None:
    """One vectorised call of scipy for 5,000 pairs; far tails included."""
    rng = np.random.default_rng(10)
    size = 5000
    n = np.exp(rng.uniform(np.log(60), np.log(1e7), (2, size))).astype(int)
    deviations = np.exp(rng.uniform(-5, 8, (2, size)))
    # Between no effect and thirty standard errors.
    shift = rng.uniform(-30, 30, size) * np.sqrt((deviations**2 / n).sum(axis=0)) * (rng.random(size) < 0.8)
    mean = rng.uniform(-100, 100, size)
    reference = stats.ttest_ind_from_stats(
        mean + shift, deviations[1], n[1], mean, deviations[0], n[0], equal_var=False
    )
    config = FrequentistConfig(difference_type=ABSOLUTE_EFFECT)
    for place in range(size):
        control = Moments(float(mean[place]), float(deviations[0, place] ** 2), int(n[0, place]))
        test = Moments(float(mean[place] + shift[place]), float(deviations[1, place] ** 2), int(n[1, place]))
        found = welch_test(config, effect_of(ABSOLUTE_EFFECT, control, test, posthog_numbers=True))
        assert isclose(found.t_statistic, reference.statistic[place], rel_tol=1e-9, abs_tol=1e-9)
        assert isclose(found.p_value, reference.pvalue[place], rel_tol=1e-7, abs_tol=1e-300)


def test_sample_ratio_mismatch_agrees_with_gbstats_and_scipy() -> None:
    rng = np.random.default_rng(11)
    for _ in range(500):
        variants = int(rng.integers(2, 8))
        shares = rng.dirichlet(np.full(variants, 5.0)) * 100
        counts = rng.multinomial(int(spread(rng, 200, 1e7)), rng.dirichlet(1e5 * shares / 100)).tolist()
        keys = [f"v{place}" for place in range(variants)]
        rollout = dict(zip(keys, shares.tolist(), strict=True))
        found = sample_ratio_mismatch(dict(zip(keys, counts, strict=True)), rollout)
        assert found is not None
        reference = stats.chisquare(counts, shares / shares.sum() * sum(counts))
        assert_same(found.chi2, reference.statistic)
        assert isclose(found.p_value, float(reference.pvalue), rel_tol=RELATIVE, abs_tol=1e-300)
        assert isclose(found.p_value, float(check_srm(counts, shares.tolist())), rel_tol=1e-9, abs_tol=1e-300)
