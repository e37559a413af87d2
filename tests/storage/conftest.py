from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.databases import Template, template
from tests.postgres import PostgresServer
from tests.storage.engines import Engine, NewEngine, SqliteEngine, on_own_database

from hoglab.storage.database import Database, tables

ENGINES = ["sqlite", "postgres"]


@pytest.fixture(scope="session")
def migrated(request: pytest.FixtureRequest) -> Template:
    return template(request, "migrated")


@pytest.fixture
def database(tmp_path: Path, migrated: Template) -> Iterator[Database]:
    with migrated.copied(tmp_path) as address:
        database = Database.open(address)
        yield database
        database.dispose()


@pytest.fixture
def queue_database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "queue.db", tables.queue_metadata)
    yield database
    database.dispose()


@pytest.fixture(params=ENGINES, scope="session")
def new_engine(request: pytest.FixtureRequest) -> NewEngine:
    """Gives empty storage, of each engine in turn."""

    @contextmanager
    def sqlite() -> Iterator[Engine]:
        with tempfile.TemporaryDirectory() as folder, closing(SqliteEngine(Path(folder))) as engine:
            yield engine

    if request.param == "sqlite":
        return sqlite
    server: PostgresServer = request.getfixturevalue("postgres")
    return partial(on_own_database, server)


@pytest.fixture
def engine(new_engine: NewEngine) -> Iterator[Engine]:
    """Empty storage, of each engine in turn."""
    with new_engine() as engine:
        yield engine
