"""Verdicts and first primary metrics of many experiments in one answer, for lists of experiments.

The answer holds what is known, with its moment. Verdicts that are missing or old are computed after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hoglab.analysis.definitions import ExperimentInputs, is_computed, read_inputs
from hoglab.analysis.presentation import without_step_sessions
from hoglab.analysis.results.gathering import metric_object, people_of, statistics_object
from hoglab.analysis.results.judging import COUNT_EVERYBODY
from hoglab.analysis.timeseries import store
from hoglab.experiments import store as experiments_store
from hoglab.experiments.definitions.phases import phases_between
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.fields import parse_integer
from hoglab.statistics.exposure_checks import crossing_percentage, sample_ratio_mismatch

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.analysis.query.model import Span
    from hoglab.analysis.results.briefs import Briefs, BriefWriter
    from hoglab.analysis.results.exposures import ExposureCounts
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.http.identity import Project

MAX_IDS = 100
"""Maximum number of experiments in one request."""


class ResultSummaries:
    """What is known of the results of experiments. Nothing is computed before the answer. Thread-safe."""

    def __init__(
        self, service: ResultsService, exposures: ExposureCounts, briefs: Briefs, writer: BriefWriter
    ) -> None:
        self._service = service
        self._exposures = exposures
        self._briefs = briefs
        self._writer = writer

    def read(self, project: Project, ids: str) -> list[dict[str, Any]]:
        """Return the summaries of the existing experiments, in the order of the ids. Raises 400."""
        with self._service.database.read() as connection:
            rows = [
                experiments_store.get(connection, project.id, experiment_id)
                for experiment_id in _numbers(ids)
            ]
            plans = [
                read_inputs(connection, project, row) for row in rows if row is not None and not row.deleted
            ]
            metrics = [_metric(connection, inputs) for inputs in plans]
        summaries = [self._summary(inputs, metric) for inputs, metric in zip(plans, metrics, strict=True)]
        self._writer.want(
            project, [summary["experiment_id"] for summary in summaries if not summary["is_fresh"]]
        )
        return summaries

    def _summary(self, inputs: ExperimentInputs, metric: dict[str, Any] | None) -> dict[str, Any]:
        brief = self._briefs.of(inputs)
        summary: dict[str, Any] = {
            "experiment_id": inputs.row.id,
            "statistics": statistics_object(inputs),
            "metric": metric,
        }
        if inputs.span(self._service.now()) is None:
            return summary | _NOT_STARTED
        if brief is None:
            return summary | self._stored(inputs, metric)
        return summary | {
            "people": brief.people,
            "as_of": format_moment(brief.at),
            "is_fresh": self._briefs.is_fresh(brief, ended=inputs.row.is_stopped),
            "verdict": None if brief.verdict is None else {name: brief.verdict[name] for name in _SHOWN},
            "withholds_decisions": brief.verdict is not None and brief.verdict["withholds_decisions"],
        }

    def _stored(self, inputs: ExperimentInputs, metric: dict[str, Any] | None) -> dict[str, Any]:
        """Return what is known of an experiment without a verdict: of the last count, or of the stored result."""
        span = inputs.span(self._service.now())
        kept = self._service.query_runner.cached(self._exposures.of(inputs), fresh=False)
        exposures = {} if kept is None else kept.answer
        totals: dict[str, int] = exposures.get("total_exposures") or {}
        mismatch = exposures.get("sample_ratio_mismatch")
        is_mismatch = (
            _is_mismatch(inputs, span, metric)
            if kept is None
            else mismatch is not None and mismatch["is_mismatch"]
        )
        counted_at = None if kept is None else format_moment(kept.computed_at)
        return {
            "people": people_of(totals) if kept is not None else _people(metric),
            "as_of": counted_at if metric is None or kept is not None else metric["computed_at"],
            "is_fresh": False,
            "verdict": None,
            "withholds_decisions": is_mismatch or crossing_percentage(totals) is not None,
        }


_NOT_STARTED: dict[str, Any] = {
    "people": None,
    "as_of": None,
    "is_fresh": True,
    "verdict": None,
    "withholds_decisions": False,
}
_SHOWN = ("state", "headline", "next_action", "numbers", "withholds_decisions")
"""Parts of a verdict that a list shows."""


def _metric(connection: Connection, inputs: ExperimentInputs) -> dict[str, Any] | None:
    """Return the first primary metric with its newest stored result; None where there is no such metric."""
    first = next(
        (
            shown_metric
            for shown_metric in inputs.shown
            if shown_metric.is_primary and is_computed(shown_metric.metric)
        ),
        None,
    )
    if first is None:
        return None
    key = inputs.key(first.metric)
    point = store.newest_result(connection, key)
    entry = metric_object(first) | {"fingerprint": key.fingerprint}
    if inputs.row.start_date is None:
        return entry | {"status": "not_started"}
    if point is None or not point.result:
        return entry
    return entry | {
        "status": "completed",
        "computed_at": None if point.completed_at is None else format_moment(point.completed_at),
        "result": without_step_sessions(point.result),
    }


def _is_mismatch(inputs: ExperimentInputs, span: Span | None, metric: dict[str, Any] | None) -> bool:
    """Return whether the groups of a result have the wrong sizes, or do not tell it.

    They do not where they are not all exposed people, or people of several phases.
    """
    result = None if metric is None else metric["result"]
    if metric is None or result is None or inputs.flag is None or span is None:
        return False
    if metric["metric_type"] not in COUNT_EVERYBODY:
        return True
    rows = (result["baseline"], *result["variant_results"])
    known = phases_between(
        inputs.row.phases, inputs.flag.filters, span.start, span.end, inputs.calculation.variants
    )
    if len(known) > 1:
        return True
    sizes = {row["key"]: row["number_of_samples"] for row in rows}
    mismatch = sample_ratio_mismatch(sizes, known[0].shares)
    return mismatch is not None and mismatch.is_alarming(ended=inputs.row.is_stopped)


def _people(metric: dict[str, Any] | None) -> int | None:
    result = None if metric is None else metric["result"]
    if result is None:
        return None
    rows = (result["baseline"], *result["variant_results"])
    return sum(int(row["number_of_samples"]) for row in rows)


def _numbers(ids: str) -> Sequence[int]:
    parsed = [parse_integer(part.strip()) for part in ids.split(",")]
    numbers = [number for number in parsed if number is not None and 0 < number < 2**63]
    if len(numbers) != len(parsed) or len(numbers) > MAX_IDS:
        raise validation_error(
            f"ids must be at most {MAX_IDS} ids of experiments, joined by commas", attr="ids"
        )
    return numbers
