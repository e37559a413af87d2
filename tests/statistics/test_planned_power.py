"""Whether a written plan finds its own effect, with the variance that was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hoglab.statistics import (
    FrequentistConfig,
    Proportion,
    QuantileSample,
    SampleMean,
    StatisticsConfig,
    compare,
)
from hoglab.statistics.verdict import LEAST_POWER, Measured, Plan, planned_power

CONFIG = StatisticsConfig(FrequentistConfig())


def buyers(rng: np.random.Generator, size: int, growth: float = 1.0) -> SampleMean:
    """Two in a hundred spend, log-normally: values that vary eleven times as much as they are large."""
    values = growth * rng.lognormal(3, 1, size) * (rng.random(size) < 0.02)
    return SampleMean.of(values.tolist())


def test_a_plan_made_for_a_guessed_variance_is_found_too_small() -> None:
    """800 people is the calculator's rule of thumb for 30 %, whatever the values are."""
    rng = np.random.default_rng(4)
    measured = Measured((buyers(rng, 20_000), buyers(rng, 20_000)))
    found = planned_power(Plan(people=800, effect=0.3), CONFIG, measured)
    assert found is not None
    assert found.power < 0.1 < LEAST_POWER
    together = measured.groups[0] + measured.groups[1]  # type: ignore[operator]
    spread = together.variance**0.5 / together.mean
    # n = (1.96 + 0.84)²·(1 + 1.3²)·(σ/μ)²/0.3² in each group: the effect multiplies the values.
    wanted = 2 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 * (1 + 1.3**2) * spread**2 / 0.3**2
    assert found.people_needed == pytest.approx(wanted, rel=0.01)
    enough = planned_power(Plan(people=found.people_needed, effect=0.3), CONFIG, measured)
    assert enough is not None
    assert enough.power == pytest.approx(0.8, abs=0.002)


def test_the_power_is_that_of_simulated_experiments() -> None:
    plan, rate = Plan(people=3000, effect=0.2), 0.12
    history = Measured((Proportion(50_000, 6000), Proportion(50_000, 6000)))
    found = planned_power(plan, CONFIG, history)
    assert found is not None
    rng, runs = np.random.default_rng(7), 1500
    pairs = zip(
        rng.binomial(1500, rate, runs).tolist(), rng.binomial(1500, 1.2 * rate, runs).tolist(), strict=True
    )
    significant = sum(
        bool(compare(CONFIG, Proportion(1500, control), Proportion(1500, test)).significant)
        for control, test in pairs
    )
    assert significant / runs == pytest.approx(found.power, abs=0.04)


def test_all_variants_share_the_planned_people() -> None:
    """Of three variants each gets a third, so that the same number of people tells less."""
    two, three = (
        planned_power(Plan(people=3000, effect=0.2), CONFIG, Measured((Proportion(5000, 600),) * count))
        for count in (2, 3)
    )
    assert two is not None
    assert three is not None
    assert three.power < two.power
    assert three.people_needed == pytest.approx(1.5 * two.people_needed, rel=0.01)


def test_nothing_is_said_without_a_plan_or_before_the_variance_is_known() -> None:
    groups = Measured((Proportion(5000, 600), Proportion(5000, 650)))
    assert planned_power(Plan(people=3000), CONFIG, groups) is None
    assert planned_power(Plan(days=14, effect=0.2), CONFIG, groups) is None
    few = Measured((Proportion(5000, 600), Proportion(99, 10)))
    assert planned_power(Plan(people=3000, effect=0.2), CONFIG, few) is None
    nothing = Measured((Proportion(500, 0), Proportion(500, 0)))
    assert planned_power(Plan(people=3000, effect=0.2), CONFIG, nothing) is None
    tied = QuantileSample(1000, 0.5, 30, 29, 31, largest_tie=60)
    assert planned_power(Plan(people=3000, effect=0.2), CONFIG, Measured((tied, tied))) is None


def test_a_metric_that_should_fall_is_planned_for_a_fall() -> None:
    groups = Measured((Proportion(5000, 600), Proportion(5000, 600)))
    up = planned_power(Plan(people=3000, effect=0.2), CONFIG, groups)
    down = planned_power(Plan(people=3000, effect=0.2), CONFIG, replace(groups, wants_decrease=True))
    assert up is not None
    assert down is not None
    assert down.power > up.power, "fewer conversions vary less"
