"""The plan of an experiment, and whether it is large enough for the variance that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hoglab.analysis.presentation import statistics_of
from hoglab.statistics.verdict import LEAST_POWER, Measured, Plan, PlannedPower, planned_power

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs

_ONE_SAMPLE_EACH = frozenset({"mean", "funnel", "ratio", "retention"})
"""Types of metrics with one sample for each person whom they count; others may take several values of each."""


def plan_of(inputs: ExperimentInputs) -> Plan:
    """Return the planned duration of an experiment, as far as it is stored."""
    default = inputs.project.experiment_defaults.get("default_minimum_detectable_effect")
    return Plan.of(inputs.row.running_time_calculation or {}, default)


def underpowered(
    inputs: ExperimentInputs, results: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], PlannedPower]]:
    """Yield the primary metrics on which the written plan more often misses its own effect than it finds it.

    ``results`` are the newest ones by uuid: their variance is the one that counts, of all groups together.
    """
    plan = plan_of(inputs)
    for metric in inputs.metrics:
        result = results.get(metric["uuid"])
        if (
            result is None
            or metric["uuid"] not in inputs.primary
            or metric["metric_type"] not in _ONE_SAMPLE_EACH
        ):
            continue
        rows = (result["baseline"], *result["variant_results"])
        measured = Measured(
            tuple(statistics_of(row, metric["metric_type"]) for row in rows),
            wants_decrease=metric.get("goal") == "decrease",
        )
        planned = planned_power(plan, inputs.calculation.statistics, measured)
        if planned is not None and planned.power < LEAST_POWER:
            yield metric, planned
