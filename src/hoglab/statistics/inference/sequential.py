"""Always-valid inference: an interval and a p-value that may be read after every new sample.

The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas ("Time-uniform central
limit theory and asymptotic confidence sequences", arXiv 2103.06476, eq. 9, 155 and 161), as spec
experiment-results 4.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

from hoglab.statistics.config import FrequentistConfig
from hoglab.statistics.inference.effects import Effect
from hoglab.statistics.inference.frequentist import require_samples


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """A sequential test of no effect; `p_value` is exactly 1 while there is no evidence against it.

    `standard_error` is that of an effect of zero; a side of the interval without a bound is infinite.
    """

    point_estimate: float
    standard_error: float
    rho: float
    p_value: float
    confidence_interval: tuple[float, float]
    significant: bool


def sequential_test(config: FrequentistConfig, effect: Effect) -> SequentialTest:
    """Judge an effect at any time. Raises RefusalError as `welch_test` does.

    With n samples in total, ρ of `mixture_width` and q = n·ρ² + 1:
    half width = √(V·n)·√(2·q·ln(√q/α)/(n·ρ)²), ln E = ρ²·(e²·n/V)/(2q) - ½·ln q, p = min(1, 1/E), with V that of an
    effect of zero. For a relative effect the interval has every r for which the confidence sequence of
    μt - (1 + r)·μc contains 0: as each of these misses the truth at most once in 1/α experiments, so does it.
    """
    require_samples(effect)
    n, error = effect.number_of_samples, effect.standard_error
    rho = mixture_width(config.alpha, config.sequential_tuning_parameter)
    q = n * rho * rho + 1
    critical = sequential_critical_value(config, n)
    z = effect.estimate / error
    log_evidence = rho * rho * z * z * n / (2 * q) - 0.5 * log(q)
    p_value = exp(-log_evidence) if log_evidence > 0 else 1.0
    return SequentialTest(
        point_estimate=effect.estimate,
        standard_error=error,
        rho=rho,
        p_value=p_value,
        confidence_interval=effect.interval(lambda spread: spread.interval(effect.estimate, critical)),
        significant=p_value < config.alpha,
    )


def sequential_critical_value(config: FrequentistConfig, number_of_samples: int) -> float:
    """Return the half-width of the interval at this total size, in standard errors: √(2·q·ln(√q/α)/(n·ρ²))."""
    rho = mixture_width(config.alpha, config.sequential_tuning_parameter)
    q = number_of_samples * rho * rho + 1
    return sqrt(2 * q * (0.5 * log(q) - log(config.alpha)) / number_of_samples) / rho


def mixture_width(alpha: float, tuning_parameter: float) -> float:
    """Compute ρ = √((-2·ln α + ln(1 - 2·ln α))/N), which makes the interval tightest near N samples in total."""
    evidence = -2 * log(alpha)
    return sqrt((evidence + log(1 + evidence)) / tuning_parameter)
