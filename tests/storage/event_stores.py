"""The engines of the event store as its tests use them: what is promised, each keeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from tests.clickhouse import ClickHouseServer

from hoglab.storage.event_store import EventBatch, EventRow, EventStore
from hoglab.storage.event_store.duckdb import DuckDbEventStore


class Stores(Protocol):
    """One store of events; opening it anew is what the next process does."""

    slow: str
    """A query that takes minutes."""
    too_large: str
    """A query that no 60 MB suffice for."""
    endless: str
    """A query of more numbers than anybody reads."""

    def open(self, **limits: Any) -> EventStore: ...


class DuckDbStores:
    slow = "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE hash(a.range, b.range) = 3"
    too_large = "SELECT length(string_agg(md5(i::VARCHAR), ',')) FROM range(3000000) t(i)"
    endless = "SELECT range FROM range(1000000000)"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.duckdb"

    def open(self, **limits: Any) -> DuckDbEventStore:
        return DuckDbEventStore(self._path, **{"memory": "200MB", **limits})


class ClickHouseStores:
    slow = "SELECT count(*) FROM numbers(1000000000000) WHERE sipHash64(number) = 3"
    too_large = "SELECT length(groupArray(number)) FROM numbers(4000000000)"
    endless = "SELECT number FROM numbers(1000000000)"

    def __init__(self, server: ClickHouseServer, folder: Path) -> None:
        self.server = server
        self.url = server.database()
        self.keys = folder / "keys"

    def open(self, **limits: Any) -> EventStore:
        from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

        return ClickHouseEventStore(
            self.url, self.keys, **{"memory": "200MB", "query_timeout_s": 60, **limits}
        )

    def close(self) -> None:
        self.server.drop(self.url)


def append(store: EventStore, *rows: EventRow, log_offset: int | None = None, **more: int) -> frozenset[UUID]:
    """Store rows; the uuids of those that are new."""
    offset = log_offset or max(row.log_offset for row in rows)
    new = store.append(EventBatch(rows), log_offset=offset, **more)
    assert list(new) == sorted(new)
    return frozenset(rows[position].uuid for position in new)


def query(store: EventStore, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
    with store.reader() as reader:
        return reader.execute(sql, parameters or None)


def uuids(values: Iterable[Any]) -> list[UUID]:
    """Ids as an engine gives them, which may be texts."""
    return [value if isinstance(value, UUID) else UUID(value) for value in values]
