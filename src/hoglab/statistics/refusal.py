"""Reason why no statistics could be computed, as a value and as an exception."""

from __future__ import annotations

from enum import StrEnum


class StatisticsRefusal(StrEnum):
    """Reason for null statistics. Never on the wire: there a refusal is a row whose statistics are null.

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


class RefusalError(ValueError):
    """The statistics at hand do not allow the computation; `reason` says why."""

    def __init__(self, reason: StatisticsRefusal) -> None:
        super().__init__(f"no statistics: {reason.value}")
        self.reason = reason
