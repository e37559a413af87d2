"""Baseline of an experiment: the past behaviour of a project's people, from which plans and simulations are made.

Nobody of the history saw the experiment, so everybody counts who could have seen it: people with the event by which
the experiment will meet people. The metric is computed for them as the experiment will compute it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate, dropwhile
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.presentation import sums_object
from hoglab.analysis.query.days import DAY_US, DayGrid, zone_of
from hoglab.analysis.query.metrics.retention import span_us
from hoglab.analysis.query.model import (
    EventSource,
    Exposures,
    FunnelMeasure,
    MeanMeasure,
    Question,
    RatioMeasure,
    RetentionMeasure,
    Span,
)
from hoglab.statistics import DifferenceType, RefusalError, StatisticsConfig, SufficientStatistics

if TYPE_CHECKING:
    from hoglab.analysis.definitions import PlannedInputs
    from hoglab.analysis.execution import Computer

EVERYBODY = "history"
"""The only variant of a history."""
DEFAULT_DAYS = 28
MAX_DAYS = 366
"""Maximum length of a history."""
RECENT_DAYS = 7
"""Number of last days whose newcomers predict how many come after the history."""
MAX_RUNNING_DAYS = 3650
"""Longest running time that is given: ten years."""


@dataclass(frozen=True, slots=True)
class History:
    """A metric over the people of some days, and the number of newcomers on each day."""

    question: Question
    statistics: SufficientStatistics
    newcomers: Sequence[int]

    @property
    def people(self) -> int:
        return sum(self.newcomers)

    @property
    def samples_per_person(self) -> float:
        """1 where everybody has one value; metrics may leave people out, or take several values of each."""
        if isinstance(self.question.metric, MeanMeasure | FunnelMeasure | RatioMeasure):
            return 1.0
        old_enough = len(self.newcomers) - ceil(_maturity_us(self.question) / DAY_US)
        return self.statistics.number_of_samples / (sum(self.newcomers[: max(old_enough, 1)]) or self.people)

    @property
    def mean(self) -> float | None:
        """Mean of the metric over everybody; None for a ratio to nothing."""
        try:
            return self.statistics.mean
        except RefusalError:
            return None

    @property
    def _recent_rate(self) -> float:
        """Recent newcomers a day, without today, which is not over."""
        recent = self.newcomers[-RECENT_DAYS - 1 : -1] or self.newcomers
        return sum(recent) / len(recent)

    def in_unit(self, config: StatisticsConfig, effect: float) -> float:
        """Return an effect, given as a share of the mean, in the unit in which the experiment compares."""
        relative = config.inference_config.difference_type is DifferenceType.RELATIVE
        return effect if relative else effect * self.statistics.mean

    def days_for(self, people: int) -> int | None:
        """Return the number of days until a number of people have come; None beyond the longest running time."""
        arrived = list(accumulate(self.newcomers))
        for day, count in enumerate(arrived, start=1):
            if count >= people:
                return day
        rate = self._recent_rate
        days = len(arrived) + ceil((people - arrived[-1]) / rate) if rate else MAX_RUNNING_DAYS + 1
        return days if days <= MAX_RUNNING_DAYS else None

    def people_after(self, days: int) -> int:
        """Return the number of people who have come after a number of days like those of the history."""
        if days <= len(self.newcomers):
            return sum(self.newcomers[:days])
        return self.people + round((days - len(self.newcomers)) * self._recent_rate)


def history_of(inputs: PlannedInputs, query: Mapping[str, Any], now: datetime, computer: Computer) -> History:
    """Return the history that a query asks for. Raises `DefinitionError` and `ComputationError`."""
    question = _question(inputs, query, now)
    everybody = replace(question, span=replace(question.span, days=_grid(question)), matured_only=False)
    newcomers = computer.exposures(everybody)[EVERYBODY]
    statistics = computer.result(question).groups.get(EVERYBODY)
    if statistics is None:
        raise DefinitionError(
            f"Nobody did {_named(question)} in the last {_history_days(query)} days, or long enough ago for the "
            "metric: name another event, or more days."
        )
    # Before the first one there was nothing to come for: an experiment has no such days.
    return History(question, statistics, list(dropwhile(lambda count: count == 0, newcomers)))


def _question(inputs: PlannedInputs, query: Mapping[str, Any], now: datetime) -> Question:
    metric = query.get("metric")
    if not isinstance(metric, Mapping):
        raise DefinitionError("metric is required")
    calculation = inputs.calculation
    own = inputs.reader.exposures(inputs.project.id, calculation)
    exposures = Exposures(
        project_id=inputs.project.id,
        source=_met_by(inputs, query),
        flag_key=None,
        variant_property=None,
        variants=(EVERYBODY,),
        test_account_filters=own.test_account_filters,
        first_seen=True,
        group_type_index=own.group_type_index,
    )
    read = inputs.reader.metric(metric, cuped=calculation.statistics.cuped)
    return Question(
        exposures=exposures,
        span=Span(now - timedelta(days=_history_days(query)), now, now),
        metric=read,
        # Those who came yesterday have had no week to convert in; an experiment ends when they have.
        matured_only=isinstance(read, RetentionMeasure) or read.window_us > 0,
        zone=inputs.project.timezone,
        cohorts=inputs.cohorts,
    )


def _met_by(inputs: PlannedInputs, query: Mapping[str, Any]) -> EventSource:
    """Return the event by which the experiment meets people: the requested one, that of its custom exposure, or any."""
    exposure = query.get("exposure")
    if exposure is None:
        criteria = inputs.calculation.exposure_criteria or {}
        config = criteria.get("exposure_config")
        custom = inputs.reader.exposures(inputs.project.id, inputs.calculation).flag_key is None
        exposure = config if custom else {"kind": "EventsNode", "event": None}
    return inputs.reader.events(exposure, "exposure")


def _maturity_us(question: Question) -> int:
    """Return the minimum time between first exposure and the end for a person to count, in microseconds."""
    metric = question.metric
    if not question.matured_only:
        return 0
    return metric.window_us + (max(0, span_us(metric)) if isinstance(metric, RetentionMeasure) else 0)


def _grid(question: Question) -> DayGrid:
    span = question.span
    return DayGrid.between(span.start, span.end, zone_of(question.zone))


def history_object(history: History, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a history as answers show it."""
    span = history.question.span
    statistics = history.statistics
    return {
        "date_from": span.start.isoformat(),
        "date_to": span.end.isoformat(),
        "days": _history_days(query),
        "event": _named(history.question),
        "people": history.people,
        "people_per_day": list(history.newcomers),
        "mean": history.mean,
        "statistics": sums_object(statistics),
    }


def _named(question: Question) -> str:
    names = [match.event for match in question.exposures.source.alternatives if match.event is not None]
    return " or ".join(names) if names else "any event"


def _history_days(query: Mapping[str, Any]) -> int:
    return whole_number(query, "history_days", DEFAULT_DAYS, 1, MAX_DAYS)


def share(query: Mapping[str, Any], name: str, default: float) -> float:
    """Return a field between 0 and 1. Raises `DefinitionError`."""
    value = number(query, name, default)
    if not 0 < value < 1:
        raise DefinitionError(f"{name} must lie strictly between 0 and 1")
    return value


def number(query: Mapping[str, Any], name: str, default: float) -> float:
    """Return a field that is a number. Raises `DefinitionError`."""
    value = query.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value == 0:
        raise DefinitionError(f"{name} must be a number other than 0")
    return float(value)


def whole_number(query: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    """Return a field that is a whole number within bounds. Raises `DefinitionError`."""
    value = query.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DefinitionError(f"{name} must be a whole number from {least} to {most}")
    return value
