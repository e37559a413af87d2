"""Results of the two legacy metric kinds, ExperimentTrendsQuery and ExperimentFunnelsQuery.

Conjugate posteriors of each variant's rate, the chance of each to win, and a verdict. The originals draw
10,000 samples; here the same quantities are integrals, so results are deterministic. Source: spec
experiment-results 4.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from hoglab.statistics.legacy.posteriors import (
    BetaPosterior,
    GammaPosterior,
    NormalPosterior,
    Posterior,
    central_interval,
    chance_to_beat,
    expected_shortfall,
)

INTERVAL_LEVEL = 0.95
MIN_LEGACY_EXPOSURE = 100
MIN_WIN_PROBABILITY = 0.9
MAX_EXPECTED_LOSS = 0.01
MAX_TEST_VARIANTS = 9
LOG_NORMAL_VARIANCE = 0.75
"""Variance of one entity's summed value over its squared mean, in the approximation of summed trends."""
_MIN_RELATIVE_SD = 1e-12


class SignificanceCode(StrEnum):
    """The verdict, as the wire names it."""

    SIGNIFICANT = "significant"
    NOT_ENOUGH_EXPOSURE = "not_enough_exposure"
    LOW_WIN_PROBABILITY = "low_win_probability"
    HIGH_LOSS = "high_loss"
    HIGH_P_VALUE = "high_p_value"


class VariantCountError(ValueError):
    """No test variant or too many; `code` is the wire's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class FunnelVariant:
    """One variant of a legacy funnel."""

    key: str
    success_count: int
    failure_count: int

    @property
    def absolute_exposure(self) -> int:
        """People who entered the funnel."""
        return self.success_count + self.failure_count

    @property
    def rate(self) -> float:
        """Observed conversion rate, 0 without exposure."""
        return self.success_count / self.absolute_exposure if self.absolute_exposure else 0.0

    def posterior(self) -> Posterior:
        """Return Beta(1 + successes, 1 + failures): a uniform prior."""
        return BetaPosterior(1 + self.success_count, 1 + self.failure_count)


@dataclass(frozen=True, slots=True)
class TrendsVariant:
    """One variant of a legacy trend: exposed users and their events (when `summed`, a total of values)."""

    key: str
    count: float
    absolute_exposure: int
    summed: bool = False

    @property
    def rate(self) -> float:
        """Observed count per exposed user, 0 without exposure."""
        return self.count / self.absolute_exposure if self.absolute_exposure else 0.0

    def posterior(self) -> Posterior:
        """Return Gamma(1 + count, rate 1 + exposure); for sums an approximation by a Normal on the mean value.

        The Normal's variance is mean²·0.75/exposure.
        """
        if not self.summed:
            return GammaPosterior(1 + self.count, 1 + self.absolute_exposure)
        spread = abs(self.rate) * sqrt(LOG_NORMAL_VARIANCE / max(self.absolute_exposure, 1))
        return NormalPosterior(self.rate, max(spread, _MIN_RELATIVE_SD))


@dataclass(frozen=True, slots=True)
class LegacyResult:
    """Statistics that both legacy responses carry.

    `probability[baseline]` is P(baseline > best test variant), `probability[test]` is P(test > baseline);
    they do not sum to 1. `p_value` is the expected loss of the leading variant, or 1 when the verdict came
    before it.
    """

    probability: dict[str, float]
    credible_intervals: dict[str, tuple[float, float]]
    significance_code: SignificanceCode
    p_value: float

    @property
    def significant(self) -> bool:
        """Whether the verdict is `significant`."""
        return self.significance_code is SignificanceCode.SIGNIFICANT


LegacyVariant = FunnelVariant | TrendsVariant


def legacy_result(baseline: LegacyVariant, tests: Sequence[LegacyVariant]) -> LegacyResult:
    """Judge a legacy experiment. Raises VariantCountError for no or more than nine test variants."""
    if not tests:
        raise VariantCountError("no_data", "There is no test variant to compare with the baseline.")
    if len(tests) > MAX_TEST_VARIANTS:
        raise VariantCountError("too_much_data", f"There are more than {MAX_TEST_VARIANTS} test variants.")
    variants = [baseline, *tests]
    posteriors = [variant.posterior() for variant in variants]
    probability = {baseline.key: chance_to_beat(posteriors[0], posteriors[1:])}
    for variant, posterior in zip(tests, posteriors[1:], strict=True):
        probability[variant.key] = chance_to_beat(posterior, posteriors[:1])
    code, loss = _verdict(variants, posteriors, max(probability.values()))
    intervals = {
        variant.key: central_interval(posterior, INTERVAL_LEVEL)
        for variant, posterior in zip(variants, posteriors, strict=True)
    }
    return LegacyResult(probability, intervals, code, loss)


def _verdict(
    variants: Sequence[LegacyVariant], posteriors: Sequence[Posterior], best_probability: float
) -> tuple[SignificanceCode, float]:
    """Return the code and the p_value field that goes with it."""
    if any(variant.absolute_exposure < MIN_LEGACY_EXPOSURE for variant in variants):
        return SignificanceCode.NOT_ENOUGH_EXPOSURE, 1.0
    if best_probability < MIN_WIN_PROBABILITY:
        return SignificanceCode.LOW_WIN_PROBABILITY, 1.0
    leader = max(range(len(variants)), key=lambda place: variants[place].rate)
    others = [posterior for place, posterior in enumerate(posteriors) if place != leader]
    loss = expected_shortfall(posteriors[leader], others)
    return (SignificanceCode.HIGH_LOSS if loss >= MAX_EXPECTED_LOSS else SignificanceCode.SIGNIFICANT), loss
