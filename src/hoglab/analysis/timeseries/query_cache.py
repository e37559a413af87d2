"""Answers that are kept, and work that goes on after its request: what surrounds the ``/query`` endpoint.

A kept answer stands for its question: the definition, the settings and the time asked about. It is fresh while the
event store holds nothing newer, for `FRESH_FOR` at most and within one day of the project, because days are counted
(spec experiment-results 0, 11.7). Everything is in memory: a restart forgets it.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from hoglab.analysis.cancellation import Cancellation, cancellable
from hoglab.analysis.errors import ComputationError, DefinitionError, DidNotEndError, wire_error
from hoglab.analysis.query.days import day_of, zone_of
from hoglab.http.errors import ApiError, WireError, validation_error

if TYPE_CHECKING:
    from hoglab.http.identity import Project

FRESH_FOR = timedelta(hours=24)
"""Maximum time for which an answer is fresh."""
MAX_KEPT = 500
"""Maximum number of answers that are kept; those that were not asked for longest go first."""
MAX_STATUSES = 1_000
"""Maximum number of asynchronous queries whose status is kept."""
MAX_WAITING = 100
"""Maximum number of asynchronous queries that wait or run; further ones are refused."""
WORKERS = 2
"""Number of asynchronous queries that run at the same time; each uses all processors."""
FIRST_WAIT = timedelta(seconds=30)
"""Time for which a query that ran out of time or memory is refused, with its error; doubles with each further one."""
MAX_WAIT = timedelta(hours=1)
"""And at most."""
CANCEL_PATIENCE_S = 2.0
"""Time for which a request to cancel waits for the query to end."""
CANCEL_INTERVAL_S = 0.02

_log = structlog.get_logger(__name__)


class RefreshMode(StrEnum):
    """Mode of a query: when it is computed, and whether its request waits for that."""

    BLOCKING = "blocking"
    FORCE_BLOCKING = "force_blocking"
    ASYNC = "async"
    ASYNC_EXCEPT_ON_CACHE_MISS = "async_except_on_cache_miss"
    LAZY_ASYNC = "lazy_async"
    FORCE_ASYNC = "force_async"
    FORCE_CACHE = "force_cache"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query that has been understood: what it is, and how it is computed."""

    key: str
    """Equal for queries that ask the same."""
    day: date
    """The project's day at which it is asked."""
    compute: Callable[[], dict[str, Any]]
    """Raises `hoglab.http.errors.ApiError`."""
    fresh_for: timedelta = FRESH_FOR
    finish: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Function applied to an answer whenever it is given."""
    keeps: bool = True
    """Whether the answer is worth keeping; work that stores what it finds by itself has none."""

    @classmethod
    def of(
        cls,
        project: Project,
        now: datetime,
        identity: object,
        work: Callable[[], dict[str, Any]],
        **options: Any,
    ) -> PreparedQuery:
        """``identity`` holds everything that decides the answer, apart from events and the time of asking."""
        key = hashlib.sha256(repr((project.id, project.timezone, identity)).encode()).hexdigest()
        return cls(key, day_of(now, zone_of(project.timezone)), lambda: _explained(work), **options)


def _explained(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except DefinitionError as error:
        raise validation_error(str(error)) from error
    except ComputationError as error:
        raise wire_error(error) from error


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer, and what it was computed from."""

    key: str
    answer: dict[str, Any]
    computed_at: datetime
    position: int
    """Position of the event store."""
    day: date


@dataclass(slots=True)
class Status:
    """An asynchronous query as its owner sees it."""

    project_id: int
    key: str
    started_at: datetime
    id: str = field(default_factory=lambda: str(uuid4()))
    kept: CachedAnswer | None = None
    error: WireError | None = None
    cancelled: bool = False
    ended_at: datetime | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def complete(self) -> bool:
        return self.ended_at is not None

    def cancel(self, patience_s: float) -> None:
        """Ask it to end until it does, for a while.

        An engine forgets an interrupt that comes just before a statement begins.
        """
        deadline = time.monotonic() + patience_s
        while not self.ended.is_set() and time.monotonic() < deadline:
            self.cancellation.request()
            self.ended.wait(CANCEL_INTERVAL_S)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A query that did not end, so many times in a row."""

    times: int
    retry_at: datetime
    text: str


def _did_not_end(text: str, wait: timedelta) -> ApiError:
    headers = {"Retry-After": str(max(1, math.ceil(wait.total_seconds())))}
    return ApiError(429, "throttled_error", "query_limit", text, headers=headers)


class Queries:
    """Keeps answers and statuses, runs what is asynchronous. Thread-safe."""

    def __init__(self, *, now: Callable[[], datetime], position: Callable[[], int]) -> None:
        """``position`` tells how far the event store is."""
        self._now = now
        self._position = position
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._failed: OrderedDict[str, _Failed] = OrderedDict()
        self._statuses: OrderedDict[str, Status] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def cached(self, query: PreparedQuery, *, fresh: bool) -> CachedAnswer | None:
        """The kept answer to a query; with ``fresh`` only when it needs no computation."""
        with self._lock:
            found = self._kept.get(query.key)
            if found is None or (fresh and not self._is_fresh(found, query)):
                return None
            self._kept.move_to_end(query.key)
            return found

    def _is_fresh(self, found: CachedAnswer, query: PreparedQuery) -> bool:
        return (
            found.day == query.day
            and found.position == self._position()
            and self._now() - found.computed_at < query.fresh_for
        )

    def compute(self, query: PreparedQuery) -> CachedAnswer:
        """Compute and keep an answer. Raises `ApiError`; for one that did not end, 429 at once until its time comes."""
        position, now = self._position(), self._now()
        with self._lock:
            failed = self._failed.get(query.key)
        if failed is not None and now < failed.retry_at:
            raise _did_not_end(failed.text, failed.retry_at - now)
        try:
            answer = query.compute()
        except ApiError as error:
            if not isinstance(error.__cause__, DidNotEndError):
                raise
            wait = self._note_failure(query.key, 0 if failed is None else failed.times, str(error.__cause__))
            raise _did_not_end(str(error.__cause__), wait) from error
        cached = CachedAnswer(query.key, answer, now, position, query.day)
        with self._lock:
            self._failed.pop(query.key, None)
            if not query.keeps:
                return cached
            self._kept[query.key] = cached
            self._kept.move_to_end(query.key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return cached

    def _note_failure(self, key: str, times: int, text: str) -> timedelta:
        """Note that a query did not end, after so many times; how long it waits."""
        wait = min(FIRST_WAIT * (1 << min(times, 16)), MAX_WAIT)
        with self._lock:
            self._failed[key] = _Failed(times + 1, self._now() + wait, text)
            self._failed.move_to_end(key)
            while len(self._failed) > MAX_KEPT:
                self._failed.popitem(last=False)
        return wait

    def blocking(self, query: PreparedQuery, project_id: int, query_id: str | None) -> CachedAnswer:
        """Compute now; under ``query_id`` it can be cancelled meanwhile. Raises `ApiError`."""
        status = Status(project_id, query.key, self._now())
        if query_id is not None:
            with self._lock:
                status.id = query_id
                known = self._statuses.setdefault(query_id, status) is not status
                self._forget_old()
            if known:
                return self.compute(query)
        try:
            with cancellable(status.cancellation):
                status.kept = self.compute(query)
        except WireError as error:
            status.error = error
            raise
        finally:
            with self._lock:
                status.cancelled = status.cancellation.requested and status.kept is None
                status.ended_at = self._now()
            status.ended.set()
        return status.kept

    # -- asynchronous ----------------------------------------------------------------------------------

    def submit(self, query: PreparedQuery, project_id: int, query_id: str | None = None) -> Status:
        """Compute in the background. A query that is being computed already is joined. Raises `ApiError` 429."""
        with self._lock:
            active = [each for each in self._statuses.values() if not each.complete]
            for running in active:
                if running.key == query.key and running.project_id == project_id:
                    return running
            if self._closed or len(active) >= MAX_WAITING:
                raise ApiError(
                    429,
                    "throttled_error",
                    "query_limit",
                    "Too many queries are waiting",
                    headers={"Retry-After": "30"},
                )
            status = Status(project_id, query.key, self._now())
            if query_id is not None and query_id not in self._statuses:
                status.id = query_id
            self._statuses[status.id] = status
            self._forget_old()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="query")
            self._pool.submit(self._run, query, status)
        return status

    def _forget_old(self) -> None:
        for identifier in [each.id for each in self._statuses.values() if each.complete]:
            if len(self._statuses) <= MAX_STATUSES:
                return
            del self._statuses[identifier]

    def _run(self, query: PreparedQuery, status: Status) -> None:
        kept: CachedAnswer | None = None
        error: WireError | None = None
        try:
            if not status.cancellation.requested:
                with cancellable(status.cancellation):
                    kept = self.compute(query)
        except WireError as refused:
            error = refused
        except Exception as unexpected:
            _log.exception("query_failed", query_id=status.id)
            error = ApiError(500, "server_error", "error", f"Internal error: {type(unexpected).__name__}")
        with self._lock:
            status.cancelled = status.cancellation.requested and kept is None
            status.kept, status.error = kept, None if status.cancelled else error
            status.ended_at = self._now()
        status.ended.set()

    def status(self, project_id: int, query_id: str) -> Status | None:
        """A snapshot of an asynchronous query of the project; None for an unknown one."""
        with self._lock:
            found = self._statuses.get(query_id)
            return replace(found) if found is not None and found.project_id == project_id else None

    def cancel(self, project_id: int, query_id: str) -> bool:
        """Ask a query to end; whether there is one."""
        with self._lock:
            found = self._statuses.get(query_id)
        if found is None or found.project_id != project_id:
            return False
        found.cancel(CANCEL_PATIENCE_S)
        return True

    def close(self) -> None:
        """Cancel everything and wait for it for a while."""
        with self._lock:
            self._closed = True
            pool, running = self._pool, [each for each in self._statuses.values() if not each.complete]
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + CANCEL_PATIENCE_S
        for status in running:  # those that had not begun never end
            status.cancel(min(CANCEL_PATIENCE_S / WORKERS, deadline - time.monotonic()))
