"""Certain harm: a test beside the plan and the method of an experiment, which may be read at any time.

It is the one-sided form of the sequential test: an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha,
Kennedy, Ramdas, arXiv 2103.06476). It compares means without CUPED, a prior or a relative scale. Its variance is the
larger one of Welch's and the pooled one: in a small and skewed group mean and variance move together, and Welch's alone
is then too small where the mean is.
"""

from __future__ import annotations

from math import exp, expm1, log, sqrt

from hoglab.statistics.refusal import RefusalError
from hoglab.statistics.samples.kinds import SufficientStatistics

HARM_LEVEL = 0.01
"""How often at most any harm is called certain without an effect, at any time and over all comparisons together."""
HARM_TUNING = 2000.0
"""Number of people, in both groups, near which the test is sharpest: harm is to be seen in the first days."""
MIN_CERTAIN_SAMPLES = 50
"""Smallest group, in samples or in degrees of freedom of its variance."""
_EVIDENCE = -2 * log(2 * HARM_LEVEL)
_RHO_SQUARED = (_EVIDENCE + log(1 + _EVIDENCE)) / HARM_TUNING
_MAX_EXPONENT = 600.0


def anytime_p_value(baseline: SufficientStatistics, variant: SufficientStatistics) -> float | None:
    """Return how likely the observed side of the baseline ever is without a difference: one-sided, at any time.

    It is None for groups that are too small, without any variance, or without moments.
    """
    try:
        control, treatment = baseline.moments(), variant.moments()
    except RefusalError:
        return None
    sizes = control.number_of_samples, treatment.number_of_samples
    freedom = control.degrees_of_freedom, treatment.degrees_of_freedom
    if min(sizes) < MIN_CERTAIN_SAMPLES or min(freedom) < MIN_CERTAIN_SAMPLES - 1:
        return None
    n = sum(sizes)
    pooled = sum((size - 1) * group.variance for size, group in zip(sizes, (control, treatment), strict=True))
    variance = max(
        control.variance_of_mean + treatment.variance_of_mean,
        pooled / (n - 2) * (1 / sizes[0] + 1 / sizes[1]),
    )
    if not variance > 0:
        return None
    return one_sided_p_value((treatment.mean - control.mean) / sqrt(variance), n)


def one_sided_p_value(z: float, n: int) -> float:
    """Return the smallest level at which n samples in total exclude no difference, |z| standard errors away.

    The bound at level α is √(2·q/(n·ρ²)·ln(1 + √q/(2α))) standard errors, with q = n·ρ² + 1, solved for α.
    """
    q = n * _RHO_SQUARED + 1
    exponent = z * z * n * _RHO_SQUARED / (2 * q)
    if exponent > _MAX_EXPONENT:
        return sqrt(q) / 2 * exp(-exponent)
    return min(1.0, sqrt(q) / (2 * expm1(exponent))) if exponent > 0 else 1.0
