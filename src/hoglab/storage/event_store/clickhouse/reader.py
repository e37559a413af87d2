"""Reading from ClickHouse: see `hoglab.storage.event_store.Reader`."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from clickhouse_connect.driver.exceptions import ClickHouseError

from hoglab.patterns import DOTALL, IGNORECASE, Match, anchored, searched
from hoglab.storage.event_store import EventStoreUnavailableError, QueryCancelledError, QueryTimeoutError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from hoglab.storage.event_store.clickhouse.connection import Connection

FIRST_MOMENT: Final = datetime(1900, 1, 1, tzinfo=UTC)
LAST_MOMENT: Final = datetime(2299, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
"""The moments that the engine has; those before and behind become these."""

READONLY: Final = 2
"""Nothing but temporary tables may be written, settings may be changed."""
KILL_TRIES, KILL_WAIT_S = 40, 0.05
"""Number of attempts, and pause between them, to end a query that the server does not know yet."""

_NAMES = searched(
    r"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`(?:[^`\\]|\\.)*+`?|\$(?P<name>[A-Za-z_]\w*)""", DOTALL
)
_NAMED = searched(r"\{(\w+):")
_QUERY = anchored(r"\s*(SELECT|WITH|EXPLAIN)\b", IGNORECASE)


def bounded(moment: datetime) -> datetime:
    """Return the moment in UTC, or the first or last one that the engine has."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return min(max(aware, FIRST_MOMENT), LAST_MOMENT).astimezone(UTC)


class ClickHouseReader:
    """Runs the statements of one thread, in a session from the first temporary table on."""

    def __init__(self, connection: Connection, limits: Mapping[str, Any], timeout_s: float) -> None:
        self._connection = connection
        self._limits = limits
        self._timeout_s = timeout_s
        self._name = f"hoglab-read-{uuid4()}"
        self._numbers = count()
        self._session: str | None = None
        self._columns: list[str] = []
        self._running: str | None = None
        self._ended = threading.Event()
        self._is_interrupted = False

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """See `Reader.execute`."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        text, values = prepared(sql, parameters or {})
        settings = self._begun(text, limit_s)
        try:
            if not _QUERY.match(text):
                self._connection.client.command(text, parameters=values, settings=settings)
                self._columns = []
                return []
            result = self._connection.client.query(text, parameters=values, settings=settings)
            self._columns = list(result.column_names)
            return [tuple(row) for row in result.result_rows]
        except ClickHouseError as error:
            raise self._explained(error, limit_s) from error
        finally:
            self._end()

    def stream(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, rows: int = 256
    ) -> Generator[list[tuple[Any, ...]]]:
        """See `Reader.stream`."""
        text, values = prepared(sql, parameters or {})
        settings = self._begun(text, 0) | {"max_block_size": max(rows, 256)}
        is_over = False
        try:
            with self._connection.client.query_row_block_stream(
                text, parameters=values, settings=settings
            ) as blocks:
                for block in blocks:
                    for start in range(0, len(block), rows):
                        yield [tuple(row) for row in block[start : start + rows]]
                is_over = True
        except ClickHouseError as error:
            is_over = True
            raise self._explained(error, 0) from error
        finally:
            if not is_over:
                self._kill()
            self._end()

    def _begun(self, sql: str, limit_s: float) -> dict[str, Any]:
        """Return the settings of a statement that is sent next."""
        if self._session is None and sql.startswith("CREATE TEMPORARY"):
            self._session = str(uuid4())
        self._ended.clear()
        self._is_interrupted = False
        self._running = f"{self._name}-{next(self._numbers)}"
        session = {} if self._session is None else {"session_id": self._session}
        limits = {**self._limits, "max_execution_time": limit_s, "readonly": READONLY}
        return {**limits, **session, "query_id": self._running}

    def _end(self) -> None:
        self._running = None
        self._ended.set()

    def _explained(self, error: ClickHouseError, limit_s: float) -> Exception:
        explained = self._connection.explanation(error)
        if self._is_interrupted and isinstance(explained, EventStoreUnavailableError | QueryCancelledError):
            return QueryCancelledError("the query was cancelled")
        if isinstance(explained, QueryTimeoutError):
            return QueryTimeoutError(f"the query took longer than {limit_s:g} s")
        return explained

    def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._is_interrupted = True
        self._kill()

    def _kill(self) -> None:
        running = self._running
        if running is None:
            return
        for _ in range(KILL_TRIES):  # it may be on its way to the server
            if self._connection.kill(f"query_id = '{running}'", wait=False) or self._ended.wait(KILL_WAIT_S):
                return

    def columns(self) -> list[str]:
        """See `Reader.columns`."""
        return self._columns


def prepared(sql: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the statement with the values that it names, as the engine takes both.

    ``$name`` outside of quotation marks becomes ``{name:Type}``, by the type of the value.
    """

    def typed(match: Match[str]) -> str:
        name = match["name"]
        return match[0] if name is None or name not in values else f"{{{name}:{_type(values[name])}}}"

    text = _NAMES.sub(typed, sql)
    named = {name: _plain(values[name]) for name in _NAMED.findall(text) if name in values}
    return text, named or None


def _type(value: Any) -> str:
    match value:
        case bool():
            return "Bool"
        case int():
            return "Int64"
        case float():
            return "Float64"
        case datetime():
            return "DateTime64(6, 'UTC')"
        case UUID():
            return "UUID"
        case list() | tuple():
            return f"Array({_type(value[0]) if value else 'String'})"
    return "String"


def _plain(value: Any) -> Any:
    """Return a value as the client writes it: moments with all their digits."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return bounded(value).replace(tzinfo=None).isoformat(" ", "microseconds")
        case UUID():
            return str(value)
        case list() | tuple():
            return [_plain(item) for item in value]
    return value
