"""People that a simulation draws from: with rows of sums, or with the values that quantiles are taken of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hoglab.statistics import (
    QuantileSample,
    Ratio,
    RefusalError,
    SufficientStatistics,
    cluster_factor,
    quantile_positions,
)

Rows = npt.NDArray[np.float64]
"""One row for each entity: its addition to each of a variant's sums; the first column is 1 for entities that count."""
Build = Callable[[Sequence[float]], SufficientStatistics]
"""Makes the statistics of a group from its sums."""
Growth = Callable[[Rows, np.random.Generator], Rows]
"""Changes the rows of people by an effect."""


@dataclass(frozen=True)
class SummedPeople:
    """People of a metric whose sums add up."""

    rows: Rows
    build: Build
    growth: Growth

    @property
    def mean(self) -> float:
        """Mean of the metric over all of them."""
        return self.build(self.rows.sum(axis=0).tolist()).mean

    def group(
        self, size: int, looks: int, rng: np.random.Generator, *, changed: bool
    ) -> Iterator[SufficientStatistics]:
        """Yield the statistics at each look of people drawn with replacement, with the effect if ``changed``."""
        drawn = self.rows[rng.integers(0, len(self.rows), size)]
        if changed:
            drawn = self.growth(drawn, rng)
        parts = np.array_split(drawn, looks)
        sums = np.cumsum([part.sum(axis=0) for part in parts], axis=0)
        return map(self.build, sums.tolist())


@dataclass(frozen=True)
class ValuedPeople:
    """People of a quantile metric: a person is drawn with all of his values, which grow by the effect.

    ``values`` are the values of all people, one after the other; ``sizes`` the numbers of values of each person.
    """

    values: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.int64]
    level: float
    per_event: bool
    effect: float

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.sizes) - self.sizes

    @property
    def mean(self) -> float:
        """The quantile of all values."""
        return self._sample(self.values, self.sizes).mean

    def group(
        self, size: int, looks: int, rng: np.random.Generator, *, changed: bool
    ) -> Iterator[SufficientStatistics]:
        """Yield the statistics at each look of people drawn with replacement, with the effect if ``changed``."""
        people = rng.integers(0, len(self.sizes), size)
        sizes = self.sizes[people]
        before = np.cumsum(sizes) - sizes
        drawn = self.values[np.repeat(self._starts[people] - before, sizes) + np.arange(sizes.sum())]
        if changed:
            drawn = drawn * (1 + self.effect)
        for part in np.array_split(np.arange(size), looks):
            come = part[-1] + 1 if len(part) else 0
            yield self._sample(drawn[: sizes[:come].sum()], sizes[:come])

    def _sample(self, values: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> QuantileSample:
        if not len(values):
            return QuantileSample(0, self.level, 0.0, 0.0, 0.0)
        placed = np.partition(values, quantile_positions(self.level, len(values)))
        sample = QuantileSample.of_ordered(placed, self.level)
        if not self.per_event:
            return sample
        some = sizes[sizes > 0].astype(np.float64)
        starts = (np.cumsum(some) - some).astype(np.int64)
        below = np.add.reduceat((values <= sample.quantile).astype(np.float64), starts)
        sums = (below.sum(), below @ below, some.sum(), some @ some, below @ some)
        ratio = Ratio(len(some), *map(float, sums))
        try:
            factor = float(cluster_factor(self.level, ratio))
        except RefusalError:
            factor = float("nan")
        return replace(sample, cluster_factor=factor, people_counted=len(some))
