"""Designs that stop early, in experiments with a known truth: how often they err, and how many people they take.

Whole arrays of experiments are judged at once, by the rule of `hoglab.statistics` written once more for arrays; a test
holds it to the library's own answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import exp

import numpy as np
import scipy.special
from tests.statistics.simulation.promises import ALPHA, MANY_RUNS, POWER_TOLERANCE, Share, allowed_errors
from tests.statistics.simulation.worlds import (
    Array,
    Bools,
    World,
    buyers,
    conversions,
    drawn,
    lognormal,
    moments,
    values,
)

from hoglab.statistics import (
    Analysis,
    Design,
    FrequentistConfig,
    Monitoring,
    Proportion,
    SampleMean,
    Spending,
    StatisticsConfig,
    SufficientStatistics,
    power_at,
    sample_size_for,
)
from hoglab.statistics.inference.group_sequential import boundaries
from hoglab.statistics.inference.monitored import SHARE_OF_MONITORING

DAYS = 24
"""Length of every plan, in days; a hybrid design is looked at on each of them."""
RATE = 0.2
LIFTS = {"funnel 20 %": 0.1, "2 % buyers": 0.4}
PLANNED_POWER = 0.8
POWER_LOST = 0.025
"""Power that a design may lose against a single look at as many people."""
PEOPLE_SAVED = 0.20
"""People that group sequential designs with eight analyses save on average, where the effect is the planned one."""


@dataclass(frozen=True)
class Plan:
    """A design and its analyses: on which of the days they are made."""

    name: str
    monitoring: Monitoring
    days: tuple[int, ...]


def _group(name: str, spending: Spending, *days: int) -> Plan:
    interim = tuple(days[:-1])
    return Plan(name, Monitoring(Design.GROUP_SEQUENTIAL, spending, len(days), interim), days)


OBRIEN_FLEMING, POCOCK = Spending.OBRIEN_FLEMING, Spending.POCOCK
PLANS = (
    _group("O'Brien–Fleming, 4 analyses", OBRIEN_FLEMING, *range(6, 25, 6)),
    _group("O'Brien–Fleming, 8 analyses", OBRIEN_FLEMING, *range(3, 25, 3)),
    _group("O'Brien–Fleming, days 4, 7 and 20", OBRIEN_FLEMING, 4, 7, 20, 24),
    _group("Pocock, 4 analyses", POCOCK, *range(6, 25, 6)),
    _group("Pocock, 8 analyses", POCOCK, *range(3, 25, 3)),
    Plan("hybrid, read daily", Monitoring(Design.HYBRID), tuple(range(1, DAYS + 1))),
)
WORLDS = (
    World("funnel 20 %", partial(conversions, 0.2), 300, 300, Proportion, 5),
    World("funnel 1 %", partial(conversions, 0.01), 100, 100, Proportion, 5),
    World("2 % buyers", buyers, 100, 100, SampleMean),
    World("log-normal, σ = 2", partial(values, lognormal), 50, 50, SampleMean),
    World("2 % buyers", buyers, 950, 50, SampleMean),
)
"""Sizes are new people of a day."""


@dataclass(frozen=True)
class DesignRates:
    """A design without an effect: how often any analysis finds one."""

    kind: str
    world: str
    sizes: str
    better: Share
    worse: Share

    @property
    def kept(self) -> bool:
        found = Share(self.better.count + self.worse.count, self.better.runs, ALPHA)
        return found.standard_errors <= allowed_errors(found.runs)


@dataclass(frozen=True)
class DesignPower:
    """A design with the effect that it was planned for, on as many people as a single look needs for 80 % power."""

    kind: str
    world: str
    found: Share
    worse: Share
    single: Share
    """Power of a single look at the same people."""
    promised: float
    """Power that `power_at` gives for it."""
    people: float
    """Average number of people at the end, as a share of the planned ones."""
    median_day: int

    @property
    def lost(self) -> float:
        """Power lost against a single look."""
        return self.single.observed - self.found.observed

    @property
    def lost_by_plan(self) -> float:
        return PLANNED_POWER - self.promised

    @property
    def kept(self) -> bool:
        """Pocock's type costs more power: of it only what `power_at` promises is held."""
        slack = 0.0 if self.found.runs >= MANY_RUNS else 0.05
        is_pocock = self.kind.startswith("Pocock")
        is_strong = is_pocock or self.found.observed >= self.single.observed - POWER_LOST - slack
        is_saved = self.people <= 1 - PEOPLE_SAVED + slack or "8 analyses" not in self.kind
        return is_strong and is_saved and abs(self.lost - self.lost_by_plan) <= slack + POWER_TOLERANCE


def tails(plan: Plan, daily: int) -> list[float]:
    """The one-sided level of a group sequential analysis, or of the last test of a hybrid design."""
    counts = tuple(day * daily for day in plan.days)
    fractions = tuple(day / DAYS for day in plan.days)
    bounds = boundaries(plan.monitoring.spending, ALPHA / 2, counts, fractions)
    return [float(scipy.special.ndtr(-bound)) for bound in bounds]


def judged(world: World, plan: Plan, groups: tuple[Array, Array], days: Array) -> tuple[Bools, Bools]:
    """Whether each analysis finds the test group better, and worse; the days are those of the columns."""
    n_c, n_t = days * world.control, days * world.test
    samples = n_c + n_t
    (mean_c, var_c), (mean_t, var_t) = (
        moments(world, *pair) for pair in zip(groups, (n_c, n_t), strict=True)
    )
    difference = mean_t - mean_c
    common = (1 / n_t + 1 / n_c) / (samples - 2)
    better, worse = np.ones(difference.shape, bool), np.ones(difference.shape, bool)
    for of_test, of_control in ((1 / n_t, 1 / n_c), ((n_t - 1) * common, (n_c - 1) * common)):
        a, b = of_test * var_t, of_control * var_c
        with np.errstate(divide="ignore", invalid="ignore"):
            freedom = (a + b) ** 2 / (a**2 / (n_t - 1) + b**2 / (n_c - 1))
        reach = _critical(plan, freedom, samples) * np.sqrt(a + b)
        better &= difference > reach
        worse &= difference < -reach
    told = (var_t + var_c > 0) & (np.minimum(n_c, n_t) >= 50) & (groups[0][..., 0] > 0)
    for sums in groups:
        told &= sums[..., 0] >= world.minimum
    return better & told, worse & told


def _critical(plan: Plan, freedom: Array, samples: Array) -> Array:
    if plan.monitoring.design is Design.GROUP_SEQUENTIAL:
        return -scipy.special.stdtrit(freedom, np.array(tails(plan, int(samples[0] // plan.days[0]))))
    alpha = ALPHA * SHARE_OF_MONITORING
    evidence = -2 * np.log(alpha)
    n_rho2 = samples * (evidence + np.log(1 + evidence)) / samples[-1]
    q = n_rho2 + 1
    reach = np.broadcast_to(np.sqrt(2 * q * (0.5 * np.log(q) - np.log(alpha)) / n_rho2), freedom.shape).copy()
    reach[:, -1] = -scipy.special.stdtrit(freedom[:, -1], ALPHA * (1 - SHARE_OF_MONITORING) / 2)
    return reach


def _watched(world: World, plan: Plan, runs: int, lift: float) -> tuple[Array, Array, Bools]:
    """The first day that is better and worse (infinite: none), and whether a single look at the end finds a gain."""
    days = np.array(plan.days)
    firsts: tuple[list[Array], list[Array]] = ([], [])
    single = []
    for control, test in drawn(world, runs, 1 + lift, DAYS):
        groups = control[:, days - 1], test[:, days - 1]
        for side, ever in zip(firsts, judged(world, plan, groups, days.astype(float)), strict=True):
            side.append(np.where(ever.any(axis=1), days[ever.argmax(axis=1)], np.inf))
        last = control[:, -1:], test[:, -1:]
        end = Plan("single", Monitoring(Design.GROUP_SEQUENTIAL), (DAYS,))
        single.append(judged(world, end, last, np.array([float(DAYS)]))[0][:, 0])
    better, worse = (np.concatenate(side) for side in firsts)
    return better, worse, np.concatenate(single)


def design_rates(plan: Plan, world: World, runs: int) -> DesignRates:
    better, worse, _ = _watched(world, plan, runs, 0.0)
    counts = (better < worse).sum(), (worse < better).sum()
    return DesignRates(
        plan.name, world.name, world.sizes, *(Share(int(count), runs, ALPHA / 2) for count in counts)
    )


HISTORIES: dict[str, SufficientStatistics] = {
    "funnel 20 %": Proportion(100_000, 20_000),
    # Two in a hundred spend log-normally: the moments of many of them.
    "2 % buyers": SampleMean(100_000, 2_000 * exp(3.5), 2_000 * exp(8)),
}
"""What a plan is made from, by the name of the world."""


def planned_world(name: str) -> tuple[World, float]:
    """A world as large as a single look needs for 80 % power, and the effect."""
    lift = LIFTS[name]
    people = sample_size_for(StatisticsConfig(FrequentistConfig(ALPHA)), HISTORIES[name], lift)
    daily = round(people / 2 / DAYS)
    if name == "2 % buyers":
        return World(name, buyers, daily, daily, SampleMean), lift
    return World(name, partial(conversions, RATE), daily, daily, Proportion, 5), lift


def design_power(plan: Plan, name: str, runs: int) -> DesignPower:
    world, lift = planned_world(name)
    config = StatisticsConfig(FrequentistConfig(ALPHA, monitoring=plan.monitoring))
    promised = power_at(config, HISTORIES[name], lift, 2 * DAYS * world.control)
    better, worse, single = _watched(world, plan, runs, lift)
    ends = np.minimum(np.minimum(better, worse), DAYS)
    is_better = better < worse
    return DesignPower(
        plan.name,
        world.name,
        Share(int(is_better.sum()), runs, 0.8),
        Share(int((worse < better).sum()), runs, ALPHA / 2),
        Share(int(single.sum()), runs, 0.8),
        promised,
        float(ends.mean() / DAYS),
        int(np.median(better[is_better])),
    )


def analysis_of(plan: Plan, world: World, place: int) -> Analysis:
    """The library's own analysis at a place."""
    daily = world.control + world.test
    days = plan.days[: place + 1]
    return Analysis(tuple(day * daily for day in days), tuple(day / DAYS for day in days))
