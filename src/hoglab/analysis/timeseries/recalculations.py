"""All metrics of an experiment computed at one moment (spec experiments-api 8.7, experiment-results 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.definitions import ExperimentInputs
from hoglab.analysis.errors import DefinitionError, ResultsError
from hoglab.analysis.presentation import adjusted, result_object
from hoglab.analysis.query import Answer
from hoglab.analysis.query.scope import exclusive
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.attempts import check_tries
from hoglab.analysis.timeseries.series import reason_of
from hoglab.analysis.timeseries.store import COMPLETED, FAILED, IN_PROGRESS, PENDING, Recalculation
from hoglab.http.errors import BareError, validation_error
from hoglab.storage.database import Rebuildable
from hoglab.storage.job_leases import JobLostError, JobName

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.analysis.query.model import Question, Span
    from hoglab.analysis.timeseries.service import ResultsService
    from hoglab.http.identity import Project
    from hoglab.storage.job_leases import JobLease

NOT_STARTED = "Experiment has not been started yet"
NOT_FOUND = "Recalculation not found"
NONE_COMPLETED = "No completed recalculation found"
MAX_TRIES = 2
"""Maximum number of attempts of a job; each of them was ended by the end of its process."""
DID_NOT_END = "It did not end when it was tried last, and is not tried again yet"

_log = structlog.get_logger(__name__)


class Recalculations:
    """Jobs that compute every metric up to the same moment. Their tasks are in the database."""

    def __init__(self, service: ResultsService) -> None:
        self._service = service

    # -- requests --------------------------------------------------------------------------------------

    def check_found(self, project: Project, experiment_id: int) -> None:
        """Raise 404 for an unknown or deleted experiment."""
        self._service.plan_of(project, experiment_id)

    def request(self, project: Project, experiment_id: int, trigger: str) -> tuple[dict[str, Any], bool]:
        """Create a job; return it, and whether it is new. Raises 400, 404."""
        inputs = self._service.plan_of(project, experiment_id)
        if inputs.row.is_draft:
            raise validation_error(NOT_STARTED)
        with self._service.database.write() as tx:
            active = store.active_recalculation(tx.connection, experiment_id)
            if active is not None:
                return _job_object(active, is_existing=True), False
            job = store.insert_recalculation(
                tx.connection, experiment_id, trigger, len(inputs.metrics), self._service.now()
            )
            tx.changed("experiments", project.id)
        return _job_object(job), True

    def read(self, project: Project, experiment_id: int, recalculation_id: str) -> dict[str, Any]:
        """Return a job with its results so far. Raises 404."""
        self.check_found(project, experiment_id)
        with self._service.database.read() as connection:
            jobs = store.recalculations(connection, experiment_id)
        for job in jobs:
            if job.id == recalculation_id:
                return _with_results(job)
        raise BareError(404, {"detail": NOT_FOUND})

    def latest(self, project: Project, experiment_id: int) -> dict[str, Any]:
        """Return the last completed job, else the daily points. Raises 404."""
        inputs = self._service.plan_of(project, experiment_id)
        with self._service.database.read() as connection:
            jobs = store.recalculations(connection, experiment_id, [COMPLETED])
        if jobs:
            return _with_results(jobs[0])
        return self._of_points(inputs)

    def _of_points(self, inputs: ExperimentInputs) -> dict[str, Any]:
        """Return the newest daily points, in the form of a completed job."""
        with self._service.database.read() as connection:
            points = {
                metric["uuid"]: store.newest_result(connection, inputs.key(metric))
                for metric in inputs.metrics
            }
        known = [point for point in points.values() if point is not None]
        if not known:
            raise BareError(404, {"detail": NONE_COMPLETED})
        results = [
            _outcome(uuid, result=point.result) if point is not None else _outcome(uuid)
            for uuid, point in points.items()
        ]
        results = _adjusted(inputs, results)
        last = max(known, key=lambda point: point.query_to)
        job = Recalculation(
            id="",
            experiment_id=inputs.row.id,
            status=COMPLETED,
            trigger="",
            total_metrics=len(points),
            results=results,
            query_to=last.query_to,
            created_at=last.created_at,
            started_at=last.created_at,
            completed_at=last.completed_at,
        )
        shown = _with_results(job)
        return shown | {"id": None, "trigger": None, "result_source": "timeseries_fallback"}

    # -- work of the background ------------------------------------------------------------------------

    def waiting(self) -> list[tuple[int, Recalculation]]:
        """Return the waiting jobs, with their projects, oldest first; a job left by a stopped process starts again."""
        with self._service.database.read() as connection:
            return store.waiting_recalculations(connection)

    def run(self, job: Recalculation, stopping: Callable[[], bool]) -> int:
        """Run a job, unless another process runs it; return the number of computed metrics. ``stopping`` interrupts it.

        A job of an ended process starts again once; the metric that it was computing has failed.
        """
        with self._service.jobs.claimed(JobName("recalculation", job.id)) as lease:
            if lease is None:
                return 0
            try:
                return self._run(job, lease, stopping)
            except JobLostError as error:
                _log.warning("recalculation_not_stored", reason=str(error))
                return 0

    def _run(self, job: Recalculation, lease: JobLease, stopping: Callable[[], bool]) -> int:
        now = self._service.now()
        inputs = self._service.plan_of_running(job.experiment_id)
        results: list[dict[str, Any]] = []
        metrics = () if inputs is None else inputs.metrics
        span = None if inputs is None else inputs.span(now)
        is_begun = self._note(
            job,
            lease,
            status=IN_PROGRESS,
            started_at=now,
            query_to=now if span is None else exclusive(span.end),
            total_metrics=len(metrics),
            results=results,
        )
        if not is_begun:  # another process has just done it
            return 0
        try:
            check_tries(lease, MAX_TRIES)
            with self._service.computer.sharing(self._questions(inputs, span)) as result:
                for metric in metrics:
                    if stopping() or inputs is None:
                        return len(results)
                    results.append(self._computed(inputs, metric, now, result))
                    self._note(job, lease, results=results)
        except JobLostError:
            raise
        except Exception as error:
            _tell(error, experiment_id=job.experiment_id)
            results += [
                _outcome(outcome["uuid"], error=reason_of(error)) for outcome in metrics[len(results) :]
            ]
        failed = inputs is None or (bool(results) and all(outcome["status"] == FAILED for outcome in results))
        with self._service.jobs.writing(lease, rebuildable=Rebuildable.RECALCULATION_STATUS) as tx:
            store.update_recalculation(
                tx.connection,
                job.id,
                results=results if inputs is None else _adjusted(inputs, results),
                status=FAILED if failed else COMPLETED,
                completed_at=self._service.now(),
            )
            self._service.jobs.end(tx, lease)
        return len(results)

    def _questions(self, inputs: ExperimentInputs | None, span: Span | None) -> list[Question]:
        """Return the questions of the metrics that can be read, and need not wait."""
        questions = []
        if inputs is not None and span is not None:
            for metric in inputs.metrics:
                tries = self._service.series.attempts.of(inputs.key(metric))
                if tries is not None and (tries.was_left or self._service.series.attempts.has_to_wait(tries)):
                    continue
                with suppress(DefinitionError):
                    questions.append(inputs.question(metric, span))
        return questions

    def _computed(
        self,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        now: datetime,
        result: Callable[[Question], Answer],
    ) -> dict[str, Any]:
        variants, config = list(inputs.calculation.variants), inputs.calculation.statistics
        uuid, key, series = metric["uuid"], inputs.key(metric), self._service.series
        if series.attempts.waits(key):
            failure = series.last_failure(key)
            return _outcome(uuid, error=DID_NOT_END if failure is None else failure.reason)
        try:
            span = inputs.span(now)
            if span is None:
                read = inputs.reader.metric(metric)
                return _outcome(uuid, result=result_object(Answer({}), variants, config, read))
            with series.attempts.trying(key):
                question = inputs.question(metric, span)
                answer = result(question)
                return _outcome(uuid, result=result_object(answer, variants, config, question.metric))
        except Exception as error:
            _tell(error, experiment_id=inputs.row.id, metric_uuid=uuid)
            return _outcome(uuid, error=reason_of(error))

    def _note(self, job: Recalculation, lease: JobLease, **values: Any) -> bool:
        """Store the progress of a job; return whether it is unfinished."""
        with self._service.jobs.writing(lease, rebuildable=Rebuildable.RECALCULATION_STATUS) as tx:
            return store.update_recalculation(tx.connection, job.id, **values)


def _tell(error: Exception, **about: Any) -> None:
    tell = _log.warning if isinstance(error, ResultsError) else _log.exception
    tell("recalculation_failed", reason=reason_of(error), **about)


def _adjusted(inputs: ExperimentInputs, outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcomes with p-values corrected over the primary metrics."""
    results = {
        outcome["metric_uuid"]: outcome["result"] for outcome in outcomes if outcome["result"] is not None
    }
    correction = inputs.calculation.statistics.correction
    corrected = adjusted(results, correction, outside=frozenset(results) - inputs.primary)
    return [{**outcome, "result": corrected.get(outcome["metric_uuid"])} for outcome in outcomes]


def _outcome(uuid: str, *, result: dict[str, Any] | None = None, error: str | None = None) -> dict[str, Any]:
    """Return the outcome of one metric; without a result or an error it is pending."""
    status = COMPLETED if result is not None else PENDING if error is None else FAILED
    return {"metric_uuid": uuid, "status": status, "result": result, "error_message": error}


def _job_object(job: Recalculation, *, is_existing: bool = False) -> dict[str, Any]:
    failed = [result for result in job.results if result["status"] == FAILED]
    return {
        "id": job.id,
        "experiment_id": job.experiment_id,
        "status": job.status,
        "total_metrics": job.total_metrics,
        "completed_metrics": sum(result["status"] == COMPLETED for result in job.results),
        "failed_metrics": len(failed),
        "metric_errors": {result["metric_uuid"]: result["error_message"] for result in failed},
        "trigger": job.trigger,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at,
        "query_to": job.query_to,
        "is_existing": is_existing,
        "result_source": "recalculation",
    }


def _with_results(job: Recalculation) -> dict[str, Any]:
    return _job_object(job) | {"results": job.results}
