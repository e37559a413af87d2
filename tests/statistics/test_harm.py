"""Certain harm: how often it is called without an effect, and how soon with one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import pytest

from hoglab.statistics import Proportion, SampleMean, SufficientStatistics
from hoglab.statistics.verdict import HARM_LEVEL, anytime_p_value
from hoglab.statistics.verdict.harm import one_sided_p_value

DAYS = 60
RUNS = 400
Groups = tuple[SufficientStatistics, SufficientStatistics]


@dataclass(frozen=True)
class World:
    """People who come a day to the baseline and to the variant, and what they do."""

    name: str
    a_day: tuple[int, int]
    rate: float = 0.0
    spread: float = 0.0
    """Standard deviation of the logarithm of an amount; 0: a funnel."""

    def looks(self, rng: np.random.Generator, days: int, lift: float = 0.0) -> Iterator[Groups]:
        """Yield the groups at the end of each day."""
        sums = np.zeros((2, 3))
        for _ in range(days):
            for group, people in enumerate(self.a_day):
                rate = self.rate * (1 + lift * group)
                buyers = int(rng.binomial(people, rate))
                amounts = rng.lognormal(3, self.spread, buyers) if self.spread else np.ones(buyers)
                sums[group] += people, amounts.sum(), (amounts**2).sum()
            yield self._group(sums[0]), self._group(sums[1])

    def _group(self, sums: np.ndarray) -> SufficientStatistics:
        n, total, squares = sums.tolist()
        return SampleMean(int(n), total, squares) if self.spread else Proportion(int(n), int(total))


WORLDS = [
    World("funnel 20 %", (670, 670), 0.2),
    World("funnel 1 %", (100, 100), 0.01),
    World("2 % buyers", (100, 100), 0.02, 1.0),
    World("2 % buyers, 95:5", (950, 50), 0.02, 1.0),
    World("funnel 2 %, 99:1", (1980, 20), 0.02),
    World("everybody pays, very skewed", (50, 50), 1.0, 2.0),
    World("everybody pays, very skewed, 99:1", (990, 10), 1.0, 2.0),
]


def first_alarm(looks: Iterator[Groups], *, comparisons: int = 1) -> int | None:
    """Return the first day on which the variant is certainly worse."""
    for day, (control, test) in enumerate(looks, start=1):
        p_value = anytime_p_value(control, test)
        if p_value is not None and test.mean < control.mean and p_value * comparisons < HARM_LEVEL:
            return day
    return None


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_without_an_effect_harm_is_hardly_ever_called(world: World) -> None:
    """At most 1 % of experiments that are looked at daily for 60 days, and three standard errors."""
    rng = np.random.default_rng(3)
    alarms = sum(first_alarm(world.looks(rng, DAYS)) is not None for _ in range(RUNS))
    assert alarms / RUNS <= HARM_LEVEL + 3 * sqrt(HARM_LEVEL * (1 - HARM_LEVEL) / RUNS)


@pytest.mark.parametrize(("lift", "day", "share"), [(-0.87, 1, 0.99), (-0.2, 5, 0.5), (-0.2, 8, 0.9)])
def test_harm_is_seen_in_the_first_days(lift: float, day: int, share: float) -> None:
    """Conversions of 20 %, 670 people a day in each group, three comparisons watched."""
    rng = np.random.default_rng(4)
    alarms = [first_alarm(WORLDS[0].looks(rng, day, lift), comparisons=3) for _ in range(RUNS)]
    assert sum(alarm is not None for alarm in alarms) / RUNS >= share


def test_the_p_value_is_the_level_of_the_bound() -> None:
    evidence = -2 * log(2 * HARM_LEVEL)
    rho_squared = (evidence + log(1 + evidence)) / 2000
    for n in (100, 2000, 10**6):
        q = n * rho_squared + 1
        for alpha in (0.2, 0.01, 1e-9):
            bound = sqrt(2 * q / (n * rho_squared) * log(1 + sqrt(q) / (2 * alpha)))
            assert one_sided_p_value(bound, n) == pytest.approx(alpha)
            assert one_sided_p_value(-bound, n) == pytest.approx(alpha)
        assert one_sided_p_value(0, n) == 1
        assert 0 <= one_sided_p_value(1e6, n) < 1e-200


@pytest.mark.parametrize(
    ("control", "test"),
    [
        (Proportion(49, 20), Proportion(1000, 1)),
        (Proportion(1000, 400), Proportion(49, 0)),
        (Proportion(1000, 0), Proportion(1000, 0)),
        (SampleMean(0, 0, 0), SampleMean(100, 5, 9)),
        (SampleMean(100, 200, 1), SampleMean(100, 5, 9)),
    ],
)
def test_groups_of_which_nothing_is_certain(
    control: SufficientStatistics, test: SufficientStatistics
) -> None:
    assert anytime_p_value(control, test) is None
