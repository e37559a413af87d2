"""Designs that stop early: bounds, p-values and intervals, settings, and which moments are analyses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.statistics.simulation.designs import (
    DAYS,
    HISTORIES,
    LIFTS,
    PLANS,
    WORLDS,
    analysis_of,
    design_power,
    design_rates,
    judged,
)
from tests.statistics.simulation.designs import Plan as DesignPlan
from tests.statistics.simulation.worlds import World, drawn

from hoglab.statistics import (
    Analysis,
    Design,
    FrequentistConfig,
    Monitoring,
    Proportion,
    Spending,
    StatisticsConfig,
    compare,
    power_at,
    resolve_config,
    sample_size_for,
)
from hoglab.statistics.inference.group_sequential import boundaries, crossing_probability, repeated_p_value
from hoglab.statistics.verdict import Look, Plan, analyses, safety_config

RUNS = 1000
FIVE = tuple(range(1, 6))
# Jennison and Turnbull 1999, and the reference software of Lan and DeMets's method: five equal parts, 0.025 on a side.
PUBLISHED = {
    Spending.OBRIEN_FLEMING: (4.877, 3.357, 2.680, 2.290, 2.031),
    Spending.POCOCK: (2.438, 2.427, 2.410, 2.397, 2.386),
}


def monitored(design: Design = Design.GROUP_SEQUENTIAL, **fields: Any) -> StatisticsConfig:
    return StatisticsConfig(FrequentistConfig(monitoring=Monitoring(design, **fields)))


@pytest.mark.parametrize("spending", Spending)
def test_bounds_are_the_published_ones(spending: Spending) -> None:
    bounds = boundaries(spending, 0.025, FIVE, tuple(part / 5 for part in FIVE))
    assert bounds == pytest.approx(PUBLISHED[spending], abs=1.5e-3)


@given(
    steps=st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    spending=st.sampled_from(Spending),
    level=st.sampled_from([0.1, 0.05, 0.025, 0.005, 0.0005]),
    over=st.floats(1, 1.5),
)
def test_a_complete_test_spends_its_level_whenever_its_analyses_are(
    steps: list[int], spending: Spending, level: float, over: float
) -> None:
    counts = tuple(np.cumsum(steps).tolist())
    planned = counts[-1] / over  # more people may come than were planned
    fractions = tuple(min(count / planned, 1.0) for count in counts)
    bounds = boundaries(spending, level, counts, fractions)
    assert crossing_probability(bounds, counts, 0.0) == pytest.approx(level, rel=2e-3)


@given(
    count=st.integers(1, 8),
    spending=st.sampled_from(Spending),
    level=st.floats(1e-6, 0.4),
)
def test_a_repeated_p_value_is_the_level_whose_bound_is_reached(
    count: int, spending: Spending, level: float
) -> None:
    counts = tuple(range(10, 10 * count + 1, 10))
    fractions = tuple(each / 80 for each in counts)
    bound = boundaries(spending, level, counts, fractions)[-1]
    if bound < 8:
        assert repeated_p_value(bound, spending, counts, fractions) == pytest.approx(level, rel=1e-4)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@pytest.mark.parametrize("world", [WORLDS[0], WORLDS[4]], ids=lambda world: world.name)
def test_arrays_are_judged_as_the_library_judges(plan: DesignPlan, world: World) -> None:
    runs = 12
    control, test = next(drawn(world, runs, 1.1, DAYS))
    days = np.array(plan.days)
    better, worse = judged(world, plan, (control[:, days - 1], test[:, days - 1]), days.astype(float))
    config = StatisticsConfig(FrequentistConfig(monitoring=plan.monitoring))
    is_funnel = world.build is Proportion
    for run in range(runs):
        for place in sorted({0, len(days) // 2, len(days) - 1}):
            day = plan.days[place]
            groups = [
                world.build(day * size, *(int(x) if is_funnel else float(x) for x in sums[run, day - 1]))
                for size, sums in ((world.control, control), (world.test, test))
            ]
            own = compare(config.at(analysis_of(plan, world, place)), *groups)
            significant = bool(better[run, place] or worse[run, place])
            assert (own.significant is True) == significant
            if own.inference is None:
                continue
            assert own.p_value is not None
            assert own.confidence_interval is not None
            low, high = own.confidence_interval
            assert (own.p_value < 0.05) == significant == (low > 0 or high < 0)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_design_errs_as_rarely_as_it_says(plan: DesignPlan) -> None:
    assert [line for line in (design_rates(plan, world, RUNS) for world in WORLDS[:3]) if not line.kept] == []


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_design_finds_what_it_was_planned_for(plan: DesignPlan) -> None:
    line = design_power(plan, "funnel 20 %", RUNS)
    assert line.kept
    assert line.people < 0.97


@pytest.mark.parametrize("spending", Spending)
def test_a_plan_for_a_design_has_the_power_that_it_says(spending: Spending) -> None:
    config, (history, lift) = monitored(spending=spending, analyses=5), (HISTORIES["funnel 20 %"], 0.1)
    assert lift == LIFTS["funnel 20 %"]
    size = sample_size_for(config, history, lift)
    assert power_at(config, history, lift, size) == pytest.approx(0.8, abs=1e-3)
    assert size > sample_size_for(StatisticsConfig(FrequentistConfig()), history, lift)


def test_a_guardrail_and_several_comparisons_use_the_same_bounds_at_their_own_level() -> None:
    config = monitored(analyses=4).at(Analysis((1000, 2000), (0.25, 0.5)))
    safety = safety_config(config).inference_config
    assert isinstance(safety, FrequentistConfig)
    assert safety.alpha == 0.1
    assert safety.analysis == config.analysis
    groups = Proportion(1000, 200), Proportion(1000, 260)
    wide, narrow = (compare(each, *groups).confidence_interval for each in (config, safety_config(config)))
    assert wide is not None
    assert narrow is not None
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({}, None),
        ({"design": "weekly"}, None),
        ({"design": 3, "analyses": 5}, None),
        ({"design": "hybrid", "analyses": 5}, Monitoring(Design.HYBRID)),
        ({"design": "group_sequential"}, Monitoring(Design.GROUP_SEQUENTIAL)),
        (
            {"design": "group_sequential", "spending": "pocock", "analyses": 1},
            Monitoring(Design.GROUP_SEQUENTIAL, Spending.POCOCK, 2),
        ),
        (
            {"design": "group_sequential", "spending": "linear", "analyses": 10**9},
            Monitoring(Design.GROUP_SEQUENTIAL, analyses=20),
        ),
        (
            {"design": "group_sequential", "analysis_days": [14, 7, 7, 0, -1, True, "3", 2.5]},
            Monitoring(Design.GROUP_SEQUENTIAL, days=(7, 14)),
        ),
        (
            {"design": "group_sequential", "analyses": True, "analysis_days": "7"},
            Monitoring(Design.GROUP_SEQUENTIAL),
        ),
    ],
)
def test_a_design_is_read_from_the_settings(stored: dict[str, Any], expected: Monitoring | None) -> None:
    config = resolve_config(
        {"method": "frequentist", "frequentist": stored}, {"default_sequential_testing_enabled": True}
    )
    assert config.monitoring == expected
    assert config.is_sequential is (expected is None)
    assert resolve_config({"method": "bayesian", "frequentist": stored}).monitoring is None


def looks(*people: int) -> list[Look]:
    return [Look(count, day) for day, count in enumerate(people, start=1)]


def test_an_analysis_is_due_where_its_part_of_the_plan_is_reached() -> None:
    config, plan = monitored(analyses=4), Plan(people=1000, days=5)
    made = analyses(plan, config, looks(300, 500, 490, 900, 1100, 1300))
    # The fourth day has people enough for three quarters, and days enough for them.
    assert [number for number, _ in made] == [1, 3, 4]
    assert [analysis.fractions for _, analysis in made] == [(0.4,), (0.4, 0.8), (0.4, 0.8, 1.0)]
    assert made[-1][1].counts == (500, 900, 1100)
    assert [analysis.is_last for _, analysis in made] == [False, False, True]
    assert analyses(plan, StatisticsConfig(FrequentistConfig()), looks(300, 2000, 2000, 2000, 2000)) == []


def test_analyses_are_made_on_their_days() -> None:
    config, plan = monitored(days=(2, 3)), Plan(people=1000)
    made = analyses(plan, config, looks(100, 250, 600, 900, 1000))
    assert [(number, analysis.fractions[-1]) for number, analysis in made] == [(1, 0.25), (2, 0.6), (4, 1.0)]
    # Everybody came on the first day: it is the last analysis.
    assert [number for number, _ in analyses(plan, config, looks(1000, 1000))] == [0]


def test_a_sequential_test_is_sharpest_near_the_planned_size() -> None:
    sequential = {"method": "frequentist", "frequentist": {"sequential_testing_enabled": True}}

    def tuning(config: dict[str, Any], defaults: dict[str, Any] | None, size: float | None) -> float:
        test = resolve_config(config, defaults, planned_size=size).inference_config
        assert isinstance(test, FrequentistConfig)
        return test.sequential_tuning_parameter

    assert tuning(sequential, None, 200_000) == 200_000
    assert tuning(sequential, None, None) == tuning(sequential, None, 0.5) == 5000
    assert tuning(sequential, {"default_sequential_tuning_parameter": 70}, 200_000) == 70
    own = {**sequential, "frequentist": {**sequential["frequentist"], "sequential_tuning_parameter": 90}}
    assert tuning(own, {"default_sequential_tuning_parameter": 70}, 200_000) == 90
    assert tuning({**sequential, "posthog_numbers": True}, None, 200_000) == 5000


def test_a_plan_s_size_makes_a_sequential_test_need_fewer_people() -> None:
    history = Proportion(100_000, 2_000)
    plain = FrequentistConfig(sequential_testing_enabled=True)
    needed = sample_size_for(StatisticsConfig(plain), history, 0.05)
    tuned = replace(plain, sequential_tuning_parameter=needed)
    assert sample_size_for(StatisticsConfig(tuned), history, 0.05) < 0.8 * needed
