from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import organization, project

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with the projects 1 and 2."""
    path = tmp_path_factory.mktemp("people") / "hoglab.db"
    opened = Database.open(path)
    with opened.write() as tx:
        tx.execute(sa.insert(organization), {"id": "o", "name": "O", "created_at": NOW})
        for number in (1, 2):
            tx.execute(
                sa.insert(project),
                {
                    "id": number,
                    "uuid": f"p{number}",
                    "organization_id": "o",
                    "name": f"Project {number}",
                    "api_token": f"phc_{number}",
                    "test_account_filters": [],
                    "experiment_defaults": {},
                    "settings": {},
                    "created_at": NOW,
                    "updated_at": NOW,
                },
            )
    opened.dispose()
    return path


@pytest.fixture
def database(tmp_path: Path, prepared: Path) -> Iterator[Database]:
    """A database of one's own with the projects 1 and 2."""
    shutil.copy(prepared, tmp_path / "hoglab.db")
    opened = Database.open(tmp_path / "hoglab.db")
    yield opened
    opened.dispose()


@pytest.fixture
def people(database: Database) -> PersonService:
    return PersonService(database, now=lambda: NOW)
