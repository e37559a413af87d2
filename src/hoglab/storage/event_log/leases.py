"""Who reads which partition of an event log, and up to where it is done: rows of the queue's PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.storage.database.postgres.session import PostgresSession

if TYPE_CHECKING:
    from hoglab.storage.database.postgres.session import Connect

_MAKE = (
    "INSERT INTO log_lease (partition, epoch, expires_at, position) "
    "SELECT partition, 0, 0, 0 FROM generate_series(0, %s - 1) AS partition ON CONFLICT (partition) DO NOTHING"
)
_POSITIONS = "SELECT partition, position FROM log_lease"


class LogLeases:
    """The partitions of one log, as all processes know them. Raises `DatabaseError`."""

    def __init__(self, connect: Connect, name: str, *, partitions: int) -> None:
        """``connect`` and ``name``: as for `PostgresSession`. The schema is there."""
        self._session = PostgresSession(connect, name)
        self._session.rows(_MAKE, (partitions,))

    def positions(self) -> dict[int, int]:
        """The offset up to which each partition is done with, 0 at first."""
        return dict(self._session.rows(_POSITIONS))

    def close(self) -> None:
        """End the connection."""
        self._session.close()
