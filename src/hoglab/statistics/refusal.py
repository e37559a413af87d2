"""Reason why no statistics could be computed, as a value and as an exception."""

from __future__ import annotations

from enum import StrEnum


class StatisticsRefusal(StrEnum):
    """Reason for null statistics; a row of a result has it as ``refusal``.

    Source: spec experiment-results 4.2 to 4.4, 4.7.
    """

    INVALID_BASELINE = "invalid-baseline"
    """The baseline has validation failures of its own."""
    INVALID_VARIANT = "invalid-variant"
    """The variant has validation failures; they are listed beside this."""
    NO_SAMPLES = "no-samples"
    TOO_FEW_SAMPLES = "too-few-samples"
    TOO_FEW_CONVERSIONS = "too-few-conversions"
    """A Bayesian funnel needs five conversions and five non-conversions on either side."""
    INCONSISTENT = "inconsistent-statistics"
    """No sample can have these sums, e.g. a sum of squares below the squared sum over n."""
    OUT_OF_RANGE = "out-of-range"
    """A number that is not finite or too large to compute with."""
    DENOMINATOR_IS_ZERO = "denominator-is-zero"
    BASELINE_MEAN_IS_ZERO = "baseline-mean-is-zero"
    BASELINE_MEAN_NOT_POSITIVE = "baseline-mean-not-positive"
    """A Bayesian relative effect needs a positive baseline mean."""
    NO_VARIANCE = "no-variance"
    TIED_VALUES = "tied-values"
    """Many values are equal to the quantile, which can only jump from one of them to the next."""


REFUSAL_WORDS = {
    StatisticsRefusal.INVALID_BASELINE: "the baseline has too little data",
    StatisticsRefusal.INVALID_VARIANT: "the variant has too little data",
    StatisticsRefusal.NO_SAMPLES: "nobody is counted in one of the two variants",
    StatisticsRefusal.TOO_FEW_SAMPLES: "one of the two variants has too few people to know how much they vary",
    StatisticsRefusal.TOO_FEW_CONVERSIONS: (
        "a Bayesian funnel needs at least 5 people who convert and 5 who do not, in both variants"
    ),
    StatisticsRefusal.INCONSISTENT: "the stored sums contradict each other; recalculate the results",
    StatisticsRefusal.OUT_OF_RANGE: "some values are too large to compute with; bound them by a percentile",
    StatisticsRefusal.DENOMINATOR_IS_ZERO: "the denominator of the ratio is zero in one of the two variants",
    StatisticsRefusal.BASELINE_MEAN_IS_ZERO: (
        "the baseline's value is zero, so that no change is a share of it; compare absolute differences"
    ),
    StatisticsRefusal.BASELINE_MEAN_NOT_POSITIVE: (
        "the baseline's value is negative, and Bayesian relative changes need a positive one; compare absolute "
        "differences"
    ),
    StatisticsRefusal.NO_VARIANCE: "all people of both variants have the same value, so that nothing varies",
    StatisticsRefusal.TIED_VALUES: (
        "too many values around the quantile are equal, so it can only jump from one to the next; compare a mean, "
        "or the share of people above a threshold"
    ),
}
"""Refusals in words, as a part of a sentence."""


class RefusalError(ValueError):
    """The statistics at hand do not allow the computation; `reason` says why."""

    def __init__(self, reason: StatisticsRefusal) -> None:
        super().__init__(f"no statistics: {reason.value}")
        self.reason = reason
