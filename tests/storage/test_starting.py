"""Servers that start on one PostgreSQL database: one at a time, and while others ingest."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hoglab.people.store import save_position
from hoglab.storage.database import Database, tables
from hoglab.storage.database.postgres import sole_server
from hoglab.storage.database.postgres.driver import Driver
from hoglab.storage.database.postgres.sole_server import AnotherServerError, starting_alone
from hoglab.storage.directory import DataDirectory
from hoglab.storage.identity import PEOPLE_STAGE, ChangeCounterMirror, ExistingFiles, Installation


def test_one_starts_after_the_other(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(postgres_url, "hoglab")
    connect = partial(driver.connect, autocommit=True)
    began: list[str] = []

    def second() -> None:
        with starting_alone(connect, driver.name):
            began.append("second")

    with starting_alone(connect, driver.name):
        thread = threading.Thread(target=second)
        thread.start()
        monkeypatch.setattr(sole_server, "START_WAIT_S", 0.0)
        with (
            pytest.raises(AnotherServerError, match="has been starting"),
            starting_alone(connect, driver.name),
        ):
            pass
        monkeypatch.undo()
        began.append("first")
    thread.join()
    assert began == ["first", "second"]


class Ingesting:
    """An event log and an event store while others ingest: whatever is asked, a batch has come meanwhile."""

    def __init__(self, database: Database, queue: Database) -> None:
        self._mirror = ChangeCounterMirror(database, queue)
        self._database = database
        self.offset = 0

    def _one_more(self) -> int:
        before, self.offset = self.offset, self.offset + 1
        with self._database.write() as tx:
            save_position(tx.connection, PEOPLE_STAGE, self.offset)
            tx.changed("keys", 0)
        self._mirror.note()
        return before

    def position(self) -> int:
        return self._one_more()

    def last_offset(self) -> int:
        return self._one_more() + 1

    def stats(self) -> Any:
        return SimpleNamespace(first_offset=1)

    def identity(self) -> None:
        return None


def test_what_others_ingest_meanwhile_is_no_contradiction(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path, create=True)
    database = Database.open(directory.metadata_path)
    queue = Database.open(directory.queue_path, tables.queue_metadata)
    running = Ingesting(database, queue)
    existing = ExistingFiles(metadata=True, queue=True, events=True, secret_keys=True)
    files = Installation(directory, existing, database, queue, running, running)
    files.begin(SimpleNamespace(set_identity=lambda *_: None))
    for _ in range(3):
        assert files.findings() == []
    database.dispose()
    queue.dispose()
    directory.close()
