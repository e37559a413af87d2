"""Traces of runs, in the tables ``log_entry``, ``app_metric`` and ``invocation_result``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database.tables import app_metric, invocation, invocation_result, log_entry
from hoglab.storage.invocations.runs import HourlyCount, InvocationResult, LogLine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement

    from hoglab.storage.database import Database
    from hoglab.storage.invocations.queue import InvocationQueue
    from hoglab.storage.invocations.runs import (
        AppMetric,
        HourQuery,
        LogEntry,
        LogQuery,
        ResultSelection,
    )

WRITERS_WAIT_S = 2.0
"""Time for which followers of a log wait for a line that another process is writing, before they go on without it."""
WRITERS_POLL_S = 0.01

_APP_SOURCE = "hog_function"
_LINE = [log_entry.c[name] for name in LogLine.__struct_fields__]
_RESULT = [invocation_result.c[name] for name in InvocationResult.__struct_fields__]
_line = log_entry.c
_metric = app_metric.c
_result = invocation_result.c
_SNAPSHOT = sa.func.pg_current_snapshot()
_BEGUN = sa.cast(sa.cast(sa.func.pg_snapshot_xmax(_SNAPSHOT), sa.Text), sa.BigInteger)
_AT_WORK = sa.cast(sa.cast(sa.func.pg_snapshot_xmin(_SNAPSHOT), sa.Text), sa.BigInteger)


def _await_writers(database: Database) -> None:
    """Wait until the transactions are over that are at work in PostgreSQL now, which may have lower ids than others."""
    deadline = time.monotonic() + WRITERS_WAIT_S
    with database.read() as connection:
        begun = connection.scalar(sa.select(_BEGUN))
    while time.monotonic() < deadline:
        with database.read() as connection:
            if (connection.scalar(sa.select(_AT_WORK)) or 0) >= (begun or 0):
                return
        time.sleep(WRITERS_POLL_S)


class RunStore:
    """Store of logs, metrics and results of runs. Blocking methods, from any thread; they raise `DatabaseError`.

    The queue writes most of it, in the transactions of its own (`InvocationQueue.finish`).
    """

    def __init__(self, database: Database, writer: InvocationQueue) -> None:
        """Read the runs in the tables that ``writer``, the queue, writes in its own transactions."""
        self._database = database
        self._writer = writer
        self._settled_log_id = 0

    def write_logs(self, logs: Sequence[LogEntry]) -> None:
        """Add log lines outside of any turn."""
        self._writer.write_logs(logs)

    def write_metrics(self, metrics: Sequence[AppMetric]) -> None:
        """Count metrics outside of any turn."""
        self._writer.write_metrics(metrics)

    def logs(self, project_id: int, source_id: str, wanted: LogQuery) -> list[LogLine]:
        """Return the newest matching lines of one function, newest first."""
        clauses: list[ColumnElement[bool]] = [
            _line.project_id == project_id,
            _line.log_source_id == source_id,
        ]
        if wanted.after is not None:
            clauses.append(_line.timestamp > wanted.after)
        if wanted.before is not None:
            clauses.append(_line.timestamp < wanted.before)
        if wanted.levels is not None:
            clauses.append(_line.level.in_([level.lower() for level in wanted.levels]))
        if wanted.search:
            clauses.append(_line.message.icontains(wanted.search, autoescape=True))
        if wanted.instance_id is not None:
            clauses.append(_line.instance_id == wanted.instance_id)
        newest = sa.select(*_LINE).where(*clauses).order_by(_line.timestamp.desc(), _line.id.desc())
        with self._database.read() as connection:
            return [LogLine(*row) for row in connection.execute(newest.limit(wanted.limit))][wanted.offset :]

    def last_log_id(self) -> int:
        """Return the id of the newest line, 0 without any. Lines that come later have higher ids."""
        with self._database.read() as connection:
            newest: int = connection.scalar(sa.select(sa.func.max(_line.id))) or 0
        if self._database.is_shared and newest != self._settled_log_id:
            _await_writers(self._database)
        self._settled_log_id = newest
        return newest

    def new_logs(self, source_ids: Collection[str], after: int, until: int, limit: int) -> list[LogLine]:
        """Return lines of functions with ids above ``after`` and up to ``until``, oldest first."""
        lines = (
            sa.select(*_LINE)
            .where(_line.id > after, _line.id <= until, _line.log_source_id.in_(source_ids))
            .order_by(_line.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [LogLine(*row) for row in connection.execute(lines)]

    def last_errors(self, source_ids: Collection[str], among: int) -> dict[str, LogLine]:
        """Return the last error in each function's log, as far as it is among its newest ``among`` lines."""
        by_function = {}
        with self._database.read() as connection:
            for source_id in source_ids:
                mine = sa.select(*_LINE).where(_line.log_source_id == source_id)
                newest = mine.order_by(_line.timestamp.desc()).limit(among).subquery()
                errors = (
                    sa.select(newest).where(newest.c.level == "error").order_by(newest.c.timestamp.desc())
                )
                row = connection.execute(errors.limit(1)).first()
                if row is not None:
                    by_function[source_id] = LogLine(*row)
        return by_function

    def hourly_counts(self, project_id: int, source_id: str, wanted: HourQuery) -> list[HourlyCount]:
        """Return the counts of a function's metrics, by the hour."""
        label = _metric.metric_name if wanted.by_name else _metric.metric_kind
        clauses: list[ColumnElement[bool]] = [
            _metric.project_id == project_id,
            _metric.app_source == _APP_SOURCE,
            _metric.app_source_id == source_id,
            _metric.hour >= wanted.since,
            _metric.hour <= wanted.until,
        ]
        if wanted.names is not None:
            clauses.append(_metric.metric_name.in_(wanted.names))
        if wanted.kinds is not None:
            clauses.append(_metric.metric_kind.in_(wanted.kinds))
        if wanted.instance_id is not None:
            clauses.append(_metric.instance_id == wanted.instance_id)
        sums = sa.select(label, _metric.hour, sa.func.sum(_metric.count)).where(*clauses)
        with self._database.read() as connection:
            rows = connection.execute(sums.group_by(label, _metric.hour))
            return [HourlyCount(label, hour, int(count)) for label, hour, count in rows]

    def counts(
        self, project_id: int, names: Collection[str], since: datetime
    ) -> Mapping[tuple[str, str], int]:
        """Return counts of metrics in the hours since, by function and name."""
        columns = (_metric.app_source_id, _metric.metric_name)
        sums = sa.select(*columns, sa.func.sum(_metric.count)).where(
            _metric.project_id == project_id,
            _metric.app_source == _APP_SOURCE,
            _metric.hour >= since,
            _metric.metric_name.in_(names),
        )
        with self._database.read() as connection:
            rows = connection.execute(sums.group_by(*columns))
            return {(source_id, name): count for source_id, name, count in rows}

    # -- results ------------------------------------------------------------------------------------

    def results(
        self, project_id: int, function_id: str, statuses: Collection[str] | None, limit: int
    ) -> list[InvocationResult]:
        """Return results of a function, those that were due last first."""
        clauses = [_result.project_id == project_id, _result.function_id == function_id]
        if statuses is not None:
            clauses.append(_result.status.in_(statuses))
        newest = sa.select(*_RESULT).where(*clauses).order_by(_result.scheduled_at.desc()).limit(limit)
        with self._database.read() as connection:
            return [InvocationResult(*row) for row in connection.execute(newest)]

    def next_attempts(self, ids: Collection[str]) -> dict[str, datetime]:
        """Return times of the next attempts of those invocations that wait."""
        column = invocation.c
        waiting = sa.select(column.id, column.scheduled_at)
        waiting = waiting.where(column.id.in_(ids), column.status == "available")
        with self._database.read() as connection:
            return {row.id: row.scheduled_at for row in connection.execute(waiting)}

    def last_version(self) -> int:
        """Return the highest version of a result, 0 without any."""
        with self._database.read() as connection:
            return connection.scalar(sa.select(sa.func.max(_result.version))) or 0

    def repeatable(self, wanted: ResultSelection, limit: int | None) -> tuple[int, int]:
        """Return the number of matching results, the oldest up to ``limit``; and how many of these can be run again."""
        ready = sa.and_(_result.invocation_globals.is_not(None), _result.status != "running")
        rows = (
            sa.select(sa.case((ready, 1), else_=0).label("ready"))
            .where(*_clauses(wanted))
            .order_by(_result.scheduled_at)
            .limit(limit)
            .subquery()
        )
        sums = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(rows.c.ready), 0)).select_from(rows)
        with self._database.read() as connection:
            total, repeatable = connection.execute(sums).one()
        return int(total), int(repeatable)

    def extent(self, wanted: ResultSelection) -> tuple[int, datetime | None]:
        """Return the number of matching results, and the time when the last of them was due."""
        extent = sa.select(sa.func.count(), sa.func.max(_result.scheduled_at)).where(*_clauses(wanted))
        with self._database.read() as connection:
            count, newest = connection.execute(extent).one()
        return count, newest

    def page(
        self, wanted: ResultSelection, after: datetime, last: datetime, *, size: int, limit: int | None
    ) -> tuple[list[InvocationResult], datetime]:
        """Return results due after a moment and up to ``last``, oldest first, and the moment up to which these are all.

        About ``size`` of them: all that were due at the same moment are on one page, but for what exceeds ``limit``.
        """
        moment = _result.scheduled_at
        here = (*_clauses(wanted), moment > after, moment <= last)
        with self._database.read() as connection:
            full = sa.select(moment).where(*here).order_by(moment).offset(size - 1).limit(1)
            last = connection.scalar(full) or last
            query = sa.select(*_RESULT).where(*here, moment <= last)
            rows = connection.execute(query.order_by(moment, _result.invocation_id).limit(limit))
            return [InvocationResult(*row) for row in rows], last


def _clauses(wanted: ResultSelection) -> Iterator[ColumnElement[bool]]:
    yield _result.project_id == wanted.project_id
    yield _result.function_id == wanted.function_id
    yield _result.status.in_(wanted.statuses)
    yield _result.scheduled_at.is_not(None)
    if wanted.since is not None:
        yield _result.scheduled_at >= wanted.since
    if wanted.until is not None:
        yield _result.scheduled_at < wanted.until
    if wanted.invocation_ids is not None:
        yield _result.invocation_id.in_(wanted.invocation_ids)
    if wanted.error_kinds is not None:
        yield _result.error_kind.in_(wanted.error_kinds)
    if wanted.message_part:
        yield _result.error_message.icontains(wanted.message_part, autoescape=True)
    if wanted.max_attempts is not None:
        yield _result.attempts <= wanted.max_attempts
