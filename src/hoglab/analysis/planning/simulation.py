"""Experiments simulated with a project's own people: how often a method would be fooled, and what it would detect.

People are drawn with replacement from the history, so two groups without an effect truly have none, and the true
effect of two groups with one is known. Everything else, such as skew, zeros and correlations, is as in the history.
Source of the idea: A/A tests, Kohavi, Tang, Xu, "Trustworthy Online Controlled Experiments", chapter 19;
Efron, Tibshirani, "An Introduction to the Bootstrap".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hoglab.statistics import DifferenceType, StatisticsConfig, SufficientStatistics, compare


class PeopleOfHistory(Protocol):
    """People of a history, from whom groups are drawn."""

    @property
    def mean(self) -> float:
        """Mean of the metric over all of them."""
        ...

    def group(
        self, size: int, looks: int, rng: np.random.Generator, *, changed: bool
    ) -> Iterator[SufficientStatistics]:
        """Yield the statistics at each look of people drawn with replacement, with the effect if ``changed``."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """Simulated experiments: ``people`` in two equal groups, ``experiments`` times, each looked at ``looks`` times."""

    people: int
    experiments: int
    looks: int
    effect: float
    """The effect, where there is one: a share (0.1 = +10 %)."""


@dataclass(slots=True)
class Tally:
    """Counts of one method's outcomes over all experiments."""

    experiments: int = 0
    false_positives: int = 0
    false_positives_watched: int = 0
    significant: int = 0
    found_watched: int = 0
    covered: int = 0
    refused: int = 0
    """Number of experiments whose last look gave no statistics."""


@dataclass(slots=True)
class _Look:
    significant: bool = False
    ever: bool = False
    interval: tuple[float, float] | None = None
    refused: bool = False


def simulate(
    people: PeopleOfHistory,
    methods: Mapping[str, StatisticsConfig],
    setting: Setting,
    rng: np.random.Generator,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Mapping[str, Tally]:
    """Count the outcomes of each method without an effect and with one.

    A cancellation ends it early, with the counts so far.
    """
    tallies = {name: Tally() for name in methods}
    mean = people.mean
    for _ in range(setting.experiments):
        if is_cancelled():
            break
        without = _experiment(people, setting, rng, changed=False)
        with_effect = _experiment(people, setting, rng, changed=True)
        for name, config in methods.items():
            tally, relative = (
                tallies[name],
                config.inference_config.difference_type is DifferenceType.RELATIVE,
            )
            null, real = _judged(config, without), _judged(config, with_effect)
            truth = setting.effect if relative else setting.effect * mean
            tally.experiments += 1
            tally.false_positives += null.significant
            tally.false_positives_watched += null.ever
            tally.significant += real.significant
            tally.found_watched += real.ever
            tally.refused += real.refused
            tally.covered += real.interval is not None and real.interval[0] <= truth <= real.interval[1]
    return tallies


def _experiment(
    people: PeopleOfHistory, setting: Setting, rng: np.random.Generator, *, changed: bool
) -> list[tuple[SufficientStatistics, SufficientStatistics]]:
    """Yield both groups of one experiment at each look."""
    size = setting.people // 2
    control = list(people.group(size, setting.looks, rng, changed=False))
    return list(zip(control, people.group(size, setting.looks, rng, changed=changed), strict=True))


def _judged(
    config: StatisticsConfig, looks: Sequence[tuple[SufficientStatistics, SufficientStatistics]]
) -> _Look:
    look = _Look()
    for control, test in looks:
        comparison = compare(config, control, test)
        look.significant = comparison.significant is True
        look.ever = look.ever or look.significant
        look.interval = comparison.credible_interval or comparison.confidence_interval
        look.refused = comparison.inference is None
    return look
