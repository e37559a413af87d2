"""The engines of a server, opened in one place.

Others know them by the protocols of this room: `hoglab.storage.event_log`, `hoglab.storage.event_store`,
`hoglab.storage.invocations`; and the databases, whose statements are SQLAlchemy's.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.storage.database import Database, tables
from hoglab.storage.event_log.sqlite import MAX_BACKLOG_BYTES, MIN_FREE_DISK_BYTES, SqliteEventLog
from hoglab.storage.event_store.duckdb import MEMORY, QUERY_TIMEOUT_S, DuckDbEventStore
from hoglab.storage.invocations.sqlite import SqliteInvocationQueue
from hoglab.storage.invocations.traces import TRACE_RETENTION_DAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoglab.storage.directory import DataDirectory
    from hoglab.storage.table_files import TableDirectory

EventStoreEngine = DuckDbEventStore
"""The event store with what a server does beside reading and writing: sealing, erasing, results state."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of the engines; see the settings of a server for what they mean.

    ``tables``: where tables beside the events are. ``trace_days``: how long logs and metrics of runs are kept.
    """

    tables: TableDirectory
    event_log_bytes: int = MAX_BACKLOG_BYTES
    min_free_disk_bytes: int = MIN_FREE_DISK_BYTES
    event_store_memory: str = MEMORY
    query_timeout_s: float = QUERY_TIMEOUT_S
    trace_days: int = TRACE_RETENTION_DAYS
    keeps_results_state: bool = False


@dataclass(frozen=True, slots=True)
class Engines:
    """Everything that a server keeps its data in."""

    database: Database
    queue_database: Database
    log: SqliteEventLog
    store: EventStoreEngine
    invocations: SqliteInvocationQueue
    tables: TableDirectory

    @classmethod
    @contextmanager
    def on(cls, directory: DataDirectory, options: EngineOptions) -> Iterator[Engines]:
        """The engines of a directory during the block.

        Raises `DatabaseError` and `EventStoreUnavailableError`.
        """
        with ExitStack() as opened:
            queue_database = Database.open(directory.queue_path, tables.queue_metadata)
            opened.callback(queue_database.dispose)
            database = Database.open(directory.metadata_path)
            opened.callback(database.dispose)
            log = SqliteEventLog(
                directory.queue_path,
                max_backlog_bytes=options.event_log_bytes,
                min_free_disk_bytes=options.min_free_disk_bytes,
            )
            opened.callback(log.close)
            store = opened.enter_context(open_event_store(directory, options))
            invocations = SqliteInvocationQueue(directory.queue_path, trace_days=options.trace_days)
            opened.callback(invocations.close)
            yield cls(database, queue_database, log, store, invocations, options.tables)


@contextmanager
def open_event_store(directory: DataDirectory, options: EngineOptions) -> Iterator[EventStoreEngine]:
    """The event store of a directory during the block. Raises `EventStoreUnavailableError`."""
    store = EventStoreEngine(
        directory.events_path,
        memory=options.event_store_memory,
        query_timeout_s=options.query_timeout_s,
        min_free_disk_bytes=options.min_free_disk_bytes,
        tables=options.tables,
        state_path=directory.results_state_path if options.keeps_results_state else None,
    )
    try:
        yield store
    finally:
        store.close()
