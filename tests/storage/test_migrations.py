"""Migrations: what they build is what the tables in the code say, and no file of the future is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, delete, inspect, select

from hoglab.storage.database import Database, SchemaTooNewError, tables
from hoglab.storage.database.migrations import (
    HEADS,
    alembic_config,
    current_revision,
    migrate,
    write_revision,
)
from hoglab.storage.database.sqlite import SqliteConnections

SCHEMAS = [tables.metadata, tables.queue_metadata]


def schema_name(metadata: MetaData) -> str:
    return str(metadata.info["migrations"])


@pytest.mark.parametrize("metadata", SCHEMAS, ids=schema_name)
class TestSchemas:
    def test_the_migrated_schema_is_the_schema_of_an_empty_database(
        self, metadata: MetaData, tmp_path: Path
    ) -> None:
        migrated, direct = (
            SqliteConnections(tmp_path / "a.db", metadata),
            SqliteConnections(tmp_path / "b.db", metadata),
        )
        with migrated.migrate() as connection:
            command.upgrade(alembic_config(metadata, connection), "head")
        with migrated.read() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []
        assert migrate(direct, metadata)
        # Alembic does not compare everything (defaults, conditions of indexes); SQLite's own text has it all.
        assert _definitions(migrated) == _definitions(direct)
        migrated.dispose()
        direct.dispose()

    def test_head_is_the_newest_revision(self, metadata: MetaData, tmp_path: Path) -> None:
        connections = SqliteConnections(tmp_path / "a.db", metadata)
        with connections.write() as connection:
            script = ScriptDirectory.from_config(alembic_config(metadata, connection))
            assert script.get_heads() == [HEADS[schema_name(metadata)]]
        connections.dispose()

    def test_a_second_start_has_nothing_to_do(self, metadata: MetaData, tmp_path: Path) -> None:
        connections = SqliteConnections(tmp_path / "a.db", metadata)
        assert migrate(connections, metadata)
        assert not migrate(connections, metadata)
        connections.dispose()

    def test_a_newer_schema_is_refused_and_left_alone(self, metadata: MetaData, tmp_path: Path) -> None:
        Database.open(tmp_path / "a.db", metadata).dispose()
        connections = SqliteConnections(tmp_path / "a.db", metadata)
        with connections.write() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        before = _definitions(connections)
        with pytest.raises(SchemaTooNewError, match="9999, which is newer than this program knows") as caught:
            Database.open(tmp_path / "a.db", metadata)
        assert "\n" not in str(caught.value)
        assert caught.value.revision == "9999"
        assert _definitions(connections) == before
        connections.dispose()


def test_the_file_of_the_queues_can_give_space_back(tmp_path: Path) -> None:
    Database.open(tmp_path / "a.db", tables.queue_metadata).dispose()
    connections = SqliteConnections(tmp_path / "a.db", tables.queue_metadata)
    with connections.read() as connection:
        assert connection.exec_driver_sql("PRAGMA page_size").scalar() == 8192
        assert connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() == 2  # incremental
    connections.dispose()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    connections = SqliteConnections(tmp_path / "a.db", tables.metadata)
    with connections.write() as connection:
        connection.exec_driver_sql("CREATE TABLE membership (note TEXT)")  # in the way of a table
    with pytest.raises(Exception, match="already exists"):
        migrate(connections, tables.metadata)
    with connections.read() as connection:
        assert inspect(connection).get_table_names() == ["membership"]
    connections.dispose()


def test_distinct_ids_of_an_older_database_still_name_their_persons(tmp_path: Path) -> None:
    """Revision 0009 builds their table anew."""
    connections = SqliteConnections(tmp_path / "a.db", tables.metadata)
    names = [("b", 1, 3), ("a", 2, 0), ("Ä'\"", 1, 7), ("", 2, 1)]
    with connections.migrate() as connection:
        command.upgrade(alembic_config(tables.metadata, connection), "0008")
        for statement in (
            "INSERT INTO organization (id, name, created_at) VALUES ('o', 'O', 0)",
            (
                "INSERT INTO project (id, uuid, organization_id, name, api_token, test_account_filters, "
                "experiment_defaults, settings, created_at, updated_at) "
                "VALUES (7, 'u', 'o', 'P', 'phc_t', '[]', '{}', '{}', 0, 0)"
            ),
            (
                "INSERT INTO person (id, uuid, project_id, properties, created_at) "
                "VALUES (1, 'p1', 7, '{}', 0), (2, 'p2', 7, '{}', 0)"
            ),
        ):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "INSERT INTO person_distinct_id (project_id, distinct_id, person_id, version) VALUES (7, ?, ?, ?)",
            names,
        )
    connections.dispose()
    with Database.open(tmp_path / "a.db").write() as tx:
        ids = tables.person_distinct_id
        found = select(ids.c.distinct_id, ids.c.person_id, ids.c.version).where(ids.c.project_id == 7)
        assert sorted(map(tuple, tx.execute(found))) == sorted(names)
        tx.execute(delete(tables.person).where(tables.person.c.id == 1))
        assert sorted(map(tuple, tx.execute(found))) == sorted(name for name in names if name[1] == 2)


def test_invocations_of_an_older_queue_that_wait_for_one_of_their_key_are_held(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    connections = SqliteConnections(path, tables.queue_metadata)
    rows = [
        ("a1", "available", "a", None),
        ("a2", "available", "a", None),
        ("b1", "running", "b", None),
        ("b2", "available", "b", None),
        ("c1", "completed", "c", 1),
        ("c2", "available", "c", None),
        ("free", "available", None, None),
    ]
    with connections.migrate() as connection:
        command.upgrade(alembic_config(tables.queue_metadata, connection), "0012")
        for each, status, key, finished_at in rows:
            connection.exec_driver_sql(
                "INSERT INTO invocation (id, project_id, function_id, queue, priority, scheduled_at, status, "
                "state, created_at, order_key, finished_at) VALUES (?, 1, 'f', 'hog', 0, 0, ?, x'', 0, ?, ?)",
                (each, status, key, finished_at),
            )
    connections.dispose()
    database = Database.open(path, tables.queue_metadata)
    with database.read() as connection:
        held = connection.exec_driver_sql("SELECT id FROM invocation WHERE status = 'held' ORDER BY id")
        assert [row[0] for row in held] == ["a2", "b2"]
    database.dispose()


def test_a_revision_can_be_written_from_the_difference(tmp_path: Path) -> None:
    """Developers' tool: with an up-to-date database there is no difference, so its body is empty."""
    connections = SqliteConnections(tmp_path / "a.db", tables.metadata)
    migrate(connections, tables.metadata)
    with connections.migrate() as connection:
        path = write_revision(tables.metadata, connection, "0999", "Change nothing")
        try:
            text = path.read_text()
        finally:
            path.unlink()
    connections.dispose()
    assert '"""Change nothing"""' in text
    assert f"down_revision = '{HEADS['main']}'" in text
    assert text.rstrip().endswith("pass\n    # ### end Alembic commands ###") or text.rstrip().endswith(
        "pass"
    )


def test_opening_an_up_to_date_database_does_not_import_alembic(tmp_path: Path) -> None:
    Database.open(tmp_path / "a.db").dispose()
    program = (
        "import sys; from hoglab.storage.database import Database; "
        "Database.open(sys.argv[1]).dispose(); sys.exit('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.db")], check=False)
    assert done.returncode == 0


def _definitions(connections: SqliteConnections) -> dict[str, str]:
    """Every CREATE statement as SQLite keeps it, without differences that mean nothing."""
    with connections.read() as connection:
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
    return {name: _normal(sql) for name, sql in rows}


def _normal(sql: str) -> str:
    head, _, body = " ".join(sql.split()).partition("(")
    parts = sorted(part.strip() for part in _split(body.rpartition(")")[0]))
    return f"{head.strip()} ({', '.join(parts)}) {body.rpartition(')')[2].strip()}"


def _split(body: str) -> list[str]:
    """Split at commas outside parentheses: constraints may come in any order."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(body):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(body[start:position])
            start = position + 1
    return [*parts, body[start:]]


def test_a_file_is_copied_before_it_is_upgraded(tmp_path: Path) -> None:
    from alembic.command import upgrade

    path = tmp_path / "hoglab.db"
    (tmp_path / "hoglab.db.before-0001").touch()
    connections = SqliteConnections(path, tables.metadata)
    with connections.migrate() as connection:
        upgrade(alembic_config(tables.metadata, connection), "0036")
        connection.exec_driver_sql("INSERT INTO organization (id, name, created_at) VALUES ('o', 'Org', 0)")
    assert migrate(connections, tables.metadata)
    connections.dispose()
    (copy,) = tmp_path.glob("hoglab.db.before-*")
    assert copy.name == "hoglab.db.before-0036"
    assert copy.stat().st_mode & 0o777 == 0o600
    kept = SqliteConnections(copy, tables.metadata)
    with kept.read() as connection:
        assert current_revision(connection) == "0036"
        assert connection.exec_driver_sql("SELECT name FROM organization").scalar() == "Org"
    kept.dispose()


def test_an_upgrade_without_room_for_a_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil
    from types import SimpleNamespace

    from alembic.command import upgrade

    from hoglab.storage.database import DatabaseFullError

    connections = SqliteConnections(tmp_path / "hoglab.db", tables.metadata)
    with connections.migrate() as connection:
        upgrade(alembic_config(tables.metadata, connection), "0036")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(DatabaseFullError, match="no room for a copy"):
        migrate(connections, tables.metadata)
    connections.dispose()
