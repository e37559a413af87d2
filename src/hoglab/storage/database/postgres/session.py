"""A connection of psycopg that is opened again after it was lost, for statements straight through the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from hoglab.storage.database.errors import DatabaseError, explain
from hoglab.storage.database.locks import took_effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The moment by the clock of the server, which all processes share, in microseconds since the Unix epoch."""

_OPEN = (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR)

Connect = Callable[[], "psycopg.Connection[Any]"]
"""Function that opens a connection on which each statement commits by itself."""


def settle(connection: psycopg.Connection[Any]) -> None:
    """Wait until every statement of a pipeline so far was executed. Raises the first error of any of them."""
    with connection.pipeline() as pipeline:
        pipeline.sync()


class PostgresSession:
    """One connection, for one thread at a time; others wait. Methods raise `DatabaseError` while the server is away."""

    def __init__(self, connect: Connect, name: str, *, relaxed: bool = False) -> None:
        """Use the connection that ``connect`` opens, from the first statement on.

        ``name`` names the database in messages. ``relaxed``: commits do not wait for the disk, so that a crash of the
        server may undo the newest ones.
        """
        self.name = name
        self._connect = connect
        self._relaxed = relaxed
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def using(self) -> Iterator[psycopg.Connection[Any]]:
        """Provide the connection, on which each statement commits by itself outside of its ``transaction()``."""
        with self._lock:
            try:
                yield self._connected()
                took_effect()  # unless it only read, which is rare where it matters
            except psycopg.Error as error:
                if self._connection is not None and self._connection.broken:
                    self.close()
                known = explain(error, self.name)
                if known is None and isinstance(error, psycopg.OperationalError):
                    known = DatabaseError(f"{self.name} does not answer: {str(error).strip()}")
                if known is None:
                    raise
                raise known from error

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Provide the connection for a block whose statements are stored together or not at all."""
        with self.using() as connection, connection.transaction():
            yield connection

    @contextmanager
    def pipelined(self) -> Iterator[psycopg.Connection[Any]]:
        """Provide a `transaction` in which statements without a result are sent with the next one, or at the end.

        The number of changed rows is known after `settle`; rows of a result are there when they are fetched.
        """
        with self.using() as connection:
            try:
                with connection.pipeline():
                    connection.execute(b"BEGIN")
                    yield connection
                    connection.execute(b"COMMIT")
            except BaseException:
                if connection.info.transaction_status in _OPEN:
                    connection.execute(b"ROLLBACK")
                raise

    def rows(self, statement: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that is a transaction of its own."""
        with self.using() as connection:
            cursor = connection.execute(statement.encode(), parameters, binary=True)
            return cursor.fetchall() if cursor.description is not None else []

    def value(self, statement: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """Return the first column of the first row, None when there is none."""
        rows = self.rows(statement, parameters)
        return rows[0][0] if rows else None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            connection = self._connect()
            connection.execute(f"SET synchronous_commit = {'off' if self._relaxed else 'on'}".encode())
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Close the connection; the next statement opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
