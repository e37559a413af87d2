from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.databases import Template, template

from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import organization, project

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def add_projects(database: Database) -> None:
    with database.write() as tx:
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


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Template:
    """A database with the projects 1 and 2."""
    return template(request, "people", add_projects)


@pytest.fixture
def database(tmp_path: Path, prepared: Template) -> Iterator[Database]:
    """A database of one's own with the projects 1 and 2."""
    with prepared.copied(tmp_path) as address:
        opened = Database.open(address)
        yield opened
        opened.dispose()


@pytest.fixture
def people(database: Database) -> PersonService:
    return PersonService(database, now=lambda: NOW)
