"""Statements that are compiled once give what SQLAlchemy gives for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hoglab.storage.database import Database, DatabaseBusyError, PreparedSelect, among, listed, sqlite
from hoglab.storage.database.tables import organization, project

MOMENT = datetime(2026, 5, 1, 12, 30, 0, 5, tzinfo=UTC)
PROJECTS = 40_000
"""More than SQLite takes parameters."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database.open(tmp_path_factory.mktemp("prepared") / "hoglab.db")
    with database.write() as tx:
        tx.execute(organization.insert(), {"id": "o", "name": "O", "created_at": MOMENT})
        tx.execute(project.insert(), [_project(number) for number in range(1, PROJECTS + 1)])
    yield database
    database.dispose()


def _project(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "uuid": f"u{number}",
        "organization_id": "o",
        "name": f"Project {number}",
        "api_token": f"phc_{number}",
        "test_account_filters": [{"key": "email", "value": ["ä", None]}],
        "person_display_name_properties": None,
        "anonymize_ips": number % 2 == 0,
        "experiment_defaults": {},
        "settings": {"n": number},
        "created_at": MOMENT,
        "updated_at": MOMENT,
    }


EVERYTHING = sa.select(project).where(project.c.id == sa.bindparam("number"))


def test_rows_are_those_of_the_statement(database: Database) -> None:
    prepared = PreparedSelect(EVERYTHING)
    with database.read() as connection:
        for number in (1, 2, PROJECTS, PROJECTS + 1):
            expected = [list(row) for row in connection.execute(EVERYTHING, {"number": number})]
            assert prepared.rows(connection, number=number) == expected


def test_parameters_go_to_their_places(database: Database) -> None:
    statement = sa.select(project.c.id).where(
        project.c.name == sa.bindparam("name"), project.c.id < sa.bindparam("most")
    )
    with database.read() as connection:
        assert PreparedSelect(statement).rows(connection, most=10, name="Project 9") == [[9]]
        assert PreparedSelect(statement).rows(connection, most=9, name="Project 9") == []


@pytest.mark.parametrize("wanted", [[], [7], [3, 1, 2, 1], range(1, PROJECTS + 1)], ids=len)
def test_a_set_may_have_any_size(database: Database, wanted: list[int]) -> None:
    prepared = PreparedSelect(
        sa.select(project.c.id).where(among(project.c.id, sa.bindparam("ids"))).order_by(project.c.id)
    )
    with database.read() as connection:
        assert prepared.rows(connection, ids=listed(wanted)) == [[number] for number in sorted(set(wanted))]


def test_it_reads_from_the_snapshot_of_its_connection(database: Database) -> None:
    prepared = PreparedSelect(EVERYTHING)
    rename = project.update().where(project.c.id == 5)
    with database.read() as connection:
        before = prepared.rows(connection, number=5)
        with database.write() as tx:
            tx.execute(rename.values(name="Renamed"))
            assert prepared.rows(tx.connection, number=5) != before
        assert prepared.rows(connection, number=5) == before
    with database.read() as connection:
        assert prepared.rows(connection, number=5) != before


def test_a_locked_database_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite.connections, "BUSY_TIMEOUT_S", 0.01)
    database = Database.open(tmp_path / "hoglab.db")
    prepared = PreparedSelect(EVERYTHING)
    other = sqlite.connect(tmp_path / "hoglab.db", project.metadata)
    try:
        # Alone on the file, so that not even readers get in.
        database.dispose()
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE project SET name = name")
        with pytest.raises(DatabaseBusyError), database.read() as connection:
            prepared.rows(connection, number=1)
    finally:
        other.close()
        database.dispose()
