"""The fixed-horizon frequentist comparison: Welch's t-test of the difference, and the interval that agrees with it."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from hoglab.statistics.config import FrequentistConfig
from hoglab.statistics.distributions import student_t_critical_value, student_t_two_sided_p
from hoglab.statistics.inference.effects import Effect, Spread
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal

MIN_SAMPLES_PER_GROUP = 5


@dataclass(frozen=True, slots=True)
class FrequentistTest:
    """A two-sided test of no effect and the interval that goes with it, in the effect's unit.

    `standard_error` is that of an effect of zero; a side of the interval without a bound is infinite.
    """

    point_estimate: float
    standard_error: float
    degrees_of_freedom: float
    t_statistic: float
    p_value: float
    confidence_interval: tuple[float, float]
    significant: bool


def welch_test(config: FrequentistConfig, effect: Effect) -> FrequentistTest:
    """Judge an effect. Raises RefusalError for fewer than five samples in a group or without variance.

    t = e/√V(0), p = 2·P(T > |t|), the largest of the effect's spreads; the interval has the effects r with
    |e - r| <= t_{1 - alpha/2}·√V(r). Source: spec experiment-results 4.6; Fieller 1954.
    """
    require_samples(effect)
    _ = effect.standard_error  # refuses an effect without variance

    def p_value(spread: Spread) -> float:
        return student_t_two_sided_p(effect.estimate / sqrt(spread.at_zero), spread.degrees_of_freedom)

    def interval(spread: Spread) -> tuple[float, float]:
        critical = student_t_critical_value(config.alpha / 2, spread.degrees_of_freedom)
        return spread.interval(effect.estimate, critical)

    weakest = max(effect.spreads, key=p_value)
    error, p = sqrt(weakest.at_zero), p_value(weakest)
    return FrequentistTest(
        point_estimate=effect.estimate,
        standard_error=error,
        degrees_of_freedom=weakest.degrees_of_freedom,
        t_statistic=effect.estimate / error,
        p_value=p,
        confidence_interval=effect.interval(interval),
        significant=p < config.alpha,
    )


def require_samples(effect: Effect) -> None:
    """Raise RefusalError when a group is smaller than the frequentist tests accept."""
    if min(effect.control.number_of_samples, effect.treatment.number_of_samples) < MIN_SAMPLES_PER_GROUP:
        raise RefusalError(StatisticsRefusal.TOO_FEW_SAMPLES)
