"""The fixed-horizon frequentist comparison: Welch's t-test with a delta-method standard error."""

from __future__ import annotations

from dataclasses import dataclass

from hoglab.statistics.config import FrequentistConfig
from hoglab.statistics.distributions import student_t_critical_value, student_t_two_sided_p
from hoglab.statistics.inference.effects import Effect, interval_around, welch_degrees_of_freedom
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal

MIN_SAMPLES_PER_GROUP = 5


@dataclass(frozen=True, slots=True)
class FrequentistTest:
    """A two-sided test of no effect and the interval that goes with it, in the effect's unit."""

    point_estimate: float
    standard_error: float
    degrees_of_freedom: float
    t_statistic: float
    p_value: float
    confidence_interval: tuple[float, float]
    significant: bool


def welch_test(config: FrequentistConfig, effect: Effect) -> FrequentistTest:
    """Judge an effect. Raises RefusalError for fewer than five samples in a group or without variance.

    t = e/√V, p = 2·P(T > |t|), interval = e ± t_{1 - alpha/2}·√V. Source: spec experiment-results 4.6.
    """
    require_samples(effect)
    error = effect.standard_error
    freedom = welch_degrees_of_freedom(effect.control, effect.treatment)
    t = effect.estimate / error
    half = student_t_critical_value(config.alpha / 2, freedom) * error
    p_value = student_t_two_sided_p(t, freedom)
    return FrequentistTest(
        point_estimate=effect.estimate,
        standard_error=error,
        degrees_of_freedom=freedom,
        t_statistic=t,
        p_value=p_value,
        confidence_interval=interval_around(effect.estimate, half),
        significant=p_value < config.alpha,
    )


def require_samples(effect: Effect) -> None:
    """Raise RefusalError when a group is smaller than the frequentist tests accept."""
    if min(effect.control.number_of_samples, effect.treatment.number_of_samples) < MIN_SAMPLES_PER_GROUP:
        raise RefusalError(StatisticsRefusal.TOO_FEW_SAMPLES)
