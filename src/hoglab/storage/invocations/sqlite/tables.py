"""Tables of the invocation queue in ``queue.db``, on which one process works."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hoglab.storage.database import Rebuildable, tables
from hoglab.storage.database.errors import explained
from hoglab.storage.database.locks import write_lock
from hoglab.storage.database.sqlite import connect
from hoglab.storage.invocations.sqlite.candidates import (
    SqliteCandidates,
    count_due,
    first_scheduled,
    is_ready,
    lanes_of,
    priorities_of,
    queues_of,
)
from hoglab.storage.invocations.sqlite.rows import SQL, SqliteQueueRows
from hoglab.storage.invocations.tables import claimed_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hoglab.storage.invocations.invocation import ClaimedInvocation
    from hoglab.storage.invocations.tables import Lane, Row

_FOREVER = 1 << 62


class SqliteQueueTables:
    """See `QueueTables`. Transactions of all threads take turns; reads go on meanwhile."""

    def __init__(self, path: Path) -> None:
        """Open the tables in a file, which `Database.open` has brought up to date. Raises `DatabaseError`."""
        self._name = str(path)
        self._writers = write_lock(path)
        self._durable = connect(path, tables.queue_metadata)
        self._relaxed = connect(path, tables.queue_metadata, rebuildable=Rebuildable.DELIVERY_PROGRESS)
        self._reader = connect(path, tables.queue_metadata, read_only=True)
        self._readers = threading.Lock()
        self.steady: Callable[[], float] | None = time.monotonic

    def now(self) -> datetime:
        """Return the moment by the system's clock."""
        return datetime.now(UTC)

    def new_token(self) -> str:
        """Return a lock token."""
        return str(uuid4())

    def follow(self, arrived: Callable[[], None], count: Callable[[], None]) -> None:
        """Do nothing: no other process has the file open."""

    def close(self) -> None:
        """Close the connections."""
        with self._writers.turn(), self._readers:
            for connection in (self._durable, self._relaxed, self._reader):
                connection.close()

    # -- writing ------------------------------------------------------------------------------------

    def turn(self) -> AbstractContextManager[None]:
        """Provide a block in which nobody else in this process writes to the file."""
        return self._writers.turn()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[SqliteQueueRows]:
        """Provide the rows for a block in a turn."""
        with self._begun(self._durable if durable else self._relaxed) as connection:
            yield SqliteQueueRows(connection)

    @contextmanager
    def _begun(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        with explained(self._name):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self.turn(), self._begun(self._relaxed) as connection:
            yield connection

    @contextmanager
    def candidates(
        self,
        queue: str,
        most: int,  # noqa: ARG002 - nothing is counted before it is taken
        token: str,
        now: int,
    ) -> Iterator[SqliteCandidates]:
        """Provide a transaction in which due invocations are locked; none, and no turn, if nothing is available."""
        with self._reading() as reader:
            priorities = priorities_of(reader, queue)
        if not priorities:
            yield SqliteCandidates(self._relaxed, queue, (), token, now)
            return
        with self._writing() as connection:
            yield SqliteCandidates(connection, queue, priorities, token, now)

    def beat(self, lock_tokens: Mapping[str, str], now: int) -> frozenset[str]:
        """Renew locks, and return the ids of those that are valid."""
        with self._writing() as connection:
            locked = SqliteQueueRows(connection).locked(list(lock_tokens.items()))
            connection.executemany(SQL["beat"], [{"id": id_, "now": now} for id_, _ in locked])
        return frozenset(id_ for id_, _ in locked)

    def release(self, now: int, *, own: bool) -> int:
        """Make due what this process was running, if ``own``: there is no other."""
        if not own:
            return 0
        with self._writing() as connection:
            return connection.execute(SQL["release"], {"now": now}).rowcount

    # -- sweeping -----------------------------------------------------------------------------------

    def latest(self) -> int:
        """Return the latest moment that was noted of what is over or at work."""
        return int(self._value("latest"))

    def move(self, jump: int, before: int) -> None:
        """Move heartbeats, and what waits or is open beyond a moment."""
        values = {"jump": jump, "before": before}
        with self._writing() as connection:
            for name in ("move_heartbeats", "move_waits", "move_windows"):
                connection.execute(SQL[name], values)

    def reset(self, beat_before: int, max_resets: int, most: int, due: Callable[[int], int]) -> int:
        """Make invocations without a heartbeat since a moment due again, and return how many."""
        values = {"beat_before": beat_before, "max_resets": max_resets, "most": most}
        with self._writing() as connection:
            rows = connection.execute(SQL["stalled"], values).fetchall()
            resets = [{"id": id_, "due": due(count), "count": count + 1} for id_, count in rows]
            connection.executemany(SQL["reset"], resets)
        return len(rows)

    def take_poisoned(
        self, beat_before: int, max_resets: int, most: int, now: int
    ) -> list[ClaimedInvocation]:
        """Lock invocations without a heartbeat since a moment that were reset ``max_resets`` times."""
        values = {"beat_before": beat_before, "max_resets": max_resets, "most": most}
        with self._writing() as connection:
            rows = connection.execute(
                SQL["take_poisoned"], values | {"token": self.new_token(), "now": now}
            ).fetchall()
        return list(map(claimed_of, rows))

    def delete_finished(self, before: int, most: int) -> int:
        """Delete what was finished before, as far as every consumer of the event log is past its record."""
        with self._writing() as connection:
            lowest = connection.execute(SQL["lowest_position"]).fetchone()[0]
            passed = _FOREVER if lowest is None else lowest
            values = {"before": before, "passed": passed, "most": most}
            return connection.execute(SQL["delete_finished"], values).rowcount

    def delete_expired(self, table: str, before: int, most: int) -> int:
        """Delete rows of a table that are older, and return how many."""
        with self._writing() as connection:
            values = {"before": before, "most": most}
            return connection.execute(SQL[f"expired_{table}"], values).rowcount

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with explained(self._name), self._readers:
            yield self._reader

    def _rows(self, name: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        with self._reading() as reader:
            return reader.execute(SQL[name], values or {}).fetchall()

    def _value(self, name: str, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, None when there is none."""
        rows = self._rows(name, values)
        return rows[0][0] if rows else None

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]:
        """Return invocations among some that run, wait or were run."""
        return frozenset(id_ for (id_,) in self._rows("known_ids", {"ids": json.dumps(list(ids))}))

    def masking_counts(self, keys: Sequence[tuple[str, str]], now: int) -> list[Row]:
        """Return function id, hash, count and end of open windows."""
        return self._rows("masking_counts", {"keys": json.dumps(keys), "now": now})

    def position(self, consumer: str) -> int:
        """Return the log position that a consumer reached, 0 when it never did."""
        return int(self._value("position", {"consumer": consumer}) or 0)

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with available invocations in a queue."""
        with self._reading() as reader:
            return list(dict.fromkeys(lane.function_id for lane in self._lanes(reader, queue)))

    def ready(self, queue: str, sizes: Mapping[str, int], now: int) -> list[Lane]:
        """Return lanes in which as many invocations wait as their function wants, or in which one is due."""
        with self._reading() as reader:
            return [
                lane
                for lane in self._lanes(reader, queue)
                if lane.function_id in sizes and is_ready(reader, lane, sizes[lane.function_id], now)
            ]

    def first_scheduled(self, apart_from: Collection[str]) -> int | None:
        """Return the moment when the first available invocation is due, apart from those of some functions."""
        with self._reading() as reader:
            moments = [
                first_scheduled(reader, lane)
                for queue in queues_of(reader)
                for lane in self._lanes(reader, queue, apart_from)
            ]
        return min((moment for moment in moments if moment is not None), default=None)

    def count_due(self, until: int, apart_from: Collection[str], most: int, most_of_project: int) -> int:
        """Return the number of available invocations due at a moment, apart from those of some functions."""
        counted = 0
        with self._reading() as reader:
            for queue in queues_of(reader):
                for priority in priorities_of(reader, queue):
                    if counted >= most:
                        return counted
                    lanes = lanes_of(reader, queue, priority, apart_from)
                    counted += count_due(reader, lanes, until, most - counted, most_of_project)
        return counted

    def _lanes(
        self, reader: sqlite3.Connection, queue: str, apart_from: Collection[str] = ()
    ) -> Iterator[Lane]:
        for priority in priorities_of(reader, queue):
            yield from lanes_of(reader, queue, priority, apart_from)

    def count_unfinished(self) -> list[tuple[str, int]]:
        """Return numbers of unfinished invocations; a function may come more than once."""
        return [(function_id, number) for function_id, number in self._rows("count_unfinished")]

    def count_running(self) -> int:
        return int(self._value("count_running"))

    def count_dead(self) -> int:
        return int(self._value("count_dead"))
