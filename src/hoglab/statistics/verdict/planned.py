"""Planned length of an experiment, and when it is reached: what a test of a single look decides by.

The plan is the one that was written down with the experiment. Where there is none it is made from the experiment's
own variance, of all groups taken together: a plan that looked at the groups apart would end sooner where they differ,
which would change the error rates of the test (blinded sample size re-estimation; Friede, Kieser 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from math import ceil, isfinite
from operator import add
from typing import Any

from hoglab.statistics.config import DifferenceType, StatisticsConfig
from hoglab.statistics.planning.plans import power_at, sample_size_for
from hoglab.statistics.planning.power import DEFAULT_POWER
from hoglab.statistics.planning.running_time import MAX_COUNT, remaining_days
from hoglab.statistics.refusal import RefusalError
from hoglab.statistics.samples.kinds import SufficientStatistics
from hoglab.statistics.samples.quantiles import QuantileSample

MIN_PLANNED_DAYS = 14
"""Minimum length of a plan that nobody wrote down: two whole weeks, so that each weekday is in it twice."""
DEFAULT_EFFECT = 0.10
"""The least effect to detect, as a share of the baseline, where nobody says another."""


MIN_MEASURED = 100
"""Least samples in each group for which the power of a plan is said: of fewer the variance is hardly known."""
LEAST_POWER = 0.5
"""A plan with less power than this more often misses its own effect than it finds it."""


class PlanSource(StrEnum):
    """Source of the numbers of people and days needed."""

    WRITTEN = "running_time_calculation"
    """The experiment's own parameters."""
    OWN_VARIANCE = "planner"
    """The planner, on what was measured so far, for an effect that somebody chose."""
    DEFAULT = "default"
    """The planner, for the default effect: nobody said anything."""
    UNKNOWN = "unknown"
    """No source: too little was measured."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of an experiment. Without people and days they are planned for ``effect``."""

    people: int | None = None
    """Number of people exposed in all compared variants together."""
    days: int | None = None
    effect: float | None = None
    """The least effect to detect, as a share of the baseline; None: nobody chose one."""

    @classmethod
    def of(cls, running_time: Mapping[str, Any], default_effect: float | None = None) -> Plan:
        """Read the plan of a ``running_time_calculation``, whose effect is in percent; what is no number is missing.

        ``default_effect`` is the project's, in percent.
        """
        effect = _positive(running_time.get("minimum_detectable_effect")) or _positive(default_effect)
        people = _positive(running_time.get("recommended_sample_size"))
        days = _positive(running_time.get("recommended_running_time"))
        return cls(
            None if people is None else ceil(people),
            None if days is None else ceil(days),
            None if effect is None else effect / 100,
        )

    @property
    def is_written(self) -> bool:
        return self.people is not None or self.days is not None

    @property
    def planned_effect(self) -> float:
        """The effect to plan for."""
        return DEFAULT_EFFECT if self.effect is None else self.effect


@dataclass(frozen=True, slots=True)
class Measured:
    """The statistics of one primary metric at one moment, the baseline's first."""

    groups: Sequence[SufficientStatistics]
    wants_decrease: bool = False


@dataclass(frozen=True, slots=True)
class PlannedPower:
    """Power of a plan for its own effect, on one metric, and the people in all variants who give 80 %."""

    people: int
    effect: float
    power: float
    people_needed: int


@dataclass(frozen=True, slots=True)
class Look:
    """Look at an experiment: its size and age at one moment."""

    people: int
    """People whom the plan counts: those whom every primary metric counts already."""
    days: float
    """Days since the start."""
    primary: Sequence[Measured] = ()
    exposed: int | None = None
    """People exposed, where they may be more."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an experiment towards its plan; None where it is not known."""

    people: int
    days: int
    people_needed: int | None
    least_days: int | None
    """Minimum number of days to run, however many people come."""
    is_reached: bool
    source: PlanSource
    exposed: int | None = None
    """People exposed, where they may be more than those whom the plan counts."""

    @property
    def people_remaining(self) -> int | None:
        return None if self.people_needed is None else max(self.people_needed - self.people, 0)

    @property
    def days_remaining(self) -> int | None:
        """Days until everything planned is reached, if as many people come in a day as so far."""
        if self.is_reached:
            return 0
        waits = [1]  # days are counted whole
        if self.least_days is not None:
            waits.append(self.least_days - self.days)
        if self.people_remaining:
            rate = self.people / self.days if self.days else None
            days = remaining_days(self.people + self.people_remaining, self.people, self.days, rate)
            if days is None:
                return None
            waits.append(days)
        return None if self.source is PlanSource.UNKNOWN else max(waits)

    @property
    def days_needed(self) -> int | None:
        """Days needed in all, if as many people come in a day as so far."""
        remaining = self.days_remaining
        if self.is_reached:
            return self.least_days
        return None if remaining is None else self.days + remaining


def progress_at(plan: Plan, config: StatisticsConfig, look: Look) -> Progress:
    """Return the progress of an experiment at a look."""
    if plan.is_written:
        people, days, source = plan.people, plan.days, PlanSource.WRITTEN
    else:
        people, days = _people_needed(plan, config, look), MIN_PLANNED_DAYS
        source = PlanSource.DEFAULT if plan.effect is None else PlanSource.OWN_VARIANCE
        if people is None:
            source = PlanSource.UNKNOWN
    reached = is_reached(plan, config, look)
    return Progress(look.people, int(look.days), people, days, reached, source, look.exposed)


def is_reached(plan: Plan, config: StatisticsConfig, look: Look) -> bool:
    """Decide whether everything planned is reached."""
    if plan.is_written:
        return (plan.people is None or look.people >= plan.people) and (
            plan.days is None or look.days >= plan.days
        )
    if look.days < MIN_PLANNED_DAYS:
        return False
    known = [
        power
        for measured in look.primary
        if (power := _planned(plan, config, measured, lambda pair: pair.power())) is not None
    ]
    return bool(known) and min(known) >= DEFAULT_POWER


def planned_power(plan: Plan, config: StatisticsConfig, measured: Measured) -> PlannedPower | None:
    """Return the power that the planned people give for the effect of the plan, with the variance measured so far.

    None where no people or no effect are planned, and while a group has fewer than `MIN_MEASURED` samples. The plan
    counts people, so it needs a metric with one sample for each of them.
    """
    sizes = [group.number_of_samples for group in measured.groups]
    if plan.people is None or plan.effect is None or min(sizes) < MIN_MEASURED:
        return None
    growth = plan.people / sum(sizes)
    power = _planned(
        plan, config, measured, lambda pair: replace(pair, size=round(pair.size * growth)).power()
    )
    needed = _planned(plan, config, measured, lambda pair: pair.growth_needed())
    if power is None or needed is None or needed * sum(sizes) > MAX_COUNT:
        return None
    return PlannedPower(plan.people, plan.effect, power, ceil(needed * sum(sizes)))


def planned_end(plan: Plan, config: StatisticsConfig, looks: Sequence[Look]) -> int | None:
    """Return the number of the first of the looks at which everything is reached; None when it is at none of them.

    A test for a single look decides by the data of that look and by nothing later. Looks are the ends of days.
    """
    return next((number for number, look in enumerate(looks) if is_reached(plan, config, look)), None)


def standing(
    plan: Plan, config: StatisticsConfig, looks: Sequence[Look], *, last_is_over: bool = True
) -> tuple[int, Progress]:
    """Return the number of the look that a verdict is about, and the progress at it. There is at least one look.

    For a method of a single look it is the look at the planned end, otherwise the last one. Unless ``last_is_over`` the
    day of the last look still runs, so that a single look is not taken yet.
    """
    if not config.is_sequential:
        end = planned_end(plan, config, looks if last_is_over else looks[:-1])
        if end is not None:
            return end, progress_at(plan, config, looks[end])
    progress = progress_at(plan, config, looks[-1])
    waits = not config.is_sequential and progress.is_reached
    return len(looks) - 1, replace(progress, is_reached=False) if waits else progress


@dataclass(frozen=True, slots=True)
class _Pair:
    """The baseline and the smallest other group, with the pooled statistics of all groups."""

    config: StatisticsConfig
    pooled: SufficientStatistics
    difference: float
    size: int
    test_share: float

    def power(self) -> float:
        return power_at(self.config, self.pooled, self.difference, self.size, test_share=self.test_share)

    def growth_needed(self) -> float:
        """Return the factor by which the number of people has to grow."""
        needed = sample_size_for(self.config, self.pooled, self.difference, test_share=self.test_share)
        return needed / self.size


def _people_needed(plan: Plan, config: StatisticsConfig, look: Look) -> int | None:
    needed = [
        growth * look.people
        for measured in look.primary
        if (growth := _planned(plan, config, measured, lambda pair: pair.growth_needed())) is not None
    ]
    most = max(needed, default=0.0)
    return ceil(most) if 0 < most <= MAX_COUNT else None


def _planned(
    plan: Plan, config: StatisticsConfig, measured: Measured, what: Callable[[_Pair], float]
) -> float | None:
    """Compute a number of the plan of one metric; None while too little data is there."""
    baseline, *others = measured.groups
    smallest = min((group.number_of_samples for group in others), default=0)
    size = baseline.number_of_samples + smallest
    if not 0 < smallest < size:
        return None
    try:
        pooled = _pooled(measured.groups)
        relative = config.inference_config.difference_type is DifferenceType.RELATIVE
        effect = plan.planned_effect if relative else plan.planned_effect * pooled.mean
        pair = _Pair(config, pooled, -effect if measured.wants_decrease else effect, size, smallest / size)
    except (RefusalError, ValueError):
        return None
    # A rate of 0.9 cannot grow by 0.3 of itself; it may fall by as much.
    for attempt in (pair, replace(pair, difference=-pair.difference)):
        try:
            planned_number = what(attempt)
        except (RefusalError, ValueError, OverflowError):
            continue
        if isfinite(planned_number):
            return planned_number
    return None


def _pooled(groups: Sequence[SufficientStatistics]) -> SufficientStatistics:
    """Return all groups as one; quantiles, which do not add up, as one with the mean of their numbers."""
    quantiles = [group for group in groups if isinstance(group, QuantileSample)]
    if not quantiles:
        whole: SufficientStatistics = reduce(add, groups)
        return whole
    with_values = [group for group in quantiles if group.number_of_samples]
    count = len(with_values)
    typical = QuantileSample(
        round(sum(group.number_of_samples for group in with_values) / count),
        with_values[0].level,
        *(
            sum(getattr(group, name) for group in with_values) / count
            for name in ("quantile", "quantile_lower", "quantile_upper", "cluster_factor")
        ),
    )
    return replace(typical, largest_tie=max(group.largest_tie for group in with_values))


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and 0 < value <= MAX_COUNT else None
