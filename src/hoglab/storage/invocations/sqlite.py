"""The invocation queue in SQLite tables of ``queue.db``.

Workers claim and finish in batches, each in one transaction of a few statements. Claims, heartbeats and
outcomes do not wait for the disk: after a power cut the turns of the last moment are run again, which
at-least-once delivery allows. What was enqueued waits for the disk, unless it comes from the event log, which
has it already. What runs leave behind is read by the stores of `hoglab.storage.invocations.sql`.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter as Counts
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from hoglab.storage.database import Database, Rebuildable, tables
from hoglab.storage.database.errors import explained
from hoglab.storage.database.locks import write_lock
from hoglab.storage.database.sqlite import connect
from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations import (
    JobOverError,
    MaskingCount,
    MaskingMovedError,
    QueueStats,
    dead_letter_rows,
)
from hoglab.storage.invocations.claims import (
    NEXT_PRIORITY,
    Claims,
    Shares,
    WaitingRows,
    claimed_of,
    count_due,
    first_scheduled,
)
from hoglab.storage.invocations.dead_letter_rows import CROWDED_OUT
from hoglab.storage.invocations.gathering import gathering, is_ready, ready
from hoglab.storage.invocations.janitor import Janitor
from hoglab.storage.invocations.janitor_tables import SqliteJanitorTables
from hoglab.storage.invocations.traces import TRACE_RETENTION_DAYS, Traces, still_mine
from hoglab.storage.invocations.unfinished import COUNT_DEAD, COUNT_EACH, COUNT_RUNNING, UnfinishedCounts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from hoglab.storage.invocations import (
        Allowance,
        AppMetric,
        ClaimedInvocation,
        InvocationBatch,
        InvocationOutcome,
        InvocationResult,
        JobStep,
        LogEntry,
        NewInvocation,
        Sweep,
    )

_COLUMNS = (
    "id, project_id, function_id, parent_run_id, queue, priority, scheduled_at, log_offset, state, created_at, "
    "order_key, status"
)
_NEW = (
    "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, CASE WHEN ?11 IS NOT NULL AND EXISTS (SELECT 1 "
    "FROM invocation AS earlier WHERE earlier.function_id = ?3 AND earlier.order_key = ?11 "
    "AND earlier.finished_at IS NULL) THEN 'held' ELSE 'available' END"
)
_INSERT = f"INSERT INTO invocation ({_COLUMNS}) VALUES ({_NEW}) ON CONFLICT (id) DO NOTHING"  # noqa: S608, constants only
_INSERT_AGAIN = (
    f"INSERT INTO invocation ({_COLUMNS}) SELECT {_NEW} WHERE EXISTS (SELECT 1 FROM invocation_result "  # noqa: S608
    "WHERE invocation_id = ?1 AND version = ?12) ON CONFLICT (id) DO "
    "UPDATE SET status = excluded.status, finished_at = NULL, reset_count = 0, parent_run_id = excluded.parent_run_id, "
    "queue = excluded.queue, priority = excluded.priority, scheduled_at = excluded.scheduled_at, "
    "state = excluded.state, created_at = excluded.created_at, order_key = excluded.order_key "
    "WHERE finished_at IS NOT NULL"
)
_ADVANCE = (
    'INSERT INTO consumer_position (consumer, "offset", updated_at) VALUES (?, ?, ?) '
    'ON CONFLICT (consumer) DO UPDATE SET "offset" = max("offset", excluded."offset"), '
    "updated_at = excluded.updated_at"
)
_COUNT_MASKED = (
    "INSERT INTO masking_counter (function_id, hash, count, expires_at) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (function_id, hash) DO UPDATE SET count = excluded.count, expires_at = excluded.expires_at "
    "WHERE CASE WHEN ? = 0 THEN expires_at <= ? ELSE count = ? AND expires_at = excluded.expires_at END"
)
_MASKED = (
    "SELECT masking_counter.function_id, masking_counter.hash, count, expires_at FROM json_each(?) AS asked "
    "JOIN masking_counter ON masking_counter.function_id = asked.value ->> 0 "
    "AND masking_counter.hash = asked.value ->> 1 WHERE expires_at > ?"
)
_SETTLED = (
    "SELECT value FROM json_each(?) AS asked WHERE EXISTS (SELECT 1 FROM invocation "
    "WHERE invocation.id = asked.value AND status != 'cancelled') OR EXISTS (SELECT 1 FROM invocation_result "
    "WHERE invocation_id = asked.value AND status != 'cancelled')"
)
_POSITION = 'SELECT "offset" FROM consumer_position WHERE consumer = ?'
_NEXT_QUEUE = "SELECT min(queue) FROM invocation WHERE status = 'available' AND queue > ?"
_HELD = (
    "SELECT invocation.id, invocation.lock_token, function_id, order_key FROM json_each(?) AS asked JOIN invocation "
    "ON invocation.id = json_extract(asked.value, '$[0]') "
    "AND invocation.lock_token = json_extract(asked.value, '$[1]') WHERE status = 'running'"
)
_FINISH = (
    "UPDATE invocation SET status = ?, finished_at = ?, state = x'', lock_token = NULL, heartbeat_at = NULL "
    "WHERE id = ?"
)
_UNBLOCK_NEXT = (
    "UPDATE invocation SET status = 'available', scheduled_at = max(scheduled_at, ?) WHERE status = 'held' "
    "AND rowid = (SELECT min(rowid) FROM invocation WHERE function_id = ? AND order_key = ? "
    "AND finished_at IS NULL)"
)
_SUSPEND = (
    "UPDATE invocation SET status = 'available', scheduled_at = ?, priority = coalesce(?, priority), "
    "state = coalesce(?, state), reset_count = 0, lock_token = NULL, heartbeat_at = NULL WHERE id = ?"
)
_BEAT = "UPDATE invocation SET heartbeat_at = ? WHERE id = ?"
_RELEASE = (
    "UPDATE invocation SET status = 'available', scheduled_at = ?, lock_token = NULL, heartbeat_at = NULL "
    "WHERE status = 'running'"
)
_STEP = (
    "UPDATE backfill SET cursor = ?, seen = seen + ?, queued = queued + ?, settled = settled + ?, "
    "put_aside = put_aside + ? WHERE id = ? AND cursor = ? AND status = 'running'"
)
_LAST_ROW = "SELECT coalesce(max(rowid), 0) FROM invocation"
_NEWER = "SELECT function_id FROM invocation WHERE rowid > ?"
_FOREVER = 1 << 62


class SqliteInvocationQueue(UnfinishedCounts):
    """See `InvocationQueue` and `RunWriter`. Every method may be called from any thread."""

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime] | None = None,
        steady: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
        trace_days: int = TRACE_RETENTION_DAYS,
    ) -> None:
        """Open the queue in a file, creating it when it is missing.

        ``steady`` counts seconds, also while the clock of ``now`` is set; by default the system's are taken.
        ``jitter`` gives numbers between 0 and 1 for back-off. ``trace_days``: for how long logs and metrics are
        kept. Raises the errors of `Database.open`.
        """
        super().__init__()
        Database.open(path, tables.queue_metadata).dispose()  # brings the schema up to date
        self._name = str(path)
        self._now = now or utc_clock
        self._turns = write_lock(path)
        self._durable = connect(path, tables.queue_metadata)
        self._relaxed = connect(path, tables.queue_metadata, rebuildable=Rebuildable.DELIVERY_PROGRESS)
        self._reader = connect(path, tables.queue_metadata, read_only=True)
        self._reading = threading.Lock()
        self._traces = Traces()
        self._claims = Claims()
        steady = time.monotonic if now is None and steady is None else steady
        self._janitor = Janitor(SqliteJanitorTables(self._transaction), self._now, steady, jitter, trace_days)
        self._janitor.follow_clock_of_last_time()

        self._recount(self._reader.execute(COUNT_EACH))

    # -- adding -------------------------------------------------------------------------------------

    def enqueue(self, batch: InvocationBatch) -> int:
        """Add a batch in one transaction, and return how many invocations were new."""
        now = self._moment()
        rows = [_row(invocation, now) for invocation in batch.invocations if invocation.repeats is None]
        again = [
            (*_row(invocation, now), invocation.repeats)
            for invocation in batch.invocations
            if invocation.repeats is not None
        ]
        with self._transaction(durable=batch.position is None) as connection:
            new = _insert(connection, rows, again)
            if batch.position is not None:
                connection.execute(_ADVANCE, (*batch.position, now))
            if batch.masking:
                _count_masked(connection, batch.masking, now)
            self._traces.write(connection, batch.logs, batch.metrics, batch.results)
            if batch.retried:
                dead_letter_rows.forget(connection, batch.retried)
            crowded_out = dead_letter_rows.save(connection, batch.dead) if batch.dead else 0
            if batch.step is not None:
                _advance_job(connection, batch.step, new.total())
        if crowded_out:
            CROWDED_OUT.inc(crowded_out)
        self._note(arrivals=new.total(), added=new)
        return new.total()

    def masking_counts(self, keys: Sequence[tuple[str, str]]) -> list[MaskingCount]:
        """Return the counts of (function id, hash) pairs whose windows are open."""
        parameters = (json.dumps(keys), self._moment())
        with explained(self._name), self._reading:
            rows = self._reader.execute(_MASKED, parameters).fetchall()
        return [MaskingCount(function, hash_, count, from_micros(at)) for function, hash_, count, at in rows]

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]:
        """Return invocations among some that run, wait or were run, as far as that is remembered."""
        with explained(self._name), self._reading:
            return frozenset(row[0] for row in self._reader.execute(_SETTLED, (json.dumps(list(ids)),)))

    def position(self, consumer: str) -> int:
        """Return the log position that a consumer reached, 0 when it never did."""
        return int(self._value(_POSITION, consumer) or 0)

    # -- working ------------------------------------------------------------------------------------

    def claim(
        self,
        *,
        queue: str = "hog",
        limit: int = 100,
        limit_each: int | None = None,
        exclude_functions: Collection[str] = (),
        exclude_projects: Collection[int] = (),
        allowance: Allowance | None = None,
    ) -> list[ClaimedInvocation]:
        """Lock and return up to ``limit`` due invocations.

        Priority ascending, then projects and functions in turn, the oldest of each first.
        """
        self._begin_claim()
        now = self._moment()
        token = str(uuid4())
        claimed: list[ClaimedInvocation] = []
        priorities = self._priorities(queue)
        if not priorities:
            return claimed
        shares = Shares(frozenset(exclude_functions), frozenset(exclude_projects), allowance)
        with self._transaction() as connection:
            for priority in priorities:
                room = limit - len(claimed)
                if room <= 0:
                    break
                shares.begin(room if limit_each is None else limit_each)
                waiting = WaitingRows(connection, (queue, priority), token, now)
                rows = self._claims.claim((queue, priority), waiting, room, shares)
                claimed += sorted(map(claimed_of, rows), key=attrgetter("scheduled_at"))
        return claimed

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with invocations that wait in a queue for others."""
        with explained(self._name), self._reading:
            return gathering(self._reader, queue)

    def gather(
        self,
        queue: str,
        sizes: Mapping[str, int],
        merge: Callable[[list[ClaimedInvocation]], tuple[NewInvocation | None, list[InvocationResult]]],
    ) -> int:
        """Make one invocation of several that waited for each other, and return how many were made."""
        now = self._moment()
        with explained(self._name), self._reading:  # while they only wait, nobody is kept from writing
            due = {
                function_id: size
                for function_id, size in sizes.items()
                if is_ready(self._reader, queue, function_id, size, now)
            }
        if not due:
            return 0
        taken: Counts[str] = Counts()
        created: Counts[str] = Counts()
        with self._transaction() as connection:
            for function_id, size in due.items():
                for rows in ready(connection, queue, function_id, size, now):
                    merged, results = merge(list(map(claimed_of, rows)))
                    if merged is not None:
                        created += _insert(connection, [_row(merged, now)], [])
                    self._traces.write(connection, (), (), results)
                    taken[function_id] += len(rows)
        self._note(arrivals=created.total(), added=created, over=taken)
        return created.total()

    def finish(
        self,
        outcomes: Sequence[InvocationOutcome],
        *,
        logs: Sequence[LogEntry] = (),
        metrics: Sequence[AppMetric] = (),
        results: Sequence[InvocationResult] = (),
    ) -> frozenset[str]:
        """Apply the outcomes whose lock tokens are valid, and return their ids."""
        now = self._moment()
        with self._transaction() as connection:
            held = _held(connection, [(outcome.id, outcome.lock_token) for outcome in outcomes])
            valid = {
                outcome.id: outcome
                for outcome in outcomes
                if outcome.id in held and held[outcome.id].lock_token == outcome.lock_token
            }
            applied = valid.values()
            suspended = [outcome for outcome in applied if outcome.status == "available"]
            final = [outcome for outcome in applied if outcome.status != "available"]
            connection.executemany(_FINISH, [(outcome.status, now, outcome.id) for outcome in final])
            keys = [(now, *key) for outcome in final if (key := held[outcome.id].key) is not None]
            unblocked = connection.executemany(_UNBLOCK_NEXT, keys).rowcount if keys else 0
            connection.executemany(
                _SUSPEND,
                [
                    (
                        now if outcome.scheduled_at is None else to_micros(outcome.scheduled_at),
                        outcome.priority,
                        outcome.state,
                        outcome.id,
                    )
                    for outcome in suspended
                ],
            )
            self._traces.write(connection, logs, metrics, still_mine(results, outcomes, held))
        self._note(
            arrivals=len(suspended) + unblocked,
            over=Counts(held[outcome.id].function_id for outcome in final),
        )
        return frozenset(held)

    def heartbeat(self, lock_tokens: Mapping[str, str]) -> frozenset[str]:
        """Renew locks (id -> token), about every `janitor.HEARTBEAT_EVERY_S`; return the ids that are still held."""
        now = self._moment()
        with self._transaction() as connection:
            held = _held(connection, list(lock_tokens.items()))
            connection.executemany(_BEAT, [(now, id_) for id_ in held])
        return frozenset(held)

    # -- the janitor --------------------------------------------------------------------------------

    def sweep(self) -> Sweep:
        """Reset what lost its worker, hand out poison pills, delete what is over. Notices when the clock was set."""
        self._moment()
        sweep = self._janitor.sweep()
        self._note(arrivals=sweep.reset)
        return sweep

    def release_all(self) -> int:
        """Make every running invocation due."""
        with self._transaction() as connection:
            released = connection.execute(_RELEASE, (to_micros(self._now()),)).rowcount
        self._note(arrivals=released)
        return released

    # -- what runs leave behind ---------------------------------------------------------------------

    def write_logs(self, logs: Sequence[LogEntry]) -> None:
        """Add log lines outside of any turn."""
        with self._transaction() as connection:
            self._traces.write(connection, logs, (), ())

    def write_metrics(self, metrics: Sequence[AppMetric]) -> None:
        """Count metrics outside of any turn."""
        with self._transaction() as connection:
            self._traces.write(connection, (), metrics, ())

    # -- watching -----------------------------------------------------------------------------------

    def next_due(self, *, apart_from: Collection[str] = ()) -> datetime | None:
        """Return the time when the next available invocation is due, None when there is none."""
        first = self._first_scheduled(apart_from)
        return None if first is None else from_micros(first)

    def due(
        self,
        until: datetime,
        *,
        most: int,
        most_of_project: int | None = None,
        apart_from: Collection[str] = (),
    ) -> int:
        """Return the number of available invocations due at a time, counted up to ``most``."""
        counted = 0
        for queue, priority in self._lanes():
            with explained(self._name), self._reading:
                lane, left = (queue, priority), most - counted
                counted += count_due(
                    self._reader, lane, to_micros(until), apart_from, left, most_of_project or left
                )
            if counted >= most:
                break
        return counted

    def stats(self) -> QueueStats:
        """Return counts, and since when the oldest due invocation waits."""
        first = self.next_due()
        due = first is not None and first <= self._now()
        running = self._value(COUNT_RUNNING)
        waiting = max(0, self.backlog() - running)
        return QueueStats(waiting, running, first if due else None, self._value(COUNT_DEAD))

    def _first_scheduled(self, apart_from: Collection[str]) -> int | None:
        lanes = self._lanes()
        with explained(self._name), self._reading:
            moments = [first_scheduled(self._reader, lane, apart_from) for lane in lanes]
        return min((moment for moment in moments if moment is not None), default=None)

    def _lanes(self) -> list[tuple[str, int]]:
        return [(queue, priority) for queue in self._queues() for priority in self._priorities(queue)]

    def _queues(self) -> list[str]:
        """Return queues with available invocations: one index probe for each."""
        queues: list[str] = []
        while (queue := self._value(_NEXT_QUEUE, queues[-1] if queues else "")) is not None:
            queues.append(queue)
        return queues

    def _priorities(self, queue: str) -> list[int]:
        """Return priorities with available invocations, lowest first: one index probe for each."""
        priorities: list[int] = []
        while (
            priority := self._value(NEXT_PRIORITY, queue, priorities[-1] if priorities else -_FOREVER)
        ) is not None:
            priorities.append(priority)
        return priorities

    def close(self) -> None:
        """Close the connections; the queue is not used afterwards."""
        with self._turns.turn(), self._reading:
            for connection in (self._durable, self._relaxed, self._reader):
                connection.close()

    # -- plumbing -----------------------------------------------------------------------------------

    def _moment(self) -> int:
        """Return the time in microseconds of Unix time, and notice when the clock was set."""
        if self._janitor.clock_was_set():
            self._note(arrivals=self._janitor.follow_clock())
        return to_micros(self._now())

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        connection = self._durable if durable else self._relaxed
        with explained(self._name), self._turns.turn():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _value(self, query: str, *parameters: object) -> Any:
        """Return the first column of the first row, None when there is none."""
        with explained(self._name), self._reading:
            row = self._reader.execute(query, parameters).fetchone()
        return None if row is None else row[0]


def utc_clock() -> datetime:
    """Return the system's clock."""
    return datetime.now(UTC)


def _insert(
    connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], again: Sequence[tuple[Any, ...]]
) -> Counts[str]:
    """Add invocations, and (``again``) some that repeat a result, and return how many of each function are new."""
    new: Counts[str] = Counts()
    if rows:
        last = connection.execute(_LAST_ROW).fetchone()[0]
        if connection.executemany(_INSERT, rows).rowcount == len(rows):
            new.update(row[2] for row in rows)
        else:  # some were known
            new.update(function_id for (function_id,) in connection.execute(_NEWER, (last,)))
    for row in again:
        new[row[2]] += connection.execute(_INSERT_AGAIN, row).rowcount
    return +new


def _row(invocation: NewInvocation, now: int) -> tuple[Any, ...]:
    return (
        invocation.id,
        invocation.project_id,
        invocation.function_id,
        invocation.parent_run_id,
        invocation.queue,
        invocation.priority,
        now if invocation.scheduled_at is None else to_micros(invocation.scheduled_at),
        invocation.log_offset,
        invocation.state,
        now,
        invocation.order_key,
    )


def _count_masked(connection: sqlite3.Connection, masking: Sequence[MaskingCount], now: int) -> None:
    rows = [
        (
            masked.function_id,
            masked.hash,
            masked.count,
            to_micros(masked.expires_at),
            masked.before,
            now,
            masked.before,
        )
        for masked in masking
    ]
    if connection.executemany(_COUNT_MASKED, rows).rowcount != len(rows):
        raise MaskingMovedError


def _advance_job(connection: sqlite3.Connection, step: JobStep, new: int) -> None:
    counts = (step.seen, new, step.already_run, step.dead_letters)
    if not connection.execute(_STEP, (step.cursor, *counts, step.id, step.before)).rowcount:
        raise JobOverError(step.id)


class _Lock(NamedTuple):
    """Lock of an invocation that a worker holds."""

    lock_token: str
    function_id: str
    order_key: str | None

    @property
    def key(self) -> tuple[str, str] | None:
        """Key that the invocation shares with those that wait for its end."""
        return None if self.order_key is None else (self.function_id, self.order_key)


def _held(connection: sqlite3.Connection, locks: Sequence[tuple[str, str]]) -> dict[str, _Lock]:
    """Return valid locks among these (id, token), by id, which has one valid token at most."""
    rows = connection.execute(_HELD, (json.dumps(locks),)) if locks else ()
    return {id_: _Lock(*rest) for id_, *rest in rows}
