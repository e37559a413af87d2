"""Comparing two groups: references, symmetries, refusals."""

from __future__ import annotations

import re
from math import inf, isclose, isfinite, isnan, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats

import hoglab.statistics
from hoglab.statistics import (
    BayesianConfig,
    BayesianTest,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    FrequentistTest,
    Moments,
    Prior,
    Proportion,
    QuantileSample,
    Ratio,
    RefusalError,
    Retention,
    SampleMean,
    SequentialTest,
    SignificanceRule,
    StatisticsConfig,
    StatisticsRefusal,
    SufficientStatistics,
    ValidationFailure,
    WithCovariate,
    bayesian_test,
    compare,
    effect_of,
    estimate_effect,
    infer,
    sequential_test,
    welch_test,
)

ABSOLUTE, RELATIVE = DifferenceType.ABSOLUTE, DifferenceType.RELATIVE
MOMENTS = st.builds(
    Moments,
    mean=st.floats(0.01, 100) | st.floats(-100, -0.01),
    variance=st.floats(0.001, 1000),
    number_of_samples=st.integers(5, 10**7),
)
LEVELS = st.floats(0.01, 0.4)
DIFFERENCES = st.sampled_from(DifferenceType)


@given(MOMENTS, MOMENTS, LEVELS)
def test_welch_agrees_with_scipy(control: Moments, test: Moments, alpha: float) -> None:
    effect = effect_of(ABSOLUTE, control, test, posthog_numbers=True)
    found = welch_test(FrequentistConfig(alpha, ABSOLUTE), effect)
    deviations = [sqrt(group.variance) for group in (test, control)]
    reference = stats.ttest_ind_from_stats(
        test.mean,
        deviations[0],
        test.number_of_samples,
        control.mean,
        deviations[1],
        control.number_of_samples,
        equal_var=False,
    )
    assert isclose(found.t_statistic, reference.statistic, rel_tol=1e-9, abs_tol=1e-12)
    assert isclose(found.p_value, reference.pvalue, rel_tol=1e-7, abs_tol=1e-300)
    low, high = stats.t.interval(
        1 - alpha, found.degrees_of_freedom, found.point_estimate, found.standard_error
    )
    assert found.confidence_interval == pytest.approx((low, high), rel=1e-8, abs=1e-9 * found.standard_error)


def test_welch_agrees_with_scipy_on_samples() -> None:
    rng = np.random.default_rng(5)
    control, test = rng.gamma(2, 3, 230), rng.gamma(2.2, 3, 310)
    config = StatisticsConfig(FrequentistConfig(0.1, ABSOLUTE), posthog_numbers=True)
    found = compare(config, SampleMean.of(control.tolist()), SampleMean.of(test.tolist()))
    reference = stats.ttest_ind(test, control, equal_var=False)
    assert isinstance(found.inference, FrequentistTest)
    assert found.p_value == pytest.approx(reference.pvalue, rel=1e-9)
    assert found.inference.degrees_of_freedom == pytest.approx(reference.df, rel=1e-9)
    interval = reference.confidence_interval(0.9)
    assert found.confidence_interval == pytest.approx((interval.low, interval.high), rel=1e-9)


@given(MOMENTS, MOMENTS)
def test_the_relative_variance_of_posthog_is_the_delta_method(control: Moments, test: Moments) -> None:
    found = effect_of(RELATIVE, control, test, posthog_numbers=True)
    step = 1e-6

    def lift(test_mean: float, control_mean: float) -> float:
        return (test_mean - control_mean) / control_mean

    by_test = (lift(test.mean + step, control.mean) - lift(test.mean - step, control.mean)) / (2 * step)
    by_control = (lift(test.mean, control.mean + step) - lift(test.mean, control.mean - step)) / (2 * step)
    variance = by_test**2 * test.variance_of_mean + by_control**2 * control.variance_of_mean
    assert isclose(found.estimate, lift(test.mean, control.mean), rel_tol=1e-9, abs_tol=1e-12)
    assert isclose(found.variance, variance, rel_tol=1e-4)


@given(MOMENTS, MOMENTS, st.floats(0.5, 0.999))
def test_the_posterior_agrees_with_scipy(control: Moments, test: Moments, ci_level: float) -> None:
    effect = effect_of(ABSOLUTE, control, test)
    found = bayesian_test(BayesianConfig(ci_level, ABSOLUTE), effect)
    posterior = stats.norm(effect.estimate, effect.standard_error)
    assert isclose(found.chance_to_win, posterior.sf(0), rel_tol=1e-9, abs_tol=1e-15)
    assert found.credible_interval == pytest.approx(
        posterior.interval(ci_level), rel=1e-8, abs=1e-9 * effect.standard_error
    )


@pytest.mark.parametrize("shift", [-3.0, -0.4, 0.0, 1.0, 4.0])
def test_the_risks_are_expected_losses(shift: float) -> None:
    control, test = Moments(1.0, 50.0, 200), Moments(1.0 + shift / 2, 50.0, 400)
    effect = effect_of(ABSOLUTE, control, test)
    found = bayesian_test(BayesianConfig(difference_type=ABSOLUTE), effect)
    density = stats.norm(effect.estimate, effect.standard_error).pdf
    staying, _ = integrate.quad(lambda x: x * density(x), 0, 20)
    choosing, _ = integrate.quad(lambda x: -x * density(x), -20, 0)
    assert found.risk_control == pytest.approx(staying, rel=1e-6, abs=1e-12)
    assert found.risk_treatment == pytest.approx(choosing, rel=1e-6, abs=1e-12)
    assert found.risk_control - found.risk_treatment == pytest.approx(effect.estimate, rel=1e-9, abs=1e-12)


@given(MOMENTS, MOMENTS, LEVELS)
def test_swapping_the_groups_mirrors_a_result(control: Moments, test: Moments, level: float) -> None:
    there, back = effect_of(ABSOLUTE, control, test), effect_of(ABSOLUTE, test, control)
    scale = there.standard_error
    win, lose = (bayesian_test(BayesianConfig(1 - level, ABSOLUTE), effect) for effect in (there, back))
    assert win.chance_to_win + lose.chance_to_win == pytest.approx(1, abs=1e-12)
    assert win.significant is lose.significant
    assert win.risk_control == lose.risk_treatment
    for judge in (welch_test, sequential_test):
        one, other = (judge(FrequentistConfig(level, ABSOLUTE), effect) for effect in (there, back))
        assert isclose(one.p_value, other.p_value, rel_tol=1e-9, abs_tol=1e-300)
        mirrored = tuple(-bound for bound in reversed(other.confidence_interval))
        assert one.confidence_interval == pytest.approx(mirrored, rel=1e-9, abs=1e-9 * scale)


@given(MOMENTS, MOMENTS, LEVELS, st.floats(0.1, 10))
def test_a_relative_result_does_not_depend_on_the_unit(
    control: Moments, test: Moments, alpha: float, unit: float
) -> None:
    scaled = [
        Moments(group.mean * unit, group.variance * unit**2, group.number_of_samples)
        for group in (control, test)
    ]
    config = FrequentistConfig(alpha, RELATIVE)
    one, other = (
        welch_test(config, effect_of(RELATIVE, control, test)),
        welch_test(config, effect_of(RELATIVE, *scaled)),
    )
    assert isclose(one.p_value, other.p_value, rel_tol=1e-6, abs_tol=1e-300)
    assert one.confidence_interval == pytest.approx(
        other.confidence_interval, rel=1e-8, abs=1e-8 * one.standard_error
    )


@given(MOMENTS, MOMENTS, DIFFERENCES, st.tuples(LEVELS, LEVELS).map(sorted))
def test_more_confidence_means_a_wider_interval_around_the_effect(
    control: Moments, test: Moments, difference: DifferenceType, levels: list[float]
) -> None:
    assume(levels[0] < levels[1] * 0.999)
    effect = effect_of(difference, control, test)
    sure, unsure = (
        [
            bayesian_test(BayesianConfig(1 - level, difference), effect).credible_interval,
            welch_test(FrequentistConfig(level, difference), effect).confidence_interval,
        ]
        for level in levels
    )
    for wide, narrow in zip(sure, unsure, strict=True):
        for bound, inner in ((-wide[0], -narrow[0]), (wide[1], narrow[1])):
            assert bound > inner or bound == inner == inf
        for low, high in (wide, narrow):
            tolerance = 1e-9 * (abs(effect.estimate) + effect.standard_error)
            assert low <= effect.estimate <= high
            if difference is ABSOLUTE:
                assert isclose((low + high) / 2, effect.estimate, abs_tol=tolerance)


@given(MOMENTS, MOMENTS, LEVELS)
def test_significant_means_an_interval_without_zero(control: Moments, test: Moments, alpha: float) -> None:
    effect = effect_of(ABSOLUTE, control, test)
    for judge in (welch_test, sequential_test):
        found = judge(FrequentistConfig(alpha, ABSOLUTE), effect)
        low, high = found.confidence_interval
        assume(not isclose(found.p_value, alpha, rel_tol=1e-6))
        assert found.significant is (low > 0 or high < 0)
    found_by_interval = bayesian_test(
        BayesianConfig(1 - alpha, ABSOLUTE, significance_rule=SignificanceRule.INTERVAL), effect
    )
    low, high = found_by_interval.credible_interval
    assert found_by_interval.significant is (low > 0 or high < 0)


@given(MOMENTS, MOMENTS, LEVELS, st.floats(10, 1e8))
def test_looking_at_any_time_has_a_price(
    control: Moments, test: Moments, alpha: float, tuning: float
) -> None:
    effect = effect_of(ABSOLUTE, control, test)
    always = sequential_test(FrequentistConfig(alpha, ABSOLUTE, True, tuning), effect)
    half = (always.confidence_interval[1] - always.confidence_interval[0]) / 2
    assert half > stats.norm.isf(alpha / 2) * effect.standard_error
    assert always.p_value >= 2 * stats.norm.sf(abs(effect.estimate) / effect.standard_error)


def test_the_sequential_interval_is_tightest_near_the_tuning_parameter() -> None:
    def width(n: int) -> float:
        group = Moments(1.0, 1.0, n // 2)
        found = sequential_test(
            FrequentistConfig(0.05, ABSOLUTE, True, 5000), effect_of(ABSOLUTE, group, group)
        )
        return (found.confidence_interval[1] - found.confidence_interval[0]) / found.standard_error

    assert width(5000) < min(width(1000), width(25000))


def test_a_prior_pulls_the_posterior_and_a_vague_one_does_not() -> None:
    effect = effect_of(ABSOLUTE, Moments(1.0, 4.0, 100), Moments(1.5, 4.0, 100))
    flat = bayesian_test(BayesianConfig(difference_type=ABSOLUTE), effect)
    vague = bayesian_test(BayesianConfig(difference_type=ABSOLUTE, prior=Prior(0, 1e12)), effect)
    strong = bayesian_test(BayesianConfig(difference_type=ABSOLUTE, prior=Prior(0, 0.08)), effect)
    assert vague.posterior_mean == pytest.approx(flat.posterior_mean, rel=1e-9)
    assert vague.chance_to_win == pytest.approx(flat.chance_to_win, rel=1e-9)
    # The prior weighs as much as the data here: half way, with half the variance.
    assert strong.posterior_mean == pytest.approx(0.25, rel=1e-12)
    assert strong.posterior_sd == pytest.approx(0.2, rel=1e-12)
    assert strong.point_estimate == strong.posterior_mean
    assert strong.standard_error == strong.posterior_sd


@pytest.mark.parametrize(("mean", "variance"), [(0, 0), (0, -1), (float("nan"), 1), (0, float("inf"))])
def test_an_improper_prior_is_an_error(mean: float, variance: float) -> None:
    with pytest.raises(ValueError, match="prior"):
        Prior(mean, variance)


def test_the_two_rules_of_significance_differ_between_one_and_two_sides() -> None:
    # z = 1.75: chance to win 0.96, while the 95 % interval reaches over zero.
    effect = effect_of(ABSOLUTE, Moments(0.0, 50.0, 100), Moments(1.75, 50.0, 100))
    one_sided = bayesian_test(BayesianConfig(difference_type=ABSOLUTE), effect)
    two_sided = bayesian_test(
        BayesianConfig(difference_type=ABSOLUTE, significance_rule=SignificanceRule.INTERVAL), effect
    )
    assert one_sided.credible_interval[0] < 0 < one_sided.credible_interval[1]
    assert one_sided.significant
    assert not two_sided.significant
    interval_rule = BayesianConfig(significance_rule=SignificanceRule.INTERVAL)
    for test_mean in (1.01, 0.99):
        small_but_sure = effect_of(RELATIVE, Moments(1.0, 1e-4, 100), Moments(test_mean, 1e-4, 100))
        assert bayesian_test(interval_rule, small_but_sure).significant


BASELINES_AND_EMPTY_VARIANTS: list[tuple[SufficientStatistics, SufficientStatistics]] = [
    (SampleMean(60, 120, 500), SampleMean(0, 0, 0)),
    (Proportion(60, 30), Proportion(0, 0)),
    (Ratio(60, 120, 500, 90, 200, 250), Ratio(0, 0, 0, 0, 0, 0)),
    (Retention(60, 30), Retention(0, 0)),
]


@pytest.mark.parametrize(("baseline", "empty"), BASELINES_AND_EMPTY_VARIANTS)
@pytest.mark.parametrize("test", [BayesianConfig(), FrequentistConfig()])
def test_a_variant_without_rows_has_failures_and_nulls(
    baseline: SufficientStatistics, empty: SufficientStatistics, test: BayesianConfig | FrequentistConfig
) -> None:
    found = compare(StatisticsConfig(test), baseline, empty)
    assert found.validation_failures[0] == "not-enough-exposures"
    assert found.refusal is StatisticsRefusal.INVALID_VARIANT
    assert found.statistics == empty
    nulls = (found.inference, found.significant, found.chance_to_win, found.credible_interval, found.p_value)
    assert nulls == (None,) * 5
    assert found.confidence_interval is None


def test_failures_of_the_baseline_are_not_those_of_the_variant() -> None:
    found = compare(StatisticsConfig(), SampleMean(49, 10, 20.0), SampleMean(60, 12, 30.0))
    assert found.validation_failures == ()
    assert found.refusal is StatisticsRefusal.INVALID_BASELINE
    assert found.significant is None


def test_values_that_cancel_to_zero_fail_the_baseline() -> None:
    found = hoglab.statistics.baseline_failures(SampleMean(60, 0.0, 500.0))
    assert found == (ValidationFailure.BASELINE_MEAN_IS_ZERO,)


@pytest.mark.parametrize("exposures", [49, 50])
@pytest.mark.parametrize("conversions", [4, 5])
def test_the_limits_of_validation(exposures: int, conversions: int) -> None:
    expected = [
        *([ValidationFailure.NOT_ENOUGH_EXPOSURES] if exposures < 50 else []),
        *([ValidationFailure.NOT_ENOUGH_METRIC_DATA] if conversions < 5 else []),
    ]
    for group in (Proportion(exposures, conversions), Retention(exposures, conversions)):
        assert list(hoglab.statistics.variant_failures(group)) == expected
    mean = SampleMean(exposures, conversions, conversions)
    assert list(hoglab.statistics.variant_failures(mean)) == expected[: exposures < 50]


@pytest.mark.parametrize("failures", [4, 5])
@pytest.mark.parametrize("side", ["baseline", "variant"])
def test_a_bayesian_funnel_needs_five_that_do_not_convert(failures: int, side: str) -> None:
    groups = {"baseline": Proportion(100, 40), "variant": Proportion(100, 50)}
    groups[side] = Proportion(100, 100 - failures)
    found = compare(StatisticsConfig(), **groups)
    assert found.refusal is (StatisticsRefusal.TOO_FEW_CONVERSIONS if failures < 5 else None)
    assert compare(StatisticsConfig(FrequentistConfig()), **groups).refusal is None


@pytest.mark.parametrize(
    ("variant", "fits"),
    [
        (SampleMean(100, 1e15, 1.001e28), True),
        (SampleMean(100, 1.01e15, 1.2e28), False),
        (SampleMean(100, 1.0, 1e30), True),
        (SampleMean(100, 1.0, 1.01e30), False),
    ],
)
def test_a_bayesian_comparison_has_limits_of_magnitude(variant: SampleMean, fits: bool) -> None:
    baseline = SampleMean(100, 100.0, 300.0)
    assert compare(StatisticsConfig(), baseline, variant).refusal is (
        None if fits else StatisticsRefusal.OUT_OF_RANGE
    )
    assert compare(StatisticsConfig(FrequentistConfig()), baseline, variant).refusal is None


def test_a_relative_effect_needs_a_baseline_away_from_zero() -> None:
    variant = SampleMean(100, 50.0, 300.0)
    tiny, negative = SampleMean(100, 9e-9, 300.0), SampleMean(100, -50.0, 300.0)
    frequentist, bayesian = StatisticsConfig(FrequentistConfig()), StatisticsConfig()
    assert compare(frequentist, tiny, variant).refusal is StatisticsRefusal.BASELINE_MEAN_IS_ZERO
    assert compare(bayesian, tiny, variant).refusal is None
    assert compare(bayesian, negative, variant).refusal is StatisticsRefusal.BASELINE_MEAN_NOT_POSITIVE
    flipped = compare(frequentist, negative, variant)
    assert isinstance(flipped.inference, FrequentistTest)
    assert flipped.inference.point_estimate == -2.0
    with pytest.raises(RefusalError) as refused:
        estimate_effect(bayesian, SampleMean(100, 0.0, 300.0), variant)
    assert refused.value.reason is StatisticsRefusal.BASELINE_MEAN_NOT_POSITIVE
    for test in (BayesianConfig(difference_type=ABSOLUTE), FrequentistConfig(difference_type=ABSOLUTE)):
        for baseline in (tiny, negative):
            assert compare(StatisticsConfig(test), baseline, variant).refusal is None


def test_a_test_needs_five_samples_in_each_group_and_some_variance() -> None:
    small, large = Moments(1.0, 1.0, 4), Moments(1.0, 1.0, 100)
    for judge in (welch_test, sequential_test):
        with pytest.raises(RefusalError) as refused:
            judge(FrequentistConfig(), effect_of(RELATIVE, large, small))
        assert refused.value.reason is StatisticsRefusal.TOO_FEW_SAMPLES
    still = effect_of(RELATIVE, Moments(1.0, 0.0, 100), Moments(2.0, 0.0, 100))
    for config in (FrequentistConfig(), BayesianConfig(), FrequentistConfig(sequential_testing_enabled=True)):
        with pytest.raises(RefusalError) as refused:
            infer(config, still)
        assert refused.value.reason is StatisticsRefusal.NO_VARIANCE


def test_one_group_may_be_without_variance() -> None:
    found = compare(
        StatisticsConfig(FrequentistConfig()), SampleMean(100, 100, 100), SampleMean(80, 120, 300)
    )
    assert isinstance(found.inference, FrequentistTest)
    assert found.inference.degrees_of_freedom == pytest.approx(79)


def test_groups_of_different_kinds_are_an_error() -> None:
    with pytest.raises(ValueError, match="cannot compare Proportion with a baseline of SampleMean"):
        compare(StatisticsConfig(), SampleMean(60, 60, 90), Proportion(60, 30))
    with pytest.raises(ValueError, match="SampleMean with covariate"):
        compare(
            StatisticsConfig(cuped=CupedConfig(enabled=True)),
            WithCovariate(SampleMean(60, 60, 90), 1, 1, 1),
            SampleMean(60, 60, 90),
        )


def test_a_quantile_can_be_compared_by_its_moments() -> None:
    control = QuantileSample(1000, 0.9, 145.0, 139.0, 152.5).moments()
    test = QuantileSample(1100, 0.9, 160.0, 154.0, 166.0).moments()
    found = infer(FrequentistConfig(difference_type=ABSOLUTE), effect_of(ABSOLUTE, control, test))
    assert isinstance(found, FrequentistTest)
    assert found.point_estimate == 15.0
    assert found.p_value == pytest.approx(2 * stats.t.sf(15 / found.standard_error, found.degrees_of_freedom))


ANY_NUMBER = st.one_of(
    st.integers(-100, 10**6),
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.sampled_from([0.0, 1e-300, 1e150, -1e150, 1e308, 5e-324]),
)
ANY_COUNT = st.integers(0, 10**6) | st.integers(50, 200) | st.just(10**400)
ANY_GROUPS = st.one_of(
    st.tuples(*[st.builds(SampleMean, ANY_COUNT, ANY_NUMBER, ANY_NUMBER)] * 2),
    st.tuples(*[st.builds(Proportion, ANY_COUNT, ANY_COUNT)] * 2),
    st.tuples(*[st.builds(Retention, ANY_COUNT, ANY_COUNT)] * 2),
    st.tuples(*[st.builds(Ratio, ANY_COUNT, *[ANY_NUMBER] * 5)] * 2),
    st.tuples(
        *[
            st.builds(
                WithCovariate, st.builds(SampleMean, ANY_COUNT, ANY_NUMBER, ANY_NUMBER), *[ANY_NUMBER] * 3
            )
        ]
        * 2
    ),
)
ANY_TEST = st.one_of(
    st.builds(
        BayesianConfig,
        ci_level=st.floats(0, 1, exclude_min=True, exclude_max=True),
        difference_type=DIFFERENCES,
        prior=st.none() | st.builds(Prior, st.floats(-1e308, 1e308), st.floats(1e-323, 1e308)),
    ),
    st.builds(
        FrequentistConfig,
        alpha=st.floats(0, 1, exclude_min=True, exclude_max=True),
        difference_type=DIFFERENCES,
        sequential_testing_enabled=st.booleans(),
        sequential_tuning_parameter=st.floats(1, 1e9),
    ),
)


@given(ANY_TEST, ANY_GROUPS)
def test_any_numbers_give_finite_statistics_or_a_reason(
    test: BayesianConfig | FrequentistConfig, groups: tuple[SufficientStatistics, SufficientStatistics]
) -> None:
    config = StatisticsConfig(test, CupedConfig(enabled=True))
    found = compare(config, *groups)
    assert (found.inference is None) is (found.refusal is not None)
    if isinstance(found.inference, BayesianTest):
        numbers = [
            *found.inference.credible_interval,
            found.inference.posterior_mean,
            found.inference.posterior_sd,
        ]
        assert 0 <= found.inference.chance_to_win <= 1
    elif found.inference is not None:
        numbers = [
            *found.inference.confidence_interval,
            found.inference.point_estimate,
            found.inference.standard_error,
        ]
        assert 0 <= found.inference.p_value <= 1
    else:
        numbers = []
    if found.is_unbounded:
        # The mean that the effect divides by may be zero.
        assert test.difference_type is DifferenceType.RELATIVE
        assert not any(isnan(number) for number in numbers)
        numbers = numbers[2:]
    assert all(isfinite(number) for number in numbers)


def test_an_effect_can_be_estimated_without_judging_it() -> None:
    effect, adjustment = estimate_effect(StatisticsConfig(), Proportion(100, 50), Proportion(100, 60))
    assert effect.estimate == pytest.approx(0.2)
    assert effect.number_of_samples == 200
    assert adjustment is None


def test_sequential_testing_is_a_switch_of_the_frequentist_method() -> None:
    config = StatisticsConfig(FrequentistConfig())
    sequential = StatisticsConfig(FrequentistConfig(sequential_testing_enabled=True))
    groups = Proportion(1000, 100), Proportion(1000, 110)
    assert isinstance(compare(config, *groups).inference, FrequentistTest)
    assert isinstance(compare(sequential, *groups).inference, SequentialTest)
    assert compare(sequential, *groups).method == "frequentist"


def test_the_example_of_the_package_runs() -> None:
    lines = re.findall(r"^    (.*)$", hoglab.statistics.__doc__ or "", re.MULTILINE)
    assert lines[-1].startswith("result.")
    scope: dict[str, object] = {}
    exec("\n".join(lines[:-1]), scope)  # noqa: S102 - our own documentation
    chance, interval, significant = eval(lines[-1], scope)  # noqa: S307
    assert chance == pytest.approx(0.0314, abs=5e-5)
    assert interval == pytest.approx((-0.4697, 0.0165), abs=5e-5)
    assert significant is True


def test_a_chance_at_the_level_itself_is_not_significant() -> None:
    same = Moments(3.0, 1.0, 100)
    found = bayesian_test(BayesianConfig(ci_level=0.5), effect_of(RELATIVE, same, same))
    assert (found.chance_to_win, found.significant) == (0.5, False)
