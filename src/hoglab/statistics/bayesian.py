"""The Bayesian comparison of two groups: a Normal posterior of the effect."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from hoglab.statistics.config import BayesianConfig, Prior, SignificanceRule
from hoglab.statistics.distributions import normal_cdf, normal_critical_value, normal_pdf
from hoglab.statistics.effects import Effect, interval_around
from hoglab.statistics.refusal import Refusal, RefusalError


@dataclass(frozen=True, slots=True)
class BayesianTest:
    """Posterior of the effect.

    `chance_to_win` is P(test > baseline). `credible_interval` is symmetric around the posterior mean and,
    like it, a fraction for relative effects. `risk_control` and `risk_treatment` are the expected losses of
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

    chance_to_win = Φ(e/√V); interval = e ± Φ⁻¹(1 - (1 - ci_level)/2)·√V; losses by the Normal partial
    expectation. Source: spec experiment-results 4.5.
    """
    mean, sd = _posterior(config.prior, effect.estimate, effect.standard_error)
    z = mean / sd
    half = normal_critical_value((1 - config.ci_level) / 2) * sd
    interval = interval_around(mean, half)
    chance = normal_cdf(-z if config.inverse else z)
    return BayesianTest(
        posterior_mean=mean,
        posterior_sd=sd,
        chance_to_win=chance,
        credible_interval=interval,
        significant=is_significant(config.significance_rule, config.ci_level, chance, interval),
        risk_control=max(mean * normal_cdf(z) + sd * normal_pdf(z), 0.0),
        risk_treatment=max(-mean * normal_cdf(-z) + sd * normal_pdf(z), 0.0),
    )


def is_significant(
    rule: SignificanceRule, ci_level: float, chance_to_win: float, interval: tuple[float, float]
) -> bool:
    """Whether a posterior counts as significant.

    The default rule is one-sided on chance_to_win: at 0.95 it fires while the 95 % interval still touches
    zero. Source: spec experiment-results 4.5, 13.
    """
    if rule is SignificanceRule.INTERVAL:
        low, high = interval
        return low > 0 or high < 0
    return chance_to_win > ci_level or chance_to_win < 1 - ci_level


def rejection_bounds(config: BayesianConfig, standard_error: float) -> tuple[float, float]:
    """An estimate with this standard error is significant below the first and above the second.

    Where the posterior mean m0 + w·(e - m0) lies c posterior standard deviations from zero, with c of the rule
    of `is_significant` and the prior's weight w of the data.
    """
    two_sided = config.significance_rule is SignificanceRule.INTERVAL
    tail = (1 - config.ci_level) / (2 if two_sided else 1)
    at_zero, sd = _posterior(config.prior, 0.0, standard_error)
    weight = sd * sd / (standard_error * standard_error)
    reach = normal_critical_value(tail) * sd
    return (-reach - at_zero) / weight, (reach - at_zero) / weight


def _posterior(prior: Prior | None, estimate: float, standard_error: float) -> tuple[float, float]:
    """Mean and sd of the posterior; with a prior the precision-weighted update of two Normals."""
    if prior is None:
        return estimate, standard_error
    variance = standard_error * standard_error
    weight = prior.variance / (prior.variance + variance)
    if not weight * variance > 0:
        raise RefusalError(Refusal.OUT_OF_RANGE)
    return prior.mean + weight * (estimate - prior.mean), sqrt(weight * variance)
