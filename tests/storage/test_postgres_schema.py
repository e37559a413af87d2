"""The tables on PostgreSQL: those of the code, made by the same revisions, for servers that wait for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from structlog.testing import capture_logs
from tests.postgres import PostgresServer

from hoglab.storage.database import Database, SchemaTooNewError, SchemaTooOldError, tables
from hoglab.storage.database.migrations import HEADS
from hoglab.storage.database.postgres import connections as pools
from hoglab.storage.database.postgres.connections import PostgresConnections
from hoglab.storage.database.types import json_text

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
_COLUMNS = """
SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, collation_name,
    replace(replace(column_default, 'direct.', ''), 'hoglab.', '')
FROM information_schema.columns WHERE table_schema = %s AND table_name NOT IN ('alembic_version')
ORDER BY 1, 2
"""
_INDEXES = """
SELECT tablename, indexname, regexp_replace(indexdef, ' ON \\w+\\.', ' ON ') FROM pg_indexes
WHERE schemaname = %s AND tablename NOT IN ('alembic_version') AND indexname NOT LIKE '%%search' ORDER BY 1, 2
"""
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, replace(pg_get_constraintdef(oid), 'direct.', '') FROM pg_constraint
WHERE connamespace = %s::regnamespace AND conname NOT LIKE 'alembic%%' ORDER BY conname
"""


def schema_of(url: str, schema: str) -> list[list[tuple[object, ...]]]:
    with psycopg.connect(url) as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        return [
            connection.execute(query.encode(), (schema,)).fetchall()
            for query in (_COLUMNS, _INDEXES, _CONSTRAINTS)
        ]


def test_the_migrated_schema_is_the_schema_of_the_tables(postgres_url: str) -> None:
    assert Database.upgrade(postgres_url)
    assert not Database.upgrade(postgres_url)
    connections = PostgresConnections(postgres_url, tables.metadata)
    with connections.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        found = compare_metadata(context, tables.metadata)
        assert [each for each in found if "search" not in str(each)] == []
    with connections.write() as connection:
        connection.exec_driver_sql("CREATE SCHEMA direct")
        connection.exec_driver_sql("SET LOCAL search_path = direct")
        tables.metadata.create_all(connection)
    connections.dispose()
    migrated, direct = schema_of(postgres_url, "hoglab"), schema_of(postgres_url, "direct")
    for of_migrated, of_direct in zip(migrated, direct, strict=True):
        assert of_migrated == of_direct


def test_texts_sort_by_code_points_whatever_the_locale(postgres_url: str) -> None:
    Database.upgrade(postgres_url)
    database = Database.open(postgres_url)
    names = ["b", "C", "ä", "A", "a b", "ab", "Z"]
    with database.write() as tx:
        rows = [{"id": name, "name": name, "created_at": NOW} for name in names]
        tx.execute(sa.insert(tables.organization), rows)
    with database.read() as connection:
        for column in (tables.organization.c.id, tables.organization.c.name):
            assert list(connection.scalars(sa.select(column).order_by(column))) == sorted(names)
    database.dispose()


def test_nul_is_stored_as_a_stand_in(postgres_url: str) -> None:
    """PostgreSQL cannot keep it; in JSON it can stay what it is."""
    Database.upgrade(postgres_url)
    database = Database.open(postgres_url)
    values = ["a\0b", "\\u0000", "\\\0", "plain", '"\0"']
    with database.write() as tx:
        tx.execute(sa.insert(tables.organization), {"id": "o\0", "name": "O", "created_at": NOW})
    with database.read() as connection:
        assert connection.scalar(sa.select(tables.organization.c.id)) == "o\N{REPLACEMENT CHARACTER}"
        stored = [sa.literal({"email": value}, tables.person.c.properties.type) for value in values]
        found = [connection.scalar(sa.select(json_text(document, "email"))) for document in stored]
        for statement in (b"SELECT %s::text[]", b"SELECT %b::text[]"):
            cursor = connection.connection.cursor()
            cursor.execute(statement, (["o\0", "o"],))
            assert cursor.fetchone() == (["o\N{REPLACEMENT CHARACTER}", "o"],)
    assert found == [value.replace("\0", "\N{REPLACEMENT CHARACTER}") for value in values]
    database.dispose()


class TestServersThatStart:
    def test_one_waits_for_the_schema(self, postgres_url: str) -> None:
        opened: list[Database] = []
        with capture_logs() as logs:
            thread = threading.Thread(target=lambda: opened.append(Database.open(postgres_url)))
            thread.start()
            while not logs:
                thread.join(0.05)
                assert thread.is_alive()
            Database.upgrade(postgres_url)
            thread.join(20)
        assert [(line["event"], line["revision"], line["needed"]) for line in logs] == [
            ("waiting_for_schema", None, HEADS["main"])
        ]
        opened[0].dispose()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_one_that_waits_can_be_stopped(self, postgres_url: str, tmp_path: Path, number: int) -> None:
        command = [sys.executable, "-m", "hoglab", "serve", "--data", str(tmp_path), "--port", "0"]
        server = subprocess.Popen(
            [*command, "--database-url", postgres_url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        try:
            line = next(line for line in server.stderr if "waiting_for_schema" in line)
            assert "hoglab migrate" in line
            server.send_signal(number)
            server.communicate(timeout=120)
            assert server.returncode == 0  # 1 when the wait went on to its end
        finally:
            server.kill()
            server.wait()

    def test_the_wait_has_an_end(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pools, "SCHEMA_WAIT_S", 0.0)
        with pytest.raises(SchemaTooOldError, match=r"has no tables.*`hoglab migrate`"):
            Database.open(postgres_url)

    def test_a_schema_of_the_future_is_refused_at_once(self, postgres_url: str) -> None:
        Database.upgrade(postgres_url)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("UPDATE hoglab.alembic_version SET version_num = '9999'")
        for begin in (Database.open, Database.upgrade):
            with pytest.raises(SchemaTooNewError, match="9999, which is newer"):
                begin(postgres_url)

    def test_two_who_migrate_at_once_agree(self, postgres_url: str) -> None:
        done: list[bool] = []
        threads = [
            threading.Thread(target=lambda: done.append(Database.upgrade(postgres_url))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == [False, False, True]

    def test_a_server_that_was_restarted_costs_no_request(
        self, postgres: PostgresServer, postgres_url: str
    ) -> None:
        Database.upgrade(postgres_url)
        database = Database.open(postgres_url)
        postgres.disconnect(postgres_url)
        database.check()
        with database.write() as tx:
            tx.execute(sa.insert(tables.organization), {"id": "o", "name": "O", "created_at": NOW})
        database.dispose()


def test_a_server_on_files_imports_no_driver() -> None:
    code = "import sys, hoglab.app.server; print([name for name in sys.modules if 'psycopg' in name.split('.')[0]])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_driver_one_line_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['psycopg'] = None; from hoglab.cli import main; main()"
    command = [sys.executable, "-c", code, "migrate", "--database-url", "postgresql://localhost/hoglab"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'hoglab[postgres]'" in done.stderr
    assert "Traceback" not in done.stderr
