"""Plan of an experiment: how many people and days it takes, from the project's own history: ``ExperimentPlanQuery``.

An extension of the ``/query`` endpoint. Source of the arithmetic: `hoglab.statistics.planning.plans`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.planning.baseline import History, history_object, history_of, number, share
from hoglab.statistics import RefusalError, StatisticsConfig, power_at, sample_size_for

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
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
    inputs: ExperimentInputs, query: Mapping[str, Any], now: datetime, computer: Computer
) -> dict[str, Any]:
    """Return the answer to an ``ExperimentPlanQuery``."""
    effects, power = _effects(query), share(query, "power", DEFAULT_POWER)
    history = history_of(inputs, query, now, computer)
    config = inputs.calculation.statistics
    shares = _shares(inputs)
    return {
        "kind": "ExperimentPlanQuery",
        "history": history_object(history, query),
        "method": str(config.method),
        "difference_type": str(config.inference_config.difference_type),
        "power": power,
        "effects": [_needed(history, config, effect, power, shares) for effect in effects],
        "detectable": [_detectable(history, config, days, power, shares) for days in PLANNED_DAYS],
    }


def _shares(inputs: ExperimentInputs) -> tuple[float, float]:
    """Return the shares of the baseline or the smallest other variant: of all people, and of the two."""
    filters = {} if inputs.flag is None else inputs.flag.filters
    rollout = {
        variant["key"]: float(variant.get("rollout_percentage") or 0)
        for variant in (filters.get("multivariate") or {}).get("variants") or []
    }
    compared = inputs.calculation.variants
    key = inputs.calculation.statistics.baseline_key(compared) if compared else ""
    baseline = rollout.get(key, 0.0) if key in compared else 0.0
    smallest = min((rollout.get(other, 0.0) for other in compared if other != key), default=0.0)
    if baseline <= 0 or smallest <= 0:
        raise DefinitionError("A plan needs a baseline and other variants, all with a share of the people.")
    return (baseline + smallest) / sum(rollout.values()), smallest / (baseline + smallest)


def _needed(
    history: History, config: StatisticsConfig, effect: float, power: float, shares: tuple[float, float]
) -> dict[str, Any]:
    """Return the numbers of people and days that an effect takes; null where no size is enough or possible."""
    both, test_share = shares
    people: int | None = None
    try:
        samples = sample_size_for(
            config, history.statistics, history.in_unit(config, effect), test_share=test_share, power=power
        )
        people = ceil(samples / history.samples_per_person / both)
    except (RefusalError, ValueError):
        pass
    return {"effect": effect, "people": people, "days": None if people is None else history.days_for(people)}


def _detectable(
    history: History, config: StatisticsConfig, days: int, power: float, shares: tuple[float, float]
) -> dict[str, Any]:
    """Return the least increase that a number of days detects with that power; null where none is."""
    both, test_share = shares
    people = history.people_after(days)
    samples = round(people * both * history.samples_per_person)

    def is_found(effect: float) -> bool:
        difference = history.in_unit(config, effect)
        try:
            return power_at(config, history.statistics, difference, samples, test_share=test_share) >= power
        except (RefusalError, ValueError):
            return False

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
