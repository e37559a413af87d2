"""CUPED: the adjustment is the regression it claims to be, and its intervals hold what they promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from hoglab.statistics import (
    BayesianConfig,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    FrequentistTest,
    Proportion,
    Ratio,
    RelativeVariance,
    SampleMean,
    StatisticsConfig,
    StatisticsRefusal,
    WithCovariate,
    compare,
    cuped_effect,
    pooled_theta,
)

ABSOLUTE, RELATIVE = DifferenceType.ABSOLUTE, DifferenceType.RELATIVE
DELTA, POSTHOG = RelativeVariance.DELTA, RelativeVariance.POSTHOG
ON = CupedConfig(enabled=True)


def pairs(size: int, seed: int, lift: float = 0.0) -> npt.NDArray[np.float64]:
    """Columns y and x of one group, correlated by 0.66, both with mean 5 and standard deviation 2."""
    rng = np.random.default_rng(seed)
    x = 5 + 2 * rng.standard_normal(size)
    noise = 2 * np.sqrt(1 - 0.66**2) * rng.standard_normal(size)
    return np.column_stack([5 + lift + 0.66 * (x - 5) + noise, x])


def group(rows: npt.NDArray[np.float64]) -> WithCovariate:
    return WithCovariate.of((float(y), float(x)) for y, x in rows)


def test_theta_is_the_slope_of_the_pooled_regression() -> None:
    control, test = pairs(300, 1), pairs(400, 2, lift=1.0)
    pooled = np.vstack([control, test])
    slope = np.polyfit(pooled[:, 1], pooled[:, 0], 1)[0]
    assert pooled_theta(group(control), group(test)) == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("difference", DifferenceType)
def test_the_adjusted_groups_are_the_groups_of_adjusted_values(difference: DifferenceType) -> None:
    control, test = pairs(300, 3), pairs(400, 4, lift=0.5)
    effect, adjustment = cuped_effect(difference, POSTHOG, group(control), group(test))
    for rows, moments in ((control, adjustment.control), (test, adjustment.treatment)):
        adjusted = rows[:, 0] - adjustment.theta * rows[:, 1]
        assert moments.mean == pytest.approx(float(adjusted.mean()), rel=1e-9)
        assert moments.variance == pytest.approx(float(adjusted.var(ddof=1)), rel=1e-9)
    assert effect.control == adjustment.control
    raw = group(control).moments()
    assert adjustment.unadjusted_control_mean == raw.mean
    assert adjustment.variance_reduction_control == pytest.approx(
        1 - adjustment.control.variance / raw.variance
    )


def test_an_absolute_effect_is_a_test_of_the_adjusted_values() -> None:
    control, test = group(pairs(300, 5)), group(pairs(400, 6, lift=0.5))
    config = StatisticsConfig(FrequentistConfig(difference_type=ABSOLUTE), ON)
    found = compare(config, control, test)
    assert found.cuped is not None
    theta = found.cuped.theta
    plain = compare(
        config,
        *(
            SampleMean.of((rows[:, 0] - theta * rows[:, 1]).tolist())
            for rows in (pairs(300, 5), pairs(400, 6, 0.5))
        ),
    )
    assert found.p_value == pytest.approx(plain.p_value, rel=1e-7)
    assert found.confidence_interval == pytest.approx(plain.confidence_interval, rel=1e-7)


def test_the_switch_of_variances_touches_relative_effects_only() -> None:
    control, test = group(pairs(300, 7)), group(pairs(400, 8, lift=0.5))
    delta, posthog = (cuped_effect(RELATIVE, form, control, test)[0] for form in (DELTA, POSTHOG))
    assert delta.estimate == posthog.estimate
    assert delta.variance > 1.3 * posthog.variance
    assert cuped_effect(ABSOLUTE, DELTA, control, test) == cuped_effect(ABSOLUTE, POSTHOG, control, test)
    funnels = WithCovariate(Proportion(200, 80), 90, 90, 50), WithCovariate(Proportion(210, 90), 95, 95, 60)
    assert cuped_effect(ABSOLUTE, DELTA, *funnels) == cuped_effect(ABSOLUTE, POSTHOG, *funnels)


@pytest.mark.parametrize("form", RelativeVariance)
@pytest.mark.parametrize("difference", DifferenceType)
def test_a_covariate_that_says_nothing_changes_nothing(
    form: RelativeVariance, difference: DifferenceType
) -> None:
    outcomes = SampleMean(300, 900.0, 4000.0), SampleMean(320, 1000.0, 4500.0)
    config = StatisticsConfig(
        FrequentistConfig(difference_type=difference),
        replace(ON, relative_variance=form),
        posthog_numbers=form is POSTHOG,
    )
    found = compare(config, *(WithCovariate(outcome, 0, 0, 0) for outcome in outcomes))
    plain = compare(config, *outcomes)
    assert found.cuped is not None
    assert found.cuped.theta == 0
    assert found.p_value == pytest.approx(plain.p_value, rel=1e-12)
    assert found.confidence_interval == pytest.approx(plain.confidence_interval, rel=1e-12)


def test_cuped_takes_place_only_when_it_is_enabled_and_there_is_a_covariate() -> None:
    control, test = group(pairs(300, 9)), group(pairs(400, 10, lift=0.5))
    off, on = StatisticsConfig(), StatisticsConfig(cuped=ON)
    raw = compare(off, control.outcome, test.outcome)
    assert compare(off, control, test).inference == raw.inference
    assert compare(on, control.outcome, test.outcome).inference == raw.inference
    assert compare(on, control, test).inference != raw.inference
    ratios = Ratio(60, 120, 500, 90, 200, 250), Ratio(60, 130, 500, 90, 200, 250)
    assert compare(on, *ratios) == compare(off, *ratios)


def test_an_adjusted_result_carries_the_raw_sums() -> None:
    control, test = group(pairs(300, 9)), group(pairs(400, 10))
    assert compare(StatisticsConfig(cuped=ON), control, test).statistics is test


def test_an_adjusted_funnel_is_free_of_the_conversion_rule_but_not_of_validation() -> None:
    control, everyone = (
        WithCovariate(Proportion(100, 50), 20, 20, 15),
        WithCovariate(Proportion(100, 100), 25, 25, 25),
    )
    few = WithCovariate(Proportion(100, 4), 25, 25, 1)
    assert compare(StatisticsConfig(), control, everyone).refusal is StatisticsRefusal.TOO_FEW_CONVERSIONS
    assert compare(StatisticsConfig(cuped=ON), control, everyone).refusal is None
    assert compare(StatisticsConfig(cuped=ON), control, few).validation_failures == (
        "not-enough-metric-data",
    )


def test_a_bayesian_relative_effect_needs_a_positive_unadjusted_baseline() -> None:
    control, test = pairs(300, 11), pairs(300, 12)
    config = StatisticsConfig(BayesianConfig(), ON)
    negative = compare(config, group(control - np.array([10.0, 0.0])), group(test))
    assert negative.refusal is StatisticsRefusal.BASELINE_MEAN_NOT_POSITIVE
    # The adjusted mean is far below zero here, the unadjusted one is not.
    offset = np.array([0.0, 20.0])
    shifted = compare(config, group(control + offset), group(test + offset))
    assert shifted.cuped is not None
    assert shifted.cuped.control.mean < 0
    assert shifted.refusal is None


def test_a_perfect_covariate_leaves_the_floor_of_the_variance() -> None:
    rows = pairs(200, 13)
    rows[:, 0] = rows[:, 1]
    effect, adjustment = cuped_effect(ABSOLUTE, DELTA, group(rows), group(rows[:100]))
    assert adjustment.theta == pytest.approx(1)
    assert adjustment.control.variance == 1e-10
    assert effect.estimate == pytest.approx(0, abs=1e-12)


def test_the_delta_form_keeps_its_coverage_and_the_other_does_not() -> None:
    """No effect, pre-exposure mean equal to the outcome's: nominal 95 % intervals."""
    rng = np.random.default_rng(20240)
    runs, size = 1500, 400
    x = 5 + 2 * rng.standard_normal((2, runs, size))
    y = 5 + 0.66 * (x - 5) + 2 * np.sqrt(1 - 0.66**2) * rng.standard_normal((2, runs, size))
    sums = [array.sum(axis=2) for array in (y, y * y, x, x * x, y * x)]
    covered = {DELTA: 0, POSTHOG: 0}
    for run in range(runs):
        control, test = (
            WithCovariate(
                SampleMean(size, *(float(total[arm, run]) for total in sums[:2])),
                *(float(total[arm, run]) for total in sums[2:]),
            )
            for arm in (0, 1)
        )
        for form in covered:
            config = StatisticsConfig(FrequentistConfig(), replace(ON, relative_variance=form))
            found = compare(config, control, test).inference
            assert isinstance(found, FrequentistTest)
            covered[form] += found.confidence_interval[0] <= 0 <= found.confidence_interval[1]
    error = np.sqrt(0.95 * 0.05 / runs)
    assert abs(covered[DELTA] / runs - 0.95) < 4 * error
    assert covered[POSTHOG] / runs < 0.88


@pytest.mark.parametrize(("scale", "speaks"), [(1.01e-5, True), (0.99e-5, False)])
def test_a_covariate_that_hardly_varies_says_nothing(scale: float, speaks: bool) -> None:
    """Half of the values are 0 and half are twice the scale: their variance is nearly its square."""
    pairs = [(float(number), scale * (2 * (number % 2))) for number in range(2000)]
    half = WithCovariate.of(pairs[:1000])
    assert (pooled_theta(half, WithCovariate.of(pairs[1000:])) != 0) is speaks
