"""Quantile metrics, an extension: comparing e.g. medians or 90th percentiles.

Quantiles of two groups do not add up to that of both, so a `QuantileSample` has no `+`: with each added day the
quantile is computed again. What does add up are the counts per entity behind the cluster factor, a `Ratio`.

Source: spec experiment-results 10 (quantile metric); Deng, Knoblich, Lu 2018, section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import floor, nan, sqrt
from typing import ClassVar, Protocol

from hoglab.statistics.config import DEFAULT_ALPHA
from hoglab.statistics.distributions import normal_critical_value
from hoglab.statistics.refusal import RefusalError, StatisticsRefusal
from hoglab.statistics.samples.sums import Moments, Ratio
from hoglab.statistics.samples.winsorization import quantile_rank

TOLERATED_TIE = 2
TOLERATED_SHARE = 0.2
"""How many of the values between the two ranks may be equal: this number and this share of them.

Simulated in `tests/statistics/test_ties.py`: with more the interval may hold the truth too rarely.
"""


class Ordered(Protocol):
    """Values by their position."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> float: ...


@dataclass(frozen=True, slots=True)
class QuantileRanks:
    """Ranks of the bounds of a quantile's interval among n ascending values, counted from 1; not rounded."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class QuantileSample:
    """A sample quantile with the values at the ranks of `quantile_ranks` (at alpha 0.05).

    `number_of_samples` counts values. `cluster_factor` is what the function of this name returns: 1 for one value per
    entity, mostly larger for event-level values. `largest_tie` counts the samples with the commonest of the values
    between the two ranks. `people_counted` is the number of entities with values; None where nobody counted them.
    """

    number_of_samples: int
    level: float
    quantile: float
    quantile_lower: float
    quantile_upper: float
    cluster_factor: float = 1.0
    largest_tie: int = 1
    people_counted: int | None = None

    minimum_sum: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        _require_level(self.level)

    @classmethod
    def of(cls, values: Iterable[float], level: float) -> QuantileSample:
        """Compute the statistics of independent values, one per entity. Raises RefusalError without values."""
        ordered = sorted(values)
        if not ordered:
            raise RefusalError(StatisticsRefusal.NO_SAMPLES)
        return cls.of_ordered(ordered, level)

    @classmethod
    def of_ordered(cls, ordered: Ordered, level: float) -> QuantileSample:
        """Compute the statistics of ascending values, at least one.

        Only those from the first of `quantile_positions` to the last are read, and only at these they have to be in
        place.
        """
        ranks = quantile_ranks(level, len(ordered))
        between = Counter(ordered[position] for position in _window(level, len(ordered)))
        return cls(
            len(ordered),
            level,
            float(ordered[quantile_rank(level, len(ordered))]),
            float(_between_ranks(ordered, ranks.lower)),
            float(_between_ranks(ordered, ranks.upper)),
            largest_tie=max(between.values()),
        )

    @classmethod
    def of_clusters(cls, clusters: Iterable[Collection[float]], level: float) -> QuantileSample:
        """Compute the statistics of all values of all entities, one collection for each entity.

        Raises RefusalError without values, or with those of a single entity.
        """
        groups = [values for values in clusters if values]
        sample = cls.of(chain.from_iterable(groups), level)
        below = Ratio.of(
            (sum(value <= sample.quantile for value in values), len(values)) for values in groups
        )
        return replace(sample, cluster_factor=cluster_factor(level, below), people_counted=len(groups))

    @property
    def sum(self) -> float:
        """n times the quantile, so that a row's sum divided by n is the quantile."""
        return self.number_of_samples * self.quantile

    @property
    def sum_squares(self) -> float:
        """Σy² that gives a sample mean this mean and variance; NaN where there is no variance."""
        try:
            return (self.number_of_samples - 1) * self.variance + self.sum * self.quantile
        except RefusalError:
            return nan

    @property
    def sums(self) -> tuple[float, ...]:
        """Every number that enters the arithmetic."""
        return (self.quantile, self.quantile_lower, self.quantile_upper, self.cluster_factor)

    @property
    def mean(self) -> float:
        """Quantile, which replaces a mean in a comparison."""
        return self.quantile

    @property
    def variance(self) -> float:
        """Variance per observation: (n - 1)·((Y_U - Y_L)/(2z))², times the cluster factor.

        Raises RefusalError when n <= z²·max(ν/(1 - ν), (1 - ν)/ν), where the ranks leave the sample, and where values
        repeat so often that the quantile jumps from one to the next.
        """
        n, z = self.number_of_samples, normal_critical_value(DEFAULT_ALPHA / 2)
        odds = self.level / (1 - self.level)
        if n <= z * z * max(odds, 1 / odds):
            raise RefusalError(StatisticsRefusal.TOO_FEW_SAMPLES)
        if not self.quantile_lower <= self.quantile <= self.quantile_upper:
            raise RefusalError(StatisticsRefusal.INCONSISTENT)
        if self.largest_tie > tolerated_tie(self.level, n):
            raise RefusalError(StatisticsRefusal.TIED_VALUES)
        spread = (self.quantile_upper - self.quantile_lower) / (2 * z)
        return (n - 1) * spread * spread * self.cluster_factor

    def moments(self) -> Moments:
        """Return the quantile, its variance and the number of values. Raises RefusalError as `variance` does."""
        return Moments(
            self.quantile,
            self.variance,
            self.number_of_samples,
            quantile_precision(self.level, self.number_of_samples),
        )


def quantile_ranks(level: float, number_of_samples: int) -> QuantileRanks:
    """Compute n·(ν ∓ z·√(ν(1 - ν)/n)) with z of a 95 % interval. Raises ValueError for a level outside (0, 1)."""
    _require_level(level)
    half = normal_critical_value(DEFAULT_ALPHA / 2) * sqrt(number_of_samples * level * (1 - level))
    return QuantileRanks(number_of_samples * level - half, number_of_samples * level + half)


def quantile_positions(level: float, number_of_samples: int) -> list[int]:
    """Return the positions, from 0, of the ascending values that decide a `QuantileSample` of a size of one or more."""
    ranks = quantile_ranks(level, number_of_samples)
    last = number_of_samples - 1
    ends = [max(floor(rank) - 1, 0) for rank in (ranks.lower, ranks.upper)]
    wanted = [quantile_rank(level, number_of_samples), *ends, *(position + 1 for position in ends)]
    return sorted({min(position, last) for position in wanted})


def tolerated_tie(level: float, number_of_samples: int) -> float:
    """Return how many values between the two ranks may be equal for their distance to tell a standard error.

    Raises ValueError for a level outside (0, 1).
    """
    return TOLERATED_TIE + TOLERATED_SHARE * len(_window(level, number_of_samples))


def quantile_precision(level: float, number_of_samples: int) -> float:
    """Return the degrees of freedom of a quantile's variance, which only the values between the two ranks determine.

    m·(1 + 1/z²), with m = z·√(nν(1 - ν)) the distance of the ranks from the middle: the bounds of Student's t
    with them are to first order z + z³/(4m), those of a quantile over its estimated standard error. Raises
    ValueError for a level outside (0, 1).
    Source: Hall, Sheather 1988, "On the distribution of a Studentized quantile".
    """
    _require_level(level)
    z = normal_critical_value(DEFAULT_ALPHA / 2)
    distance = z * sqrt(number_of_samples * level * (1 - level))
    return distance * (1 + 1 / (z * z))


def cluster_factor(level: float, below: Ratio) -> float:
    """Return the variance of the share of values up to the quantile under clustering, over that of independent values.

    `below` holds one pair per entity: how many of its values are at most the quantile, and how many it has.
    Its delta-method variance over the entities, divided by ν(1 - ν)/n for n independent values. Raises
    RefusalError for fewer than two entities and ValueError for a level outside (0, 1).
    Source: Deng, Knoblich, Lu 2018, section 5.
    """
    _require_level(level)
    if below.number_of_samples < 2:
        raise RefusalError(StatisticsRefusal.TOO_FEW_SAMPLES)
    independent = level * (1 - level) / below.denominator_sum
    return below.moments().variance_of_mean / independent


def _window(level: float, number_of_samples: int) -> range:
    """Return the positions, from 0, from that of the lower rank to that of the upper one, of one or more values."""
    ranks, last = quantile_ranks(level, number_of_samples), number_of_samples - 1
    first, end = (max(floor(rank) - 1, 0) for rank in (ranks.lower, ranks.upper))
    return range(min(first, last), min(end + 1, last) + 1)


def _between_ranks(ordered: Ordered, rank: float) -> float:
    """Return the value at a rank counted from 1, which need not be whole; the nearest value outside the sample."""
    rank = min(max(rank, 1), len(ordered))
    below = floor(rank)
    low = ordered[below - 1]
    return low if below == rank else low + (rank - below) * (ordered[below] - low)


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError("a quantile level must lie strictly between 0 and 1")
