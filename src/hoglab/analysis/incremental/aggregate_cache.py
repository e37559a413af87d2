"""Aggregate cache: results in work proportional to the new events (spec experiment-results 11.2 to 11.5).

`hoglab.analysis.incremental.materialization` says what is stored. This module updates and reads it: logs grow by the
events ingested since (`hoglab.analysis.incremental.cache_tables`), contributions by what follows from them
(`hoglab.analysis.incremental.refresh`), and the answer is a sum. A failure of the cache leaves the caller without an
answer from it, never without an answer.
"""

# ruff: noqa: S608 - names of tables are made of digests, and numbers are numbers

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from hoglab.analysis.cancellation import Cancellation, current_cancellation
from hoglab.analysis.incremental.cache_tables import (
    TABLES,
    RefreshRun,
    RefreshWork,
    apply_merges,
    drop_unused_logs,
    grow,
    naive,
    retract,
)
from hoglab.analysis.incremental.materialization import SCHEMA, VERSION, Materialization
from hoglab.analysis.incremental.refresh import covered, increment, rebuild, same, sums
from hoglab.storage.event_store import (
    DamagedCacheError,
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store.aggregate_cache_file import TABLE_NAMES
from hoglab.storage.event_store.transactions import transaction

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.storage.engines import EventFile

MAX_BYTES = 8 * 1024**3
"""Maximum size of the cache; the materializations unused for longest are dropped first."""
MIN_EVENTS = 100_000
"""Minimum number of stored events for the cache: fewer are read again as quickly."""
CHUNK_EVENTS = 20_000_000
"""Number of new events put into logs in one transaction; finished transactions stay when a time limit ends the rest."""
CHECK_EVERY = 30
"""Number of increments after which contributions are rebuilt and compared (spec experiment-results 11.4)."""
PATIENCE_S = 10.0
"""Time for which one computation waits for another that uses the cache."""

_CORRECTED: list[tuple[Any, ...]] = [(None,)]
_EVENT_AT = """
SELECT uuid FROM stored_events WHERE seq = $seq UNION ALL SELECT NULL FROM event_correction WHERE old_seq = $seq
"""
"""The event at a place; no uuid where another one took its place since."""
_BYTES = f"SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = '{SCHEMA}'"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Limits of the cache: see the constants of the same names."""

    bytes: int = MAX_BYTES
    min_events: int = MIN_EVENTS
    chunk_events: int = CHUNK_EVENTS
    check_every: int = CHECK_EVERY
    patience_s: float = PATIENCE_S


class BusyError(Exception):
    """Another computation uses the cache."""


class _ReplacedError(Exception):
    """The cache belongs to other events, or to another version."""


class AggregateCache:
    """Cache of the materialized parts of answers; thread-safe, one computation uses it at a time."""

    def __init__(self, store: EventFile, *, timeout_s: float, limits: CacheLimits | None = None) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._limits = limits or CacheLimits()
        self._lock = threading.Lock()
        self._refused: set[str] = set()
        self._known: set[str] | None = None
        self._is_made = False
        self.last = RefreshWork()
        """The work for the last answer."""

    def rows(self, view: Materialization) -> list[tuple[Any, ...]] | None:
        """Return the rows that answer the statement of ``view``, of all events stored now.

        None when the cache cannot answer. Raises `QueryCancelledError`.
        """
        if not self._store.has_aggregate_cache or view.key in self._refused:
            return None
        try:
            with self.in_use():
                return self._rows(view)
        except BusyError:
            _log.info("aggregate_cache_busy")
        return None

    def knows(self, key: str) -> bool:
        """Return whether the question with this key was asked before."""
        if not self._store.has_aggregate_cache:
            return False
        known = self._known  # which another thread may forget
        if known is None:
            with self._store.reader() as reader:
                tables = reader.execute(TABLE_NAMES)
            known = {name.removeprefix("of_") for (name,) in tables if name.startswith("of_")}
            self._known = known
        return key in known

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Use the cache alone during the block. Raises `BusyError`."""
        if not self._lock.acquire(timeout=self._limits.patience_s):
            raise BusyError
        try:
            yield
        finally:
            self._lock.release()

    def _rows(self, view: Materialization) -> list[tuple[Any, ...]] | None:
        try:
            self._store.check_room()
            try:
                return self._answered(view)
            except _ReplacedError:
                self._reset()
                return self._answered(view)
        except (QueryTimeoutError, QueryMemoryError, EventStoreUnavailableError) as error:
            _log.warning("aggregate_cache_failed", reason=str(error))
        except QueryError as error:
            _log.error("aggregate_cache_failed", reason=str(error), action="rebuilt")
            if not isinstance(error, DamagedCacheError):
                self._refused.add(view.key)
            self._reset()
        return None

    def _reset(self) -> None:
        self._store.reset_aggregate_cache()
        self._known = None
        self._is_made = False

    def _answered(self, view: Materialization) -> list[tuple[Any, ...]] | None:
        with self._reading() as refresh:
            [(refresh.newest,)] = refresh.run("SELECT next_seq - 1 FROM store_state")
            if refresh.newest < self._limits.min_events:
                return None
            self._begin(refresh)
            retract(refresh, view.logs)
            grow(refresh, view.logs, view.since, self._limits.chunk_events)
            rows = self._summed(refresh, view)
            known = self._known
            if known is not None:
                known.add(view.key)
            self._evict(refresh, view)
        self.last = refresh.work
        return rows

    @contextmanager
    def _reading(self) -> Iterator[RefreshRun]:
        cancellation = current_cancellation() or Cancellation()
        with self._store.reader() as reader, cancellation.reaching(reader.interrupt) as cancelled:
            if cancelled:
                raise QueryCancelledError
            yield RefreshRun(reader, self._timeout_s)

    def _begin(self, refresh: RefreshRun) -> None:
        """Check that the cache belongs to these events and has this form."""
        if not self._is_made:
            if not refresh.run(TABLE_NAMES):
                with transaction(refresh.reader):
                    refresh.run(TABLES)
            self._is_made = True
        [(version, seq, uuid)] = refresh.run(f"SELECT version, seq, uuid FROM {SCHEMA}.about")
        if version != VERSION:
            raise _ReplacedError
        if seq and refresh.run(_EVENT_AT, {"seq": seq}) not in ([(uuid,)], _CORRECTED):
            _log.warning("aggregate_cache_of_other_events")
            raise _ReplacedError

    def forget(self, before: datetime | None = None) -> None:
        """Drop the cached tables, all of them or those with events from before a moment.

        Raises `BusyError` and the errors of `Reader`.
        """
        if not self._store.has_aggregate_cache:
            return
        with self.in_use():
            if before is not None:
                with self._reading() as refresh:
                    self._begin(refresh)
                    [(since,)] = refresh.run(f"SELECT min(since) FROM {SCHEMA}.log")
                if since is None or since >= naive(before):
                    return
            self._reset()

    # -- contributions ---------------------------------------------------------------------------------

    def _summed(self, refresh: RefreshRun, view: Materialization) -> list[tuple[Any, ...]]:
        """Bring the contributions up to date and sum them."""
        merges, merged = apply_merges(refresh, view) if view.reads_people else (0, False)
        known = covered(refresh, view)
        end = naive(view.question.span.end)
        if known is None or known.span_end > end or (not view.is_of_people and known.merges < merges):
            rebuild(refresh, view, merges, merged=merged)
            return sums(refresh, view)
        increment(refresh, view, known, merges, merged=merged)
        rows = sums(refresh, view)
        if known.increments >= self._limits.check_every:
            return self._checked(refresh, view, merges, rows, merged=merged)
        return rows

    def _checked(
        self,
        refresh: RefreshRun,
        view: Materialization,
        merges: int,
        rows: list[tuple[Any, ...]],
        *,
        merged: bool,
    ) -> list[tuple[Any, ...]]:
        """Rebuild the contributions, and report a difference of sums as an error of the program."""
        rebuild(refresh, view, merges, merged=merged)
        rebuilt = sums(refresh, view)
        refresh.work.checked = True
        if not same(view, rows, rebuilt):
            refresh.work.mismatch = True
            _log.error("aggregate_cache_mismatch", table=view.table)
        return rebuilt

    # -- room ------------------------------------------------------------------------------------------

    def _evict(self, refresh: RefreshRun, view: Materialization) -> None:
        """Drop the materializations unused for longest while the cache is above its limit, the present one last."""
        while refresh.run(_BYTES)[0][0] > self._limits.bytes:
            with transaction(refresh.reader):
                unused = refresh.run(
                    f"SELECT key FROM {SCHEMA}.contributions ORDER BY key = $key, used LIMIT 1",
                    {"key": view.key},
                )
                if not unused:
                    return
                [(key,)] = unused
                if key == view.key:  # too large by itself
                    self._refused.add(key)
                self._known = None
                refresh.run(f"DROP TABLE {SCHEMA}.of_{key}")
                for kind in ("at", "sum"):
                    refresh.run(f"DROP TABLE IF EXISTS {SCHEMA}.{kind}_{key}")
                refresh.run(f"DELETE FROM {SCHEMA}.contributions WHERE key = $key", {"key": key})
                drop_unused_logs(refresh)
            refresh.run(f"CHECKPOINT {SCHEMA}")
            _log.info("aggregate_cache_evicted", key=key)
