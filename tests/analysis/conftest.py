from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hoglab.storage.event_store.duckdb import DuckDbEventStore


@pytest.fixture
def event_store(tmp_path: Path) -> Iterator[DuckDbEventStore]:
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="512MB", threads=2)
    yield store
    store.close()
