"""Both engines that statements are written for, each with events in it: DuckDB and ClickHouse."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from tests.analysis.events import Event, store_events
from tests.clickhouse import ClickHouseServer
from tests.embedded import EmbeddedEventStore
from tests.generated import examples

from hoglab.analysis.execution.computer import Computer, Groups
from hoglab.storage.table_files import TableDirectory

EXAMPLES = int(os.environ.get("HOGLAB_TEST_CLICKHOUSE_EXAMPLES", "12"))
"""Number of generated examples on ClickHouse, which plans the statements of one for a fifth of a second."""
TENDED = (2, 4, 8, 20)
"""When so many batches are stored, ClickHouse gets columns for what statements asked for before and since."""


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
        self.computer = Computer(self.store, _from(self.groups), timeout_s=60, tables=self.tables)
        self.examples = examples(60)

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
    """The store of the product in a database of its own."""

    def __init__(self, path: Path, server: ClickHouseServer) -> None:
        from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

        self.tables = _tables(path)
        self.groups: dict[tuple[int, int], list[tuple[str, Mapping[str, Any]]]] = {}
        self._server, self._url = server, server.database()
        self.store = ClickHouseEventStore(self._url, path / "keys", memory="1GB", query_timeout_s=60)
        self.computer = Computer(self.store, _from(self.groups), timeout_s=60, tables=self.tables)
        self._adds = 0
        self.examples = EXAMPLES

    def add(
        self, events: Iterable[Event], *, project_id: int, merges: Sequence[tuple[str, str]] = ()
    ) -> None:
        store_events(self.store, events, project_id=project_id, merges=merges)
        self._adds += 1
        if self._adds in TENDED:
            self.store.typed_columns.maintain_columns(datetime.now(UTC) + timedelta(hours=self._adds))

    def position(self) -> int:
        return self.store.position()

    def reader(self) -> AbstractContextManager[Any]:
        return self.store.reader()

    def close(self) -> None:
        self.store.close()
        self._server.drop(self._url)


def _tables(path: Path) -> TableDirectory:
    (path / "tables").mkdir()
    return TableDirectory(path / "tables")


def no_groups(_project_id: int, _index: int, _limit: int) -> list[tuple[str, Mapping[str, Any]]]:
    """Return no groups: the project has none."""
    return []


def _from(groups: Mapping[tuple[int, int], list[tuple[str, Mapping[str, Any]]]]) -> Groups:
    return lambda project_id, index, limit: groups.get((project_id, index), [])[:limit]
