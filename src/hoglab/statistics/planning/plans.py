"""Power and sample size of an experiment to come, from the baseline's own history.

A plan runs the comparison that the experiment will run, on the statistics to expect: history scaled to the planned
size as the control, and
the same history with every value multiplied by one factor as the test variant. So a relative effect, CUPED or a
sequential test is planned by the method itself.

The difference is taken as Normal around the true one. Under the setting `posthog_numbers` a plan accounts for the
standard error of a relative effect, which varies with the estimate. Most effects on counts and amounts multiply; where
a constant is added to every value instead, the variance does not grow and slightly fewer entities suffice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, sqrt

from hoglab.statistics.config import (
    BayesianConfig,
    Design,
    DifferenceType,
    FrequentistConfig,
    StatisticsConfig,
)
from hoglab.statistics.distributions import (
    normal_cdf,
    normal_critical_value,
    student_t_critical_value,
)
from hoglab.statistics.inference.bayesian import rejection_bounds
from hoglab.statistics.inference.comparison import estimate_effect
from hoglab.statistics.inference.cuped import pooled_theta
from hoglab.statistics.inference.effects import Effect, effect_of
from hoglab.statistics.inference.group_sequential import boundaries, crossing_probability
from hoglab.statistics.inference.monitored import SHARE_OF_MONITORING
from hoglab.statistics.inference.sequential import sequential_critical_value
from hoglab.statistics.planning.power import DEFAULT_POWER
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal
from hoglab.statistics.samples.kinds import SufficientStatistics
from hoglab.statistics.samples.quantiles import QuantileSample, quantile_precision
from hoglab.statistics.samples.sums import Moments, Proportion, Retention, SampleMean, WithCovariate

MIN_PLANNED_SIZE = 100
"""Smallest planned size, fifty in each of two groups: below it a result has no statistics."""
MAX_PLANNED_SIZE = 10**12
_BISECTIONS = 30


def power_at(
    config: StatisticsConfig,
    baseline: SufficientStatistics,
    difference: float,
    sample_size: int,
    *,
    test_share: float = 0.5,
) -> float:
    """Return the chance that `sample_size` entities in both groups together give a significant result.

    `difference` is the true effect in the unit of `config`: a fraction of the baseline when relative.
    `baseline` is history: the statistics of any number of comparable entities (values, for a quantile). For a
    sequential test, and for a hybrid design, this is the power of the last look; looking earlier too can only add to
    it. For a group sequential design it is the power of all analyses together.
    Raises RefusalError where the method would refuse, and ValueError for a difference of zero, one that takes
    a rate out of 0..1, or a share outside (0, 1).
    """
    if not 0 < test_share < 1:
        raise ValueError("test_share must lie strictly between 0 and 1")
    effect, spread = _expected_effect(config, baseline, difference, sample_size, test_share)
    error = effect.standard_error
    low, high = _rejection_bounds(config, error, effect.variance_df, sample_size)
    below, above = (low - difference) / (error * spread), (difference - high) / (error * spread)
    test = config.inference_config
    if isinstance(test, FrequentistConfig) and config.is_group_sequential:
        return group_sequential_power(test, abs(difference) / (error * spread))
    return min(normal_cdf(below) + normal_cdf(above), 1.0)


def sample_size_for(
    config: StatisticsConfig,
    baseline: SufficientStatistics,
    difference: float,
    *,
    test_share: float = 0.5,
    power: float = DEFAULT_POWER,
) -> int:
    """Return the least number of entities in both groups together with at least this `power`, 100 or more.

    Arguments and errors as of `power_at`; ValueError too for a power outside (0, 1) and for one that no
    practical size reaches.
    """
    if not 0 < power < 1:
        raise ValueError("power must lie strictly between 0 and 1")
    test = config.inference_config
    if isinstance(test, FrequentistConfig) and config.is_group_sequential:
        single = replace(config, inference_config=replace(test, monitoring=None))
        size = sample_size_for(single, baseline, difference, test_share=test_share, power=power)
        return ceil(size * inflation(replace(test, analysis=None), power))

    def enough(size: int) -> bool:
        return power_at(config, baseline, difference, size, test_share=test_share) >= power

    high = MIN_PLANNED_SIZE
    while not enough(high):
        high *= 2
        if high > MAX_PLANNED_SIZE:
            raise ValueError("no practical sample size has this power")
    low = high // 2 if high > MIN_PLANNED_SIZE else high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def group_sequential_power(test: FrequentistConfig, shift: float) -> float:
    """Return the chance that any analysis of a group sequential design finds an effect.

    ``shift`` is the true effect in standard errors of the planned size. Other planned days than equal parts of the plan
    are taken as such parts. Raises ValueError for another design.
    """
    monitoring = test.monitoring
    if monitoring is None or monitoring.design is not Design.GROUP_SEQUENTIAL:
        raise ValueError("the design has no planned analyses")
    parts = monitoring.planned_analyses
    counts = tuple(range(1, parts + 1))
    bounds = boundaries(monitoring.spending, test.alpha / 2, counts, tuple(count / parts for count in counts))
    return crossing_probability(bounds, counts, shift)


@lru_cache(maxsize=256)
def inflation(test: FrequentistConfig, power: float) -> float:
    """Return the factor by which a group sequential design needs more people at its end than a single look."""
    single = normal_critical_value(test.alpha / 2) + normal_critical_value(1 - power)
    low, high = single, 2 * single
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if group_sequential_power(test, middle) >= power else (middle, high)
    return (high / single) ** 2


def _rejection_bounds(
    config: StatisticsConfig, error: float, variance_df: float | None, sample_size: int
) -> tuple[float, float]:
    """Return the two bounds below the first and above the second of which an estimate is significant."""
    test = config.inference_config
    if isinstance(test, BayesianConfig):
        return rejection_bounds(test, error, variance_df)
    if test.sequential_testing_enabled:
        critical = sequential_critical_value(test, sample_size)
    else:
        # The test at the end of a hybrid design has the rest of the error rate.
        hybrid = test.monitoring is not None and test.monitoring.design is Design.HYBRID
        tail = test.alpha / 2 * (1 - SHARE_OF_MONITORING if hybrid else 1)
        critical = (
            normal_critical_value(tail)
            if variance_df is None
            else student_t_critical_value(tail, variance_df)
        )
    return -critical * error, critical * error


def _expected_effect(
    config: StatisticsConfig,
    baseline: SufficientStatistics,
    difference: float,
    sample_size: int,
    test_share: float,
) -> tuple[Effect, float]:
    """Return the effect to expect at the planned sizes, and the standard deviation of e/√V.

    History is the control, and history with grown values the test variant. V is the larger one of two estimates where
    the groups are unequal; only Welch's is the variance that e has.
    """
    relative = config.inference_config.difference_type is DifferenceType.RELATIVE
    if difference == 0:
        raise ValueError("difference must not be zero")
    if baseline.mean == 0:
        raise RefusalError(StatisticsRefusal.BASELINE_MEAN_IS_ZERO)
    growth = 1 + (difference if relative else difference / baseline.mean)
    size_test = max(round(sample_size * test_share), 2)
    size_control = max(sample_size - size_test, 2)
    if isinstance(baseline, WithCovariate) and config.cuped.enabled:
        control, test = _scaled(baseline, size_control, 1), _scaled(baseline, size_test, growth)
        effect = estimate_effect(config, control, test)[0]
        theta = pooled_theta(control, test)
        noises = _Noise.of(control, theta), _Noise.of(test, theta)
        by_delta = config.cuped_relative_variance is not None
    else:
        plain = baseline.outcome if isinstance(baseline, WithCovariate) else baseline
        history = plain.moments()
        before, after = (_resized(plain, history, size) for size in (size_control, size_test))
        after = replace(after, mean=growth * history.mean, variance=_grown_variance(plain, history, growth))
        effect = effect_of(
            config.inference_config.difference_type, before, after, posthog_numbers=config.posthog_numbers
        )
        noises = _Noise(before.variance_of_mean), _Noise(after.variance_of_mean)
        by_delta = config.posthog_numbers
    if relative and by_delta:
        return effect, _spread(growth, *noises)
    return effect, sqrt(effect.spreads[0].at_zero) / effect.standard_error


@dataclass(frozen=True, slots=True)
class _Noise:
    """Variances of a group's mean outcome ȳ and of θ times its mean covariate, and their covariance."""

    outcome: float
    covariance: float = 0.0
    covariate: float = 0.0

    @classmethod
    def of(cls, group: WithCovariate, theta: float) -> _Noise:
        n = group.number_of_samples
        return cls(group.variance / n, theta * group.covariance / n, theta**2 * group.covariate_variance / n)

    def of_weighted(self, weight: float) -> float:
        """Return the variance of weight·ȳ - θ·x̄."""
        return weight * weight * self.outcome - 2 * weight * self.covariance + self.covariate


def _spread(growth: float, control: _Noise, test: _Noise) -> float:
    """Return the standard deviation of e/√V for a relative effect; it is not 1, as V depends on the means that make e.

    With r = ȳt/ȳc, b²·V = D²(r) = A + B(r), where A is the variance of ȳt - θ·x̄t and B(r) that of r·ȳc - θ·x̄c.
    The delta method on e/√V = (ȳt - ȳc - θ(x̄t - x̄c))/D(r): with k = (r - 1)·B'(r)/(2D²), its variance is that
    of (1 - k)·ȳt - θ·x̄t plus that of (1 - k·r)·ȳc - θ·x̄c, over D².
    """
    total = test.of_weighted(1) + control.of_weighted(growth)
    if total <= 0:
        raise RefusalError(StatisticsRefusal.NO_VARIANCE)
    slope = 2 * (growth * control.outcome - control.covariance)
    k = (growth - 1) * slope / (2 * total)
    return sqrt((test.of_weighted(1 - k) + control.of_weighted(1 - k * growth)) / total)


def _resized(baseline: SufficientStatistics, history: Moments, size: int) -> Moments:
    """Return the moments of a group of another size; fewer values also make the variance of a quantile less certain."""
    if isinstance(baseline, QuantileSample):
        variance_df = quantile_precision(baseline.level, size)
        return replace(history, number_of_samples=size, variance_df=variance_df)
    return replace(history, number_of_samples=size)


def _grown_variance(baseline: SufficientStatistics, moments: Moments, growth: float) -> float:
    if not isinstance(baseline, Proportion | Retention):
        return growth * growth * moments.variance
    rate = growth * moments.mean
    if not 0 <= rate <= 1:
        raise ValueError("the difference takes the rate out of 0..1")
    return rate * (1 - rate)


def _scaled(group: WithCovariate, size: int, growth: float) -> WithCovariate:
    """Return the sums to expect of `size` such entities with grown outcomes and the same covariates.

    A conversion stays a 1: more conversions grow Σy² by the factor itself, not by its square.
    """
    scale = size / group.number_of_samples
    converts = isinstance(group.outcome, Proportion)
    if converts and not 0 <= growth * group.mean <= 1:
        raise ValueError("the difference takes the rate out of 0..1")
    return WithCovariate(
        SampleMean(
            size,
            scale * growth * group.sum,
            scale * growth * (1 if converts else growth) * group.sum_squares,
        ),
        scale * group.covariate_sum,
        scale * group.covariate_sum_squares,
        scale * growth * group.covariate_sum_product,
    )
