"""Plans: power and sample size of the very comparison that an experiment will run."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.statistics import (
    BayesianConfig,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    Prior,
    Proportion,
    QuantileSample,
    Ratio,
    RefusalError,
    Retention,
    SampleMean,
    SignificanceRule,
    StatisticsConfig,
    SufficientStatistics,
    WithCovariate,
    power_at,
    power_of_test,
    required_sample_size,
    sample_size_for,
)

ABSOLUTE, RELATIVE = DifferenceType.ABSOLUTE, DifferenceType.RELATIVE
FREQUENTIST = StatisticsConfig(FrequentistConfig())
SEQUENTIAL = StatisticsConfig(FrequentistConfig(sequential_testing_enabled=True))
BASELINES: list[SufficientStatistics] = [
    SampleMean(5000, 20000.0, 190000.0),
    Proportion(5000, 1000),
    Retention(5000, 2000),
    Ratio(5000, 150000.0, 9e6, 15000.0, 55000.0, 560000.0),
    QuantileSample(5000, 0.9, 145.0, 139.0, 152.5),
]
CONFIGS = [FREQUENTIST, SEQUENTIAL, StatisticsConfig()]


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: type(baseline).__name__)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_the_size_is_the_least_with_the_power(
    baseline: SufficientStatistics, config: StatisticsConfig, share: float
) -> None:
    size = sample_size_for(config, baseline, 0.1, test_share=share, power=0.9)
    assert power_at(config, baseline, 0.1, size, test_share=share) >= 0.9
    # A group grows by one entity at a time, so the power of a smaller size may be equal within rounding.
    assert power_at(config, baseline, 0.1, round(size * 0.998), test_share=share) < 0.9


def test_an_absolute_plan_is_the_textbook_formula() -> None:
    config = StatisticsConfig(FrequentistConfig(difference_type=ABSOLUTE))
    size = sample_size_for(config, Proportion(100_000, 30_000), 0.03)
    assert size == pytest.approx(required_sample_size(0.03, 0.3 * 0.7, 0.33 * 0.67), rel=1e-3)


def test_the_power_of_a_relative_test_is_near_that_of_the_standard_error_to_come() -> None:
    posthog = replace(FREQUENTIST, posthog_numbers=True)
    found = power_at(posthog, Proportion(100_000, 20_000), 0.1, 10_000)
    error = sqrt(0.22 * 0.78 / 5000 + 1.1**2 * 0.2 * 0.8 / 5000) / 0.2
    assert found == pytest.approx(power_of_test(0.1, error), abs=0.04)
    config = StatisticsConfig(FrequentistConfig(difference_type=ABSOLUTE))
    found = power_at(config, Proportion(100_000, 20_000), 0.02, 10_000)
    error = sqrt(0.22 * 0.78 / 5000 + 0.2 * 0.8 / 5000)
    assert found == pytest.approx(power_of_test(0.02, error), rel=1e-9)
    relative = power_at(FREQUENTIST, Proportion(100_000, 20_000), 0.1, 10_000)
    assert relative == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(
    ("people", "conversions", "posthog", "own"), [(10_000, 1200, 437, 314), (100_000, 100, 63_582, 47_015)]
)
def test_a_plan_asks_for_the_people_that_the_test_on_the_difference_needs(
    people: int, conversions: int, posthog: int, own: int
) -> None:
    """Twice the rate: an effect for which the delta method needs a third more people."""
    baseline = Proportion(people, conversions)
    assert sample_size_for(FREQUENTIST, baseline, 1.0) == own
    assert sample_size_for(replace(FREQUENTIST, posthog_numbers=True), baseline, 1.0) == posthog


def test_a_sequential_test_needs_more_and_a_one_sided_rule_less() -> None:
    baseline = Proportion(1000, 200)
    fixed, sequential, bayesian = (sample_size_for(config, baseline, 0.1) for config in CONFIGS)
    two_sided = StatisticsConfig(BayesianConfig(significance_rule=SignificanceRule.INTERVAL))
    assert bayesian < fixed < sequential
    assert sample_size_for(two_sided, baseline, 0.1) == fixed


def test_a_prior_at_zero_costs_power_and_one_at_the_effect_gives_some() -> None:
    baseline, size = Proportion(1000, 200), 20_000

    def power(prior: Prior | None) -> float:
        return power_at(StatisticsConfig(BayesianConfig(prior=prior)), baseline, 0.08, size)

    assert power(Prior(0, 1e-3)) < power(None) < power(Prior(0.08, 1e-3))
    assert power(Prior(0, 1e9)) == pytest.approx(power(None), rel=1e-6)


def test_history_with_a_covariate_makes_a_shorter_experiment() -> None:
    # x explains nearly half of the variance of y.
    history = WithCovariate(SampleMean(10_000, 50_000.0, 290_000.0), 50_000.0, 290_000.0, 276_800.0)
    on = replace(FREQUENTIST, cuped=CupedConfig(enabled=True))
    shorter, plain = (sample_size_for(config, history, 0.05) for config in (on, FREQUENTIST))
    assert plain == sample_size_for(FREQUENTIST, history.outcome, 0.05)
    # θ = 0.67: 1 - 0.67² of the variance remains.
    assert shorter / plain == pytest.approx(1 - 0.67**2, abs=0.03)


@given(
    st.sampled_from(BASELINES),
    st.sampled_from(CONFIGS),
    st.floats(0.01, 0.5) | st.floats(-0.5, -0.01),
    st.integers(100, 10**9),
)
def test_power_is_a_probability_that_grows_with_the_size(
    baseline: SufficientStatistics, config: StatisticsConfig, difference: float, size: int
) -> None:
    power = power_at(config, baseline, difference, size)
    assert 0 <= power <= 1
    assert power_at(config, baseline, difference, 2 * size) >= power - 1e-12


def test_more_than_half_a_chance_is_enough_below_half_a_level() -> None:
    always = StatisticsConfig(BayesianConfig(ci_level=0.4))
    assert power_at(always, BASELINES[0], 0.01, 1000) == 1.0


@pytest.mark.parametrize(
    ("baseline", "difference", "options", "message"),
    [
        (Proportion(1000, 200), 0.0, {}, "zero"),
        (Proportion(1000, 800), 0.5, {}, "rate"),
        (Proportion(1000, 200), -1.5, {}, "rate"),
        (Proportion(1000, 200), 0.1, {"power": 1.0}, "power"),
        (Proportion(1000, 200), 0.1, {"test_share": 1.0}, "test_share"),
        (Proportion(1000, 200), 1e-9, {}, "no practical sample size"),
        (WithCovariate(Proportion(1000, 800), 9.0, 9.0, 8.0), 0.5, {}, "rate"),
    ],
)
def test_a_plan_for_nonsense_is_an_error(
    baseline: SufficientStatistics, difference: float, options: dict[str, float], message: str
) -> None:
    on = replace(FREQUENTIST, cuped=CupedConfig(enabled=True))
    with pytest.raises(ValueError, match=message):
        sample_size_for(on, baseline, difference, **options)


def test_a_history_without_mean_or_variance_is_refused() -> None:
    for baseline in (SampleMean(1000, 0.0, 50.0), SampleMean(1000, 1000, 1000), Proportion(0, 0)):
        with pytest.raises(RefusalError):
            sample_size_for(FREQUENTIST, baseline, 0.1)
