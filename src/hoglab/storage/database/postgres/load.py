"""Load of a PostgreSQL server by all processes together: connections against its limit, and open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import structlog
from prometheus_client import Gauge

from hoglab.background import BackgroundService
from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.postgres.session import PostgresSession

if TYPE_CHECKING:
    from hoglab.storage.database.postgres.session import Connect

EVERY_S = 10.0
"""Interval at which the server is asked."""
MOST_CONNECTIONS = 0.8
"""Share of the allowed connections above which health reports a problem."""
OLD_SNAPSHOT_S = 60.0
"""Age of an open transaction that health reports: rows deleted meanwhile stay, and slow the queue."""

# Of users whose transactions the role may not read, only connections count; pg_read_all_stats lets it read all.
_QUERY = """
SELECT count(*) FILTER (WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       coalesce(extract(epoch FROM clock_timestamp() - least(
           min(xact_start) FILTER (WHERE backend_xmin IS NOT NULL AND datname = current_database()),
           (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database())
       )), 0)::float8
FROM pg_stat_activity WHERE pid <> pg_backend_pid()
"""

_CONNECTIONS = Gauge(
    "hoglab_database_connections", "Connections of the PostgreSQL server, of all its users together."
)
_MOST = Gauge("hoglab_database_connections_most", "Connections that the PostgreSQL server allows.")
_OLDEST_S = Gauge(
    "hoglab_database_oldest_snapshot_seconds",
    "For how long the oldest transaction is open that keeps deleted rows from being cleaned up; 0: none.",
)

_log = structlog.get_logger("hoglab")


class Load(NamedTuple):
    """Load of a server when it was last measured."""

    connections: int = 0
    most: int = 0
    oldest_snapshot_s: float = 0.0


class DatabaseLoad(BackgroundService):
    """Background service that measures the server of a database, for metrics and health."""

    NAME: ClassVar[str] = "database-load"

    def __init__(self, connect: Connect, name: str) -> None:
        """Measure the server that ``connect`` reaches; ``name`` names the database in messages."""
        super().__init__()
        self._session = PostgresSession(connect, name)
        self._seen: Load | None = None

    def round(self) -> float:
        """Measure the server if it answers, and return the seconds until the next round."""
        try:
            [row] = self._session.rows(_QUERY)
        except DatabaseError as error:
            _log.warning("database_not_measured", reason=str(error))
            return EVERY_S
        seen = Load(*row)
        if self._seen is None:
            _log.info("database_connections", used=seen.connections, most=seen.most)
        self._seen = seen
        _CONNECTIONS.set(seen.connections)
        _MOST.set(seen.most)
        _OLDEST_S.set(seen.oldest_snapshot_s)
        return EVERY_S

    def problems(self) -> list[str]:
        """Return problems for the operator, a line each."""
        seen, problems = self._seen or Load(), []
        if seen.connections > MOST_CONNECTIONS * seen.most:
            problems.append(
                f"{seen.connections} of {seen.most} connections of the PostgreSQL server are in use: raise its "
                "max_connections, or run fewer processes"
            )
        if seen.oldest_snapshot_s > OLD_SNAPSHOT_S:
            problems.append(
                f"a transaction is open for {seen.oldest_snapshot_s:.0f} s and keeps deleted rows in the queue: "
                "pg_stat_activity says whose it is, end it"
            )
        return problems

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
