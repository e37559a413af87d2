from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.embedded import EmbeddedEventLog, EmbeddedEventStore
from tests.waiting import wait_for

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.capture.records import encode_record, new_header
from hoglab.ingestion import IngestionLimits, LogIngestion, Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log.quarantine import QuarantineStore

ONE, TWO = "phc_first_project", "phc_second_project"
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
LIMITS = IngestionLimits(retry_s=0.01, max_retry_s=0.02, idle_s=0.05, room_poll_s=0.01)


@dataclass
class House:
    """Everything from the log to the store, on one directory. `restart` is like a new process."""

    folder: Path
    limits: IngestionLimits = LIMITS
    parts: dict[str, Any] = field(default_factory=dict)  # dispatcher, transformer
    make_store: Callable[[Path], EmbeddedEventStore] = EmbeddedEventStore

    def open(self) -> None:
        self.database = Database.open(self.folder / "hoglab.db")
        self.queue = Database.open(self.folder / "queue.db", queue_metadata)
        self.accounts = AccountService(self.database)
        self.log = EmbeddedEventLog(self.folder / "queue.db")
        self.store = self.make_store(self.folder / "events.duckdb")
        self.people = PersonService(self.database)
        self.quarantine = Quarantine(QuarantineStore(self.queue))
        self.ingestion = self.make_ingestion()

    def make_ingestion(self) -> LogIngestion:
        steps = BatchSteps(
            self.store,
            self.people,
            self.accounts.project,
            self.quarantine,
            limits=self.limits,
            **self.parts,
        )
        steps.at_rest.append(self.store.checkpoint)
        return LogIngestion.alone(self.log, steps)

    def close(self) -> None:
        assert self.ingestion.stop(10)
        self.log.close()
        self.store.close()
        self.queue.dispose()
        self.database.dispose()

    def restart(self) -> None:
        self.close()
        self.open()

    # --- writing

    def append(self, *records: bytes) -> int:
        async def all_in_order() -> int:
            last = 0
            for record in records:
                last = await self.log.append(record)
            return last

        return asyncio.run(all_in_order())

    def send(self, *events: dict[str, Any], project_id: int = 1, **batch: Any) -> int:
        """Append one record with these events; returns its offset."""
        return self.append(record(*events, project_id=project_id, **batch))

    # --- waiting and reading

    def wait(self, condition: Callable[[], bool]) -> None:
        wait_for(condition)

    def run(self) -> None:
        """Start the loop unless it runs, and wait until everything in the log is done."""
        if not self.ingestion.is_alive():
            self.ingestion.start()
        wait_for(lambda: self.ingestion.position >= self.log.stats().last_offset)

    def rows(self, columns: str = "event", where: str = "true") -> list[Any]:
        with self.store.reader() as reader:
            found = reader.execute(f"SELECT {columns} FROM resolved_events WHERE {where} ORDER BY seq")  # noqa: S608
        return [row[0] if len(row) == 1 else row for row in found]


def record(*events: dict[str, Any], project_id: int = 1, received_at: datetime = NOW, **batch: Any) -> bytes:
    header = new_header(
        project_id=project_id,
        received_at=received_at,
        is_gzip=False,
        is_engage=False,
        ip="10.0.0.1",
        sent_at_ms=None,
        max_event_bytes=1_000_000,
    )
    return encode_record(header, json.dumps({"api_key": "t", "batch": list(events), **batch}).encode())


def event(name: str, distinct_id: str = "u", number: int | None = None, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"event": name, "distinct_id": distinct_id, **fields}
    if number is not None:
        made["uuid"] = str(UUID(int=number))
    return made


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data files with the projects 1 and 2, whose tokens are `ONE` and `TWO`."""
    folder = tmp_path_factory.mktemp("ingestion")
    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    first = bootstrap(database, accounts, project_token=ONE, api_key="phx_" + "k" * 43)
    assert first is not None
    accounts.create_project(accounts.projects()[0].organization_id, "Second", token=TWO)
    database.dispose()
    EmbeddedEventLog(folder / "queue.db").close()
    return folder


@pytest.fixture
def folder(tmp_path: Path, prepared: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "data"))


@pytest.fixture
def parts() -> dict[str, Any]:
    return {}


@pytest.fixture
def house(folder: Path, parts: dict[str, Any]) -> Iterator[House]:
    made = House(folder, parts=parts)
    made.open()
    yield made
    made.close()
