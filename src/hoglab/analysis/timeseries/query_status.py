"""Queries that are answered later: rows that every process can read, so that any of them knows the status."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.storage.database.tables import query_status
from hoglab.storage.job_leases import JobName

MAX_STATUSES = 1_000
"""Maximum number of queries whose status is stored; the oldest are dropped first."""
RETENTION = timedelta(hours=1)
"""Time for which the status of a query is stored, counted from the request."""

_row = query_status.c


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A query with its status and its outcome."""

    project_id: int
    id: str
    key: str
    """Key of the answer, equal for queries that ask the same."""
    query: dict[str, Any] | None
    """Query as it was sent; None when a request waits for it and computes it."""
    started_at: datetime
    ended_at: datetime | None = None
    answer: str | None = None
    """Answer, as JSON."""
    error: str | None = None
    cancelled: bool = False

    @property
    def complete(self) -> bool:
        return self.ended_at is not None

    @property
    def results(self) -> dict[str, Any] | None:
        """The answer."""
        results: dict[str, Any] | None = None if self.answer is None else orjson.loads(self.answer)
        return results

    @property
    def job(self) -> JobName:
        """The job of computing it."""
        return JobName("query", f"{self.project_id}/{self.id}")


_STATUS = sa.select(*(_row[field.name] for field in fields(QueryStatus)))
_IS_WAITING = sa.and_(_row.ended_at.is_(None), _row.query.is_not(None))


def read(connection: Connection, project_id: int, query_id: str) -> QueryStatus | None:
    """Return a query of a project."""
    row = connection.execute(_STATUS.where(*_is(project_id, query_id))).one_or_none()
    return None if row is None else QueryStatus(*row)


def waiting(connection: Connection, project_id: int, key: str) -> QueryStatus | None:
    """Return an unfinished query with the same key, of those that no request waits for."""
    same = _STATUS.where(_row.project_id == project_id, _row.key == key, _IS_WAITING)
    row = connection.execute(same.limit(1)).one_or_none()
    return None if row is None else QueryStatus(*row)


def count_waiting(connection: Connection) -> int:
    """Return the number of unfinished queries of all projects, of those that no request waits for."""
    return connection.scalar(sa.select(sa.func.count()).select_from(query_status).where(_IS_WAITING)) or 0


def insert(connection: Connection, status: QueryStatus) -> None:
    """Store a new query; where there are too many, the oldest finished ones are deleted."""
    has_ended = _row.ended_at.is_not(None)
    newest_first = sa.select(_row.started_at).where(has_ended).order_by(_row.started_at.desc())
    crowded_out = connection.scalar(newest_first.offset(MAX_STATUSES - 1).limit(1))
    if crowded_out is not None:
        connection.execute(sa.delete(query_status).where(has_ended, _row.started_at <= crowded_out))
    values = {field.name: getattr(status, field.name) for field in fields(QueryStatus)}
    connection.execute(sa.insert(query_status).values(values))


def end(connection: Connection, status: QueryStatus, now: datetime, **outcome: Any) -> bool:
    """Store the outcome of an unfinished query; return whether it was unfinished."""
    ending = sa.update(query_status).where(*_is(status.project_id, status.id), _row.ended_at.is_(None))
    return bool(connection.execute(ending.values(ended_at=now, **outcome)).rowcount)


def forget_old(connection: Connection, now: datetime) -> None:
    """Delete queries asked longer than `RETENTION` ago."""
    connection.execute(sa.delete(query_status).where(_row.started_at < now - RETENTION))


def _is(project_id: int, query_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return _row.project_id == project_id, _row.id == query_id
