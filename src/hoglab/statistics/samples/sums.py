"""Sufficient statistics of one variant, per kind of metric.

A kind of metric is a class. Each class holds what the wire carries for it (same field names), knows its mean
and variance, and adds up: the sum of the statistics of two disjoint groups is the statistics of the merged
group. Sums that are whole numbers stay Python integers, so counts are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from math import fsum
from typing import ClassVar

from hoglab.statistics.refusal import RefusalError, StatisticsRefusal

SHORTFALL_TOLERANCE = 1e-9
"""Relative amount by which a sum of squares may fall short of its smallest possible value."""
ROUNDING_NOISE = 1e-14
"""A centred sum below this share of its terms is rounding noise of double arithmetic, i.e. zero."""
MIN_DENOMINATOR_MEAN = 1e-10
"""A ratio whose mean denominator is closer to zero than this has no value."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of one group as a test needs them: mean and per-sample variance of the metric, and the group's size.

    `variance_df` says how well the variance is known, as degrees of freedom; None for that of a sample, n - 1.
    """

    mean: float
    variance: float
    number_of_samples: int
    variance_df: float | None = None

    @property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the estimate of the variance."""
        return self.number_of_samples - 1 if self.variance_df is None else self.variance_df

    @property
    def variance_of_mean(self) -> float:
        """Squared standard error of the mean."""
        return self.variance / self.number_of_samples


@dataclass(frozen=True, slots=True)
class SampleMean:
    """A mean metric: one value per entity.

    `sum` and `sum_squares` are Σy and Σy² over the group. Source: spec experiment-results 3.2, 4.2.
    """

    number_of_samples: int
    sum: float
    sum_squares: float

    minimum_sum: ClassVar[float | None] = None

    @classmethod
    def of(cls, values: Iterable[float]) -> SampleMean:
        """Compute the statistics of the per-entity values."""
        ys = list(values)
        return cls(len(ys), _total(ys), _total([y * y for y in ys]))

    @property
    def sums(self) -> tuple[float, ...]:
        """Every sum that enters the arithmetic."""
        return (self.sum, self.sum_squares)

    @property
    def mean(self) -> float:
        """Σy / n. Raises RefusalError without samples."""
        return self.sum / _require_samples(self.number_of_samples)

    @property
    def variance(self) -> float:
        """Sample variance, divisor n - 1; 0 for one sample. Raises RefusalError when Σy² < (Σy)²/n."""
        return _sample_variance(self.number_of_samples, self.sum, self.sum_squares)

    def moments(self) -> Moments:
        """Return the mean, variance and size. Raises RefusalError as `mean` and `variance` do."""
        return Moments(self.mean, self.variance, self.number_of_samples)

    def __add__(self, other: object) -> SampleMean:
        if not isinstance(other, SampleMean):
            return NotImplemented
        return SampleMean(
            self.number_of_samples + other.number_of_samples,
            self.sum + other.sum,
            self.sum_squares + other.sum_squares,
        )


@dataclass(frozen=True, slots=True)
class Proportion:
    """A funnel metric: `sum` entities out of `number_of_samples` reached the last step.

    `step_counts[i]` entities reached step i + 1; empty where nothing was counted.
    Source: spec experiment-results 3.3, 4.2.
    """

    number_of_samples: int
    sum: int
    step_counts: tuple[int, ...] = ()

    minimum_sum: ClassVar[float | None] = 5

    @property
    def sum_squares(self) -> int:
        """Equal to `sum`: a conversion counts 1, and 1² = 1."""
        return self.sum

    @property
    def non_conversions(self) -> int:
        """Entities that did not reach the last step."""
        return self.number_of_samples - self.sum

    @property
    def sums(self) -> tuple[float, ...]:
        """Every sum that enters the arithmetic."""
        return (self.sum,)

    @property
    def mean(self) -> float:
        """Conversion rate. Raises RefusalError without samples or outside 0..1."""
        return _rate(self.sum, self.number_of_samples)

    @property
    def variance(self) -> float:
        """p(1 - p), without the factor n/(n - 1): that is how the wire's numbers are made."""
        rate = self.mean
        return rate * (1 - rate)

    @property
    def sample_variance(self) -> float:
        """p(1 - p)·n/(n - 1), the variance that belongs beside covariances with divisor n - 1."""
        return _sample_variance(self.number_of_samples, self.sum, self.sum)

    def moments(self) -> Moments:
        """Return the mean, variance and size. Raises RefusalError as `mean` does."""
        return Moments(self.mean, self.variance, self.number_of_samples)

    def __add__(self, other: object) -> Proportion:
        if not isinstance(other, Proportion):
            return NotImplemented
        if self.step_counts and other.step_counts and len(self.step_counts) != len(other.step_counts):
            raise ValueError("funnels of different length cannot be added")
        steps = zip_longest(self.step_counts, other.step_counts, fillvalue=0)
        return Proportion(
            self.number_of_samples + other.number_of_samples,
            self.sum + other.sum,
            tuple(mine + theirs for mine, theirs in steps),
        )


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio metric: Σm / Σd over the group, with one (m, d) pair per entity.

    `people_counted` is the number of entities with a denominator other than zero; None where nobody counted them.
    Source: spec experiment-results 3.4, 4.2; delta method: Deng, Knoblich, Lu 2018.
    """

    number_of_samples: int
    sum: float
    sum_squares: float
    denominator_sum: float
    denominator_sum_squares: float
    numerator_denominator_sum_product: float
    people_counted: int | None = field(default=None, kw_only=True)

    minimum_sum: ClassVar[float | None] = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Ratio:
        """Compute the statistics of the per-entity (numerator, denominator) pairs."""
        rows = list(pairs)
        return cls(
            len(rows),
            _total([m for m, _ in rows]),
            _total([m * m for m, _ in rows]),
            _total([d for _, d in rows]),
            _total([d * d for _, d in rows]),
            _total([m * d for m, d in rows]),
            people_counted=sum(d != 0 for _, d in rows),
        )

    @property
    def sums(self) -> tuple[float, ...]:
        """Every sum that enters the arithmetic."""
        return (
            self.sum,
            self.sum_squares,
            self.denominator_sum,
            self.denominator_sum_squares,
            self.numerator_denominator_sum_product,
        )

    @property
    def mean(self) -> float:
        """R = Σm / Σd. Raises RefusalError without samples or with a denominator of zero."""
        if abs(self.denominator_sum / _require_samples(self.number_of_samples)) < MIN_DENOMINATOR_MEAN:
            raise RefusalError(StatisticsRefusal.DENOMINATOR_IS_ZERO)
        return self.sum / self.denominator_sum

    @property
    def variance(self) -> float:
        """Delta-method variance per sample: v_M/D² + M²·v_D/D⁴ - 2·M·cov/D³, moments with divisor n - 1.

        Computed as (v_M + R²·v_D - 2·R·cov)/D². Raises RefusalError for impossible sums.
        """
        n, ratio = self.number_of_samples, self.mean
        numerator = _sample_variance(n, self.sum, self.sum_squares)
        denominator = _sample_variance(n, self.denominator_sum, self.denominator_sum_squares)
        covariance = _sample_covariance(
            n, self.numerator_denominator_sum_product, self.sum, self.denominator_sum
        )
        spread = numerator + ratio * ratio * denominator
        cross = 2 * ratio * covariance
        mean_denominator = self.denominator_sum / n
        return _without_noise(spread - cross, spread + abs(cross)) / (mean_denominator * mean_denominator)

    def moments(self) -> Moments:
        """Return the mean, variance and size. Raises RefusalError as `mean` and `variance` do."""
        return Moments(self.mean, self.variance, self.number_of_samples)

    def __add__(self, other: object) -> Ratio:
        if not isinstance(other, Ratio):
            return NotImplemented
        return Ratio(
            self.number_of_samples + other.number_of_samples,
            self.sum + other.sum,
            self.sum_squares + other.sum_squares,
            self.denominator_sum + other.denominator_sum,
            self.denominator_sum_squares + other.denominator_sum_squares,
            self.numerator_denominator_sum_product + other.numerator_denominator_sum_product,
            people_counted=None
            if self.people_counted is None or other.people_counted is None
            else self.people_counted + other.people_counted,
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """A retention metric: `sum` of the `number_of_samples` entities with a start event came back.

    It is a ratio whose denominator is 1 for every entity. Source: spec experiment-results 3.6, 4.2.
    """

    number_of_samples: int
    sum: int

    minimum_sum: ClassVar[float | None] = 5

    @property
    def sum_squares(self) -> int:
        """Equal to `sum`."""
        return self.sum

    @property
    def denominator_sum(self) -> int:
        """Number of entities with a start event."""
        return self.number_of_samples

    @property
    def denominator_sum_squares(self) -> int:
        """Number of entities with a start event."""
        return self.number_of_samples

    @property
    def numerator_denominator_sum_product(self) -> int:
        """Equal to `sum`."""
        return self.sum

    @property
    def sums(self) -> tuple[float, ...]:
        """Every sum that enters the arithmetic."""
        return (self.sum,)

    @property
    def mean(self) -> float:
        """Share that came back. Raises RefusalError without samples or outside 0..1."""
        return _rate(self.sum, self.number_of_samples)

    @property
    def variance(self) -> float:
        """The ratio's delta-method variance, which for a denominator of 1 is p(1 - p)·n/(n - 1)."""
        return _sample_variance(self.number_of_samples, self.sum, self.sum)

    def moments(self) -> Moments:
        """Return the mean, variance and size. Raises RefusalError as `mean` does."""
        return Moments(self.mean, self.variance, self.number_of_samples)

    def __add__(self, other: object) -> Retention:
        if not isinstance(other, Retention):
            return NotImplemented
        return Retention(self.number_of_samples + other.number_of_samples, self.sum + other.sum)


@dataclass(frozen=True, slots=True)
class WithCovariate:
    """A mean or funnel metric y together with a covariate x measured before exposure (CUPED).

    `covariate_sum_product` is Σ y·x. Mean and variance are those of the unadjusted outcome.
    Source: spec experiment-results 3.8; Deng, Xu, Kohavi, Walker 2013.
    """

    outcome: SampleMean | Proportion
    covariate_sum: float
    covariate_sum_squares: float
    covariate_sum_product: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> WithCovariate:
        """Compute the statistics of per-entity (value, covariate) pairs of a mean metric."""
        rows = list(pairs)
        return cls(
            SampleMean.of(y for y, _ in rows),
            _total([x for _, x in rows]),
            _total([x * x for _, x in rows]),
            _total([y * x for y, x in rows]),
        )

    @property
    def number_of_samples(self) -> int:
        """Size of the group."""
        return self.outcome.number_of_samples

    @property
    def sum(self) -> float:
        """Σy of the unadjusted outcome."""
        return self.outcome.sum

    @property
    def sum_squares(self) -> float:
        """Σy² of the unadjusted outcome."""
        return self.outcome.sum_squares

    @property
    def minimum_sum(self) -> float | None:
        """Smallest possible sum of the outcome."""
        return self.outcome.minimum_sum

    @property
    def sums(self) -> tuple[float, ...]:
        """Every sum that enters the arithmetic."""
        covariate = (self.covariate_sum, self.covariate_sum_squares, self.covariate_sum_product)
        return self.outcome.sums + covariate

    @property
    def mean(self) -> float:
        """Mean of the unadjusted outcome."""
        return self.outcome.mean

    @property
    def variance(self) -> float:
        """Variance of the unadjusted outcome."""
        return self.outcome.variance

    @property
    def covariate_mean(self) -> float:
        """Σx / n. Raises RefusalError without samples."""
        return self.covariate_sum / _require_samples(self.number_of_samples)

    @property
    def covariate_variance(self) -> float:
        """Sample variance of x, divisor n - 1."""
        return _sample_variance(self.number_of_samples, self.covariate_sum, self.covariate_sum_squares)

    @property
    def covariance(self) -> float:
        """Sample covariance of y and x, divisor n - 1."""
        return _sample_covariance(
            self.number_of_samples, self.covariate_sum_product, self.outcome.sum, self.covariate_sum
        )

    def moments(self) -> Moments:
        """Return the mean, variance and size of the unadjusted outcome."""
        return self.outcome.moments()

    def __add__(self, other: object) -> WithCovariate:
        if not isinstance(other, WithCovariate):
            return NotImplemented
        mine, theirs = self.outcome, other.outcome
        outcome: SampleMean | Proportion
        if (isinstance(mine, SampleMean) and isinstance(theirs, SampleMean)) or (
            isinstance(mine, Proportion) and isinstance(theirs, Proportion)
        ):
            outcome = mine + theirs
        else:
            return NotImplemented
        return WithCovariate(
            outcome,
            self.covariate_sum + other.covariate_sum,
            self.covariate_sum_squares + other.covariate_sum_squares,
            self.covariate_sum_product + other.covariate_sum_product,
        )


def _total(values: list[float]) -> float:
    """Return Σ, exact for integers and correctly rounded for floats."""
    return sum(values) if all(isinstance(value, int) for value in values) else fsum(values)


def _require_samples(number_of_samples: int) -> int:
    if number_of_samples < 1:
        raise RefusalError(StatisticsRefusal.NO_SAMPLES)
    return number_of_samples


def _rate(successes: int, number_of_samples: int) -> float:
    rate = successes / _require_samples(number_of_samples)
    if not 0 <= rate <= 1:
        raise RefusalError(StatisticsRefusal.INCONSISTENT)
    return rate


def _without_noise(value: float, scale: float) -> float:
    """Return `value`, which cannot be negative, with rounding noise relative to `scale` removed."""
    if value < -SHORTFALL_TOLERANCE * scale:
        raise RefusalError(StatisticsRefusal.INCONSISTENT)
    return value if value > ROUNDING_NOISE * scale else 0.0


def _sample_variance(n: int, total: float, total_of_squares: float) -> float:
    """Compute (Σy² - (Σy)²/n)/(n - 1); exact for integer sums, because Python's integers do not round."""
    if _require_samples(n) == 1:
        return 0.0
    centred = n * total_of_squares - total * total
    if not isinstance(centred, int):
        centred = _without_noise(centred, total * total)
    elif centred < 0:
        raise RefusalError(StatisticsRefusal.INCONSISTENT)
    return centred / (n * (n - 1))


def _sample_covariance(n: int, total_of_products: float, total_x: float, total_y: float) -> float:
    """Compute (Σxy - Σx·Σy/n)/(n - 1); 0 for one sample."""
    if _require_samples(n) == 1:
        return 0.0
    return (n * total_of_products - total_x * total_y) / (n * (n - 1))
