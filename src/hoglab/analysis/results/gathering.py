"""Results of an experiment in one answer: stored results where they are fresh, computed ones otherwise.

Parts not computed within the budget are computed in the background, and the answer names the missing ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hoglab.analysis.definitions import ExperimentInputs, ShownMetric, is_computed, value_label
from hoglab.analysis.execution import MULTIPLE_VARIANT
from hoglab.analysis.presentation import without_step_sessions
from hoglab.analysis.results.exposures import ExposureCounts
from hoglab.analysis.results.health import ExperimentHealth, status_of
from hoglab.analysis.results.judging import COUNT_EVERYBODY, corrected, judged, verdict_object
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.query_cache import CachedAnswer, PreparedQuery, QueryRunner
from hoglab.http.errors import ApiError, WireError
from hoglab.http.fields.dates import format_moment

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.analysis.results.briefs import Briefs
    from hoglab.analysis.results.health import Finding
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.analysis.timeseries.query_cache import Computation
    from hoglab.http.identity import Project
    from hoglab.storage.event_store import EventReader

BUDGET_S = 15.0
"""Time for which a request waits for computations."""
SAME_PEOPLE = 0.01
"""Share of a variant's people by which a metric may lag behind the exposures: that many come in a minute."""
EXPOSURES, HEALTH = "exposures", "health"
"""Names of possibly missing parts besides metrics."""
FORMER_ENGINE = "Metrics of kind {kind} are of the former engine: ask for their results with POST …/query/."


class ExperimentResults:
    """The results of whole experiments. Thread-safe."""

    def __init__(
        self,
        service: ResultsService,
        exposures: ExposureCounts,
        health: ExperimentHealth,
        *,
        briefs: Briefs | None = None,
        budget_s: float | None = BUDGET_S,
    ) -> None:
        """Take a budget; without one everything is computed before the answer, one part after the other.

        Verdicts are noted in ``briefs``, for lists.
        """
        self._service = service
        self._exposures = exposures
        self._health = health
        self._briefs = briefs
        self._budget_s = budget_s

    @classmethod
    def of(
        cls,
        service: ResultsService,
        events: EventReader,
        *,
        briefs: Briefs | None = None,
        budget_s: float | None = BUDGET_S,
    ) -> ExperimentResults:
        """Return the results of experiments whose events are in a store."""
        exposures = ExposureCounts(service)
        health = ExperimentHealth(service, exposures, events)
        return cls(service, exposures, health, briefs=briefs, budget_s=budget_s)

    def read(self, project: Project, experiment_id: int, *, refresh: bool = False) -> dict[str, Any]:
        """Return the results of an experiment; with ``refresh`` of all events stored now. Raises 404."""
        began = self._service.now()
        inputs = self._service.plan_of(project, experiment_id)
        if inputs.span(self._service.now()) is None:
            return self._not_started(inputs)
        work = _Work(self._service.query_runner, self._budget_s)
        asked = self._exposures.of(inputs)
        former = self._service.query_runner.cached(asked, fresh=False)
        before = None if former is None else former.answer
        if self._service.query_runner.cached(asked, fresh=True) is None:
            work.begin(EXPOSURES, asked)
        for metric in inputs.metrics:
            if not self._service.series.is_fresh(inputs, metric, newest=refresh):
                work.begin(metric["uuid"], self._refreshing(inputs, metric, force=refresh))
        pending, errors = work.ended()
        counted = self._service.query_runner.cached(asked, fresh=False)
        exposures = None if counted is None else counted.answer
        if counted is not None:
            behind = self._behind(inputs, counted, before) - work.names
            for metric in inputs.metrics:
                if metric["uuid"] in behind:
                    work.begin(metric["uuid"], self._refreshing(inputs, metric, force=True))
            pending, errors = work.ended()
        examined = work.answer(self._examining(inputs, exposures))
        answer = self._answer(inputs, exposures, (examined or {}).get("findings"), pending, errors)
        if self._briefs is not None and (answer["status"] == "complete" or self._budget_s is None):
            people = None if exposures is None else people_of(exposures["total_exposures"])
            self._briefs.note(inputs, began, people, answer["verdict"])
        return answer

    def _behind(
        self, inputs: ExperimentInputs, counted: CachedAnswer, before: Mapping[str, Any] | None
    ) -> set[str]:
        """Return the metrics, by uuid, whose newest results are of other people than the exposures.

        Results may be a minute old, exposures may not; a verdict that reads both has to be about the same people. A
        metric that counts everybody says of whom it is. Of others the exposures say it that were counted ``before``.
        Results that were computed after the exposures are not behind them: to compute them again at each request would
        not make them alike.
        """
        totals = _by_variant(inputs, counted.answer)
        has_grown = before is None or not _is_alike(_by_variant(inputs, before), totals)
        behind = set()
        with self._service.database.read() as connection:
            for metric in inputs.metrics:
                point = store.newest_result(connection, inputs.key(metric))
                if point is None or not point.result:
                    continue
                if point.completed_at is not None and point.completed_at > counted.computed_at:
                    continue
                counts_everybody = metric["metric_type"] in COUNT_EVERYBODY
                if counts_everybody and not inputs.row.only_count_matured_users:
                    rows = (point.result["baseline"], *point.result["variant_results"])
                    is_behind = not _is_alike({row["key"]: row["number_of_samples"] for row in rows}, totals)
                else:
                    is_behind = has_grown
                if is_behind:
                    behind.add(metric["uuid"])
        return behind

    def _refreshing(
        self, inputs: ExperimentInputs, metric: Mapping[str, Any], *, force: bool
    ) -> PreparedQuery:
        """Return the work of updating the points of a metric.

        The runner stores them, so there is no answer.
        """

        def refresh() -> dict[str, Any]:
            self._service.series.refresh(inputs, metric, force=force)
            return {}

        identity = ("points", inputs.key(metric), force)
        return PreparedQuery.of(inputs.project, self._service.now(), identity, refresh, is_cacheable=False)

    def _examining(self, inputs: ExperimentInputs, exposures: Mapping[str, Any] | None) -> PreparedQuery:
        """Return the work of searching for dangers to an experiment.

        Its answer has no findings where these depend on missing exposures.
        """

        def known() -> Mapping[str, Any]:
            if exposures is None:
                raise _UncountedError
            return exposures

        def examine() -> dict[str, Any]:
            try:
                return {"findings": self._health.findings(inputs, known)}
            except _UncountedError:
                return {}

        identity = ("health", inputs.identity, exposures is None)
        return PreparedQuery.of(inputs.project, self._service.now(), identity, examine, is_cacheable=False)

    def _answer(
        self,
        inputs: ExperimentInputs,
        exposures: Mapping[str, Any] | None,
        findings: list[Finding] | None,
        pending: set[str],
        errors: Mapping[str, str],
    ) -> dict[str, Any]:
        if findings is None:
            pending = pending | {HEALTH}
        with self._service.database.read() as connection:
            metrics = self._metrics(connection, inputs, pending)
            # Of some nothing is stored yet although the work is done: somebody else was at it, or there was no turn.
            pending = pending | {
                shown_metric["uuid"] for shown_metric in metrics if shown_metric["status"] == "pending"
            }
            verdict = None
            # What is missing might turn it around.
            if findings is not None and not pending:
                verdict = judged(connection, inputs, self._service.now(), exposures, findings)
        return {
            **_head(inputs),
            "status": "partial" if pending else "complete",
            "pending": sorted(pending),
            "metrics": metrics,
            "exposures": exposures,
            "exposures_error": errors.get(EXPOSURES),
            "health": None if findings is None else _health_object(findings),
            "verdict": None if verdict is None else verdict_object(verdict),
        }

    def _metrics(
        self, connection: Connection, inputs: ExperimentInputs, pending: set[str]
    ) -> list[dict[str, Any]]:
        newest = {
            metric["uuid"]: store.newest_result(connection, inputs.key(metric)) for metric in inputs.metrics
        }
        results = {uuid: point.result for uuid, point in newest.items() if point is not None and point.result}
        shown = {uuid: without_step_sessions(result) for uuid, result in corrected(inputs, results).items()}
        entries = []
        for shown_metric in inputs.shown:
            entry = metric_object(shown_metric)
            if not is_computed(shown_metric.metric):
                entry |= {
                    "status": "unsupported",
                    "error": FORMER_ENGINE.format(kind=shown_metric.metric.get("kind")),
                }
            else:
                uuid, key = shown_metric.metric["uuid"], inputs.key(shown_metric.metric)
                point, last = newest[uuid], store.newest_point(connection, key)
                failure = None if last is None else last.failure
                status = "completed" if point is not None else "failed" if failure is not None else "pending"
                entry |= {
                    "fingerprint": key.fingerprint,
                    "status": "pending" if uuid in pending else status,
                    "computed_at": None
                    if point is None or point.completed_at is None
                    else format_moment(point.completed_at),
                    "error": None if failure is None else failure.reason,
                    "result": shown.get(uuid),
                }
            entries.append(entry)
        return entries

    def _not_started(self, inputs: ExperimentInputs) -> dict[str, Any]:
        findings = self._health.findings(inputs, dict)
        return {
            **_head(inputs),
            "status": "not_started",
            "pending": [],
            "metrics": [
                metric_object(shown_metric) | {"status": "not_started"} for shown_metric in inputs.shown
            ],
            "exposures": None,
            "exposures_error": None,
            "health": _health_object(findings),
            "verdict": None,
        }


class _UncountedError(Exception):
    """Exposures are not counted yet."""


class _Work:
    """Computations for one request: in the background until the budget is used up, or at once without a budget."""

    def __init__(self, queries: QueryRunner, budget_s: float | None) -> None:
        self._queries = queries
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._begun: dict[str, Computation | None] = {}
        self._errors: dict[str, str] = {}
        self.names: set[str] = set()
        """Names of the parts that were begun."""

    def begin(self, name: str, work: PreparedQuery) -> None:
        self.names.add(name)
        if self._deadline is None:
            self._noting(name, lambda: self._queries.compute(work))
            return
        self._begun[name] = None
        self._noting(name, lambda: self._begun.update({name: self._queries.submit(work)}))

    def ended(self) -> tuple[set[str], dict[str, str]]:
        """Wait until the budget is used up; return the names of unfinished parts, and the reasons of failed ones."""
        pending = set()
        for name, status in self._begun.items():
            if status is None:  # there were too many others: the next request tries again
                pending.add(name)
                continue
            assert self._deadline is not None  # noqa: S101 - else nothing is begun
            if not status.ended.wait(max(self._deadline - time.monotonic(), 0)):
                pending.add(name)
            elif status.error is not None:
                self._errors[name] = _detail(status.error)
        return pending, self._errors

    def answer(self, work: PreparedQuery) -> dict[str, Any] | None:
        """Return the answer of one more piece of work; None when it failed or is late."""
        try:
            if self._deadline is None:
                return self._queries.compute(work).answer
            status = self._queries.submit(work)
        except WireError:
            return None
        status.ended.wait(max(self._deadline - time.monotonic(), 0))
        return None if status.kept is None else status.kept.answer

    def _noting(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except ApiError as error:
            self._errors[name] = _detail(error)


def _by_variant(inputs: ExperimentInputs, exposures: Mapping[str, Any]) -> dict[str, int]:
    """Return the exposed people of the compared variants."""
    totals: Mapping[str, int] = exposures["total_exposures"]
    return {key: totals.get(key, 0) for key in inputs.calculation.variants}


def _is_alike(counts: Mapping[str, int], totals: Mapping[str, int]) -> bool:
    """Return whether two counts of people differ by no more than a few."""
    return all(abs(counts.get(key, 0) - total) <= SAME_PEOPLE * total for key, total in totals.items())


def _detail(error: WireError) -> str:
    return str((error.body or {}).get("detail"))


def people_of(totals: Mapping[str, int]) -> int:
    """Return the number of people who saw one variant only."""
    return sum(count for variant, count in totals.items() if variant != MULTIPLE_VARIANT)


def _head(inputs: ExperimentInputs) -> dict[str, Any]:
    return {"experiment_id": inputs.row.id, "statistics": statistics_object(inputs)}


def statistics_object(inputs: ExperimentInputs) -> dict[str, Any]:
    """Return the methods and settings of an experiment's statistics, as on the wire."""
    config, variants = inputs.calculation.statistics, inputs.calculation.variants
    return {
        "method": str(config.method),
        "is_sequential": config.is_sequential,
        "design": None if config.monitoring is None else str(config.monitoring.design),
        "level": config.level,
        "difference_type": str(config.inference_config.difference_type),
        "correction": str(config.correction),
        "cuped": config.cuped.enabled,
        "posthog_numbers": config.posthog_numbers,
        "baseline": config.baseline_key(variants) if variants else None,
    }


def metric_object(shown: ShownMetric) -> dict[str, Any]:
    """Return a metric as on the wire, without its result."""
    metric = shown.metric
    return {
        "uuid": metric.get("uuid"),
        "name": shown.name,
        "is_primary": shown.is_primary,
        "role": shown.role,
        "margin": shown.margin,
        "saved_metric_id": shown.saved_metric_id,
        "metric_type": metric.get("metric_type"),
        "goal": metric.get("goal") or "increase",
        "value_label": value_label(metric),
        "fingerprint": None,
        "status": "pending",
        "computed_at": None,
        "error": None,
        "result": None,
    }


def _health_object(findings: list[Finding]) -> dict[str, Any]:
    return {"status": status_of(findings), "findings": [asdict(finding) for finding in findings]}
