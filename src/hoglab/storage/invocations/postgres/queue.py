# ruff: noqa: S608 - statements are put together of constants
"""The invocation queue in tables of PostgreSQL.

Workers in any number of processes claim and finish in batches, each in one transaction of one or two statements; they
wait for the server twice, however much is written, as long as no order keys are among them. Nobody
waits for a row that another one is about to take (``SKIP LOCKED``). Claims, heartbeats and outcomes do not wait for the
disk: after a crash of the server the turns of the last moment are run again, which at-least-once delivery allows. What
was enqueued waits for the disk, unless it comes from the event log, which has it already.

Of one order key, who enqueues and who finishes take turns by an advisory lock until their transactions are over, so
that each sees what the other did. The turns of all keys of a transaction come first, in ascending order, and then its
rows: nobody who has a row waits for the turn of somebody who wants that row.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter as Counts
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from hoglab.storage.database import DatabaseError
from hoglab.storage.database.locks import tried_again
from hoglab.storage.database.postgres.session import NOW_US, PostgresSession
from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations import MaskingCount, QueueStats
from hoglab.storage.invocations.claims import COLUMNS, Claims, Shares, claimed_of
from hoglab.storage.invocations.dead_letter_rows import CROWDED_OUT
from hoglab.storage.invocations.janitor import Janitor
from hoglab.storage.invocations.postgres import candidates, side_writes
from hoglab.storage.invocations.postgres.adding import insert, take_turns
from hoglab.storage.invocations.postgres.janitor_tables import PostgresJanitorTables
from hoglab.storage.invocations.postgres.workers import WORKER_BEAT_EVERY_S, WorkerLease
from hoglab.storage.invocations.traces import TRACE_RETENTION_DAYS, Traces, still_mine
from hoglab.storage.invocations.unfinished import COUNT_DEAD, COUNT_EACH, COUNT_RUNNING, UnfinishedCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    import psycopg

    from hoglab.storage.database.postgres.session import Connect
    from hoglab.storage.invocations import (
        Allowance,
        AppMetric,
        ClaimedInvocation,
        InvocationBatch,
        InvocationOutcome,
        InvocationResult,
        LogEntry,
        NewInvocation,
        Sweep,
    )

COUNT_EVERY_S = 1.0
"""Interval at which the invocations of each function are counted, for what other processes enqueue and finish."""
COUNTING_SHARE = 20
"""Least ratio of the time between two counts to the time of one count: with millions of rows a count takes long."""
LISTEN_RETRY_S = 0.5
"""Pause after a failure before notifications are listened to again."""

_NO_KEY = "-"
"""The end of a lock token that says of its invocation that it has no order key, so that nobody asks when it ends."""
_CHANNEL = "hoglab_queue"
_NOTIFY = f"SELECT pg_notify('{_CHANNEL}', %s)"
_CLAIM = f"""
WITH picked AS MATERIALIZED (
    SELECT due.id FROM unnest(%(priorities)s::smallint[], %(projects)s::integer[], %(functions)s::text[],
        %(firsts)s::bigint[], %(numbers)s::integer[]) AS wanted (priority, project_id, function_id, first, number)
    CROSS JOIN LATERAL (
        SELECT id FROM invocation WHERE status = 'available' AND queue = %(queue)s
            AND invocation.priority = wanted.priority AND invocation.project_id = wanted.project_id
            AND invocation.function_id = wanted.function_id
            AND scheduled_at >= wanted.first AND scheduled_at <= %(now)s
        ORDER BY scheduled_at LIMIT wanted.number FOR UPDATE SKIP LOCKED
    ) AS due
)
UPDATE invocation SET status = 'running', heartbeat_at = %(now)s,
    lock_token = CASE WHEN order_key IS NULL THEN left(%(token)s, -1) || '{_NO_KEY}' ELSE %(token)s END
WHERE id IN (SELECT id FROM picked) RETURNING {COLUMNS}
"""
_KEYS = "SELECT DISTINCT function_id, order_key FROM invocation WHERE id = ANY (%b) AND order_key IS NOT NULL"
_FINISH = """
UPDATE invocation SET status = outcome.status, lock_token = NULL, heartbeat_at = NULL,
    finished_at = CASE WHEN outcome.status = 'available' THEN NULL ELSE %(now)s::bigint END,
    state = CASE WHEN outcome.status = 'available' THEN coalesce(outcome.state, invocation.state) ELSE '' END,
    scheduled_at = CASE WHEN outcome.status = 'available' THEN outcome.due ELSE invocation.scheduled_at END,
    reset_count = CASE WHEN outcome.status = 'available' THEN 0 ELSE invocation.reset_count END,
    priority = coalesce(outcome.priority, invocation.priority)
FROM unnest(%(ids)b::text[], %(tokens)b::text[], %(statuses)b::text[], %(states)b::bytea[], %(due)b::bigint[],
    %(priorities)b::smallint[]) AS outcome (id, token, status, state, due, priority)
WHERE invocation.id = outcome.id AND invocation.lock_token = outcome.token AND invocation.status = 'running'
RETURNING invocation.id, invocation.function_id, invocation.order_key, outcome.status
"""
_UNBLOCK_NEXT = """
UPDATE invocation SET status = 'available', scheduled_at = greatest(scheduled_at, %s)
FROM unnest(%s::text[], %s::text[]) AS key (function_id, order_key)
WHERE invocation.status = 'held' AND invocation.id = (
    SELECT next.id FROM invocation AS next WHERE next.function_id = key.function_id
        AND next.order_key = key.order_key AND next.finished_at IS NULL ORDER BY next.rowid LIMIT 1
)
RETURNING invocation.id
"""
_BEAT = """
UPDATE invocation SET heartbeat_at = %s FROM unnest(%s::text[], %s::text[]) AS lock (id, token)
WHERE invocation.id = lock.id AND invocation.lock_token = lock.token AND invocation.status = 'running'
RETURNING invocation.id
"""
_OLDEST = f"""
SELECT {COLUMNS} FROM invocation WHERE status = 'available' AND queue = %s AND priority = %s AND project_id = %s
    AND function_id = %s ORDER BY scheduled_at, rowid LIMIT %s FOR UPDATE
"""
_TAKE = "UPDATE invocation SET status = 'completed', finished_at = %s, state = '' WHERE id = ANY (%s)"
_MASKED = """
SELECT counter.function_id, counter.hash, counter.count, counter.expires_at
FROM unnest(%s::text[], %s::text[]) AS asked (function_id, hash)
JOIN masking_counter AS counter USING (function_id, hash) WHERE counter.expires_at > %s
"""
_SETTLED = """
SELECT id FROM unnest(%s::text[]) AS asked (id)
WHERE EXISTS (SELECT 1 FROM invocation WHERE invocation.id = asked.id AND status <> 'cancelled')
    OR EXISTS (SELECT 1 FROM invocation_result WHERE invocation_id = asked.id AND status <> 'cancelled')
"""
_POSITION = 'SELECT "offset" FROM consumer_position WHERE consumer = %s'
_NOW = f"SELECT {NOW_US}"

_log = structlog.get_logger(__name__)


class PostgresInvocationQueue(UnfinishedCounts):
    """See `InvocationQueue` and `RunWriter`. Every method may be called from any thread."""

    def __init__(
        self,
        connect: Connect,
        name: str,
        *,
        now: Callable[[], datetime] | None = None,
        steady: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
        trace_days: int = TRACE_RETENTION_DAYS,
    ) -> None:
        """Open the queue in an existing schema. ``connect``, ``name``: see `PostgresSession`.

        By default moments are those of the server's clock, which all workers share. ``steady`` counts seconds, also
        while the clock of ``now`` is set. ``jitter`` gives numbers between 0 and 1 for back-off. ``trace_days``: how
        long logs and metrics are kept. Raises `DatabaseError`.
        """
        super().__init__()
        self._name = name
        self._durable = PostgresSession(connect, name)
        self._relaxed = PostgresSession(connect, name, relaxed=True)
        self._reader = PostgresSession(connect, name)
        self._listen_session = PostgresSession(connect, name, relaxed=True)
        self._writing = threading.Lock()  # held until the counts have what a transaction did
        self._traces = Traces()
        self._claims = Claims()
        self._worker = WorkerLease()
        self._clock_ahead_us = 0  # of the server's clock before the steady one of this machine
        self._now = now or self._server_clock
        self._read_clock()

        self._closed = threading.Event()
        self._id = str(uuid4())

        tables = PostgresJanitorTables(self._transaction, self._worker.new_token)
        self._janitor = Janitor(tables, self._now, steady, jitter, trace_days)
        self._janitor.follow_clock_of_last_time()
        with self._listen_session.using() as connection:
            self._worker.beat(connection)
        self._count()
        self._listener = threading.Thread(
            target=self._listen_until_closed, name="invocation-queue-listen", daemon=True
        )
        self._listener.start()

    def now(self) -> datetime:
        """Return the present moment by the clock that all workers share."""
        return self._now()

    # -- what other processes do --------------------------------------------------------------------

    def _listen_until_closed(self) -> None:
        """Listen for work, beat for this process, and count what others do, until the queue is closed."""
        while not self._closed.is_set():
            try:
                with self._listen_session.using() as connection:
                    connection.execute(f"LISTEN {_CHANNEL}".encode())
                    self._listen(connection)
            except Exception as error:
                _log.warning("queue_listen_failed", queue=self._name, reason=str(error))
                self._closed.wait(LISTEN_RETRY_S)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        beats_at = counts_at = 0.0
        while not self._closed.is_set():
            now = time.monotonic()
            if now >= beats_at:
                self._worker.beat(connection)
                self._read_clock()
                beats_at = now + WORKER_BEAT_EVERY_S
            if now >= counts_at:
                self._count()
                took_s = time.monotonic() - now
                counts_at = now + max(COUNT_EVERY_S, COUNTING_SHARE * took_s)
            left_s = max(0.0, min(beats_at, counts_at) - time.monotonic())
            for notification in connection.notifies(timeout=left_s, stop_after=1):
                if notification.payload != self._id:
                    self._note(arrivals=1)

    def _count(self) -> None:
        """Count the invocations of each function again, while this process changes none."""
        with self._writing:
            self._recount(self._reader.rows(COUNT_EACH))

    def _read_clock(self) -> None:
        before = time.monotonic_ns() // 1000
        now = self._reader.value(_NOW)
        after = time.monotonic_ns() // 1000
        # What is known stays if it can be right: for a slow answer time must not go back, for what is due would wait.
        self._clock_ahead_us = min(max(self._clock_ahead_us, now - after), now - before)

    def _server_clock(self) -> datetime:
        return from_micros(self._clock_ahead_us + time.monotonic_ns() // 1000)

    # -- adding -------------------------------------------------------------------------------------

    @tried_again
    def enqueue(self, batch: InvocationBatch) -> int:
        """Add a batch in one transaction, and return how many invocations were new."""
        now = self._moment()
        crowded_out = 0
        session = self._durable if batch.position is None else self._relaxed
        with self._counted() as counted, session.pipelined() as connection:
            if batch.position is not None:
                side_writes.advance(connection, batch.position, now)
            counted.added = new = insert(connection, batch.invocations, now)
            if batch.masking:
                side_writes.count_masked(connection, batch.masking, now)
            side_writes.write_traces(connection, self._traces, batch.logs, batch.metrics, batch.results)
            if batch.retried:
                side_writes.forget_dead(connection, batch.retried)
            if batch.dead:
                crowded_out = side_writes.save_dead(connection, batch.dead)
            if batch.step is not None:
                side_writes.advance_job(connection, batch.step, new.total())
            if new:
                counted.arrivals = new.total()
                connection.execute(_NOTIFY.encode(), (self._id,))
        if crowded_out:
            CROWDED_OUT.inc(crowded_out)
        return new.total()

    def masking_counts(self, keys: Sequence[tuple[str, str]]) -> list[MaskingCount]:
        """Return the counts of (function id, hash) pairs whose windows are open."""
        functions, hashes = [function for function, _ in keys], [hash_ for _, hash_ in keys]
        rows = self._reader.rows(_MASKED, (functions, hashes, self._moment()))
        return [MaskingCount(function, hash_, count, from_micros(at)) for function, hash_, count, at in rows]

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]:
        """Return invocations among some that run, wait or were run, as far as that is remembered."""
        return frozenset(id_ for (id_,) in self._reader.rows(_SETTLED, (list(ids),)))

    def position(self, consumer: str) -> int:
        """Return the log position that a consumer reached, 0 when it never did."""
        return int(self._reader.value(_POSITION, (consumer,)) or 0)

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

        Priority ascending, then projects and functions in turn, the oldest of each first. One statement counts the due
        invocations of each function; another locks the shares, without rows that other processes locked meanwhile.
        """
        self._begin_claim()
        now = self._moment()
        token = self._worker.new_token()
        claimed: list[ClaimedInvocation] = []
        shares = Shares(frozenset(exclude_functions), frozenset(exclude_projects), allowance)
        with self._writing:
            while room := limit - len(claimed):
                due = candidates.due_of(self._relaxed, queue, limit, now)
                wanted = self._divide(due, queue, room, room if limit_each is None else limit_each, shares)
                if not wanted:
                    break
                rows = self._relaxed.rows(_CLAIM, _claim_values(wanted, queue, token, now))
                claimed += map(claimed_of, rows)
                if limit_each is not None or all(lane.number < lane.counted for lane in due):
                    break  # of nobody there is more than was counted
        return sorted(claimed, key=attrgetter("priority", "scheduled_at"))

    def _divide(
        self, due: Sequence[candidates.Due], queue: str, room: int, most_each: int, shares: Shares
    ) -> dict[tuple[int, int, str, int], int]:
        """Return the number of invocations to lock, by priority, project, function and due time of its first."""
        wanted: dict[tuple[int, int, str, int], int] = {}
        first = {(lane.priority, lane.function_id): lane.first for lane in due}
        for priority in sorted({lane.priority for lane in due}):
            if room <= 0:
                break
            shares.begin(min(room, most_each))
            counted = candidates.Counted([lane for lane in due if lane.priority == priority])
            room -= len(self._claims.claim((queue, priority), counted, room, shares))
            for (project_id, function_id), number in counted.taken.items():
                if number:
                    wanted[priority, project_id, function_id, first[priority, function_id]] = number
        return wanted

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with invocations that wait in a queue for others."""
        return candidates.gathering(self._reader, queue)

    def gather(
        self,
        queue: str,
        sizes: Mapping[str, int],
        merge: Callable[[list[ClaimedInvocation]], tuple[NewInvocation | None, list[InvocationResult]]],
    ) -> int:
        """Make one invocation of several that waited for each other, and return how many were made."""
        now = self._moment()
        merged = 0
        while ready := candidates.ready(self._reader, queue, sizes, now):
            before = merged
            for lane in ready:
                merged += self._gather(lane, sizes[lane[3]], now, merge)
            if merged == before:
                break  # another process was faster, or nothing was merged
        return merged

    @tried_again
    def _gather(
        self,
        lane: tuple[str, int, int, str],
        size: int,
        now: int,
        merge: Callable[[list[ClaimedInvocation]], tuple[NewInvocation | None, list[InvocationResult]]],
    ) -> int:
        with self._counted() as counted, self._transaction() as connection:
            take_turns(connection, [(f"gather {lane[0]}", lane[3])])
            rows = connection.execute(_OLDEST.encode(), (*lane, size)).fetchall()
            waiting = list(map(claimed_of, rows))
            if not waiting or (len(waiting) < size and to_micros(waiting[0].scheduled_at) > now):
                return 0
            connection.execute(_TAKE, (now, [invocation.id for invocation in waiting]))
            merged, results = merge(waiting)
            new = insert(connection, [] if merged is None else [merged], now)
            side_writes.write_traces(connection, self._traces, (), (), results)
            counted.added, counted.over = new, Counts({lane[3]: len(waiting)})
            counted.arrivals = new.total()
            connection.execute(_NOTIFY.encode(), (self._id,))
        return new.total()

    @tried_again
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
        last = {(outcome.id, outcome.lock_token): outcome for outcome in outcomes}
        values = {
            "ids": [id_ for id_, _ in last],
            "tokens": [token for _, token in last],
            "statuses": [outcome.status for outcome in last.values()],
            "states": [outcome.state for outcome in last.values()],
            "due": [
                now if outcome.scheduled_at is None else to_micros(outcome.scheduled_at)
                for outcome in last.values()
            ],
            "priorities": [outcome.priority for outcome in last.values()],
            "now": now,
        }
        with self._counted() as counted, self._relaxed.pipelined() as connection:
            ending = [
                outcome.id
                for outcome in last.values()
                if outcome.status != "available" and not outcome.lock_token.endswith(_NO_KEY)
            ]
            if ending and (turns := connection.execute(_KEYS, (ending,)).fetchall()):
                take_turns(connection, turns)
            rows = connection.execute(_FINISH, values).fetchall() if last else []
            final = [(function, key) for _, function, key, status in rows if status != "available"]
            keys = sorted({(function, key) for function, key in final if key is not None})
            unblocked = 0
            if keys:
                functions, order_keys = [function for function, _ in keys], [key for _, key in keys]
                unblocked = len(connection.execute(_UNBLOCK_NEXT, (now, functions, order_keys)).fetchall())
            mine = still_mine(results, outcomes, {row[0] for row in rows})
            side_writes.write_traces(connection, self._traces, logs, metrics, mine)
            if unblocked:
                connection.execute(_NOTIFY.encode(), (self._id,))
            counted.over = Counts(function for function, _ in final)
            counted.arrivals = len(rows) - len(final) + unblocked
        return frozenset(row[0] for row in rows)

    @tried_again
    def heartbeat(self, lock_tokens: Mapping[str, str]) -> frozenset[str]:
        """Renew locks (id -> token), about every `janitor.HEARTBEAT_EVERY_S`; return the ids that are still held."""
        now = self._moment()
        rows = self._relaxed.rows(_BEAT, (now, list(lock_tokens), list(lock_tokens.values())))
        return frozenset(id_ for (id_,) in rows)

    # -- the janitor --------------------------------------------------------------------------------

    def sweep(self) -> Sweep:
        """Reset what lost its worker, hand out poison pills, delete what is over.

        What a process was running that is dead is due at once. That does not count as a reset: it says nothing about
        any one of the hundreds that were in flight.
        """
        self._moment()
        self._release(own=False)
        sweep = self._janitor.sweep()
        self._note(arrivals=sweep.reset)
        return sweep

    def release_all(self) -> int:
        """Make due what no other living process is running; for the start, when this one runs nothing."""
        return self._release(own=True)

    @tried_again
    def _release(self, *, own: bool) -> int:
        with self._counted() as counted, self._transaction() as connection:
            released = self._worker.release(connection, to_micros(self._now()), own=own)
            if released:
                connection.execute(_NOTIFY.encode(), (self._id,))
            counted.arrivals = released
        return released

    # -- what runs leave behind ---------------------------------------------------------------------

    @tried_again
    def write_logs(self, logs: Sequence[LogEntry]) -> None:
        """Add log lines outside of any turn."""
        with self._transaction() as connection:
            side_writes.write_traces(connection, self._traces, logs, (), ())

    @tried_again
    def write_metrics(self, metrics: Sequence[AppMetric]) -> None:
        """Count metrics outside of any turn."""
        with self._transaction() as connection:
            side_writes.write_traces(connection, self._traces, (), metrics, ())

    # -- watching -----------------------------------------------------------------------------------

    def next_due(self, *, apart_from: Collection[str] = ()) -> datetime | None:
        """Return the time when the next available invocation is due, None when there is none."""
        first = candidates.first_scheduled(self._reader, apart_from)
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
        return candidates.count_due(self._reader, to_micros(until), apart_from, most, most_of_project or most)

    def stats(self) -> QueueStats:
        """Return counts, and since when the oldest due invocation waits."""
        first = self.next_due()
        due = first is not None and first <= self._now()
        running = self._reader.value(COUNT_RUNNING)
        waiting = max(0, self.backlog() - running)
        return QueueStats(waiting, running, first if due else None, self._reader.value(COUNT_DEAD))

    def close(self) -> None:
        """Close the connections; the queue is not used afterwards. What this process was running is for others."""
        self._closed.set()
        try:
            with self._relaxed.using() as connection:
                self._worker.leave(connection)
                connection.execute(_NOTIFY.encode(), (self._id,))  # so that the listener looks around
        except DatabaseError:
            _log.info("queue_closed_without_server", queue=self._name)
        self._listener.join()
        for session in (self._durable, self._relaxed, self._reader, self._listen_session):
            session.close()

    # -- plumbing -----------------------------------------------------------------------------------

    def _moment(self) -> int:
        """Return the time in microseconds of Unix time, and notice when the clock was set."""
        if self._janitor.clock_was_set():
            self._note(arrivals=self._janitor.follow_clock())
        return to_micros(self._now())

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[psycopg.Connection[Any]]:
        with (self._durable if durable else self._relaxed).transaction() as connection:
            yield connection

    @contextmanager
    def _counted(self) -> Iterator[_Counted]:
        """Provide a block around a transaction whose changes are counted after the commit."""
        with self._writing:
            counted = _Counted()
            yield counted
            self._note(arrivals=counted.arrivals, added=counted.added, over=counted.over)


class _Counted:
    """Changes of the counts by a transaction."""

    def __init__(self) -> None:
        self.arrivals = 0
        self.added: Counts[str] = Counts()
        self.over: Counts[str] = Counts()


def _claim_values(
    wanted: Mapping[tuple[int, int, str, int], int], queue: str, token: str, now: int
) -> dict[str, Any]:
    priorities, projects, functions, firsts = zip(*wanted, strict=True)
    return {
        "priorities": list(priorities),
        "projects": list(projects),
        "functions": list(functions),
        "firsts": list(firsts),
        "numbers": list(wanted.values()),
        "queue": queue,
        "token": token,
        "now": now,
    }
