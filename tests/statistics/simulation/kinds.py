"""Worlds of known truth: for each kind of metric, how the statistics of simulated groups come about.

A group is drawn as whole experiments at once. `growth` multiplies the truth of the kind: 1 is the baseline,
1.1 a world where the metric is 10 % higher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp
from statistics import fmean
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hoglab.statistics import (
    Proportion,
    QuantileSample,
    Ratio,
    Retention,
    SampleMean,
    SufficientStatistics,
    WithCovariate,
    cluster_factor,
)

Array = npt.NDArray[np.float64]
Rng = np.random.Generator
VALUES_AT_ONCE = 2_000_000
"""Bounds the memory of a draw, in numbers."""


class Kind(Protocol):
    """What a simulation needs of a kind of metric."""

    name: str
    truth: float
    """The baseline's true mean, rate, ratio or quantile."""
    lift: float
    """Relative effect of the world with an effect."""
    per_day: int | None
    """New entities per variant and day when an experiment is looked at daily; None where it is not."""
    histories: int
    """How many histories a plan is made from: the variance of a quantile is known badly from one of them."""

    def groups(self, rng: Rng, runs: int, size: int, growth: float) -> Iterator[SufficientStatistics]:
        """The statistics of `size` entities, `runs` times."""

    def daily(self, rng: Rng, runs: int, days: int, growth: float) -> Iterator[list[SufficientStatistics]]:
        """The statistics after each day, `runs` times."""


@dataclass(frozen=True)
class Additive:
    """A kind whose statistics are a few sums.

    `sums(rng, cells, size, growth)` draws the sums of `size` new entities for each of `cells` groups, as an
    array (cells, sums); `build` makes statistics of them.
    """

    name: str
    truth: float
    lift: float
    per_day: int | None
    numbers_per_entity: int
    sums: Callable[[Rng, int, int, float], Array]
    build: Callable[..., SufficientStatistics]
    histories: int = 1

    def groups(self, rng: Rng, runs: int, size: int, growth: float) -> Iterator[SufficientStatistics]:
        for chunk in _chunks(runs, size * self.numbers_per_entity):
            for row in self.sums(rng, chunk, size, growth).tolist():
                yield self.build(size, *row)

    def daily(self, rng: Rng, runs: int, days: int, growth: float) -> Iterator[list[SufficientStatistics]]:
        assert self.per_day is not None
        for chunk in _chunks(runs, days * self.per_day * self.numbers_per_entity):
            drawn = self.sums(rng, chunk * days, self.per_day, growth)
            for experiment in drawn.reshape(chunk, days, -1).cumsum(axis=1).tolist():
                yield [self.build(self.per_day * day, *row) for day, row in enumerate(experiment, start=1)]


@dataclass(frozen=True)
class Quantiles:
    """The 90th percentile of log-normal values, one for each entity."""

    name: str = "quantile (p90)"
    lift: float = 0.15
    per_day: int | None = 20
    histories: int = 40
    level: float = 0.9
    truth: float = exp(1.2815515655446004)

    def groups(self, rng: Rng, runs: int, size: int, growth: float) -> Iterator[SufficientStatistics]:
        for chunk in _chunks(runs, size):
            for values in np.sort(self._values(rng, (chunk, size), growth), axis=1).tolist():
                yield QuantileSample.of(values, self.level)

    def daily(self, rng: Rng, runs: int, days: int, growth: float) -> Iterator[list[SufficientStatistics]]:
        assert self.per_day is not None
        for _ in range(runs):
            values = self._values(rng, (days * self.per_day,), growth)
            yield [
                QuantileSample.of(np.sort(values[: day * self.per_day]).tolist(), self.level)
                for day in range(1, days + 1)
            ]

    def _values(self, rng: Rng, shape: tuple[int, ...], growth: float) -> Array:
        return growth * np.exp(rng.standard_normal(shape))


@dataclass(frozen=True)
class Accumulating:
    """A mean of values that keep growing after exposure, as they do without a conversion window.

    Entities come during the first days and spend every day from then on, each by its own habit: what was
    measured of an entity yesterday is part of today's value, so the looks are not those of the theory.
    """

    name: str = "mean, values growing daily"
    truth: float = 2.0
    lift: float = 0.1
    per_day: int | None = 15
    histories: int = 1
    days_of_arrival: int = 20

    def groups(self, rng: Rng, runs: int, size: int, growth: float) -> Iterator[SufficientStatistics]:
        raise NotImplementedError("only daily looks are simulated")

    def daily(self, rng: Rng, runs: int, days: int, growth: float) -> Iterator[list[SufficientStatistics]]:
        assert self.per_day is not None
        size = self.per_day * self.days_of_arrival
        arrival = np.repeat(np.arange(self.days_of_arrival), self.per_day)
        here = arrival[:, None] <= np.arange(days)[None, :]
        counts = here.sum(axis=0).tolist()
        for chunk in _chunks(runs, size * days):
            habit = growth * rng.gamma(1, self.truth, (chunk, size, 1))
            values = (rng.poisson(np.broadcast_to(habit, (chunk, size, days))) * here).cumsum(axis=2)
            sums, squares = values.sum(axis=1).tolist(), (values**2).sum(axis=1).tolist()
            for experiment in zip(sums, squares, strict=True):
                yield [SampleMean(*look) for look in zip(counts, *experiment, strict=True)]


@dataclass(frozen=True)
class ClusteredQuantiles:
    """The 90th percentile of all events of all entities: those of one entity are alike."""

    name: str = "quantile (p90) of events"
    lift: float = 0.15
    per_day: int | None = None
    histories: int = 40
    level: float = 0.9
    truth: float = exp(1.2815515655446004)

    def groups(self, rng: Rng, runs: int, size: int, growth: float) -> Iterator[SufficientStatistics]:
        for _ in range(runs):
            events = 1 + rng.poisson(2, size)
            # Variance 0.6 between entities and 0.4 within: each event alone is standard log-normal.
            effect = np.repeat(np.sqrt(0.6) * rng.standard_normal(size), events)
            values = growth * np.exp(effect + np.sqrt(0.4) * rng.standard_normal(effect.size))
            # As QuantileSample.of_clusters does, with the counting left to numpy.
            sample = QuantileSample.of(np.sort(values).tolist(), self.level)
            starts = events.cumsum() - events
            below = np.add.reduceat((values <= sample.quantile).astype(np.int64), starts)
            columns = (below, below**2, events, events**2, below * events)
            counts = Ratio(size, *(int(column.sum()) for column in columns))
            yield replace(sample, cluster_factor=cluster_factor(self.level, counts))

    def daily(self, rng: Rng, runs: int, days: int, growth: float) -> Iterator[list[SufficientStatistics]]:
        raise NotImplementedError("daily looks are simulated for one value per entity")


def mean_sample(samples: Sequence[SufficientStatistics]) -> QuantileSample:
    """One sample with the means of the numbers of several."""
    found = [sample for sample in samples if isinstance(sample, QuantileSample)]
    assert len(found) == len(samples)
    return QuantileSample(
        round(fmean(sample.number_of_samples for sample in found)),
        found[0].level,
        *(
            fmean(getattr(sample, name) for sample in found)
            for name in ("quantile", "quantile_lower", "quantile_upper", "cluster_factor")
        ),
    )


def conversions(rate: float, rng: Rng, cells: int, size: int, growth: float) -> Array:
    return rng.binomial(size, rate * growth, (cells, 1))


def spending(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Skewed amounts, three in ten of them zero."""
    values = growth * rng.gamma(1.5, 4 / 1.5 / 0.7, (cells, size)) * (rng.random((cells, size)) < 0.7)
    return np.stack([values.sum(axis=1), (values**2).sum(axis=1)], axis=1)


def revenue_per_order(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Entities with more orders also have dearer ones: the parts of the ratio are correlated."""
    orders = 1.0 + rng.poisson(2, (cells, size))
    # E[d] = 3 and E[d²] = 11, so m = 10·3/11·d² with noise of mean 1 gives E[m]/E[d] = 10.
    revenue = growth * 30 / 11 * orders**2 * rng.gamma(4, 0.25, (cells, size))
    columns = (revenue, revenue**2, orders, orders**2, revenue * orders)
    return np.stack([column.sum(axis=1) for column in columns], axis=1)


def spending_as_before(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Amounts before and after exposure that share the person's habit."""
    habit = rng.gamma(2, 2, (cells, size))
    before, after = (part * rng.gamma(4, 0.25, (cells, size)) for part in (habit, growth * habit))
    columns = (after, after**2, before, before**2, after * before)
    return np.stack([column.sum(axis=1) for column in columns], axis=1)


def conversions_as_before(rng: Rng, cells: int, size: int, growth: float) -> Array:
    """Three in ten converted before; 40 % of them convert again, 10 % of the others do."""
    before = rng.binomial(size, 0.3, cells)
    again = rng.binomial(before, 0.4 * growth)
    after = again + rng.binomial(size - before, 0.1 * growth)
    return np.stack([after, before, before, again], axis=1)


def _chunks(runs: int, numbers_per_run: int) -> Iterator[int]:
    at_once = max(VALUES_AT_ONCE // numbers_per_run, 1)
    while runs > 0:
        yield min(runs, at_once)
        runs -= at_once


def mean_with_covariate(size: int, total: float, squares: float, *covariate: float) -> WithCovariate:
    return WithCovariate(SampleMean(size, total, squares), *covariate)


def funnel_with_covariate(size: int, total: int, *covariate: float) -> WithCovariate:
    return WithCovariate(Proportion(size, total), *covariate)


KINDS: tuple[Kind, ...] = (
    Additive("mean", 4.0, 0.15, 50, 2, spending, SampleMean),
    Additive("mean with CUPED", 4.0, 0.12, 50, 4, spending_as_before, mean_with_covariate),
    Additive("funnel", 0.12, 0.10, 50, 1, partial(conversions, 0.12), Proportion),
    Additive("funnel with CUPED", 0.19, 0.10, 50, 1, conversions_as_before, funnel_with_covariate),
    Additive("retention", 0.40, -0.08, 50, 1, partial(conversions, 0.40), Retention),
    Additive("ratio", 10.0, 0.10, 50, 3, revenue_per_order, Ratio),
    Quantiles(),
    ClusteredQuantiles(),
)
