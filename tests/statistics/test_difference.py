"""Tests on the difference, and Fieller's intervals: against raw values, scipy, and the rule that the two agree."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isclose, isfinite, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from hoglab.statistics import (
    BayesianConfig,
    BayesianTest,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    FrequentistTest,
    Inference,
    Moments,
    Prior,
    Proportion,
    RelativeVariance,
    SampleMean,
    SequentialTest,
    SignificanceRule,
    StatisticsConfig,
    WithCovariate,
    compare,
    effect_of,
    infer,
)

Values = npt.NDArray[np.float64]
ABSOLUTE, RELATIVE = DifferenceType.ABSOLUTE, DifferenceType.RELATIVE
MOMENTS = st.builds(
    Moments,
    mean=st.floats(0.01, 100) | st.floats(-100, -0.01),
    variance=st.floats(0.001, 1000),
    number_of_samples=st.integers(5, 10**7),
)
METHODS: tuple[BayesianConfig | FrequentistConfig, ...] = (
    FrequentistConfig(0.1),
    FrequentistConfig(0.1, sequential_testing_enabled=True),
    BayesianConfig(0.9, significance_rule=SignificanceRule.INTERVAL),
)


def bounds_of(found: Inference) -> tuple[float, float]:
    return found.credible_interval if isinstance(found, BayesianTest) else found.confidence_interval


def evidence(found: Inference) -> float:
    """What is said about no effect: a p-value, or the chance to win."""
    return found.chance_to_win if isinstance(found, BayesianTest) else found.p_value


@given(MOMENTS, MOMENTS, st.sampled_from(METHODS), st.sampled_from(DifferenceType))
def test_an_effect_is_significant_exactly_where_its_interval_excludes_zero(
    control: Moments, test: Moments, method: BayesianConfig | FrequentistConfig, difference: DifferenceType
) -> None:
    effect = effect_of(difference, control, test)
    found = infer(replace(method, difference_type=difference), effect)
    low, high = bounds_of(found)
    edge = min(abs(low), abs(high)) / (abs(effect.estimate) + effect.standard_error)
    assume(edge > 1e-7)
    assert low < effect.estimate < high
    assert found.significant is (low > 0 or high < 0)


@given(MOMENTS, MOMENTS, st.sampled_from(METHODS))
def test_a_relative_effect_is_as_certain_as_the_difference(
    control: Moments, test: Moments, method: BayesianConfig | FrequentistConfig
) -> None:
    relative, absolute = (
        infer(replace(method, difference_type=difference), effect_of(difference, control, test))
        for difference in (RELATIVE, ABSOLUTE)
    )
    expected = evidence(absolute)
    if isinstance(absolute, BayesianTest) and control.mean < 0:
        expected = 1 - expected  # a relative effect has the other sign there
    assert evidence(relative) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    sign = 1 if control.mean > 0 else -1
    assert relative.point_estimate == pytest.approx(
        absolute.point_estimate / control.mean, rel=1e-9, abs=1e-12
    )
    assert sign * relative.point_estimate * absolute.point_estimate >= 0


def welch_t(test: Values, control: Values) -> float:
    return float(stats.ttest_ind(test, control, equal_var=False).statistic)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("adjusted", [False, True])
@pytest.mark.parametrize("sequential", [False, True])
def test_the_bounds_are_the_effects_at_which_the_raw_values_are_just_significant(
    seed: int, adjusted: bool, sequential: bool
) -> None:
    """The control's values are multiplied by 1 + r, and scipy compares them with the test's."""
    rng = np.random.default_rng(seed)
    size = 150
    x = rng.gamma(1, 3, (2, size))
    y = x * rng.gamma(2, 0.5, (2, size)) * np.array([[1.0], [1.3]])
    groups = [
        WithCovariate.of(zip(values.tolist(), before.tolist(), strict=True))
        for values, before in zip(y, x, strict=True)
    ]
    config = StatisticsConfig(
        FrequentistConfig(sequential_testing_enabled=sequential), CupedConfig(enabled=adjusted)
    )
    found = compare(config, *groups)
    assert isinstance(found.inference, FrequentistTest | SequentialTest)
    assert (found.cuped is not None) is adjusted
    theta = found.cuped.theta if found.cuped is not None else 0.0
    assert adjusted is (theta > 0.1)

    def t(effect: float) -> float:
        return welch_t(y[1] - theta * x[1], (1 + effect) * y[0] - theta * x[0])

    if isinstance(found.inference, SequentialTest):
        rho = found.inference.rho
        q = 2 * size * rho**2 + 1
        critical = sqrt(2 * q * np.log(sqrt(q) / 0.05) / (2 * size)) / rho
    else:
        critical = float(stats.t.isf(0.025, found.inference.degrees_of_freedom))
    low, high = found.inference.confidence_interval
    assert t(low) == pytest.approx(critical, rel=1e-6)
    assert t(high) == pytest.approx(-critical, rel=1e-6)
    assert t(0) == pytest.approx(found.inference.point_estimate / found.inference.standard_error, rel=1e-6)


def test_the_interval_is_that_of_a_bootstrap() -> None:
    rng = np.random.default_rng(3)
    control, test = rng.exponential(2, 400), rng.exponential(2.6, 400)
    found = compare(
        StatisticsConfig(FrequentistConfig()), SampleMean.of(control.tolist()), SampleMean.of(test.tolist())
    ).confidence_interval
    assert found is not None
    means = [rng.choice(values, (4000, 400)).mean(axis=1) for values in (control, test)]
    expected = np.quantile(means[1] / means[0] - 1, [0.025, 0.975])
    assert found == pytest.approx(expected.tolist(), abs=0.03)
    # Above the estimate there is more room than below: the baseline may be smaller than it looks.
    effect = test.mean() / control.mean() - 1
    assert found[1] - effect > 1.1 * (effect - found[0])


def test_unequal_groups_are_judged_by_the_weaker_of_welch_and_the_pooled_test() -> None:
    rng = np.random.default_rng(8)
    pooled_is_weaker = set()
    for place in range(40):
        few = rng.lognormal(0.5, 0.3 if place % 2 else 1.5, 60)
        many = rng.lognormal(0.5, 1.5 if place % 2 else 0.3, 900)
        config = StatisticsConfig(FrequentistConfig(difference_type=ABSOLUTE))
        found = compare(config, SampleMean.of(many.tolist()), SampleMean.of(few.tolist()))
        welch, pooled = (float(stats.ttest_ind(few, many, equal_var=equal).pvalue) for equal in (False, True))
        # The pooled variance gets Satterthwaite's degrees of freedom, at most the textbook's.
        assert found.p_value == pytest.approx(max(welch, pooled), rel=1e-7 if welch > pooled else 0.01)
        pooled_is_weaker.add(pooled > welch)
        both = (
            stats.ttest_ind(few, many, equal_var=equal).confidence_interval(0.95) for equal in (False, True)
        )
        intervals = [(interval.low, interval.high) for interval in both]
        hull = min(low for low, _ in intervals), max(high for _, high in intervals)
        assert found.confidence_interval == pytest.approx(hull, abs=0.01 * (hull[1] - hull[0]))
        posthog = compare(
            replace(config, posthog_numbers=True), *(SampleMean.of(v.tolist()) for v in (many, few))
        )
        assert posthog.p_value == pytest.approx(welch, rel=1e-7)
    assert pooled_is_weaker == {False, True}


@pytest.mark.parametrize(
    ("control", "test", "low", "high"),
    [
        (5, 60, True, False),  # clearly more than a baseline that may be nothing
        (5, 8, False, False),
        (5, 5, False, False),
        (500, 600, True, True),
    ],
)
def test_a_baseline_that_may_be_zero_leaves_a_side_without_a_bound(
    control: int, test: int, low: bool, high: bool
) -> None:
    for method in (FrequentistConfig(0.001), FrequentistConfig(sequential_testing_enabled=True)):
        found = compare(StatisticsConfig(method), Proportion(1000, control), Proportion(1000, test))
        interval = found.confidence_interval
        assert interval is not None
        assert found.is_unbounded is not high
        assert isfinite(interval[1]) is high
        if low:
            assert 0 < interval[0] < test / control - 1
            assert found.significant is (interval[0] > 0)
        assert interval[0] < test / control - 1 < interval[1]


@given(MOMENTS, MOMENTS, st.floats(0.001, 0.4))
def test_an_unbounded_interval_holds_what_is_not_rejected_over_a_baseline_of_that_sign(
    control: Moments, test: Moments, alpha: float
) -> None:
    """Every r near the estimate and at the bounds, by the test of μt - (1 + r)·μc itself."""
    control = replace(control, number_of_samples=test.number_of_samples)
    effect = effect_of(RELATIVE, control, test)
    found = infer(FrequentistConfig(alpha), effect)
    assert isinstance(found, FrequentistTest)
    critical = float(stats.t.isf(alpha / 2, found.degrees_of_freedom))

    def distance(r: float) -> float:
        error = sqrt(test.variance_of_mean + (1 + r) ** 2 * control.variance_of_mean)
        return abs(test.mean - (1 + r) * control.mean) / error

    for bound in found.confidence_interval:
        if isfinite(bound):
            assert isclose(distance(bound), critical, rel_tol=1e-5)
    low, high = (
        bound if isfinite(bound) else effect.estimate + sign * 100 * (1 + abs(effect.estimate))
        for sign, bound in zip((-1, 1), found.confidence_interval, strict=True)
    )
    for share in (0.01, 0.3, 0.7, 0.99):
        assert distance(low + share * (high - low)) <= critical * (1 + 1e-6)
    g = critical**2 * control.variance_of_mean / control.mean**2
    assume(abs(g - 1) > 1e-6)
    assert (g >= 1) is not all(map(isfinite, found.confidence_interval))


def test_a_prior_narrows_an_interval_and_a_vague_one_does_not() -> None:
    groups = Proportion(1000, 12), Proportion(1000, 25)
    flat, vague, informed, sceptical = (
        compare(StatisticsConfig(BayesianConfig(prior=prior)), *groups)
        for prior in (None, Prior(0, 1e7), Prior(0.5, 0.25), Prior(0, 0.01))
    )
    intervals = [found.credible_interval for found in (flat, vague, informed, sceptical)]
    assert all(interval is not None for interval in intervals)
    (low, high), wide, (a, b), (c, d) = (interval or (inf, inf) for interval in intervals)
    assert wide == pytest.approx((low, high), rel=1e-3)
    assert vague.chance_to_win == pytest.approx(flat.chance_to_win, rel=1e-4)
    assert low < a < b < high
    assert d - c < b - a
    assert sceptical.significant is False


def test_a_prior_and_a_flat_one_agree_on_what_is_in_the_interval() -> None:
    """The interval of a prior excludes zero exactly where the chance to win says so on two sides."""
    rng = np.random.default_rng(4)
    seen = set()
    for _ in range(300):
        groups = [Proportion(2000, int(count)) for count in rng.binomial(2000, [0.02, 0.028])]
        prior = Prior(float(rng.uniform(-0.2, 0.4)), float(rng.uniform(0.01, 1)))
        found = compare(StatisticsConfig(BayesianConfig(0.9, prior=prior)), *groups)
        assert found.credible_interval is not None
        assert found.chance_to_win is not None
        low, high = found.credible_interval
        excluded = low > 0 or high < 0
        assert excluded is (min(found.chance_to_win, 1 - found.chance_to_win) < 0.05)
        seen.add(excluded)
    assert seen == {False, True}


def test_posthogs_variance_with_cuped_is_asked_for_by_name() -> None:
    rng = np.random.default_rng(5)
    x = rng.gamma(2, 2, (2, 300))
    y = x * rng.gamma(4, 0.25, (2, 300))
    groups = [
        WithCovariate.of(zip(values.tolist(), before.tolist(), strict=True))
        for values, before in zip(y, x, strict=True)
    ]

    def interval(config: StatisticsConfig) -> tuple[float, float]:
        found = compare(config, *groups).confidence_interval
        assert found is not None
        return found

    own = StatisticsConfig(FrequentistConfig(), CupedConfig(True))
    by_name = replace(own, cuped=CupedConfig(True, relative_variance=RelativeVariance.POSTHOG))
    assert interval(by_name) == interval(replace(by_name, posthog_numbers=True))
    assert interval(own) != interval(replace(own, posthog_numbers=True))
    narrow, wide = (high - low for low, high in map(interval, (by_name, own)))
    assert narrow < wide
