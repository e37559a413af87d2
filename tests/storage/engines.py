"""The engines of the event log and the invocation queue, as their tests use them: what is promised, each keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import psycopg
import sqlalchemy as sa
from tests.postgres import PostgresServer

from hoglab.storage.database import Database, tables
from hoglab.storage.database.locks import write_lock
from hoglab.storage.event_log import postgres as event_log_postgres
from hoglab.storage.event_log import sqlite as event_log_sqlite
from hoglab.storage.event_log.log import GroupCommitLog, LogLimits
from hoglab.storage.event_log.postgres import PostgresEventLog
from hoglab.storage.event_log.sqlite import SqliteEventLog
from hoglab.storage.invocations import InvocationQueue
from hoglab.storage.invocations.postgres import PostgresQueueTables
from hoglab.storage.invocations.sqlite import SqliteQueueTables


class Engine(Protocol):
    """Storage of one test, or of one example of it. Opening anew is what the next process does."""

    name: str
    log_module: ModuleType

    def log(self, **limits: Any) -> GroupCommitLog: ...

    def queue(self, **options: Any) -> InvocationQueue: ...

    def writing(self) -> AbstractContextManager[None]:
        """Another writer is busy during the block, so that everything that is appended has to wait."""
        ...

    @property
    def database(self) -> Database:
        """The same tables, for stores whose statements are SQLAlchemy's."""
        ...

    def rows(self, table: sa.Table) -> list[Any]: ...

    def close(self) -> None: ...


class SqliteEngine:
    name = "sqlite"
    log_module = event_log_sqlite

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.db"

    def log(self, **limits: Any) -> SqliteEventLog:
        return SqliteEventLog(self.path, limits=LogLimits(**limits))

    def queue(self, **options: Any) -> InvocationQueue:
        self.database.check()  # it is opened first, which makes the tables
        return InvocationQueue(SqliteQueueTables(self.path), **options)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with write_lock(self.path).turn():
            yield

    def rows(self, table: sa.Table) -> list[Any]:
        with self.database.read(durable=False) as connection:
            return list(connection.execute(sa.select(table)))

    @cached_property
    def database(self) -> Database:
        return Database.open(self.path, tables.queue_metadata)

    def close(self) -> None:
        self.database.dispose()


class PostgresEngine:
    name = "postgres"
    log_module = event_log_postgres

    def __init__(self, url: str) -> None:
        schema = tables.queue_metadata.info["postgresql"]["schema"]
        self.url = f"{url}&options=-csearch_path%3D{schema}"

    @staticmethod
    def prepare(url: str) -> None:
        """Fill an empty database with the tables."""
        Database.upgrade(url, tables.queue_metadata)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def log(self, **limits: Any) -> PostgresEventLog:
        return PostgresEventLog(self.connect, "the database of a test", limits=LogLimits(**limits))

    def queue(self, **options: Any) -> InvocationQueue:
        return InvocationQueue(PostgresQueueTables(self.connect, "the database of a test"), **options)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self.connect() as connection, connection.transaction():
            connection.execute("SELECT FROM event_log_head FOR UPDATE")
            yield

    def rows(self, table: sa.Table) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(sa.select(table)))

    @cached_property
    def database(self) -> Database:
        return Database.open(self.url, tables.queue_metadata)

    def close(self) -> None:
        if "database" in self.__dict__:
            self.database.dispose()


@contextmanager
def on_own_database(server: PostgresServer) -> Iterator[PostgresEngine]:
    """Storage in a database of a server that is dropped at the end."""
    url = server.database(server.template("queue", PostgresEngine.prepare))
    with closing(PostgresEngine(url)) as engine:
        yield engine
    server.drop(url)


NewEngine = Callable[[], AbstractContextManager[Engine]]
"""Gives empty storage, for tests with many examples."""
