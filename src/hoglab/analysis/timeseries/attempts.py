"""Computations of series that did not end, and the time of their next attempt.

A computation that takes a server down leaves neither a result nor an error, and would do so after each restart. So a
computation is a job with a lease: one that an earlier process did not finish has failed. It waits like one that ran
out of time or of memory, longer after each failure.
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
"""Reason for the failure of a computation that was running when the server stopped."""


class Attempts:
    """The attempts to compute the series of metrics; successful ones are forgotten. Thread-safe."""

    def __init__(self, jobs: JobLeases, now: Callable[[], datetime]) -> None:
        self._jobs = jobs
        self._now = now

    def of(self, key: SeriesKey) -> JobTries | None:
        """Return the attempts of a series; None when the newest one ended well."""
        return self._jobs.of(_name(key))

    def waits(self, key: SeriesKey) -> bool:
        """Return whether a series must wait for its next attempt."""
        return self.has_to_wait(self.of(key))

    def has_to_wait(self, tries: JobTries | None) -> bool:
        """Return whether the next attempt must wait."""
        if tries is None or tries.was_left or tries.retry_at is None:
            return False
        return self._now() < tries.retry_at

    def claimed(self, key: SeriesKey, *, wait_s: float = 0.0) -> AbstractContextManager[JobLease | None]:
        """Claim a series during the block; yield None when another process has it."""
        return self._jobs.claimed(_name(key), wait_s=wait_s)

    @contextmanager
    def trying(self, key: SeriesKey) -> Iterator[None]:
        """Record the outcome of the block, unless another process computes the series.

        Raises `DidNotEndError` instead where an earlier process did not finish the series.
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
        """Return a transaction for the outcome of an attempt. Raises `JobLostError`."""
        return self._jobs.writing(lease, rebuildable=Rebuildable.RESULTS)

    def over(self, tx: Transaction, lease: JobLease, error: Exception | None = None) -> None:
        """Record the outcome of an attempt. A result, or an error that is cheap to repeat, clears all attempts."""
        if error is None or (isinstance(error, ResultsError) and not isinstance(error, DidNotEndError)):
            self._jobs.end(tx, lease)
            return
        failures = lease.tries - lease.was_left  # to find that a try was left is none
        retry_at = self._now() + wait_after(failures)
        self._jobs.fail(tx, lease, str(error) or type(error).__name__, retry_at, tries=failures)


def check_tries(lease: JobLease, most: int = 1) -> None:
    """Raise `DidNotEndError` when the last process left its attempt unfinished, after ``most`` attempts."""
    if lease.was_left and lease.tries > most:
        raise DidNotEndError(STOPPED)


def was_stopped(tries: JobTries | None) -> bool:
    """Return whether the newest attempt ended with the process."""
    return tries is not None and (tries.was_left or tries.error == STOPPED)


def wait_after(failures: int) -> timedelta:
    """Return the backoff of a computation after a number of attempts that did not end."""
    doublings: int = min(failures - 1, 20)
    return min(MAX_WAIT, FIRST_WAIT * (1 << doublings))


def _name(key: SeriesKey) -> JobName:
    return JobName("series", f"{key.experiment_id}/{key.metric_uuid}/{key.fingerprint}")
