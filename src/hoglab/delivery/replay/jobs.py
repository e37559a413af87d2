"""Work on the past that goes on in the background: backfills, and running past invocations again.

Each is a row with the place that it has reached, so that it can be watched, stopped, and gone on with by another
process.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

import sqlalchemy as sa

from hoglab.storage.database import Database
from hoglab.storage.database.tables import backfill

Job = dict[str, Any]
"""A row of the table ``backfill``."""

_column = backfill.c


class Kind(Enum):
    """What a job is about: stored events, or (with a ``selection``) past invocations."""

    BACKFILL = "backfill"
    RERUN = "rerun"

    @classmethod
    def of(cls, job: Job) -> Kind:
        return cls.BACKFILL if job["selection"] is None else cls.RERUN

    def rows(self) -> sa.ColumnElement[bool]:
        """Those of this kind."""
        return _column.selection.is_(None) if self is Kind.BACKFILL else _column.selection.is_not(None)


class Steps(Protocol):
    """How jobs of one kind are done. What `step` raises, apart from trouble with databases, ends the job."""

    def step(self, job: Job) -> None:
        """Do the next part of a job, and write the place reached with what it enqueues; `end` it after the last."""
        ...

    def end(self, job: Job, status: str, error: str | None = None) -> None:
        """Say that a job is over, in its row and in the function's log."""
        ...


class JobRunsError(Exception):
    """The function has one of the kind that is not over."""


class Jobs:
    """Those of one kind."""

    def __init__(self, database: Database, now: Callable[[], datetime], kind: Kind) -> None:
        self._database = database
        self._now = now
        self._kind = kind

    def _mine(self, project_id: int, function_id: str) -> tuple[sa.ColumnElement[bool], ...]:
        return self._kind.rows(), _column.project_id == project_id, _column.function_id == function_id

    def begin(self, job: Job, *, alone: bool) -> None:
        """Write a new one. ``alone``: only if the function has none that runs. Raises `JobRunsError`."""
        with self._database.write() as tx:
            mine = self._mine(job["project_id"], job["function_id"])
            running = sa.select(_column.id).where(*mine, _column.status == "running").limit(1)
            if alone and tx.connection.execute(running).first() is not None:
                raise JobRunsError
            tx.connection.execute(sa.insert(backfill).values(**job))

    def get(self, project_id: int, function_id: str, job_id: str) -> Job | None:
        query = sa.select(backfill).where(*self._mine(project_id, function_id), _column.id == job_id)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else dict(row)

    def page(self, project_id: int, function_id: str, limit: int, offset: int) -> tuple[list[Job], int]:
        """Those of a function, newest first, and how many there are."""
        mine = self._mine(project_id, function_id)
        newest = sa.select(backfill).where(*mine).order_by(_column.created_at.desc(), _column.id)
        with self._database.read() as connection:
            rows = connection.execute(newest.limit(limit).offset(offset)).mappings().all()
            count = connection.scalar(sa.select(sa.func.count()).select_from(backfill).where(*mine)) or 0
        return [dict(row) for row in rows], count

    def cancel(self, project_id: int, function_id: str, job_id: str) -> Job | None:
        """Stop one; what it has enqueued runs. One that is over stays as it is."""
        if self.get(project_id, function_id, job_id) is not None:
            self.finish(job_id, "cancelled")
        return self.get(project_id, function_id, job_id)

    def finish(self, job_id: str, status: str, error: str | None = None) -> bool:
        """Say that one is over; whether it was not before."""
        values = {"status": status, "error": error, "finished_at": self._now()}
        running = (_column.id == job_id, _column.status == "running")
        with self._database.write() as tx:
            return bool(tx.connection.execute(sa.update(backfill).where(*running).values(**values)).rowcount)


def running_jobs(database: Database) -> list[Job]:
    """Those of both kinds that are not over, oldest first."""
    query = sa.select(backfill).where(_column.status == "running").order_by(_column.created_at, _column.id)
    with database.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]
