"""How often harm is called certain without an effect, and how soon with one: all experiments of a world at once.

The sums of all experiments are arrays, and the test for harm is computed on arrays too; `checked` experiments are
compared with the library at their last look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from tests.statistics.simulation.promises import DAYS, Share, allowed_errors, random

from hoglab.analysis.results.harm_watch import LEAST_WAIT, LONGEST_WAIT, OF_AGE
from hoglab.statistics import Proportion, SampleMean
from hoglab.statistics.verdict import HARM_LEVEL, anytime_p_value
from hoglab.statistics.verdict.harm import MIN_CERTAIN_SAMPLES, one_sided_p_value

AN_HOUR = timedelta(hours=1)
CHECKED = 20
"""Experiments of each world whose last look is compared with the library."""
Sums = np.ndarray
"""Numbers of people, sums and sums of squares: by experiment, group and kind of sum."""


@dataclass(frozen=True)
class World:
    """People who come a day to the baseline and to the variant, and what they do."""

    name: str
    a_day: tuple[int, int]
    rate: float
    spread: float = 0.0
    """Standard deviation of the logarithm of an amount; 0: a conversion."""

    @property
    def kind(self) -> str:
        return f"{self.name}, {self.a_day[0]:,} and {self.a_day[1]:,} a day"

    def looks(self, rng: np.random.Generator, runs: int, lift: float = 0.0) -> Iterator[tuple[float, Sums]]:
        """Yield the day and the sums of all experiments at each look of the watch."""
        sums, before = np.zeros((runs, 2, 3)), 0.0
        for day in watched_days():
            for group, people in enumerate(self.a_day):
                size = round(people * day) - round(people * before)
                doers = rng.binomial(size, self.rate * (1 + lift * group), runs)
                amounts = rng.lognormal(3, self.spread, int(doers.sum())) if self.spread else None
                owner = None if amounts is None else np.repeat(np.arange(runs), doers)
                sums[:, group, 0] += size
                sums[:, group, 1] += doers if amounts is None else np.bincount(owner, amounts, runs)
                sums[:, group, 2] += doers if amounts is None else np.bincount(owner, amounts**2, runs)
            before = day
            yield day, sums


WORLDS = (
    World("funnel of 20 %", (670, 670), 0.2),
    World("funnel of 1 %", (100, 100), 0.01),
    World("funnel of 2 %", (1980, 20), 0.02),
    World("2 % buyers, log-normal amounts", (100, 100), 0.02, 1.0),
    World("2 % buyers, log-normal amounts", (950, 50), 0.02, 1.0),
    World("everybody pays, log-normal with σ = 2", (50, 50), 1.0, 2.0),
    World("everybody pays, log-normal with σ = 2", (990, 10), 1.0, 2.0),
)
HARMS = ((-0.87, 1), (-0.2, 1), (-0.2, 3), (-0.1, 1))
"""Effects on the first world, and the comparisons that are watched."""


@dataclass(frozen=True)
class FalseAlarms:
    """Share of experiments without an effect that raise the alarm within 60 days."""

    kind: str
    alarms: Share

    @property
    def kept(self) -> bool:
        return self.alarms.standard_errors <= allowed_errors(self.alarms.runs)


@dataclass(frozen=True)
class TrueAlarms:
    """Days until the alarm, with harm."""

    kind: str
    by_day: dict[int, float]
    """Share of experiments that raised the alarm by the end of these days."""
    median: float
    kept: bool = True


def watched_days() -> list[float]:
    """Return the ages in days at which the watch looks at an experiment, within 60 days."""
    ages = [0 * AN_HOUR]
    while ages[-1] < timedelta(days=DAYS):
        ages.append(ages[-1] + min(max(ages[-1] * OF_AGE, LEAST_WAIT), LONGEST_WAIT))
    return [age / timedelta(days=1) for age in ages[1:-1]]


def false_alarms(world: World, runs: int) -> FalseAlarms:
    days = _first_alarms(world, random("harm", world.kind), runs, 0.0, 1)
    return FalseAlarms(world.kind, Share(int(np.isfinite(days).sum()), runs, HARM_LEVEL))


def true_alarms(lift: float, comparisons: int, runs: int) -> TrueAlarms:
    world = WORLDS[0]
    days = _first_alarms(world, random("harm", lift, comparisons), runs, lift, comparisons)
    many = f", {comparisons} comparisons" if comparisons > 1 else ""
    shares = {day: float((days <= day).mean()) for day in (1, 5, 14)}
    return TrueAlarms(f"{world.kind}: {lift:+.0%}{many}", shares, float(np.median(days)))


def _first_alarms(
    world: World, rng: np.random.Generator, runs: int, lift: float, comparisons: int
) -> np.ndarray:
    """Return the day of the first alarm of each experiment; infinite for none."""
    first = np.full(runs, np.inf)
    for day, sums in world.looks(rng, runs, lift):
        p_values, is_below = harm_p_values(sums, is_share=not world.spread)
        alarm = is_below & (p_values * comparisons < HARM_LEVEL)
        first[alarm & np.isinf(first)] = day
    for place in range(min(CHECKED, runs)):
        kind = SampleMean if world.spread else Proportion
        groups = [kind(int(group[0]), *group[1 : 3 if world.spread else 2]) for group in sums[place]]
        library = anytime_p_value(*groups)
        assert library is None or abs(library - p_values[place]) <= 1e-9 * library + 1e-15
    return first


def harm_p_values(sums: Sums, *, is_share: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return `anytime_p_value` of all experiments, 1 where it is None, and whether the variant is below."""
    n, total, squares = sums[:, :, 0], sums[:, :, 1], sums[:, :, 2]
    if n.min() < MIN_CERTAIN_SAMPLES:
        return np.ones(len(sums)), np.zeros(len(sums), bool)
    mean = total / n
    variance = mean * (1 - mean) if is_share else (squares - total**2 / n) / (n - 1)
    both = n.sum(axis=1)
    pooled = ((n - 1) * variance).sum(axis=1) / (both - 2) * (1 / n).sum(axis=1)
    largest = np.maximum((variance / n).sum(axis=1), pooled)
    difference = mean[:, 1] - mean[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(largest > 0, difference / np.sqrt(largest), 0.0)
    size = int(both[0])
    p_values = np.array([one_sided_p_value(float(value), size) for value in z])
    return np.where(largest > 0, p_values, 1.0), difference < 0
