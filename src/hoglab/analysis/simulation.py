"""Experiments made up from a project's own people: how often a method would be fooled, and what it would find.

People are drawn with replacement from the history, so two groups without an effect truly have none, and the true
effect of two groups with one is known. Everything else, skew and zeros and correlations, is as in the history.
Source of the idea: A/A tests, Kohavi, Tang, Xu, "Trustworthy Online Controlled Experiments", chapter 19;
Efron, Tibshirani, "An Introduction to the Bootstrap".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hoglab.statistics import DifferenceType, StatisticsConfig, SufficientStatistics, compare

Rows = npt.NDArray[np.float64]
"""One row for each entity: what it adds to each of a variant's sums; the first one is 1 for those that count."""
Build = Callable[[Sequence[float]], SufficientStatistics]
"""Statistics of the sums of a group."""
Growth = Callable[[Rows, np.random.Generator], Rows]
"""The rows of people whose values were changed by an effect."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is made up: ``people`` in two equal groups, ``experiments`` times, each looked at ``looks`` times."""

    people: int
    experiments: int
    looks: int
    effect: float
    """Of the world with an effect: a share (0.1 = +10 %)."""


@dataclass(slots=True)
class Tally:
    """How often one method did what, over all experiments."""

    experiments: int = 0
    false_positives: int = 0
    false_positives_watched: int = 0
    found: int = 0
    found_watched: int = 0
    covered: int = 0
    refused: int = 0
    """Experiments whose last look gave no statistics."""


@dataclass(slots=True)
class _Look:
    significant: bool = False
    ever: bool = False
    interval: tuple[float, float] | None = None
    refused: bool = False


def simulate(
    rows: Rows,
    build: Build,
    growth: Growth,
    methods: Mapping[str, StatisticsConfig],
    setting: Setting,
    rng: np.random.Generator,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Mapping[str, Tally]:
    """Count what each method does without an effect and with one.

    ``rows`` are those of the history. Ends early, with what was counted, when it is cancelled.
    """
    tallies = {name: Tally() for name in methods}
    mean = build(rows.sum(axis=0).tolist()).mean
    for _ in range(setting.experiments):
        if is_cancelled():
            break
        without = list(_experiment(rows, build, None, setting, rng))
        with_effect = list(_experiment(rows, build, growth, setting, rng))
        for name, config in methods.items():
            tally, relative = tallies[name], config.test.difference_type is DifferenceType.RELATIVE
            null, real = _judged(config, without), _judged(config, with_effect)
            truth = setting.effect if relative else setting.effect * mean
            tally.experiments += 1
            tally.false_positives += null.significant
            tally.false_positives_watched += null.ever
            tally.found += real.significant
            tally.found_watched += real.ever
            tally.refused += real.refused
            tally.covered += real.interval is not None and real.interval[0] <= truth <= real.interval[1]
    return tallies


def _experiment(
    rows: Rows, build: Build, growth: Growth | None, setting: Setting, rng: np.random.Generator
) -> Iterator[tuple[SufficientStatistics, SufficientStatistics]]:
    """Both groups of one experiment at each look."""
    groups = []
    for grown in (None, growth):
        drawn = rows[rng.integers(0, len(rows), setting.people // 2)]
        if grown is not None:
            drawn = grown(drawn, rng)
        parts = np.array_split(drawn, setting.looks)
        groups.append(np.cumsum([part.sum(axis=0) for part in parts], axis=0).tolist())
    for control, test in zip(*groups, strict=True):
        yield build(control), build(test)


def _judged(
    config: StatisticsConfig, looks: Sequence[tuple[SufficientStatistics, SufficientStatistics]]
) -> _Look:
    found = _Look()
    for control, test in looks:
        comparison = compare(config, control, test)
        found.significant = comparison.significant is True
        found.ever = found.ever or found.significant
        found.interval = comparison.credible_interval or comparison.confidence_interval
        found.refused = comparison.test is None
    return found
