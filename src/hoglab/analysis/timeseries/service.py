"""Results of experiments: computed on request, stored as daily points (spec experiment-results 5, 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.definitions import ExperimentInputs, SeriesKey, read_inputs
from hoglab.analysis.presentation import without_step_sessions
from hoglab.analysis.query.days import day_of, zone_of
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.query_cache import QueryRunner
from hoglab.analysis.timeseries.series import REFRESH_S, Series
from hoglab.analysis.timeseries.store import COMPLETED, Job, Point
from hoglab.experiments import store as experiments_store
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import format_offset
from hoglab.people import reading as people
from hoglab.statistics import Correction
from hoglab.storage.database import Rebuildable
from hoglab.storage.job_leases import JobLeases, JobLostError, JobName

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.analysis.execution import Computer, Groups
    from hoglab.experiments.service import ExperimentService
    from hoglab.experiments.store import ExperimentRow
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database

QUERY_TIMEOUT_S = 60.0
"""Longest time of one statement."""
FOLLOWED = timedelta(days=45)
"""Time after its end for which the background still updates an experiment."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ResultsConfig:
    """Limits of results."""

    query_timeout_s: float = QUERY_TIMEOUT_S
    refresh_s: float = REFRESH_S
    """Age at which the newest point of a running experiment is computed again."""


def stored_groups(database: Database) -> Groups:
    """Return the reader of the groups in a database."""

    def read(project_id: int, index: int, limit: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        with database.read() as connection:
            return people.groups_of_type(connection, project_id, index, limit)

    return read


class ResultsService:
    """The results of experiments, computed and stored. Thread-safe: many requests may call each method at once."""

    def __init__(
        self,
        database: Database,
        computer: Computer,
        experiments: ExperimentService,
        projects: Callable[[int], Project | None],
        jobs: JobLeases,
        position: Callable[[], int],
        config: ResultsConfig,
    ) -> None:
        """Take the services of results; ``jobs`` are this process's leases, which long computations need renewed.

        ``position`` returns the log offset up to which everything is stored. The clock is that of the experiments.
        """
        self.database = database
        self.jobs = jobs
        self.computer = computer
        self.now = experiments.now
        self.query_runner = QueryRunner(database, jobs, now=self.now, position=position)
        self.series = Series(
            database,
            computer,
            jobs,
            position=position,
            refresh_s=config.refresh_s,
            wait_s=config.query_timeout_s,
            now=self.now,
        )
        self._experiments = experiments
        self._projects = projects

    def plan_of(self, project: Project, experiment_id: int) -> ExperimentInputs:
        """Return the inputs of an experiment's computations. Raises 404."""
        with self.database.read() as connection:
            return read_inputs(
                connection, project, self._experiments.visible(connection, project, experiment_id)
            )

    def plan_of_running(
        self, experiment_id: int, *, further: tuple[Mapping[str, Any], ...] = ()
    ) -> ExperimentInputs | None:
        """Return the inputs of an experiment of any project; None for one that is gone or a draft (again)."""
        with self.database.read() as connection:
            row = store.experiment(connection, experiment_id)
            project = self._projects(row.project_id) if row is not None else None
            if row is None or project is None or row.start_date is None:
                return None
            return read_inputs(connection, project, row, further=further)

    # -- the series of a metric ------------------------------------------------------------------------

    def timeseries(
        self, project: Project, experiment_id: int, metric_uuid: str | None, fingerprint: str | None
    ) -> dict[str, Any]:
        """Return the daily points of one metric; a stale newest one is computed first. Raises 400, 404."""
        if not metric_uuid:
            raise validation_error("metric_uuid query parameter is required")
        if not fingerprint:
            raise validation_error("fingerprint query parameter is required")
        with self.database.read() as connection:
            row = self._experiments.visible(connection, project, experiment_id)
            if row.start_date is None:
                raise validation_error("Experiment has not been started yet")
            inputs = read_inputs(connection, project, row)
        key = SeriesKey(row.id, metric_uuid, fingerprint)
        own = inputs.metric_of(key)
        also: tuple[str, ...] = ()
        if own is not None:
            metric, present = own
            self.series.refresh(inputs, metric)
            also = () if key.fingerprint == present.fingerprint else (present.fingerprint,)
            also = (*also, inputs.former_fingerprint(metric))
        with self.database.read() as connection:
            points = store.points(connection, key, also=also)
            job = store.active_job(connection, row.id, fingerprint)
        answer = _timeseries_object(project, row, key, points, job, self.now())
        if own is not None:
            answer["timeseries"] = self._corrected(inputs, own[0], answer["timeseries"])
        answer["timeseries"] = {
            day: None if result is None else without_step_sessions(result)
            for day, result in answer["timeseries"].items()
        }
        return answer

    def _corrected(
        self,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        results: Mapping[str, dict[str, Any] | None],
    ) -> dict[str, dict[str, Any] | None]:
        """Return the results of days with p-values corrected over the primary metrics' results of the same days."""
        correction = inputs.calculation.statistics.correction
        if correction is Correction.NONE:
            return dict(results)
        family = self._family(inputs, metric)
        corrected: dict[str, dict[str, Any] | None] = {}
        for day, result in results.items():
            if result is None:
                corrected[day] = None
                continue
            same_day = {uuid: days[day] for uuid, days in family.items() if day in days}
            corrected[day] = inputs.corrected(metric, result, same_day)
        return corrected

    def newest_of_family(
        self, inputs: ExperimentInputs, metric: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return the newest stored results of the other primary metrics, where the metric is a primary one."""
        return {uuid: days[max(days)] for uuid, days in self._family(inputs, metric).items() if days}

    def _family(
        self, inputs: ExperimentInputs, metric: Mapping[str, Any]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the stored results of the other primary metrics: by uuid and day."""
        if metric.get("uuid") not in inputs.primary:
            return {}
        zone = zone_of(inputs.project.timezone)
        family = {}
        with self.database.read() as connection:
            for other in inputs.metrics:
                if other["uuid"] in inputs.primary and other["uuid"] != metric.get("uuid"):
                    points = store.points(connection, inputs.key(other))
                    family[other["uuid"]] = {
                        point.day(zone).isoformat(): point.result
                        for point in points
                        if point.status == COMPLETED and point.result is not None
                    }
        return family

    # -- recalculation ---------------------------------------------------------------------------------

    def recalculate(
        self, project: Project, experiment_id: int, body: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Create a job that computes a series again; return it, and whether it is new. Raises 400, 404."""
        metric, fingerprint = body.get("metric"), body.get("fingerprint")
        with self.database.write() as tx:
            row = self._experiments.visible(tx.connection, project, experiment_id)
            if not isinstance(metric, Mapping) or not metric:
                raise validation_error("metric is required")
            if not isinstance(fingerprint, str) or not fingerprint:
                raise validation_error("fingerprint is required")
            if row.start_date is None:
                raise validation_error("Cannot recalculate timeseries for experiment that hasn't started")
            job = store.active_job(tx.connection, row.id, fingerprint)
            if job is not None:
                return _job_object(job), False
            uuid = metric.get("uuid")
            uuid = uuid if isinstance(uuid, str) else None
            if uuid is not None:
                store.delete_points(tx.connection, SeriesKey(row.id, uuid, fingerprint))
            job = store.insert_job(tx.connection, row.id, uuid, fingerprint, dict(metric), self.now())
            tx.changed("experiments", project.id)
        return _job_object(job), True

    def run_job(self, job: Job) -> bool:
        """Compute the series of a job; return whether this process did."""
        with self.jobs.claimed(JobName("series recalculation", job.id)) as lease:
            if lease is None:
                return False
            try:
                with self.jobs.writing(lease, rebuildable=Rebuildable.RECALCULATION_STATUS) as tx:
                    if not store.begin_job(tx.connection, job.id, self.now()):
                        return False  # another process has just done it
                try:
                    error = self._run_job(job)
                except Exception as unexpected:
                    _log.exception("recalculation_failed", job_id=job.id)
                    error = f"Internal error: {type(unexpected).__name__}"
                with self.jobs.writing(lease, rebuildable=Rebuildable.RECALCULATION_STATUS) as tx:
                    store.end_job(tx.connection, job.id, self.now(), error)
                    self.jobs.end(tx, lease)
            except JobLostError as lost:
                _log.warning("recalculation_not_stored", reason=str(lost))
                return False
        return True

    def _run_job(self, job: Job) -> str | None:
        if job.metric_uuid is None:
            return "The metric has no uuid."
        inputs = self.plan_of_running(job.experiment_id, further=(job.metric,))
        if inputs is None:
            return "The experiment does not run any more."
        key = SeriesKey(job.experiment_id, job.metric_uuid, job.fingerprint)
        if not self.series.recompute(inputs, job.metric, key):
            return "Too many computations at the same time."
        failure = self.series.last_failure(key)
        return None if failure is None else failure.reason

    # -- work of the background ------------------------------------------------------------------------

    def plans(self) -> list[ExperimentInputs]:
        """Return every experiment that may need new points: running ones, and ended ones that have not settled."""
        now = self.now()
        with self.database.read() as connection:
            rows = experiments_store.running(connection)
            rows += store.lately_ended(connection, now - FOLLOWED)
            inputs = []
            for row in rows:
                project = self._projects(row.project_id)
                if project is not None:
                    inputs.append(read_inputs(connection, project, row))
        return inputs


def _job_object(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "experiment_id": job.experiment_id,
        "metric_uuid": job.metric_uuid,
        "fingerprint": job.fingerprint,
        "status": job.status,
        "created_at": format_offset(job.created_at),
    }


def _timeseries_object(
    project: Project,
    row: ExperimentRow,
    key: SeriesKey,
    points: Sequence[Point],
    job: Job | None,
    now: datetime,
) -> dict[str, Any]:
    """Return the answer of ``timeseries_results`` (spec experiment-results 7.2)."""
    zone = zone_of(project.timezone)
    assert row.start_date is not None  # noqa: S101 - drafts were refused
    first, last = day_of(row.start_date, zone), day_of(row.end_date or now, zone)
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    by_day = {point.day(zone): point for point in points}  # the last one of a day wins
    shown = {day: by_day.get(day) for day in days}
    present = [point for point in shown.values() if point is not None]
    completed = [point for point in present if point.status == COMPLETED]
    failures = {
        day: failure
        for day, point in shown.items()
        if point is not None and (failure := point.failure) is not None
    }
    if not present:
        status = "pending"
    elif not completed and failures:
        status = "failed"
    elif len(completed) == len(days) and not failures:
        status = "completed"
    else:
        status = "partial"
    errors = {day.isoformat(): failure.reason for day, failure in failures.items() if failure.reason}
    computed = [point.completed_at for point in completed if point.completed_at is not None]
    return {
        "experiment_id": row.id,
        "metric_uuid": key.metric_uuid,
        "status": status,
        "timeseries": {
            day.isoformat(): point.result if point is not None and point.status == COMPLETED else None
            for day, point in shown.items()
        },
        "errors": errors or None,
        "computed_at": format_offset(max(computed)) if computed else None,
        "created_at": format_offset(present[0].created_at if present else row.created_at),
        "updated_at": format_offset(present[-1].updated_at if present else row.updated_at),
        "recalculation_status": None if job is None else job.status,
        "recalculation_created_at": None if job is None else format_offset(job.created_at),
    }
