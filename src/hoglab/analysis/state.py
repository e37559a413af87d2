"""Results from what is kept of events: work proportional to what is new (spec experiment-results 11.2 to 11.5).

`hoglab.analysis.query.kept` says what is kept. Here it is brought up to date and read: logs grow by the events that
were ingested since, entities with new events, with events that time has reached or that were merged are computed
again, and the answer is summed. The file is a cache. Whatever fails in it leaves the caller without an answer from
it, never without an answer.

Each step is a transaction that writes a table together with how far it goes, so that a step is done or not. No
transaction reads what it wrote itself: DuckDB 2.0.0 does not see its own rows when they are more than a row group.
"""

# ruff: noqa: S608 - names of tables are made of digests, and numbers are numbers

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isclose
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from hoglab.analysis import cancelling
from hoglab.analysis.query.kept import SCHEMA, TOUCHED, VERSION, Kept, Log
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hoglab.storage.event_store import Reader

MAX_BYTES = 8 * 1024**3
"""What may be kept altogether; what was not asked for the longest goes first."""
MIN_EVENTS = 100_000
"""With fewer stored events nothing is kept: they are as quickly read again."""
CHUNK_EVENTS = 20_000_000
"""How many new events are put into logs in one transaction; what was done stays when a time limit ends the rest."""
CHECK_EVERY = 30
"""After so many increments contributions are made anew from the logs and compared (spec experiment-results 11.4)."""
TOLERANCE = 1e-9
"""How far sums of increments may be from those made anew, in relation to their size."""
PATIENCE_S = 10.0
"""How long one computation waits for another that uses the state."""

_TABLES = f"""
CREATE TABLE {SCHEMA}.about (version INTEGER, seq BIGINT, uuid UUID);
CREATE TABLE {SCHEMA}.log (key VARCHAR, watermark BIGINT, since TIMESTAMP);
CREATE TABLE {SCHEMA}.contributions (
    key VARCHAR, logs VARCHAR[], watermark BIGINT, span_end TIMESTAMP, merges BIGINT, increments INTEGER, used DOUBLE
);
CREATE TABLE {SCHEMA}.applied_override (project_id INTEGER, old_person_id UUID, person_id UUID);
CREATE TABLE {SCHEMA}.merge (number BIGINT, project_id INTEGER, person_id UUID);
INSERT INTO {SCHEMA}.about VALUES ({VERSION}, 0, NULL);
"""
_BYTES = f"SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = '{SCHEMA}'"
_CHANGED_OVERRIDES = f"""
CREATE OR REPLACE TEMP TABLE changed_override AS
WITH now AS (SELECT old_person_id, person_id FROM person_override WHERE project_id = $project),
applied AS (SELECT old_person_id, person_id FROM {SCHEMA}.applied_override WHERE project_id = $project)
SELECT *, TRUE AS holds FROM (SELECT * FROM now EXCEPT SELECT * FROM applied)
UNION ALL SELECT *, FALSE FROM (SELECT * FROM applied EXCEPT SELECT * FROM now)
"""
_NOTE_MERGED = (
    f"INSERT INTO {SCHEMA}.merge SELECT $number, $project, person FROM "
    "(SELECT old_person_id AS person FROM changed_override UNION SELECT person_id FROM changed_override)"
)
_DROP_OVERRIDES = (
    f"DELETE FROM {SCHEMA}.applied_override WHERE project_id = $project "
    "AND (old_person_id, person_id) IN (SELECT (old_person_id, person_id) FROM changed_override WHERE NOT holds)"
)
_ADD_OVERRIDES = (
    f"INSERT INTO {SCHEMA}.applied_override "
    "SELECT $project, old_person_id, person_id FROM changed_override WHERE holds"
)

_log = structlog.get_logger(__name__)


class Store(Protocol):
    """What the state needs of an event store: see `hoglab.storage.event_store.duckdb.DuckDbEventStore`."""

    @property
    def has_state(self) -> bool: ...

    def reset_state(self) -> None: ...

    def check_room(self) -> None: ...

    def reader(self) -> AbstractContextManager[Reader]: ...


@dataclass(slots=True)
class Work:
    """What one answer cost: events looked at, entities computed again, and whether contributions were made anew."""

    events: int = 0
    entities: int = 0
    rebuilt: bool = False
    checked: bool = False
    mismatch: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """See the constants of the same names."""

    bytes: int = MAX_BYTES
    min_events: int = MIN_EVENTS
    chunk_events: int = CHUNK_EVENTS
    check_every: int = CHECK_EVERY
    patience_s: float = PATIENCE_S


class BusyError(Exception):
    """Another computation uses the state."""


class _ReplacedError(Exception):
    """The state is of other events, or of another version."""


@dataclass(frozen=True, slots=True)
class _Contributions:
    """What the catalog says of a table of contributions."""

    watermark: int
    span_end: datetime
    merges: int
    increments: int


@dataclass(slots=True)
class _Refresh:
    """One answer: its reader, and how far the events go that it looks at."""

    reader: Reader
    timeout_s: float
    newest: int = 0
    work: Work = field(default_factory=Work)

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self.reader.execute(sql, parameters, timeout_s=self.timeout_s)


class ResultsState:
    """Thread-safe; one computation uses the state at a time."""

    def __init__(self, store: Store, *, timeout_s: float, limits: Limits | None = None) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._refused: set[str] = set()
        self._known: set[str] | None = None
        self.last = Work()
        """The work for the last answer."""

    def rows(self, kept: Kept, *, only_if_known: bool = False) -> list[tuple[Any, ...]] | None:
        """The rows that answer the statement of ``kept``, of all events that are stored now.

        None when the state cannot help; with ``only_if_known`` also when the question was never asked before.
        Raises `QueryCancelledError`.
        """
        if not self._store.has_state or kept.key in self._refused:
            return None
        if only_if_known and not self.knows(kept):
            return None
        try:
            with self.in_use():
                return self._rows(kept)
        except BusyError:
            _log.info("results_state_busy")
        return None

    def knows(self, kept: Kept) -> bool:
        """Whether the question was asked before."""
        if not self._store.has_state:
            return False
        known = self._known  # which another thread may forget
        if known is None:
            with self._store.reader() as reader:
                tables = reader.execute(
                    f"SELECT table_name FROM duckdb_tables() WHERE database_name = '{SCHEMA}'"
                )
            known = {name.removeprefix("of_") for (name,) in tables if name.startswith("of_")}
            self._known = known
        return kept.key in known

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Nobody else uses the state during the block. Raises `BusyError`."""
        if not self._lock.acquire(timeout=self._limits.patience_s):
            raise BusyError
        try:
            yield
        finally:
            self._lock.release()

    def _rows(self, kept: Kept) -> list[tuple[Any, ...]] | None:
        try:
            self._store.check_room()
            try:
                return self._answered(kept)
            except _ReplacedError:
                self._reset()
                return self._answered(kept)
        except (QueryTimeoutError, QueryMemoryError, EventStoreUnavailableError) as error:
            _log.warning("results_state_failed", reason=str(error))
        except QueryError as error:
            _log.error("results_state_failed", reason=str(error), action="begun anew")
            self._refused.add(kept.key)
            self._reset()
        return None

    def _reset(self) -> None:
        self._store.reset_state()
        self._known = None

    def _answered(self, kept: Kept) -> list[tuple[Any, ...]] | None:
        with self._reading() as refresh:
            [(refresh.newest,)] = refresh.run("SELECT next_seq - 1 FROM store_state")
            if refresh.newest < self._limits.min_events:
                return None
            self._begin(refresh)
            for log in kept.logs:
                _grow(refresh, log, kept.since, self._limits.chunk_events)
            rows = self._summed(refresh, kept)
            known = self._known
            if known is not None:
                known.add(kept.key)
            self._evict(refresh, kept)
        self.last = refresh.work
        return rows

    @contextmanager
    def _reading(self) -> Iterator[_Refresh]:
        cancellation = cancelling.current() or cancelling.Cancellation()
        with self._store.reader() as reader, cancellation.reaching(reader.interrupt) as cancelled:
            if cancelled:
                raise QueryCancelledError
            yield _Refresh(reader, self._timeout_s)

    def _begin(self, refresh: _Refresh) -> None:
        """See whether the state is of these events, and in this form."""
        if not refresh.run(f"SELECT 1 FROM duckdb_tables() WHERE database_name = '{SCHEMA}' LIMIT 1"):
            with _transaction(refresh.reader):
                refresh.run(_TABLES)
        [(version, seq, uuid)] = refresh.run(f"SELECT version, seq, uuid FROM {SCHEMA}.about")
        if version != VERSION:
            raise _ReplacedError
        if seq and refresh.run("SELECT uuid FROM events WHERE seq = $seq", {"seq": seq}) != [(uuid,)]:
            _log.warning("results_state_of_other_events")
            raise _ReplacedError

    # -- contributions ---------------------------------------------------------------------------------

    def _summed(self, refresh: _Refresh, kept: Kept) -> list[tuple[Any, ...]]:
        """Bring the contributions up to date and sum them."""
        merges, merged = _apply_merges(refresh, kept) if kept.reads_people else (0, False)
        known = _contributions_of(refresh, kept)
        end = _naive(kept.question.span.end)
        if known is None or known.span_end > end or (kept.entity != "person_id" and known.merges < merges):
            _rebuild(refresh, kept, merges, merged=merged)
            return _sums(refresh, kept)
        _increment(refresh, kept, known, merges, merged=merged)
        rows = _sums(refresh, kept)
        if known.increments >= self._limits.check_every:
            return self._checked(refresh, kept, merges, rows, merged=merged)
        return rows

    def _checked(
        self, refresh: _Refresh, kept: Kept, merges: int, rows: list[tuple[Any, ...]], *, merged: bool
    ) -> list[tuple[Any, ...]]:
        """Make the contributions anew; it is an error of ours when that changes a sum."""
        _rebuild(refresh, kept, merges, merged=merged)
        anew = _sums(refresh, kept)
        refresh.work.checked = True
        if not _same(kept, rows, anew):
            refresh.work.mismatch = True
            _log.error("results_state_mismatch", table=kept.table)
        return anew

    # -- room ------------------------------------------------------------------------------------------

    def _evict(self, refresh: _Refresh, kept: Kept) -> None:
        """Keep to the limit: what was not asked for the longest goes first, what was asked now goes last."""
        while refresh.run(_BYTES)[0][0] > self._limits.bytes:
            with _transaction(refresh.reader):
                found = refresh.run(
                    f"SELECT key FROM {SCHEMA}.contributions ORDER BY key = $key, used LIMIT 1",
                    {"key": kept.key},
                )
                if not found:
                    return
                [(key,)] = found
                if key == kept.key:  # too large by itself
                    self._refused.add(key)
                self._known = None
                refresh.run(f"DROP TABLE {SCHEMA}.of_{key}")
                refresh.run(f"DELETE FROM {SCHEMA}.contributions WHERE key = $key", {"key": key})
                _drop_unused_logs(refresh)
            refresh.run(f"CHECKPOINT {SCHEMA}")
            _log.info("results_state_evicted", key=key)


@contextmanager
def _transaction(reader: Reader) -> Iterator[None]:
    reader.execute("BEGIN TRANSACTION")
    try:
        yield
        reader.execute("COMMIT")
    except BaseException:
        try:
            reader.execute("ROLLBACK")
        except (QueryError, EventStoreUnavailableError):
            _log.debug("results_state_not_rolled_back")  # the engine has done so itself
        raise


# -- logs ----------------------------------------------------------------------------------------------


def _grow(refresh: _Refresh, log: Log, since: datetime, chunk: int) -> None:
    """Put every event up to the newest into a log, from the moment ``since`` on."""
    since = _naive(since)
    found = refresh.run(f"SELECT watermark, since FROM {SCHEMA}.log WHERE key = $key", {"key": log.key})
    if found:
        [(watermark, begin)] = found
    else:
        watermark, begin = 0, since
        with _transaction(refresh.reader):
            refresh.run(log.made(), log.parameters)
            refresh.run(
                f"INSERT INTO {SCHEMA}.log VALUES ($key, 0, $since)", {"key": log.key, "since": since}
            )
    if since < begin:  # further back than anybody looked before
        extent = "seq <= $watermark AND timestamp >= $since AND timestamp < $begin"
        _add(refresh, log, extent, watermark, {"watermark": watermark, "since": since, "begin": begin})
        refresh.work.events += watermark
    since = min(since, begin)
    for start in range(watermark, refresh.newest, chunk):
        until = min(start + chunk, refresh.newest)
        extent = "seq > $start AND seq <= $until AND timestamp >= $since"
        _add(refresh, log, extent, until, {"start": start, "until": until, "since": since})
        refresh.work.events += until - start


def _add(refresh: _Refresh, log: Log, extent: str, watermark: int, bounds: Mapping[str, Any]) -> None:
    """Add the events of an extent to a log, and note how far it goes then."""
    with _transaction(refresh.reader):
        refresh.run(log.grown(extent), {**log.parameters, **bounds})
        refresh.run(
            f"UPDATE {SCHEMA}.log SET watermark = $watermark, since = $since WHERE key = $key",
            {"key": log.key, "watermark": watermark, "since": bounds["since"]},
        )
        # An event that is in the logs, by which other events are told from these.
        refresh.run(
            f"UPDATE {SCHEMA}.about SET seq = $seq, uuid = (SELECT uuid FROM events WHERE events.seq = $seq)",
            {"seq": watermark},
        )


def _drop_unused_logs(refresh: _Refresh) -> None:
    unused = refresh.run(
        f"SELECT key FROM {SCHEMA}.log WHERE key NOT IN (SELECT unnest(logs) FROM {SCHEMA}.contributions)"
    )
    for (key,) in unused:
        refresh.run(f"DROP TABLE {SCHEMA}.log_{key}")
        refresh.run(f"DELETE FROM {SCHEMA}.log WHERE key = $key", {"key": key})


# -- merges --------------------------------------------------------------------------------------------


def _apply_merges(refresh: _Refresh, kept: Kept) -> tuple[int, bool]:
    """Note who was merged since the last time; the number of the last note, and whether anybody ever was."""
    project = {"project": kept.question.exposures.project_id}
    refresh.run(_CHANGED_OVERRIDES, project)
    [(changed,)] = refresh.run("SELECT count(*) FROM changed_override")
    if changed:
        [(number,)] = refresh.run(f"SELECT coalesce(max(number), 0) + 1 FROM {SCHEMA}.merge")
        with _transaction(refresh.reader):
            refresh.run(_NOTE_MERGED, {**project, "number": number})
            refresh.run(_DROP_OVERRIDES, project)
            refresh.run(_ADD_OVERRIDES, project)
    refresh.run("DROP TABLE changed_override")
    [(merges, overrides)] = refresh.run(
        f"SELECT (SELECT coalesce(max(number), 0) FROM {SCHEMA}.merge WHERE project_id = $project), "
        f"(SELECT count(*) FROM {SCHEMA}.applied_override WHERE project_id = $project)",
        project,
    )
    return merges, overrides > 0


# -- contributions -------------------------------------------------------------------------------------


def _contributions_of(refresh: _Refresh, kept: Kept) -> _Contributions | None:
    found = refresh.run(
        f"SELECT watermark, span_end, merges, increments FROM {SCHEMA}.contributions WHERE key = $key",
        {"key": kept.key},
    )
    return _Contributions(*found[0]) if found else None


def _rebuild(refresh: _Refresh, kept: Kept, merges: int, *, merged: bool) -> None:
    statement = kept.contributions(merged=merged)
    with _transaction(refresh.reader):
        refresh.run(f"CREATE OR REPLACE TABLE {kept.table} AS {statement.sql}", statement.parameters)
        _note(refresh, kept, merges, increments=0)
    refresh.work.rebuilt = True


def _increment(refresh: _Refresh, kept: Kept, known: _Contributions, merges: int, *, merged: bool) -> None:
    """Compute those entities again whose events are not the same as before."""
    _find_touched(refresh, kept, known, merged=merged)
    [(entities,)] = refresh.run(f"SELECT count(*) FROM {TOUCHED}")
    with _transaction(refresh.reader):
        if entities:
            refresh.run(f"DELETE FROM {kept.table} WHERE entity IN (SELECT entity FROM {TOUCHED})")
            statement = kept.contributions(merged=merged, touched=True)
            refresh.run(f"INSERT INTO {kept.table} {statement.sql}", statement.parameters)
        _note(refresh, kept, merges, increments=known.increments + (1 if entities else 0))
    refresh.run(f"DROP TABLE {TOUCHED}")
    refresh.work.entities = entities


def _find_touched(refresh: _Refresh, kept: Kept, known: _Contributions, *, merged: bool) -> None:
    events = kept.events(merged=merged)
    # Whoever may have been exposed, and what contributed under a person that is another one now.
    exposed = f"SELECT {kept.entity} FROM {kept.logs[0].table} UNION ALL SELECT entity FROM {kept.table}" + (
        f" UNION ALL SELECT person_id FROM {SCHEMA}.applied_override" if kept.entity == "person_id" else ""
    )
    touched = [f"SELECT {kept.entity} AS entity FROM ({events}) AS recent WHERE seq > $watermark"]
    values: dict[str, Any] = {"watermark": known.watermark}
    if known.span_end < _naive(kept.question.span.end):  # time has reached what came before its time
        touched.append(f"SELECT {kept.entity} FROM ({events}) AS ahead WHERE timestamp >= $reached")
        values["reached"] = known.span_end
    if kept.entity == "person_id":
        touched.append(
            f"SELECT person_id FROM {SCHEMA}.merge WHERE project_id = $project AND number > $merges"
        )
        values |= {"project": kept.question.exposures.project_id, "merges": known.merges}
    refresh.run(
        f"CREATE OR REPLACE TEMP TABLE {TOUCHED} AS "
        f"SELECT DISTINCT entity FROM ({' UNION ALL '.join(touched)}) WHERE entity IN ({exposed})",
        values,
    )


def _note(refresh: _Refresh, kept: Kept, merges: int, *, increments: int) -> None:
    """Put into the catalog what the contributions cover, in the transaction that writes them."""
    refresh.run(f"DELETE FROM {SCHEMA}.contributions WHERE key = $key", {"key": kept.key})
    refresh.run(
        f"INSERT INTO {SCHEMA}.contributions VALUES ($key, $logs, $watermark, $end, $merges, $increments, $used)",
        {
            "key": kept.key,
            "logs": [log.key for log in kept.logs],
            "watermark": refresh.newest,
            "end": _naive(kept.question.span.end),
            "merges": merges,
            "increments": increments,
            "used": time.time(),
        },
    )


def _sums(refresh: _Refresh, kept: Kept) -> list[tuple[Any, ...]]:
    return refresh.run(kept.query.statement.sql, kept.query.statement.parameters)


def _same(kept: Kept, some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> bool:
    """Whether rows of sums are the same apart from rounding; a row that is missing is one of zeros."""
    key = 1 + len(kept.question.exposures.breakdowns) + (kept.query.question.span.days is not None)
    mine, theirs = ({row[:key]: row[key:] for row in rows} for rows in (some, others))
    for place in mine.keys() | theirs.keys():
        pair = (mine.get(place), theirs.get(place))
        width = len(pair[0] or pair[1] or ())
        left, right = (found or (0,) * width for found in pair)
        if not all(map(_close, left, right)):
            return False
    return True


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _naive(moment: datetime) -> datetime:
    """A moment as the engine has it: UTC without saying so."""
    return moment.astimezone(UTC).replace(tzinfo=None)
