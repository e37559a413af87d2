"""Jobs in the table ``backfill``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import backfill
from hoglab.storage.invocations.jobs import JobKind, JobOverError, JobRunsError, ReplayJob

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.storage.database import Database
    from hoglab.storage.invocations.jobs import JobStep

_column = backfill.c
_COLUMNS = {name: name for name in ReplayJob.__dataclass_fields__} | {
    "already_run": "settled",
    "dead_letters": "put_aside",
}
"""Columns of the fields of a job."""
_JOB = [_column[column].label(name) for name, column in _COLUMNS.items()]
_RUNNING = _column.status == "running"


class Jobs:
    """The jobs of all functions. Blocking methods, called from any thread; they raise `DatabaseError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, job: ReplayJob, *, alone: bool) -> None:
        """Store a new job. ``alone``: only if the function has none of its kind that runs. Raises `JobRunsError`."""
        mine = _mine(job.kind, job.project_id, job.function_id)
        with self._database.write() as tx:
            if (
                alone
                and tx.execute(sa.select(_column.id).where(*mine, _RUNNING).limit(1)).first() is not None
            ):
                raise JobRunsError
            values = {column: getattr(job, name) for name, column in _COLUMNS.items()}
            tx.execute(sa.insert(backfill).values(values))

    def get(self, kind: JobKind, project_id: int, function_id: str, job_id: str) -> ReplayJob | None:
        query = sa.select(*_JOB).where(*_mine(kind, project_id, function_id), _column.id == job_id)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else ReplayJob(**row)

    def page(
        self, kind: JobKind, project_id: int, function_id: str, limit: int, offset: int
    ) -> tuple[list[ReplayJob], int]:
        """Return the jobs of a function, newest first, and how many there are."""
        mine = _mine(kind, project_id, function_id)
        newest = sa.select(*_JOB).where(*mine).order_by(_column.created_at.desc(), _column.id)
        with self._database.read() as connection:
            rows = connection.execute(newest.limit(limit).offset(offset)).mappings()
            jobs = [ReplayJob(**row) for row in rows]
            count = connection.scalar(sa.select(sa.func.count()).select_from(backfill).where(*mine)) or 0
        return jobs, count

    def running(self) -> list[ReplayJob]:
        """Return the unfinished jobs of all kinds, oldest first."""
        query = sa.select(*_JOB).where(_RUNNING).order_by(_column.created_at, _column.id)
        with self._database.read() as connection:
            return [ReplayJob(**row) for row in connection.execute(query).mappings()]

    def advance(self, step: JobStep, queued: int) -> None:
        """Record progress of a job that enqueues nothing with it (else the queue records it). Raises `JobOverError`."""
        here = (_column.id == step.id, _column.cursor == step.before, _RUNNING)
        values = {
            "cursor": step.cursor,
            "seen": _column.seen + step.seen,
            "queued": _column.queued + queued,
            "settled": _column.settled + step.already_run,
            "put_aside": _column.put_aside + step.dead_letters,
        }
        with self._database.write(rebuildable=Rebuildable.BACKFILL_PROGRESS) as tx:
            if not tx.execute(sa.update(backfill).where(*here).values(**values)).rowcount:
                raise JobOverError(step.id)

    def finish(self, job_id: str, status: str, at: datetime, error: str | None = None) -> bool:
        """Record that a job is over, and return whether it was not before."""
        over = sa.update(backfill).where(_column.id == job_id, _RUNNING)
        with self._database.write() as tx:
            return bool(tx.execute(over.values(status=status, error=error, finished_at=at)).rowcount)


def _mine(kind: JobKind, project_id: int, function_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    is_kind = _column.selection.is_(None) if kind is JobKind.BACKFILL else _column.selection.is_not(None)
    return is_kind, _column.project_id == project_id, _column.function_id == function_id
