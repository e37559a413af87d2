"""Whether the people whom a metric counts are the same part of each variant.

A metric that leaves people out compares those whom it counts. Where a variant changes who they are, these are no longer
like each other, and the metric may fall although everybody does better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.analysis.query.model import (
    MeanMeasure,
    QuantileMeasure,
    RatioMeasure,
    RetentionMeasure,
    of_sessions,
)
from hoglab.statistics import SRM_ALARM_P_VALUE, counted_share_p_value

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.query.model import Metric

ADVICE = {
    "retention": (
        "Compare retention per exposed person: a funnel of the start event, and of the return event after it, counts "
        "everybody."
    ),
    "ratio": "Compare the numerator per exposed person: a mean metric of it counts everybody.",
}
"""Advice by type of metric."""
OTHER_ADVICE = (
    "Compare a number that everybody has, such as a mean of a count or a sum for each exposed person."
)


@dataclass(frozen=True, slots=True)
class Imbalance:
    """A metric that counts different shares of the people of each variant, by chance with this p-value."""

    metric: Mapping[str, Any]
    counted: Mapping[str, int]
    exposed: Mapping[str, int]
    p_value: float

    @property
    def shares(self) -> dict[str, float]:
        """Share of the exposed people of each variant whom the metric counts."""
        return {key: min(self.counted[key] / people, 1.0) for key, people in self.exposed.items() if people}

    @property
    def advice(self) -> str:
        return ADVICE.get(self.metric["metric_type"], OTHER_ADVICE)


def imbalances(
    inputs: ExperimentInputs,
    exposures: Mapping[str, int],
    results: Mapping[str, Mapping[str, Any]],
) -> Iterator[Imbalance]:
    """Yield the metrics whose counted people differ between variants; ``results`` are the newest ones by uuid.

    The metrics with results have to be computable.
    """
    exposed = {key: exposures.get(key, 0) for key in inputs.calculation.variants}
    for metric in inputs.metrics:
        result = results.get(metric["uuid"])
        if result is None or not _leaves_out(
            inputs.reader.metric(metric, cuped=inputs.calculation.statistics.cuped)
        ):
            continue
        rows = (result["baseline"], *result["variant_results"])
        counted = {row["key"]: _counted(row) for row in rows if row["key"] in exposed}
        p_value = counted_share_p_value(counted, exposed, ended=inputs.row.is_stopped)
        if p_value is not None and p_value < SRM_ALARM_P_VALUE:
            yield Imbalance(metric, {key: counted.get(key, 0) for key in exposed}, exposed, p_value)


def _leaves_out(metric: Metric) -> bool:
    """Return whether a metric compares only some of the exposed people."""
    match metric:
        case RetentionMeasure() | RatioMeasure() | QuantileMeasure():
            return True
        case MeanMeasure():
            return of_sessions(metric)
    return False


def _counted(row: Mapping[str, Any]) -> int:
    """Return the number of people whom a row counts; a quantile of events counts the events besides."""
    people = row.get("people_counted")
    return int(row["number_of_samples"] if people is None else people)
