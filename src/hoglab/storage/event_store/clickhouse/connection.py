"""A ClickHouse server as the event store uses it: where it is, how it is asked, and what its errors mean."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hoglab.patterns import anchored
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.server_address import ServerAddress

try:
    import clickhouse_connect
    from clickhouse_connect.driver.exceptions import ClickHouseError
    from clickhouse_connect.driver.httputil import get_pool_manager
except ImportError as error:
    raise EventStoreUnavailableError(
        "ClickHouse needs its client: install hoglab with it (pip install 'hoglab[clickhouse]')"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 900
"""Time for which an answer is waited for that does not come."""
HTTP_PORT, HTTPS_PORT = 8123, 8443
CONNECTIONS = 32
"""Number of connections that stay open for the next statements."""

SETTINGS: Final = {
    "join_use_nulls": 1,  # a missing side of a join is NULL, not the type's default
    "prefer_column_name_to_alias": 1,  # min(ts) AS ts does not change what ts means beside it
    "cast_keep_nullable": 1,
    "enable_materialized_cte": 1,  # else a subquery is computed again wherever it is named
    "join_algorithm": "hash",  # two thirds of the processor time; what is joined to events is small, or spilled
    "group_by_use_nulls": 0,
    "date_time_input_format": "best_effort",  # of CSV
    "enable_named_columns_in_function_tuple": 1,  # tuples with names are objects of JSON
    "allow_suspicious_low_cardinality_types": 1,  # tables made of queries have them
    "async_insert": 0,
    "insert_deduplicate": 1,
}
"""With these, statements mean what they mean elsewhere."""

_UNAVAILABLE: Final = frozenset(
    {
        23, 74, 76,  # cannot read, cannot write
        81,  # there is no such database
        192, 193, 194, 516,  # not this user
        202,  # too many queries
        209, 210,  # network
        216,  # the same query runs already
        225, 242, 319, 999,  # replicas and their keeper
        243, 252,  # no room, too many parts
        497,  # not permitted
    }
)  # fmt: skip
_DATABASE = anchored(r"\w+")
_BEFORE_TEXT, _BEHIND_TEXT = "DB::Exception: ", " (for url "
"""The parts of an error around what it says."""

_PARAMETERS = frozenset({"password", "secure"})


class ClickHouseAddress:
    """``clickhouse://user:password@host:port/database``, with ``?secure=true`` over TLS."""

    def __init__(self, url: str) -> None:
        """Raise `EventStoreUnavailableError` for an address that is none."""
        try:
            address = ServerAddress.parse(url, _PARAMETERS)
        except ValueError as error:
            raise EventStoreUnavailableError(
                f"the address of the event store is not understood: {error}"
            ) from None
        parts = urlsplit(f"//{address.hosts}")
        self.secure = address.parameters.get("secure", "false") in ("true", "1")
        self.host = "" if "," in address.hosts else parts.hostname or ""
        self.port = HTTPS_PORT if self.secure else HTTP_PORT
        if self.host and parts.port:
            self.port = parts.port
        self.database = address.path
        if not self.host or not _DATABASE.fullmatch(self.database):
            raise EventStoreUnavailableError(
                "the address of the event store must name a host and a database: clickhouse://user@host:8123/hoglab"
            )
        self.user = address.user or "default"
        self.password = address.parameters.get("password", address.password or "")


class Connection:
    """A client for all threads: every statement is a request of its own."""

    def __init__(self, url: str) -> None:
        """Raise `EventStoreUnavailableError` when the server does not answer; makes the database."""
        logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)  # its errors are told by us
        address = ClickHouseAddress(url)
        self.database = address.database
        self.name = f"the ClickHouse database {address.database} on {address.host}"
        self._pool = get_pool_manager(maxsize=CONNECTIONS, num_pools=1)
        arguments: dict[str, Any] = {
            "host": address.host,
            "port": address.port,
            "username": address.user,
            "password": address.password,
            "secure": address.secure,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "send_receive_timeout": ANSWER_TIMEOUT_S,
            "autogenerate_session_id": False,
            "form_encode_query_params": True,
            "client_name": "hoglab",
            "pool_mgr": self._pool,
        }
        with self.explained():
            first = clickhouse_connect.get_client(**arguments)
            first.command(f"CREATE DATABASE IF NOT EXISTS {address.database}")
            self.client = clickhouse_connect.get_client(
                **arguments, database=address.database, settings=SETTINGS
            )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise `EventStoreUnavailableError` for any error of a statement in the block."""
        try:
            yield
        except ClickHouseError as error:
            explained = self.explanation(error)
            if isinstance(explained, EventStoreUnavailableError):
                raise explained from error
            raise EventStoreUnavailableError(f"{self.name}: {explained}") from error

    def explanation(self, error: Exception) -> Exception:
        """Return our exception for one of the client's."""
        code = getattr(error, "code", None)
        _, named, text = str(error).partition(_BEFORE_TEXT)
        text = text.rpartition(_BEHIND_TEXT)[0] or text if named else str(error)
        text = " ".join(text.split("\n", 1)[0].split())
        match code:
            case None:
                return EventStoreUnavailableError(f"{self.name} does not answer: {text}")
            case 241:
                return QueryMemoryError(text)
            case 159:
                return QueryTimeoutError(text)
            case 394:
                return QueryCancelledError("the query was cancelled")
        if code in _UNAVAILABLE:
            return EventStoreUnavailableError(f"{self.name}: {text}")
        return QueryError(text)

    def rows(self, sql: str, settings: Mapping[str, Any] | None = None) -> Sequence[Sequence[Any]]:
        """Return all rows of a query of ours."""
        with self.explained():
            return self.client.query(sql, settings=dict(settings or {})).result_rows

    def command(self, sql: str, settings: Mapping[str, Any] | None = None) -> None:
        """Run a statement that is no query."""
        with self.explained():
            self.client.command(sql, settings=dict(settings or {}))

    def insert(
        self,
        table: str,
        types: Mapping[str, str],
        columns: Mapping[str, Sequence[Any]],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Add rows, given as columns, all or none of them; they are there when this returns."""
        with self.explained():
            context = self.client.create_insert_context(
                table,
                column_names=list(columns),
                column_type_names=[types[name] for name in columns],
                column_oriented=True,
                settings=dict(settings or {}),
                data=list(columns.values()),
            )
            # The client divides what is larger than 2 MB. The engine took the parts for the first one sent again, since
            # all have the same deduplication token, and did not store them.
            context.block_row_count = max(1, context.row_count)
            self.client.insert(context=context)

    def kill(self, condition: str, *, wait: bool) -> int:
        """End statements of the server by a condition on ``query_id``, and return how many were told to end."""
        with self.explained():
            # The client appends a format, which this statement understands.
            result = self.client.query(f"KILL QUERY WHERE {condition} {'SYNC' if wait else 'ASYNC'}")
            return len(result.result_rows)

    def close(self) -> None:
        """Close the connections. Statements that run go on without."""
        self.client.close()
        self._pool.clear()
