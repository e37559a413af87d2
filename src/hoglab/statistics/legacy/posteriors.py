"""Posteriors of a rate, and exact chances of one rate beating others.

The probabilities that Monte Carlo draws would estimate are one-dimensional integrals:

    P(T > max M_i)        = ∫ f_T(x)·∏F_i(x) dx
    E[(max M_i - T)+]     = ∫ F_T(x)·(1 - ∏F_i(x)) dx

evaluated by Gauss-Legendre panels between the quantiles of all posteriors involved, so that a narrow
posterior beside a wide one is still resolved. Deterministic, and good to about ten digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log, sqrt
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy

Array = npt.NDArray[np.float64]

_NODES_PER_PANEL = 20
_LOWER_TAILS = (1e-18, 1e-14, 1e-10, 1e-7, 1e-4, 0.01, 0.1, 0.3, 0.5)


class Posterior(Protocol):
    """A continuous distribution with a bounded density."""

    def density(self, x: Array) -> Array:
        """Return f(x), up to a constant factor near 1 that rounding leaves in large parameters."""

    def cdf(self, x: Array) -> Array:
        """Return F(x)."""

    def quantile(self, tail: float, *, upper: bool = False) -> float:
        """Return the x with F(x) = tail, or 1 - F(x) = tail when `upper`."""


@dataclass(frozen=True, slots=True)
class BetaPosterior:
    """Beta(alpha, beta) of a conversion rate; both parameters at least 1."""

    alpha: float
    beta: float

    def density(self, x: Array) -> Array:
        """Return f(x) on 0..1."""
        logarithm = scipy.special.xlogy(self.alpha - 1, x) + scipy.special.xlog1py(self.beta - 1, -x)
        return np.asarray(np.exp(logarithm - scipy.special.betaln(self.alpha, self.beta)), dtype=np.float64)

    def cdf(self, x: Array) -> Array:
        """Return F(x), constant outside 0..1."""
        return np.asarray(scipy.special.betainc(self.alpha, self.beta, np.clip(x, 0, 1)), dtype=np.float64)

    def quantile(self, tail: float, *, upper: bool = False) -> float:
        """Return the x with F(x) = tail, or 1 - F(x) = tail when `upper`."""
        return float(
            (scipy.special.betainccinv if upper else scipy.special.betaincinv)(self.alpha, self.beta, tail)
        )


@dataclass(frozen=True, slots=True)
class GammaPosterior:
    """Gamma(shape, rate) of an event rate; shape at least 1."""

    shape: float
    rate: float

    def density(self, x: Array) -> Array:
        """Return f(x) for x >= 0."""
        logarithm = self.shape * log(self.rate) + scipy.special.xlogy(self.shape - 1, x) - self.rate * x
        return np.asarray(np.exp(logarithm - scipy.special.gammaln(self.shape)), dtype=np.float64)

    def cdf(self, x: Array) -> Array:
        """Return F(x), 0 below 0."""
        return np.asarray(scipy.special.gammainc(self.shape, np.maximum(x, 0) * self.rate), dtype=np.float64)

    def quantile(self, tail: float, *, upper: bool = False) -> float:
        """Return the x with F(x) = tail, or 1 - F(x) = tail when `upper`."""
        return (
            float((scipy.special.gammainccinv if upper else scipy.special.gammaincinv)(self.shape, tail))
            / self.rate
        )


@dataclass(frozen=True, slots=True)
class NormalPosterior:
    """Normal(mean, sd) of a mean value; sd positive."""

    mean: float
    sd: float

    def density(self, x: Array) -> Array:
        """Return f(x)."""
        z = (x - self.mean) / self.sd
        return np.asarray(np.exp(-0.5 * z * z) / (self.sd * sqrt(2 * np.pi)), dtype=np.float64)

    def cdf(self, x: Array) -> Array:
        """Return F(x)."""
        return np.asarray(scipy.special.ndtr((x - self.mean) / self.sd), dtype=np.float64)

    def quantile(self, tail: float, *, upper: bool = False) -> float:
        """Return the x with F(x) = tail, or 1 - F(x) = tail when `upper`."""
        z = float(scipy.special.ndtri(tail))
        return self.mean - self.sd * z if upper else self.mean + self.sd * z


def central_interval(posterior: Posterior, level: float) -> tuple[float, float]:
    """Return the interval with equal tails that holds `level` of the posterior."""
    tail = (1 - level) / 2
    return posterior.quantile(tail), posterior.quantile(tail, upper=True)


def chance_to_beat(target: Posterior, others: Sequence[Posterior]) -> float:
    """Return P(target > every one of `others`)."""
    low, high = _support(target)

    def integrand(x: Array) -> Array:
        return target.density(x) * _all_below(others, x)

    # Dividing by the density's own integral removes the constant factor that rounding leaves in it.
    whole = _integral(target.density, low, high, [target])
    return min(max(_integral(integrand, low, high, [target, *others]) / whole, 0.0), 1.0)


def expected_shortfall(target: Posterior, others: Sequence[Posterior]) -> float:
    """Return E[max(0, best of `others` - target)], the loss to expect from choosing the target."""
    low = _support(target)[0]
    high = max(_support(other)[1] for other in others)
    if high <= low:
        return 0.0
    return _integral(lambda x: target.cdf(x) * (1 - _all_below(others, x)), low, high, [target, *others])


def _all_below(posteriors: Sequence[Posterior], x: Array) -> Array:
    product = np.ones_like(x)
    for posterior in posteriors:
        product *= posterior.cdf(x)
    return product


def _support(posterior: Posterior) -> tuple[float, float]:
    """Return the range that holds all but a negligible part of the posterior."""
    return posterior.quantile(_LOWER_TAILS[0]), posterior.quantile(_LOWER_TAILS[0], upper=True)


def _integral(
    function: Callable[[Array], Array], low: float, high: float, posteriors: Sequence[Posterior]
) -> float:
    marks = [posterior.quantile(tail) for posterior in posteriors for tail in _LOWER_TAILS]
    marks += [posterior.quantile(tail, upper=True) for posterior in posteriors for tail in _LOWER_TAILS]
    edges = np.unique(np.clip(np.array([low, *marks, high]), low, high))
    nodes, weights = _gauss_legendre()
    half_widths = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half_widths * (1 + nodes[None, :])
    values = function(x.ravel()).reshape(x.shape)
    return float(np.sum(values * weights[None, :] * half_widths))


@cache
def _gauss_legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
