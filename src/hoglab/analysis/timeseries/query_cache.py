"""Cached answers, and work that continues after its request: the support of the ``/query`` endpoint.

A cached answer stands for its question: the definition, the settings and the time asked about. It is fresh while the
event store has nothing newer, for `FRESH_FOR` at most and within one day of the project, because days are counted
(spec experiment-results 0, 11.7). Answers are cached in memory: a restart forgets them.

A query to be answered later is in the database, with its answer (`query_status`). Computing it is a job: a process
that is asked for its status, and finds that no process computes it, continues it.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from hoglab.analysis.cancellation import Cancellation, cancellable
from hoglab.analysis.errors import ComputationError, DefinitionError, DidNotEndError, wire_error
from hoglab.analysis.query.days import day_of, zone_of
from hoglab.analysis.timeseries import query_status
from hoglab.analysis.timeseries.query_status import QueryStatus
from hoglab.http.errors import ApiError, WireError, validation_error
from hoglab.http.responses import encode_json
from hoglab.storage.database import DatabaseError, Rebuildable
from hoglab.storage.job_leases import JobLostError

if TYPE_CHECKING:
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.job_leases import JobLease, JobLeases

FRESH_FOR = timedelta(hours=24)
"""Maximum time for which an answer is fresh."""
MAX_CACHED = 500
"""Maximum number of cached answers; the ones unused for longest are dropped first."""
MAX_WAITING = 100
"""Maximum number of asynchronous queries that wait or run; further ones are refused."""
WORKERS = 2
"""Number of asynchronous queries that run at the same time; each uses all processors."""
FIRST_WAIT = timedelta(seconds=30)
"""Time for which a query that ran out of time or memory is refused, with its error; doubles with each failure."""
MAX_WAIT = timedelta(hours=1)
"""Maximum time for which such a query is refused."""
CANCEL_PATIENCE_S = 2.0
"""Time for which a request to cancel waits for the query to end."""
CANCEL_INTERVAL_S = 0.02
MAX_TRIES = 2
"""Maximum number of attempts of a query; each of them was ended by the end of its process."""
STOPPED = "The server stopped while it was computed; ask again"
CANCELLED = "Query was cancelled"

_log = structlog.get_logger(__name__)


class RefreshMode(StrEnum):
    """Mode of a query: when it is computed, and whether its request waits for the answer."""

    BLOCKING = "blocking"
    FORCE_BLOCKING = "force_blocking"
    ASYNC = "async"
    ASYNC_EXCEPT_ON_CACHE_MISS = "async_except_on_cache_miss"
    LAZY_ASYNC = "lazy_async"
    FORCE_ASYNC = "force_async"
    FORCE_CACHE = "force_cache"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query ready to be computed: its key, and its computation."""

    key: str
    """Key of the answer, equal for queries that ask the same."""
    day: date
    """Day of the project on which it is asked."""
    compute: Callable[[], dict[str, Any]]
    """Function that computes the answer. Raises `hoglab.http.errors.ApiError`."""
    fresh_for: timedelta = FRESH_FOR
    finish: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Function applied to an answer each time it is returned."""
    is_cacheable: bool = True
    """Whether the answer is worth caching; work that stores its results itself has none."""

    @classmethod
    def of(
        cls,
        project: Project,
        now: datetime,
        identity: object,
        work: Callable[[], dict[str, Any]],
        **options: Any,
    ) -> PreparedQuery:
        """Prepare a query; ``identity`` holds everything that decides the answer, besides events and the time."""
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
    """An answer, with the position and the day of its computation."""

    key: str
    answer: dict[str, Any]
    computed_at: datetime
    position: int
    """Position of the event store."""
    day: date


@dataclass(slots=True)
class Computation:
    """A query that this process computes, as the waiting requests of this process see it."""

    kept: CachedAnswer | None = None
    error: WireError | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def was_cancelled(self) -> bool:
        """Whether somebody cancelled the query before it had an answer."""
        return self.cancellation.requested and self.kept is None

    def run(self, compute: Callable[[], CachedAnswer]) -> None:
        """Compute the answer, unless the query was cancelled before. Errors are stored."""
        try:
            if not self.cancellation.requested:
                with cancellable(self.cancellation):
                    self.kept = compute()
        except WireError as refused:
            self.error = refused
        except Exception as unexpected:
            _log.exception("query_failed")
            self.error = ApiError(
                500, "server_error", "error", f"Internal error: {type(unexpected).__name__}"
            )

    def cancel(self, patience_s: float) -> None:
        """Cancel the query again and again until it ends, for a limited time.

        An engine forgets an interrupt that comes just before a statement begins.
        """
        deadline = time.monotonic() + patience_s
        while not self.ended.is_set() and time.monotonic() < deadline:
            self.cancellation.request()
            self.ended.wait(CANCEL_INTERVAL_S)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A query that did not end, with the number of its failures in a row."""

    times: int
    retry_at: datetime
    text: str


def _did_not_end(text: str, wait: timedelta) -> ApiError:
    headers = {"Retry-After": str(max(1, math.ceil(wait.total_seconds())))}
    return ApiError(429, "throttled_error", "query_limit", text, headers=headers)


class QueryRunner:
    """Cached answers and asynchronous queries. Thread-safe."""

    def __init__(
        self,
        database: Database,
        jobs: JobLeases,
        *,
        now: Callable[[], datetime],
        position: Callable[[], int],
    ) -> None:
        """Take the function ``position``, which tells how far the event store is."""
        self._database = database
        self._jobs = jobs
        self._now = now
        self._position = position
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._failed: OrderedDict[str, _Failed] = OrderedDict()
        self._running: dict[Hashable, Computation] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def cached(self, query: PreparedQuery, *, fresh: bool) -> CachedAnswer | None:
        """Return the cached answer to a query; with ``fresh`` only when it needs no computation."""
        with self._lock:
            answer = self._kept.get(query.key)
            if answer is None or (fresh and not self._is_fresh(answer, query)):
                return None
            self._kept.move_to_end(query.key)
            return answer

    def _is_fresh(self, cached: CachedAnswer, query: PreparedQuery) -> bool:
        return (
            cached.day == query.day
            and cached.position == self._position()
            and self._now() - cached.computed_at < query.fresh_for
        )

    def compute(self, query: PreparedQuery) -> CachedAnswer:
        """Compute and cache an answer. Raises `ApiError`; for a query that did not end, 429 until its next attempt."""
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
            if not query.is_cacheable:
                return cached
            self._kept[query.key] = cached
            self._kept.move_to_end(query.key)
            while len(self._kept) > MAX_CACHED:
                self._kept.popitem(last=False)
        return cached

    def _note_failure(self, key: str, times: int, text: str) -> timedelta:
        """Record that a query did not end, with the number of its failures; return its waiting time."""
        wait = min(FIRST_WAIT * (1 << min(times, 16)), MAX_WAIT)
        with self._lock:
            self._failed[key] = _Failed(times + 1, self._now() + wait, text)
            self._failed.move_to_end(key)
            while len(self._failed) > MAX_CACHED:
                self._failed.popitem(last=False)
        return wait

    # -- in the background, for who waits here -----------------------------------------------------------

    def submit(self, query: PreparedQuery) -> Computation:
        """Compute in the background. A query that is already being computed is joined. Raises `ApiError` 429."""
        return self._begin(query.key, lambda computation: computation.run(lambda: self.compute(query)))

    def _begin(self, name: Hashable, run: Callable[[Computation], object]) -> Computation:
        with self._lock:
            known = self._running.get(name)
            if known is not None:
                return known
            if self._closed or len(self._running) >= MAX_WAITING:
                raise _too_many()
            computation = self._running[name] = Computation()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="query")

            def work() -> None:
                try:
                    run(computation)
                except Exception:
                    _log.exception("query_failed")
                finally:
                    self._end(name, computation)

            self._pool.submit(work)
        return computation

    def _end(self, name: Hashable, computation: Computation) -> None:
        with self._lock:
            del self._running[name]
        computation.ended.set()

    # -- with a status, which other processes see --------------------------------------------------------

    def blocking(self, query: PreparedQuery, project_id: int, query_id: str | None) -> CachedAnswer:
        """Compute now; under ``query_id`` the query can be cancelled meanwhile. Raises `ApiError`."""
        if query_id is None:
            return self.compute(query)
        status = QueryStatus(project_id, query_id, query.key, None, self._now())
        computation = Computation()
        with self._jobs.claimed(status.job, on_lost=computation.cancellation.request) as lease:
            if lease is None or not self._announced(status):
                return self.compute(query)  # another one has that id
            with self._lock:
                self._running[status.job] = computation
            try:
                computation.run(lambda: self.compute(query))
            finally:
                self._end(status.job, computation)
            self._store(status, lease, computation)
        if computation.kept is None:
            raise computation.error or validation_error(CANCELLED)
        return computation.kept

    def _announced(self, status: QueryStatus) -> bool:
        with self._database.write(rebuildable=Rebuildable.QUERY_STATUS) as tx:
            known = query_status.read(tx.connection, status.project_id, status.id)
            if known is None:
                query_status.insert(tx.connection, status)
        return known is None

    def ask(
        self, query: PreparedQuery, project_id: int, asked: Mapping[str, Any], query_id: str | None = None
    ) -> QueryStatus:
        """Compute the query ``asked`` later. One that is already being computed is joined. Raises `ApiError` 429."""
        if self._closed:
            raise _too_many()
        with self._database.write(rebuildable=Rebuildable.QUERY_STATUS) as tx:
            status = query_status.waiting(tx.connection, project_id, query.key)
            if status is None:
                if query_status.count_waiting(tx.connection) >= MAX_WAITING:
                    raise _too_many()
                if query_id is None or query_status.read(tx.connection, project_id, query_id) is not None:
                    query_id = str(uuid4())
                status = QueryStatus(project_id, query_id, query.key, dict(asked), self._now())
                query_status.insert(tx.connection, status)
        if not self._is_at_work(status):
            self._resume(status, lambda: query)
        return status

    def status(
        self, project_id: int, query_id: str, prepare: Callable[[Mapping[str, Any]], PreparedQuery]
    ) -> QueryStatus | None:
        """Return the status of a query of the project; None for an unknown one.

        When no process computes it any more, it is started again here, as ``prepare`` reads it.
        """
        status = self._read(project_id, query_id)
        if status is None or status.complete or self._is_at_work(status):
            return status
        status = self._read(project_id, query_id)  # it may just have ended
        if status is None or status.complete:
            return status
        asked = status.query
        if asked is None:  # the request that waited for it went with its process
            return replace(status, ended_at=self._now(), error=STOPPED)
        self._resume(status, lambda: prepare(asked))
        return status

    def _read(self, project_id: int, query_id: str) -> QueryStatus | None:
        with self._database.read(durable=False) as connection:
            return query_status.read(connection, project_id, query_id)

    def _is_at_work(self, status: QueryStatus) -> bool:
        tries = self._jobs.of(status.job)
        return tries is not None and tries.is_at_work

    def _resume(self, status: QueryStatus, prepare: Callable[[], PreparedQuery]) -> None:
        """Compute a query here; where too many are running it waits for the next request for its status."""
        with suppress(ApiError):
            self._begin(status.job, lambda computation: self._carry_out(status, prepare, computation))

    def _carry_out(
        self, status: QueryStatus, prepare: Callable[[], PreparedQuery], computation: Computation
    ) -> None:
        with self._jobs.claimed(status.job, on_lost=computation.cancellation.request) as lease:
            if lease is None:
                return
            present = self._read(status.project_id, status.id)
            if present is None or present.complete:
                return
            if lease.was_left and lease.tries > MAX_TRIES:
                computation.error = ApiError(500, "server_error", "error", STOPPED)
            else:
                computation.run(lambda: self.compute(prepare()))
            if self._closed and computation.was_cancelled:
                return  # nobody but the end of the server wanted that: another process computes it
            self._store(status, lease, computation)

    def _store(self, status: QueryStatus, lease: JobLease, computation: Computation) -> None:
        """Store the outcome of a query, unless it was cancelled; an outcome that cannot be stored is computed again."""
        kept, error = computation.kept, computation.error
        try:
            with self._jobs.writing(lease, rebuildable=Rebuildable.QUERY_STATUS) as tx:
                query_status.end(
                    tx.connection,
                    status,
                    self._now(),
                    answer=None if kept is None else encode_json(kept.answer).decode(),
                    error=None if error is None else str((error.body or {}).get("detail")),
                    cancelled=computation.was_cancelled,
                )
                self._jobs.end(tx, lease)
        except (JobLostError, DatabaseError) as reason:
            _log.warning("query_not_stored", query_id=status.id, reason=str(reason))

    def cancel(self, project_id: int, query_id: str) -> bool:
        """Cancel a query; return whether it exists. It ends at once; processes computing it elsewhere notice soon."""
        status = self._read(project_id, query_id)
        if status is None:
            return False
        if not status.complete:
            with self._database.write(rebuildable=Rebuildable.QUERY_STATUS) as tx:
                if query_status.end(tx.connection, status, self._now(), cancelled=True):
                    self._jobs.cancel(tx, status.job)
        with self._lock:
            here = self._running.get(status.job)
        if here is not None:
            here.cancel(CANCEL_PATIENCE_S)
        return True

    def forget_old(self) -> None:
        """Delete old queries."""
        with self._database.write(rebuildable=Rebuildable.EXPIRED) as tx:
            query_status.forget_old(tx.connection, self._now())

    def start(self) -> None:
        """Do nothing: threads start with the first query."""

    def stop(self, timeout_s: float = CANCEL_PATIENCE_S) -> None:
        """Cancel the computations of this process, and wait a while. Queries with a status are left for the next."""
        with self._lock:
            self._closed = True
            pool, running = self._pool, list(self._running.values())
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + min(timeout_s, CANCEL_PATIENCE_S)
        for computation in running:  # those that had not begun never end
            computation.cancel(min(CANCEL_PATIENCE_S / WORKERS, deadline - time.monotonic()))


def _too_many() -> ApiError:
    return ApiError(
        429,
        "throttled_error",
        "query_limit",
        "Too many queries are waiting",
        headers={"Retry-After": "30"},
    )
