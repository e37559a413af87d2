"""The difference between two groups, and the variance of that difference under every possible true effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, isfinite, sqrt

from hoglab.statistics.config import DifferenceType
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal
from hoglab.statistics.samples.sums import Moments


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of an estimated effect e when the true effect is r: at_zero + slope·r + curvature·r².

    The variance of an absolute effect does not depend on r. A relative effect divides by the baseline's mean b, so
    e - r = (μt - (1 + r)·μc)/b has a variance that depends on r; at r = 0 it is that of the difference over b².
    """

    at_zero: float
    degrees_of_freedom: float
    slope: float = 0.0
    curvature: float = 0.0

    def at(self, effect: float) -> float:
        """Return the variance when `effect` is the true one."""
        return self.at_zero + effect * (self.slope + effect * self.curvature)

    def interval(self, estimate: float, critical: float) -> tuple[float, float]:
        """Return the bounds of the effects that a test does not reject: (estimate - r)² <= critical²·V(r).

        For a relative effect this is Fieller's interval. Where the baseline's mean is not told from zero,
        critical²·curvature >= 1, at least one bound is infinite; effects over a baseline of the other sign are left
        out. Raises RefusalError when a number overflows.
        """
        if self.slope == 0 == self.curvature:
            return interval_around(estimate, critical * sqrt(self.at_zero))
        # The roots of leading·r² - 2·half·r + last, with a discriminant that does not cancel.
        k = critical * critical
        leading = 1 - k * self.curvature
        half = estimate + k * self.slope / 2
        last = estimate * estimate - k * self.at_zero
        own = self.slope * self.slope / 4 - self.at_zero * self.curvature
        discriminant = k * (self.at(estimate) + k * own)
        if not all(map(isfinite, (leading, half, last, discriminant))):
            raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
        root = sqrt(max(discriminant, 0.0))
        far = half + (root if half >= 0 else -root)
        if leading > 0 and far == 0:
            raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
        if leading > 0:
            low, high = sorted((far / leading, last / far))
            return _finite(low, high)
        if discriminant <= 0 or far == 0:
            return -inf, inf
        if leading == 0:
            return (last / far, inf) if half > 0 else (-inf, last / far)
        # What is rejected lies between the roots, and the estimate beyond one of them.
        low, high = sorted((far / leading, last / far))
        return (-inf, low) if estimate - low < high - estimate else (high, inf)


@dataclass(frozen=True, slots=True)
class Effect:
    """An estimated difference test - control with its sampling variance and the moments behind it.

    Each of the spreads is an estimate of the variance. A test has to reject by all of them, and an interval contains
    those of all, so that the two agree.
    """

    estimate: float
    spreads: tuple[Spread, ...]
    control: Moments
    treatment: Moments

    @property
    def widest(self) -> Spread:
        """The spread with the largest variance of an effect of zero."""
        return max(self.spreads, key=lambda spread: spread.at_zero)

    @property
    def variance(self) -> float:
        """Variance of the estimate when the true effect is zero."""
        return self.widest.at_zero

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
        """Degrees of freedom of the variance where it is not the variance of a sample; else None."""
        if self.control.variance_df is None and self.treatment.variance_df is None:
            return None
        return self.widest.degrees_of_freedom

    def interval(self, bounds: Callable[[Spread], tuple[float, float]]) -> tuple[float, float]:
        """Return the hull of the intervals of all spreads."""
        intervals = [bounds(spread) for spread in self.spreads]
        return min(low for low, _ in intervals), max(high for _, high in intervals)


@dataclass(frozen=True, slots=True)
class Denominator:
    """The baseline's mean by which a relative effect divides, and how it varies.

    `variance` is that of one of its values, `covariance` that of this value with the control's (adjusted) outcome.
    """

    mean: float
    variance: float
    covariance: float

    @classmethod
    def of(cls, control: Moments) -> Denominator:
        """Return the mean of the control itself."""
        return cls(control.mean, control.variance, control.variance)


def effect_of(
    difference_type: DifferenceType, control: Moments, treatment: Moments, *, posthog_numbers: bool = False
) -> Effect:
    """Return the absolute or relative effect between two independent groups.

    absolute: e = μt - μc,         V = vt/nt + vc/nc
    relative: e = (μt - μc)/μc,    V(r) = (vt/nt + (1 + r)²·vc/nc)/μc²

    Groups of unequal size get a second spread, with the pooled variance. With `posthog_numbers` neither that nor a
    variance that depends on r: a relative effect has V = vt/(nt·μc²) + μt²·vc/(nc·μc⁴).

    A negative control mean flips the sign of a relative effect. Raises RefusalError for a relative effect on
    a control mean of zero. Source: spec experiment-results 4.3; Fieller 1954.
    """
    absolute = difference_type is DifferenceType.ABSOLUTE
    if posthog_numbers:
        if not absolute:
            return delta_effect(control, treatment, control.mean)
        variance = treatment.variance_of_mean + control.variance_of_mean
        return _single(treatment.mean - control.mean, variance, control, treatment)
    return effect_over(None if absolute else Denominator.of(control), control, treatment)


def effect_over(denominator: Denominator | None, control: Moments, treatment: Moments) -> Effect:
    """Return the difference of the means, over a denominator where there is one.

    Raises RefusalError for a denominator of zero.
    """
    b = 1.0 if denominator is None else denominator.mean
    if b == 0:
        raise RefusalError(StatisticsRefusal.BASELINE_MEAN_IS_ZERO)
    # Dividing twice instead of by a power: a power of a tiny mean underflows to zero.
    spreads = []
    for of_test, of_control in _weights(control, treatment):
        at_zero = (of_test * treatment.variance + of_control * control.variance) / b / b
        freedom = _degrees_of_freedom(of_test, of_control, control, treatment)
        if denominator is None:
            spreads.append(Spread(at_zero, freedom))
            continue
        curvature = of_control * denominator.variance / b / b
        # No variance is negative, whatever the effect; rounding could say otherwise.
        most = 2 * sqrt(at_zero * curvature)
        slope = min(max(2 * of_control * denominator.covariance / b / b, -most), most)
        spreads.append(Spread(at_zero, freedom, slope, curvature))
    return Effect((treatment.mean - control.mean) / b, tuple(spreads), control, treatment)


def delta_effect(
    control: Moments, treatment: Moments, denominator: float, variance: float | None = None
) -> Effect:
    """Return (μt - μc)/b with PostHog's variance, for a denominator b that may differ from μc.

    Without a variance it is V = vt/(nt·b²) + μt²·vc/(nc·b⁴). Raises RefusalError when b is zero.
    Source: spec experiment-results 4.3, 4.7.
    """
    if denominator == 0:
        raise RefusalError(StatisticsRefusal.BASELINE_MEAN_IS_ZERO)
    if variance is None:
        growth = treatment.mean / denominator
        variance = treatment.variance_of_mean + growth * growth * control.variance_of_mean
        variance = variance / denominator / denominator
    return _single((treatment.mean - control.mean) / denominator, variance, control, treatment)


def _single(estimate: float, variance: float, control: Moments, treatment: Moments) -> Effect:
    freedom = _degrees_of_freedom(*next(_weights(control, treatment)), control, treatment)
    return Effect(estimate, (Spread(variance, freedom),), control, treatment)


def _weights(control: Moments, treatment: Moments) -> Iterator[tuple[float, float]]:
    """Yield the factors of the variances of test and control in that of the difference: Welch's, then the pooled.

    Where a few people stand against many, mean and variance of the few move together: those without a rare large
    value have a small mean and a small variance, and Welch's test calls that certain. The pooled variance,
    ((nt - 1)·vt + (nc - 1)·vc)/(nt + nc - 2)·(1/nt + 1/nc), has it from the many. In equal groups both are the same.
    """
    n_test, n_control = treatment.number_of_samples, control.number_of_samples
    yield 1 / n_test, 1 / n_control
    if n_test != n_control:
        common = (1 / n_test + 1 / n_control) / (n_test + n_control - 2)
        yield (n_test - 1) * common, (n_control - 1) * common


def _degrees_of_freedom(of_test: float, of_control: float, control: Moments, treatment: Moments) -> float:
    """Compute Welch and Satterthwaite's degrees of freedom of a weighted sum of two variances.

    df = (a + b)²/(a²/df_t + b²/df_c), from the shares a/(a + b) and b/(a + b) because the squares of tiny variances
    underflow; infinite without variance. The degrees of freedom of a sample's variance are n - 1.
    Source: spec experiment-results 4.6; Welch 1947.
    """
    test = of_test * treatment.variance
    total = test + of_control * control.variance
    if total <= 0:
        return inf
    share = test / total
    rest = 1 - share
    return 1 / (share * share / treatment.degrees_of_freedom + rest * rest / control.degrees_of_freedom)


def interval_around(estimate: float, half_width: float) -> tuple[float, float]:
    """Return estimate ± half_width. Raises RefusalError when a bound is not finite."""
    return _finite(estimate - half_width, estimate + half_width)


def _finite(low: float, high: float) -> tuple[float, float]:
    if not (isfinite(low) and isfinite(high)):
        raise RefusalError(StatisticsRefusal.OUT_OF_RANGE)
    return low, high
