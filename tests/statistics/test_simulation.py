"""What the intervals and tests promise, held against simulated experiments with known truth.

Bounds are four standard errors of the simulated share; seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

import numpy as np
import pytest

from hoglab.statistics import (
    BayesianConfig,
    DifferenceType,
    FrequentistConfig,
    Proportion,
    Ratio,
    Retention,
    SampleMean,
    StatisticsConfig,
    SufficientStatistics,
    compare,
)

RUNS = 2000
Pair = tuple[SufficientStatistics, SufficientStatistics]
ABSOLUTE, RELATIVE = DifferenceType.ABSOLUTE, DifferenceType.RELATIVE


def funnels(rates: tuple[float, float], rng: np.random.Generator) -> Iterator[Pair]:
    successes = rng.binomial(800, np.array(rates)[:, None], (2, RUNS)).tolist()
    for control, test in zip(*successes, strict=True):
        yield Proportion(800, control), Proportion(800, test)


def retentions(rates: tuple[float, float], rng: np.random.Generator) -> Iterator[Pair]:
    for control, test in funnels(rates, rng):
        yield Retention(800, int(control.sum)), Retention(800, int(test.sum))


def means(means: tuple[float, float], rng: np.random.Generator) -> Iterator[Pair]:
    """Skewed values, many of them zero."""
    values = rng.gamma(1.5, np.array(means)[:, None, None] / 1.5 / 0.7, (2, RUNS, 500))
    values *= rng.random(values.shape) < 0.7
    sums, squares = values.sum(axis=2).tolist(), (values**2).sum(axis=2).tolist()
    for run in range(RUNS):
        control, test = (SampleMean(500, sums[arm][run], squares[arm][run]) for arm in (0, 1))
        yield control, test


def ratios(truth: tuple[float, float], rng: np.random.Generator) -> Iterator[Pair]:
    """Revenue per order: entities with more orders also have dearer ones."""
    orders = 1.0 + rng.poisson(2, (2, RUNS, 500))
    # E[d] = 3 and E[d²] = 11, so m = truth·3/11·d² with noise of mean 1 gives E[m]/E[d] = truth.
    revenue = np.array(truth)[:, None, None] * 3 / 11 * orders**2 * rng.gamma(4, 0.25, orders.shape)
    totals = [
        array.sum(axis=2).tolist() for array in (revenue, revenue**2, orders, orders**2, revenue * orders)
    ]
    for run in range(RUNS):
        control, test = (Ratio(500, *(total[arm][run] for total in totals)) for arm in (0, 1))
        yield control, test


KINDS: dict[str, tuple[Callable[..., Iterator[Pair]], tuple[float, float]]] = {
    "funnel": (funnels, (0.20, 0.23)),
    "retention": (retentions, (0.40, 0.36)),
    "mean": (means, (4.0, 4.4)),
    "ratio": (ratios, (10.0, 10.8)),
}


@pytest.mark.parametrize("difference", DifferenceType)
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_the_truth_as_often_as_they_say(kind: str, difference: DifferenceType) -> None:
    simulate, (control, test) = KINDS[kind]
    truth = test - control if difference is ABSOLUTE else (test - control) / control
    frequentist = StatisticsConfig(FrequentistConfig(0.1, difference))
    bayesian = StatisticsConfig(BayesianConfig(0.9, difference))
    covered = [0, 0]
    for pair in simulate((control, test), np.random.default_rng(77)):
        intervals = (
            compare(frequentist, *pair).confidence_interval,
            compare(bayesian, *pair).credible_interval,
        )
        for place, interval in enumerate(intervals):
            assert interval is not None
            covered[place] += interval[0] <= truth <= interval[1]
    for count in covered:
        assert abs(count / RUNS - 0.9) < 4 * sqrt(0.9 * 0.1 / RUNS)


@pytest.mark.parametrize("kind", KINDS)
def test_false_positives_are_as_frequent_as_alpha_says(kind: str) -> None:
    simulate, (control, _) = KINDS[kind]
    config = StatisticsConfig(FrequentistConfig(0.1, RELATIVE))
    positives = sum(
        bool(compare(config, *pair).significant)
        for pair in simulate((control, control), np.random.default_rng(78))
    )
    assert abs(positives / RUNS - 0.1) < 4 * sqrt(0.1 * 0.9 / RUNS)


def test_looking_often_inflates_a_fixed_test_but_not_a_sequential_one() -> None:
    """Forty looks at an experiment without effect, stopping at the first significant one."""
    runs, looks, step, alpha = 600, 40, 100, 0.1
    rng = np.random.default_rng(79)
    successes = rng.binomial(step, 0.3, (runs, 2, looks)).cumsum(axis=2).tolist()
    stopped = {}
    for sequential in (False, True):
        config = StatisticsConfig(
            FrequentistConfig(
                alpha, ABSOLUTE, sequential_testing_enabled=sequential, sequential_tuning_parameter=2000
            )
        )
        stopped[sequential] = sum(
            any(
                compare(config, Proportion(step * look, a), Proportion(step * look, b)).significant
                for look, (a, b) in enumerate(zip(control, test, strict=True), start=1)
            )
            for control, test in successes
        )
    assert stopped[True] / runs < alpha + 4 * sqrt(alpha * (1 - alpha) / runs)
    assert stopped[False] / runs > 2 * alpha
    assert stopped[True] > 0
