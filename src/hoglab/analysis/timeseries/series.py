"""The daily points of metrics, updated and stored (spec experiment-results 7.1, 11.5)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.definitions import FINAL_AFTER, SeriesKey, final_at, query_to
from hoglab.analysis.errors import ComputationError, DefinitionError, ResultsError
from hoglab.analysis.presentation import result_object
from hoglab.analysis.query import all_days_at_once
from hoglab.analysis.query.days import day_of, zone_of
from hoglab.analysis.query.scope import exclusive
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.attempts import Attempts, check_tries
from hoglab.analysis.timeseries.single_flight import SingleFlight
from hoglab.analysis.timeseries.store import COMPLETED, NewPoint
from hoglab.storage.job_leases import JobLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.execution import Computer
    from hoglab.analysis.query.model import Question, Span
    from hoglab.analysis.timeseries.store import Failure, Newest, Point
    from hoglab.storage.database import Database
    from hoglab.storage.job_leases import JobLease, JobLeases

REFRESH_S = 60.0
"""Age of the newest point above which a request has it computed again."""
REQUEST_BUDGET_S = 20.0
"""Time for which a request computes missing days one by one; the background computes the rest."""
CONCURRENT_COMPUTATIONS = 2
"""Number of series that are computed at the same time; each statement uses all processors."""
MAX_EXAMINED = 10_000
"""Maximum number of settled series with a remembered offset up to which nothing changed them."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Examined:
    """Log offsets between which nothing changed a settled series, and the time of the check."""

    since: int
    until: int
    at: datetime


class Series:
    """The series of all metrics. Thread-safe: requests for the same series wait for one computation."""

    def __init__(
        self,
        database: Database,
        computer: Computer,
        jobs: JobLeases,
        *,
        position: Callable[[], int],
        refresh_s: float,
        wait_s: float,
        now: Callable[[], datetime],
    ) -> None:
        """Take the services of the series; ``position`` is the log offset up to which everything is stored.

        ``wait_s`` limits the wait for another computation of the same series, or for a free place.
        """
        self._database = database
        self._computer = computer
        self._position = position
        self._refresh = timedelta(seconds=refresh_s)
        self._wait_s = wait_s
        self._now = now
        self.attempts = Attempts(jobs, now)
        self._flights = SingleFlight(CONCURRENT_COMPUTATIONS)
        self._examined: dict[SeriesKey, _Examined] = {}

    # -- reading ---------------------------------------------------------------------------------------

    def last_failure(self, key: SeriesKey) -> Failure | None:
        """Return the failure of the last computation of a series; None when it did not fail."""
        with self._database.read() as connection:
            newest = store.newest_point(connection, key)
        return None if newest is None else newest.failure

    def has_result(self, key: SeriesKey) -> bool:
        """Return whether any day of a series has a result."""
        with self._database.read() as connection:
            return store.newest_result(connection, key) is not None

    def is_final(
        self,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        newest: Newest,
        *,
        looked: timedelta | None = None,
    ) -> bool:
        """Return whether the newest point is the final one of an ended experiment.

        It is final when it was written `FINAL_AFTER` after the last moment that counts, and nothing stored since
        changes it: history may be sent, and persons may be merged, long afterwards. ``looked`` is the age up to
        which an earlier check for such changes suffices.
        """
        now, end_date, span = self._now(), inputs.row.end_date, inputs.span(self._now())
        if end_date is None or now < end_date or span is None or newest.query_to < exclusive(span.end):
            return False
        if newest.named_state != self._named_state(inputs, metric):
            return False
        try:
            question = inputs.question(metric, span)
            settled = final_at(question, end_date)
            if newest.failed_at is not None or newest.log_offset is None:
                return False
            if newest.written < settled + FINAL_AFTER:
                return False
            looked = self._refresh if looked is None else looked
            return not self._has_changed(inputs.key(metric), question, newest.log_offset, settled, looked)
        except DefinitionError:
            return newest.tried >= end_date + FINAL_AFTER
        except ComputationError:
            return True  # what is stored can be shown without the event store

    def _has_changed(
        self, key: SeriesKey, question: Question, since: int, until: datetime, looked: timedelta
    ) -> bool:
        """Return whether anything stored behind the log offset ``since`` changes a point of a series."""
        now, after = self._now(), since
        known = self._examined.get(key)
        if known is not None and known.since == since:
            if now - known.at < looked:
                return False
            after = known.until
        offset = self._position()
        if offset < after or (offset > after and self._computer.changes(question, after, until)):
            return True
        if len(self._examined) >= MAX_EXAMINED:
            self._examined.clear()
        self._examined[key] = _Examined(since, offset, now)
        return False

    def _is_fresh(self, inputs: ExperimentInputs, metric: Mapping[str, Any], key: SeriesKey) -> bool:
        now = self._now()
        span = inputs.span(now)
        if span is None or span.days is None:
            return True
        tries = self.attempts.of(key)
        if tries is not None and tries.was_left:
            return False  # that it failed is to be stored
        if self.attempts.has_to_wait(tries):
            return True
        last = query_to(span, span.days.count - 1)
        with self._database.read() as connection:
            newest = store.newest(connection, key, last)
        if newest is None:
            return False
        if self.is_final(inputs, metric, newest):
            return True
        if newest.failed_at is not None and now - newest.failed_at < self._refresh:
            return True  # a result that could not be brought up to date is not tried again at once
        if newest.named_state != self._named_state(inputs, metric):
            return False
        same_day = _day(newest.query_to, span) == _day(last, span)
        return same_day and now - newest.tried < self._refresh

    def _named_state(self, inputs: ExperimentInputs, metric: Mapping[str, Any]) -> str | None:
        """Return a digest of the tables, actions and cohorts that decide a metric.

        The result is None without any.
        """
        tables = self._computer.state_of_tables(inputs.tables_of(metric))
        edited = inputs.edited(metric)
        return tables if not edited else hashlib.sha256(repr((tables, edited)).encode()).hexdigest()

    # -- computing -------------------------------------------------------------------------------------

    def is_fresh(self, inputs: ExperimentInputs, metric: Mapping[str, Any], *, newest: bool = False) -> bool:
        """Return whether the points of a metric can be shown unchanged; ``newest``: whether nothing new is stored."""
        key = inputs.key(metric)
        if not self._is_fresh(inputs, metric, key):
            return False
        if not newest or self.attempts.waits(key):  # one that did not end is not tried again at once
            return True
        with self._database.read() as connection:
            point = store.newest_result(connection, key)
        silent = inputs.row.only_count_matured_users and inputs.row.end_date is None
        return point is not None and point.log_offset == self._position() and not silent

    def refresh(
        self,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        *,
        force: bool = False,
        due: Callable[[], bool] | None = None,
    ) -> None:
        """Bring the points of one metric up to date, unless they are fresh or another process computes them.

        With ``due`` they are updated only if it is still true, without waiting for another computation.
        """
        key = inputs.key(metric)
        stale = due or (lambda: force or not self._is_fresh(inputs, metric, key))
        if due is None and not stale():
            return
        whole = force or due is not None

        def work() -> None:
            with self.attempts.claimed(key, wait_s=0 if due else self._wait_s) as lease:
                if lease is not None and (lease.was_left or stale()):
                    self._compute(inputs, metric, key, lease, budget_s=None if whole else REQUEST_BUDGET_S)

        if not self._flights.run(key, work, wait_s=self._wait_s):
            _log.info("results_refresh_skipped", experiment_id=key.experiment_id, metric_uuid=key.metric_uuid)

    def recompute(self, inputs: ExperimentInputs, metric: Mapping[str, Any], key: SeriesKey) -> bool:
        """Compute the points of a metric, which need not be the experiment's, under ``key``.

        Return False when too many other computations are running.
        """
        computed = False

        def work() -> None:
            nonlocal computed
            with self.attempts.claimed(key, wait_s=self._wait_s) as lease:
                if lease is not None:
                    self._compute(inputs, metric, key, lease, budget_s=None)
                    computed = True

        return self._flights.run(key, work, wait_s=self._wait_s) and computed

    def _compute(
        self,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        key: SeriesKey,
        lease: JobLease,
        *,
        budget_s: float | None,
    ) -> None:
        """Compute and store points. A failure is stored with the last day, beside a result of that day.

        With a budget, days that need a statement each are computed newest first until it is used up.
        """
        span = inputs.span(self._now())
        if span is None or span.days is None:
            return
        zone = zone_of(inputs.project.timezone)
        points: list[NewPoint] = []
        failure: Exception | None = None
        try:
            check_tries(lease)
            question = inputs.question(metric, span)
            # Both are taken before anything is read: what changes meanwhile is looked at again.
            offset = self._position()
            state = self._named_state(inputs, metric)
            points = self._points(inputs, question, key, state, offset, budget_s)
        except Exception as error:
            failure = error
            tell = _log.warning if isinstance(error, ResultsError) else _log.exception
            tell(
                "results_failed",
                experiment_id=key.experiment_id,
                metric_uuid=key.metric_uuid,
                reason=reason_of(error),
            )
        try:
            with self.attempts.writing(lease) as tx:
                if failure is None:
                    store.put_points(tx.connection, key, span.start, points, zone, self._now())
                else:
                    last, reason = query_to(span, span.days.count - 1), reason_of(failure)
                    store.put_failure(tx.connection, key, span.start, last, reason, zone, self._now())
                self.attempts.over(tx, lease, failure)
        except JobLostError as error:
            _log.warning("results_not_stored", reason=str(error))

    def _points(
        self,
        inputs: ExperimentInputs,
        question: Question,
        key: SeriesKey,
        named_state: str | None,
        offset: int,
        budget_s: float | None,
    ) -> list[NewPoint]:
        span = question.span
        assert span.days is not None  # noqa: S101 - made by ExperimentInputs.span
        last = span.days.count - 1
        is_whole = all_days_at_once(question)
        kept: dict[int, Point] = {}
        if not is_whole:
            kept = self._still_right(question, self._past_points(key, span, named_state), offset)
        deadline = None if budget_s is None else time.monotonic() + budget_s
        groups = dict(self._computer.points(question, [last]))
        missing = [number for number in range(last) if number not in groups and number not in kept]
        for number in reversed(missing):
            if deadline is not None and time.monotonic() >= deadline:
                break
            groups.update(self._computer.points(question, [number]))
        variants, config = list(inputs.calculation.variants), inputs.calculation.statistics
        results = {
            number: result_object(answer, variants, config, question.metric)
            for number, answer in groups.items()
        }
        results |= {number: point.result for number, point in kept.items() if point.result is not None}
        return [
            NewPoint(
                query_to(span, number),
                results[number],
                named_state=named_state,
                log_offset=None if is_whole and number != last else offset,
            )
            for number in sorted(results)
        ]

    def _past_points(self, key: SeriesKey, span: Span, named_state: str | None) -> dict[int, Point]:
        """Return the stored results of days that are over, by the number of the day.

        A point from within a day does not stand for the whole day, and one with other files, another action or
        other members of a cohort does not count.
        """
        assert span.days is not None  # noqa: S101 - made by ExperimentInputs.span
        with self._database.read() as connection:
            stored = {
                point.query_to: point
                for point in store.points(connection, key)
                if point.status == COMPLETED and point.named_state == named_state
            }
        moments = {number: query_to(span, number) for number in range(span.days.count - 1)}
        return {number: stored[moment] for number, moment in moments.items() if moment in stored}

    def _still_right(self, question: Question, past: Mapping[int, Point], offset: int) -> dict[int, Point]:
        """Return the points that no later change affects.

        A point is cumulative, so that a late event or a merge changes it and the points of all later days. A point
        whose events no longer exist is computed again, and so is one without a note of its events.
        """
        known = {
            number: (point, point.log_offset)
            for number, point in past.items()
            if point.log_offset is not None and point.log_offset <= offset
        }
        since = min((counted for _, counted in known.values()), default=offset)
        changed = {} if since == offset else self._computer.changes(question, since, question.span.end)
        days = range(max(known, default=-1) + 1)
        changed_until = list(accumulate((changed.get(number, 0) for number in days), max))
        return {
            number: point for number, (point, counted) in known.items() if changed_until[number] <= counted
        }


def reason_of(error: Exception) -> str:
    """Return the reason why a computation failed, in one line."""
    return str(error) if isinstance(error, ResultsError) else f"Internal error: {type(error).__name__}"


def _day(exclusive_end: datetime, span: Span) -> date | None:
    if span.days is None:
        return None
    return day_of(exclusive_end - timedelta(microseconds=1), span.days.zone)
