"""The PostgreSQL server of the tests themselves."""

from __future__ import annotations

import psycopg
from tests.postgres import PostgresServer


def test_databases_are_copies_of_what_the_first_process_filled(postgres: PostgresServer) -> None:
    filled = []

    def fill(url: str) -> None:
        filled.append(url)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE word (text text)")
            connection.execute("INSERT INTO word VALUES ('b'), ('C')")

    urls = [postgres.database(postgres.template("words", fill)) for _ in range(2)]
    for url in urls:
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT text FROM word ORDER BY text").fetchall() == [("b",), ("C",)]
            connection.execute("DELETE FROM word")
    for url in urls:
        postgres.drop(url)
    assert len(filled) <= 1


def test_an_address_names_an_empty_database(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
