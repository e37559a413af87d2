"""Computations that did not end, and when they are tried again.

What takes a server down leaves neither a result nor an error, and would do so again after each restart. So a
computation is noted before it begins: one that a process before this one did not finish has failed. It waits like one
that ran out of time or of memory, longer each time.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import sqlalchemy as sa

from hoglab.analysis.errors import DidNotEndError, ResultsError
from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import metric_attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from hoglab.analysis.definitions import SeriesKey
    from hoglab.storage.database import Database

FIRST_WAIT = timedelta(minutes=1)
"""Backoff of a computation after the first attempt that did not end; doubles with each further one."""
MAX_WAIT = timedelta(hours=6)
"""Maximum backoff."""
STOPPED = "The server stopped while it was computed"
"""Reason for the failure of a computation that took the server down, or was at work when something else did."""

_ROW = metric_attempt.c


@dataclass(frozen=True, slots=True)
class Attempt:
    """Outcome of the newest attempts at one computation."""

    failures: int
    """Number of attempts that did not end, the one at work among them."""
    retry_at: datetime
    begun_by: str | None
    """The process that is at it; None when nobody is."""
    stopped: bool
    """Whether the newest one ended with the server."""


class Attempts:
    """The tries of all computations; those that ended well are forgotten. One for each process, thread-safe."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now
        self._process = str(uuid4())

    def begin(self, key: SeriesKey) -> None:
        """Note that a computation begins. Raises `DidNotEndError` when a process before did not finish it."""
        with self._database.write(rebuildable=Rebuildable.RESULTS) as tx:
            known = self._read(tx.connection, key)
            if known is not None and self.was_left(known):
                raise DidNotEndError(STOPPED)
            failures = 1 if known is None else known.failures + (known.begun_by is None)
            self._put(tx.connection, key, failures, begun_by=self._process)

    @contextmanager
    def trying(self, key: SeriesKey) -> Iterator[None]:
        """Note that the computation of the block begins, and what came of it.

        Raises `DidNotEndError` instead where a process before did not finish it.
        """
        error: Exception | None = None
        try:
            self.begin(key)
            yield
        except Exception as raised:
            error = raised
            raise
        finally:
            with self._database.write(rebuildable=Rebuildable.RESULTS) as tx:
                self.over(tx.connection, key, error)

    def over(self, connection: Connection, key: SeriesKey, error: Exception | None = None) -> None:
        """Note what came of it: a result, or an error that costs little to get again, lets the tries be forgotten."""
        if error is None or (isinstance(error, ResultsError) and not isinstance(error, DidNotEndError)):
            connection.execute(sa.delete(metric_attempt).where(*_is(key)))
            return
        known = self._read(connection, key)
        failures = 1 if known is None else known.failures
        self._put(connection, key, failures, stopped=known is not None and self.was_left(known))

    def of(self, key: SeriesKey) -> Attempt | None:
        """The tries of a computation; None when the newest one ended well."""
        with self._database.read() as connection:
            return self._read(connection, key)

    def was_left(self, attempt: Attempt) -> bool:
        """Whether a process before was at it when it stopped."""
        return attempt.begun_by is not None and attempt.begun_by != self._process

    def waits(self, key: SeriesKey) -> bool:
        """Whether a computation is not to be tried yet."""
        known = self.of(key)
        return known is not None and known.begun_by is None and self._now() < known.retry_at

    def close(self) -> None:
        """Forget what is at work: it is not its fault that the server ends."""
        own = _ROW.begun_by == self._process
        with self._database.write(rebuildable=Rebuildable.RESULTS) as tx:
            tx.execute(sa.delete(metric_attempt).where(own, _ROW.failures <= 1))
            tx.execute(sa.update(metric_attempt).where(own).values(begun_by=None, failures=_ROW.failures - 1))

    def _put(
        self,
        connection: Connection,
        key: SeriesKey,
        failures: int,
        *,
        begun_by: str | None = None,
        stopped: bool = False,
    ) -> None:
        connection.execute(sa.delete(metric_attempt).where(*_is(key)))
        connection.execute(
            sa.insert(metric_attempt).values(
                experiment_id=key.experiment_id,
                metric_uuid=key.metric_uuid,
                fingerprint=key.fingerprint,
                failures=failures,
                retry_at=self._now() + wait_after(failures),
                begun_by=begun_by,
                stopped=stopped,
            )
        )

    def _read(self, connection: Connection, key: SeriesKey) -> Attempt | None:
        statement = sa.select(_ROW.failures, _ROW.retry_at, _ROW.begun_by, _ROW.stopped).where(*_is(key))
        found = connection.execute(statement).one_or_none()
        return None if found is None else Attempt(*found)


def wait_after(failures: int) -> timedelta:
    """Backoff of a computation after so many attempts that did not end."""
    doublings: int = min(failures - 1, 20)
    return min(MAX_WAIT, FIRST_WAIT * (1 << doublings))


def _is(key: SeriesKey) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _ROW.experiment_id == key.experiment_id,
        _ROW.metric_uuid == key.metric_uuid,
        _ROW.fingerprint == key.fingerprint,
    )
