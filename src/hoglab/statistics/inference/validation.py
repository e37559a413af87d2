"""The checks that decide whether a result has statistics at all. Source: spec experiment-results 4.4."""

from __future__ import annotations

from enum import StrEnum

from hoglab.statistics.samples.kinds import SufficientStatistics

MIN_EXPOSURES = 50
"""Smallest number of samples, in the baseline and in each test variant."""


class ValidationFailure(StrEnum):
    """Codes as they appear on the wire."""

    NOT_ENOUGH_EXPOSURES = "not-enough-exposures"
    NOT_ENOUGH_METRIC_DATA = "not-enough-metric-data"
    BASELINE_MEAN_IS_ZERO = "baseline-mean-is-zero"


def variant_failures(statistics: SufficientStatistics) -> tuple[ValidationFailure, ...]:
    """Return the validation failures of a test variant, in the order of the wire; empty when it is valid.

    Funnels and retention need at least 5 conversions, other kinds have no minimum.
    """
    failures = []
    if statistics.number_of_samples < MIN_EXPOSURES:
        failures.append(ValidationFailure.NOT_ENOUGH_EXPOSURES)
    if statistics.minimum_sum is not None and statistics.sum < statistics.minimum_sum:
        failures.append(ValidationFailure.NOT_ENOUGH_METRIC_DATA)
    return tuple(failures)


def baseline_failures(statistics: SufficientStatistics) -> tuple[ValidationFailure, ...]:
    """Return the failures of the baseline: those of a variant, and a sum of zero (values may cancel to it)."""
    failures = variant_failures(statistics)
    return (*failures, ValidationFailure.BASELINE_MEAN_IS_ZERO) if statistics.sum == 0 else failures
