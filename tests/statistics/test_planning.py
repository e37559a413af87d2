"""Sample size, running time and power."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.statistics import (
    DEFAULT_MINIMUM_DETECTABLE_EFFECT,
    BaselineStats,
    DifferenceType,
    FrequentistConfig,
    Proportion,
    Ratio,
    RunningTime,
    RunningTimeMetric,
    StatisticsConfig,
    calculate_running_time,
    compare,
    minimum_detectable_difference,
    power_of_test,
    remaining_days,
    required_sample_size,
    running_time_metric,
)

RATIO = BaselineStats(10000, 500000, 30000000, 50000, 300000, 2600000)


@pytest.mark.parametrize(
    ("metric", "stats", "baseline"),
    [
        (RunningTimeMetric.MEAN_COUNT, BaselineStats(200, 500), 2.5),
        (RunningTimeMetric.MEAN_SUM_OR_AVG, BaselineStats(200, 500), 2.5),
        (RunningTimeMetric.FUNNEL, BaselineStats(200, 50, step_counts=(120, 40)), 0.2),
        (RunningTimeMetric.FUNNEL, BaselineStats(200, 50), 0.25),
        (RunningTimeMetric.RATIO, RATIO, 10.0),
        (RunningTimeMetric.RETENTION, BaselineStats(200, 50, 50, 100, 100, 50), 0.5),
        (RunningTimeMetric.RATIO, BaselineStats(200, 50, 50, 0, 0, 0), None),
        (RunningTimeMetric.RATIO, BaselineStats(200, 50), None),
        (RunningTimeMetric.MEAN_COUNT, BaselineStats(0, 0), None),
        (RunningTimeMetric.MEAN_COUNT, None, None),
    ],
)
def test_the_baseline_value_comes_from_the_stats(
    metric: RunningTimeMetric, stats: BaselineStats | None, baseline: float | None
) -> None:
    found = calculate_running_time(metric, 10, baseline_stats=stats)
    assert found.baseline_value == baseline
    given = calculate_running_time(metric, 10, baseline_value=baseline, baseline_stats=stats)
    assert found == given


def test_a_given_variance_stands_except_for_a_funnel() -> None:
    for metric in (RunningTimeMetric.MEAN_COUNT, RunningTimeMetric.MEAN_SUM_OR_AVG, RunningTimeMetric.RATIO):
        found = calculate_running_time(metric, 10, baseline_value=2, variance=5.0)
        assert (found.variance, found.recommended_sample_size) == (5.0, 4000)
    funnel = calculate_running_time(RunningTimeMetric.FUNNEL, 10, baseline_value=0.5, variance=5.0)
    assert (funnel.variance, funnel.recommended_sample_size) == (None, 3200)


def test_the_variance_of_a_ratio_is_that_of_the_population() -> None:
    found = calculate_running_time(RunningTimeMetric.RATIO, 10, baseline_stats=RATIO)
    sample = Ratio(10000, 500000, 30000000, 50000, 300000, 2600000).variance
    assert found.variance == pytest.approx(sample * 9999 / 10000, rel=1e-12)
    assert calculate_running_time(RunningTimeMetric.RATIO, 10, baseline_value=3).variance is None


def test_more_variants_need_more_people_and_a_rate_gives_days() -> None:
    sizes = [
        calculate_running_time(
            RunningTimeMetric.MEAN_COUNT, 10, variants, baseline_value=4, exposure_rate_per_day=333
        )
        for variants in (2, 3)
    ]
    assert [size.recommended_sample_size for size in sizes] == [1600, 2400]
    assert [size.recommended_running_time_days for size in sizes] == [5, 8]


@pytest.mark.parametrize("rate", [None, 0, -5, 0.0])
def test_without_a_positive_rate_there_are_no_days(rate: float | None) -> None:
    found = calculate_running_time(
        RunningTimeMetric.MEAN_COUNT, 10, baseline_value=4, exposure_rate_per_day=rate
    )
    assert found.recommended_sample_size == 1600
    assert found.recommended_running_time_days is None


def test_a_decrease_needs_as_many_as_an_increase() -> None:
    up, down = (
        calculate_running_time(RunningTimeMetric.FUNNEL, mde, baseline_value=0.2) for mde in (10, -10)
    )
    assert up == down


@given(
    st.sampled_from(RunningTimeMetric),
    st.floats(),
    st.integers(2, 20),
    st.none() | st.floats(),
    st.none() | st.floats(),
    st.none() | st.floats(),
)
def test_any_numbers_give_a_plan_or_nulls(
    metric: RunningTimeMetric,
    mde: float,
    variants: int,
    baseline: float | None,
    variance: float | None,
    rate: float | None,
) -> None:
    found = calculate_running_time(
        metric, mde, variants, baseline_value=baseline, variance=variance, exposure_rate_per_day=rate
    )
    assert isinstance(found, RunningTime)
    assert found.recommended_sample_size is None or found.recommended_sample_size > 0
    assert found.recommended_running_time_days is None or found.recommended_running_time_days >= 0


@pytest.mark.parametrize(
    ("exposures", "elapsed_days", "rate", "expected"),
    [
        (0, 0.5, 100, 10),
        (400, 0.5, 100, 10),
        (400, 1, 100, 6),
        (400, 5, 0.5, 1200),
        (99, 3, 100, 10),
        (100, 3, 100, 9),
        (950, 9, 100, 1),
        (1000, 9, 100, 0),
        (5000, 0.5, 100, 10),
        (2000, 9, None, 0),
        (500, 5, None, None),
        (500, 5, 0, None),
        (0, 0, None, None),
    ],
)
def test_remaining_days(
    exposures: int, elapsed_days: float, rate: float | None, expected: int | None
) -> None:
    assert remaining_days(1000, exposures, elapsed_days, rate) == expected


@pytest.mark.parametrize(
    ("metric_type", "math", "expected"),
    [
        ("mean", "sum", "mean_sum_or_avg"),
        ("mean", "total", "mean_count"),
        ("mean", "avg", "mean_count"),
        ("mean", None, "mean_count"),
        ("funnel", None, "funnel"),
        ("ratio", "sum", "ratio"),
        ("retention", None, "retention"),
    ],
)
def test_the_calculators_kind_of_a_stored_metric(metric_type: str, math: str | None, expected: str) -> None:
    assert running_time_metric(metric_type, math) == expected


def test_the_effect_to_plan_for_is_thirty_percent_unless_said() -> None:
    assert DEFAULT_MINIMUM_DETECTABLE_EFFECT == 30


def test_an_unknown_metric_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="quantile"):
        running_time_metric("quantile", None)


def test_the_rule_of_thumb_is_close_to_the_exact_size() -> None:
    rule = calculate_running_time(RunningTimeMetric.FUNNEL, 10, baseline_value=0.3).recommended_sample_size
    exact = required_sample_size(0.03, 0.3 * 0.7)
    assert rule is not None
    assert 0.97 < exact / rule < 0.99


@given(
    st.floats(0.01, 2), st.floats(0.1, 50), st.floats(0.1, 50), st.floats(0.05, 0.95), st.floats(0.3, 0.99)
)
def test_size_difference_and_power_are_one_equation(
    difference: float, baseline: float, test: float, share: float, power: float
) -> None:
    size = required_sample_size(difference, baseline, test, test_share=share, power=power)
    error = sqrt(test / (share * size) + baseline / ((1 - share) * size))
    assert minimum_detectable_difference(error, power=power) <= difference * (1 + 1e-9)
    assert power_of_test(difference, error) >= power - 1e-9
    fewer = sqrt(size / max(size - 1, 1)) * error
    assert size == 1 or minimum_detectable_difference(fewer, power=power) > difference * (1 - 1e-9)


def test_power_without_an_effect_is_alpha() -> None:
    assert power_of_test(0, 1, 0.05) == pytest.approx(0.05)
    assert power_of_test(-3, 1) == power_of_test(3, 1)


def test_the_planned_power_is_the_share_of_significant_experiments() -> None:
    runs, rates = 2000, (0.30, 0.36)
    variances = [rate * (1 - rate) for rate in rates]
    size = required_sample_size(rates[1] - rates[0], *variances, power=0.8)
    half = size // 2
    rng = np.random.default_rng(31)
    config = StatisticsConfig(FrequentistConfig(difference_type=DifferenceType.ABSOLUTE))
    found = sum(
        bool(compare(config, Proportion(half, control), Proportion(half, test)).significant)
        for control, test in rng.binomial(half, rates, (runs, 2)).tolist()
    )
    assert abs(found / runs - 0.8) < 4 * sqrt(0.8 * 0.2 / runs)


@pytest.mark.parametrize(
    "arguments",
    [
        {"difference": 0, "baseline_variance": 1},
        {"difference": 1, "baseline_variance": -1},
        {"difference": 1, "baseline_variance": 1, "test_share": 1},
        {"difference": 1, "baseline_variance": 1, "alpha": 0},
        {"difference": 1, "baseline_variance": 1, "power": 1},
        {"difference": 1, "baseline_variance": 1, "power": 0.01},
    ],
)
def test_a_size_for_nonsense_is_an_error(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        required_sample_size(**arguments)
    with pytest.raises(ValueError, match="standard_error"):
        power_of_test(1, 0)
    with pytest.raises(ValueError, match="standard_error"):
        minimum_detectable_difference(0)


def test_what_nobody_has_is_not_counted() -> None:
    """A difference too small to ever be seen: the size would be no integer of JSON."""
    found = calculate_running_time(
        RunningTimeMetric.FUNNEL, 1e-12, baseline_value=0.5, exposure_rate_per_day=1
    )
    assert found.recommended_sample_size is None
    assert found.recommended_running_time_days is None
