"""Both engines that statements are written for, each with events in it: DuckDB, and ClickHouse as a library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from tests.analysis.events import Event, person_id, row, store_events
from tests.embedded import EmbeddedEventStore

from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.execution.resolution import Groups
from hoglab.storage.event_store import QueryError
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse
from hoglab.storage.table_files import TableDirectory

TABLES = """
CREATE TABLE events (
    log_offset Int64, project_id Int32, uuid UUID, event String, distinct_id String, timestamp DateTime64(6, 'UTC'),
    person_id Nullable(UUID), group_0 Nullable(String), group_1 Nullable(String), group_2 Nullable(String),
    group_3 Nullable(String), group_4 Nullable(String), feature_flag Nullable(String),
    feature_flag_response Nullable(String), session_id Nullable(String), elements_chain String,
    properties String, person_properties String
) ENGINE = MergeTree ORDER BY (project_id, event, timestamp);
CREATE TABLE person_override (log_offset Int64, project_id Int32, old_person_id UUID, person_id UUID)
ENGINE = MergeTree ORDER BY (project_id, old_person_id);
CREATE VIEW stored_events AS SELECT * REPLACE (toString(uuid) AS uuid) FROM events;
CREATE VIEW resolved_events AS
SELECT events.* REPLACE (coalesce(person_override.person_id, events.person_id) AS person_id)
FROM stored_events AS events LEFT JOIN person_override
    ON person_override.project_id = events.project_id AND person_override.old_person_id = events.person_id
SETTINGS join_use_nulls = 1
"""
_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"}
)


class Engine(Protocol):
    """A store of events, and what computes results from it."""

    computer: Computer
    examples: int
    """How many generated examples a test may try."""
    tables: TableDirectory
    """Where the files of tables beside the events are."""
    groups: dict[tuple[int, int], list[tuple[str, Mapping[str, Any]]]]
    """The groups of a project and a type, with their properties."""

    def add(
        self, events: Iterable[Event], *, project_id: int, merges: Sequence[tuple[str, str]] = ()
    ) -> None: ...

    def position(self) -> int:
        """The log offset of what was added last."""
        ...

    def reader(self) -> AbstractContextManager[Any]: ...

    def close(self) -> None: ...


class DuckDbEngine:
    """The store of the product."""

    def __init__(self, path: Path) -> None:
        self.tables = _tables(path)
        self.groups: dict[tuple[int, int], list[tuple[str, Mapping[str, Any]]]] = {}
        self.store = EmbeddedEventStore(path / "events.duckdb", memory="512MB", threads=2, tables=self.tables)
        self.computer = Computer(self.store, timeout_s=60, tables=self.tables, groups=_from(self.groups))
        self.examples = 60

    def add(
        self, events: Iterable[Event], *, project_id: int, merges: Sequence[tuple[str, str]] = ()
    ) -> None:
        store_events(self.store, events, project_id=project_id, merges=merges)

    def position(self) -> int:
        return self.store.position()

    def reader(self) -> AbstractContextManager[Any]:
        return self.store.reader()

    def close(self) -> None:
        self.store.close()


class ClickHouseEngine:
    """The engine in this process, with tables as the emitter wants them."""

    dialect = ClickHouse()

    def __init__(self, path: Path) -> None:
        from chdb import session

        self._session = session.Session(str(path / "clickhouse"))
        self._session.query("SET max_threads = 1")  # logs of tests are small: threads only cost
        for statement in TABLES.split(";"):
            self._session.query(statement)
        self._count = 0
        self.tables = _tables(path)
        self.groups: dict[tuple[int, int], list[tuple[str, Mapping[str, Any]]]] = {}
        self.computer = Computer(
            self,  # type: ignore[arg-type]
            timeout_s=60,
            tables=self.tables,
            groups=_from(self.groups),
        )
        self.examples = 8  # a series takes it about a second, however few events there are

    def add(
        self, events: Iterable[Event], *, project_id: int, merges: Sequence[tuple[str, str]] = ()
    ) -> None:
        rows = []
        for event in events:
            self._count += 1
            rows.append(_columns(row(event, self._count, project_id)))
        self._insert("events", rows)
        self._count += 1
        self._insert(
            "person_override",
            [
                {
                    "log_offset": self._count,
                    "project_id": project_id,
                    "old_person_id": str(person_id(old)),
                    "person_id": str(person_id(new)),
                }
                for old, new in merges
            ],
        )

    def position(self) -> int:
        return self._count

    def _insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        if rows:
            lines = "\n".join(json.dumps(each) for each in rows)
            self._session.query(f"INSERT INTO {table} FORMAT JSONEachRow\n{lines}")

    @contextmanager
    def reader(self) -> Iterator[ClickHouseEngine]:
        yield self

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        values = {name: _text(value) for name, value in (parameters or {}).items()}
        try:
            answer = self._session.query(sql, "ArrowStream", params=values).bytes()
        except RuntimeError as error:
            raise QueryError(str(error)[:2000]) from error
        if not answer:
            return []
        table = pa.ipc.open_stream(answer).read_all()
        columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
        return list(zip(*columns, strict=True))

    def interrupt(self) -> None:
        """Nothing runs beside the tests."""

    def close(self) -> None:
        self._session.close()


def _tables(path: Path) -> TableDirectory:
    (path / "tables").mkdir()
    return TableDirectory(path / "tables")


def _from(groups: Mapping[tuple[int, int], list[tuple[str, Mapping[str, Any]]]]) -> Groups:
    return lambda project_id, index, limit: groups.get((project_id, index), [])[:limit]


def _columns(stored: Any) -> dict[str, Any]:
    """A stored event as a row of the table."""
    moment = stored.timestamp.astimezone(UTC).replace(tzinfo=None)
    return {
        "log_offset": stored.log_offset,
        "project_id": stored.project_id,
        "uuid": str(stored.uuid),
        "event": stored.event,
        "distinct_id": stored.distinct_id,
        "timestamp": moment.isoformat(" ", "microseconds"),
        "person_id": None if stored.person_id is None else str(stored.person_id),
        **{f"group_{index}": stored.groups.get(index) for index in range(5)},
        "feature_flag": stored.feature_flag,
        "feature_flag_response": stored.feature_flag_response,
        "session_id": stored.session_id,
        "elements_chain": stored.elements_chain,
        "properties": stored.properties.decode(),
        "person_properties": stored.person_properties.decode(),
    }


def _text(value: Any) -> str:
    """A value as a query parameter is written: in the escaped form of tab-separated text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, tuple):
        quoted = ", ".join("'" + each.replace("\\", "\\\\").replace("'", "\\'") + "'" for each in value)
        return f"[{quoted}]"  # unlike a text, an array is taken as it is
    return value.translate(_ESCAPES) if isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


ENGINES = {"duckdb": DuckDbEngine, "clickhouse": ClickHouseEngine}
