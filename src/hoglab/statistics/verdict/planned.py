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

from hoglab.statistics.config import Analysis, BayesianConfig, DifferenceType, Monitoring, StatisticsConfig
from hoglab.statistics.planning.plans import power_at, sample_size_for
from hoglab.statistics.planning.power import DEFAULT_POWER
from hoglab.statistics.planning.running_time import MAX_COUNT, remaining_days
from hoglab.statistics.refusal import RefusalError
from hoglab.statistics.samples.kinds import SufficientStatistics
from hoglab.statistics.samples.quantiles import QuantileSample
from hoglab.statistics.verdict.guardrails import safety_config

MIN_PLANNED_DAYS = 14
"""Minimum length of a plan that nobody wrote down: two whole weeks, so that each weekday is in it twice."""
DEFAULT_EFFECT = 0.10
"""The least effect to detect, as a share of the baseline, where nobody says another."""


MIN_MEASURED = 100
"""Least samples in each group for which the power of a plan is said: of fewer the variance is hardly known."""
_NEARLY_REACHED, _ROUNDING = 0.999, 1e-9
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
    """The statistics of one primary metric or guardrail at one moment, the baseline's first."""

    groups: Sequence[SufficientStatistics]
    wants_decrease: bool = False
    margin: float | None = None
    """Loss that a guardrail allows, as a share of the baseline; None for a primary metric."""


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
    measured: Sequence[Measured] = ()
    """Primary metrics, and guardrails with a margin."""
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
    judging = _judging(config, look.measured)
    known = [
        power
        for measured in look.measured
        if (power := _planned(plan, judging(measured), measured, lambda pair: pair.power())) is not None
    ]
    return bool(known) and min(known) >= _power_of_each(_guardrails(look.measured))


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
    needed = _planned(plan, config, measured, lambda pair: pair.growth_needed(DEFAULT_POWER))
    if power is None or needed is None or needed * sum(sizes) > MAX_COUNT:
        return None
    return PlannedPower(plan.people, plan.effect, power, ceil(needed * sum(sizes)))


def fraction_at(plan: Plan, config: StatisticsConfig, look: Look) -> float:
    """Return the share of the plan that is reached at a look, 1 exactly where all of it is."""
    if is_reached(plan, config, look):
        return 1.0
    progress = progress_at(plan, config, look)
    shares = [
        done / needed
        for done, needed in ((look.people, progress.people_needed), (look.days, progress.least_days))
        if needed
    ]
    return 0.0 if progress.source is PlanSource.UNKNOWN else min([*shares, _NEARLY_REACHED])


def analyses(plan: Plan, config: StatisticsConfig, looks: Sequence[Look]) -> list[tuple[int, Analysis]]:
    """Return the analyses of a group sequential design that the looks have reached, each with the number of its look.

    An analysis is due at the first look at which its part of the plan is reached, or its day. Only the numbers of
    people and days decide that, never an effect. The last analysis is the planned end.
    """
    monitoring = config.monitoring
    if monitoring is None:
        return []
    taken: list[tuple[int, Analysis]] = []
    counts: tuple[int, ...] = ()
    fractions: tuple[float, ...] = ()
    due = 0
    for number, look in enumerate(looks):
        fraction = fraction_at(plan, config, look)
        done = _analyses_due(monitoring, look, fraction)
        if done <= due or not look.people:
            continue
        due = done
        counts += (max(look.people, *counts, 1),)
        fractions += (max((fraction, *fractions)),)
        taken.append((number, Analysis(counts, fractions)))
        if fraction >= 1:
            break
    return taken


def _analyses_due(monitoring: Monitoring, look: Look, fraction: float) -> int:
    """Return how many analyses are due at a look."""
    planned = monitoring.planned_analyses
    if fraction >= 1:
        return planned
    if monitoring.days:
        return sum(day <= look.days for day in monitoring.days)
    return min(int(fraction * planned + _ROUNDING), planned - 1)


def judging_at(plan: Plan, config: StatisticsConfig, look: Look, *, is_reached: bool) -> StatisticsConfig:
    """Return the configuration by which a look at an experiment of a hybrid design is judged; others keep theirs."""
    if not config.is_hybrid or not look.people:
        return config
    fraction = 1.0 if is_reached else min(fraction_at(plan, config, look), _NEARLY_REACHED)
    return config.at(Analysis((look.people,), (max(fraction, 1 / MAX_COUNT),)))


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

    def growth_needed(self, power: float) -> float:
        """Return the factor by which the number of people has to grow."""
        needed = sample_size_for(
            self.config, self.pooled, self.difference, test_share=self.test_share, power=power
        )
        return needed / self.size


def people_to_show(
    config: StatisticsConfig, guardrail: Measured, *, people: int, guardrails: int
) -> int | None:
    """Return how many people in all show a guardrail to be safe, if it loses nothing; None where that is not known.

    ``people`` came until the guardrail was measured; ``guardrails`` is the number of guardrails with a margin.
    """
    power = _power_of_each(guardrails)
    growth = _planned(Plan(), safety_config(config), guardrail, lambda pair: pair.growth_needed(power))
    needed = 0.0 if growth is None else growth * people
    return ceil(needed) if 0 < needed <= MAX_COUNT else None


def _power_of_each(guardrails: int) -> float:
    """Return the power that each metric needs for a plan's: with G guardrails 1 - β/(G + 1).

    All of them have to succeed together, so that each may fail by its part only (Schultzberg et al. 2024).
    """
    return 1 - (1 - DEFAULT_POWER) / (guardrails + 1)


def _guardrails(measured: Sequence[Measured]) -> int:
    return sum(metric.margin is not None for metric in measured)


def shipping_config(config: StatisticsConfig, comparisons: int) -> StatisticsConfig:
    """Return the configuration of the comparison that makes a variant better, for a number of such comparisons.

    Its two-sided level is divided by their number; Holm's rule, which decides, finds no less. A Bayesian effect has to
    exclude zero from the interval.
    """
    test = config.inference_config
    if isinstance(test, BayesianConfig):
        level = 1 - (1 - test.ci_level) / 2 / comparisons
        return replace(config, inference_config=replace(test, ci_level=level))
    return replace(config, inference_config=replace(test, alpha=test.alpha / comparisons))


def _judging(
    config: StatisticsConfig, measured: Sequence[Measured]
) -> Callable[[Measured], StatisticsConfig]:
    """Return the function that says by which comparison a metric is judged."""
    comparisons = sum(len(metric.groups) - 1 for metric in measured if metric.margin is None)
    primary, guardrail = shipping_config(config, max(comparisons, 1)), safety_config(config)
    return lambda metric: primary if metric.margin is None else guardrail


def _people_needed(plan: Plan, config: StatisticsConfig, look: Look) -> int | None:
    judging, power = _judging(config, look.measured), _power_of_each(_guardrails(look.measured))
    needed = [
        growth * look.people
        for measured in look.measured
        if (growth := _planned(plan, judging(measured), measured, lambda pair: pair.growth_needed(power)))
        is not None
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
        least = plan.planned_effect if measured.margin is None else measured.margin
        effect = least if relative else least * pooled.mean
        is_down = measured.wants_decrease == (measured.margin is None)  # a guardrail is planned for its loss
        pair = _Pair(config, pooled, -effect if is_down else effect, size, smallest / size)
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
