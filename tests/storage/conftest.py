from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hoglab.storage.database import Database, tables


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "hoglab.db")
    yield database
    database.dispose()


@pytest.fixture
def queue_database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "queue.db", tables.queue_metadata)
    yield database
    database.dispose()
