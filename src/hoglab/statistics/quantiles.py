"""Quantile metrics, an extension: comparing e.g. medians or 90th percentiles.

Source: spec experiment-results 10 (quantile metric); Deng, Knoblich, Lu 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from hoglab.statistics.config import DEFAULT_ALPHA
from hoglab.statistics.distributions import normal_critical_value
from hoglab.statistics.refusal import Refusal, RefusalError
from hoglab.statistics.samples import Moments


@dataclass(frozen=True, slots=True)
class QuantileRanks:
    """Ranks of the bounds of a quantile's interval among n ascending values, counted from 1; not rounded."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class QuantileSample:
    """A sample quantile with the values at the ranks of `quantile_ranks` (at alpha 0.05).

    `cluster_factor` is the variance of the indicator Y <= quantile under clustering over that of independent
    values: 1 for one value per entity, larger for event-level values.
    """

    number_of_samples: int
    level: float
    quantile: float
    quantile_lower: float
    quantile_upper: float
    cluster_factor: float = 1.0

    def __post_init__(self) -> None:
        _require_level(self.level)

    @property
    def mean(self) -> float:
        """The quantile itself, which takes the place of a mean in a comparison."""
        return self.quantile

    @property
    def variance(self) -> float:
        """Variance per observation: (n - 1)·((Y_U - Y_L)/(2z))², times the cluster factor.

        Raises RefusalError when n <= z²·max(ν/(1 - ν), (1 - ν)/ν), where the ranks leave the sample.
        """
        n, z = self.number_of_samples, normal_critical_value(DEFAULT_ALPHA / 2)
        odds = self.level / (1 - self.level)
        if n <= z * z * max(odds, 1 / odds):
            raise RefusalError(Refusal.TOO_FEW_SAMPLES)
        if not self.quantile_lower <= self.quantile <= self.quantile_upper:
            raise RefusalError(Refusal.INCONSISTENT)
        spread = (self.quantile_upper - self.quantile_lower) / (2 * z)
        return (n - 1) * spread * spread * self.cluster_factor

    def moments(self) -> Moments:
        """For `effect_of`. Raises RefusalError as `variance` does."""
        return Moments(self.quantile, self.variance, self.number_of_samples)


def quantile_ranks(level: float, number_of_samples: int) -> QuantileRanks:
    """n·(ν ∓ z·√(ν(1 - ν)/n)) with z of a 95 % interval. Raises ValueError for a level outside (0, 1)."""
    _require_level(level)
    half = normal_critical_value(DEFAULT_ALPHA / 2) * sqrt(number_of_samples * level * (1 - level))
    return QuantileRanks(number_of_samples * level - half, number_of_samples * level + half)


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError("a quantile level must lie strictly between 0 and 1")
