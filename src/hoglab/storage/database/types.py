"""Column types that mean the same on SQLite and Postgres."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import BigInteger, ColumnElement, Dialect, Text, literal_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from hoglab.storage.database.errors import DatabaseUnreadableError

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Return microseconds since the Unix epoch of a timezone-aware moment (exact, unlike a float)."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the UTC moment that many microseconds after the Unix epoch.

    Raises `DatabaseUnreadableError` where a stored number is no moment: only damage makes such a one.
    """
    try:
        return _EPOCH + _MICROSECOND * micros  # in half the time of timedelta(microseconds=…)
    except (OverflowError, TypeError) as error:
        raise DatabaseUnreadableError(f"a stored value is damaged: it is no moment ({error})") from error


class UtcTime(TypeDecorator[datetime]):
    """A timezone-aware UTC moment, kept as integer microseconds so that it sorts and compares exactly."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else from_micros(value)


class Json(TypeDecorator[Any]):
    """A JSON document kept as text. SQL NULL and JSON ``null`` are both read as ``None``."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        try:
            return None if value is None else orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise DatabaseUnreadableError(f"a stored value is damaged: it is no JSON ({error})") from error


def json_text(column: ColumnElement[Any], name: str) -> ColumnElement[str | None]:
    """Return the value of a name, which is a word of ours, in a column of `Json` objects as text.

    NULL where it has none.
    """
    return _JsonText(column, literal_column(f"'{name}'"))  # an index knows it by this text


class _JsonText(FunctionElement[Any]):
    type = Text()
    inherit_cache = True


@compiles(_JsonText)
def _from_text(element: _JsonText, compiler: SQLCompiler, **keywords: Any) -> str:
    column, name = (compiler.process(clause, **keywords) for clause in element.clauses)
    return f"json_extract({column}, '$.' || {name})"


@compiles(_JsonText, "postgresql")
def _by_function(element: _JsonText, compiler: SQLCompiler, **keywords: Any) -> str:
    """Return calls the function that `postgres.person_search` makes: an index of it is found by the call."""
    column, name = (compiler.process(clause, **keywords) for clause in element.clauses)
    return f"json_text({column}, {name})"


def now_micros() -> ColumnElement[int]:
    """Return the time in microseconds since the Unix epoch by the clock of the database, which all who use it share."""
    return _NowMicros()


class _NowMicros(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


@compiles(_NowMicros)
def _of_machine(_element: _NowMicros, _compiler: SQLCompiler, **_keywords: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


@compiles(_NowMicros, "postgresql")
def _of_server(_element: _NowMicros, _compiler: SQLCompiler, **_keywords: Any) -> str:
    return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
