"""Tests of experiments that may stop early by design, at one of their analyses.

P-values are those of the whole design, so that the same level decides at each analysis; intervals hold at all analyses
together (repeated confidence intervals, Jennison and Turnbull 1989).
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from hoglab.statistics.config import Analysis, Design, FrequentistConfig, Monitoring
from hoglab.statistics.distributions import (
    normal_cdf,
    normal_critical_value,
    student_t_critical_value,
    student_t_two_sided_p,
)
from hoglab.statistics.inference.effects import Effect, Spread
from hoglab.statistics.inference.frequentist import FrequentistTest, require_samples, welch_test
from hoglab.statistics.inference.group_sequential import boundaries, repeated_p_value
from hoglab.statistics.inference.sequential import SequentialTest, sequential_test

SHARE_OF_MONITORING = 0.1
"""Share of the error rate of a hybrid design that its sequential test has, before the planned end."""
_LEAST_P_VALUE = 1e-300


def monitored_test(
    config: FrequentistConfig, monitoring: Monitoring, analysis: Analysis, effect: Effect
) -> FrequentistTest | SequentialTest:
    """Judge an effect at an analysis. Raises RefusalError as `welch_test` does."""
    if monitoring.design is Design.GROUP_SEQUENTIAL:
        return _group_sequential_test(config, monitoring, analysis, effect)
    plain = replace(config, monitoring=None, analysis=None)
    if analysis.is_last:
        share = 1 - SHARE_OF_MONITORING
        test = welch_test(replace(plain, alpha=config.alpha * share), effect)
        return replace(test, p_value=min(test.p_value / share, 1.0))
    planned = min(max(analysis.counts[-1] / max(analysis.fractions[-1], 1e-6), 1.0), 1e9)
    sequential = sequential_test(
        replace(
            plain,
            alpha=config.alpha * SHARE_OF_MONITORING,
            sequential_testing_enabled=True,
            sequential_tuning_parameter=planned,
        ),
        effect,
    )
    return replace(sequential, p_value=min(sequential.p_value / SHARE_OF_MONITORING, 1.0))


def _group_sequential_test(
    config: FrequentistConfig, monitoring: Monitoring, analysis: Analysis, effect: Effect
) -> FrequentistTest:
    """Judge an effect by the bound of an analysis, with Student's t at the level that the bound has for a Normal."""
    require_samples(effect)
    _ = effect.standard_error  # refuses an effect without variance
    bound = boundaries(monitoring.spending, config.alpha / 2, analysis.counts, analysis.fractions)[-1]
    tail = max(normal_cdf(-bound), _LEAST_P_VALUE)

    def p_value(spread: Spread) -> float:
        return student_t_two_sided_p(effect.estimate / sqrt(spread.at_zero), spread.degrees_of_freedom)

    def interval(spread: Spread) -> tuple[float, float]:
        return spread.interval(effect.estimate, student_t_critical_value(tail, spread.degrees_of_freedom))

    weakest = max(effect.spreads, key=p_value)
    error, p = sqrt(weakest.at_zero), max(p_value(weakest) / 2, _LEAST_P_VALUE)
    repeated = repeated_p_value(
        normal_critical_value(p), monitoring.spending, analysis.counts, analysis.fractions
    )
    return FrequentistTest(
        point_estimate=effect.estimate,
        standard_error=error,
        degrees_of_freedom=weakest.degrees_of_freedom,
        t_statistic=effect.estimate / error,
        p_value=min(2 * repeated, 1.0),
        confidence_interval=effect.interval(interval),
        significant=p < tail,
    )
