"""Whether the people whom a metric counts are the same part of each variant.

A metric that leaves people out compares those whom it counts. Where a variant changes who they are, these are no longer
like each other, and the metric may fall although everybody does better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.analysis.presentation import statistics_of
from hoglab.analysis.query.model import (
    MeanMeasure,
    QuantileMeasure,
    RatioMeasure,
    RetentionMeasure,
    of_sessions,
)
from hoglab.statistics import SRM_ALARM_P_VALUE, SampleMean, WithCovariate, counted_share_p_value
from hoglab.statistics.numbers import p_text
from hoglab.statistics.verdict import anytime_p_value

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


PAST_ADVICE = (
    "Find out what divides people otherwise than by chance, such as a former experiment on the same flag, or exposures "
    "that depend on the variant; start again with new people if you cannot."
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


@dataclass(frozen=True, slots=True)
class PastImbalance:
    """A metric whose values before the exposure differ between a variant and the baseline.

    The p-value may be read at any time, and counts all comparisons that were made.
    """

    metric: Mapping[str, Any]
    variant: str
    means: tuple[float, float]
    """Means before the exposure, of the baseline and of the variant."""
    p_value: float

    def message(self, name: str) -> str:
        """Return what is wrong, of a metric of this name."""
        return (
            f"Before they saw a variant, the people of “{self.variant}” already differed from those of the baseline on "
            f"“{name}”: {self.means[1]:.4g} against {self.means[0]:.4g} ({p_text(self.p_value)})."
        )


def past_imbalances(
    inputs: ExperimentInputs, results: Mapping[str, Mapping[str, Any]]
) -> Iterator[PastImbalance]:
    """Yield the metrics with CUPED whose past differs more than chance allows; ``results`` are the newest by uuid.

    Nobody has seen a variant before the exposure, so a difference says that people are not divided by chance.
    """
    compared = []
    for metric in inputs.metrics:
        result = results.get(metric["uuid"])
        if result is None:
            continue
        past = {
            row["key"]: _past_of(row, metric["metric_type"])
            for row in (result["baseline"], *result["variant_results"])
        }
        baseline = past.pop(result["baseline"]["key"])
        compared += [
            (metric, key, baseline, group)
            for key, group in past.items()
            if baseline is not None and group is not None
        ]
    for metric, key, baseline, group in compared:
        p_value = anytime_p_value(baseline, group)
        if p_value is not None and 2 * len(compared) * p_value < SRM_ALARM_P_VALUE:
            means = baseline.mean, group.mean
            yield PastImbalance(metric, key, means, 2 * len(compared) * p_value)


def _past_of(row: Mapping[str, Any], metric_type: str) -> SampleMean | None:
    """Return what the people of a row did before the exposure; None without CUPED."""
    group = statistics_of(row, metric_type)
    if not isinstance(group, WithCovariate) or not group.number_of_samples:
        return None
    return SampleMean(group.number_of_samples, group.covariate_sum, group.covariate_sum_squares)


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
