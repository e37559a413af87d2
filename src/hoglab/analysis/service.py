"""Results of experiments: computed when asked for, kept as daily points (spec experiment-results 5, 7)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis import store
from hoglab.analysis.compute import Computer
from hoglab.analysis.days import day_of, zone_of
from hoglab.analysis.errors import ComputationError, DefinitionError
from hoglab.analysis.families import adjusted
from hoglab.analysis.flights import Flights
from hoglab.analysis.plan import SETTLING, Plan, plan, query_to, settled_at
from hoglab.analysis.presentation import result_object
from hoglab.analysis.queries import Queries
from hoglab.analysis.query.scope import exclusive
from hoglab.analysis.query.statements import can_telescope
from hoglab.analysis.store import COMPLETED, FAILED, Job, Newest, NewPoint, Point, SeriesKey
from hoglab.experiments import store as experiments_store
from hoglab.http.dates import format_offset, utc_now
from hoglab.http.errors import validation_error
from hoglab.people import reading as people
from hoglab.statistics import Correction

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.analysis.query.model import Question, Span
    from hoglab.analysis.state import ResultsState
    from hoglab.experiments.service import ExperimentService
    from hoglab.experiments.store import ExperimentRow
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.event_store import EventStore
    from hoglab.storage.table_files import TableDirectory

QUERY_TIMEOUT_S = 60.0
"""Longest time of one statement."""
REFRESH_S = 60.0
"""A newest point that is older than this is computed anew when somebody asks for it."""
REQUEST_BUDGET_S = 20.0
"""How long a request goes on computing missing days one by one; the background does the rest."""
CONCURRENT_COMPUTATIONS = 2
"""How many series are computed at the same time; each statement uses all processors."""

MAX_NOTED_FAILURES = 10_000
"""Of how many series it is remembered that their last computation failed."""
FOLLOWED = timedelta(days=45)
"""How long after its end the background still looks at an experiment."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """When a series could not be computed, and why, in one line."""

    at: datetime
    reason: str


class ResultsService:
    """Computes and reads results. Thread-safe; every method may be called by many requests at once."""

    def __init__(
        self,
        database: Database,
        event_store: EventStore,
        experiments: ExperimentService,
        *,
        projects: Callable[[int], Project | None],
        query_timeout_s: float = QUERY_TIMEOUT_S,
        refresh_s: float = REFRESH_S,
        tables: TableDirectory | None = None,
        state: ResultsState | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.database = database
        self.computer = Computer(
            event_store, timeout_s=query_timeout_s, tables=tables, groups=self._groups_of_type, state=state
        )
        self.now = now
        self.queries = Queries(now=now, position=event_store.position)
        self._experiments = experiments
        self._projects = projects
        self._query_timeout_s = query_timeout_s
        self._refresh = timedelta(seconds=refresh_s)
        self._flights = Flights(CONCURRENT_COMPUTATIONS)
        self._failures: dict[SeriesKey, Failure] = {}

    def _groups_of_type(
        self, project_id: int, index: int, limit: int
    ) -> Sequence[tuple[str, Mapping[str, Any]]]:
        with self.database.read() as connection:
            return people.groups_of_type(connection, project_id, index, limit)

    def plan_of(self, project: Project, experiment_id: int) -> Plan:
        """What is to be computed for an experiment. Raises 404."""
        with self.database.read() as connection:
            return plan(connection, project, self._experiments.visible(connection, project, experiment_id))

    def plan_of_running(
        self, experiment_id: int, *, further: tuple[Mapping[str, Any], ...] = ()
    ) -> Plan | None:
        """The plan of an experiment of any project; None for one that is gone or a draft (again)."""
        with self.database.read() as connection:
            row = store.experiment(connection, experiment_id)
            project = self._projects(row.project_id) if row is not None else None
            if row is None or project is None or row.start_date is None:
                return None
            return plan(connection, project, row, further=further)

    # -- the series of a metric ------------------------------------------------------------------------

    def timeseries(
        self, project: Project, experiment_id: int, metric_uuid: str | None, fingerprint: str | None
    ) -> dict[str, Any]:
        """The daily points of one metric, the newest one computed anew when it is stale. Raises 400, 404."""
        if not metric_uuid:
            raise validation_error("metric_uuid query parameter is required")
        if not fingerprint:
            raise validation_error("fingerprint query parameter is required")
        with self.database.read() as connection:
            row = self._experiments.visible(connection, project, experiment_id)
            if row.start_date is None:
                raise validation_error("Experiment has not been started yet")
            found = plan(connection, project, row)
        key = SeriesKey(row.id, metric_uuid, fingerprint)
        own = found.metric_of(key)
        also: tuple[str, ...] = ()
        if own is not None:
            metric, present = own
            self.refresh(found, metric)
            also = () if key.fingerprint == present.fingerprint else (present.fingerprint,)
            also = (*also, found.former_fingerprint(metric))
        with self.database.read() as connection:
            points = store.points(connection, key, also=also)
            job = store.active_job(connection, row.id, fingerprint)
        answer = _timeseries_object(project, row, key, points, job, self.now())
        if own is not None:
            answer["timeseries"] = self._corrected(found, own[0], answer["timeseries"])
        return answer

    def _corrected(
        self, found: Plan, metric: Mapping[str, Any], results: Mapping[str, dict[str, Any] | None]
    ) -> dict[str, dict[str, Any] | None]:
        """The results of days with p-values corrected over the primary metrics' results of the same days."""
        correction = found.calculation.statistics.correction
        if correction is Correction.NONE:
            return dict(results)
        family = self._family(found, metric)
        corrected: dict[str, dict[str, Any] | None] = {}
        for day, result in results.items():
            if result is None:
                corrected[day] = None
                continue
            same_day = {uuid: days[day] for uuid, days in family.items() if day in days}
            corrected[day] = self.corrected(found, metric, result, same_day)
        return corrected

    def corrected(
        self,
        found: Plan,
        metric: Mapping[str, Any],
        result: dict[str, Any],
        others: Mapping[str, dict[str, Any]],
    ) -> dict[str, Any]:
        """A result with p-values corrected together with those of other primary metrics, by their uuids.

        A metric that is not among the primary ones of its experiment is corrected for its variants alone, and
        a secondary one not at all.
        """
        uuid = metric.get("uuid")
        secondary = any(each["uuid"] == uuid for each in found.metrics) and uuid not in found.primary
        family = {None: result} | {each: others[each] for each in others if each != uuid}
        outside = frozenset({None}) if secondary else frozenset()
        return adjusted(family, found.calculation.statistics.correction, outside=outside)[None]

    def others_of_family(self, found: Plan, metric: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The other primary metrics, where the metric is a primary one and p-values are to be corrected."""
        if found.calculation.statistics.correction is Correction.NONE:
            return []
        uuid = metric.get("uuid")
        if uuid not in found.primary:
            return []
        return [each for each in found.metrics if each["uuid"] in found.primary and each["uuid"] != uuid]

    def newest_of_family(self, found: Plan, metric: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The newest stored results of the other primary metrics, where the metric is a primary one."""
        return {uuid: days[max(days)] for uuid, days in self._family(found, metric).items() if days}

    def _family(self, found: Plan, metric: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
        """The stored results of the other primary metrics: by uuid and day."""
        if metric.get("uuid") not in found.primary:
            return {}
        zone = zone_of(found.project.timezone)
        family = {}
        with self.database.read() as connection:
            for other in found.metrics:
                if other["uuid"] in found.primary and other["uuid"] != metric.get("uuid"):
                    points = store.points(connection, found.key(other))
                    family[other["uuid"]] = {
                        point.day(zone).isoformat(): point.result
                        for point in points
                        if point.status == COMPLETED and point.result is not None
                    }
        return family

    def refresh(self, found: Plan, metric: Mapping[str, Any], *, force: bool = False) -> None:
        """Bring the points of one metric up to date, unless they are fresh or somebody else is at it."""
        key = found.key(metric)
        if not force and self._is_fresh(found, metric, key):
            return

        def work() -> None:
            if force or not self._is_fresh(found, metric, key):
                self.compute(found, metric, key, budget_s=None if force else REQUEST_BUDGET_S)

        if not self._flights.run(key, work, wait_s=self._query_timeout_s):
            _log.info("results_refresh_skipped", experiment_id=key.experiment_id, metric_uuid=key.metric_uuid)

    def _is_fresh(self, found: Plan, metric: Mapping[str, Any], key: SeriesKey) -> bool:
        now = self.now()
        span = found.span(now)
        if span is None or span.days is None:
            return True
        last = query_to(span, span.days.count - 1)
        with self.database.read() as connection:
            newest = store.newest(connection, key, last)
        if newest is None:
            return False
        if self.is_settled(found, metric, newest):
            return True
        failed = self._failures.get(key)
        if failed is not None and now - failed.at < self._refresh:
            return True  # a result that could not be brought up to date is not tried again at once
        if newest.table_state != self.computer.state_of_tables(found.tables_of(metric)):
            return False
        same_day = _day(newest.query_to, span) == _day(last, span)
        return same_day and now - newest.written < self._refresh

    def is_settled(self, found: Plan, metric: Mapping[str, Any], newest: Newest) -> bool:
        """Whether the newest point is the last word on an ended experiment.

        It is when it was written `SETTLING` after the last moment that counts, and after the last event of that
        time was received: history may be sent long afterwards.
        """
        now, end_date, span = self.now(), found.row.end_date, found.span(self.now())
        if end_date is None or now < end_date or span is None or newest.query_to < exclusive(span.end):
            return False
        if newest.table_state != self.computer.state_of_tables(found.tables_of(metric)):
            return False
        try:
            question = found.question(metric, span)
            settled = settled_at(question, end_date)
            seen = newest.written - SETTLING
            return seen >= settled and not self.computer.has_arrived(question, seen, settled)
        except DefinitionError:
            return newest.written >= end_date + SETTLING
        except ComputationError:
            return True  # what is stored can be shown without the event store

    def compute(
        self, found: Plan, metric: Mapping[str, Any], key: SeriesKey, *, budget_s: float | None
    ) -> bool:
        """Compute and store the points of a metric under ``key``; whether every day has a point afterwards.

        A failure becomes the point of the last day, unless there is a result of that day. With a budget days
        that need a statement each are computed newest first until it is used up.
        """
        span = found.span(self.now())
        if span is None or span.days is None:
            return True
        last = span.days.count - 1
        complete = True
        try:
            question = found.question(metric, span)
            # Taken before files are read: what changes meanwhile makes the points stale.
            state = self.computer.state_of_tables(found.tables_of(metric))
            points, complete = self._points(found, question, key, state, budget_s)
        except (DefinitionError, ComputationError) as error:
            _log.warning(
                "results_failed",
                experiment_id=key.experiment_id,
                metric_uuid=key.metric_uuid,
                reason=str(error),
            )
            points = [NewPoint(query_to(span, last), error_message=str(error))]
            self._note_failure(key, str(error))
        else:
            self._failures.pop(key, None)
        with self.database.write() as tx:
            store.put_points(
                tx.connection, key, span.start, points, zone_of(found.project.timezone), self.now()
            )
        return complete

    def last_failure(self, key: SeriesKey) -> Failure | None:
        """Why the last computation of a series failed; None when it did not.

        A failure is not stored on a day that has a result already, so one of before a start of the server is known
        until that day is over only as the result's age.
        """
        noted = self._failures.get(key)
        if noted is not None:
            return noted
        with self.database.read() as connection:
            newest = store.newest_point(connection, key)
        if newest is None or newest.status != FAILED:
            return None
        return Failure(newest.updated_at, newest.error_message or "")

    def has_result(self, key: SeriesKey) -> bool:
        """Whether any day of a series has a result."""
        with self.database.read() as connection:
            return store.newest_result(connection, key) is not None

    def _note_failure(self, key: SeriesKey, reason: str) -> None:
        if len(self._failures) >= MAX_NOTED_FAILURES:
            self._failures.clear()
        self._failures[key] = Failure(self.now(), reason)

    def _points(
        self,
        found: Plan,
        question: Question,
        key: SeriesKey,
        table_state: str | None,
        budget_s: float | None,
    ) -> tuple[list[NewPoint], bool]:
        span = question.span
        assert span.days is not None  # noqa: S101 - made by Plan.span
        last = span.days.count - 1
        event_seq = None
        kept: dict[int, Point] = {}
        if not can_telescope(question.metric):
            # Taken before events are read: what comes meanwhile is looked at again.
            event_seq = self.computer.newest_event()
            kept = self._still_right(question, self._past_points(key, span, table_state), event_seq)
        variants = list(found.calculation.variants)
        config = found.calculation.statistics
        deadline = None if budget_s is None else time.monotonic() + budget_s
        groups = dict(self.computer.points(question, [last]))
        missing = [number for number in range(last) if number not in groups and number not in kept]
        for number in reversed(missing):
            if deadline is not None and time.monotonic() >= deadline:
                break
            groups.update(self.computer.points(question, [number]))
        results = {number: point.result for number, point in kept.items()}
        for number, answer in groups.items():
            results[number] = result_object(answer, variants, config, question.metric)
        points = [
            NewPoint(query_to(span, number), results[number], table_state=table_state, event_seq=event_seq)
            for number in sorted(results)
        ]
        return points, all(number in groups for number in missing)

    def _past_points(self, key: SeriesKey, span: Span, table_state: str | None) -> dict[int, Point]:
        """The stored results of days that are over, by the number of the day.

        A point that was the last one of its day is not that of the whole day, and one of other files is none.
        """
        assert span.days is not None  # noqa: S101 - made by Plan.span
        with self.database.read() as connection:
            stored = {
                point.query_to: point
                for point in store.points(connection, key)
                if point.status == COMPLETED and point.table_state == table_state
            }
        moments = {number: query_to(span, number) for number in range(span.days.count - 1)}
        return {number: stored[moment] for number, moment in moments.items() if moment in stored}

    def _still_right(self, question: Question, past: Mapping[int, Point], newest: int) -> dict[int, Point]:
        """Those of the points that no event of their time came after (spec experiment-results 11.5).

        A point is cumulative, so that a late event changes it and those of all days behind it. A point of events
        that are not there (any more) is computed anew, and so is one that does not know its events.
        """
        known = {
            number: (point, point.event_seq)
            for number, point in past.items()
            if point.event_seq is not None and point.event_seq <= newest
        }
        if not known:
            return {}
        late = self.computer.arrivals(question, min(seq for _, seq in known.values()))
        newest_until = dict(
            enumerate(accumulate((late.get(number, 0) for number in range(max(known) + 1)), max))
        )
        return {number: point for number, (point, seq) in known.items() if newest_until[number] <= seq}

    # -- recalculation ---------------------------------------------------------------------------------

    def recalculate(
        self, project: Project, experiment_id: int, body: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Ask for a series to be computed anew; the job, and whether it is a new one. Raises 400, 404."""
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

    def run_job(self, job: Job) -> None:
        """Compute the series that a job asks for."""
        with self.database.write() as tx:
            store.update_job(tx.connection, job.id, self.now(), status=store.IN_PROGRESS)
        try:
            error = self._run_job(job)
        except Exception as unexpected:
            _log.exception("recalculation_failed", job_id=job.id)
            error = f"Internal error: {type(unexpected).__name__}"
        with self.database.write() as tx:
            store.update_job(
                tx.connection,
                job.id,
                self.now(),
                status=store.COMPLETED if error is None else store.FAILED,
                error_message=error,
                last_successful_date=None if error is not None else self.now().date().isoformat(),
            )

    def _run_job(self, job: Job) -> str | None:
        if job.metric_uuid is None:
            return "The metric has no uuid."
        found = self.plan_of_running(job.experiment_id, further=(job.metric,))
        if found is None:
            return "The experiment does not run any more."
        key = SeriesKey(job.experiment_id, job.metric_uuid, job.fingerprint)

        def work() -> None:
            self.compute(found, job.metric, key, budget_s=None)

        if not self._flights.run(key, work, wait_s=self._query_timeout_s):
            return "Too many computations at the same time."
        with self.database.read() as connection:
            points = store.points(connection, key)
        failed = [point.error_message for point in points if point.status == FAILED]
        return failed[-1] if failed else None

    # -- work of the background ------------------------------------------------------------------------

    def plans(self) -> list[Plan]:
        """Every experiment that may need new points: running ones, and ended ones that have not settled."""
        now = self.now()
        with self.database.read() as connection:
            rows = experiments_store.running(connection)
            rows += store.lately_ended(connection, now - FOLLOWED)
            found = []
            for row in rows:
                project = self._projects(row.project_id)
                if project is not None:
                    found.append(plan(connection, project, row))
        return found


def _day(exclusive_end: datetime, span: Span) -> date | None:
    if span.days is None:
        return None
    return day_of(exclusive_end - timedelta(microseconds=1), span.days.zone)


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
    """The answer of ``timeseries_results`` (spec experiment-results 7.2)."""
    zone = zone_of(project.timezone)
    assert row.start_date is not None  # noqa: S101 - drafts were refused
    first, last = day_of(row.start_date, zone), day_of(row.end_date or now, zone)
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    by_day = {point.day(zone): point for point in points}  # the last one of a day wins
    shown = {day: by_day.get(day) for day in days}
    present = [point for point in shown.values() if point is not None]
    completed = [point for point in present if point.status == COMPLETED]
    failed = [point for point in present if point.status == FAILED]
    if not present:
        status = "pending"
    elif not completed and failed:
        status = "failed"
    elif len(completed) == len(days):
        status = "completed"
    else:
        status = "partial"
    errors = {
        day.isoformat(): point.error_message
        for day, point in shown.items()
        if point is not None and point.status == FAILED and point.error_message
    }
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
