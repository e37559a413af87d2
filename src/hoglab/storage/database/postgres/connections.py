"""Connections to a PostgreSQL database: pools for readers and writers, and one that listens."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog
from sqlalchemy import Connection, Engine, MetaData, TextClause, create_engine
from sqlalchemy.pool import QueuePool

from hoglab.storage.database.errors import SchemaTooNewError, SchemaTooOldError
from hoglab.storage.database.locks import WriteLock
from hoglab.storage.database.migrations import HEADS, current_revision, migrate
from hoglab.storage.database.postgres import person_search
from hoglab.storage.database.postgres.ddl import sort_by_code_points
from hoglab.storage.database.postgres.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hoglab.storage.database.durability import Rebuildable
    from hoglab.storage.database.sqlite.connections import SqliteConnections

IDLE_CONNECTIONS = 8
MAX_READERS = 40
"""Connections to read with that a process keeps, and has at most; who finds none free waits `POOL_TIMEOUT_S`."""
MAX_WRITERS = 2
"""Writers of a process take turns; one more for those who wait for their first connection."""
POOL_TIMEOUT_S = 30.0
SCHEMA_WAIT_S = 60.0
"""Time for which a server waits at its start for ``hoglab migrate``."""
SCHEMA_POLL_S = 0.5

LOCK_CLASS = 0x686F67
"""The first half of the keys of our advisory locks ("hog"); the second is in ``metadata.info``."""
CHANGES = "hoglab_change"
"""The channel that processes are told of changes on."""

_TURN = sa.text("SELECT pg_advisory_xact_lock(:class, :number)")
_SHARED_TURN = sa.text("SELECT pg_advisory_xact_lock_shared(:class, :number)")
_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND application_name = current_setting('application_name')"
)
_ASYNCHRONOUS = sa.text("SET LOCAL synchronous_commit = off")
_log = structlog.get_logger("hoglab")


class PostgresConnections:
    """Readers see one snapshot each. Writers take turns, also those of other processes, unless theirs are shared.

    ``metadata.info["postgresql"]`` names the ``schema`` that has the tables, and the number of the ``lock`` that is the
    turn. Who works with the tables of the queue straight through the driver takes no turn, and locks rows instead.
    """

    is_shared = True
    files: Sequence[SqliteConnections] = ()

    def __init__(self, url: str, metadata: MetaData) -> None:
        self._metadata = metadata
        own = metadata.info["postgresql"]
        self._schema: str = own["schema"]
        self._lock_number: int = own["lock"]
        self._driver = Driver(url, self._schema)
        self.name = self._driver.name
        self._lock = WriteLock(self.name)
        sort_by_code_points()
        self._readers = self._engine(
            MAX_READERS,
            partial(self._driver.connect, reader=True),
            isolation_level="REPEATABLE READ",
            postgresql_readonly=True,
        )
        self._writers = self._engine(MAX_WRITERS, self._driver.connect, isolation_level="READ COMMITTED")
        self._listener: Any = None

    def _engine(self, most: int, connect: Callable[[], Any], **options: Any) -> Engine:
        return create_engine(
            "postgresql+psycopg://",
            creator=connect,
            poolclass=QueuePool,
            pool_size=min(most, IDLE_CONNECTIONS),
            max_overflow=max(most - IDLE_CONNECTIONS, 0),
            pool_timeout=POOL_TIMEOUT_S,
            pool_pre_ping=True,  # a server that was restarted costs no request
            pool_use_lifo=True,
        ).execution_options(**options)

    # --- the schema

    def prepare(self) -> None:
        """Wait until the schema is new enough. Raises `SchemaTooNewError` and `SchemaTooOldError`."""
        head = HEADS[self._metadata.info["migrations"]]
        deadline = time.monotonic() + SCHEMA_WAIT_S
        was_logged = False
        while (revision := self._revision()) != head:
            if revision is not None and revision > head:
                raise SchemaTooNewError(self.name, revision)
            if time.monotonic() >= deadline:
                raise SchemaTooOldError(self.name, revision)
            if not was_logged:
                _log.warning(
                    "waiting_for_schema",
                    database=self.name,
                    revision=revision,
                    needed=head,
                    run="hoglab migrate",
                    wait_s=SCHEMA_WAIT_S,
                )
                was_logged = True
            time.sleep(SCHEMA_POLL_S)

    def _revision(self) -> str | None:
        with self.read() as connection:
            return current_revision(connection)

    def upgrade(self) -> bool:
        """Bring the schema up to date, and return whether anything was to do. Raises `SchemaTooNewError`."""
        return migrate(self, self._metadata)

    @contextmanager
    def migrate(self) -> Iterator[Connection]:
        """Provide a transaction that keeps every other migration out, and every writer who takes turns."""
        with self._writers.connect() as connection, connection.begin():
            self._take_turn(connection)
            connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
            connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {self._schema}"))
            yield connection
            person_search.make(connection, self._schema)

    def before_migration(self, revision: str) -> None:
        """Do nothing: a migration is one transaction, and copies are made with the tools of the server."""

    # --- transactions

    @contextmanager
    def read(self, *, durable: bool = True) -> Iterator[Connection]:  # noqa: ARG002 - what is seen is durable
        with self._readers.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, rebuildable: Rebuildable | None = None, shared: bool = False) -> Iterator[Connection]:
        with (
            self._lock.turn(),
            self._writers.connect() as connection,
            connection.begin(),
        ):
            self._take_turn(connection, _SHARED_TURN if shared else _TURN)
            if rebuildable is not None:
                connection.execute(_ASYNCHRONOUS)
            yield connection

    def _take_turn(self, connection: Connection, turn: TextClause = _TURN) -> None:
        connection.execute(turn, {"class": LOCK_CLASS, "number": self._lock_number})

    # --- changes

    def announce(self, connection: Connection) -> None:
        connection.execute(sa.text("SELECT pg_notify(:channel, '')"), {"channel": CHANGES})

    def await_change(self, timeout_s: float) -> bool:
        try:
            listener = self._listener
            if listener is None:
                listener = self._driver.connect(autocommit=True)
                listener.execute(f"LISTEN {CHANGES}")
                self._listener = listener
                return True  # what was told before nobody heard
            for _ in listener.notifies(timeout=timeout_s, stop_after=1):
                pass
        except Exception:
            self._close_listener()
            raise
        return True

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def other_sessions(self) -> int:
        with self._driver.connect(autocommit=True) as connection:
            row = connection.execute(_OTHERS).fetchone()
        return 0 if row is None else int(row[0])

    def check(self) -> None:
        """Do nothing: a failed commit is an error of its transaction."""

    def dispose(self) -> None:
        self._close_listener()
        self._readers.dispose()
        self._writers.dispose()
