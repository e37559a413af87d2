"""Leases of jobs: which process works on which job, the outcomes of earlier tries, and the time of the next one.

What is to be done stands in tables of the rooms that want it done. A job has a row here from its first claim until it
ends well. Writers of the database take turns, so that of several processes that claim a job one gets it. A lease ends
some time after its last renewal. The results of a job are written in a transaction that finds its lease, which each
claim gives a new token. So a process that was paused, and whose job another one took meanwhile, writes nothing.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import sqlalchemy as sa
import structlog

from hoglab.background import STOP_TIMEOUT_S, BackgroundService
from hoglab.storage.database import DatabaseError, Rebuildable
from hoglab.storage.database.tables.jobs import job
from hoglab.storage.database.types import now_micros
from hoglab.storage.database.upsert import upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.storage.database import Database, Transaction

LEASE_S = 15.0
"""Lifetime of a lease after its last renewal; then the job is another's."""
RENEW_S = 1.0
"""Interval of renewals, and of looks at whether somebody did not renew."""
POLL_S = 0.05
KEPT_FOR_S = 7 * 86_400.0
"""Retention of the tries of a job that is not tried again."""

_row = job.c
_EXPIRED = sa.and_(_row.token.is_not(None), _row.leased_until < now_micros())
_AT_WORK = sa.and_(_row.token.is_not(None), _row.leased_until >= now_micros())
_TRIES = sa.select(
    _row.tries, _row.retry_at, _row.error, _AT_WORK.label("is_at_work"), _EXPIRED.label("was_left")
)

_log = structlog.get_logger(__name__)


class JobLostError(Exception):
    """Another process took the job, or somebody cancelled it: nothing was written."""


class JobName(NamedTuple):
    """The kind of a job, and what it is about: at most one process is at it."""

    kind: str
    subject: str


@dataclass(frozen=True, slots=True)
class JobTries:
    """Outcome of the newest tries of a job that has not ended well."""

    count: int
    """Number of tries, the one at work among them."""
    retry_at: datetime | None
    error: str | None
    """Reason why the newest one did not end well, in one line."""
    is_at_work: bool
    was_left: bool
    """Whether a process that ended was at it, or one that does not renew its lease."""


@dataclass(frozen=True, slots=True)
class JobLease:
    """A job that this process has to itself."""

    name: JobName
    token: str
    tries: int
    """Number of tries, this one among them."""
    was_left: bool
    """Whether the process of the try before ended, or was paused for long."""


class JobLeases(BackgroundService):
    """Background service that renews the leases of this process. The other methods may be called from any thread."""

    NAME = "job-leases"

    def __init__(self, database: Database, *, lease_s: float = LEASE_S) -> None:
        super().__init__()
        self._database = database
        self._lease_us = int(lease_s * 1e6)
        self._held: dict[str, Callable[[], object] | None] = {}
        self._lock = threading.Lock()
        self._expired: frozenset[str] = frozenset()
        self.on_expired: list[Callable[[], object]] = []
        """Functions that are called when the lease of another process has run out."""

    # -- life ------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """End every lease. Call this at the start of a process beside which no other process takes jobs."""
        with self._database.write(rebuildable=Rebuildable.JOB_LEASES) as tx:
            tx.execute(sa.update(job).where(_row.token.is_not(None)).values(leased_until=now_micros() - 1))

    def round(self) -> float:
        """Renew what is held, and tell those whose job was taken away, or is to be had."""
        held = self._holding()
        try:
            self._renew(held)
            self._tell_of_expired()
        except DatabaseError as error:
            _log.warning("job_leases_not_renewed", jobs=len(held), reason=str(error))
        return RENEW_S

    def _renew(self, held: set[str]) -> None:
        if held:
            mine = (
                sa.update(job).where(_row.token.in_(held)).values(leased_until=now_micros() + self._lease_us)
            )
            with self._database.write(rebuildable=Rebuildable.JOB_LEASES) as tx:
                renewed = set(tx.execute(mine.returning(_row.token)).scalars())
            for token in held - renewed:
                on_lost = self._forget(token)
                if on_lost is not None:
                    on_lost()

    def _tell_of_expired(self) -> None:
        with self._database.read(durable=False) as connection:
            expired = frozenset(connection.scalars(sa.select(_row.token).where(_EXPIRED)))
        fresh, self._expired = expired - self._expired, expired
        for tell in self.on_expired if fresh else ():
            tell()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop and give back the leases; their tries do not count, for the jobs did not fail."""
        super().stop(timeout_s)
        for token in self._holding():
            self._give_back(token)

    def forget_old(self) -> None:
        """Forget jobs that nobody has tried for long: what they were about is gone."""
        with self._database.write(rebuildable=Rebuildable.EXPIRED) as tx:
            tx.execute(sa.delete(job).where(_row.leased_until < now_micros() - int(KEPT_FOR_S * 1e6)))

    # -- jobs ------------------------------------------------------------------------------------------

    def of(self, name: JobName) -> JobTries | None:
        """Return the tries of a job; None for one that nobody is at, and whose newest try ended well."""
        with self._database.read(durable=False) as connection:
            return _tries(connection, name)

    def waiting(self, kind: str, now: datetime) -> set[str]:
        """Return subjects of the jobs of a kind that are not to be tried yet."""
        statement = sa.select(_row.subject).where(
            _row.kind == kind, _row.token.is_(None), _row.retry_at > now
        )
        with self._database.read(durable=False) as connection:
            return set(connection.scalars(statement))

    @contextmanager
    def claimed(
        self,
        name: JobName,
        *,
        wait_s: float = 0.0,
        on_lost: Callable[[], object] | None = None,
    ) -> Iterator[JobLease | None]:
        """Provide a job during the block; None when another process works on it, and still does after ``wait_s``.

        Unless `end` or `fail` were called the job is given back at the end of the block, as if it had not been tried.
        ``on_lost`` is called when another process turns out to have it meanwhile.
        """
        deadline = time.monotonic() + wait_s
        while (lease := self._claim(name, on_lost)) is None and time.monotonic() < deadline:
            self._await(name, deadline)
        try:
            yield lease
        finally:
            if lease is not None and lease.token in self._holding():
                self._give_back(lease.token)

    def _await(self, name: JobName, deadline: float) -> None:
        """Wait until nobody is at a job: who looks does not keep others from writing."""
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            tries = self.of(name)
            if tries is None or not tries.is_at_work:
                return

    def _claim(self, name: JobName, on_lost: Callable[[], object] | None) -> JobLease | None:
        with self._database.write(rebuildable=Rebuildable.JOB_LEASES) as tx:
            known = _tries(tx.connection, name)
            if known is not None and known.is_at_work:
                return None
            lease = JobLease(
                name,
                str(uuid4()),
                1 if known is None else known.count + 1,
                was_left=known is not None and known.was_left,
            )
            values: dict[str, Any] = {
                **name._asdict(),
                "tries": lease.tries,
                "token": lease.token,
                "leased_until": tx.connection.scalar(sa.select(now_micros() + self._lease_us)),
            }
            upsert(tx.connection, job, values, update=values.keys() - {"kind", "subject"})
        with self._lock:
            self._held[lease.token] = on_lost
        return lease

    @contextmanager
    def writing(self, lease: JobLease, *, rebuildable: Rebuildable | None) -> Iterator[Transaction]:
        """Provide a transaction for the results of a job; without ``rebuildable`` they are on disk at its end.

        Raises `JobLostError`, before anything is written.
        """
        with self._database.write(rebuildable=rebuildable) as tx:
            if tx.connection.scalar(sa.select(_row.token).where(_row.token == lease.token)) is None:
                raise JobLostError(f"{lease.name.kind} {lease.name.subject} was taken over or cancelled")
            yield tx

    def end(self, tx: Transaction, lease: JobLease) -> None:
        """Note that a job ended well, and forget its tries."""
        tx.execute(sa.delete(job).where(_row.token == lease.token))
        self._forget(lease.token)

    def fail(
        self, tx: Transaction, lease: JobLease, error: str, retry_at: datetime, *, tries: int | None = None
    ) -> None:
        """Note why a try did not end well, and when the next one may be. ``tries``: how many count, if not all."""
        tx.execute(
            sa.update(job)
            .where(_row.token == lease.token)
            .values(token=None, tries=lease.tries if tries is None else tries, error=error, retry_at=retry_at)
        )
        self._forget(lease.token)

    def cancel(self, tx: Transaction, name: JobName) -> None:
        """Take a job away from the process that works on it."""
        tx.execute(sa.delete(job).where(*_is(name)))

    # -- what is held ----------------------------------------------------------------------------------

    def _holding(self) -> set[str]:
        with self._lock:
            return set(self._held)

    def _forget(self, token: str) -> Callable[[], object] | None:
        with self._lock:
            return self._held.pop(token, None)

    def _give_back(self, token: str) -> None:
        """Let others have a job, as if it had not been tried; a lease that cannot be given back runs out."""
        self._forget(token)
        mine = _row.token == token
        try:
            with self._database.write(rebuildable=Rebuildable.JOB_LEASES) as tx:
                tx.execute(sa.delete(job).where(mine, _row.tries <= 1))
                tx.execute(sa.update(job).where(mine).values(token=None, tries=_row.tries - 1))
        except DatabaseError as error:
            _log.warning("job_not_given_back", error=str(error))


def _is(name: JobName) -> tuple[sa.ColumnElement[bool], ...]:
    return _row.kind == name.kind, _row.subject == name.subject


def _tries(connection: Connection, name: JobName) -> JobTries | None:
    row = connection.execute(_TRIES.where(*_is(name))).one_or_none()
    return None if row is None else JobTries(*row)
