"""Tables of the invocation queue in PostgreSQL, on which workers in any number of processes work.

Claims and outcomes wait for the server twice, however much is written, as long as no order keys are among them.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from hoglab.storage.database.locks import tried_again
from hoglab.storage.database.postgres.session import PostgresSession
from hoglab.storage.database.postgres.stuck import end_stuck
from hoglab.storage.invocations.postgres.candidates import PostgresCandidates
from hoglab.storage.invocations.postgres.rows import SQL, PostgresQueueRows
from hoglab.storage.invocations.postgres.workers import Listener, ServerClock, WorkerLease
from hoglab.storage.invocations.tables import Lane, claimed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from hoglab.storage.database.postgres.session import Connect
    from hoglab.storage.invocations.invocation import ClaimedInvocation
    from hoglab.storage.invocations.tables import Row

_EVERY_QUEUE = {"first": "", "last": "\U0010ffff"}


class PostgresQueueTables:
    """See `QueueTables`."""

    def __init__(self, connect: Connect, name: str) -> None:
        """Open the tables of an existing schema. Raises `DatabaseError`.

        ``connect``, ``name``: see `PostgresSession`.
        """
        self._durable = PostgresSession(connect, name)
        self._relaxed = PostgresSession(connect, name, relaxed=True)
        self._reader = PostgresSession(connect, name)
        self._listening = PostgresSession(connect, name, relaxed=True)
        self._writing = threading.Lock()
        self._process = str(uuid4())
        self._worker = WorkerLease()
        self._clock = ServerClock(self._reader)
        self._listener = Listener(self._listening, self._worker, self._clock, self._process)
        self.steady: Callable[[], float] | None = None

    def now(self) -> datetime:
        """Return the moment by the clock of the server."""
        return self._clock.now()

    def new_token(self) -> str:
        """Return a lock token that names this process."""
        return self._worker.new_token()

    def follow(self, arrived: Callable[[], None], count: Callable[[], None]) -> None:
        """Listen for work that other processes add, and have it counted."""
        self._listener.start(arrived, count)

    def close(self) -> None:
        """Close the connections. What this process was running is for others."""
        self._listener.close(self._relaxed)
        for session in (self._durable, self._relaxed, self._reader, self._listening):
            session.close()

    # -- writing ------------------------------------------------------------------------------------

    def turn(self) -> AbstractContextManager[object]:
        """Provide a block in which no other thread of this process has a transaction, or counts."""
        return self._writing

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[PostgresQueueRows]:
        """Provide the rows for a block in a turn."""
        with (self._durable if durable else self._relaxed).pipelined() as connection:
            yield PostgresQueueRows(connection, self._process)

    @contextmanager
    def candidates(self, queue: str, most: int, token: str, now: int) -> Iterator[PostgresCandidates]:
        """Provide a turn in which due invocations are counted, taken and locked."""
        with self._writing:
            yield PostgresCandidates(self._relaxed, queue, most, token, now)

    @tried_again
    def beat(self, lock_tokens: Mapping[str, str], now: int) -> frozenset[str]:
        """Renew locks, and return the ids of those that are valid."""
        values = {"ids": list(lock_tokens), "tokens": list(lock_tokens.values()), "now": now}
        return frozenset(id_ for (id_,) in self._relaxed.rows(SQL["beat"], values))

    @tried_again
    def release(self, now: int, *, own: bool) -> int:
        """Make due what dead processes were running, and (``own``) this one."""
        with self._relaxed.transaction() as connection:
            released = self._worker.release(connection, now, own=own)
            if released:
                PostgresQueueRows(connection, self._process).announce()
        return released

    # -- sweeping, beside the janitors of other processes: what another one holds is passed over ----

    def latest(self) -> int:
        """Return the latest moment that was noted of what is over or at work."""
        return int(self._reader.value(SQL["latest"]))

    @tried_again
    def move(self, jump: int, before: int) -> None:
        """Move heartbeats, and what waits or is open beyond a moment."""
        values = {"jump": jump, "before": before}
        with self._relaxed.transaction() as connection:
            for name in ("move_heartbeats", "move_waits", "move_windows"):
                connection.execute(SQL[name].encode(), values)

    def reset(self, beat_before: int, max_resets: int, most: int, due: Callable[[int], int]) -> int:
        """Make invocations without a heartbeat since a moment due again, and return how many."""
        values = {"beat_before": beat_before, "max_resets": max_resets, "most": most}
        with self._reader.using() as connection:
            end_stuck(connection)  # what it holds would be passed over
        with self._relaxed.transaction() as connection:
            rows = connection.execute(SQL["stalled"].encode(), values).fetchall()
            if rows:
                ids, counts = [id_ for id_, _ in rows], [count for _, count in rows]
                resets = {
                    "ids": ids,
                    "due": list(map(due, counts)),
                    "counts": [count + 1 for count in counts],
                }
                connection.execute(SQL["reset"].encode(), resets)
        return len(rows)

    def take_poisoned(
        self, beat_before: int, max_resets: int, most: int, now: int
    ) -> list[ClaimedInvocation]:
        """Lock invocations without a heartbeat since a moment that were reset ``max_resets`` times."""
        values = {"beat_before": beat_before, "max_resets": max_resets, "most": most}
        rows = self._relaxed.rows(SQL["take_poisoned"], values | {"token": self.new_token(), "now": now})
        return list(map(claimed_of, rows))

    def delete_finished(self, before: int, most: int) -> int:
        """Delete what was finished before, as far as every consumer of the event log is past its record."""
        return self._deleted("delete_finished", before, most)

    def delete_expired(self, table: str, before: int, most: int) -> int:
        """Delete rows of a table that are older, and return how many."""
        return self._deleted(f"expired_{table}", before, most)

    def _deleted(self, name: str, before: int, most: int) -> int:
        with self._relaxed.using() as connection:
            return connection.execute(SQL[name].encode(), {"before": before, "most": most}).rowcount

    # -- reading ------------------------------------------------------------------------------------

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]:
        """Return invocations among some that run, wait or were run."""
        return frozenset(id_ for (id_,) in self._reader.rows(SQL["known_ids"], {"ids": list(ids)}))

    def masking_counts(self, keys: Sequence[tuple[str, str]], now: int) -> list[Row]:
        """Return function id, hash, count and end of open windows."""
        functions, hashes = [function for function, _ in keys], [hash_ for _, hash_ in keys]
        return self._reader.rows(
            SQL["masking_counts"], {"functions": functions, "hashes": hashes, "now": now}
        )

    def position(self, consumer: str) -> int:
        """Return the log position that a consumer reached, 0 when it never did."""
        return int(self._reader.value(SQL["position"], {"consumer": consumer}) or 0)

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with available invocations in a queue."""
        rows = self._reader.rows(SQL["gathering"], {"first": queue, "last": queue})
        return [function_id for (function_id,) in rows]

    def ready(self, queue: str, sizes: Mapping[str, int], now: int) -> list[Lane]:
        """Return lanes in which as many invocations wait as their function wants, or in which one is due."""
        values = {
            "first": queue,
            "last": queue,
            "functions": list(sizes),
            "sizes": list(sizes.values()),
            "now": now,
        }
        return [Lane(*row) for row in self._reader.rows(SQL["ready"], values)]

    def first_scheduled(self, apart_from: Collection[str]) -> int | None:
        """Return the moment when the first available invocation is due, apart from those of some functions."""
        values = _EVERY_QUEUE | {"apart": list(apart_from)}
        first: int | None = self._reader.value(SQL["first_scheduled"], values)
        return first

    def count_due(self, until: int, apart_from: Collection[str], most: int, most_of_project: int) -> int:
        """Return the number of available invocations due at a moment, apart from those of some functions."""
        values = {
            "until": until,
            "apart": list(apart_from),
            "most": most,
            "most_of_project": most_of_project,
        }
        return int(self._reader.value(SQL["count_due"], _EVERY_QUEUE | values))

    def count_unfinished(self) -> list[tuple[str, int]]:
        """Return numbers of unfinished invocations; a function may come more than once."""
        rows = self._reader.rows(SQL["count_unfinished"])
        return [(function_id, number) for function_id, number in rows]

    def count_running(self) -> int:
        return int(self._reader.value(SQL["count_running"]))

    def count_dead(self) -> int:
        return int(self._reader.value(SQL["count_dead"]))
