"""How old the oldest snapshot of a database server is, which keeps rows that are gone in the way of the queue."""

from __future__ import annotations

import structlog
from prometheus_client import Gauge

from hoglab.background import BackgroundService
from hoglab.storage.database import Database, DatabaseError

EVERY_S = 5.0
OLD_S = 60.0
"""From when on health tells of a snapshot. None of ours is so old, unless a list goes to a slow client."""

_OLDEST_S = Gauge(
    "hoglab_database_oldest_snapshot_seconds",
    "For how long the oldest transaction of the database is open that keeps deleted rows from being cleaned up.",
)

_log = structlog.get_logger("hoglab")


class SnapshotWatch(BackgroundService):
    """Background service that asks for the oldest snapshot of a database."""

    NAME = "snapshot-watch"

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._oldest_s = 0.0

    def round(self) -> float:
        """Ask, as far as the database answers."""
        try:
            self._oldest_s = self._database.oldest_snapshot_s()
        except DatabaseError as error:
            _log.warning("snapshots_not_looked_at", error=str(error))
        else:
            _OLDEST_S.set(self._oldest_s)
        return EVERY_S

    def problem(self) -> str | None:
        """What is wrong, None when nothing is."""
        if self._oldest_s <= OLD_S:
            return None
        return (
            f"a transaction is open for {self._oldest_s:.0f} s: rows that are gone stay in the way, and the queue "
            "becomes slow; find it in pg_stat_activity by its backend_xmin, and end it"
        )
