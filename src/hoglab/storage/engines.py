"""The engines of a server, opened in one place.

Others know them by the protocols of this room: `hoglab.storage.event_log`, `hoglab.storage.event_store`,
`hoglab.storage.invocations`; and the databases, whose statements are SQLAlchemy's.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hoglab.storage.database import Database, tables
from hoglab.storage.database.errors import UnsupportedDatabaseError
from hoglab.storage.event_log.log import MAX_BACKLOG_BYTES, LogLimits
from hoglab.storage.event_log.progress import IngestionProgress, LeasedLog
from hoglab.storage.event_log.quarantine import QuarantineStore
from hoglab.storage.event_log.sqlite import MIN_FREE_DISK_BYTES, SqliteEventLog
from hoglab.storage.event_store import ErasableStore
from hoglab.storage.event_store.duckdb import MEMORY, QUERY_TIMEOUT_S, DuckDbEventStore
from hoglab.storage.event_store.duckdb_file import HEADER_BYTES, stamp
from hoglab.storage.invocations import InvocationQueue
from hoglab.storage.invocations.sql import stores_of
from hoglab.storage.invocations.sqlite import SqliteQueueTables
from hoglab.storage.invocations.traces import TRACE_RETENTION_DAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import MetaData

    from hoglab.storage.database.postgres.load import DatabaseLoad
    from hoglab.storage.database.postgres.session import Connect
    from hoglab.storage.database.postgres.sole_server import SoleServer
    from hoglab.storage.directory import DataDirectory
    from hoglab.storage.event_log import EventLog, LogWriter
    from hoglab.storage.event_log.kafka import KafkaEventLog
    from hoglab.storage.event_log.log import GroupCommitLog
    from hoglab.storage.event_store import EventStore, PartitionedEventStore, StoreFile
    from hoglab.storage.invocations import InvocationStores
    from hoglab.storage.invocations.tables import QueueTables
    from hoglab.storage.table_files import TableDirectory

WAIT_S = 10.0
"""Time for which a server waits at its start for another one on the same database to end."""
EventFile = DuckDbEventStore
"""The event store in a file of a data directory, which is sealed, keeps results, and can be examined."""
STORE_HEADER_BYTES = HEADER_BYTES
"""Size of the header before the blocks of the event store's file; it changes with every checkpoint."""
write_store_identity = stamp


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits of the engines; see the settings of a server for what they mean.

    ``database_url``: where everything but events is, if not in the directory; ``event_store_url``: where events are;
    ``event_log_url``: the topic of Kafka that requests are accepted into, if it is not a log in the database.
    ``tables``: where tables beside the events are. ``trace_days``: how long logs and metrics of runs are kept.
    ``wait_s``: how long another server on the same database is waited for.
    """

    tables: TableDirectory
    database_url: str | None = None
    event_store_url: str | None = None
    event_log_url: str | None = None
    event_log_bytes: int = MAX_BACKLOG_BYTES
    min_free_disk_bytes: int = MIN_FREE_DISK_BYTES
    event_store_memory: str = MEMORY
    query_timeout_s: float = QUERY_TIMEOUT_S
    trace_days: int = TRACE_RETENTION_DAYS
    has_aggregate_cache: bool = False
    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class SharedEngines:
    """Engines that all processes of a server use; in a PostgreSQL database there may be several."""

    database: Database
    queue_database: Database
    accepting: LogWriter
    """The log that requests are accepted into."""
    log: EventLog
    """The extent of what was accepted."""
    sole_log: GroupCommitLog | None
    """The log of a server of which one process ingests."""
    leased: LeasedLog | None
    """The log, with its leases, of a server of which any number of processes ingest: one of the two is there."""
    invocations: InvocationStores
    now: Callable[[], datetime]
    """The clock of all who share the queue."""

    @classmethod
    @contextmanager
    def on_server(cls, options: EngineOptions) -> Iterator[SharedEngines]:
        """Open the engines in PostgreSQL during the block, for a process without events. Raises `DatabaseError`."""
        with ExitStack() as opened:
            yield _shared(opened, None, options)


@dataclass(frozen=True, slots=True)
class IngestionEngines(SharedEngines):
    """Shared engines, with those of a process that ingests beside others."""

    store: EventStore
    shared_store: PartitionedEventStore | None
    """The store, where several processes write it."""
    quarantine: QuarantineStore

    @classmethod
    @contextmanager
    def beside(cls, directory: DataDirectory, options: EngineOptions) -> Iterator[IngestionEngines]:
        """Open the engines in databases during the block; the directory has caches. Raises as `Engines.on`."""
        with ExitStack() as opened:
            shared = _shared(opened, None, options)
            stores = _opened_event_store(opened, directory, options)
            yield cls(
                database=shared.database,
                queue_database=shared.queue_database,
                accepting=shared.accepting,
                log=shared.log,
                sole_log=shared.sole_log,
                leased=shared.leased,
                invocations=shared.invocations,
                now=shared.now,
                store=stores.store,
                shared_store=stores.shared,
                quarantine=QuarantineStore(shared.queue_database),
            )


@dataclass(frozen=True, slots=True)
class Engines(SharedEngines):
    """Everything that a server keeps its data in."""

    store: EventStore
    shared_store: PartitionedEventStore | None
    """The store, where several processes write it."""
    event_file: EventFile | None
    """The store, where it is in a file of the directory."""
    quarantine: QuarantineStore
    tables: TableDirectory
    sole_server: SoleServer | None
    """Lock that keeps other servers away from a database that they could reach; to be started."""
    database_load: DatabaseLoad | None
    """Measurement of the server of such a database; to be started."""

    @property
    def files(self) -> Sequence[StoreFile]:
        """The files of the event store; none where a server has them."""
        return () if self.event_file is None else (self.event_file,)

    @property
    def erasable(self) -> ErasableStore:
        """The events that can be deleted, with their files."""
        return ErasableStore(self.store, self.files)

    @classmethod
    @contextmanager
    def on(cls, directory: DataDirectory, options: EngineOptions) -> Iterator[Engines]:
        """Provide the engines of a directory during the block.

        Raises `DatabaseError` and `EventStoreUnavailableError`.
        """
        with ExitStack() as opened:
            address = options.database_url
            sole_server = load = None
            if address is not None:
                load = _load(opened, address)
                # Partitions have leases, and what else several processes share is settled where it is shared.
                sole_server = None if options.event_log_url else _alone(opened, address, options.wait_s)
            shared = _shared(opened, directory, options)
            if shared.leased is not None:
                shared.leased.leases.replace_log()
            stores = _opened_event_store(opened, directory, options)
            yield cls(
                database=shared.database,
                queue_database=shared.queue_database,
                accepting=shared.accepting,
                log=shared.log,
                sole_log=shared.sole_log,
                leased=shared.leased,
                invocations=shared.invocations,
                now=shared.now,
                store=stores.store,
                shared_store=stores.shared,
                event_file=stores.file,
                quarantine=QuarantineStore(shared.queue_database),
                tables=options.tables,
                sole_server=sole_server,
                database_load=load,
            )


def upgrade_databases(url: str) -> bool:
    """Bring the tables of a server's databases up to date, and return whether there was anything to do.

    Missing tables are created. Raises `DatabaseError`.
    """
    done = [Database.upgrade(url, metadata) for metadata in (tables.metadata, tables.queue_metadata)]
    return any(done)


def _shared(opened: ExitStack, directory: DataDirectory | None, options: EngineOptions) -> SharedEngines:
    """Return the engines of a database server, or of a directory; ``opened`` closes them."""
    in_queue: str | Path
    in_metadata: str | Path
    opened_tables: Callable[[], QueueTables]
    if options.database_url is not None:
        in_queue = in_metadata = options.database_url
        opened_tables = partial(_server_tables, options.database_url)
    elif directory is not None:
        in_queue, in_metadata = directory.queue_path, directory.metadata_path
        opened_tables = partial(SqliteQueueTables, directory.queue_path)
    else:
        raise ValueError("neither a database nor a directory")
    queue_database = Database.open(in_queue, tables.queue_metadata)
    opened.callback(queue_database.dispose)
    database = Database.open(in_metadata)
    opened.callback(database.dispose)
    log = _opened_log(opened, directory, options)
    queue_tables = opened_tables()
    queue = InvocationQueue(queue_tables, trace_days=options.trace_days)
    opened.callback(queue.close)
    return SharedEngines(database, queue_database, *log, stores_of(queue, queue_database), queue_tables.now)


def _alone(opened: ExitStack, address: str, wait_s: float) -> SoleServer:
    """Return the lock on a database, which ``opened`` gives back. Raises `AnotherServerError`."""
    from hoglab.storage.database.postgres.sole_server import SoleServer

    connect, name = _connecting(address, tables.metadata)
    sole_server = SoleServer(connect, name, wait_s=wait_s)
    opened.callback(sole_server.close)
    return sole_server


def _load(opened: ExitStack, address: str) -> DatabaseLoad:
    """Return the measurement of a database's server; ``opened`` closes it."""
    from hoglab.storage.database.postgres.load import DatabaseLoad

    load = DatabaseLoad(*_connecting(address, tables.metadata))
    opened.callback(load.close)
    return load


@contextmanager
def starting_alone(options: EngineOptions) -> Iterator[None]:
    """Keep processes that may begin the same installation from doing so during the block. Raises `DatabaseError`.

    Elsewhere than in a cluster the directory, or the lock on the database, keeps them away for longer.
    """
    if options.database_url is None or options.event_log_url is None:
        yield
        return
    from hoglab.storage.database.postgres.sole_server import starting_alone as holding_the_lock

    with holding_the_lock(*_connecting(options.database_url, tables.metadata)):
        yield


class _OpenedLog(NamedTuple):
    """The event log, by what can be asked of it."""

    accepting: LogWriter
    log: EventLog
    sole: GroupCommitLog | None = None
    leased: LeasedLog | None = None


def _opened_log(opened: ExitStack, directory: DataDirectory | None, options: EngineOptions) -> _OpenedLog:
    """Return the log that accepts requests; ``opened`` closes it."""
    limits = LogLimits(max_backlog_bytes=options.event_log_bytes)
    address = options.database_url
    log: GroupCommitLog
    if address is not None and options.event_log_url is not None:
        source, leased = _topic(opened, address, options.event_log_url, options.event_log_bytes)
        return _OpenedLog(source, IngestionProgress(leased), leased=leased)
    if options.event_log_url is not None:
        raise UnsupportedDatabaseError("an event log in Kafka is beside a PostgreSQL database: name one")
    if address is not None:
        from hoglab.storage.event_log.postgres import PostgresEventLog

        log = PostgresEventLog(*_connecting(address, tables.queue_metadata), limits=limits)
    elif directory is not None:
        log = SqliteEventLog(
            directory.queue_path, limits=limits, min_free_disk_bytes=options.min_free_disk_bytes
        )
    else:
        raise ValueError("neither a database nor a directory")
    opened.callback(log.close)
    return _OpenedLog(log, log, sole=log)


def _server_tables(address: str) -> QueueTables:
    """Return the tables of the queue in a database of a server."""
    from hoglab.storage.invocations.postgres import PostgresQueueTables

    return PostgresQueueTables(*_connecting(address, tables.queue_metadata))


def _connecting(address: str, metadata: MetaData) -> tuple[Connect, str]:
    """Return the function that connects to the tables of a schema, and the name of that database in messages."""
    from hoglab.storage.database.postgres.driver import Driver

    driver = Driver(address, metadata.info["postgresql"]["schema"])
    return partial(driver.connect, autocommit=True), driver.name


def _topic(opened: ExitStack, address: str, url: str, max_bytes: int) -> tuple[KafkaEventLog, LeasedLog]:
    """Return the log in Kafka, of whose partitions a database knows how far they are ingested.

    ``opened`` closes both.
    """
    from hoglab.storage.event_log import kafka_topic  # first: it says what is missing
    from hoglab.storage.event_log.kafka import KafkaEventLog
    from hoglab.storage.event_log.leases import LogLeases

    topic = kafka_topic.KafkaAddress.parse(url)
    leases = LogLeases(*_connecting(address, tables.queue_metadata), partitions=topic.partitions)
    opened.callback(leases.close)
    log = KafkaEventLog(topic, finished=leases.positions, max_backlog_bytes=max_bytes)
    opened.callback(log.close)
    return log, LeasedLog(log, leases)


@contextmanager
def open_quarantine_store(place: str | Path) -> Iterator[QuarantineStore]:
    """Provide quarantine store, open during the block, also beside a running server. Raises `DatabaseError`.

    ``place``: the address of a database, or the file of the queue.
    """
    database = Database.open(place, tables.queue_metadata)
    try:
        yield QuarantineStore(database)
    finally:
        database.dispose()


@contextmanager
def open_event_store(directory: DataDirectory, options: EngineOptions) -> Iterator[EventStore]:
    """Provide the event store of a directory, or of its server, during the block.

    Raises `EventStoreUnavailableError`.
    """
    with ExitStack() as opened:
        yield _opened_event_store(opened, directory, options).store


class _OpenedStore(NamedTuple):
    """The event store, by what can be asked of it."""

    store: EventStore
    file: EventFile | None = None
    shared: PartitionedEventStore | None = None


def _opened_event_store(opened: ExitStack, directory: DataDirectory, options: EngineOptions) -> _OpenedStore:
    """Return the event store; ``opened`` closes it."""
    if options.event_log_url is not None and options.event_store_url is None:
        raise UnsupportedDatabaseError(
            "an event log in Kafka goes with events in ClickHouse: name a database of it"
        )
    if options.event_store_url is not None:
        from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

        shared = ClickHouseEventStore(
            options.event_store_url,
            directory.remote_keys_path,
            memory=options.event_store_memory,
            query_timeout_s=options.query_timeout_s,
        )
        opened.callback(shared.close)
        return _OpenedStore(shared, shared=shared)
    file = EventFile(
        directory.events_path,
        memory=options.event_store_memory,
        query_timeout_s=options.query_timeout_s,
        min_free_disk_bytes=options.min_free_disk_bytes,
        tables=options.tables,
        cache_path=directory.aggregate_cache_path if options.has_aggregate_cache else None,
    )
    opened.callback(file.close)
    return _OpenedStore(file, file=file)
