"""Stored daily points of metrics and the jobs that compute them again (spec experiment-results 7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.analysis.definitions import SeriesKey
from hoglab.experiments.store import ExperimentRow
from hoglab.storage.database.tables import experiment as experiment_table
from hoglab.storage.database.tables import experiment_recalculation, metric_recalculation, metric_result

COMPLETED, FAILED, PENDING, IN_PROGRESS = "completed", "failed", "pending", "in_progress"
_ACTIVE = (PENDING, IN_PROGRESS)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed computation of a series: its time, and the reason in one line."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Point:
    """One stored point: the result of the time before ``query_to``, or the reason why there is none."""

    id: int
    query_to: datetime
    status: str
    result: dict[str, Any] | None
    error_message: str | None
    failed_at: datetime | None
    """Time when the newest attempt to compute it failed, where an earlier result exists."""
    completed_at: datetime | None
    named_state: str | None
    """State of the tables, actions and cohorts that it was computed with; None where the metric names none."""
    log_offset: int | None
    """Log offset up to which events and merges count.

    None where it is not needed: for all but the last point of series that are computed as a whole.
    """
    created_at: datetime
    updated_at: datetime

    def day(self, zone: tzinfo) -> date:
        """Return the calendar day of the point."""
        return (self.query_to - _MICROSECOND).astimezone(zone).date()

    @property
    def failure(self) -> Failure | None:
        """Failure of the newest attempt to compute it."""
        failed_at = self.updated_at if self.status == FAILED else self.failed_at
        return None if failed_at is None else Failure(failed_at, self.error_message or "")


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A result to store."""

    query_to: datetime
    result: dict[str, Any]
    named_state: str | None = None
    log_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest point of a series, without its result."""

    query_to: datetime
    written: datetime
    failed_at: datetime | None
    """Time when the newest attempt to compute it failed; None when it did not."""
    named_state: str | None
    log_offset: int | None

    @property
    def tried(self) -> datetime:
        """Time of the newest attempt, whether it succeeded or failed."""
        return self.failed_at or self.written


@dataclass(frozen=True, slots=True)
class Job:
    """A request to compute a metric's whole series again."""

    id: str
    experiment_id: int
    metric_uuid: str | None
    fingerprint: str
    metric: dict[str, Any]
    status: str
    last_successful_date: str | None
    error_message: str | None
    created_at: datetime
    updated_at: datetime


_POINT = tuple(metric_result.c[f.name] for f in fields(Point))
_JOB = tuple(metric_recalculation.c[f.name] for f in fields(Job))


def points(connection: Connection, key: SeriesKey, *, also: Collection[str] = ()) -> list[Point]:
    """Return the points of a series by time; points of the fingerprints in ``also`` come before its own."""
    row = metric_result.c
    statement = (
        sa.select(*_POINT)
        .where(
            row.experiment_id == key.experiment_id,
            row.metric_uuid == key.metric_uuid,
            row.fingerprint.in_({key.fingerprint, *also}),
        )
        .order_by(row.fingerprint == key.fingerprint, row.query_to)
    )
    return [Point(*values) for values in connection.execute(statement)]


def newest_result(connection: Connection, key: SeriesKey) -> Point | None:
    """Return the newest point of a series that has a result."""
    row = metric_result.c
    return _first_point(connection, key, row.query_to.desc(), row.status == COMPLETED)


def result_near(connection: Connection, key: SeriesKey, moment: datetime) -> Point | None:
    """Return the result of the time before ``moment``, else the first one after it, else the last one before."""
    row = metric_result.c
    from_then_on = (row.status == COMPLETED, row.query_to >= moment)
    return _first_point(connection, key, row.query_to, *from_then_on) or newest_result(connection, key)


def newest_point(connection: Connection, key: SeriesKey) -> Point | None:
    """Return the newest point of a series, with a result or a failure."""
    return _first_point(connection, key, metric_result.c.query_to.desc())


def _first_point(
    connection: Connection,
    key: SeriesKey,
    order: sa.ColumnElement[Any],
    *conditions: sa.ColumnElement[bool],
) -> Point | None:
    row = metric_result.c
    statement = (
        sa.select(*_POINT)
        .where(
            row.experiment_id == key.experiment_id,
            row.metric_uuid == key.metric_uuid,
            row.fingerprint == key.fingerprint,
            *conditions,
        )
        .order_by(order)
        .limit(1)
    )
    values = connection.execute(statement).one_or_none()
    return None if values is None else Point(*values)


def newest(connection: Connection, key: SeriesKey, until: datetime) -> Newest | None:
    """Return the newest point, or failure, up to ``until``; None without any."""
    row = metric_result.c
    statement = (
        sa.select(
            row.query_to,
            row.updated_at,
            sa.case((row.status == FAILED, row.updated_at), else_=row.failed_at),
            row.named_state,
            row.log_offset,
        )
        .where(
            row.experiment_id == key.experiment_id,
            row.metric_uuid == key.metric_uuid,
            row.fingerprint == key.fingerprint,
            row.query_to <= until,
        )
        .order_by(row.query_to.desc())
        .limit(1)
    )
    values = connection.execute(statement).one_or_none()
    return None if values is None else Newest(*values)


def put_points(
    connection: Connection,
    key: SeriesKey,
    query_from: datetime,
    new: Sequence[NewPoint],
    zone: tzinfo,
    now: datetime,
) -> None:
    """Store results, replacing points of the same days.

    Points after the last one are deleted: the experiment ended before. An unchanged result of a finished day is
    left alone, unless it belongs to other tables, actions or cohorts.
    """
    last = max(point.query_to for point in new)
    stored, replaced = _by_day(connection, key, last, zone)
    rows, confirmed = [], []
    for point in new:
        old = stored.get((point.query_to - _MICROSECOND).astimezone(zone).date())
        if old is not None:
            if point.query_to != last and _is_same(old, point):
                if old.log_offset != point.log_offset:
                    confirmed.append({"point_id": old.id, "offset": point.log_offset})
                continue
            replaced.append(old.id)
        values = {field.name: getattr(point, field.name) for field in fields(NewPoint)}
        rows.append({**values, **_row(key, query_from, COMPLETED, old, now), "completed_at": now})
    if confirmed:
        own = metric_result.c.id == sa.bindparam("point_id")
        connection.execute(
            sa.update(metric_result).where(own).values(log_offset=sa.bindparam("offset")), confirmed
        )
    _replace(connection, replaced, rows)


def put_failure(
    connection: Connection,
    key: SeriesKey,
    query_from: datetime,
    query_to: datetime,
    reason: str,
    zone: tzinfo,
    now: datetime,
) -> None:
    """Store that the point of the last day could not be computed, beside an earlier result of that day."""
    stored, replaced = _by_day(connection, key, query_to, zone)
    old = stored.get((query_to - _MICROSECOND).astimezone(zone).date())
    if old is not None and old.status == COMPLETED:
        connection.execute(
            sa.update(metric_result)
            .where(metric_result.c.id == old.id)
            .values(error_message=reason, failed_at=now)
        )
        _replace(connection, replaced, [])
        return
    if old is not None:
        replaced.append(old.id)
    row = _row(key, query_from, FAILED, old, now)
    _replace(connection, replaced, [{**row, "query_to": query_to, "error_message": reason}])


def _by_day(
    connection: Connection, key: SeriesKey, last: datetime, zone: tzinfo
) -> tuple[dict[date, Point], list[int]]:
    """Return the stored points by day up to that of ``last``, and the ids of later ones."""
    last_day = (last - _MICROSECOND).astimezone(zone).date()
    stored = {point.day(zone): point for point in points(connection, key)}
    after = [point.id for day, point in stored.items() if day > last_day]
    return stored, after


def _is_same(old: Point, new: NewPoint) -> bool:
    """Return whether a point is already a result of the same time and definitions, without a later failure."""
    return (
        old.status == COMPLETED
        and old.failed_at is None
        and old.query_to == new.query_to
        and old.result == new.result
        and old.named_state == new.named_state
    )


def _row(
    key: SeriesKey, query_from: datetime, status: str, old: Point | None, now: datetime
) -> dict[str, Any]:
    """Return a row that replaces an old one, or none."""
    return {
        "experiment_id": key.experiment_id,
        "metric_uuid": key.metric_uuid,
        "fingerprint": key.fingerprint,
        "query_from": query_from,
        "status": status,
        "created_at": now if old is None else old.created_at,
        "updated_at": now,
    }


def _replace(connection: Connection, gone: Collection[int], rows: Sequence[Mapping[str, Any]]) -> None:
    if gone:
        connection.execute(sa.delete(metric_result).where(metric_result.c.id.in_(gone)))
    if rows:
        connection.execute(sa.insert(metric_result), rows)


def delete_points(connection: Connection, key: SeriesKey) -> None:
    row = metric_result.c
    connection.execute(
        sa.delete(metric_result).where(
            row.experiment_id == key.experiment_id,
            row.metric_uuid == key.metric_uuid,
            row.fingerprint == key.fingerprint,
        )
    )


# -- jobs ------------------------------------------------------------------------------------------------


def active_job(connection: Connection, experiment_id: int, fingerprint: str) -> Job | None:
    """Return the waiting or running job; there is at most one."""
    row = metric_recalculation.c
    statement = (
        sa.select(*_JOB)
        .where(
            row.experiment_id == experiment_id,
            row.fingerprint == fingerprint,
            row.status.in_(_ACTIVE),
        )
        .order_by(row.created_at)
        .limit(1)
    )
    values = connection.execute(statement).one_or_none()
    return None if values is None else Job(*values)


def active_jobs(connection: Connection) -> list[Job]:
    """Return every job that is waiting, or was running when the process ended, oldest first."""
    row = metric_recalculation.c
    statement = sa.select(*_JOB).where(row.status.in_(_ACTIVE)).order_by(row.created_at)
    return [Job(*values) for values in connection.execute(statement)]


def insert_job(
    connection: Connection,
    experiment_id: int,
    metric_uuid: str | None,
    fingerprint: str,
    metric: dict[str, Any],
    now: datetime,
) -> Job:
    job = Job(str(uuid4()), experiment_id, metric_uuid, fingerprint, metric, PENDING, None, None, now, now)
    values = {field.name: getattr(job, field.name) for field in fields(Job)}
    connection.execute(sa.insert(metric_recalculation).values(values))
    return job


def begin_job(connection: Connection, job_id: str, now: datetime) -> bool:
    """Mark a job as running; return whether it is unfinished."""
    row = metric_recalculation.c
    beginning = sa.update(metric_recalculation).where(row.id == job_id, row.status.in_(_ACTIVE))
    return bool(connection.execute(beginning.values(updated_at=now, status=IN_PROGRESS)).rowcount)


def end_job(connection: Connection, job_id: str, now: datetime, error: str | None) -> None:
    """Mark a job as finished."""
    values = (
        {"status": COMPLETED, "last_successful_date": now.date().isoformat()}
        if error is None
        else {"status": FAILED}
    )
    ending = sa.update(metric_recalculation).where(metric_recalculation.c.id == job_id)
    connection.execute(ending.values(updated_at=now, error_message=error, **values))


# -- jobs of all metrics ---------------------------------------------------------------------------------

KEPT_RECALCULATIONS = 20
"""Maximum number of stored jobs of one experiment; the oldest are deleted first."""


@dataclass(frozen=True, slots=True)
class Recalculation:
    """A request to compute all metrics of an experiment at one moment, with its results so far.

    ``results`` has one entry per computed metric: metric_uuid, status, result, error_message.
    """

    id: str
    experiment_id: int
    status: str
    trigger: str
    total_metrics: int
    results: list[dict[str, Any]]
    query_to: datetime | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


_RECALCULATION = tuple(experiment_recalculation.c[f.name] for f in fields(Recalculation))


def recalculations(
    connection: Connection, experiment_id: int, statuses: Collection[str] | None = None
) -> list[Recalculation]:
    """Return the jobs of an experiment, newest first."""
    row = experiment_recalculation.c
    statement = sa.select(*_RECALCULATION).where(row.experiment_id == experiment_id)
    if statuses is not None:
        statement = statement.where(row.status.in_(statuses))
    rows = connection.execute(statement.order_by(row.created_at.desc(), row.id))
    return [Recalculation(*values) for values in rows]


def active_recalculation(connection: Connection, experiment_id: int) -> Recalculation | None:
    """Return the waiting or running job of an experiment; there is at most one."""
    return next(iter(recalculations(connection, experiment_id, _ACTIVE)), None)


def waiting_recalculations(connection: Connection) -> list[tuple[int, Recalculation]]:
    """Return every job that is waiting, or was running when the process ended, with its project, oldest first."""
    row = experiment_recalculation.c
    statement = (
        sa.select(experiment_table.c.project_id, *_RECALCULATION)
        .where(row.status.in_(_ACTIVE), row.experiment_id == experiment_table.c.id)
        .order_by(row.created_at)
    )
    return [(project_id, Recalculation(*values)) for project_id, *values in connection.execute(statement)]


def insert_recalculation(
    connection: Connection, experiment_id: int, trigger: str, total: int, now: datetime
) -> Recalculation:
    """Store a new job; delete old ones beyond `KEPT_RECALCULATIONS`."""
    job = Recalculation(str(uuid4()), experiment_id, PENDING, trigger, total, [], None, now, None, None)
    table = experiment_recalculation
    old = [old_job.id for old_job in recalculations(connection, experiment_id)[KEPT_RECALCULATIONS - 1 :]]
    connection.execute(sa.delete(table).where(table.c.id.in_(old)))
    values = {field.name: getattr(job, field.name) for field in fields(Recalculation)}
    connection.execute(sa.insert(table).values(values))
    return job


def update_recalculation(connection: Connection, recalculation_id: str, **values: Any) -> bool:
    """Change an unfinished job; return whether there is one."""
    row = experiment_recalculation.c
    changing = sa.update(experiment_recalculation).where(row.id == recalculation_id, row.status.in_(_ACTIVE))
    return bool(connection.execute(changing.values(values)).rowcount)


# -- experiments -----------------------------------------------------------------------------------------

_EXPERIMENT = tuple(experiment_table.c[f.name] for f in fields(ExperimentRow))


def experiment(connection: Connection, experiment_id: int) -> ExperimentRow | None:
    """Return an experiment of any project, unless it is deleted."""
    row = experiment_table.c
    values = connection.execute(
        sa.select(*_EXPERIMENT).where(row.id == experiment_id, row.deleted.is_(False))
    ).one_or_none()
    return None if values is None else ExperimentRow(*values)


def lately_ended(connection: Connection, since: datetime) -> list[ExperimentRow]:
    """Return the experiments of all projects that ended after a moment and are not deleted."""
    row = experiment_table.c
    statement = sa.select(*_EXPERIMENT).where(
        row.start_date.is_not(None), row.end_date > since, row.deleted.is_(False)
    )
    return [ExperimentRow(*values) for values in connection.execute(statement.order_by(row.id))]
