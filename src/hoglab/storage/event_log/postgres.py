# ruff: noqa: S608 - statements are put together of constants
"""The event log in tables of PostgreSQL, which several processes may append to.

All who append lock the row of `event_log_head` until their transaction is over. So offsets are given out without gaps
and in the order of commits: who reads up to an offset has read all below it. In each process one thread appends for all
requests that wait, mostly with one statement. What other processes did is learnt under that lock before anything is
decided, and otherwise by notifications, with a look at the row from time to time as safety.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from hoglab.storage.database import DatabaseError
from hoglab.storage.database.locks import tried_again
from hoglab.storage.database.postgres.session import NOW_US, PostgresSession
from hoglab.storage.database.types import from_micros
from hoglab.storage.event_log import EventLogFullError, LogRecord, Offset
from hoglab.storage.event_log.deferral import STEP_RECORDS, Admitted, Deferral, step
from hoglab.storage.event_log.group_commit import RETRY_DISK_S
from hoglab.storage.event_log.log import (
    ACKNOWLEDGE_TIMEOUT_S,
    TIDY_STEP_RECORDS,
    GroupCommitLog,
    LogLimits,
    Stored,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from hoglab.storage.database.postgres.session import Connect
    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_log.group_commit import Waiter

POLL_S = 0.5
"""Delay with which a process learns what others appended and finished, when no notification reaches it."""

_CHANNEL = "hoglab_event_log"
_MAKE_HEAD = (
    'INSERT INTO event_log_head (id, last_offset, deferrals) SELECT 1, coalesce(max("offset"), 0), 0 '
    "FROM event_log_record ON CONFLICT (id) DO NOTHING"
)
_HEAD = f'SELECT last_offset, deferrals, {NOW_US}, (SELECT min("offset") FROM consumer_position) FROM event_log_head'
_LOCK = f"SELECT last_offset, deferrals, {NOW_US} FROM event_log_head FOR UPDATE"
_APPEND = f"""
WITH head AS (
    UPDATE event_log_head SET last_offset = last_offset + %(count)s
    WHERE last_offset = %(last)s AND deferrals = %(deferrals)s
    RETURNING last_offset - %(count)s AS before, coalesce(%(at)s, {NOW_US}) AS at
), stored AS (
    INSERT INTO event_log_record ("offset", owner, appended_at, payload)
    SELECT head.before + record.place, record.owner, head.at, record.payload
    FROM head, unnest(%(owners)s::integer[], %(payloads)b::bytea[]) WITH ORDINALITY AS record (owner, payload, place)
)
SELECT before + 1, at, pg_notify('{_CHANNEL}', %(sender)s) FROM head
"""
_SIZES = (
    'SELECT max("offset"), sum(octet_length(payload))::bigint, max(appended_at), owner FROM event_log_record '
    'WHERE "offset" > %s AND "offset" <= %s GROUP BY "offset" / 64, owner ORDER BY 1'
)
_DEFER = (
    "INSERT INTO deferred_record (owner, appended_at, payload) SELECT record.owner, %s, record.payload "
    "FROM unnest(%s::integer[], %b::bytea[]) WITH ORDINALITY AS record (owner, payload, place) ORDER BY place"
)
_DEFERRED = (
    "SELECT owner, count(*), sum(octet_length(payload))::bigint, min(appended_at) FROM deferred_record "
    "GROUP BY owner ORDER BY min(id)"
)
_NEXT = (
    "SELECT id, octet_length(payload), appended_at FROM deferred_record WHERE owner = %s ORDER BY id LIMIT %s"
)
_ADMIT = (
    'INSERT INTO event_log_record ("offset", owner, appended_at, payload) '
    "SELECT %s + row_number() OVER (ORDER BY id), owner, appended_at, payload FROM deferred_record "
    "WHERE owner = %s AND id <= %s"
)
_FORGET = "DELETE FROM deferred_record WHERE owner = %s AND id <= %s"
_MOVE_HEAD = (
    "UPDATE event_log_head SET last_offset = %s, deferrals = deferrals + 1 "
    f"RETURNING pg_notify('{_CHANNEL}', %s)"
)
_READ = """
SELECT record."offset", record.appended_at, record.payload FROM (
    SELECT "offset", sum(size) OVER (ORDER BY "offset") AS total, row_number() OVER (ORDER BY "offset") AS place
    FROM (
        SELECT "offset", octet_length(payload) AS size FROM event_log_record
        WHERE "offset" > %s ORDER BY "offset" LIMIT %s
    ) AS next
) AS wanted JOIN event_log_record AS record USING ("offset")
WHERE wanted.total <= %s OR wanted.place = 1 ORDER BY 1
"""
_POSITION = 'SELECT "offset" FROM consumer_position WHERE consumer = %s'
_LOWEST = 'SELECT min("offset") FROM consumer_position'
_COMMIT = (
    f'INSERT INTO consumer_position (consumer, "offset", updated_at) VALUES (%s, %s, {NOW_US}) '
    'ON CONFLICT (consumer) DO UPDATE SET "offset" = greatest(consumer_position."offset", excluded."offset"), '
    "updated_at = excluded.updated_at"
)
_SKIP = (
    f"UPDATE event_log_head SET last_offset = greatest(last_offset, %s) RETURNING pg_notify('{_CHANNEL}', '')"
)
_TRIM = (
    'DELETE FROM event_log_record WHERE "offset" IN '
    '(SELECT "offset" FROM event_log_record WHERE "offset" <= %s ORDER BY "offset" LIMIT %s) '
    "RETURNING octet_length(payload)"
)
_EXTENT = (
    'SELECT coalesce(min("offset"), 0), count(*), coalesce(sum(octet_length(payload)), 0)::bigint '
    "FROM event_log_record"
)
_OLDEST = 'SELECT appended_at FROM event_log_record WHERE "offset" > %s ORDER BY "offset" LIMIT 1'
_LAST_OF = 'SELECT max("offset") FROM event_log_record WHERE owner = %s AND appended_at <= %s'
_FIRST = 'SELECT min("offset") FROM event_log_record'

_log = structlog.get_logger(__name__)


class PostgresEventLog(GroupCommitLog):
    """The log of all processes that name the same database."""

    _acknowledge_s = ACKNOWLEDGE_TIMEOUT_S

    def __init__(self, connect: Connect, name: str, *, limits: LogLimits | None = None) -> None:
        """Open the log in an existing schema. ``connect``, ``name``: see `PostgresSession`. Raises `DatabaseError`."""
        super().__init__(name, limits or LogLimits())
        self._appender = PostgresSession(connect, name)
        # Positions and deletions do not wait for the disk: losing the latest repeats work, loses no events.
        self._keeper = PostgresSession(connect, name, relaxed=True)
        self._reader = PostgresSession(connect, name)
        self._listen_session = PostgresSession(connect, name)
        self._id = str(uuid4())
        self._deferrals = -1  # how often what is deferred had changed when this process looked at it
        self._ahead_us = 0  # how far the server's clock is ahead of ours
        self._latest_us = 0  # the newest moment of a record of ours
        self._keeper.rows(_MAKE_HEAD)
        self._refresh()
        self._listener = threading.Thread(
            target=self._listen_until_closed, name="event-log-listen", daemon=True
        )
        self._listener.start()
        self._start()

    def _now_us(self) -> int:
        return max(time.time_ns() // 1000 + self._ahead_us, self._latest_us)

    # -- what other processes do --------------------------------------------------------------------

    def _listen_until_closed(self) -> None:
        while not self._closed.is_set():
            try:
                with self._listen_session.using() as connection:
                    connection.execute(f"LISTEN {_CHANNEL}".encode())
                    self._refresh()
                    while not self._closed.is_set():
                        notifications = list(connection.notifies(timeout=POLL_S, stop_after=1))
                        if not notifications or notifications[0].payload != self._id:
                            self._refresh()
            except Exception as error:
                _log.warning("event_log_listen_failed", log=self._name, reason=str(error))
                self._closed.wait(POLL_S)

    def _refresh(self) -> None:
        """Learn what other processes appended, deferred and finished."""
        with self._applying, self._reader.using() as connection:
            last, deferrals, now, lowest = self._reader.rows(_HEAD)[0]
            self._ahead_us = now - time.time_ns() // 1000
            self._catch_up(connection, last, deferrals)
            with self._work:
                self._backlog.finish(lowest or 0)
                if self._deferral.records:
                    self._work.notify()

    def _catch_up(self, connection: psycopg.Connection[Any], last: Offset, deferrals: int) -> None:
        """Count what others did up to a state of the head. While `_applying` is held."""
        news, deferral = [], None
        if last > self._last_offset:
            news = connection.execute(_SIZES, (self._last_offset, last)).fetchall()
        if deferrals != self._deferrals:
            deferral = Deferral(self._limits.window_bytes)
            deferral.load(connection.execute(_DEFERRED).fetchall())
        with self._arrived:
            for last_offset, size, newest_at, owner in news:
                self._backlog.add(last_offset, size, newest_at, owner)
                self._newest_record = last_offset
            self._last_offset = max(self._last_offset, last)
            if deferral is not None:
                self._deferral, self._deferrals = deferral, deferrals
            if news:
                self._arrived.notify_all()

    # -- appending ----------------------------------------------------------------------------------

    @tried_again
    def _store_group(self, group: Sequence[Waiter]) -> Stored:
        with self._work:
            ready, deferred = self._deferral.divide(group, self._backlog)
        if not deferred:
            with self._appender.using() as connection:
                stored = self._append(connection, ready, self._deferrals, None)
            if stored is not None:
                return stored
        with self._appender.transaction() as connection:
            last, deferrals, now = self._locked(connection)
            with self._work:
                ready, deferred = self._deferral.divide(group, self._backlog)
            if deferred:
                owners = [owner for owner, _ in deferred]
                connection.execute(_DEFER, (now, owners, [waiter.payload for _, waiter in deferred]))
                connection.execute(_MOVE_HEAD, (last, self._id))
                deferrals += 1
            stored = (
                self._append(connection, ready, deferrals, now) if ready else Stored(Offset(0), now, (), ())
            )
            if stored is None:
                raise DatabaseError(f"{self._name} was changed without its lock")
        self._deferrals = deferrals
        self._latest_us = now
        return stored._replace(deferred=deferred)

    def _locked(self, connection: psycopg.Connection[Any]) -> tuple[Offset, int, int]:
        """Keep others from appending until the end of the transaction; last offset, deferrals, and the moment."""
        row = connection.execute(_LOCK.encode()).fetchone()
        if row is None:
            raise DatabaseError(f"{self._name} has no head: it was not prepared")
        last, deferrals, now = row
        self._catch_up(connection, last, deferrals)
        return last, deferrals, now

    def _append(
        self, connection: psycopg.Connection[Any], ready: Sequence[Waiter], deferrals: int, now: int | None
    ) -> Stored | None:
        """Store records, unless something was done that this process does not know of."""
        values = {
            "count": len(ready),
            "last": self._last_offset,
            "deferrals": deferrals,
            "at": now,
            "owners": [waiter.owner for waiter in ready],
            "payloads": [waiter.payload for waiter in ready],
            "sender": self._id,
        }
        row = connection.execute(_APPEND.encode(), values).fetchone()
        if row is None:
            return None
        first, at, _ = row
        self._latest_us = at
        return Stored(first, at, ready, ())

    def _admit_from(self, owner: int) -> Admitted | None:  # noqa: ARG002 - whose turn it is may have changed
        with self._appender.transaction() as connection:
            last, deferrals, _ = self._locked(connection)
            with self._work:
                following = self._deferral.next_owner(self._backlog)
            if following is None:
                return None
            rows = connection.execute(_NEXT, (following, STEP_RECORDS + 1)).fetchall()
            taken, oldest_left = step(rows, self._deferral.step_bytes)
            last_id, _, newest_at = taken[-1]
            connection.execute(_ADMIT, (last, following, last_id))
            connection.execute(_FORGET, (following, last_id))
            last = Offset(last + len(taken))
            connection.execute(_MOVE_HEAD, (last, self._id))
            admitted = Admitted(following, last, [size for _, size, _ in taken], newest_at, oldest_left)
        self._deferrals = deferrals + 1
        return admitted

    def _check_space(self, size: int) -> None:
        """Do nothing: the server reports a full disk itself."""

    def _space_is_scarce(self) -> bool:
        return False

    def check(self) -> None:
        """Raise the `EventLogFullError` that a small record would meet now, for health checks."""
        super().check()
        try:
            self._reader.value("SELECT 1 FROM event_log_head")
        except DatabaseError as error:
            raise EventLogFullError(str(error), RETRY_DISK_S) from error

    # -- reading ------------------------------------------------------------------------------------

    def read(self, after: Offset, *, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        """Return records above ``after`` in order; see `GroupCommitLog.read`."""
        rows = self._reader.rows(_READ, (after, max_records, max_bytes))
        return [LogRecord(offset, from_micros(at), payload) for offset, at, payload in rows]

    def position(self, consumer: str) -> Offset:
        """Return the last offset that this consumer has finished, 0 when it never committed."""
        return self._reader.value(_POSITION, (consumer,)) or Offset(0)

    def _lowest_position(self) -> Offset | None:
        lowest: Offset | None = self._reader.value(_LOWEST)
        return lowest

    def _move_position(self, consumer: str, offset: Offset) -> None:
        self._keeper.rows(_COMMIT, (consumer, offset))

    def _extent(self) -> tuple[Offset, int, int]:
        first, records, size = self._reader.rows(_EXTENT)[0]
        return first, records, size

    def _oldest_stored(self, after: Offset) -> int | None:
        oldest: int | None = self._reader.value(_OLDEST, (after,))
        return oldest

    def _last_of(self, owner: int, until: int) -> Offset | None:
        last: Offset | None = self._reader.value(_LAST_OF, (owner, until))
        return last

    def _first_stored(self) -> Offset | None:
        first: Offset | None = self._reader.value(_FIRST)
        return first

    def advance_sequence(self, number: SequenceNumber) -> None:
        """Give out only offsets above ``number`` from now on; nothing changes when that is so already."""
        self._keeper.rows(_SKIP, (number,))
        self._refresh()

    # -- deleting -----------------------------------------------------------------------------------

    def _delete_step(self, up_to: int) -> list[int]:
        return [size for (size,) in self._keeper.rows(_TRIM, (up_to, TIDY_STEP_RECORDS))]

    def _give_back(self, *, scarce: bool) -> None:
        """Do nothing: autovacuum frees the space of deleted rows."""

    def _disconnect(self) -> None:
        try:
            self._keeper.rows(f"SELECT pg_notify('{_CHANNEL}', '')")  # so that the listener looks around
        except DatabaseError:
            _log.info("event_log_closed_without_server", log=self._name)
        self._listener.join()
        for session in (self._appender, self._keeper, self._reader, self._listen_session):
            session.close()
