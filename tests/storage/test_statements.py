"""Statements of the invocation queue: each is valid in its engine, used, and reads no large table as a whole."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresServer
from tests.storage.engines import on_own_database

from hoglab.storage.database import Database, tables
from hoglab.storage.invocations import postgres, sqlite
from hoglab.storage.invocations.postgres.rows import SQL as POSTGRES
from hoglab.storage.invocations.sqlite.rows import SQL as SQLITE
from hoglab.storage.invocations.statements import read_statements

OF_ENGINE = {"sqlite": (SQLITE, sqlite), "postgres": (POSTGRES, postgres)}
WHOLE_TABLES = {
    "count_dead": {"dead_event"},
    "latest": {"consumer_position"},
    "lowest_position": {"consumer_position"},
    "delete_finished": {"consumer_position"},
    "release": {"queue_worker"},
    "forget_workers": {"queue_worker"},
    "expired_backfill": {"backfill"},
}
"""Tables that a statement reads as a whole: they are small, or to be counted."""
WITHOUT_PLAN = {"listen"}
ROWS = {"notify": ["x"], "save_dead": ["x", 1, *["x"] * 7, b"x", 1, 1]}
"""Values for parameters without names or types."""
PARAMETER = re.compile(r"%\((\w+)\)([sb])(?:::(\w+)\[\])?|%([sb])(?:::(\w+)\[\])?")
TEXTS = {
    "first", "last", "queue", "token", "no_key", "own", "id", "consumer", "function_id", "hash", "order_key",
}  # fmt: skip


class Nothing(dict[str, None]):
    """NULL for every parameter."""

    def __missing__(self, name: str) -> None:
        return None


@pytest.mark.parametrize("engine", OF_ENGINE)
def test_each_statement_is_used_and_each_that_is_used_exists(engine: str) -> None:
    statements, package = OF_ENGINE[engine]
    sources = [path.read_text() for path in Path(package.__file__ or "").parent.glob("*.py")]
    named = {name for source in sources for name in re.findall(r'"([a-z_]+)"', source)}
    unused = {name for name in statements if name not in named and not name.startswith("expired_")}
    assert unused == set()
    used = {name for source in sources for name in re.findall(r'SQL\["([a-z_]+)"\]', source)}
    assert used <= statements.keys()


def test_long_statements_have_comments() -> None:
    for _, package in OF_ENGINE.values():
        text = Path(package.__file__ or "").with_name("statements.sql").read_text()
        sections = text.split("\n-- name: ")[1:]
        for section in sections:
            name, *lines = section.splitlines()
            statement = [line for line in lines if line and not line.startswith("--")]
            assert len(statement) <= 8 or lines[0].startswith("-- "), name


class TestFiles:
    def read(self, folder: Path, text: str) -> dict[str, str]:
        path = folder / "statements.sql"
        path.write_text(text)
        return read_statements(path)

    def test_parts_stand_in_what_follows(self, tmp_path: Path) -> None:
        text = "-- head\n-- part: a\n-- why\nx, y\n-- part: b\n{a}, z\n\n-- name: all\n-- what\nSELECT {b}\n  FROM t\n"
        assert self.read(tmp_path, text) == {"all": "SELECT x, y, z\n  FROM t"}

    @pytest.mark.parametrize(
        "text",
        [
            "-- name: a\nSELECT 1\n-- name: a\nSELECT 2",
            "-- name: a\n-- why\n",
            "-- part: a\nx\n-- name: a\ny",
        ],
    )
    def test_what_has_no_text_or_comes_twice_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ValueError, match="a is empty, or comes twice"):
            self.read(tmp_path, text)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("statements") / "queue.db"
    Database.open(path, tables.queue_metadata).dispose()
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


@pytest.mark.parametrize("name", SQLITE)
def test_sqlite_has_a_plan_that_reads_no_large_table_as_a_whole(
    embedded: sqlite3.Connection, name: str
) -> None:
    statement = SQLITE[name]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values: Any = Nothing()
    if "?" in statement:
        values = [None] * (max(numbered) if numbered else statement.count("?"))
    plan = [row[3] for row in embedded.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    scans = {step.split()[1] for step in plan if step.startswith("SCAN ") and "INDEX" not in step}
    assert scans - {"asked", "CONSTANT", "(subquery-1)"} <= WHOLE_TABLES.get(name, set()), plan


@pytest.fixture(scope="module")
def server_connection(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with on_own_database(postgres) as engine, engine.connect() as connection:
        connection.execute("SET enable_seqscan = off")
        yield connection


def values_of(statement: str) -> Mapping[str, Any] | list[Any]:
    """Values with the types of parameters, so that the server plans as it does for the queue."""
    named: dict[str, Any] = {}
    placed: list[Any] = []
    for name, _, array, _, array_of_place in PARAMETER.findall(statement):
        kind = array or array_of_place
        if not kind and (name in ("ids", "functions", "hashes")):
            kind = "text"
        value: Any = "x" if name in TEXTS or kind == "text" else 7
        value = {"bytea": b"x", "boolean": True}.get(kind, value)
        if kind:
            value = [value]
        if name:
            named[name] = value
        else:
            placed.append(value)
    return named or placed


@pytest.mark.parametrize("name", sorted(POSTGRES.keys() - WITHOUT_PLAN))
def test_postgresql_has_a_plan_that_reads_no_large_table_as_a_whole(
    server_connection: psycopg.Connection[Any], name: str
) -> None:
    statement = POSTGRES[name]
    values = ROWS.get(name) or values_of(statement)
    rows = server_connection.execute(f"EXPLAIN {statement}".encode(), values).fetchall()
    plan = [line for (line,) in rows]
    scans = {match[1] for line in plan if (match := re.search(r"Seq Scan on (\w+)", line))}
    assert scans <= WHOLE_TABLES.get(name, set()), plan
