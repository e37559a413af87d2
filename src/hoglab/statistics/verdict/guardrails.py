"""Guardrails: metrics that a change must not harm, each with a margin that it may lose.

A guardrail is shown to be safe where a loss of its margin is rejected by a one-sided test at the level of the
experiment: the bound of the interval at twice that level lies within the margin. Every guardrail has to be shown, so
that no level is divided (an intersection-union test); what several of them cost is power, which the plan provides
(Schultzberg, Ankargren, Frånberg 2024).
"""

from __future__ import annotations

from dataclasses import replace

from hoglab.statistics.config import (
    BayesianConfig,
    DifferenceType,
    FrequentistConfig,
    SignificanceRule,
    StatisticsConfig,
)
from hoglab.statistics.inference.comparison import compare
from hoglab.statistics.multiple_testing import Correction
from hoglab.statistics.refusal import RefusalError
from hoglab.statistics.samples.kinds import SufficientStatistics


def safety_config(config: StatisticsConfig) -> StatisticsConfig:
    """Return the comparison that guardrails are judged by: relative, without a prior, at twice the level.

    Each side of its interval is a one-sided bound at the level itself, 5 % by default.
    """
    test = config.inference_config
    judging: BayesianConfig | FrequentistConfig
    if isinstance(test, BayesianConfig):
        level = max(1 - 2 * (1 - test.ci_level), test.ci_level / 2)
        judging = BayesianConfig(level, significance_rule=SignificanceRule.INTERVAL)
    else:
        alpha = min(2 * test.alpha, (1 + test.alpha) / 2)
        judging = replace(test, alpha=alpha, difference_type=DifferenceType.RELATIVE)
    return replace(config, inference_config=judging, correction=Correction.NONE)


def largest_loss(
    config: StatisticsConfig,
    baseline: SufficientStatistics,
    variant: SufficientStatistics,
    *,
    wants_decrease: bool,
) -> float | None:
    """Return the largest loss of a variant that is still possible, as a share of the baseline; negative for a gain.

    It is infinite where the baseline's mean is not told from zero, and None without statistics.
    """
    comparison = compare(safety_config(config), baseline, variant)
    interval = comparison.credible_interval or comparison.confidence_interval
    if interval is None:
        return None
    try:
        below_zero = baseline.mean < 0
    except RefusalError:
        return None
    # A relative effect has the other sign where the baseline is negative.
    return interval[1] if wants_decrease != below_zero else -interval[0]
