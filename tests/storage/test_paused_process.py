"""A process that is paused in a transaction on PostgreSQL: others get its locks before they give up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa
from tests.postgres import PostgresServer
from tests.waiting import PATIENCE_S, wait_for

from hoglab.storage.database import Database, tables
from hoglab.storage.database.postgres.driver import LOCK_TIMEOUT_S, Driver
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.event_log.leases import LogLeases

pytestmark = pytest.mark.faults

WRITER = """
import sys
from hoglab.storage.database import Database, DatabaseError
from hoglab.storage.database.postgres import driver

driver.IDLE_IN_TRANSACTION_TIMEOUT_S = 2
database = Database.open(sys.argv[1])
try:
    with database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE installation SET starts = 2")
        print("has its turn", flush=True)
        sys.stdin.readline()
except DatabaseError as error:
    print(error, flush=True)
with database.read() as connection:
    print(connection.exec_driver_sql("SELECT starts FROM installation").scalar(), flush=True)
"""
READER_OF_A_PARTITION = """
import sys
from hoglab.storage.database import DatabaseError, tables
from hoglab.storage.database.postgres.driver import Driver
from hoglab.storage.database.postgres.session import PostgresSession
from hoglab.storage.event_log.leases import LogLeases, finish_within
from hoglab.storage.event_log.partitions import PartitionDone

driver = Driver(sys.argv[1], tables.queue_metadata.info["postgresql"]["schema"])
connect = lambda: driver.connect(autocommit=True)
owned = LogLeases(connect, driver.name, partitions=2, lease_s=1).renew().owned
session = PostgresSession(connect, driver.name)
sends_statements = sys.argv[2] == "statements"
try:
    with session.pipelined() if sends_statements else session.transaction() as connection:
        finish_within(connection, PartitionDone(owned[1], 7))
        if not sends_statements:
            connection.pgconn.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
            connection.pgconn.flush()
        print("has written", flush=True)
        sys.stdin.readline()
        while connection.pgconn.get_result() is not None:
            pass
        connection.execute(b"SELECT")
except DatabaseError as error:
    print(error, flush=True)
"""
_SETTING = "SELECT extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.database(postgres.template("migrated", Database.upgrade))


def test_others_get_the_turn_of_a_process_that_is_paused(url: str) -> None:
    database = Database.open(url)
    with database.write() as tx:
        tx.execute(sa.insert(tables.installation).values(installation_id="one", generation=1, starts=1))
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "has its turn\n"
        os.kill(writer.pid, signal.SIGSTOP)
        with database.write() as tx:
            assert tx.execute(sa.select(tables.installation.c.starts)).scalar() == 1
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    said, _ = writer.communicate("\n", timeout=PATIENCE_S)
    assert said.splitlines() == [f"{database.name} ended a transaction that did nothing for long", "1"]
    assert writer.returncode == 0
    database.dispose()


@pytest.mark.parametrize("waits_for", ["statements", "rows"])
def test_a_partition_changes_hands_while_its_reader_is_paused(
    waits_for: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No limit of the server ends a transaction between statements that are sent ahead, or while it sends rows."""
    monkeypatch.setattr("hoglab.storage.database.postgres.driver.IDLE_IN_TRANSACTION_TIMEOUT_S", 2)
    url = postgres.database()
    upgrade_databases(url)
    driver = Driver(url, tables.queue_metadata.info["postgresql"]["schema"])
    command = [sys.executable, "-c", READER_OF_A_PARTITION, url, waits_for]
    with (
        closing(LogLeases(lambda: driver.connect(autocommit=True), driver.name, partitions=2)) as leases,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader,
    ):
        assert reader.stdout is not None
        assert reader.stdout.readline() == "has written\n"
        os.kill(reader.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: set(leases.renew().owned) == {0, 1}, every_s=0.2)
            assert leases.positions() == {0: 0, 1: 0}
        finally:
            os.kill(reader.pid, signal.SIGCONT)
            said, _ = reader.communicate("\n", timeout=PATIENCE_S)
    assert said.startswith(driver.name)


def test_who_waits_for_locks_waits_longer_than_a_transaction_may_do_nothing(url: str) -> None:
    """Also where the operator says something else in the address."""

    def idle_s(address: str, *, reader: bool) -> float:
        with closing(Driver(address, "hoglab").connect(autocommit=True, reader=reader)) as connection:
            return _value(connection)

    assert 0 < idle_s(url, reader=False) < LOCK_TIMEOUT_S < idle_s(url, reader=True)
    option = f"{url}&options=-cidle_in_transaction_session_timeout%3D7s"
    assert idle_s(option, reader=False) == idle_s(option, reader=True) == 7


def _value(connection: psycopg.Connection[tuple[float]]) -> float:
    row = connection.execute(_SETTING).fetchone()
    assert row is not None
    return float(row[0])
