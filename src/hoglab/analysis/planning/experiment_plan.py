"""Plan of an experiment: how many people and days it takes, from the project's own history: ``ExperimentPlanQuery``.

An extension of the ``/query`` endpoint. Source of the arithmetic: `hoglab.statistics.planning.plans`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.planning.baseline import History, history_object, history_of, number, share
from hoglab.statistics import RefusalError, StatisticsConfig, power_at, sample_size_for

if TYPE_CHECKING:
    from hoglab.analysis.definitions import PlannedInputs
    from hoglab.analysis.execution import Computer

DEFAULT_POWER = 0.8
DEFAULT_EFFECTS = (0.01, 0.02, 0.05, 0.1, 0.2)
MAX_EFFECTS = 20
PLANNED_DAYS = (7, 14, 28, 56)
"""Numbers of days for which a plan gives the detectable effect."""
SMALLEST_EFFECT = 1e-4
LARGEST_EFFECT = 10.0
"""Largest effect that a plan searches for."""
STEP = 1.25
PRECISION = 1.001


def plan_answer(
    inputs: PlannedInputs, query: Mapping[str, Any], now: datetime, computer: Computer
) -> dict[str, Any]:
    """Return the answer to an ``ExperimentPlanQuery``."""
    effects, power = _effects(query), share(query, "power", DEFAULT_POWER)
    history = history_of(inputs, query, now, computer)
    design = _design(inputs, power)
    return {
        "kind": "ExperimentPlanQuery",
        "history": history_object(history, query),
        "method": str(design.config.method),
        "difference_type": str(design.config.inference_config.difference_type),
        "power": power,
        "effects": [_needed(history, design, effect) for effect in effects],
        "detectable": [_detectable(history, design, days) for days in PLANNED_DAYS],
    }


@dataclass(frozen=True, slots=True)
class _Design:
    """Parts of an experiment that decide how many people it takes."""

    config: StatisticsConfig
    power: float
    both: float
    """Share of all people in the baseline or the smallest other variant."""
    test_share: float
    """Share of the smallest other variant among these two."""
    reach: float
    """Share of the people of the history who take part."""


def _design(inputs: PlannedInputs, power: float) -> _Design:
    rollout, compared = inputs.shares, inputs.calculation.variants
    key = inputs.calculation.statistics.baseline_key(compared) if compared else ""
    baseline = rollout.get(key, 0.0) if key in compared else 0.0
    smallest = min((rollout.get(other, 0.0) for other in compared if other != key), default=0.0)
    if baseline <= 0 or smallest <= 0:
        raise DefinitionError("A plan needs a baseline and other variants, all with a share of the people.")
    if inputs.reach <= 0:
        raise DefinitionError("Nobody takes part: parameters.rollout_percentage is 0.")
    both = baseline + smallest
    return _Design(
        config=inputs.calculation.statistics,
        power=power,
        both=both / sum(rollout.values()),
        test_share=smallest / both,
        reach=inputs.reach,
    )


def _needed(history: History, design: _Design, effect: float) -> dict[str, Any]:
    """Return the numbers of people and days that an effect takes; null where no size is enough or possible."""
    people: int | None = None
    try:
        samples = sample_size_for(
            design.config,
            history.statistics,
            history.in_unit(design.config, effect),
            test_share=design.test_share,
            power=design.power,
        )
        people = ceil(samples / history.samples_per_person / design.both)
    except (RefusalError, ValueError):
        pass
    days = None if people is None else history.days_for(ceil(people / design.reach))
    return {"effect": effect, "people": people, "days": days}


def _detectable(history: History, design: _Design, days: int) -> dict[str, Any]:
    """Return the least increase that a number of days detects with that power; null where none is."""
    people = round(history.people_after(days) * design.reach)
    samples = round(people * design.both * history.samples_per_person)

    def is_found(effect: float) -> bool:
        difference = history.in_unit(design.config, effect)
        try:
            power = power_at(
                design.config, history.statistics, difference, samples, test_share=design.test_share
            )
        except (RefusalError, ValueError):
            return False
        return power >= design.power

    low = high = SMALLEST_EFFECT
    while not is_found(high):
        low, high = high, STEP * high
        if high > LARGEST_EFFECT:
            return {"days": days, "people": people, "effect": None}
    while high / low > PRECISION:
        middle = sqrt(low * high)
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return {"days": days, "people": people, "effect": high}


def _effects(query: Mapping[str, Any]) -> list[float]:
    given = query.get("effects")
    if given is None:
        return list(DEFAULT_EFFECTS)
    if not isinstance(given, list) or not 0 < len(given) <= MAX_EFFECTS:
        raise DefinitionError(f"effects must be a list of 1 to {MAX_EFFECTS} numbers")
    return [number({"effects": effect}, "effects", 0.0) for effect in given]
