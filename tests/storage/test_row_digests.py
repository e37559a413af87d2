"""Digests of tables: they fit whatever the database does, and nothing that happens beside it."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.waiting import wait_for

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.storage.database import Database, tables
from hoglab.storage.database import integrity as integrity_module
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.database.sqlite import row_digests

KEYS = tables.personal_api_key
ADD_A_KEY = """
INSERT INTO personal_api_key
SELECT 'other', user_id, label, 'b', mask_value, scopes, scoped_projects, scoped_organizations, created_at, expires_at,
    last_used_at, last_rolled_at
FROM personal_api_key WHERE ?
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with an account and its key."""
    path = tmp_path / "hoglab.db"
    database = Database.open(path)
    bootstrap(database, AccountService(database), api_key="phx_" + "k" * 43)
    database.dispose()
    return path


def beside(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def damaged(path: Path) -> list[str]:
    database = Database.open(path)
    try:
        return database.files[0].damaged_tables()
    finally:
        database.dispose()


def test_what_the_database_writes_fits(path: Path) -> None:
    database = Database.open(path)
    with database.write() as tx:
        tx.execute(sa.update(KEYS).values(label="other"))
        row = tx.execute(sa.select(tables.project)).one()._asdict()
        rows = [row | {"id": n, "api_token": f"t{n}", "uuid": f"u{n}"} for n in (7, 8, 9)]
        tx.execute(sa.insert(tables.project), rows)
        tx.execute(sa.delete(tables.project).where(tables.project.c.id == 8))
    with suppress(ZeroDivisionError), database.write() as tx:
        tx.execute(sa.delete(KEYS))
        raise ZeroDivisionError
    assert database.files[0].damaged_tables() == []
    database.dispose()
    assert damaged(path) == []


def test_rows_that_change_with_others_fit() -> None:
    """Those that foreign keys delete or change, and those that an insertion runs into."""
    raw = sqlite3.connect(":memory:", isolation_level=None)
    raw.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES (1);"
        "CREATE TABLE cohort (id INTEGER PRIMARY KEY, n INTEGER);"
        "CREATE TABLE experiment (id INTEGER PRIMARY KEY, c REFERENCES cohort ON DELETE SET NULL);"
        "CREATE TABLE action (id INTEGER PRIMARY KEY, c REFERENCES cohort ON DELETE CASCADE);"
        "INSERT INTO cohort VALUES (1, 1), (2, 2); INSERT INTO experiment VALUES (1, 1), (2, 2);"
        "INSERT INTO action VALUES (1, 1), (2, 2);"
    )
    row_digests.provide(raw)
    with sa.create_engine("sqlite://", creator=lambda: raw).connect() as connection:
        row_digests.make(connection)
        row_digests.keep_up(raw)
        raw.execute("INSERT INTO cohort VALUES (2, 3) ON CONFLICT (id) DO UPDATE SET n = excluded.n")
        raw.execute("DELETE FROM cohort WHERE id = 1")
        assert raw.execute("SELECT count(*), count(c) FROM experiment").fetchone() == (2, 1)
        assert raw.execute("SELECT count(*) FROM action").fetchone() == (1,)
        assert row_digests.damaged(connection) == []


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE personal_api_key SET secure_value = ?", "x"),
        ("UPDATE personal_api_key SET label = CAST(? AS TEXT)", b"\xff\xfe"),
        ("UPDATE personal_api_key SET label = CAST(label AS BLOB) WHERE ?", True),
        ("UPDATE personal_api_key SET expires_at = ?", 1),
        ("DELETE FROM personal_api_key WHERE ?", True),
        (ADD_A_KEY, True),
    ],
)
def test_what_happens_beside_it_is_noticed_until_it_is_accepted(
    path: Path, statement: str, value: object
) -> None:
    beside(path, statement, value)
    assert damaged(path) == ["personal_api_key"]
    database = Database.open(path)
    with database.write() as tx:  # further changes do not hide it, nor does it keep them away
        tx.execute(sa.update(KEYS).values(mask_value="masked"))
    assert database.files[0].damaged_tables() == ["personal_api_key"]
    database.files[0].accept_rows()
    assert database.files[0].damaged_tables() == []
    database.dispose()


def test_a_file_without_digests_gets_them_and_an_upgrade_makes_them_again(path: Path) -> None:
    for statement in ("DROP TABLE row_digest", "UPDATE row_digest SET revision = 'before', digest = 1"):
        beside(path, statement)
        assert damaged(path) == []
        beside(path, "UPDATE personal_api_key SET label = label || '.'")
        assert damaged(path) == ["personal_api_key"]
        beside(path, "UPDATE row_digest SET revision = 'before'")


def test_it_is_told_until_the_rows_are_mended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity_module, "RECHECK_EVERY_S", 0.01)
    beside(path, "UPDATE personal_api_key SET label = 'x' || label")
    database = Database.open(path)
    watch = IntegrityWatch({"hoglab.db": database})
    watch.start()
    wait_for(watch.looked.is_set)
    assert watch.damages() == {"hoglab.db": "rows of personal_api_key are not what was written"}
    beside(path, "UPDATE personal_api_key SET label = substr(label, 2)")
    wait_for(lambda: not watch.damages())
    watch.stop(10)
    database.dispose()
