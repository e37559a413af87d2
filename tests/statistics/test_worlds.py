"""The hard worlds on few experiments; `make validate-statistics` holds them to many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.statistics.simulation.promises import ALPHA, METHODS, Share, allowed_errors
from tests.statistics.simulation.worlds import DAILY, ONCE, POWER, World, daily, drawn, found, judge, once

from hoglab.statistics import StatisticsConfig, compare

RUNS = 1000
FEW = 200


def named(world: World) -> str:
    return f"{world.name}, {world.sizes}"


@pytest.mark.parametrize("world", ONCE, ids=named)
@pytest.mark.parametrize("lift", [0.0, 0.3])
def test_arrays_are_judged_as_the_library_judges(world: World, lift: float) -> None:
    controls, tests = next(drawn(world, 40, 1 + lift))
    controls, tests = controls[:40], tests[:40]
    for method, config in METHODS.items():
        answers = judge(world, method, (controls, tests), (world.control, world.test), lift)
        for place in range(len(controls)):
            groups = (
                world.build(size, *(as_count(world, number) for number in sums[place, 0]))
                for size, sums in ((world.control, controls), (world.test, tests))
            )
            own = compare(StatisticsConfig(config), *groups)
            assert answers.told[place, 0] == (own.inference is not None)
            if own.inference is None:
                continue
            sign = 0 if not own.significant else np.sign(own.point_estimate or 0)
            assert sign == int(answers.better[place, 0]) - int(answers.worse[place, 0])
            interval = own.credible_interval or own.confidence_interval
            assert interval is not None
            assert answers.covers[place, 0] == (interval[0] <= lift <= interval[1])


def as_count(world: World, number: Any) -> float:
    return int(number) if world.name.startswith("funnel") else float(number)


@pytest.mark.parametrize("world", ONCE, ids=named)
def test_one_look_errs_as_often_as_it_says(world: World) -> None:
    assert [line for line in once(world, RUNS if world.control < 5000 else FEW) if not line.kept] == []


@pytest.mark.parametrize("world", DAILY[:5], ids=named)
def test_watching_a_sequential_test_errs_as_rarely_as_it_says(world: World) -> None:
    assert daily(world, FEW).kept


def test_small_groups_and_rare_buyers_are_no_longer_called_worse() -> None:
    """PostHog's numbers call them worse in a quarter of all experiments and more."""
    sparse, uneven = (daily(world, FEW) for world in (DAILY[0], DAILY[6]))
    for line in (sparse, uneven):
        assert line.kept
        assert line.worse_by_posthog.observed > 0.15


@pytest.mark.parametrize("world", POWER, ids=named)
def test_an_effect_is_found_and_never_in_the_wrong_direction(world: World) -> None:
    line = found(world, FEW)
    assert line.kept
    assert line.better.observed > 0.65


def test_a_world_that_breaks_a_promise_is_seen() -> None:
    assert Share(30, 1000, ALPHA / 2).standard_errors <= allowed_errors(1000)
    assert Share(50, 1000, ALPHA / 2).standard_errors > allowed_errors(1000)
