"""What all processes together ask of a PostgreSQL server: measured, and told when there is something to do."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
from prometheus_client import REGISTRY
from tests.postgres import PostgresServer

from hoglab.storage.database.postgres import load
from hoglab.storage.database.postgres.driver import Driver
from hoglab.storage.database.postgres.load import EVERY_S, DatabaseLoad


def test_connections_and_open_transactions(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(postgres_url, "public")
    measured = DatabaseLoad(partial(driver.connect, autocommit=True), driver.name)
    assert measured.problems() == []
    with psycopg.connect(postgres_url) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")
        assert measured.round() == EVERY_S
        assert (REGISTRY.get_sample_value("hoglab_database_connections") or 0) >= 1
        assert REGISTRY.get_sample_value("hoglab_database_connections_most") == 997
        assert (REGISTRY.get_sample_value("hoglab_database_oldest_snapshot_seconds") or 0) > 0
        monkeypatch.setattr(load, "OLD_SNAPSHOT_S", 0.0)
        monkeypatch.setattr(load, "MOST_CONNECTIONS", 0.0)
        connections, snapshot = measured.problems()
        assert "of 997 connections" in connections
        assert "pg_stat_activity says whose it is, end it" in snapshot
    postgres.close(postgres_url)
    assert measured.round() == EVERY_S, "a server that does not answer is asked again"
    postgres.reopen(postgres_url)
    measured.close()
