"""The difference between two groups and the variance of that difference."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

from hoglab.statistics.config import DifferenceType
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal
from hoglab.statistics.samples.sums import Moments


@dataclass(frozen=True, slots=True)
class Effect:
    """An estimated difference test - control with its sampling variance and the moments behind it."""

    estimate: float
    variance: float
    control: Moments
    treatment: Moments

    @property
    def standard_error(self) -> float:
        """√variance. Raises RefusalError when the effect has no usable variance."""
        if not (isfinite(self.estimate) and isfinite(self.variance)):
            raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
        if self.variance <= 0:
            raise RefusalError(StatisticsRefusal.NO_VARIANCE)
        return sqrt(self.variance)

    @property
    def number_of_samples(self) -> int:
        """Size of both groups together."""
        return self.control.number_of_samples + self.treatment.number_of_samples

    @property
    def variance_df(self) -> float | None:
        """Degrees of freedom of the variance where it is not the variance of a sample; else None.

        Raises RefusalError when the groups have no variance.
        """
        if self.control.variance_df is None and self.treatment.variance_df is None:
            return None
        return welch_degrees_of_freedom(self.control, self.treatment)


def effect_of(difference_type: DifferenceType, control: Moments, treatment: Moments) -> Effect:
    """Return the absolute or relative effect between two independent groups.

    absolute: e = μt - μc,         V = vt/nt + vc/nc
    relative: e = (μt - μc)/μc,    V = vt/(nt·μc²) + μt²·vc/(nc·μc⁴)

    A negative control mean flips the sign of a relative effect. Raises RefusalError for a relative effect on
    a control mean of zero. Source: spec experiment-results 4.3; delta method for the ratio of two means.
    """
    if difference_type is DifferenceType.ABSOLUTE:
        variance = treatment.variance_of_mean + control.variance_of_mean
        return Effect(treatment.mean - control.mean, variance, control, treatment)
    return relative_effect(control, treatment, control.mean)


def relative_effect(control: Moments, treatment: Moments, denominator: float) -> Effect:
    """Compute (μt - μc)/b with V = vt/(nt·b²) + μt²·vc/(nc·b⁴), for a denominator b that may differ from μc.

    Raises RefusalError when b is zero. Source: spec experiment-results 4.3, 4.7.
    """
    if denominator == 0:
        raise RefusalError(StatisticsRefusal.BASELINE_MEAN_IS_ZERO)
    growth = treatment.mean / denominator
    # Dividing twice instead of by a power: a power of a tiny mean underflows to zero.
    variance = (
        (treatment.variance_of_mean + growth * growth * control.variance_of_mean) / denominator / denominator
    )
    return Effect((treatment.mean - control.mean) / denominator, variance, control, treatment)


def welch_degrees_of_freedom(control: Moments, treatment: Moments) -> float:
    """Compute the Welch-Satterthwaite degrees of freedom from the absolute moments, also for relative effects.

    df = (a + b)²/(a²/(nt - 1) + b²/(nc - 1)) with a = vt/nt, b = vc/nc, computed from the shares a/(a + b)
    and b/(a + b) because the squares of tiny variances underflow. Where a variance is less certain than that of
    a sample, its own degrees of freedom replace n - 1. Source: spec experiment-results 4.6; Welch
    1947.
    """
    total = treatment.variance_of_mean + control.variance_of_mean
    if total <= 0:
        raise RefusalError(StatisticsRefusal.NO_VARIANCE)
    share = treatment.variance_of_mean / total
    rest = 1 - share
    return 1 / (share * share / treatment.degrees_of_freedom + rest * rest / control.degrees_of_freedom)


def interval_around(estimate: float, half_width: float) -> tuple[float, float]:
    """Return estimate ± half_width. Raises RefusalError when a bound is not finite."""
    interval = (estimate - half_width, estimate + half_width)
    if not all(map(isfinite, interval)):
        raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
    return interval
