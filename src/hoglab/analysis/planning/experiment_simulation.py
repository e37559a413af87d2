"""Simulation of experiments with the project's own people, by each method: ``ExperimentSimulationQuery``.

An extension of the ``/query`` endpoint; `hoglab.analysis.planning.simulation` draws and counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hoglab.analysis.cancellation import Cancellation, current_cancellation
from hoglab.analysis.errors import ComputationError, DefinitionError
from hoglab.analysis.planning.baseline import history_object, history_of, number, whole_number
from hoglab.analysis.planning.simulated_people import Growth, Rows, SummedPeople, ValuedPeople
from hoglab.analysis.planning.simulation import PeopleOfHistory, Setting, Tally, simulate
from hoglab.analysis.query.model import (
    FunnelMeasure,
    MeanMeasure,
    Metric,
    QuantileMeasure,
    Question,
    RatioMeasure,
)
from hoglab.statistics import BayesianConfig, FrequentistConfig, StatisticsConfig

if TYPE_CHECKING:
    from hoglab.analysis.definitions import PlannedInputs
    from hoglab.analysis.execution import Computer

MAX_PEOPLE = 20_000
"""Maximum number of people of the history whose values a simulation reads, and of people in its experiments."""
MAX_VALUES = 500_000
"""Maximum number of values of these people's events together, where a quantile is taken of them."""
MIN_PEOPLE = 100
DEFAULT_EXPERIMENTS = 1000
MAX_EXPERIMENTS = 2000
DEFAULT_LOOKS = 10
MAX_LOOKS = 30
DEFAULT_EFFECT = 0.1
DEFAULT_SEED = 1
MAX_SEED = 2**32


def simulation_answer(
    inputs: PlannedInputs, query: Mapping[str, Any], now: datetime, computer: Computer
) -> dict[str, Any]:
    """Return the answer to an ``ExperimentSimulationQuery``."""
    effect = number(query, "effect", DEFAULT_EFFECT)
    experiments = whole_number(query, "experiments", DEFAULT_EXPERIMENTS, 1, MAX_EXPERIMENTS)
    looks = whole_number(query, "looks", DEFAULT_LOOKS, 1, MAX_LOOKS)
    seed = whole_number(query, "seed", DEFAULT_SEED, 0, MAX_SEED)
    history = history_of(inputs, query, now, computer)
    if not history.mean:
        raise DefinitionError(
            "The metric is zero for everybody in the history, so there is nothing to change."
            if not isinstance(history.question.metric, QuantileMeasure)
            else "The quantile of the history is zero, so there is nothing to change: see ignore_zeros."
        )
    usual = min(max(history.people, MIN_PEOPLE), MAX_PEOPLE)
    people = whole_number(query, "people", usual, MIN_PEOPLE, MAX_PEOPLE)
    setting = Setting(people, experiments, looks, effect)
    cancellation = current_cancellation() or Cancellation()
    tallies = simulate(
        _people(history.question, computer, effect),
        _methods(inputs.calculation.statistics),
        setting,
        np.random.default_rng(seed),
        is_cancelled=lambda: cancellation.requested,
    )
    if cancellation.requested:
        raise ComputationError("Query was cancelled", retry=False)
    return {
        "kind": "ExperimentSimulationQuery",
        "history": history_object(history, query),
        "people": people,
        "experiments": experiments,
        "looks": looks,
        "effect": effect,
        "methods": [_tally_object(name, tally) for name, tally in tallies.items()],
    }


def _people(question: Question, computer: Computer, effect: float) -> PeopleOfHistory:
    """Return the people of the history; an effect is a share of their values."""
    metric = question.metric
    if isinstance(metric, QuantileMeasure):
        values_by_person = computer.values(question, MAX_PEOPLE, MAX_VALUES)
        sizes = [len(values) for values in values_by_person]
        together = np.asarray([value for values in values_by_person for value in values], dtype=np.float64)
        return ValuedPeople(
            together, np.asarray(sizes, dtype=np.int64), metric.level, metric.per_event, effect
        )
    table, build = computer.entities(question, MAX_PEOPLE)
    rows = np.asarray(table, dtype=np.float64)
    return SummedPeople(rows, build, _growth(metric, rows, effect))


def _methods(config: StatisticsConfig) -> dict[str, StatisticsConfig]:
    """Return each method with the settings of the experiment, or default ones where it has none for a method."""
    test = config.inference_config
    level = test.ci_level if isinstance(test, BayesianConfig) else 1 - test.alpha
    fixed = (
        test if isinstance(test, FrequentistConfig) else FrequentistConfig(1 - level, test.difference_type)
    )
    bayesian = test if isinstance(test, BayesianConfig) else BayesianConfig(level, test.difference_type)
    tests: dict[str, BayesianConfig | FrequentistConfig] = {
        "bayesian": bayesian,
        "frequentist": replace(fixed, sequential_testing_enabled=False),
        "sequential": replace(fixed, sequential_testing_enabled=True),
    }
    return {name: replace(config, inference_config=method) for name, method in tests.items()}


def _tally_object(name: str, tally: Tally) -> dict[str, Any]:
    count = tally.experiments or 1
    return {
        "method": name,
        "false_positives": tally.false_positives / count,
        "false_positives_watched": tally.false_positives_watched / count,
        "power": tally.significant / count,
        "power_watched": tally.found_watched / count,
        "coverage": tally.covered / count,
        "refused": tally.refused / count,
    }


def _growth(metric: Metric, rows: Rows, effect: float) -> Growth:
    """Return the change of people's rows by an effect: values grow by a factor, and conversions become more."""
    factor = 1 + effect
    match metric:
        case MeanMeasure() if metric.value.threshold is None or metric.value.bounds is not None:
            # n, Σy, Σy², and Σx, Σx², Σyx with a covariate.
            return _scaling(rows, [1, factor, factor**2, 1, 1, factor])
        case RatioMeasure():
            return _scaling(rows, [1, factor, factor**2, 1, 1, factor, 1])
        case FunnelMeasure():
            return _converting(rows, [len(metric.steps)], effect)
    return _converting(rows, [1, 2] if isinstance(metric, MeanMeasure) else [1], effect)


def _scaling(rows: Rows, factors: Sequence[float]) -> Growth:
    scale = np.asarray(factors[: rows.shape[1]])
    return lambda drawn, _rng: drawn * scale


def _converting(rows: Rows, columns: Sequence[int], effect: float) -> Growth:
    """Return the rows with more or fewer conversions; ``columns`` hold the 1 of a conversion."""
    first = columns[0]
    rate = rows[:, first].sum() / rows[:, 0].sum()
    if not 0 < rate * (1 + effect) <= 1:
        raise DefinitionError(f"An effect of {effect:+.0%} is not possible at a rate of {rate:.1%}.")
    gain = rate * effect / (1 - rate) if effect > 0 else 0.0
    loss = max(-effect, 0.0)
    # With a covariate its product with the outcome comes last.
    x, product = (first + 1, first + 3) if rows.shape[1] == first + 4 else (None, None)

    def grown(drawn: Rows, rng: np.random.Generator) -> Rows:
        dice = rng.random(len(drawn))
        converts = np.where(drawn[:, first] > 0, dice >= loss, dice < gain) & (drawn[:, 0] > 0)
        changed = drawn.copy()
        for column in columns:
            changed[:, column] = converts
        if x is not None and product is not None:
            changed[:, product] = converts * drawn[:, x]
        return changed

    return grown
