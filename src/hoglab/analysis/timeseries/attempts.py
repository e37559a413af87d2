"""Computations of series that did not end, and when they are tried again.

What takes a server down leaves neither a result nor an error, and would do so again after each restart. So a
computation is a job, with a lease: one that a process before this one did not finish has failed. It waits like one that
ran out of time or of memory, longer each time.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from hoglab.analysis.errors import DidNotEndError, ResultsError
from hoglab.storage.database import Rebuildable
from hoglab.storage.job_leases import JobLostError, JobName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from hoglab.analysis.definitions import SeriesKey
    from hoglab.storage.database import Transaction
    from hoglab.storage.job_leases import JobLease, JobLeases, JobTries

FIRST_WAIT = timedelta(minutes=1)
"""Backoff of a computation after the first attempt that did not end; doubles with each further one."""
MAX_WAIT = timedelta(hours=6)
"""Maximum backoff."""
STOPPED = "The server stopped while it was computed"
"""Reason for the failure of a computation that took the server down, or was at work when something else did."""


class Attempts:
    """The tries of the series of metrics; those that ended well are forgotten. Thread-safe."""

    def __init__(self, jobs: JobLeases, now: Callable[[], datetime]) -> None:
        self._jobs = jobs
        self._now = now

    def of(self, key: SeriesKey) -> JobTries | None:
        """Return the tries of a series; None when the newest one ended well."""
        return self._jobs.of(_name(key))

    def waits(self, key: SeriesKey) -> bool:
        """Return whether a series is not to be tried yet."""
        return self.has_to_wait(self.of(key))

    def has_to_wait(self, tries: JobTries | None) -> bool:
        """Return whether the next try may not be yet."""
        if tries is None or tries.was_left or tries.retry_at is None:
            return False
        return self._now() < tries.retry_at

    def claimed(self, key: SeriesKey, *, wait_s: float = 0.0) -> AbstractContextManager[JobLease | None]:
        """Have a series to oneself during the block; None when somebody else has it."""
        return self._jobs.claimed(_name(key), wait_s=wait_s)

    @contextmanager
    def trying(self, key: SeriesKey) -> Iterator[None]:
        """Note what comes of the block, unless somebody is at the series itself.

        Raises `DidNotEndError` instead where a process before did not finish it.
        """
        with self.claimed(key) as lease:
            error: Exception | None = None
            try:
                if lease is not None:
                    check_tries(lease)
                yield
            except Exception as raised:
                error = raised
                raise
            finally:
                if lease is not None:
                    with suppress(JobLostError), self.writing(lease) as tx:
                        self.over(tx, lease, error)

    def writing(self, lease: JobLease) -> AbstractContextManager[Transaction]:
        """Return a transaction for what comes of a try. Raises `JobLostError`."""
        return self._jobs.writing(lease, rebuildable=Rebuildable.RESULTS)

    def over(self, tx: Transaction, lease: JobLease, error: Exception | None = None) -> None:
        """Note what came of a try. A result, or an error that costs little to get again, lets all be forgotten."""
        if error is None or (isinstance(error, ResultsError) and not isinstance(error, DidNotEndError)):
            self._jobs.end(tx, lease)
            return
        failures = lease.tries - lease.was_left  # to find that a try was left is none
        retry_at = self._now() + wait_after(failures)
        self._jobs.fail(tx, lease, str(error) or type(error).__name__, retry_at, tries=failures)


def check_tries(lease: JobLease, most: int = 1) -> None:
    """Raise `DidNotEndError` when the process before did not finish its try, which was not one of the first."""
    if lease.was_left and lease.tries > most:
        raise DidNotEndError(STOPPED)


def was_stopped(tries: JobTries | None) -> bool:
    """Return whether the newest try ended with the process."""
    return tries is not None and (tries.was_left or tries.error == STOPPED)


def wait_after(failures: int) -> timedelta:
    """Return the backoff of a computation after so many attempts that did not end."""
    doublings: int = min(failures - 1, 20)
    return min(MAX_WAIT, FIRST_WAIT * (1 << doublings))


def _name(key: SeriesKey) -> JobName:
    return JobName("series", f"{key.experiment_id}/{key.metric_uuid}/{key.fingerprint}")
