"""The Bayesian comparison of two groups: a Normal posterior of the effect.

A relative effect has no Normal posterior, but μt - (1 + r)·μc has one for each r. The chance to win is that of the
difference, r = 0, and the interval has the effects r that are not in its tails.

Where the variance of the effect is itself uncertain, as for quantiles, the posterior is Student's t with the
degrees of freedom of the variance. Source: Gelman et al., Bayesian Data Analysis, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from hoglab.statistics.config import BayesianConfig, Prior, SignificanceRule
from hoglab.statistics.distributions import (
    normal_cdf,
    normal_critical_value,
    normal_pdf,
    student_t_cdf,
    student_t_critical_value,
    student_t_pdf,
)
from hoglab.statistics.inference.effects import Effect, Spread, interval_around
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal

_BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class BayesianTest:
    """Posterior of the effect. `posterior_sd` is its scale near zero, the standard deviation of a Normal one.

    `chance_to_win` is P(test > baseline). `credible_interval` is, like the posterior mean, a fraction for relative
    effects; a side without a bound is infinite. `risk_control` and `risk_treatment` are the expected losses of
    staying with the baseline and of choosing the test variant, in the effect's unit.
    """

    posterior_mean: float
    posterior_sd: float
    chance_to_win: float
    credible_interval: tuple[float, float]
    significant: bool
    risk_control: float
    risk_treatment: float

    @property
    def point_estimate(self) -> float:
        """The posterior mean."""
        return self.posterior_mean

    @property
    def standard_error(self) -> float:
        """The posterior standard deviation."""
        return self.posterior_sd


def bayesian_test(config: BayesianConfig, effect: Effect) -> BayesianTest:
    """Judge an effect. Raises RefusalError when the effect has no variance.

    chance_to_win = Φ(e/√V(0)); the interval has the effects r with |e - r| <= Φ⁻¹(1 - (1 - ci_level)/2)·√V(r), and
    with a prior the mean and sd of the posterior in place of e and √V(r); losses by the partial expectation.
    Source: spec experiment-results 4.5.
    """
    freedom = effect.variance_df
    mean, sd = _posterior(config.prior, effect.estimate, effect.standard_error)
    z = mean / sd
    tail = (1 - config.ci_level) / 2

    def bounds(spread: Spread) -> tuple[float, float]:
        critical = _critical_value(tail, None if freedom is None else spread.degrees_of_freedom)
        return _interval(config.prior, effect.estimate, spread, critical)

    interval = effect.interval(bounds)
    chance = _cdf(-z if config.inverse else z, freedom)
    return BayesianTest(
        posterior_mean=mean,
        posterior_sd=sd,
        chance_to_win=chance,
        credible_interval=interval,
        significant=is_significant(config.significance_rule, config.ci_level, chance, interval),
        risk_control=max(mean * _cdf(z, freedom) + sd * _excess(z, freedom), 0.0),
        risk_treatment=max(-mean * _cdf(-z, freedom) + sd * _excess(z, freedom), 0.0),
    )


def is_significant(
    rule: SignificanceRule, ci_level: float, chance_to_win: float, interval: tuple[float, float]
) -> bool:
    """Decide whether a posterior counts as significant.

    The default rule is one-sided on chance_to_win: at 0.95 it fires while the 95 % interval still touches
    zero. Source: spec experiment-results 4.5, 13.
    """
    if rule is SignificanceRule.INTERVAL:
        low, high = interval
        return low > 0 or high < 0
    return chance_to_win > ci_level or chance_to_win < 1 - ci_level


def rejection_bounds(
    config: BayesianConfig, standard_error: float, variance_df: float | None = None
) -> tuple[float, float]:
    """Return the two estimates below the first and above the second of which an effect is significant.

    Where the posterior mean m0 + w·(e - m0) lies c posterior standard deviations from zero, with c of the rule
    of `is_significant` and the prior's weight w of the data.
    """
    two_sided = config.significance_rule is SignificanceRule.INTERVAL
    tail = (1 - config.ci_level) / (2 if two_sided else 1)
    at_zero, sd = _posterior(config.prior, 0.0, standard_error)
    weight = sd * sd / (standard_error * standard_error)
    reach = _critical_value(tail, variance_df) * sd
    return (-reach - at_zero) / weight, (reach - at_zero) / weight


def _cdf(z: float, freedom: float | None) -> float:
    return normal_cdf(z) if freedom is None else student_t_cdf(z, freedom)


def _critical_value(tail: float, freedom: float | None) -> float:
    return normal_critical_value(tail) if freedom is None else student_t_critical_value(tail, freedom)


def _excess(z: float, freedom: float | None) -> float:
    """Compute ∫ t·f(t) dt from -z on, the part of the expectation above zero that the mean does not give."""
    if freedom is None:
        return normal_pdf(z)
    return (freedom + z * z) / (freedom - 1) * student_t_pdf(z, freedom)


def _interval(prior: Prior | None, estimate: float, spread: Spread, critical: float) -> tuple[float, float]:
    """Return the effects r that lie at most `critical` posterior standard deviations from the posterior mean.

    Mean and standard deviation are those for the variance V(r) of the data.
    """
    if prior is None:
        return spread.interval(estimate, critical)
    informed = prior

    def distance(effect: float) -> float:
        mean, sd = _posterior(informed, estimate, sqrt(spread.at(effect)))
        return (effect - mean) / sd

    if spread.slope == 0 == spread.curvature:
        mean, sd = _posterior(prior, estimate, sqrt(spread.at_zero))
        return interval_around(mean, critical * sd)
    # Far out the variance of the data grows without end, and what remains is the prior: the search ends.
    step = sqrt(prior.variance) + abs(estimate - prior.mean)
    low, high = prior.mean - step, prior.mean + step
    while distance(low) > -critical:
        low -= high - low
    while distance(high) < critical:
        high += high - low
    return _crossing(distance, -critical, low, high), _crossing(distance, critical, low, high)


def _crossing(distance: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return where a distance passes a target, by bisection."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if distance(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _posterior(prior: Prior | None, estimate: float, standard_error: float) -> tuple[float, float]:
    """Return the mean and sd of the posterior; with a prior, the precision-weighted update of two Normals."""
    if prior is None:
        return estimate, standard_error
    variance = standard_error * standard_error
    weight = prior.variance / (prior.variance + variance)
    if not weight * variance > 0:
        raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
    return prior.mean + weight * (estimate - prior.mean), sqrt(weight * variance)
