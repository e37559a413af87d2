"""The hard worlds: sparse and skewed metrics and groups of unequal size, where a mean is far from Normal.

Whole arrays of experiments are judged at once, by the rule of `hoglab.statistics` written once more for arrays; a test
holds it to the library's own answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy.special
from tests.statistics.simulation.promises import ALPHA, DAYS, LEVEL, METHODS, Share, allowed_errors, random

from hoglab.statistics import FrequentistConfig, Proportion, Ratio, SampleMean, SufficientStatistics

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rng = np.random.Generator
LIFTS = (-0.3, 0.0, 0.3, 1.0)
VALUES_AT_ONCE = 4_000_000
"""Bounds the memory of a draw, in numbers."""
FEWEST_PEOPLE = 50
"""Least people in a group for which there are statistics."""


class Draw(Protocol):
    """Draws the sums of groups: an array (cells, sums) of `cells` groups of `size` people."""

    def __call__(self, rng: Rng, cells: int, size: int, growth: float) -> Array: ...


@dataclass(frozen=True)
class World:
    """A metric, and the sizes of control and test: in all, or new ones of each day."""

    name: str
    draw: Draw
    control: int
    test: int
    build: Callable[..., SufficientStatistics]
    minimum: int = 0
    """Least sum with which there are statistics."""
    promised: bool = True

    @property
    def sizes(self) -> str:
        return f"{self.control:,} : {self.test:,}"


@dataclass(frozen=True)
class Judged:
    """Answers about an array of experiments; those without statistics are in none of them."""

    better: Bools
    worse: Bools
    covers: Bools
    told: Bools
    """Whether there are statistics."""
    worse_by_posthog: Bools


def values(
    sample: Callable[[Rng, tuple[int, ...]], Array], rng: Rng, cells: int, size: int, growth: float
) -> Array:
    """Means of values that an effect multiplies."""
    drawn = growth * sample(rng, (cells, size))
    return np.stack([drawn.sum(axis=1), (drawn**2).sum(axis=1)], axis=1)


def buyers(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Two in a hundred spend, log-normally."""
    counts = rng.binomial(size, 0.02, cells)
    owner = np.repeat(np.arange(cells), counts)
    spent = growth * rng.lognormal(3, 1, owner.size)
    return np.stack([np.bincount(owner, weights, minlength=cells) for weights in (spent, spent**2)], axis=1)


def more_buyers(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """An effect on how many spend."""
    counts = rng.binomial(size, 0.02 * growth, cells)
    owner = np.repeat(np.arange(cells), counts)
    spent = rng.lognormal(3, 1, owner.size)
    return np.stack([np.bincount(owner, weights, minlength=cells) for weights in (spent, spent**2)], axis=1)


def conversions(rate: float, rng: Rng, cells: int, size: int, growth: float) -> Array:
    return rng.binomial(size, rate * growth, (cells, 1)).astype(float)


def counts(mean: float, rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Poisson counts, from how many people have each."""
    rate = mean * growth
    numbers = np.arange(int(rate + 12 * sqrt(rate) + 12))
    chances = np.exp(numbers * np.log(rate) - rate - scipy.special.gammaln(numbers + 1))
    people = rng.multinomial(size, chances / chances.sum(), cells)
    return np.stack([people @ numbers, people @ numbers**2], axis=1).astype(float)


def sparse_ratio(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Revenue per order where one in five orders, and who orders more spends more on each."""
    orders = (rng.random((cells, size)) < 0.2) * (1.0 + rng.poisson(1, (cells, size)))
    revenue = growth * orders**2 * rng.lognormal(0, 0.5, (cells, size))
    columns = (revenue, revenue**2, orders, orders**2, revenue * orders)
    return np.stack([column.sum(axis=1) for column in columns], axis=1)


def half_zeros(rng: Rng, shape: tuple[int, ...]) -> Array:
    return rng.exponential(1, shape) * (rng.random(shape) >= 0.48)


def lognormal(rng: Rng, shape: tuple[int, ...]) -> Array:
    return rng.lognormal(0, 2, shape)


def exponential(rng: Rng, shape: tuple[int, ...]) -> Array:
    return rng.exponential(1, shape)


def _funnel(rate: str, control: int, test: int) -> World:
    return World(f"funnel {rate} %", partial(conversions, float(rate) / 100), control, test, Proportion, 5)


def _buyers(control: int, test: int) -> World:
    return World("2 % buyers", buyers, control, test, SampleMean)


def _lognormal(control: int, test: int) -> World:
    return World("log-normal, σ = 2", partial(values, lognormal), control, test, SampleMean)


ONCE: tuple[World, ...] = (
    _buyers(1000, 1000),
    _funnel("0.1", 10_000, 10_000),
    _funnel("1", 1000, 1000),
    _funnel("10", 100, 100),
    _lognormal(50, 50),
    World("Poisson, mean 0.05", partial(counts, 0.05), 1000, 1000, SampleMean),
    World("Poisson, mean 30", partial(counts, 30), 50, 50, SampleMean),
    World("exponential", partial(values, exponential), 50, 50, SampleMean),
    World("48 % zeros", partial(values, half_zeros), 100, 100, SampleMean),
    World("ratio, orders by one in five", sparse_ratio, 50, 50, Ratio, promised=False),
    World("ratio, orders by one in five", sparse_ratio, 500, 500, Ratio, promised=False),
    _buyers(9000, 1000),
    _buyers(9900, 100),
    _lognormal(450, 50),
    _lognormal(4950, 50),
    _funnel("1", 9000, 1000),
    _funnel("10", 9900, 100),
)
DAILY: tuple[World, ...] = (
    _buyers(100, 100),
    _buyers(500, 500),
    _lognormal(50, 50),
    _funnel("1", 100, 100),
    _funnel("0.5", 500, 500),
    _buyers(950, 50),
    _lognormal(475, 25),
    _lognormal(495, 5),
)
POWER = (_funnel("2", 100, 100), World("2 % buyers", more_buyers, 300, 300, SampleMean))
POWER_LIFT = 0.5


def moments(world: World, sums: Array, size: Array | int) -> tuple[Array, Array]:
    """Mean and variance of one value of each group."""
    columns = np.moveaxis(sums, -1, 0)
    total = columns[0]
    if world.build is Proportion:
        rate = total / size
        return rate, rate * (1 - rate)

    def variance(first: Array, squares: Array) -> Array:
        return (squares - first * first / size) / (size - 1)

    if world.build is SampleMean:
        return total / size, variance(total, columns[1])
    below = columns[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = total / below
        covariance = (columns[4] - total * below / size) / (size - 1)
        spread = variance(total, columns[1]) + ratio**2 * variance(below, columns[3]) - 2 * ratio * covariance
        return ratio, spread / (below / size) ** 2


def judge(
    world: World,
    method: str,
    groups: tuple[Array, Array],
    sizes: tuple[Array | int, Array | int],
    lift: float,
) -> Judged:
    """Judge relative effects of the true size `lift`; `groups` and `sizes` are those of control and test."""
    (n_c, n_t), samples = sizes, sizes[0] + sizes[1]
    (mean_c, var_c), (mean_t, var_t) = (moments(world, *pair) for pair in zip(groups, sizes, strict=True))
    difference = mean_t - mean_c
    distance = mean_t - (1 + lift) * mean_c
    common = (1 / n_t + 1 / n_c) / (samples - 2)
    better, worse = np.ones(difference.shape, bool), np.ones(difference.shape, bool)
    covers = np.zeros(difference.shape, bool)
    for of_test, of_control in ((1 / n_t, 1 / n_c), ((n_t - 1) * common, (n_c - 1) * common)):
        a, b = of_test * var_t, of_control * var_c
        with np.errstate(divide="ignore", invalid="ignore"):
            freedom = (a + b) ** 2 / (a**2 / (n_t - 1) + b**2 / (n_c - 1))
        reach = _critical(method, freedom, samples, decides=True) * np.sqrt(a + b)
        better &= difference > reach
        worse &= difference < -reach
        covers |= np.abs(distance) <= _critical(method, freedom, samples) * np.sqrt(a + (1 + lift) ** 2 * b)
    told = (var_t + var_c > 0) & (np.minimum(n_c, n_t) >= FEWEST_PEOPLE) & (groups[0][..., 0] > 0)
    for sums, size in zip(groups, sizes, strict=True):
        told &= sums[..., 0] >= world.minimum
        if world.build is Proportion and method == "bayesian":
            told &= size - sums[..., 0] >= world.minimum
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = var_t / n_t, var_c / n_c
        freedom = (a + b) ** 2 / (a**2 / (n_t - 1) + b**2 / (n_c - 1))
        delta = np.sqrt(a + (mean_t / mean_c) ** 2 * b)
    by_posthog = difference < -_critical(method, freedom, samples, decides=True) * delta
    return Judged(better & told, worse & told, covers & told, told, by_posthog & told)


def _critical(method: str, freedom: Array, samples: Array | int, *, decides: bool = False) -> Array:
    """Standard errors to the bounds of an interval, or to where an effect is significant."""
    if method == "frequentist":
        return -scipy.special.stdtrit(freedom, ALPHA / 2)
    if method == "bayesian":
        return np.full_like(freedom, -float(scipy.special.ndtri((1 - LEVEL) / (1 if decides else 2))))
    config = METHODS[method]
    assert isinstance(config, FrequentistConfig)
    evidence = -2 * np.log(ALPHA)
    n_rho2 = samples * (evidence + np.log(1 + evidence)) / config.sequential_tuning_parameter
    q = n_rho2 + 1
    return np.broadcast_to(np.sqrt(2 * q * (0.5 * np.log(q) - np.log(ALPHA)) / n_rho2), freedom.shape)


def nominal_rates(method: str, freedom: Array) -> tuple[float, float]:
    """Rate of false positives on a side, and coverage, of Normal values.

    A Normal posterior takes the variance as known; with 50 people in a group that is worth 0.3 points of coverage.
    """
    decides, interval = (_critical(method, freedom, 0, decides=decides) for decides in (True, False))
    return float(scipy.special.stdtr(freedom, -decides)), float(
        1 - 2 * scipy.special.stdtr(freedom, -interval)
    )


@dataclass(frozen=True)
class Once:
    """One world looked at once: false positives on either side without an effect, and coverage by true effect."""

    kind: str
    sizes: str
    method: str
    better: Share
    worse: Share
    worse_by_posthog: Share
    coverage: dict[float, Share]
    promised: bool

    @property
    def kept(self) -> bool:
        return not self.promised or (
            all(share.standard_errors <= allowed_errors(share.runs) for share in (self.better, self.worse))
            and all(share.standard_errors >= -allowed_errors(share.runs) for share in self.coverage.values())
        )


@dataclass(frozen=True)
class Daily:
    """One world without an effect, watched daily and stopped at the first significant look of a sequential test."""

    kind: str
    sizes: str
    better: Share
    worse: Share
    worse_by_posthog: Share

    @property
    def kept(self) -> bool:
        stopped = Share(self.better.count + self.worse.count, self.better.runs, ALPHA)
        return stopped.standard_errors <= allowed_errors(stopped.runs)


@dataclass(frozen=True)
class Found:
    """One world with an effect, watched daily: how many are found by a sequential test, and when."""

    kind: str
    sizes: str
    better: Share
    worse: Share
    missed: Share
    """How often the interval ever misses the true effect."""
    median_day: int

    @property
    def kept(self) -> bool:
        return self.worse.standard_errors <= allowed_errors(
            self.worse.runs
        ) and self.missed.standard_errors <= allowed_errors(self.missed.runs)


def drawn(world: World, runs: int, growth: float, days: int = 1) -> Iterator[tuple[Array, Array]]:
    """Sums of control and test: arrays (runs, days, sums), up to each day, in chunks of few enough numbers."""
    rngs = [random(world.name, world.sizes, growth, days, side) for side in ("control", "test")]
    at_once = max(VALUES_AT_ONCE // (days * max(world.control, world.test)), 1)
    while runs > 0:
        cells = min(runs, at_once)
        control, test = (
            world.draw(rng, cells * days, size, change).reshape(cells, days, -1).cumsum(axis=1)
            for rng, size, change in zip(rngs, (world.control, world.test), (1.0, growth), strict=True)
        )
        yield control, test
        runs -= cells


def once(world: World, runs: int) -> list[Once]:
    """Frequentist and Bayesian answers to one look."""
    lines = []
    counted: dict[tuple[str, float], Array] = {}
    for lift in LIFTS:
        for groups in drawn(world, runs, 1 + lift):
            for method in ("frequentist", "bayesian"):
                found = judge(world, method, groups, (world.control, world.test), lift)
                columns = (found.better, found.worse, found.worse_by_posthog, found.covers, found.told)
                counted[method, lift] = counted.get((method, lift), np.zeros(5)) + [x.sum() for x in columns]
    freedom = np.array(float(world.control + world.test - 2))
    for method in ("frequentist", "bayesian"):
        false, covered = nominal_rates(method, freedom)
        better, worse, by_posthog = (Share(int(count), runs, false) for count in counted[method, 0.0][:3])
        coverage = {
            lift: Share(int(counted[method, lift][3]), int(counted[method, lift][4]), covered)
            for lift in LIFTS
        }
        lines.append(
            Once(world.name, world.sizes, method, better, worse, by_posthog, coverage, world.promised)
        )
    return lines


def _watched(world: World, runs: int, lift: float) -> tuple[list[Array], Bools]:
    """The first day that is better, worse, and worse by PostHog's numbers (infinite: none), and whether the
    interval ever misses the effect."""
    days = np.arange(1, DAYS + 1)
    firsts: list[list[Array]] = [[], [], []]
    missed = []
    for groups in drawn(world, runs, 1 + lift, DAYS):
        found = judge(world, "sequential", groups, (days * world.control, days * world.test), lift)
        for place, ever in enumerate((found.better, found.worse, found.worse_by_posthog)):
            firsts[place].append(np.where(ever.any(axis=1), ever.argmax(axis=1) + 1.0, np.inf))
        missed.append((found.told & ~found.covers).any(axis=1))
    return [np.concatenate(part) for part in firsts], np.concatenate(missed)


def daily(world: World, runs: int) -> Daily:
    """A sequential test without an effect."""
    (better, worse, by_posthog), _ = _watched(world, runs, 0.0)
    counts = (better < worse).sum(), (worse < better).sum(), np.isfinite(by_posthog).sum()
    return Daily(world.name, world.sizes, *(Share(int(count), runs, ALPHA / 2) for count in counts))


def found(world: World, runs: int) -> Found:
    """A sequential test with an effect of `POWER_LIFT`."""
    (better, worse, _), missed = _watched(world, runs, POWER_LIFT)
    is_better = better < worse
    return Found(
        world.name,
        world.sizes,
        Share(int(is_better.sum()), runs, LEVEL),
        Share(int((worse < better).sum()), runs, ALPHA / 2),
        Share(int(missed.sum()), runs, ALPHA),
        int(np.median(better[is_better])),
    )
