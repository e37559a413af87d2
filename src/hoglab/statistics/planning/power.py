"""Power analysis by the Normal approximation, before and during an experiment.

Differences and standard errors are in one unit: absolute, or relative to the baseline. During an experiment
the standard error is that of the comparison so far. `planning` applies this to kinds of metrics and methods.

Source: Lehmann, Romano, "Testing Statistical Hypotheses", the power of a two-sided test of a Normal mean.
"""

from __future__ import annotations

from math import ceil

from hoglab.statistics.config import DEFAULT_ALPHA
from hoglab.statistics.distributions import normal_cdf, normal_critical_value

DEFAULT_POWER = 0.8


def power_of_test(difference: float, standard_error: float, alpha: float = DEFAULT_ALPHA) -> float:
    """Return the chance that a two-sided test at `alpha` is significant when the true effect is `difference`.

    Φ(|d|/se - z) + Φ(-|d|/se - z). Raises ValueError for arguments outside their range.
    """
    _require(standard_error > 0, "standard_error must be positive")
    critical, shift = _critical(alpha), abs(difference) / standard_error
    return normal_cdf(shift - critical) + normal_cdf(-shift - critical)


def minimum_detectable_difference(
    standard_error: float, alpha: float = DEFAULT_ALPHA, power: float = DEFAULT_POWER
) -> float:
    """Return the difference a two-sided test at `alpha` finds with probability `power`: (z_{1-α/2} + z_power)·se.

    The chance of significance in the wrong direction is left out. Raises ValueError for arguments outside
    their range.
    """
    _require(standard_error > 0, "standard_error must be positive")
    return _factor(alpha, power) * standard_error


def required_sample_size(
    difference: float,
    baseline_variance: float,
    test_variance: float | None = None,
    *,
    test_share: float = 0.5,
    alpha: float = DEFAULT_ALPHA,
    power: float = DEFAULT_POWER,
) -> int:
    """Return the number of entities needed in both groups together to detect the absolute `difference`.

    (z_{1-α/2} + z_power)²·(v_t/share + v_c/(1 - share))/d². The test variance defaults to the baseline's;
    `test_share` is the test group's share of the two. Raises ValueError for arguments outside their range.
    """
    _require(difference != 0, "difference must not be zero")
    _require(0 < test_share < 1, "test_share must lie strictly between 0 and 1")
    if test_variance is None:
        test_variance = baseline_variance
    _require(min(baseline_variance, test_variance) >= 0, "variances must not be negative")
    factor = _factor(alpha, power) / difference
    return ceil(factor * factor * (test_variance / test_share + baseline_variance / (1 - test_share)))


def _factor(alpha: float, power: float) -> float:
    critical = _critical(alpha)
    _require(alpha / 2 < power < 1, "power must lie strictly between alpha/2 and 1")
    return critical + normal_critical_value(1 - power)


def _critical(alpha: float) -> float:
    _require(0 < alpha < 1, "alpha must lie strictly between 0 and 1")
    return normal_critical_value(alpha / 2)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
