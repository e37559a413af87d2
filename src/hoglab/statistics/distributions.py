"""The probability distributions the tests need, as functions of plain floats.

Tail probabilities are computed as tails, never as one minus a value near one, so that small p-values keep
their digits. Everything rests on `scipy.special`; `scipy.stats` would add a second of start-up and 45 MB.
"""

from __future__ import annotations

from math import exp, log1p, pi, sqrt

import scipy

_PEAK_OF_NORMAL = 1 / sqrt(2 * pi)


def normal_cdf(z: float) -> float:
    """Return P(Z <= z) of the standard normal distribution."""
    return float(scipy.special.ndtr(z))


def normal_pdf(z: float) -> float:
    """Return the density of the standard normal distribution at `z`."""
    return _PEAK_OF_NORMAL * exp(-0.5 * z * z) if abs(z) < 40 else 0.0


def normal_critical_value(tail: float) -> float:
    """Return the z with P(Z > z) = `tail`."""
    return -float(scipy.special.ndtri(tail))


def student_t_two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """Return P(|T| > |t|) of Student's t distribution; fractional degrees of freedom are fine."""
    return 2 * float(scipy.special.stdtr(degrees_of_freedom, -abs(t)))


def student_t_critical_value(tail: float, degrees_of_freedom: float) -> float:
    """Return the t with P(T > t) = `tail`."""
    return -float(scipy.special.stdtrit(degrees_of_freedom, tail))


def student_t_cdf(t: float, degrees_of_freedom: float) -> float:
    """Return P(T <= t) of Student's t distribution."""
    return float(scipy.special.stdtr(degrees_of_freedom, t))


def student_t_pdf(t: float, degrees_of_freedom: float) -> float:
    """Return the density of Student's t distribution at `t`."""
    half = (degrees_of_freedom + 1) / 2
    scale = exp(scipy.special.gammaln(half) - scipy.special.gammaln(degrees_of_freedom / 2))
    return scale / sqrt(pi * degrees_of_freedom) * exp(-half * log1p(t * t / degrees_of_freedom))


def chi_square_survival(chi2: float, degrees_of_freedom: float) -> float:
    """Return P(X > chi2) of the chi-square distribution."""
    return float(scipy.special.chdtrc(degrees_of_freedom, chi2))
