"""Processes that work on the queue: each renews a row of its own. What a dead one was running, others run again."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.types import from_micros
from hoglab.storage.invocations.postgres.rows import SQL, PostgresQueueRows

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from hoglab.storage.database.postgres.session import PostgresSession

WORKER_BEAT_EVERY_S = 2.0
WORKER_DEAD_AFTER_S = 10.0
"""Time without renewal of its row after which a worker counts as dead."""
SERVER_UP_FOR_S = WORKER_DEAD_AFTER_S
"""Nobody is taken for dead before the server runs for so long: while it was down, nobody could renew anything."""
WORKER_FORGOTTEN_AFTER_S = 3_600.0
COUNT_EVERY_S = 1.0
"""Interval at which the invocations of each function are counted, for what other processes enqueue and finish."""
COUNTING_SHARE = 20
"""Least ratio of the time between two counts to the time of one count: with millions of rows a count takes long."""
LISTEN_RETRY_S = 0.5
"""Pause after a failure before notifications are listened to again."""

_ID_LENGTH = 18
"""Number of characters of a lock token that name the worker: 64 bits."""

_log = structlog.get_logger(__name__)


class WorkerLease:
    """This process as the others see it."""

    def __init__(self) -> None:
        self._id = str(uuid4())[:_ID_LENGTH]

    def new_token(self) -> str:
        """Return a lock token that tells whose it is."""
        return self._id + str(uuid4())[_ID_LENGTH:]

    def beat(self, connection: psycopg.Connection[Any]) -> None:
        """Note in the database that this process lives."""
        connection.execute(SQL["beat_worker"].encode(), {"id": self._id})
        connection.execute(SQL["forget_workers"].encode(), {"age": int(WORKER_FORGOTTEN_AFTER_S * 1e6)})

    def leave(self, connection: psycopg.Connection[Any]) -> None:
        """Note in the database that this process ends."""
        connection.execute(SQL["leave"].encode(), {"id": self._id})

    def release(self, connection: psycopg.Connection[Any], now: int, *, own: bool) -> int:
        """Make due what dead workers were running, and (``own``) what this one was, and return how many invocations."""
        values = {
            "own": self._id if own else "",
            "id_length": _ID_LENGTH,
            "dead_after": int(WORKER_DEAD_AFTER_S * 1e6),
            "up_for": int(SERVER_UP_FOR_S * 1e6),
            "now": now,
        }
        return connection.execute(SQL["release"].encode(), values).rowcount


class ServerClock:
    """Clock of the server, by the steady clock of this machine between two readings."""

    def __init__(self, session: PostgresSession) -> None:
        """Read the clock for the first time. Raises `DatabaseError`."""
        self._session = session
        self._ahead_us = 0  # of the server's clock before the steady one of this machine
        self.read()

    def read(self) -> None:
        """Read the clock of the server."""
        before = time.monotonic_ns() // 1000
        now = self._session.value(SQL["server_now"])
        after = time.monotonic_ns() // 1000
        # What is known stays if it can be right: for a slow answer time must not go back, for what is due would wait.
        self._ahead_us = min(max(self._ahead_us, now - after), now - before)

    def now(self) -> datetime:
        """Return the present moment."""
        return from_micros(self._ahead_us + time.monotonic_ns() // 1000)


class Listener:
    """Thread that listens for work, beats for this process, and has the work of others counted."""

    def __init__(
        self, session: PostgresSession, worker: WorkerLease, clock: ServerClock, process: str
    ) -> None:
        """Listen on a session. ``process``: what this process's own notifications say, which are passed over."""
        self._session = session
        self._worker = worker
        self._clock = clock
        self._process = process
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, arrived: Callable[[], None], count: Callable[[], None]) -> None:
        """Start the thread; ``arrived`` is called when another process adds work, and ``count`` now and then."""
        with self._session.using() as connection:
            self._worker.beat(connection)
        self._thread = threading.Thread(
            target=self._listen_until_closed,
            args=(arrived, count),
            name="invocation-queue-listen",
            daemon=True,
        )
        self._thread.start()

    def close(self, session: PostgresSession) -> None:
        """End the thread. With another session it is woken, and others learn that this process ends."""
        self._closed.set()
        try:
            with session.using() as connection:
                self._worker.leave(connection)
                PostgresQueueRows(connection, self._process).announce()  # so that the listener looks around
        except DatabaseError:
            _log.info("queue_closed_without_server", queue=session.name)
        if self._thread is not None:
            self._thread.join()

    def _listen_until_closed(self, arrived: Callable[[], None], count: Callable[[], None]) -> None:
        while not self._closed.is_set():
            try:
                with self._session.using() as connection:
                    connection.execute(SQL["listen"].encode())
                    self._listen(connection, arrived, count)
            except Exception as error:
                _log.warning("queue_listen_failed", queue=self._session.name, reason=str(error))
                self._closed.wait(LISTEN_RETRY_S)

    def _listen(
        self,
        connection: psycopg.Connection[Any],
        arrived: Callable[[], None],
        count: Callable[[], None],
    ) -> None:
        beats_at = counts_at = 0.0
        while not self._closed.is_set():
            now = time.monotonic()
            if now >= beats_at:
                self._worker.beat(connection)
                self._clock.read()
                beats_at = now + WORKER_BEAT_EVERY_S
            if now >= counts_at:
                count()
                took_s = time.monotonic() - now
                counts_at = now + max(COUNT_EVERY_S, COUNTING_SHARE * took_s)
            left_s = max(0.0, min(beats_at, counts_at) - time.monotonic())
            for notification in connection.notifies(timeout=left_s, stop_after=1):
                if notification.payload != self._process:
                    arrived()
