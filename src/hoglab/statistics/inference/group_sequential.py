"""Group sequential tests: analyses planned in advance share the error rate of one test.

An error-spending function says which part of the error rate is spent by the analysis at each share of the planned
people (Lan, DeMets 1983). The bounds follow from the joint distribution of the standardised differences, whose
correlation is √(nj/nk) between analyses of nj and nk people (Armitage, McPherson, Rowe 1969; Jennison, Turnbull 1999,
chapter 19). Both sides have half of the error rate, and neither relies on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import e, log, log1p, sqrt

import numpy as np
import numpy.typing as npt
import scipy

from hoglab.statistics.config import Spending
from hoglab.statistics.distributions import normal_cdf, normal_critical_value

Array = npt.NDArray[np.float64]

_FARTHEST = 40.0
"""A bound this many standard errors away is never reached: an analysis that spends nothing has it."""
_REACH = 9.0
"""Standard deviations beyond which a Normal density is left out."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)
_PRECISION = 1e-10
"""Standard errors to which bounds are found."""
_LEAST_TAIL = 1e-320
_LEAST_LEVEL, _LARGEST_LEVEL = 1e-300, 0.499
_SPENDS_NOTHING = 1e-305


def spent(spending: Spending, level: float, fraction: float) -> float:
    """Return the part of a one-sided ``level`` that is spent when this fraction of the planned people is there.

    O'Brien and Fleming's type: 2·(1 - Φ(z/√t)) with z = Φ⁻¹(1 - level/2). Pocock's type: level·ln(1 + (e - 1)·t).
    """
    if fraction >= 1:
        return level
    if fraction <= 0:
        return 0.0
    if spending is Spending.POCOCK:
        return level * log1p((e - 1) * fraction)
    return 2 * normal_cdf(-normal_critical_value(level / 2) / sqrt(fraction))


@lru_cache(maxsize=4096)
def boundaries(
    spending: Spending, level: float, counts: tuple[int, ...], fractions: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the bound of each analysis, in standard errors, of a one-sided test at ``level``.

    ``counts`` are the people at the analyses, and ``fractions`` their shares of the planned ones, both rising; the last
    fraction of a complete test is 1.
    """
    bounds: list[float] = []
    path = _Path()
    before = 0.0
    for count, fraction in zip(counts, fractions, strict=True):
        total = max(spent(spending, level, fraction), before)
        path.step(float(count))
        bounds.append(path.bound(total - before))
        path.stop_above(bounds[-1])
        before = total
    return tuple(bounds)


def crossing_probability(bounds: tuple[float, ...], counts: tuple[int, ...], drift: float) -> float:
    """Return how often any of the bounds is crossed from below, when the last standardised difference has this mean."""
    per_unit = drift / sqrt(counts[-1])
    path = _Path(per_unit)
    total = 0.0
    for count, bound in zip(counts, bounds, strict=True):
        path.step(float(count))
        total += path.tail(bound)
        path.stop_above(bound)
    return min(total, 1.0)


def repeated_p_value(
    z: float, spending: Spending, counts: tuple[int, ...], fractions: tuple[float, ...]
) -> float:
    """Return the smallest one-sided level at which z reaches the bound of the last analysis; 1 above 0.499.

    However many analyses there are, it is ever below α in at most a share α of experiments without a difference
    (the repeated p-value of Jennison and Turnbull).
    """

    def bound(level: float) -> float:
        return boundaries(spending, level, counts, fractions)[-1]

    if z < bound(_LARGEST_LEVEL):
        return 1.0
    # On the scale of Normal quantiles the bound is close to a straight line.
    low, high = normal_critical_value(_LARGEST_LEVEL), max(z, 0.1)
    while bound(_tail(high)) < z:
        low, high = high, high + 1
        if _tail(high) <= _LEAST_LEVEL:
            return _tail(high)
    return _tail(_root(lambda quantile: bound(_tail(quantile)) - z, low, high))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that rises from below zero, or from zero, to above it or to it is zero."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(scipy.optimize.brentq(function, low, high, xtol=_PRECISION))


def _tail(z: float) -> float:
    return normal_cdf(-z)


def _steepness(tail: float) -> float:
    """Return a scale on which the tail of a Normal is close to a straight line: roots take few steps on it."""
    return sqrt(-2 * log(max(min(tail, 1.0), _LEAST_TAIL)))


class _Path:
    """Distribution of the sum at an analysis in experiments that have not stopped before.

    The sum is the standardised difference times √n; it has variance n, and mean n times a drift.
    """

    def __init__(self, drift: float = 0.0) -> None:
        self._drift = drift
        self._count = 0.0
        self._places = np.zeros(1)
        """Places of the sum at the last analysis, with the probability of each."""
        self._masses = np.ones(1)
        self._step = 0.0
        self._means = np.zeros(1)

    def step(self, count: float) -> None:
        """Go on to an analysis of ``count`` people."""
        self._step = max(count - self._count, 0.0)
        self._means = self._places + self._drift * self._step
        self._count = count

    def tail(self, bound: float) -> float:
        """Return the probability to stop at this analysis, above a bound in standard errors."""
        place = bound * sqrt(self._count)
        if self._step == 0:
            return float(self._masses[self._means >= place].sum())
        return float(self._masses @ scipy.special.ndtr((self._means - place) / sqrt(self._step)))

    def bound(self, probability: float) -> float:
        """Return the bound above which this analysis stops with a probability."""
        if probability <= _SPENDS_NOTHING or self._step == 0:
            return _FARTHEST
        wanted = _steepness(probability)
        return _root(lambda bound: _steepness(self.tail(bound)) - wanted, -_REACH, _FARTHEST)

    def stop_above(self, bound: float) -> None:
        """Leave out the experiments that stop at this analysis."""
        if self._step == 0:
            return
        deviation, scale = sqrt(self._step), sqrt(self._count)
        middle = self._drift * self._count
        low, high = middle - _REACH * scale, min(bound * scale, middle + _REACH * scale)
        if high <= low:
            self._places, self._masses = np.zeros(1), np.zeros(1)
            return
        places = (high + low) / 2 + (high - low) / 2 * _NODES
        distances = (places[:, None] - self._means[None, :]) / deviation
        density = np.exp(-0.5 * distances * distances) @ self._masses / (deviation * sqrt(2 * np.pi))
        self._places, self._masses = places, density * _WEIGHTS * (high - low) / 2
