"""One test variant against the baseline: validation, effect, test."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from hoglab.statistics.config import (
    BayesianConfig,
    DifferenceType,
    FrequentistConfig,
    Method,
    StatisticsConfig,
)
from hoglab.statistics.inference.bayesian import BayesianTest, bayesian_test
from hoglab.statistics.inference.cuped import CupedAdjustment, cuped_effect
from hoglab.statistics.inference.effects import Effect, effect_of
from hoglab.statistics.inference.frequentist import FrequentistTest, welch_test
from hoglab.statistics.inference.monitored import monitored_test
from hoglab.statistics.inference.sequential import SequentialTest, sequential_test
from hoglab.statistics.inference.validation import ValidationFailure, baseline_failures, variant_failures
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal
from hoglab.statistics.samples.kinds import SufficientStatistics
from hoglab.statistics.samples.quantiles import QuantileSample
from hoglab.statistics.samples.sums import Proportion, WithCovariate

MIN_BAYESIAN_CONVERSIONS = 5
"""Least conversions and least non-conversions of a Bayesian funnel, on either side."""
MAX_BAYESIAN_SUM = 1e15
MAX_BAYESIAN_SUM_SQUARES = 1e30
MIN_FREQUENTIST_BASELINE_MEAN = 1e-10
MAX_MAGNITUDE = 1e150
"""Larger numbers than this cannot be squared in double arithmetic."""

Inference = BayesianTest | FrequentistTest | SequentialTest
"""Result of a method about an effect."""


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """The statistics half of a variant's result row (spec experiment-results 5.1).

    `inference` is None, and so are the wire fields drawn from it, when the statistics were refused; `refusal` then
    says why. The row's sufficient statistics are those of `statistics`, always unadjusted.
    """

    method: Method
    statistics: SufficientStatistics
    validation_failures: tuple[ValidationFailure, ...] = ()
    refusal: StatisticsRefusal | None = None
    inference: Inference | None = None
    cuped: CupedAdjustment | None = None

    @property
    def chance_to_win(self) -> float | None:
        """P(variant > baseline), with `BayesianConfig.inverse` the opposite; None for frequentist or refused rows."""
        return self.inference.chance_to_win if isinstance(self.inference, BayesianTest) else None

    @property
    def credible_interval(self) -> tuple[float, float] | None:
        """Credible interval of the effect, a side without a bound infinite; None for frequentist or refused rows."""
        return self.inference.credible_interval if isinstance(self.inference, BayesianTest) else None

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value; None for Bayesian or refused rows."""
        return (
            self.inference.p_value if isinstance(self.inference, FrequentistTest | SequentialTest) else None
        )

    @property
    def confidence_interval(self) -> tuple[float, float] | None:
        """Confidence interval of the effect, a side without a bound infinite; None for Bayesian or refused rows."""
        return (
            self.inference.confidence_interval
            if isinstance(self.inference, FrequentistTest | SequentialTest)
            else None
        )

    @property
    def point_estimate(self) -> float | None:
        """The effect, with a prior the posterior mean; None for refused rows."""
        return None if self.inference is None else self.inference.point_estimate

    @property
    def is_unbounded(self) -> bool:
        """Whether the interval has no bound on a side: the mean that a relative effect divides by may be zero."""
        interval = self.credible_interval or self.confidence_interval
        return interval is not None and not all(map(isfinite, interval))

    @property
    def significant(self) -> bool | None:
        """Whether the effect is significant by the method; None for refused rows."""
        return None if self.inference is None else self.inference.significant


def compare(
    config: StatisticsConfig, baseline: SufficientStatistics, variant: SufficientStatistics
) -> VariantComparison:
    """Compare a test variant with the baseline.

    Statistics exist only when neither group has validation failures and the numbers allow a test; otherwise
    the result carries the variant's own failures and the reason, and nothing is raised. CUPED is applied when
    it is enabled and both groups are `WithCovariate`. Raises ValueError when the two groups are of
    different kinds.
    """
    failures = variant_failures(variant)
    if failures:
        return VariantComparison(config.method, variant, failures, StatisticsRefusal.INVALID_VARIANT)
    if baseline_failures(baseline):
        return VariantComparison(config.method, variant, refusal=StatisticsRefusal.INVALID_BASELINE)
    try:
        effect, adjustment = estimate_effect(config, baseline, variant)
        test = infer(config.inference_config, effect)
    except RefusalError as refused:
        return VariantComparison(config.method, variant, refusal=refused.reason)
    return VariantComparison(config.method, variant, inference=test, cuped=adjustment)


def estimate_effect(
    config: StatisticsConfig, baseline: SufficientStatistics, variant: SufficientStatistics
) -> tuple[Effect, CupedAdjustment | None]:
    """Return the effect of `variant` over `baseline`, with the CUPED adjustment if one was applied.

    Raises RefusalError when the method in `config` refuses these statistics (spec experiment-results 4.2 to
    4.4) and ValueError when the two groups are of different kinds.
    """
    if not config.cuped.enabled:
        baseline, variant = _outcome(baseline), _outcome(variant)
    if _kind(baseline) != _kind(variant):
        raise ValueError(f"cannot compare {_kind(variant)} with a baseline of {_kind(baseline)}")
    for group in (baseline, variant):
        if not all(abs(number) <= MAX_MAGNITUDE for number in (group.number_of_samples, *group.sums)):
            raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
    _refuse_for_method(config.inference_config, baseline, variant)
    difference_type = config.inference_config.difference_type
    if isinstance(baseline, WithCovariate) and isinstance(variant, WithCovariate):
        form = config.cuped_relative_variance
        posthog = config.posthog_numbers
        return cuped_effect(difference_type, form, baseline, variant, posthog_numbers=posthog)
    effect = effect_of(
        difference_type, baseline.moments(), variant.moments(), posthog_numbers=config.posthog_numbers
    )
    return effect, None


def infer(config: BayesianConfig | FrequentistConfig, effect: Effect) -> Inference:
    """Judge an effect by the configured method. Raises RefusalError when it has no usable variance."""
    if isinstance(config, BayesianConfig):
        return bayesian_test(config, effect)
    if config.monitoring is not None and config.analysis is not None:
        return monitored_test(config, config.monitoring, config.analysis, effect)
    return (sequential_test if config.sequential_testing_enabled else welch_test)(config, effect)


def _outcome(group: SufficientStatistics) -> SufficientStatistics:
    return group.outcome if isinstance(group, WithCovariate) else group


def _kind(group: SufficientStatistics) -> str:
    if isinstance(group, WithCovariate):
        return f"{type(group.outcome).__name__} with covariate"
    if isinstance(group, QuantileSample):
        return f"{type(group).__name__} at {group.level:g}"
    return type(group).__name__


def _refuse_for_method(
    config: BayesianConfig | FrequentistConfig, baseline: SufficientStatistics, variant: SufficientStatistics
) -> None:
    """Raise RefusalError where a method silently refuses these statistics."""
    relative = config.difference_type is DifferenceType.RELATIVE
    if isinstance(config, FrequentistConfig):
        if relative and abs(baseline.mean) < MIN_FREQUENTIST_BASELINE_MEAN:
            raise RefusalError(StatisticsRefusal.BASELINE_MEAN_IS_ZERO)
        return
    for group in (baseline, variant):
        if abs(group.sum) > MAX_BAYESIAN_SUM or group.sum_squares > MAX_BAYESIAN_SUM_SQUARES:
            raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
        # An adjusted funnel is treated as a sample mean, without this rule.
        if isinstance(group, Proportion) and min(group.sum, group.non_conversions) < MIN_BAYESIAN_CONVERSIONS:
            raise RefusalError(StatisticsRefusal.TOO_FEW_CONVERSIONS)
    if relative and baseline.mean <= 0:
        raise RefusalError(StatisticsRefusal.BASELINE_MEAN_NOT_POSITIVE)
