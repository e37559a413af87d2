"""Locks that servers of one PostgreSQL database keep each other out with: for all of their lives, or while they start.

Where the events are in a file beside one server, a second one would ingest the same records into a file of its own. The
lock is a session's. Who loses the session, because the database was restarted, takes it again; who then finds that
another server has it ends.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.postgres.connections import LOCK_CLASS
from hoglab.storage.database.postgres.session import PostgresSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hoglab.storage.database.postgres.session import Connect

LOCK_NUMBER = 3
START_LOCK_NUMBER = 4
"""The second halves of the locks' keys; those of the schemas are 1 and 2."""
POLL_S = 0.25
START_WAIT_S = 60.0
"""Time for which a server waits for others that are starting."""
ROUND_S = 1.0
"""Interval at which a server looks whether it still has the lock."""

_TAKE = f"SELECT pg_try_advisory_lock({LOCK_CLASS}, %s)"

_log = structlog.get_logger("hoglab")


class AnotherServerError(DatabaseError):
    """Another server has the lock."""


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class SoleServer(BackgroundService):
    """Background service that holds the lock, and ends the process when another server has got it."""

    NAME = "sole-server"

    def __init__(
        self,
        connect: Connect,
        name: str,
        *,
        wait_s: float,
        on_lost: Callable[[], None] = _end_process,
    ) -> None:
        """Raise `AnotherServerError` after ``wait_s``. ``name``: how the database is called in messages."""
        super().__init__()
        self._session = PostgresSession(connect, name)
        self._on_lost = on_lost
        if not _taken(self._session, LOCK_NUMBER, wait_s):
            self._session.close()
            raise AnotherServerError(
                f"another server works on {name}: stop it, only one may, because events are in a file beside it"
            )

    def round(self) -> float | None:
        """Take the lock once more: of the same session it is had already, else somebody may have been quicker."""
        try:
            has = self._session.value(_TAKE, (LOCK_NUMBER,))
        except DatabaseError as error:
            _log.warning("lock_not_looked_at", error=str(error))
            return ROUND_S
        if has:
            return ROUND_S
        _log.error("another_server", database=self._session.name, action="ends")
        self._on_lost()
        return None

    def close(self) -> None:
        """Give the lock back."""
        self._session.close()


@contextmanager
def starting_alone(connect: Connect, name: str) -> Iterator[None]:
    """Keep other servers from starting during the block, which makes ids, first keys and tables of the event store.

    Raises `AnotherServerError` when others take longer than `START_WAIT_S`.
    """
    with closing(PostgresSession(connect, name)) as session:
        if not _taken(session, START_LOCK_NUMBER, START_WAIT_S):
            raise AnotherServerError(f"another server has been starting on {name} for {START_WAIT_S:g} s")
        yield


def _taken(session: PostgresSession, number: int, wait_s: float) -> bool:
    """Return whether a lock was free within some time, and is the session's now."""
    deadline = time.monotonic() + wait_s
    while not session.value(_TAKE, (number,)):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
