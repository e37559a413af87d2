"""The sample size and running time that an experiment is told to plan for.

A rule of thumb, 16·σ²/d² per variant: 95 % two-sided confidence and 80 % power. For exact figures see
`power`. Source: spec experiment-results 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

MAX_COUNT = 2**53
"""More people or days than this are not counted: nobody has them, and JSON has no such integers."""
SAMPLE_SIZE_FACTOR = 16
"""Factor of the rule of thumb, about 2·(1.96 + 0.84)²."""
DEFAULT_MINIMUM_DETECTABLE_EFFECT = 30.0
"""Minimum detectable effect where none is given, in percent."""
MIN_ELAPSED_DAYS = 1
MIN_EXPOSURES_FOR_PROGRESS = 100
_NEAR_INTEGER = 1e-9


class RunningTimeMetric(StrEnum):
    """Kinds of metric the calculator knows, as the wire names them."""

    FUNNEL = "funnel"
    MEAN_COUNT = "mean_count"
    MEAN_SUM_OR_AVG = "mean_sum_or_avg"
    RATIO = "ratio"
    RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class BaselineStats:
    """The baseline's sums as a client sends them; what a kind of metric does not have is None."""

    number_of_samples: int
    sum: float
    sum_squares: float = 0
    denominator_sum: float | None = None
    denominator_sum_squares: float | None = None
    numerator_denominator_sum_product: float | None = None
    step_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningTime:
    """Recommended plan: entities over all variants, and days at the given exposure rate."""

    baseline_value: float | None
    variance: float | None
    recommended_sample_size: int | None
    recommended_running_time_days: int | None


def running_time_metric(metric_type: str, math: str | None) -> RunningTimeMetric:
    """Return the kind for the calculator of a stored metric. Raises ValueError for a metric type that has none."""
    if metric_type == "mean":
        return RunningTimeMetric.MEAN_SUM_OR_AVG if math == "sum" else RunningTimeMetric.MEAN_COUNT
    return RunningTimeMetric(metric_type)


def calculate_running_time(
    metric_type: RunningTimeMetric,
    minimum_detectable_effect: float,
    number_of_variants: int = 2,
    *,
    baseline_value: float | None = None,
    variance: float | None = None,
    exposure_rate_per_day: float | None = None,
    baseline_stats: BaselineStats | None = None,
) -> RunningTime:
    """Return the entities over all variants to detect a change of `minimum_detectable_effect` percent, and days to go.

    `baseline_value` and `variance` are taken from `baseline_stats` when not given; the variance of a mean is
    a rule of thumb and that of a funnel p(1 - p), which the result does not repeat. Fields that cannot be
    computed are None. Nothing is raised.
    """
    if baseline_value is None:
        baseline_value = _baseline_value(metric_type, baseline_stats)
    variance = _variance(metric_type, baseline_value, variance, baseline_stats)
    size = None
    if baseline_value is not None:
        spread = (
            baseline_value * (1 - baseline_value) if metric_type is RunningTimeMetric.FUNNEL else variance
        )
        size = _sample_size(spread, minimum_detectable_effect / 100 * baseline_value, number_of_variants)
    return RunningTime(baseline_value, variance, size, _days(size, exposure_rate_per_day))


def remaining_days(
    recommended_sample_size: int, exposures: int, elapsed_days: float, exposure_rate_per_day: float | None
) -> int | None:
    """Return the days until the recommended size is reached; None without a positive rate.

    In the first day, or below 100 exposures, the number so far is too small to count on, and the whole size is
    planned for.
    """
    early = elapsed_days < MIN_ELAPSED_DAYS or exposures < MIN_EXPOSURES_FOR_PROGRESS
    if not early and exposures >= recommended_sample_size:
        return 0
    return _days(
        recommended_sample_size if early else recommended_sample_size - exposures, exposure_rate_per_day
    )


def _baseline_value(metric_type: RunningTimeMetric, stats: BaselineStats | None) -> float | None:
    if stats is None:
        return None
    if metric_type in (RunningTimeMetric.RATIO, RunningTimeMetric.RETENTION):
        return stats.sum / stats.denominator_sum if stats.denominator_sum else None
    if stats.number_of_samples <= 0:
        return None
    if metric_type is RunningTimeMetric.FUNNEL and stats.step_counts:
        return stats.step_counts[-1] / stats.number_of_samples
    return stats.sum / stats.number_of_samples


def _variance(
    metric_type: RunningTimeMetric,
    baseline_value: float | None,
    variance: float | None,
    stats: BaselineStats | None,
) -> float | None:
    """Return the given variance, except for a funnel, whose variance follows from its rate."""
    if metric_type is RunningTimeMetric.FUNNEL:
        return None
    if variance is not None or baseline_value is None:
        return variance
    if metric_type is RunningTimeMetric.MEAN_COUNT:
        return 2 * baseline_value
    if metric_type is RunningTimeMetric.MEAN_SUM_OR_AVG:
        return 0.25 * baseline_value * baseline_value
    return None if stats is None else _population_ratio_variance(stats)


def _population_ratio_variance(stats: BaselineStats) -> float | None:
    """Return the delta-method variance of a ratio with population moments (divisor n)."""
    n, denominator = stats.number_of_samples, stats.denominator_sum
    squares, products = stats.denominator_sum_squares, stats.numerator_denominator_sum_product
    if n <= 0 or not denominator or squares is None or products is None:
        return None
    ratio, mean = stats.sum / denominator, denominator / n
    numerator_variance = stats.sum_squares / n - (stats.sum / n) * (stats.sum / n)
    denominator_variance = squares / n - mean * mean
    covariance = products / n - stats.sum / n * mean
    spread = numerator_variance + ratio * ratio * denominator_variance - 2 * ratio * covariance
    return spread / (mean * mean)


def _sample_size(variance: float | None, difference: float, number_of_variants: int) -> int | None:
    if variance is None or difference == 0:
        return None
    # Dividing twice: the square of a tiny difference underflows to zero.
    size = _ceil(SAMPLE_SIZE_FACTOR * variance / difference / difference * number_of_variants)
    return size if size is not None and size > 0 else None


def _days(size: int | None, rate: float | None) -> int | None:
    return _ceil(size / rate) if size is not None and rate is not None and rate > 0 else None


def _ceil(value: float) -> int | None:
    """Return the next whole number; rounding noise just above a whole number does not raise it by one."""
    if not abs(value) <= MAX_COUNT:  # also when it is no number
        return None
    nearest = round(value)
    return nearest if abs(value - nearest) <= _NEAR_INTEGER * abs(value) else ceil(value)
