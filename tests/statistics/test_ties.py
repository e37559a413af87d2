"""Quantiles of values that repeat: an interval holds the true effect as often as it says, or there is none."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest

from hoglab.statistics import (
    REFUSAL_WORDS,
    FrequentistConfig,
    QuantileSample,
    StatisticsConfig,
    StatisticsRefusal,
    compare,
)

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
CONFIG = StatisticsConfig(FrequentistConfig())
RUNS = 400


def poisson(mean: float) -> Draw:
    return lambda rng, shape: rng.poisson(mean, shape).astype(float)


def on_grid(step: float) -> Draw:
    """Load times, recorded in steps of so many seconds."""
    return lambda rng, shape: np.floor(rng.lognormal(1, 0.6, shape) / step) * step + step


def with_zeros(share: float) -> Draw:
    return lambda rng, shape: 1e-9 + rng.exponential(1, shape) * (rng.random(shape) >= share)


def with_spike(share: float) -> Draw:
    """Many equal values at the median itself."""
    return lambda rng, shape: np.where(rng.random(shape) < share, 1.0, rng.exponential(1 / np.log(2), shape))


def geometric(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.geometric(0.5, shape).astype(float)


def simulated(draw: Draw, level: float, size: int, seed: int) -> tuple[int, int, int]:
    """Of experiments without an effect: how many have statistics, an interval with the truth, and equal values."""
    groups = np.sort(draw(np.random.default_rng(seed), (2 * RUNS, size)), axis=1)
    samples = [QuantileSample.of_ordered(group, level) for group in groups]
    told = covered = refused = 0
    for control, test in zip(samples[::2], samples[1::2], strict=True):
        compared = compare(CONFIG, control, test)
        refused += compared.refusal is StatisticsRefusal.TIED_VALUES
        if compared.confidence_interval is not None:
            low, high = compared.confidence_interval
            told += 1
            covered += low <= 0 <= high
    return told, covered, refused


@pytest.mark.parametrize(
    ("draw", "level"),
    [
        (poisson(30), 0.5),
        (poisson(30), 0.9),
        (on_grid(1), 0.5),
        (on_grid(1), 0.9),
        (geometric, 0.5),
        (with_zeros(0.5), 0.5),
        (with_zeros(0.895), 0.9),
        (with_spike(0.05), 0.5),
    ],
)
def test_a_quantile_among_many_equal_values_is_refused(draw: Draw, level: float) -> None:
    told, _, refused = simulated(draw, level, 1000, seed=1)
    assert told <= 0.1 * RUNS
    assert refused >= 0.9 * RUNS


@pytest.mark.parametrize("size", [60, 400, 1000])
def test_what_is_not_refused_covers_the_truth(size: int) -> None:
    rng = np.random.default_rng(size)
    draws = [
        *(on_grid(10 ** rng.uniform(-2.5, 0)) for _ in range(4)),
        *(poisson(10 ** rng.uniform(2.5, 4)) for _ in range(2)),
        *(with_zeros(share) for share in (0.42, 0.48, rng.uniform(0.4, 0.5))),
        with_spike(rng.uniform(0, 0.01)),
    ]
    told, covered, _ = np.sum([simulated(draw, 0.5, size, seed) for seed, draw in enumerate(draws)], axis=0)
    assert told > RUNS, "some of these worlds have statistics"
    assert covered >= told * (0.95 - 3 * sqrt(0.95 * 0.05 / told))


def test_values_that_differ_are_never_refused() -> None:
    for size in (50, 51, 400, 5000):
        values = np.random.default_rng(size).exponential(1, size)
        sample = QuantileSample.of(values.tolist(), 0.5)
        assert sample.largest_tie == 1
        assert sample.variance > 0
    pairs = QuantileSample.of([value for value in range(200) for _ in range(2)], 0.5)
    assert pairs.largest_tie == 2
    assert pairs.variance > 0


def test_the_reason_says_what_to_do() -> None:
    words = REFUSAL_WORDS[StatisticsRefusal.TIED_VALUES]
    assert "compare a mean, or the share of people above a threshold" in words
